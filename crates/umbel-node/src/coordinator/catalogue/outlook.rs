//! What is to be expected of a filter: when it has the items that it was made for, and when it errs as often as
//! was planned.

use umbel_engine::shard::SliceShape;
use umbel_filter::sizing::seconds_until;

use super::FilterInfo;
use crate::calls::{RateProbes, SliceLoad};
use crate::coordinator::sizes::items_at_rate;

/// Forecasts, if items go on to come as they do. Of filters that grow, forget or are replicated nothing is
/// forecast.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Outlook {
    /// New items a second over all shards; None while they were not watched for long enough.
    pub(crate) new_per_second: Option<f64>,
    /// Seconds until the filter has the items that it was planned for; None if that is not in sight.
    pub(crate) seconds_to_capacity: Option<f64>,
    /// Seconds until it errs as often as planned.
    pub(crate) seconds_to_rate: Option<f64>,
}

/// What a filter, or a part of it, has room for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Room {
    /// Items that it was planned for.
    pub(crate) capacity: f64,
    /// Items with which it errs as often as planned; None of kinds that grow or forget.
    pub(crate) at_rate: Option<f64>,
}

impl Room {
    /// Of a whole filter.
    #[expect(clippy::cast_precision_loss, reason = "a forecast")]
    pub(crate) fn of(shape: &SliceShape, capacity: u64, rate: f64) -> Self {
        Self { capacity: capacity as f64, at_rate: items_at_rate(shape, rate) }
    }

    /// Of so many of the filter's shards, which have equal parts of it.
    pub(crate) fn share(self, shards: u32, shard_count: u32) -> Self {
        let share = f64::from(shards) / f64::from(shard_count.max(1));
        let at_rate = self.at_rate.map(|items| items * share);
        Self { capacity: self.capacity * share, at_rate }
    }

    /// When it is used up by items that come at this rate; None of the items stands for a filter that is
    /// full.
    pub(crate) fn outlook(self, items: Option<f64>, new_per_second: Option<f64>) -> Outlook {
        let until = |room: f64| match (items, new_per_second) {
            (None, _) => Some(0.0),
            (Some(items), Some(rate)) => seconds_until(room - items, rate),
            (Some(items), None) => (items >= room).then_some(0.0),
        };
        let seconds_to_rate = self.at_rate.and_then(until);
        // A filter that grows or forgets is never used up.
        let seconds_to_capacity = self.at_rate.and_then(|_| until(self.capacity));
        Outlook { new_per_second, seconds_to_capacity, seconds_to_rate }
    }
}

/// New items a second in all of these slices. Hashes spread items evenly, so slices that were not watched for
/// long enough take as many as the others.
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

impl FilterInfo {
    /// What is to be expected of the filter.
    pub(crate) fn outlook(&self) -> Outlook {
        if self.copies.is_some() {
            return Outlook::default();
        }
        let settings = &self.record.settings;
        let room = Room::of(&settings.shape, settings.capacity, settings.false_positive_rate);
        let rate = new_per_second(self.slices.iter().map(|(_, slice)| slice));
        room.outlook(self.item_count(), rate)
    }

    /// Random items that the filter was asked for, evenly over its shards, and how many it called present.
    pub(crate) fn probes(&self) -> RateProbes {
        match &self.copies {
            Some(copies) => copies.own.probes,
            None => RateProbes {
                probe_count: self.sum(|slice| slice.probes.probe_count),
                hit_count: self.sum(|slice| slice.probes.hit_count),
            },
        }
    }

    /// Set positions that no chance explains; None of filters that do not tell.
    pub(crate) fn unexplained_one_count(&self) -> Option<u64> {
        let counts = self.slices.iter().map(|(_, slice)| slice.unexplained_one_count);
        counts.reduce(|sum, count| Some(sum?.saturating_add(count?))).flatten()
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::Kind;

    use super::*;

    fn blocks(block_count: u64) -> SliceShape {
        let kind = Kind::Blocked.id();
        SliceShape::Blocks { kind, block_count, block_bits: 512, probe_count: 6 }
    }

    #[test]
    fn room_is_used_up_by_what_comes() {
        // A million items at 1 %.
        let room = Room::of(&blocks(19_359), 1_000_000, 0.01);
        let at_rate = room.at_rate.unwrap();
        assert!((at_rate / 1e6 - 1.0).abs() < 0.001, "{at_rate}");
        let outlook = room.outlook(Some(400_000.0), Some(100.0));
        assert_eq!(outlook.seconds_to_capacity, Some(6_000.0));
        assert!((outlook.seconds_to_rate.unwrap() - 6_000.0).abs() < 20.0);
        let quarter = room.share(2, 8).outlook(Some(100_000.0), Some(25.0));
        assert_eq!(quarter.seconds_to_capacity, Some(6_000.0));
        // Nothing comes, nothing is known, all bits are set, more is in than planned.
        assert_eq!(room.outlook(Some(0.0), Some(0.0)).seconds_to_capacity, None);
        assert_eq!(room.outlook(Some(0.0), None), Outlook::default());
        assert_eq!(room.outlook(None, None).seconds_to_rate, Some(0.0));
        assert_eq!(room.outlook(Some(2e6), None).seconds_to_capacity, Some(0.0));
    }

    #[test]
    fn what_grows_is_never_used_up() {
        let shape = SliceShape::Scalable { item_count: 10, false_positive_rate: 0.01 };
        let room = Room::of(&shape, 10, 0.01);
        let outlook = room.outlook(Some(9.0), Some(1.0));
        assert_eq!(outlook, Outlook { new_per_second: Some(1.0), ..Outlook::default() });
    }
}
