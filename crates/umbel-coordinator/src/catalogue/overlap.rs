//! What two filters have in common, estimated from their positions and those of their union.

use tokio::time::Instant;
use umbel_engine::meta::FilterName;
use umbel_engine::shard::{OverlapCount, PartError, SliceShape};
use umbel_filter::sizing::{self, Estimate, SizingError};

use super::merge::{check_mergeable, check_ored, planned_bytes};
use crate::copy_failure::of_copy;
use crate::splits::split_meanwhile;
use crate::{Coordinator, LiveFilter, Result};
use umbel_node::calls::{ShardAnswer, ShardRequest};
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::unexpected;
use umbel_node::limits::COUNTED_WORDS_MAX;

/// Estimated different items of two filters; None if a filter is too full for an estimate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Overlap {
    /// Items of the first filter.
    pub ours: Option<Estimate>,
    /// Items of the second one.
    pub theirs: Option<Estimate>,
    /// Items of either.
    pub either: Option<Estimate>,
    /// Items in common.
    pub both: Option<Estimate>,
}

impl Overlap {
    /// From the set positions of each and of the union, with this many probes an item.
    fn of(count: &OverlapCount, probe_count: u32) -> Self {
        let OverlapCount { ours, theirs, either, positions, .. } = *count;
        let items = |ones| sizing::item_count_estimate(positions, probe_count, ones).ok();
        let both: Result<Estimate, SizingError> =
            sizing::intersection_estimate(positions, probe_count, ours, theirs, either);
        let either = sizing::union_estimate(positions, probe_count, either).ok();
        Self { ours: items(ours), theirs: items(theirs), either, both: both.ok() }
    }

    /// The items in common divided by the items of either, from 0 to 1; None if that is unknown, or
    /// neither has any.
    pub fn jaccard(&self) -> Option<f64> {
        let (both, either) = (self.both?.item_count, self.either?.item_count);
        (either > 0.0).then(|| (both / either).clamp(0.0, 1.0))
    }
}

/// Two filters that were found and fit together, to be compared: nothing was done with their contents yet.
pub struct PreparedOverlap {
    one: LiveFilter,
    other: LiveFilter,
}

impl PreparedOverlap {
    /// Bytes of both, as they were planned.
    pub fn filter_bytes(&self) -> u64 {
        planned_bytes([&self.one, &self.other])
    }
}

impl Coordinator {
    /// Estimates what two filters have in common.
    #[cfg(test)]
    pub(crate) async fn overlap(
        &self,
        ours: &FilterName,
        theirs: &FilterName,
        deadline: Instant,
    ) -> Result<Overlap> {
        let prepared = self.prepare_overlap(ours, theirs, deadline).await?;
        self.overlap_prepared(prepared, deadline).await
    }

    /// Finds two filters, and refuses those that are not of one shape and key.
    pub async fn prepare_overlap(
        &self,
        ours: &FilterName,
        theirs: &FilterName,
        deadline: Instant,
    ) -> Result<PreparedOverlap> {
        self.meta_refresh(deadline).await?;
        self.shards().wait_unsplit(deadline).await?;
        let one = self.live_filter(ours.as_str(), deadline).await?;
        let other = self.live_filter(theirs.as_str(), deadline).await?;
        check_ored(&one.record)?;
        check_mergeable(&one.record, &other.record)?;
        Ok(PreparedOverlap { one, other })
    }

    /// Estimates how many items the two filters have: each, together and in common.
    /// Concurrent inserts may be counted or not; for replicated filters this node's copies are counted.
    pub async fn overlap_prepared(
        &self,
        prepared: PreparedOverlap,
        deadline: Instant,
    ) -> Result<Overlap> {
        let PreparedOverlap { one, other } = prepared;
        let probe_count = probes_of(&one.record.settings.shape);
        if one.record.is_replicated() {
            let count = self.overlap_of_copies(one, other, deadline).await?;
            return Ok(Overlap::of(&count, probe_count));
        }
        let named = |filter: &LiveFilter| (filter.id, filter.record.generation);
        let (ours, theirs) = (named(&one), named(&other));
        let request = |_| ShardRequest::Overlap { ours, theirs };
        let mut sum = OverlapCount::default();
        for (_, answer) in self.call_every_shard(one.ranges, request, deadline).await {
            match answer? {
                ShardAnswer::Overlap(count) => sum.add(&count),
                other => return Err(unexpected(&other)),
            }
        }
        if self.shards().are_still_cut(one.ranges, deadline).await? {
            Ok(Overlap::of(&sum, probe_count))
        } else {
            Err(split_meanwhile())
        }
    }

    pub(crate) async fn overlap_of_copies(
        &self,
        one: LiveFilter,
        other: LiveFilter,
        deadline: Instant,
    ) -> Result<OverlapCount> {
        // Two whole filters in memory, each like one that is imported.
        let _room = self.import_room(deadline).await?;
        let mut copies = Vec::with_capacity(2);
        for filter in [one, other] {
            let made = filter.record.settings.shape.create_copy();
            let mut whole = made.map_err(CallFailure::storage)?;
            let (filter, copy) = self.copies().own_as_seen(filter, deadline).await?;
            copy.add_to(filter.record.generation, &mut whole).map_err(of_copy)?;
            copies.push(whole);
        }
        let mut count = OverlapCount::default();
        if let [one, other] = &copies[..] {
            let wrong = |what| CallFailure::Part(PartError::WrongKind { what });
            while !count.count_on(one, other, COUNTED_WORDS_MAX).map_err(wrong)? {
                tokio::task::yield_now().await;
            }
        }
        Ok(count)
    }
}

/// Probes of an item in filters of this shape.
const fn probes_of(shape: &SliceShape) -> u32 {
    match shape {
        SliceShape::Blocks { probe_count, .. }
        | SliceShape::Paced { probe_count, .. }
        | SliceShape::Ring { probe_count, .. } => *probe_count,
        SliceShape::SingleShot { .. }
        | SliceShape::Scalable { .. }
        | SliceShape::Window { .. }
        | SliceShape::RedisBloom { .. } => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two filters with 1,000 and 2,000 of a million positions set, one probe an item, 500 in common.
    #[test]
    fn items_are_estimated_from_positions() {
        let count = OverlapCount {
            ours: 1_000,
            theirs: 2_000,
            either: 2_500,
            positions: 1_000_000,
            next_word: 0,
        };
        let overlap = Overlap::of(&count, 1);
        let near = |estimate: Option<Estimate>, expected: f64| {
            let found = estimate.unwrap().item_count;
            assert!((found - expected).abs() < expected / 200.0, "{found} for {expected}");
        };
        near(overlap.ours, 1_000.0);
        near(overlap.theirs, 2_000.0);
        near(overlap.either, 2_503.0);
        near(overlap.both, 499.0);
    }

    #[test]
    fn a_full_filter_gives_no_estimate() {
        let full =
            OverlapCount { ours: 64, theirs: 2, either: 64, positions: 64, ..Default::default() };
        let overlap = Overlap::of(&full, 3);
        assert!(overlap.ours.is_none() && overlap.either.is_none() && overlap.both.is_none());
        assert!(overlap.theirs.is_some());
    }
}
