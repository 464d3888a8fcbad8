//! The last items that were inserted into aging filters, computed from the log entries alone as a list.
//! This model does not use generations.

use std::collections::{BTreeSet, VecDeque};

use umbel_engine::shard::{Bitmap, InsertPart, SliceShape, SliceSpec};
use umbel_filter::{HashRange, ItemHash, Kind};

use super::slice_models::SliceModel;

/// Name of the invariant.
pub(crate) const NAME: &str = "last_items_stay";

/// The last items of a slice of an aging filter.
#[derive(Clone, Debug)]
pub(crate) struct LastItems {
    /// The pace of the whole hash space.
    whole_pace: u64,
    /// At least this many different items are kept.
    pace: usize,
    /// The last `pace` items, the newest at the back.
    items: VecDeque<ItemHash>,
}

impl LastItems {
    fn empty(whole_pace: u64, range: HashRange) -> Self {
        let pace = usize::try_from(range.share_of(whole_pace)).unwrap_or(usize::MAX);
        Self { whole_pace, pace, items: VecDeque::new() }
    }
}

impl SliceModel for LastItems {
    fn of(spec: &SliceSpec, range: HashRange) -> Option<Self> {
        let SliceShape::Paced { kind, pace, .. } = spec.shape else { return None };
        (kind == Kind::Aging.id()).then(|| Self::empty(pace, range))
    }

    /// Both halves count half of what came before as theirs, which for some items is less than came: they are
    /// looked at anew.
    fn half(&self, range: HashRange) -> Self {
        Self::empty(self.whole_pace, range)
    }

    /// Looked at anew, as after a split.
    fn join(&self, _: &Self, range: HashRange) -> Self {
        Self::empty(self.whole_pace, range)
    }

    fn clear(&mut self) {
        self.items.clear();
    }

    fn insert(&mut self, part: &InsertPart, reply: &Bitmap) -> Option<String> {
        let new: BTreeSet<usize> = reply.iter_ones().collect();
        let mut wrong = None;
        for (at, hash) in part.proposed.iter_ones().zip(part.hashes.to_vec()) {
            let was = self.items.iter().position(|&other| other == hash);
            if let Some(was) = was {
                let since = self.items.len() - 1 - was;
                self.items.remove(was);
                if new.contains(&at) && wrong.is_none() {
                    let (filter, pace) = (part.filter, self.pace);
                    wrong = Some(format!(
                        "an item of {filter} was new, since whose insert {since} others have come, \
                         expected {pace} at least"
                    ));
                }
            }
            self.items.push_back(hash);
            if self.items.len() > self.pace {
                self.items.pop_front();
            }
        }
        wrong
    }
}
