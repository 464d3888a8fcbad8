//! Names of all measurements, except those of single filters.

pub(super) use umbel_ports::metrics::{
    CERTIFICATE_EXPIRES, CONNECTIONS_REFUSED, HANDSHAKES_FAILED,
};
pub(super) use umbel_raft::metrics::{
    LINKS_REPLACED, RAFT_APPENDS, REPLICAS_BEHIND, REPLICAS_LOST, SNAPSHOT_SENT,
};
pub(super) use umbel_storage::metrics::{WAL_WRITE_SECONDS, WAL_WRITTEN_BYTES};

pub(super) const INSERT_NEW: &str = "umbel_insert_new_total";
pub(super) const INSERT_PRESENT: &str = "umbel_insert_present_total";
pub(super) const INSERT_REPEATED: &str = "umbel_insert_repeated_total";
pub(super) const CONTAINS_PRESENT: &str = "umbel_contains_present_total";
pub(super) const CONTAINS_ABSENT: &str = "umbel_contains_absent_total";
pub(super) const CALLS: &str = "umbel_calls_total";
pub(super) const CALL_SECONDS: &str = "umbel_call_duration_seconds";
pub(super) const WAL_BYTES: &str = "umbel_wal_bytes";
pub(super) const DISK_FREE: &str = "umbel_disk_free_bytes";
pub(super) const DISK_SHORT: &str = "umbel_disk_is_short";
pub(super) const SHARDS: &str = "umbel_shards";
pub(super) const SHARDS_LED: &str = "umbel_shards_led";
pub(super) const SHARDS_HELD: &str = "umbel_shards_held";
pub(super) const SHARDS_LEADERLESS: &str = "umbel_shards_without_leader";
pub(super) const SHARDS_QUORUMLESS: &str = "umbel_shards_without_quorum";
pub(super) const META_LED: &str = "umbel_meta_is_led";
pub(super) const WALL_CLOCK: &str = "umbel_wall_clock_timestamp_seconds";
pub(super) const LEADER_CHANGES: &str = "umbel_leader_changes_total";
pub(super) const FILTERS: &str = "umbel_filters";
pub(super) const FILTER_BYTES: &str = "umbel_filter_bytes";
pub(super) const EPOCH: &str = "umbel_epoch";
pub(super) const COPIES: &str = "umbel_copies";
pub(super) const COPY_LAG: &str = "umbel_copy_lag_changes";
pub(super) const COPY_BYTES: &str = "umbel_copy_bytes";
pub(super) const SWEEPS: &str = "umbel_sweeps_total";
pub(super) const SWEEP_SECONDS: &str = "umbel_sweep_duration_seconds";
pub(super) const DELTA_SENT: &str = "umbel_delta_sent_bytes_total";
pub(super) const DELTA_RECEIVED: &str = "umbel_delta_received_bytes_total";
pub(super) const EXCHANGE_REFUSED: &str = "umbel_exchange_refused_total";
pub(super) const SCRUBS: &str = "umbel_scrubs_total";
pub(super) const SCRUB_DIFFERING: &str = "umbel_scrub_differing_bits_total";
pub(super) const SCRUB_REPAIRED: &str = "umbel_scrub_repaired_bits_total";
pub(super) const SCRUB_SENT: &str = "umbel_scrub_sent_bytes_total";
pub(super) const SCRUB_RECEIVED: &str = "umbel_scrub_received_bytes_total";
pub(super) const SCRUB_AGE: &str = "umbel_scrub_age_seconds";
pub(super) const SHARD_SCRUBS: &str = "umbel_shard_scrubs_total";
pub(super) const SHARD_SCRUB_DIFFERING: &str = "umbel_shard_scrub_differing_bits_total";
pub(super) const CALLS_DENIED: &str = "umbel_calls_denied_total";
pub(super) const REQUESTS_REFUSED: &str = "umbel_requests_refused_total";
pub(super) const STREAMS_ENDED: &str = "umbel_streams_ended_total";
pub(super) const REQUEST_BYTES: &str = "umbel_request_bytes_under_way_max";
pub(super) const RESP_COMMANDS: &str = "umbel_resp_commands_total";
pub(super) const RESP_SECONDS: &str = "umbel_resp_batch_duration_seconds";
pub(super) const RESP_CONNECTIONS: &str = "umbel_resp_connections";
pub(super) const SHARD_SCRUB_AGE: &str = "umbel_shard_scrub_age_seconds";
pub(super) const BUILD_INFO: &str = "umbel_build_info";
pub(super) const JOBS: &str = "umbel_jobs";
pub(super) const QUOTA_USED: &str = "umbel_quota_used_ratio";
