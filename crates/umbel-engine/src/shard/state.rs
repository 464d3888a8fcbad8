//! The replicated state of a shard, and how commands change it.

use std::collections::BTreeMap;

use umbel_codec::Frames;
use umbel_filter::{Describe, HashRange, Insertion, ItemHash, OnesCount};

use super::bitmap::Bitmap;
use super::command::{
    InsertPart, RemovePart, RequestStamp, SetOperation, ShardCommand, ShardReply, SliceSpec,
};
use super::digest::Digest;
use super::hash_list::HashList;
use super::merge_marks::MergeMarks;
use super::part_error::PartError;
use super::replay::{Operation, ReplayLimits, ReplayTable, StampedPart};
use super::scrub_parts::ScrubbedPiece;
use super::slice::{Slice, SliceDescription, SliceSummary};
use super::windowed::InsertTime;
use crate::ids::{FilterId, Generation, GroupId, ShardId};
use crate::limits::{FILTER_COUNT_MAX, REQUEST_ITEMS_MAX};
use crate::shard::PartResult;

/// Stands for an unknown log index.
pub(super) const NO_INDEX: u64 = u64::MAX;

/// The slices and the replay table of one shard.
///
/// Deterministic: equal states that apply equal commands stay equal and return equal replies, on every
/// replica and after every snapshot. Total: any content of a command leads to a reply. The one exception
/// to both is running out of memory, which ends the process.
///
/// ```
/// use umbel_engine::shard::{ShardCommand, ShardReply, ShardState};
/// use umbel_engine::{FilterId, ShardId};
/// use umbel_filter::HashRange;
///
/// let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
/// // Dropping what is not there is done already.
/// let reply = state.apply(&ShardCommand::DropSlice(FilterId(1)));
/// assert_eq!(reply, ShardReply::Done(Ok(())));
/// assert_eq!(state.memory_bytes(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct ShardState {
    pub(super) shard: ShardId,
    pub(super) range: HashRange,
    pub(super) slices: BTreeMap<FilterId, Slice>,
    pub(super) replay: ReplayTable,
    /// The most recently digested piece, kept for comparison with other replicas' digests. Not part of
    /// the replicated state.
    pub(super) scrubbed: Option<ScrubbedPiece>,
    /// What merges with other shards left.
    pub(super) marks: MergeMarks,
}

impl ShardState {
    /// A shard without slices or recorded answers.
    #[must_use]
    pub const fn new(shard: ShardId, range: HashRange) -> Self {
        let replay = ReplayTable::new(ReplayLimits::SHARD);
        let marks = MergeMarks::NONE;
        Self { shard, range, slices: BTreeMap::new(), replay, scrubbed: None, marks }
    }

    /// This shard's id.
    #[must_use]
    pub const fn shard(&self) -> ShardId {
        self.shard
    }

    /// The hash range whose items this shard holds.
    #[must_use]
    pub const fn range(&self) -> HashRange {
        self.range
    }

    /// Applies a command whose log index does not matter; a repair then only adds bits.
    pub fn apply(&mut self, command: &ShardCommand) -> ShardReply {
        self.apply_at(NO_INDEX, command)
    }

    /// Applies the log entry with this index.
    pub fn apply_at(&mut self, index: u64, command: &ShardCommand) -> ShardReply {
        if let Err(fenced) = self.check_open()
            && !matches!(command, ShardCommand::Fence { .. } | ShardCommand::Reopen { .. })
        {
            return Self::refuse(command, &fenced);
        }
        self.note_written(index, command);
        match command {
            ShardCommand::Insert(parts) => {
                ShardReply::Inserted(parts.iter().map(|part| self.insert(part, None)).collect())
            }
            ShardCommand::Remove(part) => ShardReply::Removed(self.remove(part)),
            ShardCommand::CreateSlice(spec) => ShardReply::Done(self.create(spec)),
            ShardCommand::DropSlice(filter) => {
                self.slices.remove(filter);
                ShardReply::Done(Ok(()))
            }
            ShardCommand::ClearSlice { filter, generation } => {
                ShardReply::Done(self.clear(*filter, *generation))
            }
            ShardCommand::MergeSlices { target, generation, sources, operation } => {
                let target = (*target, *generation);
                ShardReply::Merged(match *operation {
                    SetOperation::Sum(terms) => self.sum(target, sources, terms),
                    operation => self.merge(target, sources, operation),
                })
            }
            ShardCommand::LoadFrame { filter, generation, frame } => {
                let slice = self.slice_mut(*filter, *generation);
                ShardReply::Merged(slice.and_then(|slice| slice.load(frame)))
            }
            ShardCommand::Scrub(part) => ShardReply::Done(self.scrub(part)),
            ShardCommand::Repair(part) => ShardReply::Done(self.repair(index, part)),
            ShardCommand::InsertTimed { now_ms, inserts } => {
                ShardReply::Inserted(self.insert_timed(*now_ms, inserts))
            }
            ShardCommand::Advance { now_ms } => {
                self.advance(*now_ms);
                ShardReply::Done(Ok(()))
            }
            ShardCommand::RotateSlice { filter, generation } => {
                ShardReply::Done(self.rotate(*filter, *generation))
            }
            ShardCommand::RenewSlice { filter, generation } => {
                ShardReply::Done(self.renew(*filter, *generation))
            }
            ShardCommand::Split { into, at } => {
                ShardReply::Done(self.split(index, (GroupId::of_shard(*into), *at)))
            }
            ShardCommand::SplitAgain { into, at } => {
                ShardReply::Done(self.split(index, (*into, *at)))
            }
            ShardCommand::Fence { into, since } => ShardReply::Done(self.end(index, *into, *since)),
            ShardCommand::Reopen { since } => {
                self.reopen(*since);
                ShardReply::Done(Ok(()))
            }
            ShardCommand::Absorb { from, .. } => ShardReply::Done(self.check_absorbed(*from)),
            ShardCommand::InsertAbsent(parts) => {
                ShardReply::Inserted(parts.iter().map(|part| self.insert_absent(part)).collect())
            }
        }
    }

