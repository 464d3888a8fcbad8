//! One function a measurement; names, units and help stand here and nowhere else.

use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use umbel_engine::GroupId;

const INSERT_NEW: &str = "umbel_insert_new_total";
const INSERT_PRESENT: &str = "umbel_insert_present_total";
const INSERT_REPEATED: &str = "umbel_insert_repeated_total";
const CONTAINS_PRESENT: &str = "umbel_contains_present_total";
const CONTAINS_ABSENT: &str = "umbel_contains_absent_total";
const CALLS: &str = "umbel_calls_total";
const CALL_SECONDS: &str = "umbel_call_duration_seconds";
const WAL_WRITE_SECONDS: &str = "umbel_wal_write_duration_seconds";
const WAL_BYTES: &str = "umbel_wal_bytes";
const WAL_WRITTEN_BYTES: &str = "umbel_wal_written_bytes_total";
const DISK_FREE: &str = "umbel_disk_free_bytes";
const DISK_SHORT: &str = "umbel_disk_is_short";
const SHARDS_LED: &str = "umbel_shards_led";
const SHARDS_HELD: &str = "umbel_shards_held";
const SHARDS_LEADERLESS: &str = "umbel_shards_without_leader";
const LEADER_CHANGES: &str = "umbel_leader_changes_total";
const FILTERS: &str = "umbel_filters";
const FILTER_BYTES: &str = "umbel_filter_bytes";
const EPOCH: &str = "umbel_epoch";
const COPIES: &str = "umbel_copies";
const COPY_BYTES: &str = "umbel_copy_bytes";
const SWEEPS: &str = "umbel_sweeps_total";
const SWEEP_SECONDS: &str = "umbel_sweep_duration_seconds";
const DELTA_SENT: &str = "umbel_delta_sent_bytes_total";
const DELTA_RECEIVED: &str = "umbel_delta_received_bytes_total";
const EXCHANGE_REFUSED: &str = "umbel_exchange_refused_total";
const SCRUBS: &str = "umbel_scrubs_total";
const SCRUB_DIFFERING: &str = "umbel_scrub_differing_bits_total";
const SCRUB_REPAIRED: &str = "umbel_scrub_repaired_bits_total";
const SCRUB_SENT: &str = "umbel_scrub_sent_bytes_total";
const SCRUB_RECEIVED: &str = "umbel_scrub_received_bytes_total";
const SCRUB_AGE: &str = "umbel_scrub_age_seconds";
const RAFT_APPENDS: &str = "umbel_raft_appends_total";
const REPLICAS_BEHIND: &str = "umbel_replicas_started_behind_total";
const REPLICAS_LOST: &str = "umbel_replicas_lost_entries_total";
const SHARD_SCRUBS: &str = "umbel_shard_scrubs_total";
const SHARD_SCRUB_DIFFERING: &str = "umbel_shard_scrub_differing_bits_total";
const CERTIFICATE_EXPIRES: &str = "umbel_tls_certificate_expires_timestamp_seconds";
const HANDSHAKES_FAILED: &str = "umbel_tls_handshakes_failed_total";
const CALLS_DENIED: &str = "umbel_calls_denied_total";
const CONNECTIONS_REFUSED: &str = "umbel_connections_refused_total";
const REQUESTS_REFUSED: &str = "umbel_requests_refused_total";
const STREAMS_ENDED: &str = "umbel_streams_ended_total";
const LINKS_REPLACED: &str = "umbel_links_replaced_total";
const REQUEST_BYTES: &str = "umbel_request_bytes_under_way_max";
const RESP_COMMANDS: &str = "umbel_resp_commands_total";
const RESP_CONNECTIONS: &str = "umbel_resp_connections";
const SHARD_SCRUB_AGE: &str = "umbel_shard_scrub_age_seconds";

