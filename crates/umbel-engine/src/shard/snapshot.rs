//! Snapshots: transferring one replica's state to another.
//!
//! ```text
//! head     slices' specs, generations, counters; replay table         one message
//! frames   slice 0: │ frame │ frame │ …   slice 1: │ frame │ …        a stream, in this order
//! ```
//!
//! *Law.* A state loaded from a snapshot of s equals s: it has the same digest, and gives the same replies
//! to the same commands.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use umbel_codec::{AssembleError, FilterAssembler, FrameError, FrameView};
use umbel_filter::{AnyFilter, HashRange};

use super::command::SliceSpec;
use super::merge_marks::MergeMarks;
use super::part_error::PartError;
use super::positions::Positions;
use super::replay::{ReplayHead, ReplayLimits, ReplayTable};
use super::slice::{Slice, frame_key};
use super::slice_copy::{ShardOwner, SliceCopy, SliceReadError};
use super::slice_shape::SliceShapeError;
use super::state::{NO_INDEX, ShardState};
use crate::ids::{Generation, ShardId};
use crate::limits::{FILTER_COUNT_MAX, SLICE_BYTES_MAX, SNAPSHOT_FRAME_BYTES_CUT};
use umbel_step::planted::{self, Planted};

/// Bytes that a slice may take while it is loaded: the codes of crowded positions may be somewhat longer
/// than the estimate by which a single-shot slice stops growing.
pub(super) const LOADING_BYTES_MAX: u64 = 2 * SLICE_BYTES_MAX;

/// A consistent copy of a shard's state, which can be sent while the shard continues.
///
/// ```
/// use umbel_engine::ShardId;
/// use umbel_engine::shard::{ShardState, SnapshotLoader};
/// use umbel_filter::{AnyFilter, HashRange};
///
/// let state = ShardState::new(ShardId(3), HashRange::WHOLE);
/// let snapshot = state.snapshot();
/// let mut loader = SnapshotLoader::new(ShardId(3), HashRange::WHOLE, snapshot.head())?;
/// for frame in snapshot.frames() {
///     loader.push(&frame?)?;
/// }
/// assert_eq!(loader.finish()?.digest(), state.digest());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ShardSnapshot {
    head: ShardSnapshotHead,
    /// In the head's order.
    slices: VecDeque<SliceCopy>,
}

/// A snapshot without the positions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ShardSnapshotHead {
    shard: ShardId,
    /// First hash of the shard's range.
    start: u64,
    /// Last hash of the shard's range, inclusive.
    last: u64,
    /// In ascending order of filters.
    slices: Vec<SliceHead>,
    replay: ReplayHead,
    /// Stored beside the head: see [`with_marks`](Self::with_marks).
    #[serde(skip)]
    marks: MergeMarks,
}

impl ShardSnapshotHead {
    /// What merges left in the shard's state.
    #[must_use]
    pub const fn marks(&self) -> &MergeMarks {
        &self.marks
    }

    /// The head with these marks. They are encoded beside the head, and only if there are some, because
    /// nodes of clusters without merges do not know them.
    #[must_use]
    pub fn with_marks(self, marks: MergeMarks) -> Self {
        Self { marks, ..self }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct SliceHead {
    pub(super) spec: SliceSpec,
    pub(super) generation: Generation,
    new_count: u64,
    merged_count: u64,
}

impl SliceHead {
    /// The slice with this filter as its contents.
    fn with_filter(self, filter: AnyFilter) -> Slice {
        let Self { spec, generation, new_count, merged_count } = self;
        let filter = Positions::new(filter);
        Slice { spec, generation, new_count, merged_count, written_index: NO_INDEX, filter }
    }
}

/// Why a snapshot was refused. Request another one; a loader that has refused a frame cannot be used any
/// more.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum SnapshotError {
    /// The snapshot belongs to another shard.
    #[error(
        "snapshot of {got} over hashes {} to {}, expected {expected} over {} to at most {}",
        got_range.0, got_range.1, expected_range.0, expected_range.1
    )]
    WrongShard {
        /// The snapshot's shard.
        got: ShardId,
        /// First and last hash of the snapshot's range.
        got_range: (u64, u64),
        /// The shard that is being loaded.
        expected: ShardId,
        /// First and last hash of the expected range.
        expected_range: (u64, u64),
    },
    /// The head contradicts itself or exceeds a limit.
    #[error("malformed head: {what}")]
    Head {
        /// What was expected and what was received.
        what: String,
    },
    /// No slice has this shape.
    #[error(transparent)]
    Shape(#[from] SliceShapeError),
    /// The bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The frame is not the next one of the slice.
    #[error("frame of the slice numbered {slice}: {source}")]
    Assemble {
        /// Index of the slice in the head.
        slice: usize,
        /// What does not match.
        #[source]
        source: AssembleError,
    },
    /// There are more frames than the head announces.
    #[error("a frame behind the last of {slice_count} slices")]
    BeyondEnd {
        /// Number of slices.
        slice_count: usize,
    },
    /// There are fewer frames than the head announces.
    #[error("frames of {loaded} slices, expected {expected}")]
    Incomplete {
        /// Number of slices whose last frame has arrived.
        loaded: usize,
        /// Number of slices.
        expected: usize,
    },
}

