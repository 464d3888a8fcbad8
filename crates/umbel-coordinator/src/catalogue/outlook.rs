//! Forecasts for a filter: when it has the items that it was planned for, when it reaches the planned
//! false-positive rate, and when it grows.

use umbel_engine::shard::SliceShape;
use umbel_filter::sizing::seconds_until;

use super::{CopiesInfo, FilterInfo};
use crate::sizes::items_at_rate;
use umbel_node::calls::{RateProbes, SliceLoad};

#[cfg(test)]
mod outlook_test;

/// Forecasts, if items continue to arrive as they do. For filters that forget nothing is forecast.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outlook {
    /// New items a second over all shards or nodes; None while these have not been observed for long enough.
    pub new_per_second: Option<f64>,
    /// Seconds until the filter has the items that it was planned for; None if that is not in sight.
    pub seconds_to_capacity: Option<f64>,
    /// Seconds until it has the planned false-positive rate.
    pub seconds_to_rate: Option<f64>,
    /// Seconds until the first shard of a growing filter grows again.
    pub seconds_to_growth: Option<f64>,
}

/// The room of a filter, or of a part of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Room {
    /// Items that it was planned for.
    pub(crate) capacity: f64,
    /// Items with which it has the planned rate; None for kinds that grow or forget.
    pub(crate) at_rate: Option<f64>,
}

impl Room {
    /// The room of a whole filter.
    pub(crate) fn of(shape: &SliceShape, capacity: u64, rate: f64) -> Self {
        Self { capacity: capacity as f64, at_rate: items_at_rate(shape, rate) }
    }

    /// The room of `shards` of the filter's shards, which have equal parts of it.
    pub(crate) fn share(self, shards: u32, shard_count: u32) -> Self {
        let share = f64::from(shards) / f64::from(shard_count.max(1));
        let at_rate = self.at_rate.map(|items| items * share);
        Self { capacity: self.capacity * share, at_rate }
    }

    /// When the room is used up by items that arrive at this rate; `items` is None for a full filter.
    pub(crate) fn outlook(self, items: Option<f64>, new_per_second: Option<f64>) -> Outlook {
        let until = |room: f64| match (items, new_per_second) {
            (None, _) => Some(0.0),
            (Some(items), Some(rate)) => seconds_until(room - items, rate),
            (Some(items), None) => (items >= room).then_some(0.0),
        };
        let seconds_to_rate = self.at_rate.and_then(until);
        // For a filter that grows or forgets there is no such time.
        let seconds_to_capacity = self.at_rate.and_then(|_| until(self.capacity));
        Outlook { new_per_second, seconds_to_capacity, seconds_to_rate, seconds_to_growth: None }
    }
}

/// New items a second in all of these slices. Hashes spread items evenly, so slices that have not been
/// observed for long enough are taken to get as many as the others.
pub(crate) fn new_per_second<'a>(slices: impl Iterator<Item = &'a SliceLoad>) -> Option<f64> {
    let (mut count, mut known_count, mut sum) = (0.0, 0.0, 0.0);
    for slice in slices {
        count += 1.0;
        if let Some(rate) = slice.new_per_second {
            known_count += 1.0;
            sum += rate;
        }
    }
    (known_count > 0.0).then(|| sum * count / known_count)
}

/// Seconds until the first of these slices gets the last item for which it has room before it grows; None
/// for kinds that do not grow, or if that is not in sight. `new_per_second` is the rate of all slices,
/// which get equal parts.
pub(crate) fn seconds_to_growth<'a>(
    slices: impl ExactSizeIterator<Item = &'a SliceLoad>,
    new_per_second: Option<f64>,
) -> Option<f64> {
    let per_slice = new_per_second? / slices.len().max(1) as f64;
    let until = slices.map(|slice| seconds_until(slice.room? as f64, per_slice));
    until.flatten().min_by(f64::total_cmp)
}

impl CopiesInfo {
    /// New items a second that clients insert on any of the nodes that answered. An item that arrives at
    /// two nodes before these have exchanged counts twice, so a forecast may be early; nodes that did not
    /// answer, or have been observed for less than a minute, do not count, so it may be late.
    fn new_per_second(&self) -> Option<f64> {
        let reports = self.all.iter().filter_map(|(_, report)| report.as_ref());
        reports.filter_map(|report| report.load.new_per_second).reduce(|sum, rate| sum + rate)
    }
}

impl FilterInfo {
    /// The forecasts for the filter; for a replicated one, those for this node's copy, which receives
    /// what clients insert anywhere.
    pub fn outlook(&self) -> Outlook {
        let settings = &self.record.settings;
        let room = Room::of(&settings.shape, settings.capacity, settings.false_positive_rate);
        if let Some(copies) = &self.copies {
            return room.outlook(copies.own.item_count, copies.new_per_second());
        }
        let slices = || self.slices.iter().map(|(_, slice)| slice);
        let rate = new_per_second(slices());
        let seconds_to_growth = seconds_to_growth(slices(), rate);
        Outlook { seconds_to_growth, ..room.outlook(self.item_count(), rate) }
    }

    /// Random items with which the filter was probed, evenly over its shards, and how many it called present.
    pub fn probes(&self) -> RateProbes {
        match &self.copies {
            Some(copies) => copies.own.probes,
            None => RateProbes {
                probe_count: self.sum(|slice| slice.probes.probe_count),
                hit_count: self.sum(|slice| slice.probes.hit_count),
            },
        }
    }

    /// Set positions that chance does not explain; None for filters that cannot determine them.
    pub fn unexplained_one_count(&self) -> Option<u64> {
        let counts = self.slices.iter().map(|(_, slice)| slice.unexplained_one_count);
        counts.reduce(|sum, count| Some(sum?.saturating_add(count?))).flatten()
    }
}
