//! A worker's entries of one cell: one per distinct hash, and separately the local repeats. Sorted by hash, unless the
//! worker sends nothing.

use super::entry::{Entry, Keep, Rank, RecordId};
use umbel_filter::{HashRange, ItemHash};

/// An entry that was dropped because the same worker has an equal one, which it keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Repeat {
    /// The index of the kept entry in the list.
    pub(super) index: u32,
    /// The dropped record.
    pub(super) record_id: RecordId,
}

/// One worker's entries of one cell: one per distinct hash, and the repeats.
///
/// ```
/// use umbel_dedup_engine::{Entry, Keep, LocalList, RecordId};
/// use umbel_filter::{HashRange, ItemHash};
/// let entry = |hi, item| Entry { hash: ItemHash::new(hi, 0), record_id: RecordId::new(0, item) };
/// let list = LocalList::build(vec![entry(9, 0), entry(4, 1), entry(9, 2)], HashRange::WHOLE, Keep::First);
/// assert_eq!(list.entries(), [entry(4, 1), entry(9, 0)]);
/// ```
#[derive(Debug, Default)]
pub struct LocalList {
    entries: Vec<Entry>,
    distinct: usize,
    repeats: Vec<Repeat>,
    /// The rank of each entry; empty unless the job keeps the best. Stored separately so that entries stay
    /// small.
    ranks: Vec<Rank>,
    /// The rank of each repeat; empty unless the job keeps the best.
    repeat_ranks: Vec<Rank>,
}

/// An entry with its rank, for sorting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedEntry {
    hash: ItemHash,
    rank: Rank,
    record_id: RecordId,
}

/// A slot of the table of hashes without an entry.
const FREE: u64 = u64::MAX;

/// Mean number of full slots that an entry passes in the table before sorting is faster: hashes of at most half as many
/// entries as slots pass 0.5, unless somebody who knows the seed has chosen the items.
const PASSED_SLOTS_MEAN_MAX: usize = 8;

/// Below this many entries a plain sort is fastest.
const SCATTER_ENTRIES_MIN: usize = 64;

/// Mean number of entries in a bucket: few enough for insertion sort, and enough that the buckets' counters take
/// little memory compared with the entries.
const BUCKET_ENTRIES_MEAN: usize = 2;

impl LocalList {
    /// Sorts a worker's entries of a cell and keeps one per hash, by the keep rule.
    ///
    /// # Panics
    ///
    /// If there are 2^32 entries or more. The worker checks `CELL_ENTRIES_MAX` before.
    #[must_use]
    pub fn build(entries: Vec<Entry>, range: HashRange, keep: Keep) -> Self {
        let mut entries = sort(entries, range, |entry| entry.hash);
        let mut repeats = Vec::new();
        let mut kept = 0usize;
        for at in 0..entries.len() {
            let entry = entries[at];
            if kept > 0 && entries[kept - 1].hash == entry.hash {
                let holder = &mut entries[kept - 1];
                let index = u32::try_from(kept - 1).expect("fewer than 2^32 entries");
                let dropped = if keep.prefers(entry.record_id, holder.record_id) {
                    std::mem::replace(&mut holder.record_id, entry.record_id)
                } else {
                    entry.record_id
                };
                repeats.push(Repeat { index, record_id: dropped });
            } else {
                entries[kept] = entry;
                kept += 1;
            }
        }
        entries.truncate(kept);
        Self { entries, distinct: kept, repeats, ..Self::default() }
    }

    /// As [`LocalList::build`], for a worker that compares its entries with no other's: nothing is sorted, and repeats stay
    /// among the entries. Takes about half as long.
    pub(super) fn build_unsorted(mut entries: Vec<Entry>, range: HashRange, keep: Keep) -> Self {
        match find_repeats(&mut entries, keep) {
            None => Self::build(entries, range, keep),
            Some(repeats) => {
                let distinct = entries.len() - repeats.len();
                Self { entries, distinct, repeats, ..Self::default() }
            }
        }
    }

