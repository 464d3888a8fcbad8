//! Forecasts from the rates of new items.

use umbel_engine::meta::{Distribution, FilterName};
use umbel_filter::Kind;

use super::node_test::{deadline, items, start_alone, start_cluster};
use super::*;
use crate::AckLevel;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;

/// How far the leaders' clocks advance from one batch to the next. The time that the inserts take comes on top of it,
/// and must not matter on a slow machine.
const BATCH_MS: u64 = 200_000;

/// Under a steady load, the forecast predicts within a tenth when the filter reaches its capacity, and
/// when its false-positive rate reaches the planned one. Items are inserted normally; the test advances
/// the leaders' clocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_steady_load_is_forecast() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let (capacity, name) = (100_000, FilterName::new("seen").unwrap());
    let new = FilterRequest::Planned {
        kind: Kind::Blocked,
        distribution: Distribution::Partitioned,
        capacity,
        size: FilterSize::Rate(0.01),
        hashing: Hashing::Keyed,
    };
    let filter = coordinator.create(&name, &new, None, deadline()).await.unwrap().0;
    // 2,000 items every 200 s.
    for batch in 0..20_u32 {
        let items = items(2_000 * batch..2_000 * batch + 2_000);
        coordinator.insert("seen", &items, None, None, deadline()).await.unwrap();
        (0..4).for_each(|shard| node.let_shard_arrivals_wait(ShardId(shard), BATCH_MS));
    }
    let info = coordinator.info(&name, deadline()).await.unwrap();
    assert_eq!(info.id, filter);
    let outlook = info.outlook();
    let near = |found: Option<f64>, expected: f64| {
        let found = found.unwrap();
        assert!((found / expected - 1.0).abs() < 0.1, "{found} for {expected}");
    };
    near(outlook.new_per_second, 10.0);
    near(outlook.seconds_to_capacity, 6_000.0);
    // The filter is somewhat larger than its capacity requires, so that no shard exceeds the planned
    // rate.
    let to_rate = outlook.seconds_to_rate.unwrap();
    assert!(to_rate > 5_500.0 && to_rate < 8_200.0, "{to_rate}");
    drop(coordinator);
    node.shutdown().await;
}

/// The same for a replicated filter with inserts from clients of each node. Each item counts once,
/// although two nodes have it when its insert is acknowledged, and all nodes later.
#[tokio::test(flavor = "multi_thread")]
async fn a_steady_load_on_all_copies_is_forecast() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let coordinators: Vec<_> = nodes.iter().map(Node::coordinator).collect();
    // For 10,000 items.
    let filter = replicated_test::create(&coordinators[0], "near", Kind::Blocked).await;
    // 100 items on each of the nodes, every 200 s.
    for batch in 0..20_u32 {
        for (first, coordinator) in (200 * batch..).step_by(100).zip(&coordinators) {
            let (items, level) = (items(first..first + 100), Some(AckLevel::OnePartner));
            coordinator.insert("near", &items, None, level, deadline()).await.unwrap();
        }
        nodes.iter().for_each(|node| node.let_arrivals_wait(filter, BATCH_MS));
    }
    let (name, end) = (FilterName::new("near").unwrap(), deadline());
    let info = loop {
        let info = coordinators[0].info(&name, end).await.unwrap();
        if info.copies.as_ref().unwrap().all.iter().all(|(_, report)| report.is_some()) {
            break info;
        }
        assert!(Instant::now() < end, "a node stays away");
    };
    let outlook = info.outlook();
    let near = |found: Option<f64>, expected: f64| {
        let found = found.unwrap();
        assert!((found / expected - 1.0).abs() < 0.1, "{found} for {expected}");
    };
    near(outlook.new_per_second, 1.0);
    near(outlook.seconds_to_capacity, 6_000.0);
    let to_rate = outlook.seconds_to_rate.unwrap();
    assert!(to_rate > 5_500.0 && to_rate < 8_200.0, "{to_rate}");
    drop(coordinators);
    for node in nodes {
        node.shutdown().await;
    }
}
