//! Windowed filters, on a node whose clock the test controls.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_engine::meta::{Distribution, FilterChange, FilterName};
use umbel_engine::shard::{LateItems, PartError, WindowRules, WindowTime};
use umbel_filter::Kind;

use super::node_test::{PeersOnly, config, deadline, items};
use super::*;
use crate::ReadLevel;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use umbel_node::failure::CallFailure;

/// A wall clock that stands still unless the test advances it.
pub(super) struct Clock(pub(super) AtomicU64);

impl Seed for Clock {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        RealSeed.fill(purpose, bytes);
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A node with four shards.
pub(super) async fn start(data: &Path, clock: &Arc<Clock>) -> Node {
    let config = Config { dev: true, shards: 4, replicas: 1, ..config(data) };
    let seed: Arc<dyn Seed> = Arc::clone(clock) as _;
    let ports = Ports { seed, ..Ports::real(data).unwrap() };
    Node::start(config, ports, Box::new(PeersOnly)).await.unwrap()
}

async fn create(coordinator: &Coordinator, name: &str, rules: WindowRules) {
    let new = FilterRequest::Planned {
        kind: Kind::Window,
        distribution: Distribution::Partitioned,
        capacity: 10_000,
        size: FilterSize::Window { rate: 1e-9, rules },
        hashing: Hashing::Keyed,
    };
    coordinator.create(&FilterName::new(name).unwrap(), &new, None, deadline()).await.unwrap();
}

/// Five slices of a minute each.
pub(super) const RULES: WindowRules = WindowRules {
    slice_ms: 60_000,
    slice_count: 5,
    time: WindowTime::Ingest,
    late: LateItems::Reject,
    refresh: false,
};

pub(super) const MINUTE_MS: u64 = 60_000;

pub(super) const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

async fn present(coordinator: &Coordinator, name: &str, range: std::ops::Range<u32>) -> u32 {
    let level = Some(ReadLevel::AnyReplica);
    let answer = coordinator.contains(name, &items(range), level, deadline()).await;
    answer.unwrap().0.count_ones()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_forgets_with_the_leaders_clock_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(1_000 * MINUTE_MS)));
    let node = start(folder.path(), &clock).await;
    let coordinator = node.coordinator();
    create(&coordinator, "minutes", RULES).await;
    let insert = async |coordinator: &Coordinator, range| {
        let answer = coordinator.insert("minutes", &items(range), None, None, deadline()).await;
        answer.unwrap().0.count_ones()
    };
    assert_eq!(insert(&coordinator, 0..100).await, 100);
    clock.0.fetch_add(2 * MINUTE_MS, Ordering::Relaxed);
    assert_eq!(insert(&coordinator, 50..150).await, 50);
    drop(coordinator);
    node.shutdown().await;

    // After the sixth minute, only the second minute's items are left.
    clock.0.fetch_add(3 * MINUTE_MS, Ordering::Relaxed);
    let node = start(folder.path(), &clock).await;
    let coordinator = node.coordinator();
    assert_eq!(present(&coordinator, "minutes", 0..150).await, 150);
    clock.0.fetch_add(MINUTE_MS, Ordering::Relaxed);
    assert_eq!(present(&coordinator, "minutes", 0..150).await, 50);
    assert_eq!(insert(&coordinator, 0..150).await, 100);
    let info = coordinator.info(&FilterName::new("minutes").unwrap(), deadline()).await.unwrap();
    assert_eq!(info.sum(|slice| slice.one_count), 150);
    // A clock that is set back makes nothing expire, and keeps nothing longer.
    clock.0.fetch_sub(100 * MINUTE_MS, Ordering::Relaxed);
    assert_eq!(present(&coordinator, "minutes", 0..150).await, 150);
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_by_a_day_and_back_moves_no_window() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(1_000 * MINUTE_MS)));
    let node = start(folder.path(), &clock).await;
    let coordinator = node.coordinator();
    create(&coordinator, "minutes", RULES).await;
    let insert = async |range| {
        let answer = coordinator.insert("minutes", &items(range), None, None, deadline()).await;
        answer.unwrap().0.count_ones()
    };
    assert_eq!(insert(0..100).await, 100);
    clock.0.fetch_add(DAY_MS, Ordering::Relaxed);
    assert_eq!(present(&coordinator, "minutes", 0..100).await, 100);
    assert_eq!(insert(50..150).await, 50);
    clock.0.fetch_sub(DAY_MS, Ordering::Relaxed);
    assert_eq!(present(&coordinator, "minutes", 0..150).await, 150);
    // It moves on as before.
    clock.0.fetch_add(6 * MINUTE_MS, Ordering::Relaxed);
    assert_eq!(present(&coordinator, "minutes", 0..150).await, 0);
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_bring_their_own_time_where_the_window_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let now_ms = 1_000 * MINUTE_MS;
    let clock = Arc::new(Clock(AtomicU64::new(now_ms)));
    let node = start(folder.path(), &clock).await;
    let coordinator = node.coordinator();
    create(&coordinator, "events", WindowRules { time: WindowTime::Event, ..RULES }).await;
    create(&coordinator, "arrivals", RULES).await;
    node_test::create(&coordinator, "plain", Kind::Blocked).await;
    let insert = async |name, range, at_ms| {
        coordinator.insert_of(name, &items(range), None, None, Some(at_ms), deadline()).await
    };
    let new = insert("events", 0..10, now_ms - 5 * MINUTE_MS).await.unwrap().0;
    assert_eq!(new.count_ones(), 10);
    let late = insert("events", 10..11, now_ms - 5 * MINUTE_MS - 1).await.unwrap_err();
    assert!(matches!(late, CallFailure::Part(PartError::LateItem { .. })), "{late}");
    let early = insert("events", 10..11, now_ms + 2 * MINUTE_MS).await.unwrap_err();
    assert!(matches!(early, CallFailure::Part(PartError::FutureItem { .. })), "{early}");
    let refused = insert("arrivals", 0..1, now_ms).await.unwrap_err();
    assert!(matches!(refused, CallFailure::Invalid { .. }), "{refused}");
    assert!(
        refused.to_string().contains("\"arrivals\" counts by the time of arrival"),
        "{refused}"
    );
    let refused = insert("plain", 0..1, now_ms).await.unwrap_err();
    assert!(refused.to_string().contains("has no window"), "{refused}");
    clock.0.fetch_add(MINUTE_MS, Ordering::Relaxed);
    assert_eq!(present(&coordinator, "events", 0..11).await, 0);
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_by_hand_is_rotated_in_all_shards() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(1_000 * MINUTE_MS)));
    let node = start(folder.path(), &clock).await;
    let coordinator = node.coordinator();
    let rules = WindowRules { slice_ms: 0, slice_count: 1, time: WindowTime::Manual, ..RULES };
    create(&coordinator, "runs", rules).await;
    create(&coordinator, "minutes", RULES).await;
    let name = FilterName::new("runs").unwrap();
    let insert = async |coordinator: &Coordinator, range| {
        let answer = coordinator.insert("runs", &items(range), None, None, deadline()).await;
        answer.unwrap().0.count_ones()
    };
    assert_eq!(insert(&coordinator, 0..100).await, 100);
    clock.0.fetch_add(1 << 40, Ordering::Relaxed);
    assert_eq!(coordinator.rotate(&name, deadline()).await.unwrap().0, 2);
    assert_eq!(insert(&coordinator, 50..150).await, 50);
    drop(coordinator);
    node.shutdown().await;

    let node = start(folder.path(), &clock).await;
    let coordinator = node.coordinator();
    assert_eq!(present(&coordinator, "runs", 0..150).await, 150);
    assert_eq!(coordinator.rotate(&name, deadline()).await.unwrap().0, 3);
    assert_eq!(present(&coordinator, "runs", 0..150).await, 50);
    // Windows that follow a clock cannot be rotated by hand, nor can filters without slices.
    node_test::create(&coordinator, "plain", Kind::Blocked).await;
    for other in ["minutes", "plain"] {
        let refused = coordinator.rotate(&FilterName::new(other).unwrap(), deadline()).await;
        let is_wrong = matches!(refused, Err(CallFailure::Part(PartError::WrongKind { .. })));
        assert!(is_wrong, "{refused:?}");
    }
    drop(coordinator);
    node.shutdown().await;
}

