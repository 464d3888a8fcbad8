//! Replicated windowed filters, on nodes whose clocks the test controls.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use tempfile::TempDir;
use umbel_engine::meta::Distribution;
use umbel_engine::shard::{LateItems, PartError, WindowRules, WindowTime};
use umbel_filter::Kind;

use super::node_test::{PeersOnly, config, deadline, free_addresses, items};
use super::replicated_copies_test::{exported, import};
use super::replicated_test::{confirmed, flush_all, insert, name, present, stop};
use super::windowed_test::{Clock, DAY_MS, MINUTE_MS, RULES};
use super::*;
use crate::ReadLevel;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use umbel_node::failure::CallFailure;

/// How long a flush waits for a copy that does not get everything.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// Nodes that begin a sweep only when requested, each with its own clock.
pub(super) struct Clocked {
    folders: Vec<TempDir>,
    configs: Vec<Config>,
    clocks: Vec<Arc<Clock>>,
    nodes: Vec<Node>,
}

impl Clocked {
    pub(super) async fn start(count: usize) -> Self {
        let folders: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let addresses = free_addresses(count);
        let own = |(folder, address): (&TempDir, &String)| Config {
            listen: address.clone(),
            initial_cluster: addresses.clone(),
            shards: 1,
            sweep_interval_ms: 600_000,
            ..config(folder.path())
        };
        let configs: Vec<Config> = folders.iter().zip(&addresses).map(own).collect();
        let clock = |_| Arc::new(Clock(AtomicU64::new(1_000 * MINUTE_MS)));
        let clocks: Vec<Arc<Clock>> = (0..count).map(clock).collect();
        let starts = configs.iter().zip(&clocks).map(|(config, clock)| start(config, clock));
        let nodes = join_all(starts).await;
        Self { folders, configs, clocks, nodes }
    }

    pub(super) fn coordinators(&self) -> Vec<Arc<Coordinator>> {
        self.nodes.iter().map(Node::coordinator).collect()
    }

    fn pass(&self, minutes: u64) {
        for clock in &self.clocks {
            clock.0.fetch_add(minutes * MINUTE_MS, Ordering::Relaxed);
        }
    }

    /// Moves one node's clock ahead, so slowly that the node does not take it for a jump.
    pub(super) fn run_ahead(&self, at: usize, minutes: u64) {
        for _ in 0..minutes {
            self.clocks[at].0.fetch_add(MINUTE_MS, Ordering::Relaxed);
            self.nodes[at].look_at_clock();
        }
    }

    pub(super) async fn stop(self) {
        stop(self.nodes).await;
        drop(self.folders);
    }
}

async fn start(config: &Config, clock: &Arc<Clock>) -> Node {
    let data = std::path::Path::new(&config.data);
    let seed: Arc<dyn Seed> = Arc::clone(clock) as _;
    let ports = Ports { seed, ..Ports::real(data).unwrap() };
    Node::start(config.clone(), ports, Box::new(PeersOnly)).await.unwrap()
}

fn window(rules: WindowRules, capacity: u64) -> FilterRequest {
    FilterRequest::Planned {
        kind: Kind::Window,
        distribution: Distribution::Replicated,
        capacity,
        size: FilterSize::Window { rate: 1e-6, rules },
        hashing: Hashing::Keyed,
    }
}

/// With 31 slices a lookup reads 33, each with a blocked filter's lowest rate at best.
#[test]
fn a_rate_has_a_floor_that_rises_with_the_slices() {
    let rules = WindowRules { slice_count: 31, ..RULES };
    let text = umbel_engine::shard::SliceShape::plan_ring(10, 3e-6, rules).unwrap_err().to_string();
    assert_eq!(text, "a rate of 3e-6, expected at least 3.3e-6 where 33 slices of time are asked");
}

async fn create(coordinator: &Coordinator, filter: &str, rules: WindowRules) -> FilterId {
    let new = window(rules, 10_000);
    let (id, _) = coordinator.create(&name(filter), &new, None, deadline()).await.unwrap();
    confirmed(coordinator).await;
    id
}

