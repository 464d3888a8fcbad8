//! Principals with quotas, and the filters that they create and drop through several nodes at once.

use serde::{Deserialize, Serialize};

/// Number of names under which a holder creates filters.
pub(crate) const SLOTS: u32 = 6;

/// Quotas and their holders. Holders are additional principals, named `h0`, `h1` and so on, each with the
/// right to manage its own filters.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldingPlan {
    /// How many holders there are.
    pub(crate) holders: u32,
    /// Quotas that the administrator sets, by time.
    pub(crate) limits: Vec<LimitPlan>,
    /// Calls of holders, by time.
    pub(crate) calls: Vec<HoldPlan>,
}

/// A change of a quota; a value that is None is unlimited from then on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The holder whose quota it is; None for the cluster's, which is added to the usage at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<u32>,
    /// Number of filters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) filters: Option<u32>,
    /// Memory, in tenths of what a `Size::Large` filter takes on all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenths: Option<u32>,
}

/// A call of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The number of the holder.
    pub(crate) holder: u32,
    /// The only node that it is sent to.
    pub(crate) via: u32,
    /// The request.
    pub(crate) call: Hold,
}

/// A holder's request. The slot identifies one of the holder's filters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Hold {
    /// Create the filter.
    Make { slot: u32, size: Size },
    /// Clear it.
    Clear { slot: u32 },
    /// Drop it.
    Drop { slot: u32 },
}

/// Size of a holder's filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Size {
    /// A few hundred bytes per shard.
    Small,
    /// Some twenty times as much.
    Large,
}

impl Size {
    /// Both sizes.
    pub(crate) const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Capacity in items of such a filter.
    pub(crate) const fn capacity(self) -> u64 {
        match self {
            Self::Small => 2_000,
            Self::Large => 40_000,
        }
    }

    /// The name of the administrator's filter of this size, which shows how much memory such a filter
    /// takes.
    pub(crate) const fn sample(self) -> &'static str {
        match self {
            Self::Small => "sample-small",
            Self::Large => "sample-large",
        }
    }
}

impl Hold {
    /// The slot of the filter.
    pub(crate) const fn slot(self) -> u32 {
        match self {
            Self::Make { slot, .. } | Self::Clear { slot } | Self::Drop { slot } => slot,
        }
    }
}

/// The name of a holder.
pub(crate) fn holder_name(number: u32) -> String {
    format!("h{number}")
}

/// The name of a holder's filter.
pub(crate) fn held_filter(holder: u32, slot: u32) -> String {
    format!("{}s{slot}", holder_name(holder))
}
