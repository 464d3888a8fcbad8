//! What windows have, told from the entries of the logs alone: a map from items to the slices of their first
//! times. It knows nothing of fingerprints, and its filters are made so that no two items share one.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::shard::{Bitmap, ShardCommand, ShardReply, SliceShape, TimedInsert, WindowRules};
use umbel_engine::{FilterId, Generation, RequestId};
use umbel_filter::ItemHash;

/// Name of the invariant.
pub(crate) const NAME: &str = "windows_forget";

/// The windows of one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardWindows {
    slices: BTreeMap<FilterId, SliceWindow>,
}

/// One slice's.
#[derive(Debug)]
struct SliceWindow {
    rules: WindowRules,
    generation: Generation,
    newest: u64,
    /// The slice of each item, by its hash.
    items: BTreeMap<ItemHash, u64>,
}

impl SliceWindow {
    fn advance(&mut self, now_ms: u64) {
        self.newest = self.newest.max(now_ms / self.rules.slice_ms);
        let oldest = self.newest.saturating_sub(self.rules.slice_count.into());
        self.items.retain(|_, slice| *slice >= oldest);
    }

    /// What a part that was applied must have been answered, and its items come in.
    fn insert(&mut self, insert: &TimedInsert, reply: &Bitmap) -> Option<String> {
        let hashes = insert.part.hashes.to_vec();
        let mut wrong = None;
        for (at, hash) in insert.part.proposed.iter_ones().zip(hashes) {
            let expected = !self.items.contains_key(&hash);
            let slice = *self.items.entry(hash).or_insert(self.newest);
            let is_new = reply.iter_ones().any(|one| one == at);
            if is_new != expected && wrong.is_none() {
                let filter = insert.part.filter;
                wrong = Some(format!(
                    "an item of {filter} whose slice is {slice} was new: {is_new}, in a window whose newest is {}",
                    self.newest
                ));
            }
        }
        wrong
    }
}

impl ShardWindows {
    /// Follows an entry, and says what its reply should not have been. `was_answered` tells requests that had their
    /// answer before: they get it again.
    pub(crate) fn follow(
        &mut self,
        command: &ShardCommand,
        reply: &ShardReply,
        mut was_answered: impl FnMut(RequestId) -> bool,
    ) -> Option<String> {
        match (command, reply) {
            (ShardCommand::CreateSlice(spec), ShardReply::Done(Ok(()))) => {
                if let SliceShape::Window { rules, .. } = spec.shape {
                    let generation = spec.generation;
                    let empty =
                        SliceWindow { rules, generation, newest: 0, items: BTreeMap::new() };
                    self.slices.entry(spec.filter).or_insert(empty);
                }
                None
            }
            (ShardCommand::DropSlice(filter), _) => {
                self.slices.remove(filter);
                None
            }
            (ShardCommand::ClearSlice { filter, generation }, ShardReply::Done(Ok(()))) => {
                if let Some(window) = self.slices.get_mut(filter)
                    && *generation > window.generation
                {
                    (window.generation, window.newest) = (*generation, 0);
                    window.items.clear();
                }
                None
            }
            (ShardCommand::Advance { now_ms }, _) => {
                self.slices.values_mut().for_each(|window| window.advance(*now_ms));
                None
            }
            (ShardCommand::InsertTimed { now_ms, inserts }, ShardReply::Inserted(replies)) => {
                let (mut wrong, mut here) = (None, BTreeSet::new());
                for (insert, reply) in inserts.iter().zip(replies) {
                    let id = insert.part.request.map(|stamp| stamp.id);
                    let again = id.is_some_and(|id| was_answered(id) || !here.insert(id));
                    let Some(window) = self.slices.get_mut(&insert.part.filter) else { continue };
                    let (Ok(reply), false) = (reply, again) else { continue };
                    window.advance(*now_ms);
                    wrong = wrong.or(window.insert(insert, reply));
                }
                wrong
            }
            _ => None,
        }
    }
}
