//! Rows of dropped records, each with the kept one, for the reports. Many threads append them, to groups of chunks; they
//! are read group by group, sorted in input order.

use super::context::Job;
use super::spill::{GroupWriter, GroupedBytes, ScratchFile, buffer_bytes};
use crate::error::Result;
use std::sync::Arc;
use umbel_dedup_engine::{Keep, Rank, RecordId};

/// Number of groups of chunks. There are many, because the rows of a group are sorted in memory.
const GROUPS_MAX: usize = 1024;

/// Bytes that are buffered per group if all rows go to disk.
const ON_DISK_BUFFER_BYTES: usize = 4 << 10;

/// A dropped record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DropRow {
    /// The dropped record.
    pub(crate) record_id: RecordId,
    /// The record kept for it.
    pub(crate) kept: RecordId,
    /// The dropped record's rank; 0 unless the job keeps the best.
    pub(crate) rank: Rank,
}

impl DropRow {
    /// Whether the record was dropped because a reference contains its item: then its kept record is itself.
    pub(crate) fn is_known(&self) -> bool {
        self.kept == self.record_id
    }
}

/// Bytes of a row: two record ids, and a rank if the job keeps the best.
const fn row_bytes(is_ranked: bool) -> usize {
    if is_ranked { 24 } else { 16 }
}

/// The rows of a job that reports them.
pub(crate) struct DropRows {
    store: GroupedBytes,
    first_chunk: u32,
    chunks: usize,
    keep: Keep,
}

impl DropRows {
    /// No rows yet.
    pub(crate) fn new(job: &Job<'_>, scratch: &Arc<ScratchFile>) -> Self {
        let chunks = job.chunks.len();
        let groups = chunks.clamp(1, GROUPS_MAX);
        // One half for rows in memory, and one for the buffers of all threads.
        let half = job.resident_bytes() / 8;
        let store = GroupedBytes::new(groups, half, Arc::clone(scratch))
            .with_buffers(buffer_bytes(half, job.threads, groups));
        Self { store, first_chunk: 0, chunks, keep: job.shape.keep }
    }

    /// No rows yet, for a worker whose chunks begin with this one; all rows go to disk.
    pub(crate) fn on_disk(job: &Job<'_>, first_chunk: u32, scratch: &Arc<ScratchFile>) -> Self {
        let chunks = job.chunks.len();
        let groups = chunks.clamp(1, GROUPS_MAX);
        let store = GroupedBytes::new(groups, 0, Arc::clone(scratch));
        let store = store.with_buffers(ON_DISK_BUFFER_BYTES);
        Self { store, first_chunk, chunks, keep: job.shape.keep }
    }

    fn group_of(&self, record_id: RecordId) -> usize {
        (record_id.chunk() - self.first_chunk) as usize * self.store.group_count() / self.chunks
    }

    fn is_ranked(&self) -> bool {
        self.keep == Keep::Best
    }

    /// A writer for one thread.
    pub(crate) fn writer(&self) -> DropWriter<'_> {
        DropWriter { rows: self, writer: GroupWriter::new(&self.store) }
    }

    /// Calls `take` for every row in input order, with the record that is kept in the end. Works once: it
    /// empties the groups.
    pub(crate) fn for_each(&self, mut take: impl FnMut(DropRow) -> Result<()>) -> Result<()> {
        for group in 0..self.store.group_count() {
            let bytes = self.store.take(group)?;
            let rows = bytes.chunks_exact(row_bytes(self.is_ranked()));
            let mut rows: Vec<DropRow> = rows.map(decode).collect();
            drop(bytes);
            rows.sort_unstable();
            resolve(&mut rows, self.keep);
            rows.into_iter().try_for_each(&mut take)?;
        }
        Ok(())
    }
}

/// Appends the rows of one thread.
pub(crate) struct DropWriter<'a> {
    rows: &'a DropRows,
    writer: GroupWriter<'a>,
}

impl DropWriter<'_> {
    /// Appends a row.
    pub(crate) fn append(&mut self, row: DropRow) -> Result<()> {
        self.writer.append(self.rows.group_of(row.record_id), |buffer| {
            buffer.extend(row.record_id.to_bits().to_le_bytes());
            buffer.extend(row.kept.to_bits().to_le_bytes());
            if self.rows.is_ranked() {
                buffer.extend(row.rank.0.to_le_bytes());
            }
        })
    }

    /// Writes the buffered rows.
    pub(crate) fn finish(self) -> Result<()> {
        self.writer.finish()
    }
}

fn decode(row: &[u8]) -> DropRow {
    let (words, _) = row.as_chunks::<8>();
    let word = |at: usize| words.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    DropRow {
        record_id: RecordId::from_bits(word(0)),
        kept: RecordId::from_bits(word(1)),
        rank: Rank(word(2)),
    }
}

/// Sets the kept record of every row to the one that is kept in the end. The record that an early repeat was dropped for
/// may have been dropped itself; both are in the same chunk, and so in the same group. Every record is dropped for a
/// better one, so if rows are processed from the best to the worst, each chain has length one.
fn resolve(rows: &mut [DropRow], keep: Keep) {
    let mut by_rank: Vec<usize> = Vec::new();
    if keep == Keep::Best {
        by_rank.extend(0..rows.len());
        by_rank.sort_unstable_by_key(|&at| (rows[at].rank, at)); // rows are in the order of their record ids
    }
    let count = rows.len();
    let nth_best = |step: usize| match keep {
        Keep::First => step,
        Keep::Last => count - 1 - step,
        Keep::Best => by_rank[step],
    };
    for at in (0..count).map(nth_best) {
        let kept = rows[at].kept;
        if let Ok(next) = rows.binary_search_by_key(&kept, |row| row.record_id) {
            rows[at].kept = rows[next].kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_near_repeats_end_at_the_record_that_stays() {
        let record_id = |item| RecordId::new(0, item);
        let row = |item, kept| DropRow { record_id: record_id(item), kept, rank: Rank(0) };
        let kept_elsewhere = RecordId::new(9, 9);
        let mut rows: Vec<_> = (0..1000).map(|item| row(item, record_id(item + 1))).collect();
        rows.push(row(1000, kept_elsewhere));
        resolve(&mut rows, Keep::Last);
        assert!(rows.iter().all(|row| row.kept == kept_elsewhere));
        let mut rows = vec![row(1, record_id(0)), row(5, record_id(4)), row(7, record_id(5))];
        resolve(&mut rows, Keep::First);
        assert_eq!(rows, [row(1, record_id(0)), row(5, record_id(4)), row(7, record_id(4))]);
    }

    /// Near repeats in an order in which the best record so far changes again and again.
    #[test]
    fn chains_by_rank_run_in_both_directions() {
        let row = |item, kept, rank| DropRow {
            record_id: RecordId::new(0, item),
            kept: RecordId::new(0, kept),
            rank: Rank(rank),
        };
        // 0 (rank 5) dropped for 2 (rank 3); 1 (rank 7) for 0; 2 for 4 (rank 1, kept); 3 (rank 3) for 2.
        let mut rows = vec![row(0, 2, 5), row(1, 0, 7), row(2, 4, 3), row(3, 2, 3)];
        resolve(&mut rows, Keep::Best);
        assert_eq!(rows, [row(0, 4, 5), row(1, 4, 7), row(2, 4, 3), row(3, 4, 3)]);
    }
}
