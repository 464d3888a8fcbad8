//! Merged items are in the target: an item that a source had before a merge, or all sources before an
//! intersection, is in the target once that is acknowledged (docs/cluster.md).
//!
//! A source has what was inserted and acknowledged before the merge began, unless it was emptied or
//! dropped since.

use std::collections::{BTreeMap, BTreeSet};

use super::acked_is_contained::negatives;
use super::checked::Checked;
use crate::history::Verb;
use crate::oracle::view::{FilterView, Request, View};

/// Name of the invariant.
pub(crate) const NAME: &str = "merged_is_contained";

/// Checks every item that is reported as absent in a filter into which others were merged.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for target in view.filters.iter().filter(|filter| !filter.merges.is_empty()) {
        let merges = merges_of(view, target);
        for negative in negatives(target) {
            let missed = merges.get(&negative.item).and_then(|merges| {
                merges.iter().find(|merge| {
                    merge.end_us < negative.start_us
                        && !target.was_erased(merge.start_us, negative.end_us)
                })
            });
            let described = |merge: &&Request<'_>| {
                let (item, name, call) = (negative.item, &target.facts.name, negative.call.id);
                format!(
                    "call {call} found no item {item} in {name}, which call {} ({:?} of {:?}) brought until {} us",
                    merge.call.id, merge.call.verb, merge.call.sources, merge.end_us
                )
            };
            checked.record(negative.end_us, missed.map(described));
        }
    }
    checked
}

/// The merges that brought an item, by item.
fn merges_of<'a, 'b>(
    view: &'b View<'a>,
    target: &'b FilterView<'a>,
) -> BTreeMap<u32, Vec<&'b Request<'a>>> {
    let mut merges: BTreeMap<u32, Vec<&Request<'_>>> = BTreeMap::new();
    for merge in target.merges.iter().filter(|merge| merge.answers.is_some()) {
        let sources = merge.call.sources.iter();
        let given = sources.map(|source| items_before(view, source, merge));
        let brought = match merge.call.verb {
            Verb::Intersect => given.reduce(|all, some| &all & &some),
            _ => given.reduce(|all, some| &all | &some),
        };
        for item in brought.into_iter().flatten() {
            merges.entry(item).or_default().push(merge);
        }
    }
    merges
}

/// The items that a source certainly had during the merge.
fn items_before(view: &View<'_>, source: &str, merge: &Request<'_>) -> BTreeSet<u32> {
    let source = view.filters.iter().find(|filter| filter.facts.name == source);
    let inserts = source.into_iter().flat_map(|source| {
        source.acked().filter(|insert| {
            insert.end_us < merge.start_us && !source.was_erased(insert.start_us, merge.end_us)
        })
    });
    inserts.flat_map(|insert| insert.call.items.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::fixture::History;
    use crate::oracle::reference::Reference;
    use crate::plan::FilterKind;

    fn broken(history: &History) -> usize {
        let reference = Reference::new();
        check(&View::new(&history.calls, &history.facts, &reference)).violations.len()
    }

    /// Items 1 and 2 in one source, 2 and 3 in the other; then put together; then all are asked for.
    fn history(verb: Verb, found: [bool; 3]) -> History {
        let mut history = History::of(FilterKind::Blocked);
        history.knows("g", FilterKind::Blocked, false);
        history.knows("h", FilterKind::Blocked, false);
        history.insert("g", &[1, 2], 10, 20, &[true, true]);
        history.insert("h", &[2, 3], 30, 40, &[true, false]);
        history.done(verb, "f", &[], 50, 60, &[]).sources = vec!["g".into(), "h".into()];
        history.contains("f", &[1, 2, 3], 70, 80, &found);
        history
    }

    #[test]
    fn what_a_merge_leaves_out_is_found() {
        assert_eq!(broken(&history(Verb::Merge, [true; 3])), 0);
        assert_eq!(broken(&history(Verb::Merge, [true, false, true])), 1);
        assert_eq!(broken(&history(Verb::Merge, [false; 3])), 3);
    }

    #[test]
    fn an_intersection_brings_what_all_sources_have() {
        assert_eq!(broken(&history(Verb::Intersect, [false, true, false])), 0);
        assert_eq!(broken(&history(Verb::Intersect, [false; 3])), 1);
        // Who asks beside it may be early, and what came later need not be there.
        let mut early = history(Verb::Intersect, [false, true, false]);
        early.contains("f", &[2], 55, 90, &[false]);
        early.insert("h", &[1], 55, 58, &[true]);
        early.contains("f", &[1], 100, 110, &[false]);
        assert_eq!(broken(&early), 0);
    }
}
