//! A copy's bits at one moment; sets the missing bits that a comparison has found.

use std::sync::Arc;

use umbel_engine::{Generation, NodeId};
use umbel_filter::{AnyFilter, ItemHasher};
use umbel_replicated_engine::hypercube::Coverage;
use umbel_replicated_engine::repair::{BlockDifference, FilterBits, ResidueTable};

use super::{ScrubError, SetBits};
use crate::cube::copies::Copies;
use crate::cube::copy::Copy;
use crate::cube::failure::CopyFailure;
use crate::metrics;

/// Most bits that a copy of a single-shot filter may lack, per item of the filter's capacity: a filter
/// more than twice as full is of no use.
const LACKING_PER_ITEM_MAX: u64 = 2;

/// Missing bits that are accepted for any filter, however small.
const LACKING_LEAST: u64 = 1 << 16;

/// A copy's bits at one moment.
pub(super) struct ComparedImage {
    copy: Arc<Copy>,
    pub(super) generation: Generation,
    pub(super) claim: Coverage,
    pub(super) bits: FilterBits,
    /// The newest time slice of a windowed filter.
    newest_slice: Option<u64>,
    lacking_max: u64,
}

impl ComparedImage {
    /// Takes the bits of a copy of this generation.
    pub(super) fn of(
        copies: &Copies,
        copy: &Arc<Copy>,
        generation: Generation,
    ) -> Result<Self, ScrubError> {
        // Missing bits that are found must fit on the disk later.
        if let Some(free_bytes) = copies.shortage() {
            return Err(CopyFailure::DiskFull { free_bytes }.into());
        }
        let (claim, newest_slice, filter) = copy.compared(generation)?;
        // A Bloom filter is at most half full: if more bits seem to be missing, the partner's frames
        // are wrong.
        let lacking_max = match &filter {
            AnyFilter::Blocked(filter) => filter.words().len() as u64 * 64 / 2,
            _ => copy.settings.capacity.saturating_mul(LACKING_PER_ITEM_MAX).max(LACKING_LEAST),
        };
        let bits = FilterBits::of(filter)?;
        Ok(Self { copy: Arc::clone(copy), generation, claim, bits, newest_slice, lacking_max })
    }

    pub(super) fn table(&self) -> Result<ResidueTable, ScrubError> {
        Ok(self.bits.table()?)
    }

    pub(super) fn shape_id(&self, table: &ResidueTable) -> u64 {
        shape_id(&self.copy, self.generation, self.newest_slice, table)
    }

    /// Records bits that were found missing.
    pub(super) fn lacks(&mut self, difference: &BlockDifference) -> Result<(), ScrubError> {
        let max = self.lacking_max;
        if self.bits.set_bit_count() + difference.flips.len() as u64 > max {
            return Err(ScrubError::TooMuch { max });
        }
        self.bits.set(difference);
        Ok(())
    }

    /// Sets the missing bits in the copy, against a partner's copy with the coverage `theirs`.
    pub(super) fn set_missing(
        self,
        copies: &Copies,
        partner: NodeId,
        theirs: &Coverage,
    ) -> Result<SetBits, ScrubError> {
        let filter = self.copy.filter;
        let mut set = SetBits::default();
        if self.bits.set_bit_count() > 0 {
            let (bits, newest_slice) = (&self.bits.into_filter(), self.newest_slice);
            set = self.copy.take_compared(self.generation, bits, newest_slice, theirs)?;
        }
        let scrubs = copies.scrubs();
        scrubs.last.verified(filter);
        metrics::scrub_set(set.lost_count, set.news_count);
        if set.lost_count > 0 {
            let lost_bits = set.lost_count;
            tracing::warn!(%filter, %partner, lost_bits, "the copy had lost bits, which are set again");
            scrubs.compare_soon(filter, self.copy.partners(), partner);
        }
        Ok(set)
    }
}

/// A digest of what both images must have in common: the filter, its generation, kind, size and key;
/// for a windowed filter also its newest time slice, because otherwise blocks of different slices would
/// be compared.
pub(crate) fn shape_id(
    copy: &Copy,
    generation: Generation,
    newest_slice: Option<u64>,
    table: &ResidueTable,
) -> u64 {
    let settings = &copy.settings;
    let key_id = settings.frame_key().key_id;
    let kind = u64::from(settings.kind);
    let mut bytes = Vec::new();
    let numbers = [copy.filter.0, generation.0, kind, key_id, table.bit_count()];
    for number in numbers.into_iter().chain(newest_slice) {
        bytes.extend(number.to_le_bytes());
    }
    ItemHasher::Xxh3 { seed: 0 }.hash(&bytes).hi()
}
