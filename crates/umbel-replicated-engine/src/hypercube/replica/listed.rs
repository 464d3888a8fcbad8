//! Encoding changes as frames that list them, and reading such frames.

use umbel_codec::{FrameChanges, FrameError, FrameKey, FrameMergeError, FrameView, frames};
use umbel_filter::{BlockProbe, Shape, ShapeMismatch, SingleShot, SparseBlocked};

use super::probe_of;
use crate::hypercube::delta::DeltaError;
use crate::limits::DELTA_LIST_BYTES_MAX;
use umbel_engine::NodeId;
use umbel_step::planted::{self, Planted};

/// The changes that a delta lists.
#[derive(Clone, PartialEq, Debug)]
pub struct ListedChanges {
    shape: Shape,
    key: FrameKey,
    payload_bytes_max: usize,
    entries: Vec<u64>,
}

impl ListedChanges {
    pub(super) const fn new(
        shape: Shape,
        key: FrameKey,
        payload_bytes_max: usize,
        entries: Vec<u64>,
    ) -> Self {
        Self { shape, key, payload_bytes_max, entries }
    }

    /// The frames that list the changes.
    ///
    /// # Panics
    /// If the payload limit is smaller than a few codes.
    #[must_use]
    pub fn into_frames(mut self) -> Vec<Vec<u8>> {
        self.entries.sort_unstable();
        self.entries.dedup();
        if self.entries.is_empty() {
            return Vec::new();
        }
        let Self { shape, key, payload_bytes_max, entries } = self;
        let whole = |frame: Result<_, _>| frame.expect("a payload holds a few codes");
        match shape {
            Shape::SingleShot(shape) => {
                let listed = SingleShot::from_positions(shape, entries);
                let listed = listed.expect("positions were sorted, and are the filter's");
                frames(&listed, key, payload_bytes_max).map(whole).collect()
            }
            Shape::Blocks(shape) => {
                let probes = entries.into_iter().map(probe_of).collect();
                let listed = SparseBlocked::from_probes(shape, probes);
                let listed = listed.expect("probes were sorted, and are the filter's");
                frames(&listed, key, payload_bytes_max).map(whole).collect()
            }
            Shape::Scalable(_) | Shape::RedisBloom(_) => unreachable!("not replicable"),
        }
    }
}

/// Reads frames that list changes, without access to the replica that they are for.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_replicated_engine::hypercube::{ChangeReader, ReadChanges};
///
/// fn read(reader: ChangeReader, frames: &[Vec<u8>]) -> Option<ReadChanges> {
///     let mut read = ReadChanges::default();
///     frames.iter().try_for_each(|frame| reader.read(NodeId(2), frame, &mut read)).ok()?;
///     Some(read)
/// }
/// # let _ = read;
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChangeReader {
    shape: Shape,
    key: FrameKey,
    /// Bytes that the lists of one delta may take.
    list_bytes_max: u64,
}

/// Changes read from frames with the right shape and key.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReadChanges {
    frames: Vec<FrameChanges>,
    list_bytes: u64,
}

impl ReadChanges {
    pub(super) fn into_frames(self) -> Vec<FrameChanges> {
        self.frames
    }

    /// Bytes of memory for the changes.
    ///
    /// ```
    /// assert_eq!(umbel_replicated_engine::hypercube::ReadChanges::default().list_bytes(), 0);
    /// ```
    #[must_use]
    pub const fn list_bytes(&self) -> u64 {
        self.list_bytes
    }
}

impl ChangeReader {
    pub(super) const fn new(shape: Shape, key: FrameKey) -> Self {
        Self { shape, key, list_bytes_max: DELTA_LIST_BYTES_MAX }
    }

