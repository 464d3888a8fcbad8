//! A window keeps an item for as many slices as it has, from its first insert on, and drops it after
//! one slice more.
//!
//! Checked twice: entry by entry on the logs ([`crate::oracle::windows`]), for any clocks; and here on
//! the clients' answers and their times, where all clocks were right.

use std::collections::BTreeMap;

use super::checked::Checked;
use super::window_answers::{ItemAnswer, answers};
use crate::oracle::view::{CLOCKS_APART_US, FilterView, View};
pub(crate) use crate::oracle::windows::NAME;
use crate::plan::{FilterKind, WINDOW};

/// What an item is kept for at least, in microseconds.
const KEPT_US: u64 = WINDOW.slice_ms * 1_000 * WINDOW.slice_count as u64;

/// And at most, with the clocks' ticks.
const GONE_US: u64 = KEPT_US + WINDOW.slice_ms * 1_000 + CLOCKS_APART_US;

/// Checks every answer about a window whose leaders had the right time.
pub(crate) fn check(view: &View<'_>) -> Checked {
    let mut checked = Checked::new(NAME);
    let windows = view.filters.iter().filter(|filter| filter.facts.kind == FilterKind::Window);
    for filter in windows.filter(|filter| filter.facts.is_punctual) {
        let times = Times::of(filter);
        for answer in answers(filter) {
            let broken = if answer.is_present {
                times.should_be_gone(&answer)
            } else {
                times.should_be_kept(filter, &answer)
            };
            let described = |why: String| format!("{}, but {why}", answer.described(filter));
            checked.record(answer.end_us, broken.map(described));
        }
    }
    checked
}

/// When items came.
struct Times {
    /// By item: start and end of the inserts that called it new, and their calls.
    new: BTreeMap<u32, Vec<(u64, u64, u32)>>,
    /// By item: until when it may have been inserted, by whatever insert.
    tried: BTreeMap<u32, Vec<(u64, u64)>>,
}

impl Times {
    fn of(filter: &FilterView<'_>) -> Self {
        let mut times = Self { new: BTreeMap::new(), tried: BTreeMap::new() };
        for insert in &filter.inserts {
            let (start_us, last_us) = (insert.start_us, insert.last_us);
            for &item in &insert.call.items {
                times.tried.entry(item).or_default().push((start_us, last_us));
            }
            for (item, _) in insert.answered().filter(|(_, is_new)| *is_new) {
                let times = times.new.entry(item).or_default();
                times.push((start_us, insert.end_us, insert.call.id));
            }
        }
        times
    }

    /// A finished insert called it new, and its slices have not ended.
    fn should_be_kept(&self, filter: &FilterView<'_>, answer: &ItemAnswer) -> Option<String> {
        let kept = |&&(start_us, end_us, call): &&(u64, u64, u32)| {
            call != answer.call
                && end_us < answer.start_us
                && answer.end_us.saturating_add(CLOCKS_APART_US) < start_us + KEPT_US
                && !filter.was_erased(start_us, answer.end_us)
        };
        let (start_us, _, call) = self.new.get(&answer.item)?.iter().find(kept)?;
        Some(format!("call {call}, which began at {start_us}, called it new"))
    }

    /// No insert that began before the answer can have been applied late enough.
    fn should_be_gone(&self, answer: &ItemAnswer) -> Option<String> {
        let may_have = |&(start_us, last_us): &(u64, u64)| {
            start_us <= answer.end_us && last_us.saturating_add(GONE_US) >= answer.start_us
        };
        let tried = self.tried.get(&answer.item).map_or(&[][..], Vec::as_slice);
        let count = tried.iter().filter(|times| may_have(times)).count();
        // The answer of an insert is about an earlier insert, so there must be another one.
        let needed = if answer.is_of_insert { 2 } else { 1 };
        (count < needed).then(|| "every insert of it is longer ago than the window".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Verb;
    use crate::oracle::fixture::History;
    use crate::oracle::reference::Reference;

    const S_US: u64 = 1_000_000;

    fn history() -> History {
        History::of(FilterKind::Window)
    }

    fn broken(history: &History) -> usize {
        let reference = Reference::new();
        check(&View::new(&history.calls, &history.facts, &reference)).violations.len()
    }

    #[test]
    fn what_is_forgotten_early_is_found() {
        let mut good = history();
        good.insert("f", &[1], S_US, S_US + 10, &[true]);
        good.contains("f", &[1], 12 * S_US, 12 * S_US + 10, &[true]);
        good.contains("f", &[1], 13 * S_US + 10, 13 * S_US + 20, &[false]);
        good.insert("f", &[1], 14 * S_US, 14 * S_US + 10, &[true]);
        assert_eq!(broken(&good), 0);
        let mut early = history();
        early.insert("f", &[1], S_US, S_US + 10, &[true]);
        early.contains("f", &[1], 12 * S_US, 12 * S_US + 10, &[false]);
        assert_eq!(broken(&early), 1);
        early.insert("f", &[1], 12 * S_US + 20, 12 * S_US + 30, &[true]);
        assert_eq!(broken(&early), 2);
        // Clocks that were off say nothing.
        early.facts[0].is_punctual = false;
        assert_eq!(broken(&early), 0);
    }

    #[test]
    fn what_is_kept_too_long_is_found() {
        let mut late = history();
        late.insert("f", &[1], S_US, S_US + 10, &[true]);
        late.contains("f", &[1], 15 * S_US, 15 * S_US + 10, &[true]);
        assert_eq!(broken(&late), 0);
        late.contains("f", &[1], 17 * S_US, 17 * S_US + 10, &[true]);
        assert_eq!(broken(&late), 1);
        late.insert("f", &[1], 18 * S_US, 18 * S_US + 10, &[false]);
        assert_eq!(broken(&late), 2);
        // A question beside an insert of the same moment may find that one.
        late.insert("f", &[2], 20 * S_US, 20 * S_US + 10, &[true]);
        late.contains("f", &[2], 20 * S_US, 20 * S_US + 20, &[true]);
        assert_eq!(broken(&late), 2);
        // An insert whose end nobody knows may have come in at any time.
        late.unknown(Verb::Insert, "f", &[1], 2 * S_US, 3 * S_US);
        assert_eq!(broken(&late), 0);
    }
}
