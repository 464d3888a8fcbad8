//! The answers about each item are consistent with one moment at which it became present: *no* before
//! it, *yes* after it, and the insert that answered `New` around it. For filters without removals; see
//! [`register`].

use std::collections::BTreeMap;

use super::checked::Checked;
use crate::history::Call;
use crate::oracle::bits::{FirstSet, NEVER_US, Probes};
use crate::oracle::register::{self, Crossing, Operation, RegisterAnswer};
use crate::oracle::view::{FilterView, View, end_us};

/// Name of the invariant.
pub(crate) const NAME: &str = "answers_linearize";

/// Checks every item.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    for filter in view.filters.iter().filter(|filter| filter.only_grows()) {
        let others = Others::new(filter);
        for (item, operations) in operations(filter) {
            let crossing = register::check(&operations, others.first_us(item)).err();
            let at_us = crossing.as_ref().map_or(0, at_us);
            let what = |crossing| broken(view.calls, filter, item, &crossing);
            checked.record(at_us, crossing.and_then(what));
        }
    }
    checked
}

/// The time from which other items may have set all positions of an item.
enum Others<'a, 'b> {
    Bits {
        filter: &'b FilterView<'a>,
        set: FirstSet,
    },
    /// A filter that grows: any other item may have.
    Any {
        set: FirstSet,
    },
}

impl<'a, 'b> Others<'a, 'b> {
    fn new(filter: &'b FilterView<'a>) -> Self {
        let probes = filter.only_life().and_then(|life| life.probes.as_ref());
        let mut set = FirstSet::new(probes.map_or(1, Probes::position_count));
        for insert in &filter.inserts {
            for &item in &insert.call.items {
                set.set(probes.map_or(&[0], |probes| probes.of(item)), insert.start_us, item);
            }
        }
        if probes.is_some() { Self::Bits { filter, set } } else { Self::Any { set } }
    }

    fn first_us(&self, item: u32) -> u64 {
        match self {
            Self::Any { set } => set.set_by_others(0, item),
            Self::Bits { filter, set } => {
                let probes = filter.only_life().and_then(|life| life.probes.as_ref());
                let positions = probes.map_or(&[][..], |probes| probes.of(item)).iter();
                let first_us = positions.map(|&position| set.set_by_others(position, item));
                first_us.max().unwrap_or(NEVER_US)
            }
        }
    }
}

/// What was answered about each item.
fn operations(filter: &FilterView<'_>) -> BTreeMap<u32, Vec<Operation>> {
    let mut operations: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    for insert in &filter.inserts {
        let (call, start_us, end_us) = (insert.call.id, insert.start_us, insert.end_us);
        let mut push = |item, answer| {
            let operation = Operation { call, answer, start_us, end_us };
            operations.entry(item).or_default().push(operation);
        };
        if insert.answers.is_none() {
            insert.call.items.iter().for_each(|&item| push(item, RegisterAnswer::Unknown));
        }
        for (item, is_new) in insert.answered() {
            push(item, if is_new { RegisterAnswer::New } else { RegisterAnswer::Yes });
        }
    }
    for &read in &filter.reads {
        let (call, start_us, end_us) = (read.id, read.start_us, end_us(read));
        for (item, is_maybe) in FilterView::read_answers(read) {
            // The leader confirms absence even if any replica may answer that an item is present.
            let answer = if is_maybe { RegisterAnswer::Yes } else { RegisterAnswer::No };
            let operation = Operation { call, answer, start_us, end_us };
            operations.entry(item).or_default().push(operation);
        }
    }
    operations
}

fn at_us(crossing: &Crossing) -> u64 {
    match crossing {
        Crossing::TwoNew(one, two) | Crossing::Crossed(one, two) => one.end_us.max(two.end_us),
        Crossing::YesOfNothing(one) => one.end_us,
    }
}

fn broken(
    calls: &[Call],
    filter: &FilterView<'_>,
    item: u32,
    crossing: &Crossing,
) -> Option<String> {
    let name = &filter.facts.name;
    let described = |operation: &Operation| {
        let Operation { call, answer, start_us, end_us } = operation;
        let verb = calls.iter().find(|other| other.id == *call).map(|call| call.verb);
        let verb = verb.map_or_else(String::new, |verb| format!("{verb:?}, "));
        format!("call {call} ({verb}{start_us} to {end_us} us) answered {answer:?}")
    };
    Some(match crossing {
        // Told by the invariant that is about it.
        Crossing::TwoNew(..) => return None,
        Crossing::YesOfNothing(yes) => {
            format!("item {item} of {name}: {}, when nothing can have set it", described(yes))
        }
        Crossing::Crossed(before, after) => format!(
            "item {item} of {name}: {}, but {} and was over before that began",
            described(before),
            described(after)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Verb;
    use crate::oracle::fixture::{Cluster, History, KINDS};
    use crate::plan::FilterKind;

    fn found(history: &History) -> usize {
        let cluster = Cluster::of(history.facts[0].kind);
        check(&View::new(&history.calls, &history.facts, &cluster.reference)).violations.len()
    }

    #[test]
    fn no_behind_a_yes() {
        for kind in KINDS {
            let mut history = History::of(kind);
            history.unknown(Verb::Insert, "f", &[1], 10, 20);
            history.contains("f", &[1], 30, 40, &[true]);
            history.contains("f", &[1], 40, 50, &[false]);
            history.done(Verb::ContainsAny, "f", &[1], 39, 70, &[false]);
            assert_eq!(found(&history), 0, "{kind:?}");
            history.contains("f", &[1], 41, 50, &[false]);
            assert_eq!(found(&history), 1, "{kind:?}");
            history.calls.pop();
            history.done(Verb::ContainsAny, "f", &[1], 30, 39, &[true]);
            assert_eq!(found(&history), 1, "{kind:?}");
        }
    }

    #[test]
    fn new_behind_a_yes() {
        for kind in KINDS {
            let mut history = History::of(kind);
            history.insert("f", &[1, 2], 30, 50, &[true, true]);
            history.insert("f", &[1], 10, 30, &[false]);
            history.unknown(Verb::Insert, "f", &[2], 10, 20);
            assert_eq!(found(&history), 0, "{kind:?}");
            history.contains("f", &[2], 10, 29, &[true]);
            assert_eq!(found(&history), 1, "{kind:?}");
        }
    }

    #[test]
    fn cleared_filters_are_left_out() {
        let mut history = History::of(FilterKind::Classic);
        history.insert("f", &[1], 30, 50, &[true]);
        history.contains("f", &[1], 10, 29, &[true]);
        assert_eq!(found(&history), 1);
        history.unknown(Verb::Clear, "f", &[], 10, 20);
        assert_eq!(found(&history), 0);
    }

    /// Others may cover an item, but not before they were begun.
    #[test]
    fn a_yes_of_others() {
        let mut history = History::of(FilterKind::Scalable);
        history.insert("f", &[2], 30, 40, &[true]);
        history.contains("f", &[1], 20, 30, &[true]);
        assert_eq!(found(&history), 0);
        history.contains("f", &[1], 20, 29, &[true]);
        assert_eq!(found(&history), 1);
    }
}
