//! One function per measurement; names, units and help texts are only in this module, except names and
//! functions of connections ([`umbel_ports::metrics`]), of the log ([`umbel_storage::metrics`]), and of groups
//! and links ([`umbel_raft::metrics`]).
//!
//! A histogram has the same bounds on every node, so that buckets can be added up over nodes. A sample
//! is pushed to a lock-free list, and counted in its bucket when the measurements are read, or within a
//! second.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, gauge, histogram};
use umbel_engine::GroupId;
use umbel_engine::meta::JobState;

mod described;
mod names;

pub(crate) use described::describe;
use names::*;
pub use umbel_ports::metrics::connection_refused;

/// Bucket bounds for waits of clients and of the log, in seconds. From 100 microseconds, less than a
/// round trip between two machines, to 10 seconds, in steps of 2 to 2.5, which locate a quantile within
/// a factor of 2.5. A shard has a new leader after at most 5 seconds, and few clients wait longer.
const REQUEST_BOUNDS_S: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// Bucket bounds for sweeps over the cube, in seconds: from a sweep without news to one that sends
/// filters of a gibibyte over a slow network.
const SWEEP_BOUNDS_S: [f64; 12] =
    [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0];

/// The histograms of `/metrics` by name, with the ascending upper bounds of their buckets in seconds. A
/// program that installs a recorder must configure these; otherwise the recorder creates summaries,
/// which cannot be added up over nodes.
pub const HISTOGRAMS: [(&str, &[f64]); 4] = [
    (CALL_SECONDS, &REQUEST_BOUNDS_S),
    (WAL_WRITE_SECONDS, &REQUEST_BOUNDS_S),
    (RESP_SECONDS, &REQUEST_BOUNDS_S),
    (SWEEP_SECONDS, &SWEEP_BOUNDS_S),
];

/// A measurement of every call about items, looked up once for the process: to look it up in the recorder takes longer than to
/// add to it. Its series begins with the first call, as all others do.
type Kept<T> = LazyLock<T>;

/// Sets the first values of a node that has just started: its release, and no connections of the Redis
/// protocol.
pub(crate) fn begin() {
    gauge!(BUILD_INFO, "version" => crate::VERSION).set(1.0);
    resp_connections(0);
}

/// A request was refused while it was being received, for this cause.
pub fn request_refused(cause: &'static str) {
    counter!(REQUESTS_REFUSED, "cause" => cause).increment(1);
}

/// A stream of responses was ended, for this cause.
pub fn stream_ended(cause: &'static str) {
    counter!(STREAMS_ENDED, "cause" => cause).increment(1);
}

/// Commands of the Redis protocol were received.
pub fn resp_commands(count: u64) {
    static COMMANDS: Kept<Counter> = Kept::new(|| counter!(RESP_COMMANDS));
    COMMANDS.increment(count);
}

/// The commands of one read were answered.
pub fn resp_answered(elapsed: Duration) {
    static SECONDS: Kept<Histogram> = Kept::new(|| histogram!(RESP_SECONDS));
    SECONDS.record(elapsed.as_secs_f64());
}

/// The number of open connections of the Redis protocol.
pub fn resp_connections(count: usize) {
    gauge!(RESP_CONNECTIONS).set(count as f64);
}

/// How many bytes the requests of clients in progress may hold.
pub fn request_bytes_max(byte_count: u64) {
    gauge!(REQUEST_BYTES).set(byte_count as f64);
}

/// A call was refused because of the caller's identity.
pub fn call_denied() {
    counter!(CALLS_DENIED).increment(1);
}

pub(crate) fn insert_answered(new_count: u64, present_count: u64) {
    static NEW: Kept<Counter> = Kept::new(|| counter!(INSERT_NEW));
    static PRESENT: Kept<Counter> = Kept::new(|| counter!(INSERT_PRESENT));
    NEW.increment(new_count);
    PRESENT.increment(present_count);
}

pub(crate) fn insert_repeated(item_count: u64) {
    counter!(INSERT_REPEATED).increment(item_count);
}

