//! An acknowledged insert is never missed afterwards: no query that begins later answers `No`, and no
//! insert that begins later answers `New`.
//!
//! Where bits only rise, this is checked by position: a `No` is illegal if every position of the item
//! was set by some acknowledged insert that ended before the query began. It is checked by item in
//! filters that were cleared or dropped, where an insert counts unless one of those took effect since
//! it began; in filters that grow, whose positions depend on the order of inserts; and in filters with
//! removals, for items that were not removed.

use std::collections::{BTreeMap, BTreeSet};

use super::checked::Checked;
use crate::history::Call;
use crate::oracle::bits::{FirstSet, Probes};
use crate::oracle::view::{FilterView, Life, Request, View, end_us};

/// Name of the invariant.
pub(crate) const NAME: &str = "acked_is_contained";

/// Checks every `No` and every `New`.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in &view.filters {
        exists(filter, &mut checked);
        if filter.facts.kind.forgets() {
            // `windows_forget` and `last_items_stay` check these.
            continue;
        }
        let probes = filter.only_life().and_then(Life::sure_probes);
        match probes {
            Some(probes) if filter.only_grows() => by_bits(filter, probes, &mut checked),
            _ => by_items(filter, &mut checked),
        }
    }
    checked
}

/// An item that an answer reports as absent.
#[derive(Clone, Copy)]
pub(super) struct Negative<'a> {
    pub(super) call: &'a Call,
    pub(super) item: u32,
    pub(super) start_us: u64,
    pub(super) end_us: u64,
}

/// Items reported as absent. Leaders confirm absence at every level.
pub(super) fn negatives<'a>(filter: &FilterView<'a>) -> Vec<Negative<'a>> {
    let new = filter.inserts.iter().flat_map(|insert| {
        let Request { call, start_us, end_us, .. } = *insert;
        let news = insert.answered().filter(|&(_, is_new)| is_new);
        news.map(move |(item, _)| Negative { call, item, start_us, end_us })
    });
    let no = filter.reads.iter().flat_map(|&call| {
        let (start_us, end_us) = (call.start_us, end_us(call));
        let absent = FilterView::read_answers(call).filter(|&(_, is_maybe)| !is_maybe);
        absent.map(move |(item, _)| Negative { call, item, start_us, end_us })
    });
    new.chain(no).collect()
}

/// A filter that answered inserts is in the catalogue's log.
fn exists(filter: &FilterView<'_>, checked: &mut Checked) {
    let Some(insert) = filter.acked().next() else { return };
    let (name, id) = (&filter.facts.name, insert.call.id);
    let what = || format!("call {id} inserted into {name}, which nobody has created");
    checked.record(insert.start_us, filter.lives.is_empty().then(what));
}

fn by_bits(filter: &FilterView<'_>, probes: &Probes, checked: &mut Checked) {
    let mut set = FirstSet::new(probes.position_count());
    for insert in filter.acked() {
        for (item, _) in insert.answered() {
            set.set(probes.of(item), insert.end_us, insert.call.id);
        }
    }
    for negative in negatives(filter) {
        let (at_us, by) = set.all_set(probes.of(negative.item));
        checked.record(
            negative.end_us,
            (at_us < negative.start_us).then(|| {
                let how = "all its positions were set by acknowledged inserts";
                broken(filter, &negative, how, by, at_us)
            }),
        );
    }
}

fn by_items(filter: &FilterView<'_>, checked: &mut Checked) {
    let Some(uncertain) = uncertain_items(filter) else { return };
    // For each item, by ascending end: of the inserts that ended by then, the one that began last. The
    // others are more likely to have been cleared.
    let mut last_begun: BTreeMap<u32, Vec<(u64, &Request<'_>)>> = BTreeMap::new();
    let mut by_end: Vec<_> = filter.acked().collect();
    by_end.sort_by_key(|insert| insert.end_us);
    for insert in by_end {
        for (item, _) in insert.answered() {
            let ended = last_begun.entry(item).or_default();
            let latest = match ended.last() {
                Some(&(_, before)) if before.start_us > insert.start_us => before,
                _ => insert,
            };
            ended.push((insert.end_us, latest));
        }
    }
    for negative in negatives(filter) {
        if uncertain.contains(&negative.item) {
            continue;
        }
        let ended = last_begun.get(&negative.item).map_or(&[][..], Vec::as_slice);
        let count = ended.partition_point(|&(end_us, _)| end_us < negative.start_us);
        let missed = count.checked_sub(1).map(|at| ended[at].1);
        let missed = missed.filter(|insert| !filter.was_erased(insert.start_us, negative.end_us));
        checked.record(
            negative.end_us,
            missed.map(|insert| {
                let how = "it was inserted and acknowledged";
                broken(filter, &negative, how, insert.call.id, insert.end_us)
            }),
        );
    }
}

/// Items that may be missing although they were inserted: removed items, and items that share a
/// position with one that may have been removed without having been inserted. `None` if no item is
/// certain.
fn uncertain_items(filter: &FilterView<'_>) -> Option<BTreeSet<u32>> {
    let mut uncertain: BTreeSet<u32> =
        filter.removes.iter().flat_map(|remove| &remove.call.items).copied().collect();
    if uncertain.is_empty() {
        return Some(uncertain);
    }
    let probes = filter.only_life()?.probes.as_ref()?;
    let unfounded = unfounded_items(filter);
    let touched: BTreeSet<u32> =
        unfounded.iter().flat_map(|&item| probes.of(item)).copied().collect();
    let inserted = filter.inserts.iter().flat_map(|insert| &insert.call.items);
    let shares = |item: &u32| probes.of(*item).iter().any(|position| touched.contains(position));
    let sharing: Vec<u32> = inserted.copied().filter(shares).collect();
    uncertain.extend(sharing);
    Some(uncertain)
}

/// Items for which some removal began after fewer acknowledged inserts than removals, itself included.
fn unfounded_items(filter: &FilterView<'_>) -> BTreeSet<u32> {
    // By item: when acknowledged inserts of it ended.
    let mut ends: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for insert in filter.acked() {
        for &item in &insert.call.items {
            ends.entry(item).or_default().push(insert.end_us);
        }
    }
    ends.values_mut().for_each(|ends| ends.sort_unstable());
    let mut removed: BTreeMap<u32, usize> = BTreeMap::new();
    let mut unfounded = BTreeSet::new();
    for remove in &filter.removes {
        for &item in &remove.call.items {
            let removed = removed.entry(item).or_default();
            *removed += 1;
            let ends = ends.get(&item).map_or(&[][..], Vec::as_slice);
            if ends.partition_point(|&end_us| end_us < remove.start_us) < *removed {
                unfounded.insert(item);
            }
        }
    }
    unfounded
}

fn broken(
    filter: &FilterView<'_>,
    negative: &Negative<'_>,
    how: &str,
    by: u32,
    at_us: u64,
) -> String {
    let Negative { call, item, start_us, .. } = *negative;
    let (name, id, verb) = (&filter.facts.name, call.id, call.verb);
    format!(
        "call {id} ({verb:?}) began at {start_us} us and called item {item} of {name} absent, but \
         {how}, the last by call {by}, which ended at {at_us} us"
    )
}

#[cfg(test)]
#[path = "acked_is_contained_test.rs"]
mod tests;
