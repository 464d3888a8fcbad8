//! Jobs of a plan: what the founders hold, and what is asked of it.

use serde::{Deserialize, Serialize};

/// A job that looks for duplicates in what the founders hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobPlan {
    /// When it is submitted, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// Records that each founder holds, by their numbers.
    pub(crate) records: Vec<u32>,
    /// Different items among them, at most.
    pub(crate) distinct: u32,
    /// When items are equal.
    pub(crate) level: JobLevel,
    /// Which of equal records stays.
    #[serde(default, skip_serializing_if = "JobKeep::is_first")]
    pub(crate) keep: JobKeep,
    /// Whether earlier jobs have kept every fourth item; not at level `bytes`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) known: bool,
    /// Whether it tells for which record each one was dropped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) report: bool,
    /// Whether it tells how many records are equal to each one that it tells of.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) sizes: bool,
    /// How entries are compared.
    pub(crate) filter: JobFilter,
    /// Whether frames go over a grid, however few workers there are.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) grid: bool,
    /// Cells an owner, about.
    pub(crate) cells: u32,
    /// Whether it drops what a filter holds of what would stay, and adds to that filter what stays.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) asks: bool,
    /// When its user wants it to end, in simulated milliseconds of the fault phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cancel_at_ms: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// When items are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobLevel {
    /// A few dozen bits of their hashes are.
    Approximate,
    /// Their hashes are.
    Fingerprint,
    /// Their bytes are; items come in pairs that share their hash.
    Bytes,
}

/// Which of equal records stays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobKeep {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
    /// The best; many are equally good.
    Best,
}

impl JobKeep {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    const fn is_first(&self) -> bool {
        matches!(self, Self::First)
    }
}

/// How entries are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobFilter {
    /// As the coordinator chooses.
    Auto,
    /// With a filter.
    SingleShot,
    /// By whole hashes.
    Wide,
}
