//! How full a filter is.

use umbel_engine::ShardId;
use umbel_node::calls::SliceLoad;

use super::{CopiesInfo, FilterInfo};

/// How full a filter is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FilterLoad {
    /// Bits, or counters.
    pub position_count: u64,
    /// Those of them that are set.
    pub one_count: u64,
    /// Estimated number of different items; None if a part is too full for an estimate.
    pub item_count: Option<f64>,
    /// Probability that an absent item is called present.
    pub false_positive_rate: f64,
    /// Inserts that were new.
    pub new_count: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

impl FilterInfo {
    /// How full the filter is over all its shards; of a replicated one, this node's copy.
    pub fn load(&self) -> FilterLoad {
        match &self.copies {
            Some(CopiesInfo { own, .. }) => FilterLoad {
                position_count: own.position_count,
                one_count: own.one_count,
                item_count: own.item_count,
                false_positive_rate: own.false_positive_rate,
                new_count: own.new_count,
                memory_bytes: own.memory_bytes,
            },
            None => FilterLoad {
                position_count: self.sum(|slice| slice.position_count),
                one_count: self.sum(|slice| slice.one_count),
                item_count: self.item_count(),
                false_positive_rate: self.false_positive_rate(),
                new_count: self.sum(|slice| slice.new_count),
                memory_bytes: self.sum(|slice| slice.memory_bytes),
            },
        }
    }

    /// Estimated number of different items; None if a slice is too full for an estimate.
    pub(super) fn item_count(&self) -> Option<f64> {
        self.slices.iter().map(|(_, slice)| slice.item_count).sum()
    }

    /// Probability that an absent item is called present. An item is looked up in one shard, with a
    /// probability proportional to the width of the shard's range, so this is the mean of the shards,
    /// weighted by width.
    pub(super) fn false_positive_rate(&self) -> f64 {
        // Widths are multiples of 2^40, so that they are exact.
        let width = |shard| self.ranges.range(shard).map_or(0.0, |range| range.width() as f64);
        let of = |(rate, widths): (f64, f64), &(shard, ref slice): &(ShardId, SliceLoad)| {
            let width = width(shard);
            (rate + width * slice.false_positive_rate, widths + width)
        };
        let (rate, widths) = self.slices.iter().fold((0.0, 0.0), of);
        if widths > 0.0 { rate / widths } else { 0.0 }
    }

    /// Sums a figure over all slices.
    pub fn sum(&self, of: impl Fn(&SliceLoad) -> u64) -> u64 {
        self.slices.iter().fold(0, |sum, (_, slice)| sum.saturating_add(of(slice)))
    }
}
