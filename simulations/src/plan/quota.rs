//! Principals with quotas, and what they make and drop on several nodes at once.

use serde::{Deserialize, Serialize};

/// Names that a holder makes filters under.
pub(crate) const SLOTS: u32 = 6;

/// What quotas allow and who uses them. Holders are principals beside those of the plan's changes: `h0`, `h1`
/// and so on, each with the right to manage its own filters.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldingPlan {
    /// How many holders there are.
    pub(crate) holders: u32,
    /// What the administrator sets, by time.
    pub(crate) limits: Vec<LimitPlan>,
    /// What holders do, by time.
    pub(crate) calls: Vec<HoldPlan>,
}

/// A change of a quota; what it does not name is without a limit from then on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// Whose; None is the cluster's. That counts from what there is when it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<u32>,
    /// Filters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) filters: Option<u32>,
    /// Memory, in tenths of what a large filter takes on all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenths: Option<u32>,
}

/// A call of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// Whose.
    pub(crate) holder: u32,
    /// The node that it goes to, and to no other.
    pub(crate) via: u32,
    /// What it asks for.
    pub(crate) call: Hold,
}

/// What a holder asks for; each of its filters has a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Hold {
    /// Make a filter.
    Make { slot: u32, size: Size },
    /// Empty it.
    Clear { slot: u32 },
    /// Drop it.
    Drop { slot: u32 },
}

/// How large a filter of a holder is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Size {
    /// A few hundred bytes a shard.
    Small,
    /// Some twenty times as much.
    Large,
}

impl Size {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Items that such a filter is made for.
    pub(crate) const fn capacity(self) -> u64 {
        match self {
            Self::Small => 2_000,
            Self::Large => 40_000,
        }
    }

    /// The name of a filter of this size that the administrator has, by which its memory is known.
    pub(crate) const fn sample(self) -> &'static str {
        match self {
            Self::Small => "sample-small",
            Self::Large => "sample-large",
        }
    }
}

impl Hold {
    /// Which filter of the holder it is about.
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
