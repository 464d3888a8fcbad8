//! The changes that a frame lists, for callers that must know which of them are new.

use umbel_filter::{BlockProbe, BlockShape, Shape, SingleShot, SingleShotShape, SparseBlocked};

use super::FrameKey;
use super::encoding::Encoding;
use super::header::Body;
use super::view::{FrameView, check_list_bytes};
use crate::error::{FrameError, FrameMergeError, KeyMismatch};

/// The insertions that a frame lists, as a filter of their own.
///
/// ```
/// use umbel_codec::{FrameChanges, FrameKey, FrameView, frames};
/// use umbel_filter::{BlockProbe, BlockShape, HashFunction, HashRange, Kind, SparseBlocked};
///
/// let shape = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 1000, 512, 6)?;
/// let batch = SparseBlocked::from_probes(shape, vec![BlockProbe { block: 3, seed: 7 }])?;
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
/// let frame = frames(&batch, key, 1 << 20).next().expect("there is one")?;
/// let changes = FrameView::parse(&frame)?.0.to_changes(key, 1 << 20)?;
/// assert_eq!(changes, Some(FrameChanges::Probes(batch)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameChanges {
    /// Set positions of a single-shot filter.
    Positions(SingleShot),
    /// Insertions into a blocked filter.
    Probes(SparseBlocked),
}

impl FrameView<'_> {
    /// Whether the frame's items were hashed as this key says.
    ///
    /// # Errors
    /// If they were not.
    pub fn check_key(&self, expected: FrameKey) -> Result<(), KeyMismatch> {
        let actual = self.header.key;
        if actual == expected { Ok(()) } else { Err(KeyMismatch { expected, actual }) }
    }

    /// The insertions that the frame lists, or None if it holds bits instead: those say what is set,
    /// and not by which insertions. Blocks and positions count from the start of the frame's range,
    /// and from the filter's start.
    ///
    /// # Errors
    /// If the frame's key is not `key`, the payload is not valid, or the list takes more than
    /// `list_bytes_max` bytes.
    pub fn to_changes(
        &self,
        key: FrameKey,
        list_bytes_max: u64,
    ) -> Result<Option<FrameChanges>, FrameMergeError> {
        self.check_key(key)?;
        match (self.shape(), self.header.body) {
            (Shape::SingleShot(shape), _) => {
                check_list_bytes::<u64>(self.header.count, list_bytes_max)?;
                self.check_codes().map_err(FrameError::from)?;
                Ok(Some(FrameChanges::Positions(self.listed_positions(shape))))
            }
            (_, Body::Blocks(shape)) if self.header.encoding == Encoding::Probes => {
                check_list_bytes::<BlockProbe>(self.header.count, list_bytes_max)?;
                self.check_codes().map_err(FrameError::from)?;
                Ok(Some(FrameChanges::Probes(self.listed_probes(shape))))
            }
            _ => Ok(None),
        }
    }

    /// The positions of codes that were checked.
    fn listed_positions(&self, shape: SingleShotShape) -> SingleShot {
        let listed = SingleShot::from_positions(shape, self.positions().collect());
        listed.expect("codes that were checked are increasing positions")
    }

    /// The insertions of codes that were checked.
    fn listed_probes(&self, shape: BlockShape) -> SparseBlocked {
        let mut probes = Vec::new();
        self.codes.each_probe(|probe| probes.push(probe)).expect("checked before");
        let listed = SparseBlocked::from_probes(shape, probes);
        listed.expect("codes that were checked are increasing probes")
    }
}
