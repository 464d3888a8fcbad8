//! What tests of nodes share with the tests of what serves clients. Compiled for tests and with the feature `testing`.
#![expect(clippy::missing_panics_doc, reason = "a panic fails the test")]

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{Distribution, FilterName};
use umbel_engine::shard::{LateItems, WindowRules, WindowTime};
use umbel_filter::Kind;
use umbel_proto::v1::Items;

use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::coordinator::catalogue::{Hashing, NewFilter};
use crate::coordinator::item_batch::ItemBatch;
use crate::coordinator::sizes::FilterSize;

/// A time that no call of a test needs.
pub fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Settings of a node on loopback with this data folder, and fast elections: the tests restart nodes.
pub fn config(data: &Path) -> Config {
    Config {
        listen: "127.0.0.1:0".to_owned(),
        data: data.display().to_string(),
        heartbeat_ms: 50,
        suspect_ms: 300,
        ..Config::default()
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
    let new = NewFilter::Planned {
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
    let items = range.map(|item| Bytes::from(format!("item {item}"))).collect();
    ItemBatch::from_proto(Some(Items { items, ..Items::default() })).expect("the items are short")
}
