//! Certificates of nodes and of principals, and who shows wrong ones.

use serde::{Deserialize, Serialize};

/// Certificates in a run. With it every connection begins with certificates, as it does with TLS.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdentityPlan {
    /// Whether nodes take nobody for a node whose certificate does not say which one it is.
    pub(crate) require: bool,
    /// Life of a certificate, in simulated milliseconds; a node asks for the next one after two thirds.
    pub(crate) life_ms: u64,
    /// How much the wall clock of each founder is ahead, in milliseconds; clocks of others are right.
    pub(crate) skews_ms: Vec<i64>,
    /// Certificates that end and are not renewed before all else has healed, by time.
    pub(crate) lapses: Vec<LapsePlan>,
    /// Calls with certificates that prove less than the caller says, by time.
    pub(crate) impostors: Vec<ImpostorPlan>,
}

/// A founder's certificate ends, and its connections break.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LapsePlan {
    /// When, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The machine.
    pub(crate) node: u32,
}

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImpostorPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The node that it goes to.
    pub(crate) via: u32,
    /// What it shows.
    pub(crate) show: Show,
}

/// What a caller shows, and says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Show {
    /// A founder's certificate of another authority.
    Foreign { node: u32 },
    /// That of a principal, valid from and to so many milliseconds after the call begins.
    Dated { from_ms: i64, to_ms: i64 },
    /// A founder's, with a hello that says another founder.
    Namesake { node: u32, says: u32 },
    /// That of the same node of another cluster.
    Elsewhere { node: u32 },
    /// A node's that does not say which, with a hello that says this one.
    Generic { says: u32 },
    /// A principal's, with a hello that says this node.
    Client { says: u32 },
}