/// Describes all measurements to the recorder that is installed.
pub(crate) fn describe() {
    describe_counter!(INSERT_NEW, Unit::Count, "Items that this node's shards called new.");
    describe_counter!(INSERT_PRESENT, Unit::Count, "Inserted items that were present.");
    describe_counter!(INSERT_REPEATED, Unit::Count, "Items of requests that came again.");
    describe_counter!(CONTAINS_PRESENT, Unit::Count, "Asked items that were present.");
    describe_counter!(CONTAINS_ABSENT, Unit::Count, "Asked items that were absent.");
    describe_counter!(CALLS, Unit::Count, "Calls of clients, by method and status.");
    describe_histogram!(CALL_SECONDS, Unit::Seconds, "Time of clients' calls, by method.");
    describe_histogram!(
        WAL_WRITE_SECONDS,
        Unit::Seconds,
        "Time of a write of the log, with its sync."
    );
    describe_counter!(RESP_COMMANDS, Unit::Count, "Commands of the Redis protocol.");
    describe_gauge!(RESP_CONNECTIONS, Unit::Count, "Open connections of the Redis protocol.");
    describe_gauge!(WAL_BYTES, Unit::Bytes, "Bytes of the log on disk.");
    describe_counter!(WAL_WRITTEN_BYTES, Unit::Bytes, "Bytes written to the log.");
    describe_gauge!(DISK_FREE, Unit::Bytes, "Bytes that the data folder's disk has left.");
    describe_gauge!(DISK_SHORT, Unit::Count, "1 while inserts are refused for lack of disk.");
    describe_gauge!(SHARDS_LED, Unit::Count, "Shards that this node leads.");
    describe_gauge!(SHARDS_HELD, Unit::Count, "Shards that this node has a replica of.");
    describe_gauge!(SHARDS_LEADERLESS, Unit::Count, "Shards here whose leader is unknown.");
    describe_counter!(LEADER_CHANGES, Unit::Count, "Changes of leaders seen by this node.");
    describe_gauge!(FILTERS, Unit::Count, "Filters in the catalogue.");
    describe_gauge!(FILTER_BYTES, Unit::Bytes, "Bytes of filters in this node's memory.");
    describe_gauge!(EPOCH, Unit::Count, "Version of the shard map.");
    describe_gauge!(COPIES, Unit::Count, "Copies of replicated filters on this node.");
    describe_gauge!(COPY_BYTES, Unit::Bytes, "Bytes of these copies in memory.");
    describe_counter!(SWEEPS, Unit::Count, "Sweeps over the cube, by whether all answered.");
    describe_histogram!(SWEEP_SECONDS, Unit::Seconds, "Time of a sweep over the cube.");
    describe_counter!(DELTA_SENT, Unit::Bytes, "Bytes of deltas that were sent.");
    describe_counter!(DELTA_RECEIVED, Unit::Bytes, "Bytes of deltas that were received.");
    describe_counter!(EXCHANGE_REFUSED, Unit::Count, "Messages of the exchange that were refused.");
    describe_counter!(
        RAFT_APPENDS,
        Unit::Count,
        "Calls with entries or heartbeats that this node's leaders made to other replicas."
    );
    describe_counter!(
        REPLICAS_BEHIND,
        Unit::Count,
        "Replicas that started without entries that other nodes know to be confirmed or committed."
    );
    describe_counter!(
        REPLICAS_LOST,
        Unit::Count,
        "Replicas of other nodes that were found, by their leader here, to lack what they confirmed."
    );
    describe_gauge!(
        CERTIFICATE_EXPIRES,
        Unit::Seconds,
        "When this node's certificate expires, in seconds since 1970."
    );
    describe_counter!(
        HANDSHAKES_FAILED,
        Unit::Count,
        "Connections that were closed because the other end proved nothing."
    );
    describe_counter!(CALLS_DENIED, Unit::Count, "Calls of those who have no right to them.");
    describe_admission();
    describe_scrubs();
}

fn describe_admission() {
    describe_counter!(
        CONNECTIONS_REFUSED,
        Unit::Count,
        "Connections that were closed, by cause: no_room, gave_way to another one, late with what it \
         began to send, unread answers."
    );
    describe_counter!(
        REQUESTS_REFUSED,
        Unit::Count,
        "Requests that were refused while they came, by cause: no_memory for their bytes, late."
    );
    describe_counter!(
        STREAMS_ENDED,
        Unit::Count,
        "Streams of answers that were ended, by cause: unread, too_long."
    );
    describe_counter!(LINKS_REPLACED, Unit::Count, "Links of nodes that gave way to later ones.");
    describe_gauge!(
        REQUEST_BYTES,
        Unit::Bytes,
        "Bytes of clients' requests that may be under way."
    );
}

