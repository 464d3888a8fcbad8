//! The slow twin: the whole job on one machine, over one ordered map.

use super::entry::{Keep, Place};
use std::collections::BTreeMap;

/// For each dropped record, in input order: where it was read, and where the kept one was.
///
/// ```
/// use umbel_engine::dedup::{Keep, Place, reference};
/// let records = [(Place::new(0, 0), "a"), (Place::new(0, 1), "b"), (Place::new(1, 0), "a")];
/// assert_eq!(reference::drops(&records, Keep::First), [(Place::new(1, 0), Place::new(0, 0))]);
/// assert_eq!(reference::drops(&records, Keep::Last), [(Place::new(0, 0), Place::new(1, 0))]);
/// ```
#[must_use]
pub fn drops<T: Ord>(records: &[(Place, T)], keep: Keep) -> Vec<(Place, Place)> {
    let mut best: BTreeMap<&T, Place> = BTreeMap::new();
    for (place, item) in records {
        let holder = best.entry(item).or_insert(*place);
        if keep.prefers(*place, *holder) {
            *holder = *place;
        }
    }
    let verdicts = records.iter().map(|(place, item)| (*place, best[item]));
    let mut drops: Vec<_> = verdicts.filter(|(place, kept)| place != kept).collect();
    drops.sort_unstable();
    drops
}
