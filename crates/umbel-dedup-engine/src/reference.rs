//! The reference implementation for tests: the whole job on one machine, with one ordered map.

use super::entry::{Keep, Rank, RecordId};
use std::collections::BTreeMap;

/// The dropped records in input order, each with the record that was kept for it.
///
/// ```
/// use umbel_dedup_engine::{Keep, RecordId, reference};
/// let records = [(RecordId::new(0, 0), "a"), (RecordId::new(0, 1), "b"), (RecordId::new(1, 0), "a")];
/// assert_eq!(reference::drops(&records, Keep::First), [(RecordId::new(1, 0), RecordId::new(0, 0))]);
/// assert_eq!(reference::drops(&records, Keep::Last), [(RecordId::new(0, 0), RecordId::new(1, 0))]);
/// ```
#[must_use]
pub fn drops<T: Ord>(records: &[(RecordId, T)], keep: Keep) -> Vec<(RecordId, RecordId)> {
    let unranked = records.iter().map(|(record_id, item)| (Rank::default(), *record_id, item));
    ranked_drops(&unranked.collect::<Vec<_>>(), keep)
}

/// As [`drops`], for records with ranks.
///
/// ```
/// use umbel_dedup_engine::{Keep, RecordId, Rank, reference};
/// let records = [(Rank(2), RecordId::new(0, 0), "a"), (Rank(1), RecordId::new(0, 1), "a")];
/// let drops = reference::ranked_drops(&records, Keep::Best);
/// assert_eq!(drops, [(RecordId::new(0, 0), RecordId::new(0, 1))]);
/// ```
#[must_use]
pub fn ranked_drops<T: Ord>(
    records: &[(Rank, RecordId, T)],
    keep: Keep,
) -> Vec<(RecordId, RecordId)> {
    let mut best: BTreeMap<&T, (Rank, RecordId)> = BTreeMap::new();
    for (rank, record_id, item) in records {
        let holder = best.entry(item).or_insert((*rank, *record_id));
        if keep.prefers((*rank, *record_id), *holder) {
            *holder = (*rank, *record_id);
        }
    }
    let verdicts = records.iter().map(|(_, record_id, item)| (*record_id, best[item].1));
    let mut drops: Vec<_> = verdicts.filter(|(record_id, kept)| record_id != kept).collect();
    drops.sort_unstable();
    drops
}
