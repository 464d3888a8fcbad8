//! The model of windowed filters, computed from the log entries alone: a map from each item to the slice
//! in which it was first inserted. It has no fingerprints; the filters are sized so that no two items
//! share one.

use std::collections::BTreeMap;

use umbel_engine::shard::{Bitmap, InsertPart, SliceShape, SliceSpec, WindowRules};
use umbel_filter::{HashRange, ItemHash};

use super::slice_models::SliceModel;

/// Name of the invariant.
pub(crate) const NAME: &str = "windows_forget";

/// The items of one shard's part of a window.
#[derive(Clone, Debug)]
pub(crate) struct WindowItems {
    rules: WindowRules,
    newest: u64,
    /// The slice of each item, by its hash.
    items: BTreeMap<ItemHash, u64>,
}

impl WindowItems {
    fn advance_to(&mut self, newest: u64) {
        self.newest = newest;
        let oldest = newest.saturating_sub(self.rules.slice_count.into());
        self.items.retain(|_, slice| *slice >= oldest);
    }
}

impl SliceModel for WindowItems {
    fn of(spec: &SliceSpec, _: HashRange) -> Option<Self> {
        let SliceShape::Window { rules, .. } = spec.shape else { return None };
        Some(Self { rules, newest: 0, items: BTreeMap::new() })
    }

    /// Keeps the items of both halves: nothing is asked about those of the other one.
    fn half(&self, _: HashRange) -> Self {
        self.clone()
    }

    /// At the later time of the two.
    fn join(&self, upper: &Self, _: HashRange) -> Self {
        let (mut joined, mut upper) = (self.clone(), upper.clone());
        let newest = joined.newest.max(upper.newest);
        joined.advance_to(newest);
        upper.advance_to(newest);
        joined.items.extend(upper.items);
        joined
    }

    fn clear(&mut self) {
        self.newest = 0;
        self.items.clear();
    }

    fn advance(&mut self, now_ms: u64) {
        if let Some(newest) = now_ms.checked_div(self.rules.slice_ms) {
            self.advance_to(self.newest.max(newest));
        }
    }

    fn rotate(&mut self) {
        self.advance_to(self.newest + 1);
    }

    fn insert(&mut self, part: &InsertPart, reply: &Bitmap) -> Option<String> {
        let mut wrong = None;
        for (at, hash) in part.proposed.iter_ones().zip(part.hashes.to_vec()) {
            let expected = !self.items.contains_key(&hash);
            let slice = *self.items.entry(hash).or_insert(self.newest);
            let is_new = reply.iter_ones().any(|one| one == at);
            if is_new != expected && wrong.is_none() {
                let filter = part.filter;
                wrong = Some(format!(
                    "an item of {filter} whose slice is {slice} was new: {is_new}, in a window whose newest is {}",
                    self.newest
                ));
            }
        }
        wrong
    }
}
