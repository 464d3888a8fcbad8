//! Cuts sources into chunks, and assigns chunks to workers in input order.
//!
//! A chunk is the unit of reading: a byte span of a plain file, a whole compressed file, a whole table (from its middle one
//! cannot know whether a line end is within quotes), or a row group of Parquet. Chunks are numbered in input order, and
//! each worker gets a contiguous range of them, with nearly equal bytes. So all record ids of a worker are less than those
//! of the next one, and the keep rules can compare workers' numbers in place of record ids.

use super::inputs::Source;
use crate::error::{Result, bail};
use umbel_dedup_engine::limits::RECORD_ID_CHUNK_BITS;
use umbel_records::{ByteSpan, Compression};

/// Largest chunk of a plain file: some hundred thousand records, so that a gigabyte is enough work for several threads, and
/// the output of a chunk that waits for its turn fits into memory.
const CHUNK_BYTES_MAX: u64 = 16 << 20;

/// Smallest chunk that is worth a task.
const CHUNK_BYTES_MIN: u64 = 4 << 10;

/// Target number of chunks for each worker, so that workers get nearly equal parts, and for each thread, so that threads
/// end at about the same time.
const CHUNKS_PER_READER: u64 = 4;

/// A part of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// Index of the source.
    pub(crate) source: usize,
    /// The span of its bytes; `None` for all.
    pub(crate) span: Option<ByteSpan>,
    /// The row group of it, if it is Parquet.
    pub(crate) row_group: Option<usize>,
    /// Stored bytes, for progress.
    pub(crate) bytes: u64,
    /// The worker that reads it.
    pub(crate) worker: u16,
}

/// Cuts all sources into chunks for this many workers and threads; a source is one chunk if files are compared as a whole.
///
/// # Errors
///
/// If there are more chunks than a record id can number.
pub(crate) fn cut(
    sources: &[Source],
    workers: u32,
    threads: usize,
    whole_files: bool,
) -> Result<Vec<Chunk>> {
    let total: u64 = sources.iter().map(|source| source.bytes).sum();
    let readers = u64::from(workers).max(threads as u64);
    let per_reader = total / (CHUNKS_PER_READER * readers);
    let chunk_bytes = per_reader.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
    let mut chunks = Vec::new();
    let mut before = 0u64;
    let worker_at = |middle: u64| {
        let worker = u128::from(middle) * u128::from(workers) / u128::from(total.max(1));
        u16::try_from(worker.min(u128::from(workers) - 1)).expect("at most 1,024 workers")
    };
    for (source, Source { bytes, compression, format, row_groups, is_copied, .. }) in
        sources.iter().enumerate()
    {
        if *is_copied {
            before += bytes;
            continue;
        }
        if let Some(row_groups) = row_groups {
            let mut start = before;
            for (row_group, group) in row_groups.groups.iter().enumerate() {
                let end = start + group.stored_bytes;
                let (worker, row_group) = (worker_at(start.midpoint(end)), Some(row_group));
                let bytes = group.stored_bytes;
                chunks.push(Chunk { source, span: None, row_group, bytes, worker });
                start = end;
            }
            before += bytes;
            continue;
        }
        let can_cut =
            *compression == Compression::Plain && format.delimiter().is_none() && !whole_files;
        let parts = if can_cut { bytes.div_ceil(chunk_bytes).max(1) } else { 1 };
        for part in 0..parts {
            let (start, end) =
                (part_start(part, parts, *bytes), part_start(part + 1, parts, *bytes));
            let worker = worker_at(before + start.midpoint(end));
            let span = (parts > 1).then_some(ByteSpan { start, end });
            let bytes = end - start;
            chunks.push(Chunk { source, span, row_group: None, bytes, worker });
        }
        before += bytes;
    }
    if chunks.len() >= 1 << RECORD_ID_CHUNK_BITS {
        bail!(
            "the input makes {} chunks, at most {} are possible",
            chunks.len(),
            1 << RECORD_ID_CHUNK_BITS
        );
    }
    Ok(chunks)
}

/// Where a part begins if so many bytes are cut into `parts` of nearly equal length.
fn part_start(part: u64, parts: u64, bytes: u64) -> u64 {
    // The product exceeds 64 bits for files above 16 TiB.
    let start = u128::from(part) * u128::from(bytes) / u128::from(parts);
    u64::try_from(start).expect("no part begins behind the bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_largest_files_follow_each_other_to_the_end() {
        for bytes in [0, 1, 100, 1 << 44, (1 << 48) - 1, u64::MAX] {
            let parts = bytes.div_ceil(CHUNK_BYTES_MAX).max(1);
            let start = |part| part_start(part, parts, bytes);
            assert_eq!((start(0), start(parts)), (0, bytes));
            for part in [0, parts / 3, parts / 2, parts - 1] {
                let part_bytes = start(part + 1) - start(part);
                assert!(part_bytes <= CHUNK_BYTES_MAX, "{part} of {parts} has {part_bytes}");
                assert!(part_bytes > 0 || bytes == 0, "{part} of {parts} is empty");
            }
        }
    }
}
