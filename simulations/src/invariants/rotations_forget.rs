//! A manual window keeps an item for as many rotations as it has slices, and drops it with one more.
//! This holds for queries after a rotation was acknowledged to any client, or after any client has seen
//! the item gone (docs/windows.md).
//!
//! An unacknowledged rotation may have been done at any time since, or never. A rotation that is
//! requested while another is in progress is the same one: so in some shards it may have begun before
//! it was requested.

use std::collections::BTreeMap;

use super::checked::Checked;
use super::window_answers::{ItemAnswer, answers};
use crate::oracle::view::{FilterView, Request, View};
use crate::plan::{FilterKind, MANUAL_WINDOW};

/// Name of the invariant.
pub(crate) const NAME: &str = "rotations_forget";

/// Rotations that an item survives.
const KEPT: usize = MANUAL_WINDOW.slice_count as usize;

/// Successive rotations after which it is gone: those that it survives, one that ends its slice, and
/// one that may have been in progress when it was inserted.
const GONE: usize = KEPT + 2;

/// Checks every answer about a manual window.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    let manual = view.filters.iter().filter(|filter| filter.facts.kind == FilterKind::ManualWindow);
    for filter in manual {
        let answers = answers(filter);
        let absent = absences(&answers);
        for answer in &answers {
            let broken = if answer.is_present {
                gone(filter, answer).or_else(|| was_absent(filter, answer, &absent))
            } else {
                kept(filter, answer)
            };
            let described = |why: String| format!("{}, but {why}", answer.described(filter));
            checked.record(answer.end_us, broken.map(described));
        }
    }
    checked
}

/// By item: when it was found absent by answers that came, their starts and ends.
fn absences(answers: &[ItemAnswer]) -> BTreeMap<u32, Vec<(u64, u64)>> {
    let mut absences: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for answer in answers.iter().filter(|answer| !answer.is_present && !answer.is_of_insert) {
        absences.entry(answer.item).or_default().push((answer.start_us, answer.end_us));
    }
    absences
}

/// Inserts of an item, whatever came of them.
fn tries<'a>(
    filter: &'a FilterView<'_>,
    answer: &'a ItemAnswer,
) -> impl Iterator<Item = &'a Request<'a>> {
    let is_of_item = |insert: &&Request<'_>| insert.call.items.contains(&answer.item);
    // An insert's answer is about other inserts.
    let is_other = |insert: &&Request<'_>| !answer.is_of_insert || insert.call.id != answer.call;
    filter.inserts.iter().filter(is_of_item).filter(is_other)
}

/// Why an item that was found absent should have been there.
fn kept(filter: &FilterView<'_>, answer: &ItemAnswer) -> Option<String> {
    let is_kept = |insert: &&Request<'_>| {
        let called_new = insert.answered().any(|described| described == (answer.item, true));
        let rotations = filter.rotations.iter();
        let may_be_between = |rotation: &&Request<'_>| {
            rotation.start_us <= answer.end_us && rotation.last_us >= insert.start_us
        };
        called_new
            && insert.end_us < answer.start_us
            && rotations.filter(may_be_between).count() <= KEPT
            && !filter.was_erased(insert.start_us, answer.end_us)
    };
    let insert = tries(filter, answer).find(is_kept)?;
    let Request { call, start_us, .. } = insert;
    Some(format!("call {}, which began at {start_us}, called it new", call.id))
}

/// Why an item that was found present should have been gone.
fn gone(filter: &FilterView<'_>, answer: &ItemAnswer) -> Option<String> {
    let may_be_there = |insert: &Request<'_>| {
        insert.start_us <= answer.end_us
            && rotations_between(filter, insert.last_us, answer.start_us) < GONE
    };
    (!tries(filter, answer).any(may_be_there))
        .then(|| "the window was rotated too often since every insert of it".to_owned())
}

/// The largest number of rotations in that interval that were done one after another.
fn rotations_between(filter: &FilterView<'_>, from_us: u64, to_us: u64) -> usize {
    let (mut count, mut free_us) = (0, from_us);
    let mut done: Vec<_> = filter.rotations.iter().filter(|one| one.answers.is_some()).collect();
    done.sort_unstable_by_key(|rotation| rotation.end_us);
    for rotation in done {
        if rotation.start_us > free_us && rotation.end_us < to_us {
            (count, free_us) = (count + 1, rotation.end_us);
        }
    }
    count
}

/// Why an item that was reported as present had been found gone before, and was not inserted again.
fn was_absent(
    filter: &FilterView<'_>,
    answer: &ItemAnswer,
    absences: &BTreeMap<u32, Vec<(u64, u64)>>,
) -> Option<String> {
    let came_again = |absent_us: u64| {
        tries(filter, answer)
            .any(|insert| insert.start_us <= answer.end_us && insert.last_us >= absent_us)
    };
    let before = absences.get(&answer.item)?.iter().filter(|(_, end_us)| *end_us < answer.start_us);
    let &(start_us, end_us) = before.max_by_key(|(start_us, _)| *start_us)?;
    (!came_again(start_us))
        .then(|| format!("an answer of {start_us} to {end_us} us had called it absent"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Verb;
    use crate::oracle::fixture::History;
    use crate::oracle::reference::Reference;

    fn broken(history: &History) -> usize {
        let reference = Reference::new();
        check(&View::new(&history.calls, &history.facts, &reference)).violations.len()
    }

    /// An item that came at 10, and so many rotations behind it, from 100 on, one every 100.
    fn rotated(count: u64) -> History {
        let mut history = History::of(FilterKind::ManualWindow);
        history.insert("f", &[1], 10, 20, &[true]);
        for number in 1..=count {
            history.done(Verb::Rotate, "f", &[], 100 * number, 100 * number + 50, &[]);
        }
        history
    }

    #[test]
    fn what_is_forgotten_early_is_found() {
        for (rotations, is_broken) in [(0, true), (2, true), (3, false)] {
            let mut history = rotated(rotations);
            history.contains("f", &[1], 1_000, 1_010, &[false]);
            assert_eq!(broken(&history), usize::from(is_broken), "{rotations}");
        }
        // A rotation of unknown outcome may have been done; one after the query does not matter.
        let mut history = rotated(2);
        history.unknown(Verb::Rotate, "f", &[], 30, 40);
        history.contains("f", &[1], 1_000, 1_010, &[false]);
        assert_eq!(broken(&history), 0);
        let mut history = rotated(2);
        history.done(Verb::Rotate, "f", &[], 2_000, 2_010, &[]);
        history.contains("f", &[1], 1_000, 1_010, &[false]);
        assert_eq!(broken(&history), 1);
    }

    #[test]
    fn what_is_kept_too_long_is_found() {
        for (rotations, is_broken) in [(2, false), (3, false), (4, true)] {
            let mut history = rotated(rotations);
            history.contains("f", &[1], 1_000, 1_010, &[true]);
            assert_eq!(broken(&history), usize::from(is_broken), "{rotations}");
            // It may have come again.
            history.unknown(Verb::Insert, "f", &[1], 500, 600);
            assert_eq!(broken(&history), 0, "{rotations}");
        }
    }

    #[test]
    fn what_comes_back_is_found() {
        let mut history = rotated(3);
        history.contains("f", &[1], 1_000, 1_010, &[false]);
        history.contains("f", &[1], 1_020, 1_030, &[true]);
        assert_eq!(broken(&history), 1);
        history.insert("f", &[1], 1_005, 1_025, &[true]);
        assert_eq!(broken(&history), 0);
    }
}
