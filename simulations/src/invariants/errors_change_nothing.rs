//! At the end a filter holds what was acknowledged and nothing that was not attempted: an insert that
//! was answered *not applied* has set no position, and no acknowledged one is lost. Checked on the
//! state that the committed logs produce, with which every replica agrees.
//!
//! For a filter whose bits only rise, let S be the attempted items that it contains at the end. It
//! contains each of them, so it has their positions; and if every position is set because of an
//! attempted item, it has no others. So it is correct if and only if it has exactly as many positions
//! set as the items of S have together.

use std::collections::BTreeSet;

use umbel_engine::ShardId;
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{ShardCommand, ShardReply, ShardState};

use super::checked::Checked;
use crate::oracle::bits::Probes;
use crate::oracle::view::{FilterView, Life, View};

/// Name of the invariant.
pub(crate) const NAME: &str = "errors_change_nothing";

/// Largest frame of an exported slice.
const FRAME_BYTES: usize = 1 << 20;

/// Checks every item that was inserted, and the positions of every filter.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in view.filters.iter().filter(|filter| filter.only_grows()) {
        let Some(life) = filter.only_life() else { continue };
        let last = Final { view, life };
        acked(filter, &last, &mut checked);
        if let Some(probes) = &life.probes {
            phantoms(filter, &last, probes, &mut checked);
        }
    }
    checked
}

/// The state that a filter ends with.
struct Final<'a> {
    view: &'a View<'a>,
    life: &'a Life<'a>,
}

impl Final<'_> {
    /// Which of these items it contains, in their order.
    fn contains(&self, items: &[u32]) -> Vec<bool> {
        items.iter().map(|&item| self.view.holds(self.life, item)).collect()
    }

    /// Number of set positions over all shards. Halves of a split shard are combined again, because
    /// both have the old contents of the block at their border; `None` for a counting kind, for which
    /// that is impossible.
    fn one_count(&self) -> Option<u64> {
        let ranges = self.view.reference.meta().shard_map().ranges();
        let first = ranges.map(ShardRanges::founded).unwrap_or_default();
        let is_split = |ranges: &ShardRanges| ranges.count() > first;
        match ranges.filter(is_split) {
            Some(ranges) => (0..first).map(|shard| self.ones_of(ranges, ShardId(shard))).sum(),
            None => Some(self.view.reference.shards().map(|state| self.ones_in(state)).sum()),
        }
    }

    fn ones_in(&self, state: &ShardState) -> u64 {
        state.describe(self.life.id).map_or(0, |slice| slice.description.one_count)
    }

    /// The set positions of what was one shard at first.
    fn ones_of(&self, ranges: ShardRanges, first: ShardId) -> Option<u64> {
        let (id, record) = (self.life.id, &self.life.incarnation.record);
        let whole = ranges.first_range(first).expect("one of the first shards");
        let mut state = ShardState::new(first, whole);
        state.apply(&ShardCommand::CreateSlice(record.slice_spec(id)));
        let generation = record.generation;
        for part in self.view.reference.shards().filter(|part| whole.covers(part.range())) {
            let now = part.summary(id).map_or(generation, |slice| slice.generation);
            let frames = part.export_frames(id, now, FRAME_BYTES).into_iter().flatten();
            for frame in frames.flatten() {
                let load = ShardCommand::LoadFrame { filter: id, generation, frame: frame.into() };
                if !matches!(state.apply(&load), ShardReply::Merged(Ok(_))) {
                    return None;
                }
            }
        }
        Some(self.ones_in(&state))
    }
}

fn acked(filter: &FilterView<'_>, last: &Final<'_>, checked: &mut Checked) {
    let name = &filter.facts.name;
    for insert in filter.acked() {
        let items = &insert.call.items;
        for (item, contains) in items.iter().zip(last.contains(items)) {
            let what = || {
                let id = insert.call.id;
                format!("call {id} inserted item {item} into {name}, whose final state lacks it")
            };
            checked.record(insert.end_us, (!contains).then(what));
        }
    }
}