    /// As [`LocalList::build`], for [`Keep::Best`]: keeps the entry with the smallest rank, among equal ranks the first
    /// in input order. `ranks` has one rank per entry.
    ///
    /// # Panics
    ///
    /// As [`LocalList::build`].
    #[must_use]
    pub fn build_ranked(entries: &[Entry], ranks: &[Rank], range: HashRange) -> Self {
        let ranked = entries
            .iter()
            .zip(ranks)
            .map(|(&Entry { hash, record_id }, &rank)| RankedEntry { hash, rank, record_id });
        let sorted = sort(ranked.collect(), range, |entry| entry.hash);
        let mut list = Self::default();
        // Of equal hashes the entry to keep comes first.
        for RankedEntry { hash, rank, record_id } in sorted {
            if list.entries.last().is_some_and(|last| last.hash == hash) {
                let index = u32::try_from(list.entries.len() - 1).expect("fewer than 2^32 entries");
                list.repeats.push(Repeat { index, record_id });
                list.repeat_ranks.push(rank);
            } else {
                list.entries.push(Entry { hash, record_id });
                list.ranks.push(rank);
            }
        }
        list.distinct = list.entries.len();
        list
    }

    /// The distinct entries, in ascending order of hashes; if the list is not sorted, all entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The number of distinct entries.
    pub(super) fn distinct_count(&self) -> usize {
        self.distinct
    }

    /// Bytes of memory that the list takes, without ranks.
    pub(super) fn held_bytes(&self) -> usize {
        let (entries, repeats) = (self.entries.capacity(), self.repeats.capacity());
        entries * size_of::<Entry>() + repeats * size_of::<Repeat>()
    }

    /// The repeats, in ascending order of the index of the kept entry if the list is sorted.
    pub(super) fn repeats(&self) -> &[Repeat] {
        &self.repeats
    }

    /// The ranks of the repeats; empty unless the job keeps the best.
    pub(super) fn repeat_ranks(&self) -> &[Rank] {
        &self.repeat_ranks
    }

    /// The rank of an entry; 0 unless the job keeps the best.
    pub(super) fn rank(&self, index: usize) -> Rank {
        self.ranks.get(index).copied().unwrap_or_default()
    }
}

/// Finds the repeats by a table of hashes, whose slots have the index of an entry and 32 bits of its hash; `None` if entries
/// pass too many slots. Of equal entries the first one gets the record id that is kept.
fn find_repeats(entries: &mut [Entry], keep: Keep) -> Option<Vec<Repeat>> {
    let bits = (2 * entries.len()).max(2).next_power_of_two().trailing_zeros();
    let mut table = vec![FREE; 1 << bits];
    let mut passed_left = entries.len() * PASSED_SLOTS_MEAN_MAX;
    let mut repeats = Vec::new();
    for at in 0..entries.len() {
        let entry = entries[at];
        // Truncated hashes have few bits in either half, and those of a cell begin alike.
        let mixed = entry.hash.hi() ^ entry.hash.lo().rotate_left(32);
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let tag = mixed >> 16 << 32;
        let mut slot = usize::try_from(mixed >> (64 - bits)).expect("below the number of slots");
        let holder = loop {
            let held = table[slot];
            if held == FREE {
                table[slot] = tag | at as u64;
                break None;
            }
            if held >> 32 == tag >> 32 {
                let index = u32::try_from(held - tag).expect("without the tag");
                if entries[index as usize].hash == entry.hash {
                    break Some(index);
                }
            }
            passed_left = passed_left.checked_sub(1)?;
            slot = (slot + 1) & ((1 << bits) - 1);
        };
        let Some(index) = holder else { continue };
        if keep.prefers(entry.record_id, entries[index as usize].record_id) {
            (entries[at], entries[index as usize]) = (entries[index as usize], entry);
        }
        repeats.push(Repeat { index, record_id: entries[at].record_id });
    }
    Some(repeats)
}