/// Counts items that were looked up, and those that were present.
pub fn contains_answered(present_count: u64, item_count: u64) {
    static PRESENT: Kept<Counter> = Kept::new(|| counter!(CONTAINS_PRESENT));
    static ABSENT: Kept<Counter> = Kept::new(|| counter!(CONTAINS_ABSENT));
    PRESENT.increment(present_count);
    ABSENT.increment(item_count - present_count);
}

/// A call of a client was answered.
pub fn call_answered(method: &'static str, status: &'static str, seconds: f64) {
    counter!(CALLS, "method" => method, "status" => status).increment(1);
    histogram!(CALL_SECONDS, "method" => method).record(seconds);
}

pub(crate) fn wal_size(byte_count: u64) {
    gauge!(WAL_BYTES).set(byte_count as f64);
}

pub(crate) fn disk_free(free_bytes: u64, is_short: bool) {
    gauge!(DISK_FREE).set(free_bytes as f64);
    gauge!(DISK_SHORT).set(f64::from(u8::from(is_short)));
}

/// The shards of this node at one moment.
pub(crate) struct Shards {
    pub(crate) led: usize,
    pub(crate) held: usize,
    pub(crate) leaderless: usize,
    /// Led by this node, without a majority that responds.
    pub(crate) quorumless: usize,
    pub(crate) filter_bytes: u64,
}

pub(crate) fn shards(shards: &Shards) {
    gauge!(SHARDS_LED).set(shards.led as f64);
    gauge!(SHARDS_HELD).set(shards.held as f64);
    gauge!(SHARDS_LEADERLESS).set(shards.leaderless as f64);
    gauge!(SHARDS_QUORUMLESS).set(shards.quorumless as f64);
    gauge!(FILTER_BYTES).set(shards.filter_bytes as f64);
}

/// What this node knows of the cluster.
#[derive(Default)]
pub(crate) struct Catalogue {
    pub(crate) filter_count: usize,
    pub(crate) shard_count: usize,
    pub(crate) epoch: u64,
    pub(crate) jobs: JobCounts,
}

/// Jobs of the ledger by state.
#[derive(Default)]
pub(crate) struct JobCounts {
    running: u32,
    cancelling: u32,
    done: u32,
    failed: u32,
    cancelled: u32,
}

impl JobCounts {
    /// Counts one more job.
    pub(crate) const fn count(&mut self, state: &JobState) {
        *match state {
            JobState::Running => &mut self.running,
            JobState::Cancelling => &mut self.cancelling,
            JobState::Done { .. } => &mut self.done,
            JobState::Failed { .. } => &mut self.failed,
            JobState::Cancelled => &mut self.cancelled,
        } += 1;
    }
}

pub(crate) fn catalogue(known: &Catalogue) {
    gauge!(FILTERS).set(known.filter_count as f64);
    gauge!(SHARDS).set(known.shard_count as f64);
    gauge!(EPOCH).set(known.epoch as f64);
    let JobCounts { running, cancelling, done, failed, cancelled } = known.jobs;
    let counts = [
        ("running", running),
        ("cancelling", cancelling),
        ("done", done),
        ("failed", failed),
        ("cancelled", cancelled),
    ];
    for (state, count) in counts {
        gauge!(JOBS, "state" => state).set(count);
    }
}

/// Whether the meta group has a leader with a responding majority, as far as this node knows.
pub(crate) fn meta_is_led(is_led: bool) {
    gauge!(META_LED).set(f64::from(u8::from(is_led)));
}

/// The machine's wall clock, in milliseconds since 1970.
pub(crate) fn wall_clock(wall_ms: u64) {
    gauge!(WALL_CLOCK).set(wall_ms as f64 / 1000.0);
}

/// The largest used share of any quota.
pub fn quota_used(filters: f64, memory: f64) {
    gauge!(QUOTA_USED, "resource" => "filters").set(filters);
    gauge!(QUOTA_USED, "resource" => "memory").set(memory);
}

pub(crate) fn leaders_changed(count: u64) {
    counter!(LEADER_CHANGES).increment(count);
}

pub(crate) fn copies(count: usize, byte_count: u64, lag_max: u64) {
    gauge!(COPIES).set(count as f64);
    gauge!(COPY_LAG).set(lag_max as f64);
    gauge!(COPY_BYTES).set(byte_count as f64);
}

