//! What calls without a right have shown, as far as later calls are compared with it.

use std::collections::BTreeMap;

use super::rights::Verdict;
use crate::plan::access::AccessCall;

/// Texts of refusals, and inserts that no caller had the right to make.
#[derive(Default, Debug)]
pub(crate) struct SeenRefusals {
    /// By call and reason of the refusal: the text, without names.
    texts: BTreeMap<(String, Verdict), String>,
    /// For each item, whether any caller with the right may have inserted it.
    inserted: BTreeMap<u32, bool>,
}

impl SeenRefusals {
    /// Items that only callers without the right tried to insert.
    pub(crate) fn never_granted(&self) -> Vec<u32> {
        self.inserted.iter().filter(|(_, may)| !**may).map(|(item, _)| *item).collect()
    }

    /// Records an attempted insert of an item; `may` tells whether the caller may have had the right.
    pub(crate) fn inserted(&mut self, item: u32, may: bool) {
        *self.inserted.entry(item).or_default() |= may;
    }

    /// An earlier text of the same refusal, if it differs from this one.
    pub(crate) fn other_words(
        &mut self,
        ask: AccessCall,
        why: Verdict,
        words: &str,
    ) -> Option<String> {
        let call = format!("{ask:?}");
        let call = call.split(' ').next().unwrap_or_default().to_owned();
        let before = self.texts.entry((call, why)).or_insert_with(|| words.to_owned());
        (before != words).then(|| before.clone())
    }
}
