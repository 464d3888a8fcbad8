//! Of clients that set one expiry of a filter if it is earlier than the one that the filter has (`EXPIREAT` with `LT`), over
//! whichever nodes and however close, at most one is told that it has set it: for the others it is not earlier any more.

use std::collections::BTreeMap;

use super::checked::Checked;
use crate::history::{Outcome, Verb};
use crate::oracle::view::{Life, View};

/// Name of the invariant.
pub(crate) const NAME: &str = "expiry_is_set_once";

/// Checks every call that has set an expiry.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in &view.filters {
        let name = filter.facts.name.as_str();
        if !filter.only_life().is_some_and(Life::decides_races) {
            continue;
        }
        // By the turn of the expiry: the first call that has set it.
        let mut set_by: BTreeMap<u32, u32> = BTreeMap::new();
        let of_filter = view.calls.iter().filter(|call| call.filter == name);
        for call in of_filter.filter(|call| call.verb == Verb::Expire) {
            let (Outcome::Done(bits), [turn]) = (&call.outcome, &call.items[..]) else { continue };
            if !bits.contains(&true) {
                continue;
            }
            let before = set_by.insert(*turn, call.id);
            let what = |first| {
                let second = call.id;
                format!("calls {first} and {second} have both set expiry {turn} of {name}")
            };
            checked.record(call.end_us.unwrap_or(call.start_us), before.map(what));
        }
    }
    checked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::fixture::{Cluster, History};
    use crate::plan::FilterKind;

    fn found(history: &History, cluster: &Cluster) -> usize {
        check(&View::new(&history.calls, &history.facts, &cluster.reference)).violations.len()
    }

    #[test]
    fn each_expiry_is_set_by_one_call() {
        let kind = FilterKind::Cuckoo;
        let (cluster, mut history) = (Cluster::newest_of(kind), History::of(kind));
        history.done(Verb::Expire, "f", &[1], 10, 20, &[true]);
        history.done(Verb::Expire, "f", &[1], 10, 20, &[false]);
        history.unknown(Verb::Expire, "f", &[1], 10, 20);
        history.done(Verb::Expire, "f", &[2], 10, 20, &[true]);
        assert_eq!(found(&history, &cluster), 0);
        history.done(Verb::Expire, "f", &[1], 15, 20, &[true]);
        assert_eq!(found(&history, &cluster), 1);
        // Clusters of lower versions do not compare what was seen.
        assert_eq!(found(&history, &Cluster::of(kind)), 0);
    }
}
