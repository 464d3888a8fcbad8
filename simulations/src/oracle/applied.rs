//! What applying an entry of a shard's log must not do. Computed from the slices' descriptions and not
//! by the code that applied it: an independent check of generations, shapes and keys.

use umbel_engine::shard::{
    Bitmap, InsertPart, PartError, RepairPart, RequestStamp, ScrubPart, ShardCommand, ShardReply,
    ShardState, SliceSummary,
};
use umbel_engine::{FilterId, Generation};

use super::answered::AnsweredParts;
use crate::counters;

/// Inserts and removals with another generation than the slice's change nothing.
pub(crate) const GENERATION: &str = "generation_is_checked";

/// Filters are merged only if shape, key and generation are as named.
pub(crate) const SHAPE: &str = "shape_is_checked";

/// The state of a shard's slices before an entry is applied.
#[derive(Debug)]
pub(crate) struct Before(Vec<(FilterId, Option<SliceSummary>)>);

impl Before {
    /// Records the slices that the command names.
    pub(crate) fn look(state: &ShardState, command: &ShardCommand) -> Self {
        let filters: Vec<FilterId> = match command {
            ShardCommand::Insert(parts) | ShardCommand::InsertAbsent(parts) => {
                parts.iter().map(|part| part.filter).collect()
            }
            ShardCommand::Remove(part) => vec![part.filter],
            ShardCommand::MergeSlices { target, sources, .. } => {
                sources.iter().map(|&(source, _)| source).chain([*target]).collect()
            }
            ShardCommand::ClearSlice { filter, .. }
            | ShardCommand::RotateSlice { filter, .. }
            | ShardCommand::RenewSlice { filter, .. }
            | ShardCommand::DropSlice(filter)
            | ShardCommand::LoadFrame { filter, .. }
            | ShardCommand::Scrub(ScrubPart { filter, .. })
            | ShardCommand::Repair(RepairPart { filter, .. }) => vec![*filter],
            ShardCommand::InsertTimed { inserts, .. } => {
                inserts.iter().map(|insert| insert.part.filter).collect()
            }
            ShardCommand::CreateSlice(_)
            | ShardCommand::Advance { .. }
            | ShardCommand::Split { .. }
            | ShardCommand::SplitAgain { .. }
            | ShardCommand::Fence { .. }
            | ShardCommand::Reopen { .. }
            | ShardCommand::Absorb { .. } => Vec::new(),
        };
        Self(filters.into_iter().map(|filter| (filter, state.summary(filter))).collect())
    }

    /// The slice of a filter that the command names, if there was one.
    pub(crate) fn slice(&self, filter: FilterId) -> Option<&SliceSummary> {
        self.0.iter().find(|(named, _)| *named == filter)?.1.as_ref()
    }

    fn has(&self, filter: FilterId, generation: Generation) -> bool {
        self.slice(filter).is_some_and(|slice| slice.generation == generation)
    }

    /// Whether the reply shows that the entry was applied against the rules: the invariant, and what
    /// was seen. `answered` has every request that the shard has applied so far: a repeated one gets
    /// its answer again, whatever happened to the filter since.
    pub(crate) fn broken_by(
        &self,
        command: &ShardCommand,
        reply: &ShardReply,
        answered: &mut AnsweredParts,
    ) -> Option<(&'static str, String)> {
        match (command, reply) {
            (
                ShardCommand::Insert(parts) | ShardCommand::InsertAbsent(parts),
                ShardReply::Inserted(replies),
            ) => self.stale_inserts(parts.iter().zip(replies), answered),
            (ShardCommand::InsertTimed { inserts, .. }, ShardReply::Inserted(replies)) => {
                let parts = inserts.iter().map(|insert| &insert.part);
                self.stale_inserts(parts.zip(replies), answered)
            }
            (ShardCommand::Remove(part), ShardReply::Removed(reply)) => {
                self.stale(part.filter, part.generation, part.request, reply.is_ok(), answered)
            }
            (
                ShardCommand::MergeSlices { target, generation, sources, .. },
                ShardReply::Merged(reply),
            ) => self.mismatch(*target, *generation, sources, reply),
            _ => None,
        }
    }