async fn local(coordinator: &Coordinator, filter: &str, range: std::ops::Range<u32>) -> u32 {
    present(coordinator, filter, range, ReadLevel::Local).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_copies_forget_what_came_before_the_window() {
    let cluster = Clocked::start(3).await;
    let coordinators = cluster.coordinators();
    let id = create(&coordinators[0], "minutes", RULES).await;
    assert_eq!(insert(&coordinators[0], "minutes", 0..100).await, 100);
    // One clock is a slice ahead; inserts there are accepted, and nothing expires because of it.
    cluster.clocks[2].0.fetch_add(MINUTE_MS, Ordering::Relaxed);
    assert_eq!(insert(&coordinators[2], "minutes", 100..150).await, 50);
    flush_all(&coordinators[1], "minutes").await;
    for one in &coordinators {
        assert_eq!(local(one, "minutes", 0..150).await, 150);
        // The window starts with the first insert.
        assert_eq!(insert(one, "minutes", 0..150).await, 0);
    }
    cluster.clocks[2].0.fetch_sub(MINUTE_MS, Ordering::Relaxed);
    cluster.pass(5);
    let counts = join_all(coordinators.iter().map(|one| local(one, "minutes", 0..150))).await;
    assert_eq!(counts, [150; 3]);
    cluster.pass(1);
    for one in &coordinators {
        assert_eq!(
            (local(one, "minutes", 0..100).await, local(one, "minutes", 100..150).await),
            (0, 50)
        );
    }
    cluster.pass(1);
    for one in &coordinators {
        assert_eq!(local(one, "minutes", 0..150).await, 0);
    }
    // The items are new again, and reach all nodes again.
    assert_eq!(insert(&coordinators[1], "minutes", 0..20).await, 20);
    flush_all(&coordinators[0], "minutes").await;
    assert!(cluster.nodes.iter().all(|node| node.copy(id) == cluster.nodes[0].copy(id)));
    let load =
        coordinators[0].info(&name("minutes"), deadline()).await.unwrap().copies.unwrap().own;
    // Items of the slice that expired last stay in memory until its place is reused.
    assert!(load.item_count.is_some_and(|count| (count - 70.0).abs() < 5.0), "{load:?}");
    drop(coordinators);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_far_ahead_empties_no_other_copy_and_is_counted() {
    let cluster = Clocked::start(2).await;
    let coordinators = cluster.coordinators();
    create(&coordinators[0], "minutes", RULES).await;
    insert(&coordinators[0], "minutes", 0..100).await;
    cluster.run_ahead(1, 100);
    assert_eq!(insert(&coordinators[1], "minutes", 100..110).await, 10);
    // The insert does not reach node 1, which reports that.
    let (filter, end) = (name("minutes"), deadline());
    loop {
        let flushed =
            coordinators[0].copies().flush(&filter, Instant::now() + FLUSH_PATIENCE).await;
        // A busy machine may not even find the filter in that time.
        assert!(!flushed.is_ok_and(|flushed| flushed.missing.is_empty()));
        let info = coordinators[0].info(&filter, end).await.unwrap().copies.unwrap();
        if info.own.refused_count > 0 {
            break;
        }
        assert!(Instant::now() < end, "nothing was refused");
    }
    assert_eq!(
        (
            local(&coordinators[0], "minutes", 0..100).await,
            local(&coordinators[0], "minutes", 100..110).await
        ),
        (100, 0)
    );
    assert_eq!(local(&coordinators[1], "minutes", 0..100).await, 0);
    // Once the other clock catches up, everything arrives.
    cluster.run_ahead(0, 99);
    flush_all(&coordinators[0], "minutes").await;
    assert_eq!(local(&coordinators[0], "minutes", 100..110).await, 10);
    drop(coordinators);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_by_a_day_and_back_empties_no_copy() {
    let cluster = Clocked::start(1).await;
    let coordinator = cluster.coordinators().remove(0);
    create(&coordinator, "minutes", RULES).await;
    insert(&coordinator, "minutes", 0..100).await;
    cluster.clocks[0].0.fetch_add(DAY_MS, Ordering::Relaxed);
    assert_eq!(local(&coordinator, "minutes", 0..100).await, 100);
    assert_eq!(insert(&coordinator, "minutes", 50..150).await, 50);
    cluster.clocks[0].0.fetch_sub(DAY_MS, Ordering::Relaxed);
    assert_eq!(local(&coordinator, "minutes", 0..150).await, 150);
    cluster.pass(6);
    assert_eq!(local(&coordinator, "minutes", 0..150).await, 0);
    drop(coordinator);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_survive_restarts_with_and_without_a_snapshot() {
    let mut cluster = Clocked::start(1).await;
    let coordinators = cluster.coordinators();
    create(&coordinators[0], "first", RULES).await;
    create(&coordinators[0], "last", WindowRules { refresh: true, ..RULES }).await;
    for filter in ["first", "last"] {
        assert_eq!(insert(&coordinators[0], filter, 0..100).await, 100);
    }
    cluster.pass(2);
    for filter in ["first", "last"] {
        assert_eq!(insert(&coordinators[0], filter, 50..150).await, 50);
    }
    // The imported copy is saved by the import; its later inserts are only in its log.
    import(&coordinators[0], exported(&coordinators[0], "last", "again").await).await.unwrap();
    cluster.pass(1);
    assert_eq!(insert(&coordinators[0], "again", 150..160).await, 10);
    drop(coordinators);
    cluster.nodes.pop().unwrap().shutdown().await;

    cluster.pass(2);
    cluster.nodes.push(start(&cluster.configs[0], &cluster.clocks[0]).await);
    let coordinators = cluster.coordinators();
    for filter in ["first", "last", "again"] {
        assert_eq!(local(&coordinators[0], filter, 0..150).await, 150, "{filter}");
    }
    cluster.pass(1);
    assert_eq!(local(&coordinators[0], "first", 0..150).await, 50);
    assert_eq!(local(&coordinators[0], "last", 0..150).await, 100);
    assert_eq!(local(&coordinators[0], "again", 0..160).await, 110);
    // A clock that is set back makes nothing expire, and keeps nothing longer.
    insert(&coordinators[0], "last", 200..201).await;
    cluster.clocks[0].0.fetch_sub(100 * MINUTE_MS, Ordering::Relaxed);
    assert_eq!(local(&coordinators[0], "last", 0..150).await, 100);
    cluster.clocks[0].0.fetch_add(102 * MINUTE_MS, Ordering::Relaxed);
    assert_eq!(local(&coordinators[0], "last", 0..150).await, 0);
    drop(coordinators);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_replicated_window_is_not_is_refused() {
    let cluster = Clocked::start(1).await;
    let coordinator = cluster.coordinators().remove(0);
    create(&coordinator, "minutes", RULES).await;
    let at_ms = Some(1_000 * MINUTE_MS);
    let item = items(0..1);
    let inserted = coordinator.insert_of("minutes", &item, None, None, at_ms, deadline());
    let refused = inserted.await.unwrap_err();
    assert!(matches!(refused, CallFailure::Invalid { .. }), "{refused}");
    // So no rotation has copies to wait for.
    let refused = coordinator.rotate(&name("minutes"), deadline()).await.unwrap_err();
    assert!(matches!(refused, CallFailure::Part(PartError::WrongKind { .. })), "{refused}");
    let made = async |rules, capacity| {
        let made =
            coordinator.create(&name("other"), &window(rules, capacity), None, deadline()).await;
        made.unwrap_err().to_string()
    };
    let event = WindowRules { time: WindowTime::Event, late: LateItems::Drop, ..RULES };
    assert!(made(event, 10).await.contains("event_time is set"));
    let manual = WindowRules { slice_ms: 0, time: WindowTime::Manual, ..RULES };
    assert!(made(manual, 10).await.contains("end by time"));
    assert!(made(RULES, 0).await.contains("capacity is 0"));
    assert!(made(RULES, 200_000_000).await.contains("bytes for each copy of the window"));
    for slice_count in [0, 63, 1_000_000] {
        let text = made(WindowRules { slice_count, ..RULES }, 10).await;
        assert!(
            text.contains(&format!("a window of {slice_count} slices, expected 1 to 62")),
            "{text}"
        );
    }
    drop(coordinator);
    cluster.stop().await;
}