/// A connection was closed, or not taken, for this cause.
pub(crate) fn connection_refused(cause: &'static str) {
    counter!(CONNECTIONS_REFUSED, "cause" => cause).increment(1);
}

/// A request was refused while it came, for this cause.
pub(crate) fn request_refused(cause: &'static str) {
    counter!(REQUESTS_REFUSED, "cause" => cause).increment(1);
}

/// A stream of answers was ended, for this cause.
pub(crate) fn stream_ended(cause: &'static str) {
    counter!(STREAMS_ENDED, "cause" => cause).increment(1);
}

/// A link ended because its node has made others since.
pub(crate) fn link_replaced() {
    counter!(LINKS_REPLACED).increment(1);
}

/// Commands of the Redis protocol came.
pub(crate) fn resp_commands(count: u64) {
    counter!(RESP_COMMANDS).increment(count);
}

/// So many connections of the Redis protocol are open.
pub(crate) fn resp_connections(count: usize) {
    gauge!(RESP_CONNECTIONS).set(count as f64);
}

#[expect(clippy::cast_precision_loss, reason = "a measurement")]
pub(crate) fn request_bytes_max(byte_count: u64) {
    gauge!(REQUEST_BYTES).set(byte_count as f64);
}

/// When the own certificate expires, from 1970 on.
pub(crate) fn certificate_expires(since_1970: Duration) {
    gauge!(CERTIFICATE_EXPIRES).set(since_1970.as_secs_f64());
}

/// A connection was closed because its other end proved nothing.
pub(crate) fn handshake_failed() {
    counter!(HANDSHAKES_FAILED).increment(1);
}

/// A call was refused because of who called.
pub(crate) fn call_denied() {
    counter!(CALLS_DENIED).increment(1);
}

fn describe_scrubs() {
    describe_counter!(
        SCRUBS,
        Unit::Count,
        "Comparisons of copies that this node asked for, by outcome: equal, news, lost, failed."
    );
    describe_counter!(
        SCRUB_DIFFERING,
        Unit::Count,
        "Bits that differed in these comparisons, by cause: news under way, or lost by a copy."
    );
    describe_counter!(
        SCRUB_REPAIRED,
        Unit::Count,
        "Bits that comparisons set in this node's copies, by cause: news under way, or lost here."
    );
    describe_counter!(SCRUB_SENT, Unit::Bytes, "Bytes of comparisons that were sent.");
    describe_counter!(SCRUB_RECEIVED, Unit::Bytes, "Bytes of comparisons that were received.");
    describe_gauge!(
        SCRUB_AGE,
        Unit::Seconds,
        "Longest time since a copy was last found equal to another or made so."
    );
    describe_counter!(
        SHARD_SCRUBS,
        Unit::Count,
        "Comparisons of a slice's replicas that this node led, by outcome: equal, partial (a replica \
         was away), mended, left (they still differ), failed."
    );
    describe_counter!(
        SHARD_SCRUB_DIFFERING,
        Unit::Count,
        "Bits of replicas that had changed, by cause: lost, or surplus."
    );
    describe_gauge!(
        SHARD_SCRUB_AGE,
        Unit::Seconds,
        "Longest time since replicas of a slice were found equal or made so, by shard, at its leader."
    );
}

pub(crate) fn append_sent() {
    counter!(RAFT_APPENDS).increment(1);
}

pub(crate) fn replica_behind() {
    counter!(REPLICAS_BEHIND).increment(1);
}

pub(crate) fn replica_lost_entries() {
    counter!(REPLICAS_LOST).increment(1);
}

pub(crate) fn insert_answered(new_count: u64, present_count: u64) {
    counter!(INSERT_NEW).increment(new_count);
    counter!(INSERT_PRESENT).increment(present_count);
}

pub(crate) fn insert_repeated(item_count: u64) {
    counter!(INSERT_REPEATED).increment(item_count);
}

pub(crate) fn contains_answered(present_count: u64, item_count: u64) {
    counter!(CONTAINS_PRESENT).increment(present_count);
    counter!(CONTAINS_ABSENT).increment(item_count - present_count);
}

