//! The answers that clients got, and whether a set that forgets nothing could have given them.

use std::collections::BTreeMap;
use std::fmt;

/// The answers to all inserts of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Told {
    new_count: u32,
    present_count: u32,
}

/// Something that the answers must not show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// An insert was acknowledged, and the answer to a later query was absent.
    Lost(u64),
    /// Inserts were acknowledged, but not exactly one of the answers was that the item is new.
    NotOnceNew { item: u64, new_count: u32, present_count: u32 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(item) => write!(f, "item {item}: acknowledged, then absent"),
            Self::NotOnceNew { item, new_count, present_count } => {
                write!(f, "item {item}: {new_count} times new, {present_count} times present")
            }
        }
    }
}

/// All answers in a test.
#[derive(Default)]
pub(crate) struct History {
    told: BTreeMap<u64, Told>,
    /// Items in the order of their first acknowledgement.
    acknowledged: Vec<u64>,
    lost: Vec<Violation>,
    question_count: usize,
}

impl History {
    /// Records the answer to an insert.
    pub(crate) fn inserted(&mut self, item: u64, is_new: bool) {
        let told = self.told.entry(item).or_default();
        if told.new_count + told.present_count == 0 {
            self.acknowledged.push(item);
        }
        if is_new {
            told.new_count += 1;
        } else {
            told.present_count += 1;
        }
    }

    /// Records the answer to a query that was sent after an insert of the item had been acknowledged.
    pub(crate) fn asked(&mut self, item: u64, is_present: bool) {
        self.question_count += 1;
        if !is_present {
            self.lost.push(Violation::Lost(item));
        }
    }

    /// Items with at least one acknowledged insert, in the order of the first answers.
    pub(crate) fn acknowledged(&self) -> &[u64] {
        &self.acknowledged
    }

    /// The number of answers to queries.
    pub(crate) fn question_count(&self) -> usize {
        self.question_count
    }

    /// All violations. This presumes that every insert was repeated under its name until it was answered,
    /// and that there are no false positives.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let not_once = self.told.iter().filter(|(_, told)| told.new_count != 1);
        let not_once = not_once.map(|(&item, told)| Violation::NotOnceNew {
            item,
            new_count: told.new_count,
            present_count: told.present_count,
        });
        self.lost.iter().copied().chain(not_once).collect()
    }

    /// # Panics
    ///
    /// If there is any violation; the message names the first few items.
    pub(crate) fn check(&self) {
        let violations = self.violations();
        let shown: Vec<String> = violations.iter().take(20).map(ToString::to_string).collect();
        let (wrong, all) = (violations.len(), self.acknowledged.len());
        assert!(wrong == 0, "{wrong} violations, {all} items:\n{}", shown.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(inserted: &[(u64, bool)], asked: &[(u64, bool)]) -> History {
        let mut history = History::default();
        inserted.iter().for_each(|&(item, is_new)| history.inserted(item, is_new));
        asked.iter().for_each(|&(item, is_present)| history.asked(item, is_present));
        history
    }

    #[test]
    fn right_answers_pass_in_any_order() {
        let inserted = [(7, false), (7, true), (8, true), (7, false)];
        let history = history(&inserted, &[(7, true), (8, true)]);
        assert_eq!(history.violations(), []);
        assert_eq!(history.acknowledged(), [7, 8]);
        assert_eq!(history.question_count(), 2);
        history.check();
    }

    #[test]
    fn a_forged_loss_is_caught() {
        let history = history(&[(7, true), (8, true)], &[(7, true), (8, false), (7, true)]);
        assert_eq!(history.violations(), [Violation::Lost(8)]);
    }

    #[test]
    fn a_forged_second_new_is_caught() {
        let history = history(&[(7, true), (8, true), (7, true), (7, false)], &[]);
        let wrong = Violation::NotOnceNew { item: 7, new_count: 2, present_count: 1 };
        assert_eq!(history.violations(), [wrong]);
    }

    #[test]
    #[should_panic(expected = "item 9: 0 times new, 2 times present")]
    fn an_item_that_nobody_was_told_is_new_is_caught() {
        history(&[(9, false), (9, false)], &[]).check();
    }
}
