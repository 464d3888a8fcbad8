//! What the first reading has found in a chunk.

use super::bad::ChunkBad;
use super::drops::SharedBits;
use super::record_starts::RecordStarts;
use umbel_records::ContentDigest;

/// Sums of facts over chunks; the meaning of each is that of the same field of [`ChunkFacts`].
#[derive(Clone, Copy, Default)]
pub(crate) struct FactTotals {
    pub(crate) items: u64,
    pub(crate) records: u64,
    pub(crate) exempt: u64,
    pub(crate) left_out: u64,
    pub(crate) early_drops: u64,
}

impl FactTotals {
    /// The sums of these facts.
    pub(crate) fn of(facts: &[ChunkFacts]) -> Self {
        let sum = |part: fn(&ChunkFacts) -> u64| facts.iter().map(part).sum();
        Self {
            items: sum(|facts| facts.items),
            records: sum(|facts| facts.records),
            exempt: sum(|facts| facts.exempt),
            left_out: sum(|facts| facts.left_out),
            early_drops: sum(|facts| facts.early_drops),
        }
    }
}

/// Facts of a chunk.
#[derive(Default)]
pub(crate) struct ChunkFacts {
    /// Records in it, bad ones included.
    pub(crate) records: u64,
    /// Record ids of the chunk: one per record, or one per part if records have parts, with or without an item.
    pub(crate) id_count: u64,
    /// Items that entered the job.
    pub(crate) items: u64,
    /// Items that are not compared, and kept.
    pub(crate) exempt: u64,
    /// Records that are not compared, and dropped.
    pub(crate) left_out: u64,
    /// Bytes of items.
    pub(crate) item_bytes: u64,
    /// The digest of the content, by which the second reading detects changes.
    pub(crate) digest: Option<ContentDigest>,
    /// Bits of dropped records: first bad records and early drops, later those of the exchange.
    pub(crate) dropped: SharedBits,
    /// Where records start; `None` if each has one record id.
    pub(crate) starts: Option<RecordStarts>,
    /// Repeats that were dropped while they were read.
    pub(crate) early_drops: u64,
    /// Bad records.
    pub(crate) bad: ChunkBad,
}

impl ChunkFacts {
    /// Whether the chunk is one record, and kept.
    pub(crate) fn is_kept_whole(&self) -> bool {
        self.id_count == 1 && !self.dropped.get(0)
    }

    /// The record that an item number belongs to, from 0 in the chunk, and its part, from 1, if records have parts.
    pub(crate) fn record_of(&self, number: u64) -> (u64, Option<u64>) {
        match &self.starts {
            None => (number, None),
            Some(starts) => {
                let (record, part) = starts.record_of(number);
                (record, Some(part))
            }
        }
    }
}
