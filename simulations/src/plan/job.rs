//! Jobs of a plan: the records of the founders, and how duplicates among them are found.

use serde::{Deserialize, Serialize};

/// A job that finds duplicates among the records of the founders.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobPlan {
    /// When it is submitted, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// Number of records of each founder, in the order of the founders.
    pub(crate) records: Vec<u32>,
    /// Most distinct items among the records.
    pub(crate) distinct: u32,
    /// When two items count as equal.
    pub(crate) level: JobLevel,
    /// Which of equal records is kept.
    #[serde(default, skip_serializing_if = "JobKeep::is_first")]
    pub(crate) keep: JobKeep,
    /// Whether every fourth item is a reference that earlier jobs have kept; not at exactness `bytes`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) known: bool,
    /// Whether it reports for which kept record each dropped one was dropped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) report: bool,
    /// Whether it reports the size of the group of each reported record.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) sizes: bool,
    /// How entries are compared.
    pub(crate) filter: JobFilter,
    /// Whether frames take the grid route, however few workers there are.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) grid: bool,
    /// Approximate number of cells per owner.
    pub(crate) cells: u32,
    /// Whether it also drops records that a filter contains, and adds the kept ones to that filter.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) asks: bool,
    /// When its user cancels it, in simulated milliseconds of the fault phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cancel_at_ms: Option<u64>,
}

const fn is_false(value: &bool) -> bool {
    !*value
}

/// When two items count as equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobLevel {
    /// If a few dozen bits of their hashes are equal.
    Approximate,
    /// If their hashes are equal.
    Fingerprint,
    /// If their bytes are equal; items come in pairs with the same hash.
    Bytes,
}

/// Which of equal records is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobKeep {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
    /// The one with the best rank; many ranks are equal.
    Best,
}

impl JobKeep {
    const fn is_first(&self) -> bool {
        matches!(self, Self::First)
    }
}

/// How entries are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobFilter {
    /// The coordinator chooses.
    Auto,
    /// With a filter.
    SingleShot,
    /// By full hashes.
    Wide,
}
