//! The limits of reading, each with its reason.
//!
//! Files come from anywhere, so no memory is allocated only because a file announces a size: a buffer
//! grows with the bytes that exist, up to the longest accepted record. Limits of JSON are in `json.rs`.

/// Longest record accepted by default, terminator included: 1 GiB. In practice, a record above a few
/// MiB means that the file does not consist of lines (a tar archive, a single JSON array); 1 GiB admits
/// the largest real documents and still fits into the memory of any machine that runs the job. A longer
/// record is an error and is not truncated, because a part of a record would equal nothing.
pub const RECORD_BYTES_MAX: usize = 1 << 30;

/// Default size of a block: 1 MiB. Large enough that the system call (about 1 µs) and the move of the
/// partial record to the front are negligible compared with reading it (100 µs), small enough to stay
/// in the second-level cache between reading and hashing.
pub const BLOCK_BYTES_DEFAULT: usize = 1 << 20;

/// First size of a buffer that grows to a block: 32 KiB. Buffers are zeroed, and jobs have a hundred
/// thousand files that are shorter; for a long file, the buffer reaches the size of a block within five
/// reads.
pub(crate) const FIRST_READ_BYTES: usize = 32 << 10;

/// Stored bytes that are decoded from at a time: 128 KiB, the largest zstd block and the
/// usual read-ahead of Linux.
pub(crate) const STORED_BYTES: usize = 128 << 10;

/// Bytes read at once behind the end of a span, to finish its last record: 64 KiB. Most records end in
/// the first read.
pub(crate) const OVERHANG_BYTES: usize = 64 << 10;

/// A buffer that has grown beyond this many blocks for a long record is freed after it.
pub(crate) const KEPT_BLOCKS: usize = 16;

/// A [`RecordReader`](crate::RecordReader) takes at most `max(block_bytes, record_bytes_max)` bytes of
/// memory and what its decoder needs (gzip 40 KiB, zstd up to 128 MiB for files written with `--long`,
/// 8 MiB normally, xz 9 MiB normally, 65 MiB with `-9`, never more than 130 MiB, bzip2 4 MiB, lz4 12
/// MiB).
///
/// ```
/// use umbel_records::{RECORD_BYTES_MAX, ReadLimits};
///
/// let limits = ReadLimits { block_bytes: 64 << 10, ..ReadLimits::default() };
/// assert_eq!(limits.record_bytes_max, RECORD_BYTES_MAX);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Bytes of a block, as long as no record is longer. Default [`BLOCK_BYTES_DEFAULT`]; 64 KiB to 4
    /// MiB are sensible. 0 counts as 1, and a value above `record_bytes_max` as `record_bytes_max`. The
    /// records do not depend on it.
    pub block_bytes: usize,
    /// Longest accepted record in bytes, terminator included. Default [`RECORD_BYTES_MAX`]; 0 counts as
    /// 1.
    pub record_bytes_max: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { block_bytes: BLOCK_BYTES_DEFAULT, record_bytes_max: RECORD_BYTES_MAX }
    }
}
