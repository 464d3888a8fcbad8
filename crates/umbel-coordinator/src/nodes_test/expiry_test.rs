//! Filters that are dropped at a time that has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_engine::NodeId;
use umbel_engine::meta::{FilterName, MetaCommand, MetaError};
use umbel_filter::Kind;
use umbel_node::Node;
use umbel_node::failure::CallFailure;

use super::Coordinated;
use super::node_test::{create, create_replicated, deadline, items, start_alone};
use super::recut_test::{name, split};
use super::windowed_copies_test::Clocked;
use super::windowed_test::{Clock, DAY_MS, MINUTE_MS, start};
use crate::Coordinator;
use crate::catalogue::Seen;

/// The time when a test begins.
const START_MS: u64 = 1_000 * DAY_MS;

/// A coordinator of a node whose machine has this clock.
fn coordinator_at(node: &Node, clock: &Arc<Clock>) -> Coordinator {
    Coordinator::new(Arc::new(node.leader_calls(Arc::clone(clock) as _)))
}

/// Lets the time of the filter pass. The controller of the catalogue's leader may notice it before anything else
/// happens, or not.
async fn pass_time(coordinator: &Coordinator, clock: &Clock) {
    let at_ms = clock.0.load(Ordering::Relaxed) + 1_000;
    coordinator.expire(&name("f"), None, Some(at_ms), deadline()).await.unwrap();
    clock.0.fetch_add(1_000, Ordering::Relaxed);
}

fn missing() -> Result<(), CallFailure> {
    Err(CallFailure::UnknownFilter { name: "f".to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_whose_time_has_passed_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(START_MS)));
    let node = start(folder.path(), &clock).await;
    let coordinator = coordinator_at(&node, &clock);
    for is_replicated in [false, true] {
        let make = async || {
            if is_replicated {
                create_replicated(&coordinator, "f").await;
            } else {
                create(&coordinator, "f", Kind::Blocked).await;
            }
        };
        make().await;
        pass_time(&coordinator, &clock).await;
        let late = coordinator.insert("f", &items(0..1), None, None, deadline()).await;
        assert_eq!(late.map(drop), missing());
        make().await;
        pass_time(&coordinator, &clock).await;
        let late = coordinator.contains("f", &items(0..1), None, deadline()).await;
        assert_eq!(late.map(drop), missing());
        make().await;
        pass_time(&coordinator, &clock).await;
        // Its name is free.
        make().await;
        let new = coordinator.insert("f", &items(0..1), None, None, deadline()).await.unwrap().0;
        assert_eq!(new.count_ones(), 1);
        let (_, expires_ms) = coordinator.expiry(&name("f"), deadline()).await.unwrap().unwrap();
        assert_eq!(expires_ms, None);
        coordinator.drop_filter(&name("f"), None, deadline()).await.unwrap();
    }
    drop(coordinator);
    node.shutdown().await;
}

/// The leader of the catalogue, as this node knows it.
async fn leader_of(coordinator: &Coordinator) -> NodeId {
    loop {
        if let Some(leader) = coordinator.meta_view().unwrap().leader {
            return leader;
        }
        tokio::task::yield_now().await;
    }
}

/// The clock of the catalogue's leader says when a filter expires.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_is_ahead_finds_a_filter_that_has_time_left() {
    loop {
        let cluster = Clocked::start(2).await;
        let coordinators = cluster.coordinators();
        let filter = create(&coordinators[0], "f", Kind::Blocked).await;
        let at_ms = Some(1_060 * MINUTE_MS);
        coordinators[0].expire(&name("f"), None, at_ms, deadline()).await.unwrap();
        let leader = leader_of(&coordinators[0]).await;
        let ahead = usize::from(leader == NodeId(1));
        cluster.run_ahead(ahead, 61);
        let other = &coordinators[ahead];
        let inserted = other.insert("f", &items(0..100), None, None, deadline()).await;
        let found = other.contains("f", &items(0..100), None, deadline()).await;
        let expiry = other.expiry(&name("f"), deadline()).await;
        let is_led_so = leader_of(&coordinators[0]).await == leader;
        drop(coordinators);
        cluster.stop().await;
        // On a busy machine there may be an election meanwhile.
        if is_led_so {
            assert_eq!(inserted.unwrap().0.count_ones(), 100);
            assert_eq!(found.unwrap().0.count_ones(), 100);
            assert_eq!(expiry, Ok(Some((filter, at_ms))));
            break;
        }
    }
}

