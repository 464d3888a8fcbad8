//! Models of the slices of one shard, each computed from the entries of the shard's log alone.

use std::collections::BTreeMap;

use umbel_engine::shard::{Bitmap, InsertPart, ShardCommand, ShardReply, SliceSpec};
use umbel_engine::{FilterId, Generation, GroupId};
use umbel_filter::HashRange;

use super::answered::AnsweredParts;

/// A model of a slice of some kind, independent of how the product stores it.
pub(crate) trait SliceModel: Clone {
    /// The empty slice that was created in a shard with this range; `None` if it is of another kind.
    fn of(spec: &SliceSpec, range: HashRange) -> Option<Self>;

    /// The slice of one half of the shard, when that is split.
    fn half(&self, range: HashRange) -> Self;

    /// The slice of both ranges, when the shard absorbs another one: `range` is that of both.
    fn join(&self, upper: &Self, range: HashRange) -> Self;

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
    models: &mut BTreeMap<GroupId, SliceModels<M>>,
    halves: [(GroupId, HashRange); 2],
) {
    let Some(whole) = models.remove(&halves[0].0) else { return };
    models.extend(halves.map(|(group, range)| (group, whole.half(range))));
}

/// A group absorbed another one, and has this range from now on.
pub(crate) fn join<M: SliceModel>(
    models: &mut BTreeMap<GroupId, SliceModels<M>>,
    (group, from): (GroupId, GroupId),
    range: HashRange,
) {
    let upper = models.get(&from).map(|upper| upper.half(range)).unwrap_or_default();
    models.entry(group).or_default().join(&upper, range);
}

impl<M: SliceModel> SliceModels<M> {
    /// The models of one half of the shard, when that is split.
    pub(crate) fn half(&self, range: HashRange) -> Self {
        let half = |(&filter, (generation, model)): (&FilterId, &(Generation, M))| {
            (filter, (*generation, model.half(range)))
        };
        Self { slices: self.slices.iter().map(half).collect() }
    }

    /// Takes in the models of a shard that this one absorbs. If one of the two was cleared and the other one
    /// not yet, what that has is gone.
    fn join(&mut self, upper: &Self, range: HashRange) {
        for (filter, (generation, model)) in &upper.slices {
            let Some((ours, own)) = self.slices.get_mut(filter) else {
                self.slices.insert(*filter, (*generation, model.clone()));
                continue;
            };
            let mut theirs = model.clone();
            if *generation < *ours {
                theirs.clear();
            } else if *generation > *ours {
                *ours = *generation;
                own.clear();
            }
            *own = own.join(&theirs, range);
        }
    }

    /// Processes an entry of a shard with this range, and describes what is wrong with its reply, if
    /// anything. `answered` has the parts of the entries before: they get their answers again.
    pub(crate) fn follow(
        &mut self,
        range: HashRange,
        command: &ShardCommand,
        reply: &ShardReply,
        answered: &AnsweredParts,
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
                return self.insert(parts.iter().zip(replies), None, answered);
            }
            (ShardCommand::InsertTimed { now_ms, inserts }, ShardReply::Inserted(replies)) => {
                let parts = inserts.iter().map(|insert| &insert.part);
                return self.insert(parts.zip(replies), Some(*now_ms), answered);
            }
            _ => {}
        }
        None
    }

    fn insert<'a, E: 'a>(
        &mut self,
        parts: impl Iterator<Item = (&'a InsertPart, &'a Result<Bitmap, E>)>,
        now_ms: Option<u64>,
        answered: &AnsweredParts,
    ) -> Option<String> {
        let (mut wrong, mut here) = (None, AnsweredParts::default());
        for (part, reply) in parts {
            let (Some((_, model)), Ok(reply)) = (self.slices.get_mut(&part.filter), reply) else {
                continue;
            };
            if answered.has(part.request) || here.insert(part.request) {
                continue;
            }
            now_ms.into_iter().for_each(|now_ms| model.advance(now_ms));
            wrong = wrong.or(model.insert(part, reply));
        }
        wrong
    }
}
