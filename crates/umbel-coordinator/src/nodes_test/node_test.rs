//! Whole nodes on loopback and real disks, asked through their coordinators.

use umbel_engine::meta::{Distribution, FilterName};
use umbel_engine::{GroupId, ShardId};
use umbel_filter::Kind;

use super::*;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
pub(crate) use crate::testing::{MINUTES, create, items};
use crate::{ClientRequest, ReadLevel};
pub(crate) use umbel_node::testing::{
    PeersOnly, config, deadline, free_addresses, start, start_alone, start_cluster,
};

/// Creates a replicated filter for 10,000 items, with a false positive rate of 1 in 100.
pub(crate) async fn create_replicated(coordinator: &Coordinator, name: &str) {
    let new = FilterRequest::Planned {
        kind: Kind::Blocked,
        distribution: Distribution::Replicated,
        capacity: 10_000,
        size: FilterSize::Rate(0.01),
        hashing: Hashing::Keyed,
    };
    let name = FilterName::new(name).unwrap();
    coordinator.create(&name, &new, None, deadline()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_node_to_learn_of_the_formation_waits_for_it() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let addresses = free_addresses(2);
    let both = folders.iter().zip(&addresses).map(|(folder, address)| Config {
        listen: address.clone(),
        initial_cluster: addresses.clone(),
        shards: 1,
        ..config(folder.path())
    });
    let [founder, other]: [Config; 2] = both.collect::<Vec<_>>().try_into().unwrap();
    // The other one is there before the first one can form the cluster with it.
    let early = async {
        let node = start(other).await;
        create(&node.coordinator(), "seen", Kind::Blocked).await;
        node
    };
    let (founder, other) = tokio::join!(start(founder), early);
    founder.coordinator().info(&FilterName::new("seen").unwrap(), deadline()).await.unwrap();
    founder.shutdown().await;
    other.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_remembers_and_is_elected_again() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    let new = coordinator.insert("seen", &items(0..1000), None, None, deadline()).await.unwrap().0;
    assert_eq!((new.len(), new.count_ones()), (1000, 1000));
    let shard = node.local().shard(ShardId(0)).unwrap();
    let term = shard.group().term();
    drop((coordinator, shard));
    node.shutdown().await;

    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let level = ReadLevel::Linearizable;
    let present =
        coordinator.contains("seen", &items(0..1001), Some(level), deadline()).await.unwrap().0;
    assert_eq!(present.count_ones(), 1000);
    let new =
        coordinator.insert("seen", &items(500..1500), None, None, deadline()).await.unwrap().0;
    assert_eq!(new.count_ones(), 500);
    // With openraft's leader restore on, it would have gone on in the term that it had.
    assert!(node.local().shard(ShardId(0)).unwrap().group().term() > term);
    drop(coordinator);
    node.shutdown().await;
}

/// The term and the last applied entry of each shard, once all nodes have the same. A follower applies a shard's last
/// entries a moment after the leader, when it learns of their commit.
async fn settled(nodes: &[Node]) -> Vec<(u64, u64)> {
    let of_node = |node: &Node| -> Vec<(u64, u64)> {
        let shards = node.local().shards();
        shards.iter().map(|shard| (shard.group().term(), shard.group().applied_index())).collect()
    };
    let end = deadline();
    loop {
        let first = of_node(&nodes[0]);
        if nodes.iter().all(|node| of_node(node) == first) {
            return first;
        }
        assert!(Instant::now() < end, "the nodes stay apart");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_answer_alike() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let coordinators: Vec<_> = nodes.iter().map(Node::coordinator).collect();
    create(&coordinators[0], "seen", Kind::Blocked).await;
    let new =
        coordinators[1].insert("seen", &items(0..1000), None, None, deadline()).await.unwrap().0;
    assert_eq!(new.count_ones(), 1000);
    for coordinator in &coordinators {
        for level in [ReadLevel::Linearizable, ReadLevel::AnyReplica] {
            let queried = items(0..1001);
            let present =
                coordinator.contains("seen", &queried, Some(level), deadline()).await.unwrap().0;
            assert_eq!(present.count_ones(), 1000);
        }
    }
    // What is present costs no entry of a log. A new leader's term begins with one, and on a busy machine there may be
    // an election meanwhile.
    loop {
        let before = settled(&nodes).await;
        let again = coordinators[2].insert("seen", &items(0..1000), None, None, deadline()).await;
        assert_eq!(again.unwrap().0.count_ones(), 0);
        let after = settled(&nodes).await;
        let terms = |of_shards: &[(u64, u64)]| -> Vec<u64> {
            of_shards.iter().map(|(term, _)| *term).collect()
        };
        if terms(&after) == terms(&before) {
            assert_eq!(after, before);
            break;
        }
    }
    drop(coordinators);
    futures_util::future::join_all(nodes.into_iter().map(Node::shutdown)).await;
}

/// What any of them inserted counts at once at all others, whoever leads the item's shard.
#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_count_alike() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let coordinators: Vec<_> = nodes.iter().map(Node::coordinator).collect();
    for kind in [Kind::Cuckoo, Kind::Quotient] {
        let name = kind.name();
        create(&coordinators[0], name, kind).await;
        for (inserting, expected) in coordinators.iter().zip(1..) {
            inserting.insert(name, &items(7..8), None, None, deadline()).await.unwrap();
            for coordinator in &coordinators {
                let copies = coordinator.copies_of_item(name, &items(7..8), deadline()).await;
                assert_eq!(copies, Ok(expected), "{kind}");
            }
        }
    }
    drop(coordinators);
    futures_util::future::join_all(nodes.into_iter().map(Node::shutdown)).await;
}

/// However many clients of several nodes do so at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_absent_item_is_inserted_once() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let coordinators: Vec<_> = nodes.iter().map(Node::coordinator).collect();
    coordinators[0].releases().upgrade(deadline()).await.unwrap();
    for coordinator in &coordinators {
        coordinator.meta_refresh(deadline()).await.unwrap();
    }
    for kind in [Kind::Cuckoo, Kind::Quotient] {
        let name = kind.name();
        create(&coordinators[0], name, kind).await;
        for number in 0..10 {
            let item = items(number..number + 1);
            // More clients than the filters tell copies.
            let asked = coordinators.iter().cycle().take(12);
            let calls = asked.map(|asked| asked.insert_absent(name, &item, deadline()));
            let answers = futures_util::future::join_all(calls).await;
            let new = answers.into_iter().filter(|answer| {
                let new = answer.as_ref().unwrap().as_ref();
                new.expect("the cluster is at the newest version").get(0)
            });
            assert_eq!(new.count(), 1, "{kind}");
            let copies = coordinators[1].copies_of_item(name, &item, deadline()).await;
            assert_eq!(copies, Ok(1), "{kind}");
        }
    }
    drop(coordinators);
    futures_util::future::join_all(nodes.into_iter().map(Node::shutdown)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gets_its_first_answer() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    let session = coordinator.sessions().open(String::new(), deadline()).await.unwrap();
    let request = |sequence| {
        let id = umbel_engine::RequestId { session, sequence };
        Some(ClientRequest { id, acknowledged_below: 1, owner: umbel_engine::OwnerId::default() })
    };
    let first =
        coordinator.insert("seen", &items(0..100), request(1), None, deadline()).await.unwrap().0;
    assert_eq!(first.count_ones(), 100);
    let other =
        coordinator.insert("seen", &items(50..150), request(2), None, deadline()).await.unwrap().0;
    assert_eq!(other.count_ones(), 50);
    let again =
        coordinator.insert("seen", &items(0..100), request(1), None, deadline()).await.unwrap().0;
    assert_eq!(again, first);
    let reused = coordinator.insert("seen", &items(1..101), request(1), None, deadline()).await;
    assert!(reused.unwrap_err().to_string().contains("came before with other items"));
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_answers_and_clears() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    for kind in Kind::ALL {
        let name = kind.to_string();
        create(&coordinator, &name, kind).await;
        let new =
            coordinator.insert(&name, &items(0..200), None, None, deadline()).await.unwrap().0;
        assert_eq!(new.count_ones(), 200, "{kind}");
        let level = ReadLevel::AnyReplica;
        let present =
            coordinator.contains(&name, &items(0..300), Some(level), deadline()).await.unwrap().0;
        assert_eq!(present.count_ones(), 200, "{kind}");
        let removed = coordinator.remove(&name, &items(0..50), None, deadline()).await;
        assert_eq!(removed.is_ok(), kind.removes(), "{kind}: {removed:?}");
        let filter = FilterName::new(name.as_str()).unwrap();
        coordinator.clear(&filter, None, deadline()).await.unwrap();
        let present =
            coordinator.contains(&name, &items(0..300), Some(level), deadline()).await.unwrap().0;
        assert_eq!(present.count_ones(), 0, "{kind}");
        coordinator.drop_filter(&filter, None, deadline()).await.unwrap();
        let gone = coordinator.contains(&name, &items(0..1), Some(level), deadline()).await;
        assert!(matches!(gone, Err(umbel_node::failure::CallFailure::UnknownFilter { .. })));
    }
    drop(coordinator);
    node.shutdown().await;
}

/// The meta group has fewer entries than are kept behind a snapshot, and must not keep the whole
/// log with them.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_few_entries_lets_go_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    let meta = node.local().meta();
    assert!(node.local().storage().log_bytes(GroupId::META) > 0);
    let let_go = async {
        while node.local().storage().log_bytes(GroupId::META) > 0 {
            meta.snapshot().await;
            meta.purge_to_snapshot().await;
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout_at(deadline(), let_go).await.unwrap();
    drop(coordinator);
    node.shutdown().await;
}

/// Makes every rare choice.
struct Provoking;

impl Seed for Provoking {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        RealSeed.fill(purpose, bytes);
    }

    fn wall_ms(&self) -> u64 {
        RealSeed.wall_ms()
    }

    fn provokes(&self, _rare: Rare) -> bool {
        true
    }
}

/// Remembers which kinds of events there were, and digests by group and entry.
#[derive(Default)]
struct RecordingObserver {
    kinds: std::sync::Mutex<std::collections::BTreeSet<&'static str>>,
    digests: std::sync::Mutex<std::collections::BTreeMap<(GroupId, u64), u64>>,
}

impl umbel_node::ports::NodeObserver for RecordingObserver {
    fn observe(&self, event: &Event<'_>) {
        let kind = match event {
            Event::LogOpened { last: None, .. } => "new log",
            Event::LogOpened { last: Some(last), ends, .. } => {
                assert!(ends.last().is_none_or(|end| end == last));
                "log opened"
            }
            Event::Appended { .. } => "appended",
            Event::Durable { .. } => "durable",
            Event::Truncated { .. } => "truncated",
            Event::Purged { .. } => "purged",
            Event::VoteSaved { .. } => "vote saved",
            Event::Applied { group, entry, digest, .. } => {
                let digest = digest();
                let mut digests = self.digests.lock().unwrap();
                assert_eq!(*digests.entry((*group, entry.index)).or_insert(digest), digest);
                "applied"
            }
            Event::SnapshotBuilt { .. } => "snapshot built",
            Event::SnapshotLoaded { group, through, digest } => {
                let digests = self.digests.lock().unwrap();
                let applied = digests[&(*group, through.unwrap().index)];
                assert_eq!(digest(), applied);
                "snapshot loaded"
            }
            Event::Forgotten { .. } => "forgotten",
            Event::DamageFound { .. } => "damage found",
            Event::EntryUnknown { .. } => "entry unknown",
        };
        self.kinds.lock().unwrap().insert(kind);
    }
}

/// Has every group write a snapshot and let go of its log, as far as it had applied this when it was asked:
/// the catalogue may get an entry of its own meanwhile.
async fn snapshot_and_purge(node: &Node) {
    let applied: Vec<_> = node.groups().iter().map(|group| group.applied).collect();
    assert!(node.snapshot_groups().await);
    for (group, applied) in node.groups().iter().zip(applied) {
        assert!(applied.is_some() && group.snapshot >= applied && group.purged >= applied);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_missing_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let start = async || {
        let config = Config { dev: true, shards: 2, replicas: 1, ..config(folder.path()) };
        let mut ports = Ports::real(folder.path()).unwrap();
        ports.seed = Arc::new(Provoking);
        Node::start(config, ports, Box::new(PeersOnly)).await
    };
    let node = start().await.unwrap();
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    snapshot_and_purge(&node).await;
    node.shutdown().await;
    let snapshots = folder.path().join("snapshots");
    for group in std::fs::read_dir(&snapshots).unwrap() {
        std::fs::remove_dir_all(group.unwrap().path()).unwrap();
    }
    let refused = start().await.map(drop).unwrap_err().to_string();
    for words in ["snapshots/", "is missing", "put it back", "empty data folder"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_reports_its_events_to_the_observer() {
    let folder = tempfile::tempdir().unwrap();
    let observer = Arc::new(RecordingObserver::default());
    let start = async || {
        let config = Config { dev: true, shards: 4, replicas: 1, ..config(folder.path()) };
        let mut ports = Ports::real(folder.path()).unwrap();
        ports.seed = Arc::new(Provoking);
        ports.observer = Some(Arc::clone(&observer) as _);
        Node::start(config, ports, Box::new(PeersOnly)).await
    };
    let node = start().await.unwrap();
    let coordinator = node.coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    for item in 0..100 {
        coordinator.insert("seen", &items(item..item + 1), None, None, deadline()).await.unwrap();
    }
    let groups = node.groups();
    assert_eq!(groups.len(), 5);
    assert!(groups.iter().all(|group| group.is_leader && group.failure.is_none()));
    snapshot_and_purge(&node).await;
    // Nobody is there to take the leaderships.
    node.hand_over().await;
    drop(coordinator);
    node.shutdown().await;
    let node = start().await.unwrap();
    let coordinator = node.coordinator();
    let level = ReadLevel::Linearizable;
    let present =
        coordinator.contains("seen", &items(0..101), Some(level), deadline()).await.unwrap().0;
    assert_eq!(present.count_ones(), 100);
    drop(coordinator);
    node.shutdown().await;
    let damaged = folder.path().join("identity");
    std::fs::write(&damaged, b"what is no identity").unwrap();
    assert!(start().await.is_err());
    let expected = [
        "appended",
        "applied",
        "damage found",
        "durable",
        "log opened",
        "new log",
        "purged",
        "snapshot built",
        "snapshot loaded",
        "vote saved",
    ];
    assert_eq!(observer.kinds.lock().unwrap().iter().copied().collect::<Vec<_>>(), expected);
}
