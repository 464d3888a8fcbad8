//! Adds up filters that count, shard by shard, once for each request.
//!
//! A shard's answer is a number for all of the range that it had. After splits and merges, a retry gets the
//! recorded numbers with their ranges, and each counts once, however many shards have it. What is left of a
//! merged shard's range cannot be added alone: the shard would add all of its range.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use umbel_engine::shard::{PartError, RequestStamp};
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::HashRange;

use super::SHARD_CALLS_MAX;
use super::merge::new_count_of;
use crate::items::{cut_before, partial_failure, pieces_of};
use crate::{ClientRequest, Coordinator, LiveFilter, Result};
use umbel_node::calls::{AllowedGrowth, ShardAnswer, ShardRequest};
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::unexpected;

/// The numbers of a shard, each with the hashes that it is about.
type Numbers = Vec<(HashRange, u64)>;

/// What is added to which filter.
struct Sum<'s> {
    into: &'s LiveFilter,
    sources: Vec<(FilterId, Generation)>,
    request: Option<ClientRequest>,
}

impl Sum<'_> {
    fn request(&self, cut: HashRange, growth: Option<AllowedGrowth>) -> ShardRequest {
        let request = self.request.map(|request| RequestStamp {
            id: request.id,
            acknowledged_below: request.acknowledged_below,
            digest: 0,
            cut: cut.bounds(),
            owner: request.owner,
        });
        let target = (self.into.id, self.into.record.generation);
        ShardRequest::Sum { target, sources: self.sources.clone(), request, growth }
    }
}

impl Coordinator {
    /// Adds the counts of filters to another one, shard by shard.
    pub(super) async fn add_up(
        &self,
        into: &LiveFilter,
        sources: Vec<(FilterId, Generation)>,
        request: Option<ClientRequest>,
        deadline: Instant,
    ) -> Result<u64> {
        let sum = &Sum { into, sources, request };
        let ask = |shard| self.add_up_in(sum, shard, deadline);
        let shards = stream::iter(into.ranges.shards());
        let answers: Vec<_> = shards.map(ask).buffered(SHARD_CALLS_MAX).collect().await;
        let mut numbers = Vec::with_capacity(answers.len());
        for (shard, answer) in into.ranges.shards().zip(answers) {
            match answer.transpose() {
                Some(of_shard) => numbers.push(of_shard),
                None => return Err(half_added(into, shard)),
            }
        }
        let again = "the same request, sent again, adds up in the others alone";
        let new_count = new_count_of(each_once(numbers), false, again)?;
        let are_cut = self.shards().are_still_cut(into.ranges, deadline).await;
        let unknown = |error| {
            partial_failure(error, |error| {
                format!("all shards have added up, and {again}: {error}")
            })
        };
        if are_cut.map_err(unknown)? {
            return Ok(new_count);
        }
        let what = format!("shards were split or merged meanwhile, and {again}");
        Err(CallFailure::OutcomeUnknown { what })
    }

    /// Adds up in one shard, if it has not done so before. None if it has for a part of its range, and
    /// cannot for the rest.
    async fn add_up_in(
        &self,
        sum: &Sum<'_>,
        shard: ShardId,
        deadline: Instant,
    ) -> Result<Option<Numbers>> {
        let mut pieces = pieces_of(sum.into.cut_of(shard))?;
        let mut is_begun = false;
        while let Some(piece) = pieces.next_piece() {
            let request = |growth| sum.request(piece, growth);
            match self.growth().part_call(sum.into, shard, None, request, deadline).await {
                Ok(ShardAnswer::Done(count)) => pieces.answered(count),
                Ok(other) => return Err(unexpected(&other)),
                Err(CallFailure::Part(PartError::CutBefore { start, last, .. })) => {
                    is_begun = true;
                    cut_before(&mut pieces, (start, last))?;
                }
                Err(CallFailure::Part(PartError::OtherCut { .. })) if is_begun => return Ok(None),
                Err(error) if is_begun => {
                    return Err(partial_failure(error, |error| {
                        format!("{shard} has added for some hashes and not for all: {error}")
                    }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(pieces.answers()))
    }
}

/// The error for a sum that was added to some of the shards from which one was merged.
fn half_added(into: &LiveFilter, shard: ShardId) -> CallFailure {
    let name = into.record.name.as_str();
    let what = format!(
        "{shard} was merged from shards of which some have added to {name:?} and others have not; \
         it cannot add the rest alone. If the same request, sent again, fails in this way, too: \
         clear {name:?} and merge into it anew"
    );
    CallFailure::OutcomeUnknown { what }
}

/// The answers of all shards. A number that several have, because they were one shard when it was recorded,
/// is left with the first of them.
fn each_once(answers: Vec<Result<Numbers>>) -> Vec<Result<ShardAnswer>> {
    let mut seen = BTreeSet::new();
    let mut once = |numbers: Numbers| {
        let is_first = |&(range, _): &(HashRange, u64)| seen.insert(range);
        let numbers = numbers.into_iter().filter(is_first);
        let sum = numbers.fold(0_u64, |sum, (_, count)| sum.saturating_add(count));
        ShardAnswer::Done(sum)
    };
    answers.into_iter().map(|answer| answer.map(&mut once)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_once_however_many_shards_have_it() {
        let range = |start, last| HashRange::from_bounds((start, last)).unwrap();
        let (whole, upper) = (range(0, 9), range(10, 19));
        let lost = CallFailure::OutcomeUnknown { what: "lost".to_owned() };
        let answers = vec![
            Ok(vec![(whole, 7)]),
            Err(lost.clone()),
            Ok(vec![(whole, 7), (upper, u64::MAX)]),
            Ok(vec![(range(20, 29), 3), (range(30, 39), 4)]),
        ];
        let done = |count| Ok(ShardAnswer::Done(count));
        assert_eq!(each_once(answers), [done(7), Err(lost), done(u64::MAX), done(7)]);
    }
}
