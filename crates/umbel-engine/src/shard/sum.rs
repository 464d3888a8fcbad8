//! Slices whose counts are added to those of another one, once for each request.
//!
//! An OR that comes twice does no harm; what is added twice counts twice. So a sum has a stamp as an insert has, and the
//! replay table remembers its answer: a leader that is asked again, or an entry that stands in the log twice, gives that
//! and adds nothing. Its fingerprint is that of the filters that give; what these hold by then may differ from shard to
//! shard, as it may within one sum.

use std::sync::Arc;

use umbel_filter::{
    AnyFilter, Describe, InsertError, Kind, MergeError, Quotient, QuotientMergeError, Shape,
};

use super::bitmap::Bitmap;
use super::command::{PartError, RequestStamp, SetOperation, ShardCommand, SumTerms};
use super::digest::Digest;
use super::prepare::SliceGrowth;
use super::replay::{Asked, Operation};
use super::slice::{Slice, refused};
use super::slice_growth::{grow_to_plan, grown_for_items, grown_within};
use super::state::ShardState;
use crate::ids::{FilterId, Generation};
use crate::limits::SLICE_BYTES_MAX;

/// Bits of an answer, which is a number of positions.
const ANSWER_BITS: u32 = u64::BITS;

/// What is left to do for a sum.
#[derive(Clone, PartialEq, Debug)]
pub enum PreparedSum {
    /// The request came before: so many positions were newly set. Nothing is left to do.
    Answered(u64),
    /// To be proposed.
    Propose(ShardCommand),
    /// As [`PreparedInsert::Growing`](super::PreparedInsert::Growing).
    Growing {
        /// What is to be allowed.
        growth_bytes: u64,
    },
}

impl ShardState {
    /// Answers a sum of what filters count, or makes the command to be proposed for it.
    ///
    /// # Errors
    /// As applying would refuse it, for another reason than that there is no room; nothing is to be proposed then.
    pub fn prepare_sum(
        &self,
        (target, generation): (FilterId, Generation),
        sources: Vec<(FilterId, Generation)>,
        request: Option<RequestStamp>,
        growth: SliceGrowth,
    ) -> Result<PreparedSum, PartError> {
        let asked = request.map(|stamp| asked_of(stamp, target, &sources));
        if let Some(answer) = self.answered(asked.as_ref())? {
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

    /// Adds, unless the request came before, and returns how many positions are new.
    pub(super) fn sum(
        &mut self,
        (target, generation): (FilterId, Generation),
        sources: &[(FilterId, Generation)],
        terms: SumTerms,
    ) -> Result<u64, PartError> {
        let asked = terms.request.map(|stamp| asked_of(stamp, target, sources));
        if let Some(answer) = self.answered(asked.as_ref())? {
            return Ok(number_of(&answer));
        }
        if sources.iter().any(|&(source, _)| source == target) {
            let what = format!("{target} is to be added to itself");
            return Err(PartError::Malformed { what });
        }
        self.slice(target, generation)?.check_sum(&self.given(sources)?)?;
        // Out of the map, so that the others can be read.
        let shard = self.shard;
        let unknown = PartError::UnknownSlice { filter: target, shard };
        let mut slice = self.slices.remove(&target).ok_or(unknown)?;
        let given: Vec<&Slice> =
            sources.iter().filter_map(|(source, _)| self.slices.get(source)).collect();
        let new_count = slice.sum(&given, terms.growth_bytes);
        self.slices.insert(target, slice);
        let new_count = new_count?;
        let ones = (0..ANSWER_BITS as usize).filter(|&bit| new_count >> bit & 1 == 1);
        self.remember(asked.as_ref(), &Bitmap::from_ones(ANSWER_BITS, ones));
        Ok(new_count)
    }
}

/// What a stamp is recognised by: what gives is part of it, and its generations are not.
fn asked_of(stamp: RequestStamp, target: FilterId, sources: &[(FilterId, Generation)]) -> Asked {
    let mut digest = Digest::new();
    sources.iter().for_each(|(source, _)| digest.push(source.0));
    let stamp = RequestStamp { digest: digest.finish(), ..stamp };
    Asked::new(stamp, Operation::Sum, target, ANSWER_BITS)
}

fn number_of(answer: &Bitmap) -> u64 {
    answer.iter_ones().fold(0, |number, bit| number | 1 << bit)
}

impl Slice {
    /// Refuses a kind that does not add, and sources that differ, before anything is changed.
    fn check_sum(&self, sources: &[&Self]) -> Result<(), PartError> {
        let kind = self.kind();
        if !kind.merges_by_sum() {
            return Err(PartError::WrongKind { what: format!("{kind} filters are not added up") });
        }
        sources.iter().try_for_each(|source| self.check_alike(source))
    }

    /// Bytes beyond those that it began with that it takes when it has all that the sources have, and so many items
    /// more; None where that is no more than it takes now.
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

    /// Adds what sources have that were checked, of all of them or of none.
    fn sum(&mut self, sources: &[&Self], growth_bytes: u64) -> Result<u64, PartError> {
        if self.kind() != Kind::Quotient {
            let filter = Arc::make_mut(&mut self.filter);
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
        self.filter = Arc::new(sum.into());
        self.count_merged(Ok(new_count))
    }
}

/// Adds a filter that began with the same shape: both grow until they are of one shape that has room. The error
/// says why they do not.
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
            Err(QuotientMergeError::Full(InsertError::Full { .. })) => {
                let items = sum.taken_count().saturating_add(source.taken_count());
                *sum = grown_for_items(sum, items, slice_bytes_max)?;
            }
            Err(QuotientMergeError::Create(error)) => {
                return Err(refused(InsertError::Grow(error)).to_string());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
