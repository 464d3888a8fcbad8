//! Provides a copy's bits for a comparison, and sets the missing bits that it found.

use umbel_engine::{Generation, NodeId};
use umbel_filter::AnyFilter;
use umbel_replicated_engine::hypercube::Coverage;
#[cfg(any(test, feature = "testing"))]
use umbel_replicated_engine::hypercube::Replica;

use super::Copy;
use crate::cube::scrub::SetBits;
use crate::cube::{CopyFailure, Result};

impl Copy {
    /// The current bits, and for a windowed filter its newest time slice.
    pub(in crate::cube) fn image(&self) -> (Option<u64>, AnyFilter) {
        let state = self.read_now();
        (state.replica.newest_slice(), state.replica.filter().clone())
    }

    /// Generation and bits, for programs that embed the node.
    pub(crate) fn bits(&self) -> (Generation, AnyFilter) {
        let state = self.read_now();
        (state.generation(), state.replica.filter().clone())
    }

    /// The current bits with their coverage, and for a windowed filter its newest time slice.
    ///
    /// # Errors
    /// If the copy has another generation, or must not be sent before it is on disk.
    pub(in crate::cube) fn compared(
        &self,
        generation: Generation,
    ) -> Result<(Coverage, Option<u64>, AnyFilter)> {
        let state = self.read_now();
        self.check(&state, generation)?;
        if state.is_withheld() {
            let what = format!("{} is on its way to the disk", self.filter);
            return Err(CopyFailure::NotSaved(what));
        }
        let (coverage, newest) = (state.replica.coverage(), state.replica.newest_slice());
        Ok((coverage, newest, state.replica.filter().clone()))
    }

    /// Checks that the copy has this generation.
    ///
    /// # Errors
    /// If it has another one.
    pub(in crate::cube) fn check_generation(&self, generation: Generation) -> Result<()> {
        self.check(&self.read(), generation)
    }

    /// Checks that a partner can have a copy with this coverage.
    ///
    /// # Errors
    /// If it cannot.
    pub(in crate::cube) fn check_coverage(&self, from: NodeId, claim: &Coverage) -> Result<()> {
        let checked = self.read().replica.check_coverage(from, claim);
        checked.map_err(|error| CopyFailure::Unmergeable(error.to_string()))
    }

    /// Sets bits that a comparison found missing, against a copy with the coverage `theirs`. Returns
    /// how many were still missing, and whether they had been lost or are news.
    ///
    /// Changes that were in transit when the images were taken may have arrived since, together with
    /// their versions; so whether a bit was lost or is news is decided now.
    ///
    /// # Errors
    /// If the copy has another generation by now, or no copy can have the coverage `theirs`.
    pub(in crate::cube) fn take_compared(
        &self,
        generation: Generation,
        bits: &AnyFilter,
        newest_slice: Option<u64>,
        theirs: &Coverage,
    ) -> Result<SetBits> {
        let mut state = self.write();
        self.check(&state, generation)?;
        let is_explained = state.replica.coverage().explains(theirs);
        let new_count = state.replica.merge_compared(bits, theirs, newest_slice);
        let new_count = new_count.map_err(|error| CopyFailure::Unmergeable(error.to_string()))?;
        // Not on disk yet.
        state.merge_count += u64::from(new_count > 0);
        drop(state);
        Ok(if is_explained {
            SetBits { lost_count: new_count, news_count: 0 }
        } else {
            SetBits { lost_count: 0, news_count: new_count }
        })
    }

    /// The nodes with which the copy is exchanged.
    pub(in crate::cube) fn partners(&self) -> Vec<NodeId> {
        self.read().replica.partners().collect()
    }

    /// For tests of repair: clears one in `every` of the set bits, as if memory had rotted, and returns
    /// how many. No other state of the copy changes.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn rot(&self, every: usize) -> u64 {
        let mut state = self.write();
        let (bits, lost_count) = without(state.replica.filter(), every.max(1));
        let (options, saved) = (*state.replica.options(), state.replica.save());
        let ring = state.replica.ring().copied();
        let partners: Vec<NodeId> = state.replica.partners().collect();
        let rotten = Replica::restore(options, bits, saved);
        state.replica = rotten.expect("the shape was replicated before").with_ring(ring);
        state.replica.set_partners(&partners);
        lost_count
    }
}

/// A filter with one in `every` of its set bits cleared, and the number of cleared bits.
#[cfg(any(test, feature = "testing"))]
fn without(filter: &AnyFilter, every: usize) -> (AnyFilter, u64) {
    match filter {
        AnyFilter::Blocked(filter) => {
            let mut filter = filter.clone();
            let ones: Vec<u64> =
                umbel_filter::words::iter_ones(filter.words()).step_by(every).collect();
            for &bit in &ones {
                let word = usize::try_from(bit / 64).expect("a word of the filter");
                filter.words_mut()[word] &= !(1 << (bit % 64));
            }
            (AnyFilter::Blocked(filter), ones.len() as u64)
        }
        AnyFilter::SingleShot(filter) => {
            let kept = (0..).zip(filter.positions()).filter(|(at, _)| at % every != 0);
            let kept: Vec<u64> = kept.map(|(_, position)| position).collect();
            let lost_count = filter.len() - kept.len() as u64;
            let shape = filter.single_shot_shape();
            let filter = umbel_filter::StoredSingleShot::from_positions(shape, kept.into_iter());
            (AnyFilter::SingleShot(filter.expect("positions of the shape")), lost_count)
        }
        other => (other.clone(), 0),
    }
}