impl ShardState {
    /// The current state. Slices are shared with it; each is copied only if it changes before the snapshot
    /// is done with it.
    #[must_use]
    pub fn snapshot(&self) -> ShardSnapshot {
        self.snapshot_of(|slice| SliceCopy::of(slice.clone()))
    }

    /// The same without copies where that is possible: see [`read_slice`](Self::read_slice). The owner has this
    /// state, and is not kept for the snapshot.
    #[must_use]
    pub fn snapshot_by(&self, owner: &Arc<dyn ShardOwner>) -> ShardSnapshot {
        self.snapshot_of(|slice| SliceCopy::read_by(owner, slice))
    }

    fn snapshot_of(&self, copy: impl Fn(&Slice) -> SliceCopy) -> ShardSnapshot {
        let mut slices: VecDeque<SliceCopy> = self.slices.values().map(copy).collect();
        if planted::on(Planted::SnapshotShort)
            && let (Some(last), Some(slice)) = (slices.back_mut(), self.slices.values().last())
        {
            let mut short = slice.clone();
            // A slice of this shape was created before.
            let _ = short.clear(slice.generation, self.range);
            *last = SliceCopy::of(short);
        }
        ShardSnapshot { head: self.snapshot_head(), slices }
    }

    fn snapshot_head(&self) -> ShardSnapshotHead {
        let Self { shard, range, slices, replay, marks, .. } = self;
        let slices = slices.values().map(|slice| SliceHead {
            spec: slice.spec.clone(),
            generation: slice.generation,
            new_count: slice.new_count,
            merged_count: slice.merged_count,
        });
        let (start, last) = range.bounds();
        let replay = if planted::on(Planted::IdsNotInSnapshot) {
            ReplayHead::default()
        } else {
            replay.head(*range)
        };
        let (shard, slices, marks) = (*shard, slices.collect(), marks.clone());
        ShardSnapshotHead { shard, start, last, slices, replay, marks }
    }
}

impl ShardSnapshot {
    /// The snapshot without the positions.
    #[must_use]
    pub fn head(&self) -> ShardSnapshotHead {
        self.head.clone()
    }

    /// The frames of all slices, in the head's order, with payloads of up to [`SNAPSHOT_FRAME_BYTES_CUT`].
    /// Each is built when it is requested.
    #[expect(clippy::missing_panics_doc, reason = "keys are checked when slices are created")]
    pub fn frames(&self) -> impl Iterator<Item = Result<Vec<u8>, SliceReadError>> + '_ {
        self.slices.iter().flat_map(|slice| {
            let frames = slice.frames(SNAPSHOT_FRAME_BYTES_CUT);
            frames.expect("a slice's key was checked when it was created")
        })
    }

    /// Takes the next slice in the head's order out of the snapshot; None after the last. When a snapshot
    /// is written slice by slice, what is kept for a slice goes with it.
    ///
    /// ```
    /// use umbel_engine::{FilterId, Generation, ShardId, shard::*};
    /// use umbel_filter::{HashFunction, HashRange, Kind};
    ///
    /// let shape = SliceShape::SingleShot { position_count: 1 << 20 };
    /// let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
    /// let spec = SliceSpec { filter: FilterId(1), generation: Generation(1), shape, key };
    /// let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
    /// state.apply(&ShardCommand::CreateSlice(spec));
    /// let mut snapshot = state.snapshot();
    /// let head = snapshot.head();
    /// let mut frame_count = 0;
    /// while let Some(slice) = snapshot.take_slice() {
    ///     frame_count += slice.frames(1 << 20)?.count();
    /// }
    /// assert_eq!(frame_count, 1);
    /// # Ok::<(), PartError>(())
    /// ```
    pub fn take_slice(&mut self) -> Option<SliceCopy> {
        self.slices.pop_front()
    }
}

/// Rebuilds a state from a snapshot's head and its frames in order. Total: any input leads to a state or an
/// error, and no more memory is allocated than a shard may use.
#[derive(Debug)]
pub struct SnapshotLoader {
    state: ShardState,
    heads: Vec<SliceHead>,
    /// Number of slices whose last frame has arrived.
    loaded: usize,
    /// The slice in progress.
    assembler: Option<FilterAssembler>,
}

