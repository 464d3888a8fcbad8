//! One filter's slice in one shard, and the operations of its kind.

use std::alloc::{Layout, handle_alloc_error};

use umbel_codec::{FrameKey, FrameMergeError, FrameView, Frames, frames};
use umbel_filter::{
    AnyFilter, Contains, CreateError, Describe, Description, HashFunction, HashRange, Insert,
    InsertError, Insertion, ItemHash, Kind, LevelsError, MergeError, Removal, RemoveError,
    StoredSingleShot,
};

use super::bitmap::Bitmap;
use super::command::{KeyName, SliceSpec};
use super::hash_list::HashList;
use super::part_error::PartError;
use super::positions::Positions;
use super::slice_growth::{
    check_opening, grown_for, insert_quotient, insert_redis_bloom, insert_scalable, level_items,
    memory_of,
};
use super::slice_shape::{SliceShapeError, single_shot_bytes};
use crate::ids::{FilterId, Generation, ShardId};
use crate::limits::SLICE_BYTES_MAX;
use crate::shard::PartResult;
use umbel_step::planted::{self, Planted};

/// A slice: its filter over the shard's hash range.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    /// The parameters it was created with.
    pub(super) spec: SliceSpec,
    pub(super) generation: Generation,
    /// Items answered new since the slice was created or cleared.
    pub(super) new_count: u64,
    /// Positions that merges and loaded frames have set since the generation began.
    pub(super) merged_count: u64,
    /// Index of the last entry that may have changed it. Not part of the replicated state: after installing
    /// a snapshot, a replica only knows an index that is the same or higher.
    pub(super) written_index: u64,
    pub(super) filter: Positions,
}

/// Metadata of a slice, available without reading its positions.
///
/// ```
/// use umbel_engine::{FilterId, Generation, ShardId, shard::*};
/// use umbel_filter::{HashFunction, HashRange, Kind};
///
/// let shape = SliceShape::Blocks {
///     kind: Kind::Blocked.id(), block_count: 10, block_bits: 512, probe_count: 6,
/// };
/// let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
/// let spec = SliceSpec { filter: FilterId(1), generation: Generation(1), shape, key };
/// let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
/// state.apply(&ShardCommand::CreateSlice(spec));
/// let summary = state.summary(FilterId(1)).expect("it was created");
/// assert_eq!((summary.memory_bytes, summary.new_count), (640, 0));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct SliceSummary {
    /// The parameters it was created with.
    pub spec: SliceSpec,
    /// The slice's current generation.
    pub generation: Generation,
    /// Number of items answered new since the slice was created or cleared. Merged filters and loaded
    /// frames are not counted, and removed items are not subtracted.
    pub new_count: u64,
    /// Number of positions that merged filters and loaded frames have set since the generation began.
    pub merged_count: u64,
    /// Bytes of memory for the positions.
    pub memory_bytes: u64,
    /// Number of new items that fit before the slice grows; None for kinds that do not grow.
    pub room: Option<u64>,
}

/// Metadata and fill of a slice. Computing it reads the whole slice.
#[derive(Clone, PartialEq, Debug)]
pub struct SliceDescription {
    /// The metadata.
    pub summary: SliceSummary,
    /// Size and load of the filter over the shard's hash range.
    pub description: Description,
}

impl Slice {
    /// An empty slice.
    pub(super) fn create(spec: &SliceSpec, range: HashRange) -> PartResult<Self> {
        frame_key(spec.key)?;
        let filter = spec.shape.create(range).map_err(|error| match error {
            SliceShapeError::Create(CreateError::OutOfMemory { bytes }) => stop(bytes),
            error => PartError::Malformed { what: error.to_string() },
        })?;
        let (spec, generation, filter) = (spec.clone(), spec.generation, Positions::new(filter));
        Ok(Self { spec, generation, new_count: 0, merged_count: 0, written_index: 0, filter })
    }

    /// Empties the slice and starts the given generation.
    pub(super) fn clear(&mut self, generation: Generation, range: HashRange) -> PartResult<()> {
        let empty = Self::create(&self.spec, range)?;
        (self.filter, self.generation) = (empty.filter, generation);
        (self.new_count, self.merged_count) = (0, 0);
        Ok(())
    }

    pub(super) fn kind(&self) -> Kind {
        self.filter.kind()
    }

    /// Whether set positions stay set until the slice is cleared.
    pub(super) fn is_monotone(&self) -> bool {
        self.kind().is_monotone()
    }