    /// Records the index at the slices that an entry may change. Repairs, splits and merges of shards do so
    /// themselves.
    fn note_written(&mut self, index: u64, command: &ShardCommand) {
        let mut note = |filter: FilterId| {
            if let Some(slice) = self.slices.get_mut(&filter) {
                slice.written_index = index;
            }
        };
        match command {
            ShardCommand::ClearSlice { filter, .. } | ShardCommand::RenewSlice { filter, .. } => {
                note(*filter);
            }
            ShardCommand::Advance { .. } => {
                let windows = self.slices.values_mut().filter(|slice| slice.window().is_some());
                windows.for_each(|slice| slice.written_index = index);
            }
            ShardCommand::Repair(_) => {}
            // A created slice is empty, so it is equal however it came to be: nothing to record.
            command => command.for_each_changed(|filter, _| note(filter)),
        }
    }

    pub(super) fn insert(
        &mut self,
        part: &InsertPart,
        time: Option<InsertTime>,
    ) -> PartResult<Bitmap> {
        self.insert_by(part, |slice, hashes| match time {
            Some(time) if time.at_ms.is_some() || slice.window().is_some() => {
                slice.insert_timed(hashes, time)
            }
            _ => slice.insert(hashes, part.growth_bytes),
        })
    }

    /// Answers a part of an insert: as before if it is a retry, otherwise by what `insert` says of each hash.
    pub(super) fn insert_by(
        &mut self,
        part: &InsertPart,
        insert: impl FnOnce(&mut Slice, &[ItemHash]) -> PartResult<Vec<Insertion>>,
    ) -> PartResult<Bitmap> {
        let InsertPart { filter, generation, request, proposed, hashes, growth_bytes: _ } = part;
        check_list(hashes)?;
        let malformed = |what: String| PartError::Malformed { what };
        proposed.check().map_err(|error| malformed(error.to_string()))?;
        let (item_count, marked) = (proposed.len(), proposed.count_ones());
        if item_count as usize > REQUEST_ITEMS_MAX || marked as usize != hashes.len() {
            let (got, most) = (hashes.len(), REQUEST_ITEMS_MAX);
            return Err(malformed(format!(
                "{got} hashes for {marked} of {item_count} items, expected at most {most}"
            )));
        }
        let stamped =
            request.map(|stamp| StampedPart::new(stamp, Operation::Insert, *filter, item_count));
        if let Some(answer) = self.answered(stamped.as_ref())? {
            return Ok(answer);
        }
        self.check_hashes(self.slice(*filter, *generation)?, hashes, *request)?;
        let slice = self.slice_mut(*filter, *generation)?;
        let kind = slice.kind();
        if kind.counts_every_insert() && marked != item_count {
            let what = format!("{marked} of {item_count} items of a {kind} filter, expected all");
            return Err(malformed(what));
        }
        let outcomes = insert(slice, &hashes.to_vec())?;
        let is_new = |outcome: Insertion| outcome == Insertion::New;
        let answer = if outcomes.len() == item_count as usize {
            // All items were proposed, as is so for items that are not there yet: the quick way to the same bits.
            Bitmap::from_bools(outcomes.into_iter().map(is_new))
        } else {
            let new = proposed.iter_ones().zip(outcomes).filter(|&(_, outcome)| is_new(outcome));
            Bitmap::from_ones(item_count, new.map(|(at, _)| at))
        };
        self.remember(stamped.as_ref(), &answer);
        Ok(answer)
    }

