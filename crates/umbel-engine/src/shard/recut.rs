//! Re-cuts a copy of a filter that was cut for fewer shards, slice by slice.
//!
//! ```text
//! the copy's shards     │ 0                       │ 1                       │   frames in this order
//! those of the cluster  │ 0          │ 2          │ 1          │ 3          │   frames of each part
//! ```
//!
//! A slice is assembled from its frames, and its parts are cut as in a split. Loading the parts' frames
//! gives each shard what it would have if the cluster had been split while it held the filter. At most one
//! slice and one part of it are in memory at a time.
//!
//! *Law.* A filter loaded from the parts' frames gives the same answer for each item as the copy.

use umbel_codec::{FilterAssembler, FrameKey, FrameView, Frames, frames};
use umbel_filter::{AnyFilter, HashRange};

use super::command::KeyName;
use super::part_error::PartError;
use super::slice::frame_key;
use super::slice_shape::SliceShape;
use super::snapshot::{LOADING_BYTES_MAX, ends_slice};
use crate::ids::ShardId;
use crate::placement::ShardRanges;
use crate::shard::PartResult;

/// Takes the frames of a copy, and returns each slice after its last frame.
///
/// ```
/// use umbel_engine::ShardId;
/// use umbel_engine::placement::ShardRanges;
/// use umbel_engine::shard::{KeyName, Recut, SliceShape};
/// use umbel_codec::{FrameKey, frames};
/// use umbel_filter::{Blocked, HashFunction, HashRange, Insert, ItemHash, Kind};
///
/// let mut filter = Blocked::new(HashRange::WHOLE, 16, 6)?;
/// filter.insert(ItemHash::new(3 << 62, 7))?;
/// let (function, key_id) = (HashFunction::Xxh3Seeded, 7);
/// let frame = frames(&filter, FrameKey { function, key_id }, 1 << 20).next().unwrap()?;
///
/// let (kind, block_bits, probe_count) = (Kind::Blocked.id(), 512, 6);
/// let shape = SliceShape::Blocks { kind, block_count: 16, block_bits, probe_count };
/// let key = KeyName { function: function.id(), key_id };
/// let (theirs, ours) = (ShardRanges::new(1, 1)?, ShardRanges::new(1, 2)?);
/// let mut recut = Recut::new(shape, key, theirs, ours)?;
/// let slice = recut.push(ShardId(0), &frame)?.expect("it was its last frame");
/// let shards: Vec<u32> = slice.parts().map(|(shard, _)| shard.0).collect();
/// assert_eq!(shards, [0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recut {
    shape: SliceShape,
    key: FrameKey,
    theirs: ShardRanges,
    ours: ShardRanges,
    building: Option<(ShardId, FilterAssembler)>,
}

/// One slice of the copy.
#[derive(Debug)]
pub struct RecutSlice {
    filter: AnyFilter,
    key: FrameKey,
    range: HashRange,
    ours: ShardRanges,
}

/// One of our shards' part of a slice.
#[derive(Debug)]
pub struct SlicePart {
    filter: AnyFilter,
    key: FrameKey,
}

impl Recut {
    /// A recut of slices of this shape that were cut by `theirs`, into slices cut by `ours`.
    ///
    /// # Errors
    /// If a range of ours is not within a single one of theirs, or the key's hash function is unknown.
    pub fn new(
        shape: SliceShape,
        key: KeyName,
        theirs: ShardRanges,
        ours: ShardRanges,
    ) -> PartResult<Self> {
        if !ours.refine(theirs) {
            let what = format!(
                "{} shards that were {} are cut for no part of {} that were {}",
                theirs.count(),
                theirs.founded(),
                ours.count(),
                ours.founded()
            );
            return Err(PartError::ShapeMismatch { what });
        }
        let key = frame_key(key)?;
        Ok(Self { shape, key, theirs, ours, building: None })
    }

    /// Takes the next frame, which belongs to one of their shards. Returns the slice if the frame was its
    /// last.
    ///
    /// # Errors
    /// If the frame is not the slice's next one, or belongs to another slice than the one in progress.
    pub fn push(&mut self, shard: ShardId, frame: &[u8]) -> PartResult<Option<RecutSlice>> {
        let bad = |what: String| PartError::BadFrame { what: format!("{shard}: {what}") };
        let range = self.theirs.range(shard).ok_or_else(|| bad("there is no such".to_owned()))?;
        let (view, consumed) = FrameView::parse(frame).map_err(|error| bad(error.to_string()))?;
        if consumed != frame.len() {
            return Err(bad(format!("{} bytes, the frame has {consumed}", frame.len())));
        }
        let mut assembler = match self.building.take() {
            Some((of, assembler)) if of == shard => assembler,
            Some((of, _)) => return Err(bad(format!("a frame came before the last of {of}"))),
            None => {
                let shape = self.shape.shape_of_frame(range, &view);
                let shape = shape.map_err(|error| bad(error.to_string()))?;
                FilterAssembler::new(shape, self.key, LOADING_BYTES_MAX)
                    .map_err(|error| bad(error.to_string()))?
            }
        };
        assembler.push(&view).map_err(|error| bad(error.to_string()))?;
        if !ends_slice(&view, range) {
            self.building = Some((shard, assembler));
            return Ok(None);
        }
        let filter = assembler.finish().map_err(|error| bad(error.to_string()))?;
        Ok(Some(RecutSlice { filter, key: self.key, range, ours: self.ours }))
    }

    /// Whether a slice is in progress, with frames missing.
    #[must_use]
    pub const fn is_within_a_slice(&self) -> bool {
        self.building.is_some()
    }
}

impl RecutSlice {
    /// The part of each of our shards, in the order of their ranges. Each part is made when it is
    /// requested.
    pub fn parts(&self) -> impl Iterator<Item = (ShardId, PartResult<SlicePart>)> + '_ {
        let within = |(_, range): &(ShardId, HashRange)| self.range.covers(*range);
        self.ours.in_order().filter(within).map(|(shard, range)| {
            let part = self.filter.part(range);
            let part = part.map_err(|error| PartError::Malformed { what: error.to_string() });
            (shard, part.map(|filter| SlicePart { filter, key: self.key }))
        })
    }
}

impl SlicePart {
    /// The frames of the part, in loading order.
    pub fn frames(&self, payload_bytes_max: usize) -> Frames<'_> {
        frames(&self.filter, self.key, payload_bytes_max)
    }
}
