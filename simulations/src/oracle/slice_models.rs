//! Models of the slices of one shard, each computed from the entries of the shard's log alone.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::shard::{Bitmap, InsertPart, ShardCommand, ShardReply, SliceSpec};
use umbel_engine::{FilterId, Generation, RequestId, ShardId};
use umbel_filter::HashRange;

/// A model of a slice of some kind, independent of how the product stores it.
pub(crate) trait SliceModel: Sized {
    /// The empty slice that was created in a shard with this range; `None` if it is of another kind.
    fn of(spec: &SliceSpec, range: HashRange) -> Option<Self>;

    /// The slice of one half of the shard, when that is split.
    fn half(&self, range: HashRange) -> Self;

    /// Removes everything.
    fn clear(&mut self);

    /// Sets the time to the leader's clock in an entry.
    fn advance(&mut self, _now_ms: u64) {}

    /// Ends the current slice of a manual window.
    fn rotate(&mut self) {}

    /// Processes the items of an applied part; returns a description if its answer is impossible.
    fn insert(&mut self, part: &InsertPart, reply: &Bitmap) -> Option<String>;
}

/// The models of a shard's slices of one kind.
#[derive(Debug)]
pub(crate) struct SliceModels<M> {
    slices: BTreeMap<FilterId, (Generation, M)>,
}

impl<M> Default for SliceModels<M> {
    fn default() -> Self {
        Self { slices: BTreeMap::new() }
    }
}

/// A shard was split: until now its models are those of the first half.
pub(crate) fn split<M: SliceModel>(
    models: &mut BTreeMap<ShardId, SliceModels<M>>,
    halves: [(ShardId, HashRange); 2],
) {
    let Some(whole) = models.remove(&halves[0].0) else { return };
    models.extend(halves.map(|(shard, range)| (shard, whole.half(range))));
}

impl<M: SliceModel> SliceModels<M> {
    /// The models of one half of the shard, when that is split.
    pub(crate) fn half(&self, range: HashRange) -> Self {
        let half = |(&filter, (generation, model)): (&FilterId, &(Generation, M))| {
            (filter, (*generation, model.half(range)))
        };
        Self { slices: self.slices.iter().map(half).collect() }
    }

    /// Processes an entry of a shard with this range, and describes what is wrong with its reply, if
    /// anything. `was_answered` tells whether a request already had its answer: it then gets that
    /// again.
    pub(crate) fn follow(
        &mut self,
        range: HashRange,
        command: &ShardCommand,
        reply: &ShardReply,
        was_answered: impl FnMut(RequestId) -> bool,
    ) -> Option<String> {
        match (command, reply) {
            (ShardCommand::CreateSlice(spec), ShardReply::Done(Ok(()))) => {
                if let Some(model) = M::of(spec, range) {
                    self.slices.entry(spec.filter).or_insert((spec.generation, model));
                }
            }
            (ShardCommand::DropSlice(filter), _) => {
                self.slices.remove(filter);
            }
            (ShardCommand::ClearSlice { filter, generation }, ShardReply::Done(Ok(()))) => {
                if let Some((ours, model)) = self.slices.get_mut(filter)
                    && *generation > *ours
                {
                    *ours = *generation;
                    model.clear();
                }
            }
            (ShardCommand::RenewSlice { filter, generation }, ShardReply::Done(Ok(()))) => {
                if let Some((ours, _)) = self.slices.get_mut(filter) {
                    *ours = (*ours).max(*generation);
                }
            }
            (ShardCommand::RotateSlice { filter, generation }, ShardReply::Done(Ok(()))) => {
                if let Some((ours, model)) = self.slices.get_mut(filter)
                    && *generation > *ours
                {
                    *ours = *generation;
                    model.rotate();
                }
            }
            (ShardCommand::Advance { now_ms }, _) => {
                self.slices.values_mut().for_each(|(_, model)| model.advance(*now_ms));
            }
            (ShardCommand::Insert(parts), ShardReply::Inserted(replies)) => {
                return self.insert(parts.iter().zip(replies), None, was_answered);
            }
            (ShardCommand::InsertTimed { now_ms, inserts }, ShardReply::Inserted(replies)) => {
                let parts = inserts.iter().map(|insert| &insert.part);
                return self.insert(parts.zip(replies), Some(*now_ms), was_answered);
            }
            _ => {}
        }
        None
    }

    fn insert<'a, E: 'a>(
        &mut self,
        parts: impl Iterator<Item = (&'a InsertPart, &'a Result<Bitmap, E>)>,
        now_ms: Option<u64>,
        mut was_answered: impl FnMut(RequestId) -> bool,
    ) -> Option<String> {
        let (mut wrong, mut here) = (None, BTreeSet::new());
        for (part, reply) in parts {
            let id = part.request.map(|stamp| stamp.id);
            let again = id.is_some_and(|id| was_answered(id) || !here.insert(id));
            let Some((_, model)) = self.slices.get_mut(&part.filter) else { continue };
            let (Ok(reply), false) = (reply, again) else { continue };
            now_ms.into_iter().for_each(|now_ms| model.advance(now_ms));
            wrong = wrong.or(model.insert(part, reply));
        }
        wrong
    }
}
