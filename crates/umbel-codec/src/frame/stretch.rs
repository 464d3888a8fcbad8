//! The positions of one single-shot frame, kept as its codes until all frames of the filter are there.

use super::content::Codes;
use super::gap_code::GapCode;

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
