//! A worker's part of the summary, which it sends to the coordinator as JSON.

use super::super::file_repeats::RepeatTotals;
use super::super::groups::GroupTotals;
use super::super::local_pass::LocalTimes;
use super::super::online::FilterAnswers;
use super::super::output::OutputTimes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Times of a worker's phases in this process.
#[derive(Default)]
pub(super) struct PartTimes {
    pub(super) open: Duration,
    pub(super) local: Duration,
    pub(super) query: Duration,
    pub(super) output: Duration,
    /// Time from the start of the process until the input was read.
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
    /// Items dropped because an index or a filter contains them.
    pub(super) reference_drops: u64,
    /// The responses of filters, in the order of the filters.
    pub(super) asked: Vec<FilterAnswers>,
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
    /// Totals of the groups whose kept record is the worker's, if outputs report groups.
    pub(super) groups: Option<GroupTotals>,
    /// Totals of the worker's files, if the job reports files.
    pub(super) repeats: Option<RepeatTotals>,
}
