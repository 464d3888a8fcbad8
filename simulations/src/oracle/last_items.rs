//! Which items came last to filters that age, told from the entries of the logs alone: a list of them. It knows
//! nothing of generations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use umbel_engine::shard::{Bitmap, InsertPart, ShardCommand, ShardReply, SliceShape};
use umbel_engine::{FilterId, Generation, RequestId};
use umbel_filter::{ItemHash, Kind};

/// Name of the invariant.
pub(crate) const NAME: &str = "last_items_stay";

/// The aging filters of one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardLastItems {
    slices: BTreeMap<FilterId, SliceLastItems>,
}

/// One slice's.
#[derive(Debug)]
struct SliceLastItems {
    /// So many different items stay at least.
    pace: usize,
    generation: Generation,
    /// As many of them that came last, the last one behind.
    items: VecDeque<ItemHash>,
}

impl SliceLastItems {
    /// What a part that was applied must not have been answered; its items come in.
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

impl ShardLastItems {
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
                if let SliceShape::Paced { kind, pace, .. } = spec.shape
                    && kind == Kind::Aging.id()
                {
                    let pace = usize::try_from(pace).unwrap_or(usize::MAX);
                    let (generation, items) = (spec.generation, VecDeque::new());
                    let empty = SliceLastItems { pace, generation, items };
                    self.slices.entry(spec.filter).or_insert(empty);
                }
                None
            }
            (ShardCommand::DropSlice(filter), _) => {
                self.slices.remove(filter);
                None
            }
            (ShardCommand::ClearSlice { filter, generation }, ShardReply::Done(Ok(()))) => {
                if let Some(slice) = self.slices.get_mut(filter)
                    && *generation > slice.generation
                {
                    slice.generation = *generation;
                    slice.items.clear();
                }
                None
            }
            (ShardCommand::Insert(parts), ShardReply::Inserted(replies)) => {
                let (mut wrong, mut here) = (None, BTreeSet::new());
                for (part, reply) in parts.iter().zip(replies) {
                    let id = part.request.map(|stamp| stamp.id);
                    let again = id.is_some_and(|id| was_answered(id) || !here.insert(id));
                    let Some(slice) = self.slices.get_mut(&part.filter) else { continue };
                    let (Ok(reply), false) = (reply, again) else { continue };
                    wrong = wrong.or(slice.insert(part, reply));
                }
                wrong
            }
            _ => None,
        }
    }
}
