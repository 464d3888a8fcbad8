//! Units, help and first values of all measurements.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, histogram};

use super::names::*;

/// One measurement.
struct Measurement {
    name: &'static str,
    unit: Unit,
    help: &'static str,
    kind: Kind,
}

/// The type, and the initial series.
enum Kind {
    /// One series, starting at 0.
    Counter,
    /// A series for each value of a label, starting at 0: Prometheus does not see an increase from an
    /// absent series to 1.
    CounterBy(&'static str, &'static [&'static str]),
    /// One series per pair of method and status, each from its first call on.
    CounterOfCalls,
    Gauge,
    /// One series from the start.
    Histogram,
    /// One series per method.
    HistogramOfCalls,
}

const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Measurement {
    Measurement { name, unit, help, kind: Kind::Counter }
}

const fn by(
    (name, help): (&'static str, &'static str),
    (label, values): (&'static str, &'static [&'static str]),
) -> Measurement {
    Measurement { name, unit: Unit::Count, help, kind: Kind::CounterBy(label, values) }
}

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Measurement {
    Measurement { name, unit, help, kind: Kind::Gauge }
}

const fn duration(name: &'static str, help: &'static str) -> Measurement {
    Measurement { name, unit: Unit::Seconds, help, kind: Kind::Histogram }
}

/// Describes all measurements to the installed recorder, and starts all counters.
pub(crate) fn describe() {
    for &Measurement { name, unit, help, ref kind } in &ALL {
        match *kind {
            Kind::Counter => {
                describe_counter!(name, unit, help);
                counter!(name).increment(0);
            }
            Kind::CounterBy(label, values) => {
                describe_counter!(name, unit, help);
                for &value in values {
                    counter!(name, label => value).increment(0);
                }
            }
            Kind::CounterOfCalls => describe_counter!(name, unit, help),
            Kind::Gauge => describe_gauge!(name, unit, help),
            Kind::Histogram => {
                describe_histogram!(name, unit, help);
                // The histogram exists from now on, without samples.
                drop(histogram!(name));
            }
            Kind::HistogramOfCalls => describe_histogram!(name, unit, help),
        }
    }
}

const ALL: [Measurement; 58] = [
    counter(INSERT_NEW, Unit::Count, "Items that this node's shards called new."),
    counter(INSERT_PRESENT, Unit::Count, "Inserted items that were present."),
    counter(INSERT_REPEATED, Unit::Count, "Items of requests that came again."),
    counter(CONTAINS_PRESENT, Unit::Count, "Asked items that were present."),
    counter(CONTAINS_ABSENT, Unit::Count, "Asked items that were absent."),
    Measurement {
        name: CALLS,
        unit: Unit::Count,
        help: "Calls of clients, by method and status.",
        kind: Kind::CounterOfCalls,
    },
    Measurement {
        name: CALL_SECONDS,
        unit: Unit::Seconds,
        help: "Time of clients' calls, by method.",
        kind: Kind::HistogramOfCalls,
    },
    duration(WAL_WRITE_SECONDS, "Time of a write of the log, with its sync."),
    counter(RESP_COMMANDS, Unit::Count, "Commands of the Redis protocol."),
    duration(
        RESP_SECONDS,
        "Time from the commands that one read of the Redis protocol brought to their answers.",
    ),
    gauge(RESP_CONNECTIONS, Unit::Count, "Open connections of the Redis protocol."),
    gauge(WAL_BYTES, Unit::Bytes, "Bytes of the log on disk."),
    counter(WAL_WRITTEN_BYTES, Unit::Bytes, "Bytes written to the log."),
    gauge(DISK_FREE, Unit::Bytes, "Bytes that the data folder's disk has left."),
    gauge(DISK_SHORT, Unit::Count, "1 while inserts are refused for lack of disk."),
    gauge(SHARDS, Unit::Count, "Shards of the cluster, as this node's catalogue knows them."),
    gauge(SHARDS_LED, Unit::Count, "Shards that this node leads."),
    gauge(SHARDS_HELD, Unit::Count, "Shards that this node has a replica of."),
    gauge(SHARDS_LEADERLESS, Unit::Count, "Shards here whose leader is unknown."),
    gauge(
        SHARDS_QUORUMLESS,
        Unit::Count,
        "Shards that this node leads and of whose other replicas no majority answers.",
    ),
    gauge(
        META_LED,
        Unit::Count,
        "1 while this node knows a leader of the meta group that a majority answers.",
    ),
    counter(LEADER_CHANGES, Unit::Count, "Changes of leaders seen by this node."),
    gauge(FILTERS, Unit::Count, "Filters in the catalogue."),
    gauge(FILTER_BYTES, Unit::Bytes, "Bytes of filters in this node's memory."),
    gauge(EPOCH, Unit::Count, "Version of the shard map."),
    gauge(COPIES, Unit::Count, "Copies of replicated filters on this node."),
    gauge(COPY_BYTES, Unit::Bytes, "Bytes of these copies in memory."),
    gauge(
        COPY_LAG,
        Unit::Count,
        "Changes that a partner may lack of a copy here: most of any copy and partner.",
    ),
    by(
        (SWEEPS, "Sweeps over the cube, by whether all answered."),
        ("is_whole", &["true", "false"]),
    ),
    duration(SWEEP_SECONDS, "Time of a sweep over the cube."),
    counter(DELTA_SENT, Unit::Bytes, "Bytes of deltas that were sent."),
    counter(DELTA_RECEIVED, Unit::Bytes, "Bytes of deltas that were received."),
    counter(EXCHANGE_REFUSED, Unit::Count, "Messages of the exchange that were refused."),
    counter(
        RAFT_APPENDS,
        Unit::Count,
        "Calls with entries or heartbeats that this node's leaders made to other replicas.",
    ),
    counter(SNAPSHOT_SENT, Unit::Bytes, "Bytes of snapshots that were sent to other replicas."),
    counter(
        REPLICAS_BEHIND,
        Unit::Count,
        "Replicas that started without entries that they had confirmed to other nodes.",
    ),
    counter(
        REPLICAS_LOST,
        Unit::Count,
        "Replicas of other nodes that were found, by their leader here, to lack what they confirmed.",
    ),
    gauge(
        CERTIFICATE_EXPIRES,
        Unit::Seconds,
        "When this node's certificate expires, in seconds since 1970.",
    ),
    counter(
        HANDSHAKES_FAILED,
        Unit::Count,
        "Connections that were closed because the other end proved nothing.",
    ),
    counter(CALLS_DENIED, Unit::Count, "Calls of those who have no right to them."),
    by(
        (
            CONNECTIONS_REFUSED,
            "Connections that were closed, by cause: no_room, gave_way to another one, late with what it began to send, unread answers, frames, an expired certificate.",
        ),
        ("cause", &["no_room", "gave_way", "late", "unread", "frames", "expired"]),
    ),
    by(
        (
            REQUESTS_REFUSED,
            "Requests that were refused while they came, by cause: no_memory for their bytes, late.",
        ),
        ("cause", &["no_memory", "late"]),
    ),
    by(
        (STREAMS_ENDED, "Streams of answers that were ended, by cause: unread, too_long."),
        ("cause", &["unread", "too_long"]),
    ),
    counter(LINKS_REPLACED, Unit::Count, "Links of nodes that gave way to later ones."),
    gauge(REQUEST_BYTES, Unit::Bytes, "Bytes of clients' requests that may be under way."),
    by(
        (
            SCRUBS,
            "Comparisons of copies that this node asked for, by outcome: equal, news, lost, failed.",
        ),
        ("outcome", &["equal", "news", "lost", "failed"]),
    ),
    by(
        (
            SCRUB_DIFFERING,
            "Bits that differed in these comparisons, by cause: news under way, or lost by a copy.",
        ),
        ("cause", &["lost", "news"]),
    ),
    by(
        (
            SCRUB_REPAIRED,
            "Bits that comparisons set in this node's copies, by cause: news under way, or lost here.",
        ),
        ("cause", &["lost", "news"]),
    ),
    counter(SCRUB_SENT, Unit::Bytes, "Bytes of comparisons that were sent."),
    counter(SCRUB_RECEIVED, Unit::Bytes, "Bytes of comparisons that were received."),
    gauge(
        SCRUB_AGE,
        Unit::Seconds,
        "Longest time since a copy was last found equal to another or made so.",
    ),
    by(
        (
            SHARD_SCRUBS,
            "Comparisons of a slice's replicas that this node led, by outcome: equal, partial (a replica was away), mended, left (they still differ), failed.",
        ),
        ("outcome", &["equal", "partial", "mended", "left", "failed"]),
    ),
    by(
        (SHARD_SCRUB_DIFFERING, "Bits of replicas that had changed, by cause: lost, or surplus."),
        ("cause", &["lost", "surplus"]),
    ),
    gauge(
        SHARD_SCRUB_AGE,
        Unit::Seconds,
        "Longest time since replicas of a slice were found equal or made so, by shard, at its leader.",
    ),
    gauge(
        WALL_CLOCK,
        Unit::Seconds,
        "This node's wall clock, in seconds since 1970, at most a second ago.",
    ),
    gauge(BUILD_INFO, Unit::Count, "1, with the release that this node runs."),
    gauge(JOBS, Unit::Count, "Jobs of the cluster's ledger, by state."),
    gauge(
        QUOTA_USED,
        Unit::Count,
        "Largest used share of a quota, the cluster's or a principal's, by resource.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::HISTOGRAMS;

    /// Without bounds, the recorder would create summaries, which cannot be added up over nodes.
    #[test]
    fn every_histogram_has_bounds() {
        let is_histogram = |measured: &&Measurement| {
            matches!(measured.kind, Kind::Histogram | Kind::HistogramOfCalls)
        };
        let described: Vec<&str> =
            ALL.iter().filter(is_histogram).map(|measured| measured.name).collect();
        let bounded: Vec<&str> = HISTOGRAMS.iter().map(|(name, _)| *name).collect();
        assert_eq!(described, bounded);
        for (name, bounds) in HISTOGRAMS {
            assert!(bounds.is_sorted_by(|a, b| a < b), "{name}");
        }
    }
}
