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
        NewFilter {
            kind: match own.kind {
                FilterKind::Classic => Kind::Classic,
                FilterKind::Blocked => Kind::Blocked,
                FilterKind::Counting => Kind::Counting,
                FilterKind::Scalable => Kind::Scalable,
                FilterKind::SingleShot => Kind::SingleShot,
                FilterKind::Aging => Kind::Aging,
                FilterKind::Stable => Kind::Stable,
                FilterKind::Cuckoo => {
                    // Large enough to be full rarely: every item may be inserted again, up to seven
                    // times.
                    let capacity = own.capacity * sizing::CUCKOO_COPIES_MAX;
                    return NewFilter {
                        kind: Kind::Cuckoo,
                        hashing: if own.public { Hashing::Public } else { Hashing::Keyed },
                        ..NewFilter::for_rate(capacity, f64::from(own.rate_ppm) / 1e6)
                    };
                }
                FilterKind::RedisBloom => {
                    return NewFilter {
                        kind: Kind::Redisbloom,
                        hashing: Hashing::Redisbloom,
                        ..NewFilter::for_rate(own.capacity, f64::from(own.rate_ppm) / 1e6)
                    };
                }
                FilterKind::Quotient => {
                    // Small enough to grow; each growth doubles its error rate.
                    let capacity = (own.capacity / QUOTIENT_SHARE).max(1);
                    let rate = f64::from(own.rate_ppm) / 1e6 / QUOTIENT_SHARE as f64;
                    return NewFilter {
                        kind: Kind::Quotient,
                        hashing: if own.public { Hashing::Public } else { Hashing::Keyed },
                        ..NewFilter::for_rate(capacity, rate)
                    };
                }
                FilterKind::Window | FilterKind::ManualWindow => {
                    return NewFilter {
                        hashing: if own.public { Hashing::Public } else { Hashing::Keyed },
                        ..window(own)
                    };
                }
            },
            hashing: if own.public { Hashing::Public } else { Hashing::Keyed },
            ..NewFilter::for_rate(own.capacity, f64::from(own.rate_ppm) / 1e6)
        }
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