    fn remove(&mut self, part: &RemovePart) -> PartResult<Bitmap> {
        let RemovePart { filter, generation, request, hashes } = part;
        let item_count = check_list(hashes)?;
        let stamped =
            request.map(|stamp| StampedPart::new(stamp, Operation::Remove, *filter, item_count));
        if let Some(answer) = self.answered(stamped.as_ref())? {
            return Ok(answer);
        }
        self.check_hashes(self.slice(*filter, *generation)?, hashes, *request)?;
        let slice = self.slice_mut(*filter, *generation)?;
        let answer = slice.remove(hashes.iter())?;
        self.remember(stamped.as_ref(), &answer);
        Ok(answer)
    }

    /// Refuses hashes that belong to another shard, or that are outside of what the part was cut for: its
    /// record would not cover them.
    pub(super) fn check_hashes(
        &self,
        slice: &Slice,
        hashes: &HashList,
        request: Option<RequestStamp>,
    ) -> PartResult<()> {
        slice.check_hashes(self.range, self.shard, hashes)?;
        let Some(RequestStamp { cut, .. }) =
            request.filter(|stamp| stamp.cut != self.range.bounds())
        else {
            return Ok(());
        };
        let cut = HashRange::from_bounds(cut);
        let is_within = cut.is_ok_and(|cut| slice.check_hashes(cut, self.shard, hashes).is_ok());
        is_within.then_some(()).ok_or_else(|| PartError::Malformed {
            what: "a hash of the part is outside of the range for which it was cut".to_owned(),
        })
    }

    /// The recorded answer, if the request is a retry.
    pub(super) fn answered(&self, stamped: Option<&StampedPart>) -> PartResult<Option<Bitmap>> {
        self.check_open()?;
        let here = (self.shard, self.range);
        stamped.map_or(Ok(None), |stamped| self.replay.look_up(stamped, here))
    }

    pub(super) fn remember(&mut self, stamped: Option<&StampedPart>, answer: &Bitmap) {
        if let Some(stamped) = stamped {
            self.replay.record(stamped, answer.clone());
        }
    }

    /// An equal existing slice may have been cleared since: its generation is then above the given one.
    fn create(&mut self, spec: &SliceSpec) -> PartResult<()> {
        let filter = spec.filter;
        let malformed = |what| Err(PartError::Malformed { what });
        if let Some(slice) = self.slices.get(&filter) {
            let ours = &slice.spec;
            if (ours.shape, ours.key) != (spec.shape, spec.key)
                || spec.generation > slice.generation
            {
                return malformed(format!("{filter} is {ours:?}, expected {spec:?}"));
            }
            return Ok(());
        }
        if self.slices.len() >= FILTER_COUNT_MAX {
            return malformed(format!("{filter} would be beyond {FILTER_COUNT_MAX} slices"));
        }
        self.slices.insert(filter, Slice::create(spec, self.range)?);
        Ok(())
    }

    fn clear(&mut self, filter: FilterId, generation: Generation) -> PartResult<()> {
        let (range, shard) = (self.range, self.shard);
        let unknown = PartError::UnknownSlice { filter, shard };
        let slice = self.slices.get_mut(&filter).ok_or(unknown)?;
        if generation > slice.generation {
            slice.clear(generation, range)
        } else {
            slice.check_generation(generation)
        }
    }

    fn renew(&mut self, filter: FilterId, generation: Generation) -> PartResult<()> {
        let unknown = PartError::UnknownSlice { filter, shard: self.shard };
        let slice = self.slices.get_mut(&filter).ok_or(unknown)?;
        slice.generation = slice.generation.max(generation);
        slice.check_generation(generation)
    }

    fn merge(
        &mut self,
        (target, generation): (FilterId, Generation),
        sources: &[(FilterId, Generation)],
        operation: SetOperation,
    ) -> PartResult<u64> {
        let slice = self.slice(target, generation)?;
        let given = self.given(sources)?;
        match operation {
            SetOperation::Intersection => slice.check_merge_shared(&given)?,
            _ => slice.check_merge(&given)?,
        }
        let gives_itself = sources.iter().any(|&(source, _)| source == target);
        if operation == SetOperation::Intersection && gives_itself {
            // The target already has everything that it has in common with others.
            return Ok(0);
        }
        // Removed from the map meanwhile, so that the sources can be read.
        let shard = self.shard;
        let unknown = PartError::UnknownSlice { filter: target, shard };
        let mut slice = self.slices.remove(&target).ok_or(unknown)?;
        let given = sources.iter().filter_map(|(source, _)| self.slices.get(source));
        let set = match operation {
            SetOperation::Intersection => slice.merge_shared(&given.collect::<Vec<_>>()),
            _ => given.map(|source| slice.merge(source)).sum::<PartResult<u64>>(),
        };
        self.slices.insert(target, slice);
        set
    }

