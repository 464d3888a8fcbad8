//! A worker's list for one cell: its distinct entries in hash order, and the local repeats that it left out.

use super::entry::{Entry, Keep, Place, Rank};
use umbel_filter::{HashRange, ItemHash};

/// An entry that a worker dropped in favour of its own entry `index`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Repeat {
    /// The index of the kept entry in the list.
    pub(super) index: u32,
    /// Where the dropped item was read.
    pub(super) place: Place,
}

/// Distinct entries of one worker in one cell, rising by hash, and what was left out.
///
/// ```
/// use umbel_dedup_engine::{Entry, Keep, LocalList, Place};
/// use umbel_filter::{HashRange, ItemHash};
/// let entry = |hi, item| Entry { hash: ItemHash::new(hi, 0), place: Place::new(0, item) };
/// let list = LocalList::build(vec![entry(9, 0), entry(4, 1), entry(9, 2)], HashRange::WHOLE, Keep::First);
/// assert_eq!(list.entries(), [entry(4, 1), entry(9, 0)]);
/// ```
#[derive(Debug, Default)]
pub struct LocalList {
    entries: Vec<Entry>,
    repeats: Vec<Repeat>,
    /// Of each entry and of each repeat; empty unless the best stays. Apart from them, so that they stay small.
    ranks: Vec<Rank>,
    repeat_ranks: Vec<Rank>,
}

/// An entry and its rank while they are sorted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedEntry {
    hash: ItemHash,
    rank: Rank,
    place: Place,
}

/// Below this many entries a plain sort is fastest.
const SCATTER_ENTRIES_MIN: usize = 64;

/// Mean entries of a scatter bucket: few enough for insertion sort, many enough that the buckets' counters are
/// small beside the entries.
const BUCKET_ENTRIES_MEAN: usize = 2;

impl LocalList {
    /// Sorts a worker's entries of a cell and keeps one a hash, by the keep rule.
    ///
    /// # Panics
    ///
    /// If there are 2^32 entries or more; the worker checks its limit before.
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
                let dropped = if keep.prefers(entry.place, holder.place) {
                    std::mem::replace(&mut holder.place, entry.place)
                } else {
                    entry.place
                };
                repeats.push(Repeat { index, place: dropped });
            } else {
                entries[kept] = entry;
                kept += 1;
            }
        }
        entries.truncate(kept);
        Self { entries, repeats, ..Self::default() }
    }

    /// As [`LocalList::build`], where the item with the smallest rank stays, of equal ranks the first in input order.
    /// `ranks` are those of the entries.
    ///
    /// # Panics
    ///
    /// As [`LocalList::build`].
    #[must_use]
    pub fn build_ranked(entries: &[Entry], ranks: &[Rank], range: HashRange) -> Self {
        let ranked = entries.iter().zip(ranks).map(|(&Entry { hash, place }, &rank)| RankedEntry {
            hash,
            rank,
            place,
        });
        let sorted = sort(ranked.collect(), range, |entry| entry.hash);
        let mut list = Self::default();
        // The best of a class comes first.
        for RankedEntry { hash, rank, place } in sorted {
            if list.entries.last().is_some_and(|last| last.hash == hash) {
                let index = u32::try_from(list.entries.len() - 1).expect("fewer than 2^32 entries");
                list.repeats.push(Repeat { index, place });
                list.repeat_ranks.push(rank);
            } else {
                list.entries.push(Entry { hash, place });
                list.ranks.push(rank);
            }
        }
        list
    }

    /// The distinct entries, rising by hash.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Bytes that the list takes in memory.
    pub(super) fn held_bytes(&self) -> usize {
        let (entries, repeats) = (self.entries.capacity(), self.repeats.capacity());
        entries * size_of::<Entry>() + repeats * size_of::<Repeat>()
    }

    /// The repeats, rising by the index of what stayed.
    pub(super) fn repeats(&self) -> &[Repeat] {
        &self.repeats
    }

    /// The ranks of the repeats; empty unless the best stays.
    pub(super) fn repeat_ranks(&self) -> &[Rank] {
        &self.repeat_ranks
    }

    /// How an entry ranks; 0 unless the best stays.
    pub(super) fn rank(&self, index: usize) -> Rank {
        self.ranks.get(index).copied().unwrap_or_default()
    }
}

/// Sorts by hash, then by what else an entry has. Hashes are uniform in the range, so one scatter by their leading bits leaves buckets of
/// a handful of entries; a bucket that a hot item or an attacker has filled is sorted by comparison like any slice.
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
    // ends[b] is where bucket b starts, and after the scatter where it ends.
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
                    place: Place::new(0, (item as u64 * 7919) % 1000),
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
                    place: Place::new(0, item as u64),
                })
                .collect();
            let list = LocalList::build(entries.clone(), HashRange::WHOLE, keep);
            prop_assert_eq!(list.entries().len() + list.repeats.len(), entries.len());
            prop_assert!(list.entries().is_sorted_by(|a, b| a.hash < b.hash));
            for entry in list.entries() {
                let mut same = entries.iter().filter(|other| other.hash == entry.hash);
                prop_assert!(!same.any(|other| keep.prefers(other.place, entry.place)));
            }
            for repeat in list.repeats() {
                let kept = list.entries()[repeat.index as usize];
                prop_assert!(keep.prefers(kept.place, repeat.place));
                let dropped = entries[repeat.place.item() as usize];
                prop_assert_eq!(dropped.hash, kept.hash);
            }
        }

        #[test]
        fn the_smallest_rank_stays_and_of_equal_ranks_the_first(
            drawn in proptest::collection::vec((0u64..50, 0u64..4), 0..300),
        ) {
            let entry = |(item, &(hi, _)): (usize, &(u64, u64))| Entry {
                hash: ItemHash::new(hi, 1),
                place: Place::new(0, item as u64),
            };
            let entries: Vec<Entry> = drawn.iter().enumerate().map(entry).collect();
            let ranks: Vec<Rank> = drawn.iter().map(|&(_, rank)| Rank(rank)).collect();
            let list = LocalList::build_ranked(&entries, &ranks, HashRange::WHOLE);
            let standing = |place: Place| (ranks[place.item() as usize], place);
            prop_assert_eq!(list.entries().len() + list.repeats.len(), entries.len());
            for (index, kept) in list.entries().iter().enumerate() {
                let class = entries.iter().filter(|entry| entry.hash == kept.hash);
                let best = class.map(|entry| standing(entry.place)).min();
                prop_assert_eq!(best, Some((list.rank(index), kept.place)));
            }
            for (repeat, &rank) in list.repeats().iter().zip(list.repeat_ranks()) {
                prop_assert_eq!(standing(repeat.place).0, rank);
                let kept = list.entries()[repeat.index as usize];
                prop_assert_eq!(entries[repeat.place.item() as usize].hash, kept.hash);
            }
        }
    }
}
