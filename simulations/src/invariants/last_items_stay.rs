//! An aging filter contains an item from its insert on, at least until as many other items were
//! inserted as a generation holds.
//!
//! Checked twice: entry by entry on the logs ([`crate::oracle::last_items`]), and here on the clients'
//! answers, counting every other item that may have been inserted in the meantime.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::SliceShape;

use super::acked_is_contained::{Negative, negatives};
use super::checked::Checked;
pub(crate) use crate::oracle::last_items::NAME;
use crate::oracle::view::{FilterView, Request, View};
use crate::plan::FilterKind;

/// Checks every `No` and every `New` of aging filters.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    // The final shard ranges, which are the smallest.
    let Some(ranges) = view.reference.meta().shard_map().ranges() else { return checked };
    let aging = view.filters.iter().filter(|filter| filter.facts.kind == FilterKind::Aging);
    for filter in aging {
        // Filters of the same name may have different paces.
        let Some(pace) = filter
            .lives
            .iter()
            .filter_map(|life| pace_of(&life.incarnation.record.settings.shape, ranges))
            .min()
        else {
            continue;
        };
        let acked = filter.acked_by_item();
        for negative in negatives(filter) {
            let broken = missed(filter, &acked, &negative, pace);
            checked.record(negative.end_us, broken);
        }
    }
    checked
}

/// Items of a generation in the smallest slice: at least that many others must be inserted into the
/// whole filter.
fn pace_of(shape: &SliceShape, ranges: ShardRanges) -> Option<u64> {
    let SliceShape::Paced { pace, .. } = *shape else { return None };
    ranges.in_order().map(|(_, range)| range.share_of(pace)).min()
}

/// Why an item should not have been called absent.
fn missed(
    filter: &FilterView<'_>,
    acked: &BTreeMap<u32, Vec<&Request<'_>>>,
    negative: &Negative<'_>,
    pace: u64,
) -> Option<String> {
    let Negative { call, item, start_us, end_us } = *negative;
    let before = |insert: &&&Request<'_>| {
        insert.call.id != call.id
            && insert.end_us < start_us
            && !filter.was_erased(insert.start_us, end_us)
    };
    // Of these inserts, the one that began last has the fewest others after it.
    let last = acked.get(&item)?.iter().filter(before).max_by_key(|insert| insert.start_us)?;
    let mut others: BTreeSet<u32> = BTreeSet::new();
    for other in filter.inserts.iter() {
        if other.last_us >= last.start_us && other.start_us <= end_us {
            others.extend(other.call.items.iter().filter(|&&other| other != item));
            if others.len() as u64 >= pace {
                return None;
            }
        }
    }
    Some(format!(
        "item {item} of {} was absent in call {} ({start_us} to {end_us} us), but call {} had inserted \
         it, and {} others at most have come since, expected {pace} at least",
        filter.facts.name,
        call.id,
        last.call.id,
        others.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::fixture::{Cluster, History};

    /// A filter that keeps so many items of each shard.
    fn cluster_and_history() -> (Cluster, History, u32) {
        let cluster = Cluster::of(FilterKind::Aging);
        let record = cluster.reference.incarnations("f").next().unwrap().1.record.clone();
        let ranges = cluster.reference.meta().shard_map().ranges().unwrap();
        let pace = pace_of(&record.settings.shape, ranges).unwrap();
        (cluster, History::of(FilterKind::Aging), u32::try_from(pace).unwrap())
    }

    fn broken(cluster: &Cluster, history: &History) -> usize {
        let view = View::new(&history.calls, &history.facts, &cluster.reference);
        check(&view).violations.len()
    }

    #[test]
    fn what_is_forgotten_early_is_found() {
        let (cluster, mut history, pace) = cluster_and_history();
        history.insert("f", &[0], 10, 20, &[true]);
        let others: Vec<u32> = (1..pace).collect();
        history.insert("f", &others, 30, 40, &vec![true; others.len()]);
        history.contains("f", &[0], 50, 60, &[true]);
        assert_eq!(broken(&cluster, &history), 0);
        history.contains("f", &[0], 50, 60, &[false]);
        assert_eq!(broken(&cluster, &history), 1);
        history.insert("f", &[0], 70, 80, &[true]);
        assert_eq!(broken(&cluster, &history), 2);
    }

    #[test]
    fn what_as_many_others_came_behind_may_be_gone() {
        let (cluster, mut history, pace) = cluster_and_history();
        history.insert("f", &[0], 10, 20, &[true]);
        let others: Vec<u32> = (1..=pace).collect();
        // Whether they came before the answer is open.
        history.insert("f", &others, 30, 90, &vec![true; others.len()]);
        history.contains("f", &[0], 50, 60, &[false]);
        assert_eq!(broken(&cluster, &history), 0);
    }
}
