//! The slow twin: the whole job on one machine, over one ordered map.

use super::entry::{Keep, Place, Rank};
use std::collections::BTreeMap;

/// For each dropped record, in input order: where it was read, and where the kept one was.
///
/// ```
/// use umbel_dedup_engine::{Keep, Place, reference};
/// let records = [(Place::new(0, 0), "a"), (Place::new(0, 1), "b"), (Place::new(1, 0), "a")];
/// assert_eq!(reference::drops(&records, Keep::First), [(Place::new(1, 0), Place::new(0, 0))]);
/// assert_eq!(reference::drops(&records, Keep::Last), [(Place::new(0, 0), Place::new(1, 0))]);
/// ```
#[must_use]
pub fn drops<T: Ord>(records: &[(Place, T)], keep: Keep) -> Vec<(Place, Place)> {
    let unranked = records.iter().map(|(place, item)| (Rank::default(), *place, item));
    ranked_drops(&unranked.collect::<Vec<_>>(), keep)
}

/// As [`drops`], of items that rank.
///
/// ```
/// use umbel_dedup_engine::{Keep, Place, Rank, reference};
/// let records = [(Rank(2), Place::new(0, 0), "a"), (Rank(1), Place::new(0, 1), "a")];
/// let drops = reference::ranked_drops(&records, Keep::Best);
/// assert_eq!(drops, [(Place::new(0, 0), Place::new(0, 1))]);
/// ```
#[must_use]
pub fn ranked_drops<T: Ord>(records: &[(Rank, Place, T)], keep: Keep) -> Vec<(Place, Place)> {
    let mut best: BTreeMap<&T, (Rank, Place)> = BTreeMap::new();
    for (rank, place, item) in records {
        let holder = best.entry(item).or_insert((*rank, *place));
        if keep.prefers((*rank, *place), *holder) {
            *holder = (*rank, *place);
        }
    }
    let verdicts = records.iter().map(|(_, place, item)| (*place, best[item].1));
    let mut drops: Vec<_> = verdicts.filter(|(place, kept)| place != kept).collect();
    drops.sort_unstable();
    drops
}