    /// The slices of several filters, each at its generation.
    pub(super) fn given(&self, sources: &[(FilterId, Generation)]) -> PartResult<Vec<&Slice>> {
        sources.iter().map(|&(filter, generation)| self.slice(filter, generation)).collect()
    }

    /// The filter's slice, if it is at this generation.
    pub(super) fn slice(&self, filter: FilterId, generation: Generation) -> PartResult<&Slice> {
        self.check_open()?;
        let shard = self.shard;
        let slice = self.slices.get(&filter);
        let slice = slice.ok_or(PartError::UnknownSlice { filter, shard })?;
        slice.check_generation(generation)?;
        Ok(slice)
    }

    pub(super) fn slice_mut(
        &mut self,
        filter: FilterId,
        generation: Generation,
    ) -> PartResult<&mut Slice> {
        let shard = self.shard;
        let slice = self.slices.get_mut(&filter);
        let slice = slice.ok_or(PartError::UnknownSlice { filter, shard })?;
        slice.check_generation(generation)?;
        Ok(slice)
    }

    /// Metadata of a filter's slice, or None if there is none. Does not read the slice.
    #[must_use]
    pub fn summary(&self, filter: FilterId) -> Option<SliceSummary> {
        self.slices.get(&filter).map(Slice::summary)
    }

    /// Metadata and fill of a filter's slice, or None if there is none. Reads the whole slice.
    #[must_use]
    pub fn describe(&self, filter: FilterId) -> Option<SliceDescription> {
        let slice = self.slices.get(&filter)?;
        Some(SliceDescription { summary: slice.summary(), description: slice.filter.describe() })
    }

    /// Like `describe`, but incremental: each call counts `word_count` words, and returns None until
    /// `count`, fresh at the first call, covers the whole slice. Items inserted between two calls may be
    /// counted or not.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation; `count` is then unusable.
    pub fn describe_on(
        &self,
        (filter, generation): (FilterId, Generation),
        count: &mut OnesCount,
        word_count: usize,
    ) -> PartResult<Option<SliceDescription>> {
        let slice = self.slice(filter, generation)?;
        let described = |description| SliceDescription { summary: slice.summary(), description };
        Ok(count.count_on(&slice.filter, word_count).map(described))
    }

    /// All slices with their generations, in ascending order of filters.
    pub fn slices(&self) -> impl ExactSizeIterator<Item = (FilterId, Generation)> + '_ {
        self.slices.iter().map(|(&filter, slice)| (filter, slice.generation))
    }

    /// Ends what is kept for readers: they share the slices from now on. For who has another state in the place
    /// of this one, before readers see that.
    pub fn let_go_of_readers(&self) {
        self.slices.values().for_each(|slice| slice.filter.end_logs());
    }

    /// Bytes of memory for all slices' positions and the replay table's records.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let slices: u64 = self.slices.values().map(Slice::memory_bytes).sum();
        slices + self.replay.bytes() as u64
    }

    /// The frames of a slice in order of hash range, with payloads of at most this many bytes.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub fn export_frames(
        &self,
        filter: FilterId,
        generation: Generation,
        payload_bytes_max: usize,
    ) -> PartResult<Frames<'_>> {
        self.slice(filter, generation)?.frames(payload_bytes_max)
    }

    /// A digest of the whole state: equal states have equal digests, and different states collide with
    /// probability 2^-64. Reads everything.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        digest.push(self.shard.0.into());
        digest.push(self.range.start());
        digest.push(self.range.last());
        digest.push(self.slices.len() as u64);
        self.slices.values().for_each(|slice| slice.push_digest(&mut digest));
        self.replay.push_digest(self.range, &mut digest);
        self.marks.push_digest(&mut digest);
        digest.finish()
    }
}

/// Validates a received list, and returns its number of hashes.
pub(super) fn check_list(hashes: &HashList) -> PartResult<u32> {
    let malformed = |what: String| PartError::Malformed { what };
    hashes.check().map_err(|error| malformed(error.to_string()))?;
    match u32::try_from(hashes.len()) {
        Ok(count) if hashes.len() <= REQUEST_ITEMS_MAX => Ok(count),
        _ => {
            Err(malformed(format!("{} hashes, expected at most {REQUEST_ITEMS_MAX}", hashes.len())))
        }
    }
}
