//! Gathers entries of one chunk, and partitions them by cell into a run.
//!
//! ```text
//! run:  | cell 0: entry entry entry | cell 1: entry | ... |      entry: hi u64 LE, lo u64 LE, item u32 LE = 20 bytes,
//!                                                                      with ranks: and rank u64 LE = 28 bytes
//! ```
//!
//! Items are numbered from the run's first one, so 32 bits are enough. A small cache of recent hashes finds near repeats,
//! which are dropped at once (*early drops*): a frequent item costs a run one entry instead of thousands.

use umbel_dedup_engine::{Entry, Keep, Rank};
use umbel_filter::{CellCount, ItemHash};

/// Bytes of an entry in a run, with and without a rank.
pub(crate) const fn entry_bytes(is_ranked: bool) -> usize {
    if is_ranked { 28 } else { 20 }
}

/// Entries, and their ranks if they have any.
#[derive(Default, PartialEq, Debug)]
pub(crate) struct CellEntries {
    pub(crate) entries: Vec<Entry>,
    pub(crate) ranks: Vec<Rank>,
}

/// Entries of one chunk, partitioned by cell.
pub(crate) struct Run {
    /// Number in the chunk of the run's item 0.
    pub(crate) first_item: u64,
    /// Index of the first entry of each cell, and the number of all entries; empty if the run is shorter than
    /// that table.
    pub(crate) offsets: Vec<u32>,
    /// The entries.
    pub(crate) bytes: Vec<u8>,
}

/// Entries of a run: 5 MiB of partitioned entries, 7 MiB with ranks, which fit into a core's share of the cache.
pub(crate) const RUN_ENTRIES_MAX: usize = 1 << 18;

/// Slots of the cache of recent hashes.
const RECENT_SLOTS: usize = 1 << 12;

/// An item that was dropped at once, and the one that was kept for it until the exchange, by their numbers in the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EarlyDrop {
    pub(crate) dropped: u64,
    pub(crate) kept: u64,
    /// The rank of the dropped one.
    pub(crate) rank: Rank,
}

/// Gathers entries of a chunk.
pub(crate) struct RunBuilder {
    cells: CellCount,
    keep: Keep,
    /// Whether near repeats may be dropped.
    drops_early: bool,
    entries: Vec<(ItemHash, u32)>,
    /// The ranks of entries, if they have any; stored separately so that entries stay small.
    is_ranked: bool,
    ranks: Vec<Rank>,
    cell_entries: Vec<u32>,
    recent: Vec<u32>,
    first_item: u64,
}

impl RunBuilder {
    /// An empty builder.
    pub(crate) fn new(cells: CellCount, keep: Keep, drops_early: bool, is_ranked: bool) -> Self {
        Self {
            cells,
            keep,
            drops_early,
            entries: Vec::new(),
            is_ranked,
            ranks: Vec::new(),
            cell_entries: vec![0; cells.get() as usize],
            recent: vec![0; RECENT_SLOTS],
            first_item: 0,
        }
    }

    /// Adds item number `item` of the chunk. Returns a drop if it is a near repeat. The rank is used if entries have ranks.
    #[inline]
    pub(crate) fn push(&mut self, hash: ItemHash, item: u64, rank: Rank) -> Option<EarlyDrop> {
        if self.entries.is_empty() {
            self.first_item = item;
        }
        #[expect(clippy::cast_possible_truncation, reason = "taken long before 2^32 items")]
        let number = (item - self.first_item) as u32;
        if self.drops_early {
            #[expect(clippy::cast_possible_truncation, reason = "masked to the number of slots")]
            let slot = &mut self.recent[hash.lo() as usize & (RECENT_SLOTS - 1)];
            // A slot of an earlier run refers to another entry, so the hashes differ.
            let at = *slot as usize;
            match self.entries.get_mut(at) {
                Some((recent, held)) if *recent == hash => {
                    let mut dropped_rank = rank;
                    let replaces = match self.keep {
                        Keep::First => false,
                        Keep::Last => true,
                        Keep::Best => rank < self.ranks[at],
                    };
                    let mut dropped = number;
                    if replaces {
                        std::mem::swap(&mut dropped, held);
                        if self.is_ranked {
                            std::mem::swap(&mut dropped_rank, &mut self.ranks[at]);
                        }
                    }
                    let item = |number: u32| self.first_item + u64::from(number);
                    let (dropped, kept) = (item(dropped), item(*held));
                    return Some(EarlyDrop { dropped, kept, rank: dropped_rank });
                }
                _ => *slot = u32::try_from(self.entries.len()).expect("a run has 2^18 entries"),
            }
        }
        self.entries.push((hash, number));
        if self.is_ranked {
            self.ranks.push(rank);
        }
        self.cell_entries[self.cells.cell_of(hash.hi()) as usize] += 1;
        None
    }

    /// Whether the run must be taken before the next item.
    #[inline]
    pub(crate) fn is_full(&self, next_item: u64) -> bool {
        // Without entries `first_item` is that of an earlier chunk.
        !self.entries.is_empty()
            && (self.entries.len() >= RUN_ENTRIES_MAX
                || next_item - self.first_item >= u64::from(u32::MAX))
    }

    /// Partitions the gathered entries; `None` if there are none.
    pub(crate) fn take(&mut self) -> Option<Run> {
        if self.entries.is_empty() {
            return None;
        }
        let mut offsets = Vec::with_capacity(self.cell_entries.len() + 1);
        let mut sum = 0u32;
        for entries in &mut self.cell_entries {
            offsets.push(sum);
            sum += std::mem::replace(entries, sum);
        }
        offsets.push(sum);
        // Now cell_entries has the index of each cell's next entry.
        let bytes = if self.is_ranked {
            self.partition::<{ entry_bytes(true) }>()
        } else {
            self.partition::<{ entry_bytes(false) }>()
        };
        if self.entries.len() < offsets.len() {
            offsets = Vec::new(); // So few entries need no table, and many small files make many runs.
        }
        self.cell_entries.fill(0);
        self.entries.clear();
        self.ranks.clear();
        Some(Run { first_item: self.first_item, offsets, bytes })
    }

    /// The entries in the order of their cells, in `ENTRY_BYTES` bytes each.
    fn partition<const ENTRY_BYTES: usize>(&mut self) -> Vec<u8> {
        let mut bytes = vec![0u8; self.entries.len() * ENTRY_BYTES];
        for (index, &(hash, number)) in self.entries.iter().enumerate() {
            let slot = &mut self.cell_entries[self.cells.cell_of(hash.hi()) as usize];
            let at = *slot as usize * ENTRY_BYTES;
            *slot += 1;
            let entry: &mut [u8; ENTRY_BYTES] =
                (&mut bytes[at..at + ENTRY_BYTES]).try_into().expect("exactly so long");
            entry[..8].copy_from_slice(&hash.hi().to_le_bytes());
            entry[8..16].copy_from_slice(&hash.lo().to_le_bytes());
            entry[16..20].copy_from_slice(&number.to_le_bytes());
            if ENTRY_BYTES == entry_bytes(true) {
                entry[20..].copy_from_slice(&self.ranks[index].0.to_le_bytes());
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_may_begin_with_what_is_no_item() {
        let mut builder = RunBuilder::new(CellCount::new(1).unwrap(), Keep::First, true, false);
        builder.push(ItemHash::new(1, 1), 70_000, Rank::default());
        assert!(builder.take().is_some());
        // The first record of the next chunk had no item.
        assert!(!builder.is_full(1) && builder.take().is_none());
    }
}