/// It would ask the leader at each call of the filter, for an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_has_jumped_ahead_does_not_take_a_filter_for_due() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(START_MS)));
    let node = start(folder.path(), &clock).await;
    let coordinator = coordinator_at(&node, &clock);
    create(&coordinator, "f", Kind::Blocked).await;
    let left_ms = 5 * MINUTE_MS;
    let at_ms = Some(START_MS + left_ms);
    coordinator.expire(&name("f"), None, at_ms, deadline()).await.unwrap();
    let filter = coordinator.live_filter("f", deadline()).await.unwrap();
    clock.0.fetch_add(DAY_MS, Ordering::Relaxed);
    assert!(!filter.is_due(&coordinator.calls));
    // The clock is set right, and the time passes.
    clock.0.store(START_MS + left_ms, Ordering::Relaxed);
    assert!(filter.is_due(&coordinator.calls));
    drop(coordinator);
    node.shutdown().await;
}

/// Slices are not dropped while shards are merged. Shards that are not merged would take the items meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_inserted_into_a_filter_that_waits_for_a_merge_to_be_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(START_MS)));
    let node = start(folder.path(), &clock).await;
    let coordinator = coordinator_at(&node, &clock);
    split(&coordinator, 5).await;
    create(&coordinator, "f", Kind::Blocked).await;
    let at_ms = Some(START_MS + 1_000);
    coordinator.expire(&name("f"), None, at_ms, deadline()).await.unwrap();
    let merge = MetaCommand::MergeShard { shard_count: 4 };
    // The shard that was split off may not be at rest yet.
    while let Err(failure) = coordinator.meta_propose(merge.clone(), deadline()).await {
        assert!(matches!(failure, CallFailure::Meta(MetaError::ShardBusy { .. })), "{failure}");
        tokio::task::yield_now().await;
    }
    clock.0.fetch_add(1_000, Ordering::Relaxed);
    for item in 0..20 {
        let item = items(item..item + 1);
        let late = coordinator.insert("f", &item, None, None, deadline()).await;
        assert_eq!(late.map(drop), missing());
    }
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_dropped_at_a_time_as_it_was_seen() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let filter = create(&coordinator, "f", Kind::Blocked).await;
    let (name, seen) = (FilterName::new("f").unwrap(), Seen { filter, generation: None });
    let last = Some(u64::MAX);
    coordinator.expire(&name, None, last, deadline()).await.unwrap();
    let late = coordinator.expire_now(&name, seen, None, deadline()).await;
    assert_eq!(late, Err(MetaError::ExpiryChanged { filter }.into()));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(Some((filter, last))));
    // Of two at once, by this command and another one, one has dropped it.
    let (expired, dropped) = tokio::join!(
        coordinator.expire_now(&name, seen, last, deadline()),
        coordinator.take_filter(&name, Some(seen), deadline()),
    );
    let (done, late) = if expired.is_ok() { (expired, dropped) } else { (dropped, expired) };
    assert_eq!(done, Ok(false));
    assert_eq!(late, Err(CallFailure::UnknownFilter { name: "f".to_owned() }));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(None));

    create_replicated(&coordinator, "near").await;
    let name = FilterName::new("near").unwrap();
    let (filter, _) = coordinator.expiry(&name, deadline()).await.unwrap().unwrap();
    let seen = Seen { filter, generation: None };
    assert_eq!(coordinator.expire_now(&name, seen, None, deadline()).await, Ok(true));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(None));
    drop(coordinator);
    node.shutdown().await;
}
