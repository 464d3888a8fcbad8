//! Adding the counts of slices to another slice, once per request.
//!
//! An OR that is applied twice does no harm, but a sum that is applied twice counts twice. So a sum is
//! stamped like an insert, and the replay table records its answer: a retried request, or a duplicate log
//! entry, returns that answer and adds nothing. The fingerprint covers the source filters' ids; their
//! contents may differ from shard to shard by then, as they may within one sum. The number is about the range
//! of the shard that recorded it. A sum adds all of the shard's range, so after a merge of a shard that has
//! added with one that has not, the rest is refused.

use umbel_filter::{AnyFilter, Describe, InsertError, Kind, MergeError, Quotient, Shape};

use super::bitmap::Bitmap;
use super::command::{RequestStamp, SetOperation, ShardCommand, SumTerms};
use super::digest::Digest;
use super::part_error::PartError;
use super::positions::Positions;
use super::prepare::SliceGrowth;
use super::replay::{Operation, StampedPart};
use super::slice::{Slice, refused};
use super::slice_growth::{grow_to_plan, grown_for_items, grown_within};
use super::state::ShardState;
use crate::ids::{FilterId, Generation};
use crate::limits::SLICE_BYTES_MAX;
use crate::shard::PartResult;

/// Bits of an answer, which is a number of positions.
const ANSWER_BITS: u32 = u64::BITS;

/// The outcome of preparing a sum.
#[derive(Clone, PartialEq, Debug)]
pub enum PreparedSum {
    /// The request is a retry: the recorded number of newly set positions. Nothing is left to do.
    Answered(u64),
    /// The command to propose.
    Propose(ShardCommand),
    /// As [`PreparedInsert::Growing`](super::PreparedInsert::Growing).
    Growing {
        /// Bytes beyond the initial size that must be allowed.
        growth_bytes: u64,
    },
}

impl ShardState {
    /// Answers a sum of filters' counts, or returns the command to propose for it.
    ///
    /// # Errors
    /// If applying would refuse the sum for any reason except missing room. Nothing must be proposed then.
    pub fn prepare_sum(
        &self,
        (target, generation): (FilterId, Generation),
        sources: Vec<(FilterId, Generation)>,
        request: Option<RequestStamp>,
        growth: SliceGrowth,
    ) -> PartResult<PreparedSum> {
        let stamped = request.map(|stamp| stamped_of(stamp, target, &sources));
        if let Some(answer) = self.answered(stamped.as_ref())? {
            return Ok(PreparedSum::Answered(number_of(&answer)));
        }
        let slice = self.slice(target, generation)?;
        let given = self.given(&sources)?;
        slice.check_sum(&given)?;
        let needed = slice.growth_with_sum(&given, growth.waiting_items);
        if let Some(growth_bytes) = needed.filter(|&bytes| bytes > growth.allowed_bytes)
            && !growth.is_final
        {
            return Ok(PreparedSum::Growing { growth_bytes });
        }
        let operation = SetOperation::Sum(SumTerms { request, growth_bytes: growth.allowed_bytes });
        Ok(PreparedSum::Propose(ShardCommand::MergeSlices {
            target,
            generation,
            sources,
            operation,
        }))
    }

    /// Adds the sources, unless the request is a retry, and returns the number of newly set positions.
    pub(super) fn sum(
        &mut self,
        (target, generation): (FilterId, Generation),
        sources: &[(FilterId, Generation)],
        terms: SumTerms,
    ) -> PartResult<u64> {
        let stamped = terms.request.map(|stamp| stamped_of(stamp, target, sources));
        if let Some(answer) = self.answered(stamped.as_ref())? {
            return Ok(number_of(&answer));
        }
        if sources.iter().any(|&(source, _)| source == target) {
            let what = format!("{target} is to be added to itself");
            return Err(PartError::Malformed { what });
        }
        self.slice(target, generation)?.check_sum(&self.given(sources)?)?;
        // Removed from the map meanwhile, so that the sources can be read.
        let shard = self.shard;
        let unknown = PartError::UnknownSlice { filter: target, shard };
        let mut slice = self.slices.remove(&target).ok_or(unknown)?;
        let given: Vec<&Slice> =
            sources.iter().filter_map(|(source, _)| self.slices.get(source)).collect();
        let new_count = slice.sum(&given, terms.growth_bytes);
        self.slices.insert(target, slice);
        let new_count = new_count?;
        let ones = (0..ANSWER_BITS as usize).filter(|&bit| new_count >> bit & 1 == 1);
        self.remember(stamped.as_ref(), &Bitmap::from_ones(ANSWER_BITS, ones));
        Ok(new_count)
    }
}

