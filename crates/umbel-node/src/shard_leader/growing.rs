//! Items in flight to slices that grow: a request that asks how far a slice must grow also counts the
//! items of other requests.

use std::collections::BTreeMap;
use std::sync::Mutex;

use umbel_engine::FilterId;
use umbel_engine::shard::SliceGrowth;
use umbel_ports::locked;

use crate::calls::AllowedGrowth;

/// Number of items in flight, by filter.
#[derive(Default)]
pub(super) struct Growing(Mutex<BTreeMap<FilterId, u64>>);

/// Items that are in flight until this is dropped.
pub(super) struct OnTheirWay<'a> {
    growing: &'a Growing,
    filter: FilterId,
    item_count: u64,
    /// Number of items that were in flight before these.
    pub(super) before: u64,
}

impl Growing {
    /// Adds items in flight.
    pub(super) fn enter(&self, filter: FilterId, item_count: u64) -> OnTheirWay<'_> {
        let mut counts = locked(&self.0);
        let count = counts.entry(filter).or_default();
        let before = *count;
        *count += item_count;
        OnTheirWay { growing: self, filter, item_count, before }
    }
}

impl Drop for OnTheirWay<'_> {
    fn drop(&mut self) {
        let mut counts = locked(&self.growing.0);
        let left =
            counts.get(&self.filter).map_or(0, |count| count.saturating_sub(self.item_count));
        match left {
            0 => counts.remove(&self.filter),
            left => counts.insert(self.filter, left),
        };
    }
}

/// How far a slice may grow, including the other items in flight to it.
pub(super) fn slice_growth(
    growth: Option<AllowedGrowth>,
    others: Option<&OnTheirWay<'_>>,
) -> SliceGrowth {
    growth.map_or(SliceGrowth::ANY, |AllowedGrowth { bytes, is_final }| {
        let waiting_items = others.map_or(0, |others| others.before);
        SliceGrowth { allowed_bytes: bytes, is_final, waiting_items }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_count_until_they_have_come() {
        let growing = Growing::default();
        let first = growing.enter(FilterId(1), 10);
        let other = growing.enter(FilterId(2), 5);
        let second = growing.enter(FilterId(1), 7);
        assert_eq!((first.before, other.before, second.before), (0, 0, 10));
        drop(first);
        assert_eq!(growing.enter(FilterId(1), 0).before, 7);
        drop((second, other));
        assert!(locked(&growing.0).is_empty());
    }
}
