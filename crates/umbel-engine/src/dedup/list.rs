//! A worker's list for one cell: its distinct entries in hash order, and the local repeats that it left out.

use super::entry::{Entry, Keep, Place};
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
/// use umbel_engine::dedup::{Entry, Keep, LocalList, Place};
/// use umbel_filter::{HashRange, ItemHash};
/// let entry = |hi, item| Entry { hash: ItemHash::new(hi, 0), place: Place::new(0, item) };
/// let list = LocalList::build(vec![entry(9, 0), entry(4, 1), entry(9, 2)], HashRange::WHOLE, Keep::First);
/// assert_eq!(list.entries(), [entry(4, 1), entry(9, 0)]);
/// assert_eq!(list.repeat_count(), 1);
/// ```
#[derive(Debug, Default)]
pub struct LocalList {
    entries: Vec<Entry>,
    repeats: Vec<Repeat>,
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
        let mut entries = sort(entries, range);
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
        Self { entries, repeats }
    }

    /// The distinct entries, rising by hash.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many entries were left out as repeats of another one.
    #[must_use]
    pub fn repeat_count(&self) -> usize {
        self.repeats.len()
    }

    /// The repeats, rising by the index of what stayed.
    pub(super) fn repeats(&self) -> &[Repeat] {
        &self.repeats
    }
}

/// Sorts by hash, then place. Hashes are uniform in the range, so one scatter by their leading bits leaves buckets of
/// a handful of entries; a bucket that a hot item or an attacker has filled is sorted by comparison like any slice.
fn sort(mut entries: Vec<Entry>, range: HashRange) -> Vec<Entry> {
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
        ends[bucket_of(entry.hash) + 1] += 1;
    }
    for bucket in 1..=buckets {
        ends[bucket] += ends[bucket - 1];
    }
    // ends[b] is where bucket b starts, and after the scatter where it ends.
    let mut sorted = entries.clone();
    for entry in &entries {
        let slot = &mut ends[bucket_of(entry.hash)];
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
            prop_assert_eq!(sort(entries, range), expected);
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
            prop_assert_eq!(list.entries().len() + list.repeat_count(), entries.len());
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
    }
}