    /// Reads the next frame of a delta.
    ///
    /// # Errors
    /// If the frame is damaged, has another shape or key, or lists no changes, or if all frames
    /// together list too many. Nothing of the frame was kept then.
    pub fn read(
        &self,
        from: NodeId,
        frame: &[u8],
        read: &mut ReadChanges,
    ) -> Result<(), DeltaError> {
        if planted::on(Planted::FirstFrameIsAll) && !read.frames.is_empty() {
            return Ok(());
        }
        let frame_error = |source| DeltaError::Frame { from, source };
        let view = self.view(frame).map_err(frame_error)?;
        let list_bytes_max = self.list_bytes_max;
        let too_long = DeltaError::TooLong { from, list_bytes_max };
        // A frame takes memory even if its list is empty.
        let taken = read.list_bytes + size_of::<FrameChanges>() as u64;
        let Some(left) = list_bytes_max.checked_sub(taken) else { return Err(too_long) };
        let changes = match view.to_changes(self.key, left) {
            Ok(changes) => changes.ok_or(DeltaError::Unlisted { from })?,
            Err(FrameMergeError::Frame(FrameError::FilterTooLarge { .. })) => return Err(too_long),
            Err(source) => return Err(frame_error(source)),
        };
        read.list_bytes = taken + list_bytes(&changes);
        read.frames.push(changes);
        Ok(())
    }

    /// Parses a frame, if it has this filter's key, and the shape of the filter or of a part of it.
    pub(super) fn view<'f>(&self, frame: &'f [u8]) -> Result<FrameView<'f>, FrameMergeError> {
        let (view, _) = FrameView::parse(frame)?;
        view.check_key(self.key)?;
        let (ours, theirs) = (self.shape, view.shape());
        if is_part(theirs, ours) { Ok(view) } else { Err(ShapeMismatch { ours, theirs }.into()) }
    }
}

/// Bytes of memory for a list.
fn list_bytes(changes: &FrameChanges) -> u64 {
    match changes {
        FrameChanges::Positions(listed) => listed.len() * size_of::<u64>() as u64,
        FrameChanges::Probes(listed) => listed.len() * size_of::<BlockProbe>() as u64,
    }
}

/// Whether a shape is that of a part of another filter.
fn is_part(part: Shape, whole: Shape) -> bool {
    match (part, whole) {
        (Shape::Blocks(part), Shape::Blocks(whole)) => {
            part.kind() == whole.kind()
                && part.probe_count() == whole.probe_count()
                && whole.map().offset_of(part.map()).is_some()
        }
        (Shape::SingleShot(part), Shape::SingleShot(whole)) => {
            let (inner, outer) = (part.range(), whole.range());
            part.position_count() == whole.position_count()
                && inner.start() == outer.start()
                && inner.last() <= outer.last()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypercube::replica::entry_of;
    use crate::hypercube::replica::fixture::{KEY, KINDS, copy};

    const FROM: NodeId = NodeId(2);

    /// Frames that list `change_count` changes each, as a hostile partner might repeat them.
    fn frames_of(copy: &crate::hypercube::Replica, change_count: u64) -> Vec<Vec<u8>> {
        let shape = copy.reader().shape;
        let entry = |block| match shape {
            Shape::Blocks(_) => entry_of(BlockProbe { block, seed: 7 }),
            _ => block,
        };
        let listed = |first: u64| {
            let entries = (first..first + change_count).map(entry).collect();
            ListedChanges::new(shape, KEY, 1 << 20, entries).into_frames()
        };
        (0..3).flat_map(|frame| listed(10 * frame)).collect()
    }

    #[test]
    fn frames_of_a_delta_are_bounded_together() {
        for kind in KINDS {
            let copy = copy(1, kind, 10);
            let frames = frames_of(&copy, 10);
            assert_eq!(frames.len(), 3);
            let mut all = ReadChanges::default();
            for frame in &frames {
                copy.reader().read(FROM, frame, &mut all).unwrap();
            }
            let reader = |list_bytes_max| ChangeReader { list_bytes_max, ..copy.reader() };
            let mut read = ReadChanges::default();
            let enough = reader(all.list_bytes());
            assert!(frames.iter().all(|frame| enough.read(FROM, frame, &mut read).is_ok()));
            assert_eq!(read, all);

            let (scarce, mut read) = (reader(all.list_bytes() - 1), ReadChanges::default());
            for frame in &frames[..2] {
                scarce.read(FROM, frame, &mut read).unwrap();
            }
            let before = read.clone();
            let error = scarce.read(FROM, &frames[2], &mut read).unwrap_err();
            let expected = format!("the changes of node 2 take more than {}", all.list_bytes() - 1);
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert_eq!(read, before);
            // Even frames that list nothing reach the limit.
            let (none, mut read) = (reader(3 * size_of::<FrameChanges>() as u64 - 1), before);
            assert!(none.read(FROM, &frames[0], &mut read).is_err());
        }
    }
}