fn phantoms(filter: &FilterView<'_>, last: &Final<'_>, probes: &Probes, checked: &mut Checked) {
    let of = |items: &[u32]| -> BTreeSet<u32> {
        let contained = items.iter().zip(last.contains(items)).filter(|(_, contains)| *contains);
        contained.map(|(&item, _)| item).collect()
    };
    let attempted: BTreeSet<u32> =
        filter.inserts.iter().flat_map(|insert| of(&insert.call.items)).collect();
    let expected: BTreeSet<u32> =
        attempted.iter().flat_map(|&item| probes.of(item)).copied().collect();
    let Some(got) = last.one_count() else { return };
    let expected_count = expected.len() as u64;
    let what = || {
        let name = &filter.facts.name;
        let refused = filter.refused.iter().flat_map(|call| of(&call.items));
        let suspects: BTreeSet<u32> = refused.filter(|item| !attempted.contains(item)).collect();
        format!(
            "the final state of {name} has {got} positions set, expected the {expected_count} of \
             the {} items that it contains and that may have been inserted; it also contains \
             {suspects:?}, whose inserts were answered `not applied`",
            attempted.len()
        )
    };
    let at_us = filter.refused.iter().filter_map(|call| call.end_us).max().unwrap_or(0);
    checked.record(at_us, (got != expected_count).then(what));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Verb;
    use crate::oracle::fixture::{Cluster, History};
    use crate::plan::FilterKind;

    const KINDS: [FilterKind; 3] = [FilterKind::Classic, FilterKind::Blocked, FilterKind::Counting];

    fn found(history: &History, cluster: &Cluster) -> Vec<String> {
        let checked = check(&View::new(&history.calls, &history.facts, &cluster.reference));
        checked.violations.into_iter().map(|violation| violation.what).collect()
    }

    fn cluster(kind: FilterKind, items: &[u32]) -> Cluster {
        let mut cluster = Cluster::of(kind);
        cluster.insert("f", items);
        cluster
    }

    #[test]
    fn what_was_not_applied_is_not_there() {
        for kind in KINDS {
            let cluster = cluster(kind, &[1, 2, 2, 3]);
            let mut history = History::of(kind);
            history.insert("f", &[1, 2], 10, 20, &[true, true]);
            history.refused(Verb::Insert, "f", &[2, 3, 4], 10, 20);
            let violations = found(&history, &cluster);
            assert_eq!(violations.len(), 1, "{kind:?}");
            assert!(violations[0].contains("it also contains {3}"), "{violations:?}");
            // It may have been applied; another one may have been, but was not.
            history.unknown(Verb::Insert, "f", &[3, 5], 10, 20);
            assert_eq!(found(&history, &cluster), [""; 0], "{kind:?}");
        }
    }

    #[test]
    fn what_was_acknowledged_is_there() {
        for kind in KINDS.into_iter().chain([FilterKind::Scalable]) {
            let (cluster, mut history) = (cluster(kind, &[1]), History::of(kind));
            history.insert("f", &[1], 10, 20, &[true]);
            history.unknown(Verb::Insert, "f", &[2], 10, 20);
            assert_eq!(found(&history, &cluster), [""; 0], "{kind:?}");
            history.insert("f", &[2], 10, 20, &[true]);
            assert_eq!(found(&history, &cluster).len(), 1, "{kind:?}");
        }
    }

    #[test]
    fn what_was_taken_out_need_not_be_there() {
        let kind = FilterKind::Counting;
        let (mut cluster, mut history) = (cluster(kind, &[1]), History::of(kind));
        cluster.remove("f", 1);
        history.insert("f", &[1], 10, 20, &[true]);
        assert_eq!(found(&history, &cluster).len(), 1);
        history.unknown(Verb::Remove, "f", &[1], 30, 40);
        assert_eq!(found(&history, &cluster), [""; 0]);
    }
}