pub(crate) fn call_answered(method: &'static str, status: &'static str, seconds: f64) {
    counter!(CALLS, "method" => method, "status" => status).increment(1);
    histogram!(CALL_SECONDS, "method" => method).record(seconds);
}

pub(crate) fn wal_written(byte_count: usize, elapsed: Duration) {
    counter!(WAL_WRITTEN_BYTES).increment(byte_count as u64);
    histogram!(WAL_WRITE_SECONDS).record(elapsed.as_secs_f64());
}

#[expect(clippy::cast_precision_loss, reason = "a measurement")]
pub(crate) fn wal_size(byte_count: u64) {
    gauge!(WAL_BYTES).set(byte_count as f64);
}

#[expect(clippy::cast_precision_loss, reason = "a measurement")]
pub(crate) fn disk_free(free_bytes: u64, is_short: bool) {
    gauge!(DISK_FREE).set(free_bytes as f64);
    gauge!(DISK_SHORT).set(f64::from(u8::from(is_short)));
}

/// The shards of this node at one moment.
pub(crate) struct Shards {
    pub(crate) led: usize,
    pub(crate) held: usize,
    pub(crate) leaderless: usize,
    pub(crate) filter_bytes: u64,
}

#[expect(clippy::cast_precision_loss, reason = "a measurement")]
pub(crate) fn shards(shards: &Shards) {
    gauge!(SHARDS_LED).set(shards.led as f64);
    gauge!(SHARDS_HELD).set(shards.held as f64);
    gauge!(SHARDS_LEADERLESS).set(shards.leaderless as f64);
    gauge!(FILTER_BYTES).set(shards.filter_bytes as f64);
}

#[expect(clippy::cast_precision_loss, reason = "a measurement")]
pub(crate) fn catalogue(filter_count: usize, epoch: u64) {
    gauge!(FILTERS).set(filter_count as f64);
    gauge!(EPOCH).set(epoch as f64);
}

pub(crate) fn leaders_changed(count: u64) {
    counter!(LEADER_CHANGES).increment(count);
}

#[expect(clippy::cast_precision_loss, reason = "a measurement")]
pub(crate) fn copies(count: usize, byte_count: u64) {
    gauge!(COPIES).set(count as f64);
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

/// A comparison that this node asked for found so many bits that had been lost, and that were under way.
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

/// A comparison set so many bits in this node's copy.
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

/// Of the copy that was not found equal for the longest; 0 where there is none.
pub(crate) fn scrub_age(age: Duration) {
    gauge!(SCRUB_AGE).set(age.as_secs_f64());
}

/// Replicas of a slice were compared, or not.
pub(crate) fn shard_scrubbed(outcome: &'static str) {
    counter!(SHARD_SCRUBS, "outcome" => outcome).increment(1);
}

/// A replica of a slice had lost bits, or had others that the majority has not.
pub(crate) fn shard_bits_differed(lost_count: u64, surplus_count: u64) {
    counter!(SHARD_SCRUB_DIFFERING, "cause" => "lost").increment(lost_count);
    counter!(SHARD_SCRUB_DIFFERING, "cause" => "surplus").increment(surplus_count);
}

/// At the leader; elsewhere it is 0.
pub(crate) fn shard_scrub_age(group: GroupId, age: Option<Duration>) {
    let Some(shard) = group.shard() else { return };
    gauge!(SHARD_SCRUB_AGE, "shard" => shard.0.to_string())
        .set(age.unwrap_or_default().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// A label with as many values as clients make filters, or as there are callers, would leave a series
    /// behind for each for ever. These have few values, or, as shards, a number that the cluster began with.
    #[test]
    fn no_series_outlives_what_it_is_about() {
        let source = include_str!("metrics.rs");
        let (code, _) = source.split_once("#[cfg(test)]").unwrap();
        let labels: BTreeSet<&str> = code
            .split("\" => ")
            .filter_map(|before| before.rsplit_once('"'))
            .map(|(_, label)| label)
            .filter(|label| label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
            .filter(|label| !label.is_empty())
            .collect();
        let bounded = ["cause", "is_whole", "method", "outcome", "shard", "status"];
        assert_eq!(labels.into_iter().collect::<Vec<_>>(), bounded);
    }
}
