//! Principals of a plan: what they are granted and when, and which calls they make to which node.

use serde::{Deserialize, Serialize};

use super::identity::IdentityPlan;
use super::quota::HoldingPlan;

/// Number of filters that principals are granted rights on, in addition to the plan's own: `a0`, `a1` and
/// so on.
pub(crate) const ACCESS_FILTERS: u32 = 3;

/// The administrator's token: that of all clients that are no principals of the plan.
pub(crate) const ROOT: &str = "root.k0";

/// Everything about principals. If a plan has it, the cluster is guarded from the start, and the plan's
/// other clients call as an administrator.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessPlan {
    /// Changes that the administrator makes, by time.
    pub(crate) changes: Vec<ChangePlan>,
    /// Calls of principals and of strangers, by time.
    pub(crate) asks: Vec<AccessCallPlan>,
    /// Quotas, and the holders that use them up; None in plans that were written before there were
    /// quotas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) holding: Option<HoldingPlan>,
    /// Certificates; with None, callers are identified by tokens only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) identities: Option<IdentityPlan>,
}

/// A change of a principal.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangePlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// Number of the principal; `n` is named `p<n>`.
    pub(crate) principal: u32,
    /// What changes.
    pub(crate) change: Change,
}

/// A change of a principal.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Change {
    /// It is added or replaced, with a token whose secret has this number. Its rights expire after
    /// `for_ms`, if that is not 0.
    Put { secret: u32, grants: Vec<GrantPlan>, cluster: Vec<ClusterRight>, for_ms: u64 },
    /// It is revoked.
    Revoke,
}

/// Verbs on filters of some names.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantPlan {
    /// A name, or a prefix of names followed by `*`.
    pub(crate) pattern: String,
    /// The rights that are granted.
    pub(crate) rights: Vec<FilterRight>,
}

/// A right on a filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FilterRight {
    /// Query.
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

/// A right on the cluster. None of the plan's principals is an administrator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClusterRight {
    /// Read its status.
    Metrics,
    /// List its jobs.
    Jobs,
}

/// A call whose caller may lack the right to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessCallPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The principal whose token it carries.
    pub(crate) principal: u32,
    /// The number of the token's secret; None sends no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<u32>,
    /// The only node that it is sent to.
    pub(crate) via: u32,
    /// What it asks for.
    pub(crate) ask: AccessCall,
}

/// A request. Filters are given by number; those from [`ACCESS_FILTERS`] on never exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum AccessCall {
    /// Query an item.
    Contains { filter: u32, item: u32 },
    /// Get the filter's description.
    Info { filter: u32 },
    /// Insert an item.
    Insert { filter: u32, item: u32 },
    /// Remove an item.
    Remove { filter: u32, item: u32 },
    /// Flush the filter: have its copies exchange.
    Flush { filter: u32 },
    /// Create the filter.
    Create { filter: u32 },
    /// Clear the filter.
    Clear { filter: u32 },
    /// Drop the filter.
    Drop { filter: u32 },
    /// OR `source` into the filter.
    Merge { filter: u32, source: u32 },
    /// List the filters.
    List,
    /// Get the cluster's status.
    Status,
    /// List the jobs.
    Jobs,
    /// List the principals.
    Principals,
    /// Grant the calling principal administrator rights.
    Escalate,
    /// Send a request in a session of another principal, whose own request must still get its first
    /// answer when it is retried.
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