    /// Refuses a request for another generation.
    pub(super) fn check_generation(&self, got: Generation) -> PartResult<()> {
        let (filter, current) = (self.spec.filter, self.generation);
        if got == current {
            Ok(())
        } else {
            Err(PartError::StaleGeneration { filter, got, current })
        }
    }

    /// Inserts hashes of the shard's range, and returns one outcome for each. A growing slice may take up
    /// to `growth_bytes` beyond its initial size.
    pub(super) fn insert(
        &mut self,
        hashes: &[ItemHash],
        growth_bytes: u64,
    ) -> PartResult<Vec<Insertion>> {
        let id = self.spec.filter;
        let planned_bytes = if self.kind().grows() { self.planned_bytes() } else { 0 };
        let slice_bytes_max = planned_bytes.saturating_add(growth_bytes).min(SLICE_BYTES_MAX);
        let mut outcomes = Vec::with_capacity(hashes.len());
        let outcome = match self.filter.change_items(&hashes.iter().copied()) {
            AnyFilter::Scalable(filter) => {
                insert_scalable(id, filter, hashes, &mut outcomes, slice_bytes_max)
            }
            AnyFilter::SingleShot(filter) => room_for(id, filter, 0)
                .and_then(|()| filter.insert_batch(hashes, &mut outcomes).map_err(refused)),
            AnyFilter::Window(_) => {
                let what = format!("an insert into the window of {id} without a time");
                Err(PartError::Malformed { what })
            }
            // All or none, so that a refused request can be retried: inserting an item twice would count it
            // twice.
            AnyFilter::Cuckoo(filter) => {
                filter.insert_all(hashes, &mut outcomes).map_err(|error| no_room(id, error))
            }
            AnyFilter::Quotient(filter) => {
                insert_quotient(id, filter, hashes, &mut outcomes, slice_bytes_max)
            }
            AnyFilter::RedisBloom(filter) => {
                insert_redis_bloom(id, filter, hashes, &mut outcomes, slice_bytes_max)
            }
            filter => {
                if let AnyFilter::Aging(aging) = filter
                    && planted::on(Planted::AgesEarly)
                    && aging.counts()[0] > 0
                {
                    aging.turn();
                }
                if let AnyFilter::Stable(stable) = filter
                    && planted::on(Planted::StableForgetsAll)
                {
                    stable.parts_mut().0.fill(0);
                }
                filter.insert_batch(hashes, &mut outcomes).map_err(refused)
            }
        };
        self.count_new(&outcomes);
        outcome.map(|()| outcomes)
    }

    pub(super) fn count_new(&mut self, outcomes: &[Insertion]) {
        let is_new = |outcome: &&Insertion| **outcome == Insertion::New;
        self.new_count += outcomes.iter().filter(is_new).count() as u64;
    }

    /// The error for an insert that a window refused.
    pub(super) fn refused(&self, error: InsertError) -> PartError {
        match error {
            InsertError::Full { item_count } => PartError::Full {
                filter: self.spec.filter,
                what: format!(
                    "its slice holds {item_count} items of the window, for which it was made; wait \
                     until the oldest end, or create it for more"
                ),
            },
            error => refused(error),
        }
    }

    /// Removes hashes of the shard's range. A one in the answer means that the item was removed.
    pub(super) fn remove(
        &mut self,
        hashes: impl ExactSizeIterator<Item = ItemHash> + Clone,
    ) -> PartResult<Bitmap> {
        if !self.kind().removes() {
            return Err(no_removal(self.kind()));
        }
        let takes_two = self.kind().tells_copies() && planted::on(Planted::RemovalTakesTwo);
        let filter = self.filter.change_items(&hashes);
        Ok(Bitmap::from_bools(hashes.map(|hash| {
            // The kind and the range have been checked.
            let is_removed = filter.remove(hash).is_ok_and(|removal| removal == Removal::Removed);
            if takes_two {
                let _ = filter.remove(hash);
            }
            is_removed
        })))
    }

