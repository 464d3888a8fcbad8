//! What was seen of calls without a right, as far as later ones are held against it.

use std::collections::BTreeMap;

use super::rights::Verdict;
use crate::plan::access::Ask;

/// What refusals said, and inserts that nobody might make.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    /// By the call, and why it is denied: the words, without names.
    texts: BTreeMap<(String, Verdict), String>,
    /// For each item whether anybody might have inserted it.
    inserted: BTreeMap<u32, bool>,
}

impl Seen {
    /// Items that were tried to be inserted, and only by those who had no right to.
    pub(crate) fn never_granted(&self) -> Vec<u32> {
        self.inserted.iter().filter(|(_, may)| !**may).map(|(item, _)| *item).collect()
    }

    /// An item was tried to be inserted, and perhaps by somebody who had the right.
    pub(crate) fn inserted(&mut self, item: u32, may: bool) {
        *self.inserted.entry(item).or_default() |= may;
    }

    /// What was said before to such a call that is denied for this reason, if it is not what is said now.
    pub(crate) fn other_words(&mut self, ask: Ask, why: Verdict, words: &str) -> Option<String> {
        let call = format!("{ask:?}");
        let call = call.split(' ').next().unwrap_or_default().to_owned();
        let before = self.texts.entry((call, why)).or_insert_with(|| words.to_owned());
        (before != words).then(|| before.clone())
    }
}
