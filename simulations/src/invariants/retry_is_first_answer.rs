//! Copies of one request, wherever they were sent and however late, get the first answer. None of them
//! is told that its id was used by another request, because clients never reuse an id.

use std::collections::BTreeMap;

use super::checked::Checked;
use crate::history::{Call, Outcome};
use crate::oracle::view::{FilterView, View};

/// Name of the invariant.
pub(crate) const NAME: &str = "retry_is_first_answer";

/// Compares the answers to all copies of each request, and finds copies that were mistaken for other
/// requests.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    let filters: BTreeMap<&str, &FilterView<'_>> =
        view.filters.iter().map(|filter| (filter.facts.name.as_str(), filter)).collect();
    let mut copies: BTreeMap<u32, Vec<(&Call, &[bool])>> = BTreeMap::new();
    for call in view.calls {
        if let (Some(request), Outcome::Done(bits)) = (call.request, &call.outcome) {
            copies.entry(request).or_default().push((call, bits));
        }
    }
    reused(view, &filters, &mut checked);
    for answers in copies.values() {
        let [(first, expected), others @ ..] = answers.as_slice() else { continue };
        let from_us = answers.iter().map(|(call, _)| call.start_us).min().unwrap_or(0);
        let to_us = answers.iter().filter_map(|(call, _)| call.end_us).max().unwrap_or(0);
        // A request whose items were all present is not logged, so its copies are answered anew after a
        // clear, or when the filter has forgotten the items.
        let filter = filters.get(first.filter.as_str());
        let forgets = filter.is_some_and(|filter| filter.facts.kind.forgets());
        if filter.is_some_and(|filter| filter.was_erased(from_us, to_us)) || forgets {
            continue;
        }
        for (other, got) in others {
            let what = || {
                format!(
                    "calls {} and {} are copies of one request to {}, but were answered \
                     {expected:?} and {got:?} for items {:?}",
                    first.id, other.id, first.filter, first.items
                )
            };
            checked.record(other.end_us.unwrap_or(to_us), (got != expected).then(what));
        }
    }
    checked
}

/// Finds calls that were told that their id was used by another request. A recreated filter is another
/// filter, so a request that is sent again after that is rightly another request.
fn reused(view: &View<'_>, filters: &BTreeMap<&str, &FilterView<'_>>, checked: &mut Checked) {
    let mut began_us: BTreeMap<u32, u64> = BTreeMap::new();
    for call in view.calls {
        if let Some(request) = call.request {
            began_us.entry(request).or_insert(call.start_us);
        }
    }
    for call in view.calls {
        let Outcome::Reused(text) = &call.outcome else { continue };
        let first_us = call.request.and_then(|request| began_us.get(&request)).copied();
        let end_us = call.end_us.unwrap_or(call.start_us);
        let filter = filters.get(call.filter.as_str());
        if filter.is_some_and(|one| one.was_erased(first_us.unwrap_or(call.start_us), end_us)) {
            continue;
        }
        let what = format!("call {} was taken for another request: {text}", call.id);
        checked.record(end_us, Some(what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Verb;
    use crate::oracle::fixture::{Cluster, History};
    use crate::oracle::reference::Reference;
    use crate::plan::FilterKind;

    fn found(history: &History, reference: &Reference) -> (u64, usize) {
        let checked = check(&View::new(&history.calls, &history.facts, reference));
        (checked.count, checked.violations.len())
    }

    #[test]
    fn another_answer_is_found() {
        let reference = Reference::new();
        let mut history = History::of(FilterKind::Classic);
        history.insert("f", &[1, 2], 10, 20, &[true, false]).request = Some(4);
        history.insert("f", &[1, 2], 11, 90, &[true, false]).request = Some(4);
        history.unknown(Verb::Insert, "f", &[1, 2], 12, 30).request = Some(4);
        history.insert("f", &[1, 2], 10, 20, &[false, false]).request = Some(5);
        history.insert("f", &[1, 2], 10, 20, &[false, true]);
        assert_eq!(found(&history, &reference), (1, 0));
        history.insert("f", &[1, 2], 13, 14, &[false, false]).request = Some(4);
        assert_eq!(found(&history, &reference), (2, 1));
    }

    #[test]
    fn a_request_that_is_taken_for_another_one_is_found() {
        let mut cluster = Cluster::of(FilterKind::Classic);
        cluster.clear("f", 30_000);
        let mut history = History::new();
        history.knows("f", FilterKind::Classic, true);
        let reused = Outcome::Reused("1.1 came before with other items".to_owned());
        let times = (40_000, 50_000);
        history.call(Verb::Insert, "f", &[1, 2], times, reused.clone()).request = Some(4);
        assert_eq!(found(&history, &cluster.reference), (1, 1));
        // The same request came first before the filter was cleared.
        history.calls.clear();
        history.done(Verb::Clear, "f", &[], 25_000, 35_000, &[]);
        history.unknown(Verb::Insert, "f", &[1, 2], 10_000, 20_000).request = Some(4);
        history.call(Verb::Insert, "f", &[1, 2], times, reused).request = Some(4);
        assert_eq!(found(&history, &cluster.reference), (0, 0));
    }

    #[test]
    fn a_clearing_in_between_excuses() {
        let mut cluster = Cluster::of(FilterKind::Classic);
        cluster.clear("f", 30_000);
        let mut history = History::new();
        history.knows("f", FilterKind::Classic, true);
        history.insert("f", &[1], 10_000, 20_000, &[false]).request = Some(4);
        history.insert("f", &[1], 11_000, 40_000, &[true]).request = Some(4);
        history.done(Verb::Clear, "f", &[], 25_000, 35_000, &[]);
        assert_eq!(found(&history, &cluster.reference), (0, 0));
        // Nobody asked for it, or it was later.
        history.calls.pop();
        assert_eq!(found(&history, &cluster.reference), (1, 1));
        history.done(Verb::Clear, "f", &[], 50_000, 60_000, &[]);
        assert_eq!(found(&history, &cluster.reference), (1, 1));
    }
}