/// The order to clear the window arrives when a rotation, which was ordered after it, is done.
#[tokio::test(flavor = "multi_thread")]
async fn no_rotation_passes_for_a_clearing() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(1_000 * MINUTE_MS)));
    let node = start(folder.path(), &clock).await;
    let coordinator = node.coordinator();
    let by_hand = WindowRules { slice_ms: 0, time: WindowTime::Manual, ..RULES };
    create(&coordinator, "runs", by_hand).await;
    let name = FilterName::new("runs").unwrap();
    coordinator.insert("runs", &items(0..100), None, None, deadline()).await.unwrap();
    let seen = coordinator.info(&name, deadline()).await.unwrap();
    assert_eq!(coordinator.rotate(&name, deadline()).await, Ok(Generation(2)));
    let change = FilterChange::Clear { generation: seen.record.generation };
    let late = coordinator.begin_generation(seen.id, &seen.record, change, deadline()).await;
    assert!(matches!(late, Err(CallFailure::OutcomeUnknown { .. })), "{late:?}");
    assert_eq!(present(&coordinator, "runs", 0..100).await, 100);
    let cleared = coordinator.clear(&name, None, deadline()).await;
    assert_eq!(cleared, Ok((Generation(3), false)));
    assert_eq!(present(&coordinator, "runs", 0..100).await, 0);
    drop(coordinator);
    node.shutdown().await;
}