impl SnapshotLoader {
    /// Validates the head. `range` is the range that the shard began with: the snapshot's range must be
    /// that, or, after splits, a part of it with the same start.
    ///
    /// # Errors
    /// If the snapshot belongs to another shard, contradicts itself, or exceeds a limit.
    pub fn new(
        shard: ShardId,
        range: HashRange,
        head: ShardSnapshotHead,
    ) -> Result<Self, SnapshotError> {
        let ShardSnapshotHead { shard: got, start, last, slices: heads, replay, marks } = head;
        let (got_range, expected_range) = ((start, last), range.bounds());
        let own = HashRange::from_bounds(got_range).ok();
        let own = own.filter(|own| own.start() == range.start() && own.end() <= range.end());
        let Some(range) = own.filter(|_| got == shard) else {
            let expected = shard;
            return Err(SnapshotError::WrongShard { got, got_range, expected, expected_range });
        };
        let malformed = |what: String| SnapshotError::Head { what };
        if heads.len() > FILTER_COUNT_MAX {
            return Err(malformed(format!(
                "{} slices, expected at most {FILTER_COUNT_MAX}",
                heads.len()
            )));
        }
        for head in &heads {
            check_slice(head, range)?;
        }
        for (before, after) in heads.iter().zip(heads.iter().skip(1)) {
            if before.spec.filter >= after.spec.filter {
                let (before, after) = (before.spec.filter, after.spec.filter);
                return Err(malformed(format!("slice of {after} behind that of {before}")));
            }
        }
        let replay =
            ReplayTable::from_head(ReplayLimits::SHARD, range, &replay).map_err(malformed)?;
        marks.check(shard).map_err(malformed)?;
        let slices = BTreeMap::new();
        let state = ShardState { shard, range, slices, replay, scrubbed: None, marks };
        let mut loader = Self { state, heads, loaded: 0, assembler: None };
        loader.take_empty()?;
        Ok(loader)
    }

    /// Creates the next slices that have no frames: those of filters that live in other shards.
    fn take_empty(&mut self) -> Result<(), SnapshotError> {
        let range = self.state.range;
        while let Some(head) = self.heads.get(self.loaded) {
            if head.spec.shape.lives_in(range) {
                break;
            }
            let filter = head.spec.shape.create(range)?;
            let loaded = head.clone().with_filter(filter);
            self.insert(loaded);
        }
        Ok(())
    }

    fn insert(&mut self, loaded: Slice) {
        self.state.slices.insert(loaded.spec.filter, loaded);
        self.loaded += 1;
    }

    /// Takes the next frame.
    ///
    /// # Errors
    /// If the bytes are not exactly the next frame.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), SnapshotError> {
        let slice = self.loaded;
        let Some(head) = self.heads.get(slice) else {
            return Err(SnapshotError::BeyondEnd { slice_count: self.heads.len() });
        };
        let (view, consumed) = FrameView::parse(frame)?;
        if consumed != frame.len() {
            let what = format!("{} bytes, the frame has {consumed}", frame.len());
            return Err(SnapshotError::Head { what });
        }
        let wrong = |source| SnapshotError::Assemble { slice, source };
        let mut assembler = match self.assembler.take() {
            Some(assembler) => assembler,
            None => {
                let shape = head.spec.shape.shape_of_frame(self.state.range, &view)?;
                let key = frame_key(head.spec.key).map_err(|error| in_head(&error))?;
                FilterAssembler::new(shape, key, LOADING_BYTES_MAX).map_err(wrong)?
            }
        };
        assembler.push(&view).map_err(wrong)?;
        if !ends_slice(&view, self.state.range) {
            self.assembler = Some(assembler);
            return Ok(());
        }
        let mut filter = assembler.finish().map_err(wrong)?;
        if let AnyFilter::Stable(stable) = &mut filter
            && planted::on(Planted::StableCountLost)
        {
            stable.parts_mut().1.fill(0);
        }
        let loaded = head.clone().with_filter(filter);
        self.insert(loaded);
        self.take_empty()
    }

    /// Returns the state.
    ///
    /// # Errors
    /// If frames are missing.
    pub fn finish(self) -> Result<ShardState, SnapshotError> {
        let (loaded, expected) = (self.loaded, self.heads.len());
        if loaded < expected {
            return Err(SnapshotError::Incomplete { loaded, expected });
        }
        Ok(self.state)
    }
}

/// Whether a frame is the last one of a slice over `range`.
pub(super) fn ends_slice(view: &FrameView<'_>, range: HashRange) -> bool {
    let is_last_level = view.level().is_none_or(|level| level.level + 1 == level.level_count);
    let end = if view.kind().is_whole() { HashRange::WHOLE.end() } else { range.end() };
    view.range().end() >= end && is_last_level
}

/// Validates what creating the slice would validate.
fn check_slice(head: &SliceHead, range: HashRange) -> Result<(), SnapshotError> {
    let SliceHead { spec, generation, .. } = head;
    frame_key(spec.key).map_err(|error| in_head(&error))?;
    let slice_bytes = spec.shape.memory_bytes(range)?;
    if slice_bytes > SLICE_BYTES_MAX {
        return Err(SliceShapeError::TooLarge { slice_bytes }.into());
    }
    if *generation < spec.generation {
        let what = format!("{} at {generation}, created at {}", spec.filter, spec.generation);
        return Err(SnapshotError::Head { what });
    }
    Ok(())
}

fn in_head(error: &PartError) -> SnapshotError {
    SnapshotError::Head { what: error.to_string() }
}

#[cfg(test)]
impl ShardSnapshotHead {
    pub(super) fn slices_len(&self) -> usize {
        self.slices.len()
    }

    pub(super) fn with_slices(mut self, change: impl FnOnce(&mut Vec<SliceHead>)) -> Self {
        change(&mut self.slices);
        self
    }
}
