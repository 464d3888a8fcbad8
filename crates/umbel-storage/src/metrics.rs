//! Measurements of the log: names, and one function per measurement. Units and help texts are where a node
//! describes all of its measurements.

use std::time::Duration;

use metrics::{counter, histogram};

/// Time of a write of the log, with its sync.
pub const WAL_WRITE_SECONDS: &str = "umbel_wal_write_duration_seconds";

/// Bytes written to the log.
pub const WAL_WRITTEN_BYTES: &str = "umbel_wal_written_bytes_total";

pub(crate) fn wal_written(byte_count: usize, elapsed: Duration) {
    counter!(WAL_WRITTEN_BYTES).increment(byte_count as u64);
    histogram!(WAL_WRITE_SECONDS).record(elapsed.as_secs_f64());
}