/// Sorts by hash, then by the other fields. Hashes are uniform in the range, so scattering entries once by
/// their leading bits leaves buckets of a few entries, each of which a comparison sort finishes. A bucket
/// that was filled by a frequent item or an attacker costs that comparison sort O(n log n), no more.
fn sort<E: Copy + Ord>(
    mut entries: Vec<E>,
    range: HashRange,
    hash: impl Fn(&E) -> ItemHash,
) -> Vec<E> {
    if entries.len() < SCATTER_ENTRIES_MIN {
        entries.sort_unstable();
        return entries;
    }
    let buckets = (entries.len() / BUCKET_ENTRIES_MEAN).next_power_of_two();
    let scale = u64::try_from(((buckets as u128) << 64) / range.width()).unwrap_or(u64::MAX);
    let bucket_of = |hash: ItemHash| {
        let offset = u128::from(hash.hi() - range.start());
        usize::try_from((offset * u128::from(scale)) >> 64).expect("below the number of buckets")
    };
    let mut ends = vec![0u32; buckets + 1];
    for entry in &entries {
        ends[bucket_of(hash(entry)) + 1] += 1;
    }
    for bucket in 1..=buckets {
        ends[bucket] += ends[bucket - 1];
    }
    // Now ends[b] is the start of bucket b; after the scatter, it is its end.
    let mut sorted = entries.clone();
    for entry in &entries {
        let slot = &mut ends[bucket_of(hash(entry))];
        sorted[*slot as usize] = *entry;
        *slot += 1;
    }
    let mut start = 0;
    for &end in &ends[..buckets] {
        let end = end as usize;
        sorted[start..end].sort_unstable();
        start = end;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_scatter_sort_equals_the_plain_one(
            his in proptest::collection::vec(any::<u64>(), 0..400),
            cell in 0u32..5,
            hot in any::<bool>(),
        ) {
            let cells = umbel_filter::CellCount::new(5).unwrap();
            let range = HashRange::cell(cell, cells);
            let width = u64::try_from(range.width()).unwrap();
            let entries: Vec<Entry> = his
                .iter()
                .enumerate()
                .map(|(item, hi)| Entry {
                    hash: ItemHash::new(range.start() + if hot { hi % 3 } else { hi % width }, hi % 2),
                    record_id: RecordId::new(0, (item as u64 * 7919) % 1000),
                })
                .collect();
            let mut expected = entries.clone();
            expected.sort_unstable();
            prop_assert_eq!(sort(entries, range, |entry| entry.hash), expected);
        }

        #[test]
        fn one_entry_a_hash_stays_and_every_other_is_a_repeat_of_it(
            his in proptest::collection::vec(0u64..50, 0..300),
            last in any::<bool>(),
        ) {
            let keep = if last { Keep::Last } else { Keep::First };
            let entries: Vec<Entry> = his
                .iter()
                .enumerate()
                .map(|(item, &hi)| Entry {
                    hash: ItemHash::new(hi, 1),
                    record_id: RecordId::new(0, item as u64),
                })
                .collect();
            let list = LocalList::build(entries.clone(), HashRange::WHOLE, keep);
            prop_assert_eq!(list.entries().len() + list.repeats.len(), entries.len());
            prop_assert!(list.entries().is_sorted_by(|a, b| a.hash < b.hash));
            for entry in list.entries() {
                let mut same = entries.iter().filter(|other| other.hash == entry.hash);
                prop_assert!(!same.any(|other| keep.prefers(other.record_id, entry.record_id)));
            }
            for repeat in list.repeats() {
                let kept = list.entries()[repeat.index as usize];
                prop_assert!(keep.prefers(kept.record_id, repeat.record_id));
                let dropped = entries[repeat.record_id.item() as usize];
                prop_assert_eq!(dropped.hash, kept.hash);
            }
        }

        #[test]
        fn a_table_finds_what_sorting_finds(
            drawn in proptest::collection::vec((0u64..50, 0u64..4), 0..300),
            last in any::<bool>(),
            are_truncated in any::<bool>(),
            share_a_slot in any::<bool>(),
        ) {
            let keep = if last { Keep::Last } else { Keep::First };
            let entry = |(item, &(hi, lo)): (usize, &(u64, u64))| {
                let lo = if are_truncated { 0 } else { lo };
                let hi = if share_a_slot { hi << 32 } else { hi };
                let lo = if share_a_slot { hi >> 32 } else { lo };
                let record_id = RecordId::new(0, (item as u64 * 7919) % 1009);
                Entry { hash: ItemHash::new(hi, lo), record_id }
            };
            let entries: Vec<Entry> = drawn.iter().enumerate().map(entry).collect();
            let facts = |list: LocalList| {
                let kept = |repeat: &Repeat| list.entries()[repeat.index as usize];
                let repeats = list.repeats().iter().map(|repeat| (repeat.record_id, kept(repeat)));
                let repeats: BTreeMap<RecordId, Entry> = repeats.collect();
                let mut distinct = list.entries().to_vec();
                distinct.retain(|entry| !repeats.contains_key(&entry.record_id));
                distinct.sort_unstable();
                assert_eq!(distinct.len(), list.distinct_count());
                (distinct, repeats)
            };
            let sorted = LocalList::build(entries.clone(), HashRange::WHOLE, keep);
            let unsorted = LocalList::build_unsorted(entries, HashRange::WHOLE, keep);
            prop_assert_eq!(facts(unsorted), facts(sorted));
        }

        #[test]
        fn the_smallest_rank_stays_and_of_equal_ranks_the_first(
            drawn in proptest::collection::vec((0u64..50, 0u64..4), 0..300),
        ) {
            let entry = |(item, &(hi, _)): (usize, &(u64, u64))| Entry {
                hash: ItemHash::new(hi, 1),
                record_id: RecordId::new(0, item as u64),
            };
            let entries: Vec<Entry> = drawn.iter().enumerate().map(entry).collect();
            let ranks: Vec<Rank> = drawn.iter().map(|&(_, rank)| Rank(rank)).collect();
            let list = LocalList::build_ranked(&entries, &ranks, HashRange::WHOLE);
            let priority = |record_id: RecordId| (ranks[record_id.item() as usize], record_id);
            prop_assert_eq!(list.entries().len() + list.repeats.len(), entries.len());
            for (index, kept) in list.entries().iter().enumerate() {
                let class = entries.iter().filter(|entry| entry.hash == kept.hash);
                let best = class.map(|entry| priority(entry.record_id)).min();
                prop_assert_eq!(best, Some((list.rank(index), kept.record_id)));
            }
            for (repeat, &rank) in list.repeats().iter().zip(list.repeat_ranks()) {
                prop_assert_eq!(priority(repeat.record_id).0, rank);
                let kept = list.entries()[repeat.index as usize];
                prop_assert_eq!(entries[repeat.record_id.item() as usize].hash, kept.hash);
            }
        }
    }

    /// Items whose hashes all fall on one slot do not take quadratic time.
    #[test]
    fn hashes_on_one_slot_are_sorted() {
        let hash = |number: u64| ItemHash::new(number.rotate_left(32), number);
        let entry = |item| Entry { hash: hash(item / 2), record_id: RecordId::new(0, item) };
        let mut entries: Vec<Entry> = (0..1000).map(entry).collect();
        assert_eq!(find_repeats(&mut entries, Keep::First), None);
        let list = LocalList::build_unsorted(entries, HashRange::WHOLE, Keep::First);
        assert_eq!((list.distinct_count(), list.repeats().len()), (500, 500));
        assert!(list.entries().iter().all(|entry| entry.record_id.item() % 2 == 0));
    }
}
