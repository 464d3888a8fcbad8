//! What a worker tells of its part, for the summary.

use super::super::file_tally::ToldRepeats;
use super::super::groups::ToldGroups;
use super::super::local_pass::LocalTimes;
use super::super::online::Asked;
use super::super::output::OutputTimes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a worker's phases took, in this process.
#[derive(Default)]
pub(super) struct PartTimes {
    pub(super) open: Duration,
    pub(super) local: Duration,
    pub(super) ask: Duration,
    pub(super) output: Duration,
    /// Since the start of the process, when all was read.
    pub(super) read_at: Duration,
    pub(super) local_threads: LocalTimes,
    pub(super) output_threads: OutputTimes,
}

/// A worker's part of the summary.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) inputs: Vec<String>,
    pub(super) bad_by_cause: BTreeMap<String, u64>,
    pub(super) exempt: u64,
    pub(super) left_out: u64,
    pub(super) early_drops: u64,
    /// Items dropped because an index or a filter holds them.
    pub(super) reference_drops: u64,
    /// What came of asking filters, in their order.
    pub(super) asked: Vec<Asked>,
    pub(super) resumed: u64,
    pub(super) threads: usize,
    pub(super) rss_bytes_max: u64,
    pub(super) scratch_bytes_max: u64,
    pub(super) cpu_s: f64,
    /// Seconds by phase.
    pub(super) phase_wall_s: BTreeMap<String, f64>,
    /// Thread seconds by work.
    pub(super) thread_s: BTreeMap<String, f64>,
    /// Number in the job of the worker's first chunk.
    pub(super) chunk_base: u32,
    /// Groups whose kept record is the worker's, if outputs tell of groups.
    pub(super) groups: Option<ToldGroups>,
    /// Repeats of the worker's files, if the job tells of files.
    pub(super) repeats: Option<ToldRepeats>,
}