pub(crate) fn sweep_done(is_whole: bool, elapsed: Duration) {
    counter!(SWEEPS, "is_whole" => if is_whole { "true" } else { "false" }).increment(1);
    histogram!(SWEEP_SECONDS).record(elapsed.as_secs_f64());
}

pub(crate) fn delta_sent(byte_count: usize) {
    counter!(DELTA_SENT).increment(byte_count as u64);
}

pub(crate) fn delta_received(byte_count: usize) {
    counter!(DELTA_RECEIVED).increment(byte_count as u64);
}

pub(crate) fn exchange_refused() {
    counter!(EXCHANGE_REFUSED).increment(1);
}

/// A comparison that this node initiated found bits that had been lost, and bits that were in transit.
pub(crate) fn scrub_compared(lost_count: u64, news_count: u64) {
    let outcome = match (lost_count, news_count) {
        (0, 0) => "equal",
        (0, _) => "news",
        _ => "lost",
    };
    counter!(SCRUBS, "outcome" => outcome).increment(1);
    counter!(SCRUB_DIFFERING, "cause" => "lost").increment(lost_count);
    counter!(SCRUB_DIFFERING, "cause" => "news").increment(news_count);
}

pub(crate) fn scrub_failed() {
    counter!(SCRUBS, "outcome" => "failed").increment(1);
}

/// A comparison set bits in this node's copy.
pub(crate) fn scrub_set(lost_count: u64, news_count: u64) {
    counter!(SCRUB_REPAIRED, "cause" => "lost").increment(lost_count);
    counter!(SCRUB_REPAIRED, "cause" => "news").increment(news_count);
}

pub(crate) fn scrub_sent(byte_count: usize) {
    counter!(SCRUB_SENT).increment(byte_count as u64);
}

pub(crate) fn scrub_received(byte_count: usize) {
    counter!(SCRUB_RECEIVED).increment(byte_count as u64);
}

/// Age of the copy that was not found equal for the longest time; 0 if there is none.
pub(crate) fn scrub_age(age: Duration) {
    gauge!(SCRUB_AGE).set(age.as_secs_f64());
}

/// The replicas of a slice were compared, or could not be.
pub(crate) fn shard_scrubbed(outcome: &'static str) {
    counter!(SHARD_SCRUBS, "outcome" => outcome).increment(1);
}

/// A replica of a slice had lost bits, or had bits that the majority does not have.
pub(crate) fn shard_bits_differed(lost_count: u64, surplus_count: u64) {
    counter!(SHARD_SCRUB_DIFFERING, "cause" => "lost").increment(lost_count);
    counter!(SHARD_SCRUB_DIFFERING, "cause" => "surplus").increment(surplus_count);
}

/// Set at the leader; 0 on other nodes.
pub(crate) fn shard_scrub_age(group: GroupId, age: Option<Duration>) {
    let Some(shard) = group.shard() else { return };
    gauge!(SHARD_SCRUB_AGE, "shard" => shard.0.to_string())
        .set(age.unwrap_or_default().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// A label with one value per filter or per caller would leave a series behind for each of them for
    /// ever. The permitted labels have few values or, like shards, a bounded number of them.
    #[test]
    fn no_series_outlives_what_it_is_about() {
        let (own, _) = include_str!("metrics.rs").split_once("#[cfg(test)]").unwrap();
        let ports = include_str!("../../umbel-ports/src/metrics.rs");
        let raft = include_str!("../../umbel-raft/src/metrics.rs");
        let storage = include_str!("../../umbel-storage/src/metrics.rs");
        let code = format!("{own}{ports}{raft}{storage}");
        let labels: BTreeSet<&str> = code
            .split("\" => ")
            .filter_map(|before| before.rsplit_once('"'))
            .map(|(_, label)| label)
            .filter(|label| label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
            .filter(|label| !label.is_empty())
            .collect();
        let bounded = [
            "cause", "is_whole", "method", "outcome", "resource", "shard", "state", "status",
            "version",
        ];
        assert_eq!(labels.into_iter().collect::<Vec<_>>(), bounded);
    }
}
