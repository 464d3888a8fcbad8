//! The positions of one single-shot frame, kept as its codes until all frames of the filter are there.

use umbel_filter::{Shape, ShapeMismatch, SingleShot, SingleShotShape};

use super::content::Codes;
use super::gap_code::GapCode;
use super::receiver::Receiver;
use super::view::FrameView;
use crate::error::{FrameError, FrameMergeError};

/// The codes of a single-shot frame, checked, apart from the frame.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) bytes: Vec<u8>,
    pub(super) code: GapCode,
    pub(super) count: u64,
    pub(super) end: u64,
    /// What the codes count from.
    pub(super) base: u64,
    /// The first and the last position, if there are any.
    pub(super) ends: Option<(u64, u64)>,
}

impl Stretch {
    pub(super) const fn len(&self) -> u64 {
        self.count
    }

    pub(super) const fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn positions(&self) -> impl ExactSizeIterator<Item = u64> {
        let Self { ref bytes, code, count, end, base, .. } = *self;
        Codes { bytes, code, count, end }.indexes().map(move |index| base + index)
    }
}

impl FrameView<'_> {
    /// The positions, if they are those of a filter of this shape; the codes are checked.
    pub(super) fn stretch_of(&self, ours: SingleShotShape) -> Result<Stretch, FrameMergeError> {
        let mut filter = SingleShot::new(ours);
        let receiver = Receiver::SingleShot(&mut filter);
        let Shape::SingleShot(theirs) = self.shape() else {
            return Err(ShapeMismatch { ours: ours.into(), theirs: self.shape() }.into());
        };
        receiver.check_positions(theirs)?;
        self.check_codes().map_err(FrameError::from)?;
        let (first, last) = (self.positions().next(), self.positions().last());
        let Codes { bytes, code, count, end } = self.codes;
        let bytes = bytes.to_vec();
        Ok(Stretch { bytes, code, count, end, base: self.first(), ends: first.zip(last) })
    }
}
