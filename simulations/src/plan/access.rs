//! Principals of a plan: what they are granted and when, and what they ask of which node.

use serde::{Deserialize, Serialize};

use super::identity::IdentityPlan;
use super::quota::HoldingPlan;

/// Filters that principals are granted rights on, beside those of the plan: `a0`, `a1` and so on.
pub(crate) const ACCESS_FILTERS: u32 = 3;

/// Everything about principals. With it the cluster is guarded from the start, and the other clients of
/// the plan are an administrator.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessPlan {
    /// What the administrator changes, by time.
    pub(crate) changes: Vec<ChangePlan>,
    /// What principals and strangers ask for, by time.
    pub(crate) asks: Vec<AskPlan>,
    /// Quotas, and who uses them up; None in plans from before there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) holding: Option<HoldingPlan>,
    /// Certificates; with None nobody proves anything but by a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) identities: Option<IdentityPlan>,
}

/// A change of a principal.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangePlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// Which principal: number `n` is called `p<n>`.
    pub(crate) principal: u32,
    /// What changes.
    pub(crate) change: Change,
}

/// What becomes of a principal.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Change {
    /// It is added, or replaced, with a token whose secret has this number, and rights that end after
    /// `for_ms`, if that is not 0.
    Put { secret: u32, grants: Vec<GrantPlan>, cluster: Vec<ClusterRight>, for_ms: u64 },
    /// It is revoked.
    Revoke,
}

/// Verbs on filters of some names.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantPlan {
    /// A name, or the beginning of names and `*`.
    pub(crate) pattern: String,
    /// What is granted.
    pub(crate) rights: Vec<FilterRight>,
}

/// What may be done with a filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FilterRight {
    /// Ask.
    Read,
    /// Insert, flush, merge into it.
    Insert,
    /// Remove items.
    Remove,
    /// Create, clear, drop.
    Manage,
    /// Merge from it.
    Export,
}

/// What may be done with the cluster. Administrators are none of the plan's principals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClusterRight {
    /// See its status.
    Metrics,
    /// See its jobs.
    Jobs,
}

/// A call of somebody who may have no right to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The principal whose name it shows.
    pub(crate) principal: u32,
    /// The number of the secret that it shows; None shows no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<u32>,
    /// The node that it goes to, and to no other.
    pub(crate) via: u32,
    /// What it asks for.
    pub(crate) ask: Ask,
}

/// What is asked for. Filters are numbers; those from [`ACCESS_FILTERS`] on never exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Ask {
    /// Is the item there?
    Contains { filter: u32, item: u32 },
    /// What is known of the filter.
    Info { filter: u32 },
    /// Insert an item.
    Insert { filter: u32, item: u32 },
    /// Remove an item.
    Remove { filter: u32, item: u32 },
    /// Have copies exchange what they have.
    Flush { filter: u32 },
    /// Create the filter.
    Create { filter: u32 },
    /// Empty it.
    Clear { filter: u32 },
    /// Drop it.
    Drop { filter: u32 },
    /// OR `source` into it.
    Merge { filter: u32, source: u32 },
    /// Which filters there are.
    List,
    /// How the cluster is.
    Status,
    /// Which jobs there are.
    Jobs,
    /// Which principals there are.
    Principals,
    /// Make oneself an administrator.
    Escalate,
    /// Send a request in a session that another principal has opened; that one's request must hear its
    /// first answer still.
    Steal { item: u32 },
}

/// The name of a filter that principals ask about.
pub(crate) fn access_filter(number: u32) -> String {
    format!("a{number}")
}

/// The name of a principal.
pub(crate) fn principal_name(number: u32) -> String {
    format!("p{number}")
}
