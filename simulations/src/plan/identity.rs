//! Certificates of nodes and principals, and callers that present wrong ones.

use serde::{Deserialize, Serialize};

/// Certificates in a run. If a plan has this, every connection begins with an exchange of certificates,
/// as with TLS.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdentityPlan {
    /// Whether nodes accept a caller as a node only if its certificate names that node.
    pub(crate) require: bool,
    /// Lifetime of a certificate, in simulated milliseconds. A node renews it after two thirds.
    pub(crate) life_ms: u64,
    /// How far the wall clock of each founder is ahead, in milliseconds; other machines' clocks are
    /// right.
    pub(crate) skews_ms: Vec<i64>,
    /// Certificates that lapse and are not renewed before all else has healed, by time.
    pub(crate) lapses: Vec<LapsePlan>,
    /// Calls whose certificate proves less than the caller claims, by time.
    pub(crate) impostors: Vec<ImpostorPlan>,
}

/// The certificate of a founder lapses, and its connections break.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LapsePlan {
    /// When, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The machine.
    pub(crate) node: u32,
}

/// A call with a certificate of the caller's choice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImpostorPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The node that it is sent to.
    pub(crate) via: u32,
    /// The certificate and the claimed identity.
    pub(crate) show: Show,
}

/// The certificate that a caller presents, and the node that its hello claims.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Show {
    /// A founder's certificate from another authority.
    Foreign { node: u32 },
    /// A principal's certificate, valid from `from_ms` to `to_ms` after the start of the call.
    Dated { from_ms: i64, to_ms: i64 },
    /// A founder's certificate, with a hello that claims another founder.
    Namesake { node: u32, says: u32 },
    /// The certificate of the same node in another cluster.
    Elsewhere { node: u32 },
    /// A generic node certificate, with a hello that claims this node.
    Generic { says: u32 },
    /// A principal's certificate, with a hello that claims this node.
    Client { says: u32 },
}
