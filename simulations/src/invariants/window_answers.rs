//! The answers to clients about the items of windows.

use crate::oracle::bits::NEVER_US;
use crate::oracle::view::FilterView;

/// An answer about one item.
pub(super) struct ItemAnswer {
    pub(super) item: u32,
    pub(super) call: u32,
    pub(super) is_present: bool,
    /// Whether the answer is that of an insert, which has inserted the item itself.
    pub(super) is_of_insert: bool,
    pub(super) start_us: u64,
    pub(super) end_us: u64,
}

/// All answers about a window, those of inserts too.
pub(super) fn answers(filter: &FilterView<'_>) -> Vec<ItemAnswer> {
    let inserts = filter.inserts.iter().flat_map(|insert| {
        let (call, start_us, end_us) = (insert.call.id, insert.start_us, insert.end_us);
        insert.answered().map(move |(item, is_new)| ItemAnswer {
            item,
            call,
            is_present: !is_new,
            is_of_insert: true,
            start_us,
            end_us,
        })
    });
    let reads = filter.reads.iter().flat_map(|&read| {
        let (call, start_us) = (read.id, read.start_us);
        let end_us = read.end_us.unwrap_or(NEVER_US);
        let answers = FilterView::read_answers(read);
        answers.map(move |(item, is_present)| {
            let is_of_insert = false;
            ItemAnswer { item, call, is_present, is_of_insert, start_us, end_us }
        })
    });
    inserts.chain(reads).collect()
}

impl ItemAnswer {
    /// What it said, in words.
    pub(super) fn described(&self, filter: &FilterView<'_>) -> String {
        let Self { item, call, start_us, end_us, .. } = self;
        let (name, word) = (&filter.facts.name, if self.is_present { "present" } else { "absent" });
        format!("item {item} of {name} was {word} in call {call} ({start_us} to {end_us} us)")
    }
}