    fn stale_inserts<'a>(
        &self,
        parts: impl Iterator<Item = (&'a InsertPart, &'a Result<Bitmap, PartError>)>,
        answered: &mut AnsweredParts,
    ) -> Option<(&'static str, String)> {
        let broken = parts.filter_map(|(part, reply)| {
            let InsertPart { filter, generation, request, .. } = part;
            self.stale(*filter, *generation, *request, reply.is_ok(), answered)
        });
        // All parts must be checked, because each records its request.
        broken.reduce(|first, _| first)
    }

    fn stale(
        &self,
        filter: FilterId,
        generation: Generation,
        stamp: Option<RequestStamp>,
        is_done: bool,
        answered: &mut AnsweredParts,
    ) -> Option<(&'static str, String)> {
        if !is_done || answered.insert(stamp) {
            return None;
        }
        counters::checked(GENERATION, 1);
        if self.has(filter, generation) {
            return None;
        }
        let slice = self.slice(filter).map(|slice| slice.generation);
        let what = format!(
            "a part of {filter} at {generation} was applied, expected a refusal: its slice is at \
             {slice:?}"
        );
        Some((GENERATION, what))
    }

    fn mismatch(
        &self,
        target: FilterId,
        generation: Generation,
        sources: &[(FilterId, Generation)],
        reply: &Result<u64, PartError>,
    ) -> Option<(&'static str, String)> {
        reply.as_ref().ok()?;
        counters::checked(SHAPE, 1);
        let into = self.slice(target);
        let fits = |&(source, generation): &(FilterId, Generation)| {
            let from = self.slice(source);
            let is_alike = into.zip(from).is_some_and(|(into, from)| {
                (into.spec.shape, into.spec.key) == (from.spec.shape, from.spec.key)
            });
            is_alike && self.has(source, generation)
        };
        if self.has(target, generation) && sources.iter().all(fits) {
            return None;
        }
        let what = format!(
            "{sources:?} were merged into {target} at {generation}, expected a refusal: the slices \
             were {:?}",
            self.0
        );
        Some((SHAPE, what))
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::shard::{HashList, KeyName, RemovePart, SetOperation, SliceShape, SliceSpec};
    use umbel_engine::{OwnerId, RequestId, SessionId, ShardId};
    use umbel_filter::{HashRange, Kind};

    use super::*;

    fn state() -> ShardState {
        let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
        for (filter, key_id, block_count) in [(1, 7, 4), (2, 7, 4), (3, 8, 4), (4, 7, 5)] {
            let (kind, block_bits, probe_count) = (Kind::Blocked.id(), 512, 3);
            let shape = SliceShape::Blocks { kind, block_count, block_bits, probe_count };
            let key = KeyName { function: 1, key_id };
            let (filter, generation) = (FilterId(filter), Generation(2));
            let spec = SliceSpec { filter, generation, shape, key };
            state.apply(&ShardCommand::CreateSlice(spec));
        }
        state
    }

    fn stamp(sequence: u64) -> RequestStamp {
        let id = RequestId { session: SessionId(1), sequence };
        RequestStamp {
            id,
            acknowledged_below: 0,
            digest: 0,
            cut: (0, u64::MAX),
            owner: OwnerId::default(),
        }
    }

    fn broken(
        command: &ShardCommand,
        reply: &ShardReply,
        answered: &mut AnsweredParts,
    ) -> Option<&'static str> {
        let found = Before::look(&state(), command).broken_by(command, reply, answered);
        found.map(|(invariant, _)| invariant)
    }

    #[test]
    fn other_generations_are_refused_or_answered_again() {
        let part = |generation, sequence: Option<u64>| InsertPart {
            filter: FilterId(1),
            generation: Generation(generation),
            request: sequence.map(stamp),
            proposed: Bitmap::zeros(0),
            hashes: HashList::default(),
            growth_bytes: 0,
        };
        let answered = &mut AnsweredParts::default();
        let mut insert = |parts: Vec<InsertPart>| {
            let reply = vec![Ok(Bitmap::zeros(0)); parts.len()];
            broken(&ShardCommand::Insert(parts), &ShardReply::Inserted(reply), answered)
        };
        assert_eq!(insert(vec![part(2, None), part(2, Some(5))]), None);
        assert_eq!(counters::take().checked[GENERATION], 2);
        assert_eq!(insert(vec![part(1, None)]), Some(GENERATION));
        assert_eq!(insert(vec![part(1, Some(6)), part(2, None)]), Some(GENERATION));
        // A repeated request gets its answer again, also within one entry.
        assert_eq!(insert(vec![part(1, Some(5))]), None);
        assert_eq!(insert(vec![part(2, Some(8)), part(1, Some(8))]), None);
        let error = PartError::UnknownSlice { filter: FilterId(1), shard: ShardId(0) };
        let refused = ShardReply::Inserted(vec![Err(error)]);
        let stale = ShardCommand::Insert(vec![part(1, None)]);
        assert_eq!(broken(&stale, &refused, &mut AnsweredParts::default()), None);
        let stale = ShardCommand::InsertAbsent(vec![part(1, None)]);
        let reply = ShardReply::Inserted(vec![Ok(Bitmap::zeros(0))]);
        assert_eq!(broken(&stale, &reply, &mut AnsweredParts::default()), Some(GENERATION));

        let (filter, generation) = (FilterId(1), Generation(3));
        let hashes = HashList::default();
        let remove = RemovePart { filter, generation, request: None, hashes };
        let reply = ShardReply::Removed(Ok(Bitmap::zeros(0)));
        let found = broken(&ShardCommand::Remove(remove), &reply, &mut AnsweredParts::default());
        assert_eq!(found, Some(GENERATION));
    }

    #[test]
    fn only_equals_are_merged() {
        let merge = |source, generation| {
            let (target, sources) = (FilterId(1), vec![(FilterId(source), Generation(generation))]);
            let (generation, operation) = (Generation(2), SetOperation::Union);
            let command = ShardCommand::MergeSlices { target, generation, sources, operation };
            broken(&command, &ShardReply::Merged(Ok(0)), &mut AnsweredParts::default())
        };
        assert_eq!(merge(2, 2), None);
        assert_eq!(counters::take().checked[SHAPE], 1);
        assert_eq!(merge(2, 1), Some(SHAPE));
        assert_eq!(merge(3, 2), Some(SHAPE));
        assert_eq!(merge(4, 2), Some(SHAPE));
        assert_eq!(merge(5, 2), Some(SHAPE));
    }
}