    /// Refuses hashes of other shards: those outside the range, or all of them if the filter lives in
    /// another shard.
    pub(super) fn check_hashes(
        &self,
        range: HashRange,
        shard: ShardId,
        hashes: &HashList,
    ) -> PartResult<()> {
        if !self.kind().is_whole() {
            return if range == HashRange::WHOLE {
                Ok(())
            } else {
                check_range(range, shard, hashes.iter())
            };
        }
        match hashes.iter().next() {
            Some(hash) if !self.spec.shape.lives_in(range) => {
                Err(PartError::ForeignHash { hi: hash.hi(), shard })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn contains(&self, hashes: &[ItemHash]) -> Vec<bool> {
        let mut present = Vec::with_capacity(hashes.len());
        self.filter.contains_batch(hashes, &mut present);
        present
    }

    /// How often each item may be present. Only for kinds that tell copies.
    pub(super) fn copies(&self, hashes: &HashList) -> PartResult<Vec<u64>> {
        match &*self.filter {
            AnyFilter::Cuckoo(filter) => {
                Ok(hashes.iter().map(|hash| filter.copies(hash)).collect())
            }
            AnyFilter::Quotient(filter) => {
                Ok(hashes.iter().map(|hash| filter.copies(hash)).collect())
            }
            _ => {
                let what = format!("{} filters do not tell how often an item is in", self.kind());
                Err(PartError::WrongKind { what })
            }
        }
    }

    /// Refuses kinds that do not merge and sources that do not match, before anything is changed.
    pub(super) fn check_merge(&self, sources: &[&Self]) -> PartResult<()> {
        let kind = self.kind();
        if !kind.merges_by_or() {
            return Err(PartError::WrongKind { what: format!("{kind} filters are not merged") });
        }
        let mut positions = 0;
        for source in sources {
            self.check_alike(source)?;
            if let AnyFilter::SingleShot(theirs) = &*source.filter {
                positions += theirs.len();
            }
        }
        match &*self.filter {
            AnyFilter::SingleShot(ours) => room_for(self.spec.filter, ours, positions),
            _ => Ok(()),
        }
    }

    /// Refuses a slice whose positions stand for other items. Positions of quotient filters are comparable
    /// however often each filter has grown.
    pub(super) fn check_alike(&self, other: &Self) -> PartResult<()> {
        let (ours, theirs) = (self.filter.shape(), other.filter.shape());
        let is_grown = self.kind() == Kind::Quotient && self.spec.shape == other.spec.shape;
        if ours != theirs && !is_grown {
            let what = format!("ours is {ours}; that of {} {theirs}", other.spec.filter);
            return Err(PartError::ShapeMismatch { what });
        }
        if self.spec.key != other.spec.key {
            let (ours, theirs) = (self.spec.key, other.spec.key);
            let what = format!("ours is hashed by {ours}, {} by {theirs}", other.spec.filter);
            return Err(PartError::ShapeMismatch { what });
        }
        Ok(())
    }

    /// ORs in a source that `check_merge` has accepted.
    pub(super) fn merge(&mut self, source: &Self) -> PartResult<u64> {
        let merged = self.filter.change().merge(&source.filter);
        self.count_merged(merged)
    }

    /// Refuses kinds that are not bit arrays and sources that do not match, before anything is changed.
    pub(super) fn check_merge_shared(&self, sources: &[&Self]) -> PartResult<()> {
        let kind = self.kind();
        if !kind.is_bit_array() {
            let what = format!("{kind} filters are not intersected");
            return Err(PartError::WrongKind { what });
        }
        sources.iter().try_for_each(|source| self.check_alike(source))
    }

    /// ORs in what all sources have in common, after `check_merge_shared` has accepted them.
    pub(super) fn merge_shared(&mut self, sources: &[&Self]) -> PartResult<u64> {
        let sources: Vec<&AnyFilter> = sources.iter().map(|source| &*source.filter).collect();
        let merged = self.filter.change().merge_shared(&sources);
        self.count_merged(merged)
    }

    pub(super) fn count_merged(&mut self, merged: Result<u64, MergeError>) -> PartResult<u64> {
        let set = merged.map_err(|error| PartError::ShapeMismatch { what: error.to_string() })?;
        self.merged_count = self.merged_count.saturating_add(set);
        Ok(set)
    }

    /// ORs in a frame.
    pub(super) fn load(&mut self, frame: &[u8]) -> PartResult<u64> {
        let bad = |what: String| PartError::BadFrame { what };
        let (view, consumed) = FrameView::parse(frame).map_err(|error| bad(error.to_string()))?;
        if consumed != frame.len() {
            return Err(bad(format!("{} bytes, the frame has {consumed}", frame.len())));
        }
        match &*self.filter {
            AnyFilter::SingleShot(filter) => {
                room_for(self.spec.filter, filter, view.count())?;
            }
            filter => check_opening(self.spec.filter, filter, &view)?,
        }
        let key = frame_key(self.spec.key)?;
        let items_before = level_items(&self.filter);
        let mut grown = grown_for(&self.filter, &view)?;
        let receiver = match &mut grown {
            Some(grown) => grown,
            None => self.filter.change(),
        };
        let set = view.merge_into(receiver, key).map_err(|error| match error {
            FrameMergeError::Key(_) | FrameMergeError::Shape(_) => {
                PartError::ShapeMismatch { what: error.to_string() }
            }
            FrameMergeError::Levels(error) => match *error {
                LevelsError::Create { source: CreateError::OutOfMemory { bytes }, .. } => {
                    stop(bytes)
                }
                error => bad(error.to_string()),
            },
            _ => bad(error.to_string()),
        })?;
        if let Some(grown) = grown {
            self.filter = Positions::new(grown);
        }
        self.merged_count = self.merged_count.saturating_add(set);
        // Levels know how many items they took.
        self.new_count += level_items(&self.filter) - items_before;
        Ok(set)
    }

    pub(super) fn frames(&self, payload_bytes_max: usize) -> PartResult<Frames<'_>> {
        Ok(frames(&*self.filter, frame_key(self.spec.key)?, payload_bytes_max))
    }

    /// Bytes of memory for the positions.
    pub(super) fn memory_bytes(&self) -> u64 {
        match &*self.filter {
            AnyFilter::SingleShot(filter) => filter.memory_bytes(),
            AnyFilter::Scalable(filter) => memory_of(filter),
            AnyFilter::Blocked(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::Classic(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::Partitioned(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::Counting(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::Window(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::Aging(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::Stable(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::Cuckoo(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::Quotient(filter) => filter.block_shape().memory_bytes(),
            AnyFilter::RedisBloom(filter) => filter.memory_bytes(),
        }
    }

    pub(super) fn summary(&self) -> SliceSummary {
        SliceSummary {
            spec: self.spec.clone(),
            generation: self.generation,
            new_count: self.new_count,
            merged_count: self.merged_count,
            memory_bytes: self.memory_bytes(),
            room: self.filter.room(),
        }
    }
}

/// Refuses to grow a single-shot slice that is at its limit, or would be with `more` positions. The limit
/// depends on the number of positions, not on allocated bytes, in which replicas may differ.
fn room_for(id: FilterId, filter: &StoredSingleShot, more: u64) -> PartResult<()> {
    let positions = filter.len().saturating_add(more);
    let bytes = single_shot_bytes(filter, more);
    if bytes > SLICE_BYTES_MAX {
        let what = format!(
            "its slice of {positions} positions takes {bytes} bytes, expected at most \
             {SLICE_BYTES_MAX}; nothing was inserted"
        );
        return Err(PartError::Full { filter: id, what });
    }
    Ok(())
}

/// Ranges and growth were checked before, so only memory can be missing.
pub(super) fn refused(error: InsertError) -> PartError {
    match error {
        InsertError::Grow(CreateError::OutOfMemory { bytes }) => stop(bytes),
        error => PartError::Malformed { what: error.to_string() },
    }
}

/// Stops the process, as at any other failed allocation. Refusing the command instead would make this
/// replica differ from those that had enough memory.
pub(super) fn stop(bytes: u64) -> ! {
    let bytes = usize::try_from(bytes).ok().and_then(|bytes| Layout::array::<u8>(bytes).ok());
    handle_alloc_error(bytes.unwrap_or(Layout::new::<u64>()))
}

/// The error for a part for which a table has no room. None of its items were inserted.
fn no_room(id: FilterId, error: InsertError) -> PartError {
    match error {
        InsertError::Full { item_count } => PartError::Full {
            filter: id,
            what: format!(
                "its slice holds {item_count} items and has no room for these; remove some, or \
                 create it for more"
            ),
        },
        error => refused(error),
    }
}

pub(super) fn no_removal(kind: Kind) -> PartError {
    PartError::WrongKind { what: RemoveError::Unsupported { kind }.to_string() }
}

/// The key as frames name it, if this release knows its hash function.
pub(super) fn frame_key(key: KeyName) -> PartResult<FrameKey> {
    let function = HashFunction::from_id(key.function).ok_or_else(|| PartError::Malformed {
        what: format!("hash function {}, which this release does not know", key.function),
    })?;
    Ok(FrameKey { function, key_id: key.key_id })
}

/// Refuses hashes outside the range.
fn check_range(
    range: HashRange,
    shard: ShardId,
    mut hashes: impl Iterator<Item = ItemHash>,
) -> PartResult<()> {
    match hashes.find(|hash| !range.contains(hash.hi())) {
        Some(hash) => Err(PartError::ForeignHash { hi: hash.hi(), shard }),
        None => Ok(()),
    }
}
