//! What tests of coordinators share with the tests of what serves clients. Compiled for tests and with the feature `testing`.
#![expect(clippy::missing_panics_doc, reason = "a panic fails the test")]

use std::ops::Range;
use std::sync::Arc;

use umbel_engine::FilterId;
use umbel_engine::meta::{Distribution, FilterName};
use umbel_engine::shard::{LateItems, WindowRules, WindowTime};
use umbel_filter::Kind;
use umbel_node::leader_calls::LeaderCalls;
use umbel_node::testing::deadline;

use crate::Coordinator;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use umbel_node::item_batch::ItemBatch;

impl Coordinator {
    /// The coordinator of a node that belongs to no cluster.
    #[must_use]
    pub fn without_cluster() -> Self {
        Self::new(Arc::new(LeaderCalls::without_cluster()))
    }
}

/// A window of an hour, by minutes.
pub const MINUTES: WindowRules = WindowRules {
    slice_ms: 60_000,
    slice_count: 60,
    time: WindowTime::Ingest,
    late: LateItems::Reject,
    refresh: false,
};

/// Creates a partitioned filter for 10,000 items, with a false positive rate of 1 in 10,000.
pub async fn create(coordinator: &Coordinator, name: &str, kind: Kind) -> FilterId {
    let new = FilterRequest::Planned {
        kind,
        distribution: Distribution::Partitioned,
        capacity: 10_000,
        size: match kind {
            Kind::Window => FilterSize::Window { rate: 1e-4, rules: MINUTES },
            _ => FilterSize::Rate(1e-4),
        },
        hashing: Hashing::Keyed,
    };
    let name = FilterName::new(name).expect("the name is valid");
    coordinator.create(&name, &new, None, deadline()).await.expect("the filter is created").0
}

/// The items of these numbers.
pub fn items(range: Range<u32>) -> ItemBatch {
    let (mut data, mut item_bytes) = (String::new(), Vec::new());
    for number in range {
        let item = format!("item {number}");
        item_bytes.push(u32::try_from(item.len()).expect("the item is short"));
        data.push_str(&item);
    }
    ItemBatch::packed(data.into(), item_bytes)
}