/// The identity of a stamped sum. It includes the ids of the sources, but not their generations.
fn stamped_of(
    stamp: RequestStamp,
    target: FilterId,
    sources: &[(FilterId, Generation)],
) -> StampedPart {
    let mut digest = Digest::new();
    sources.iter().for_each(|(source, _)| digest.push(source.0));
    let stamp = RequestStamp { digest: digest.finish(), ..stamp };
    StampedPart::new(stamp, Operation::Sum, target, ANSWER_BITS)
}

fn number_of(answer: &Bitmap) -> u64 {
    answer.iter_ones().fold(0, |number, bit| number | 1 << bit)
}

impl Slice {
    /// Refuses kinds that do not add and sources that do not match, before anything is changed.
    fn check_sum(&self, sources: &[&Self]) -> PartResult<()> {
        let kind = self.kind();
        if !kind.merges_by_sum() {
            return Err(PartError::WrongKind { what: format!("{kind} filters are not added up") });
        }
        sources.iter().try_for_each(|source| self.check_alike(source))
    }

    /// Bytes beyond the initial size that the slice takes with the contents of all sources and this many
    /// more items. None if it need not grow.
    fn growth_with_sum(&self, sources: &[&Self], waiting_items: u64) -> Option<u64> {
        let Shape::Blocks(planned) = self.spec.shape.shape(self.filter.shape().range()).ok()?
        else {
            return None;
        };
        let all = || sources.iter().copied().chain([self]).filter_map(Self::quotient);
        let items =
            all().fold(waiting_items, |sum, filter| sum.saturating_add(filter.taken_count()));
        let remainder_bits = all().map(|filter| filter.block_shape().probe_count()).min()?;
        let mut most = None;
        for shape in planned.growths() {
            if shape.memory_bytes() > SLICE_BYTES_MAX {
                break;
            }
            most = Some(shape.memory_bytes());
            if shape.probe_count() <= remainder_bits && shape.quotient_capacity() >= items {
                break;
            }
        }
        most.filter(|&bytes| bytes > self.memory_bytes()).map(|bytes| bytes - self.planned_bytes())
    }

    fn quotient(&self) -> Option<&Quotient> {
        match &*self.filter {
            AnyFilter::Quotient(filter) => Some(filter),
            _ => None,
        }
    }

    /// Adds all sources or none, after `check_sum` has accepted them.
    fn sum(&mut self, sources: &[&Self], growth_bytes: u64) -> PartResult<u64> {
        if self.kind() != Kind::Quotient {
            let filter = self.filter.change();
            let merged: Result<u64, MergeError> =
                sources.iter().map(|source| filter.merge(&source.filter)).sum();
            return self.count_merged(merged);
        }
        let most = self.planned_bytes().saturating_add(growth_bytes).min(SLICE_BYTES_MAX);
        let Some(mut sum) = self.quotient().cloned() else { return Ok(0) };
        let before = sum.taken_count();
        for source in sources.iter().filter_map(|source| source.quotient()) {
            add(&mut sum, source, most).map_err(|why| PartError::Full {
                filter: self.spec.filter,
                what: format!(
                    "its slice holds {before} items, has no room for those that are added, and does \
                     not grow: {why}; nothing was added there; create it for more"
                ),
            })?;
        }
        grow_to_plan(&mut sum, most);
        let new_count = sum.taken_count().saturating_sub(before);
        self.filter = Positions::new(sum.into());
        self.count_merged(Ok(new_count))
    }
}

/// Adds a filter that was created with the same shape: both grow until they have the same shape with enough
/// room. The error says why they cannot.
fn add(sum: &mut Quotient, source: &Quotient, slice_bytes_max: u64) -> Result<(), String> {
    while sum.block_shape().growths_to(source.block_shape()).is_some_and(|times| times > 0) {
        *sum = grown_within(sum, slice_bytes_max)?;
    }
    let mut source = source.clone();
    loop {
        while source.block_shape().growths_to(sum.block_shape()).is_some_and(|times| times > 0) {
            source = grown_within(&source, SLICE_BYTES_MAX)?;
        }
        match sum.merge(&source) {
            Ok(_) => return Ok(()),
            Err(MergeError::Full(InsertError::Full { .. })) => {
                let items = sum.taken_count().saturating_add(source.taken_count());
                *sum = grown_for_items(sum, items, slice_bytes_max)?;
            }
            Err(MergeError::Create(error)) => {
                return Err(refused(InsertError::Grow(error)).to_string());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
