//! Measurements of groups and links: names, and one function per measurement. Units and help texts are where
//! a node describes all of its measurements.

use metrics::counter;

/// Calls with entries or heartbeats that leaders made to other replicas.
pub const RAFT_APPENDS: &str = "umbel_raft_appends_total";

/// Replicas that started without entries that they had confirmed to other nodes.
pub const REPLICAS_BEHIND: &str = "umbel_replicas_started_behind_total";

/// Replicas of other nodes that were found to lack what they confirmed.
pub const REPLICAS_LOST: &str = "umbel_replicas_lost_entries_total";

/// Bytes of snapshots that were sent to other replicas.
pub const SNAPSHOT_SENT: &str = "umbel_snapshot_sent_bytes_total";

/// Links that ended because their node has opened newer ones.
pub const LINKS_REPLACED: &str = "umbel_links_replaced_total";

pub(crate) fn append_sent() {
    counter!(RAFT_APPENDS).increment(1);
}

pub(crate) fn snapshot_sent(byte_count: usize) {
    counter!(SNAPSHOT_SENT).increment(byte_count as u64);
}

pub(crate) fn replica_behind() {
    counter!(REPLICAS_BEHIND).increment(1);
}

pub(crate) fn replica_lost_entries() {
    counter!(REPLICAS_LOST).increment(1);
}

/// A link ended because its node has opened newer ones.
pub(crate) fn link_replaced() {
    counter!(LINKS_REPLACED).increment(1);
}
