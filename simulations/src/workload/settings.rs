//! The settings with which the filters of a plan are created.

use std::time::Duration;

use umbel_client::{Hashing, Kind, NewFilter};
use umbel_filter::sizing;

use super::Clients;
use crate::plan::{FilterKind, FilterPlan, MANUAL_WINDOW, WINDOW};

/// Divides the number of items and the rate for which quotient filters are sized: a slice starts with
/// one page for 60 items, and has several times that after some hundred.
const QUOTIENT_SHARE: u64 = 64;

impl Clients {
    /// The settings with which a filter of the plan is created: with the hash key of an earlier public
    /// filter of the same shape, so that they can be merged.
    pub(super) fn settings(&self, name: &str) -> NewFilter {
        let own = self.filters.iter().find(|filter| filter.name == name);
        let own = own.expect("a plan that was checked names only filters that it has");
        let twin = self.filters.iter().take_while(|filter| filter.name != name).find(|filter| {
            let shape = |filter: &FilterPlan| {
                (filter.kind, filter.capacity, filter.rate_ppm, filter.public)
            };
            filter.public && !filter.replicated && shape(filter) == shape(own)
        });
        if let Some(twin) = twin {
            return NewFilter::like(&twin.name);
        }
        let (capacity, rate) = (own.capacity, f64::from(own.rate_ppm) / 1e6);
        let sized =
            |kind, capacity, rate| NewFilter { kind, ..NewFilter::for_rate(capacity, rate) };
        let settings = match own.kind {
            FilterKind::Classic => sized(Kind::Classic, capacity, rate),
            FilterKind::Blocked => sized(Kind::Blocked, capacity, rate),
            FilterKind::Counting => sized(Kind::Counting, capacity, rate),
            FilterKind::Scalable => sized(Kind::Scalable, capacity, rate),
            FilterKind::SingleShot => sized(Kind::SingleShot, capacity, rate),
            FilterKind::Aging => sized(Kind::Aging, capacity, rate),
            FilterKind::Stable => sized(Kind::Stable, capacity, rate),
            // Large enough to be full rarely: every item may be inserted again, up to seven times.
            FilterKind::Cuckoo => sized(Kind::Cuckoo, capacity * sizing::CUCKOO_COPIES_MAX, rate),
            FilterKind::RedisBloom => {
                let hashing = Hashing::Redisbloom;
                return NewFilter { hashing, ..sized(Kind::Redisbloom, capacity, rate) };
            }
            // Small enough to grow; each growth doubles its error rate.
            FilterKind::Quotient => sized(
                Kind::Quotient,
                (capacity / QUOTIENT_SHARE).max(1),
                rate / QUOTIENT_SHARE as f64,
            ),
            FilterKind::Window | FilterKind::ManualWindow => window(own),
        };
        let hashing = if own.public { Hashing::Public } else { Hashing::Keyed };
        NewFilter { hashing, ..settings }
    }
}

/// A window for the plan's items, with a rate so low that no two items of a run are confused.
fn window(own: &FilterPlan) -> NewFilter {
    let slice = Duration::from_millis(WINDOW.slice_ms);
    match own.kind {
        FilterKind::ManualWindow => {
            NewFilter::for_manual_window(own.capacity, 1e-12, MANUAL_WINDOW.slice_count)
        }
        _ => NewFilter::for_window(own.capacity, 1e-12, slice, WINDOW.slice_count),
    }
}
