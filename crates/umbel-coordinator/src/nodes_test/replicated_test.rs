//! Replicated filters on whole nodes, over loopback and on real disks.

use tempfile::TempDir;
use umbel_engine::meta::{Distribution, FilterName};
use umbel_engine::{GroupId, NodeId};
use umbel_filter::{Describe, Kind};
use umbel_proto::v1;

use super::node_test::{config, deadline, free_addresses, items, start};
use super::*;
use crate::AckLevel;
use crate::ReadLevel;
use crate::catalogue::{CopiesInfo, FilterRequest, Hashing};
use crate::sizes::FilterSize;
use umbel_node::calls::CopyReport;
use umbel_node::failure::CallFailure;
use umbel_node::peer::peer_client;
use umbel_node::peer::{LocalIdentity, add_hello};

pub(super) const KINDS: [Kind; 2] = [Kind::Blocked, Kind::SingleShot];

pub(crate) fn name(name: &str) -> FilterName {
    FilterName::new(name).unwrap()
}

/// Nodes that begin a sweep only when requested, or when another node does.
fn quiet(folder: &TempDir, address: &str, addresses: &[String]) -> Config {
    Config {
        listen: address.to_owned(),
        initial_cluster: addresses.to_vec(),
        shards: 1,
        sweep_interval_ms: 600_000,
        ..config(folder.path())
    }
}

pub(super) async fn start_quiet(folders: &[TempDir]) -> (Vec<Config>, Vec<Node>) {
    let addresses = free_addresses(folders.len());
    let both = folders.iter().zip(&addresses);
    let configs: Vec<Config> =
        both.map(|(folder, address)| quiet(folder, address, &addresses)).collect();
    let nodes = futures_util::future::join_all(configs.iter().cloned().map(start)).await;
    (configs, nodes)
}

pub(crate) async fn create(coordinator: &Coordinator, filter: &str, kind: Kind) -> FilterId {
    let new = FilterRequest::Planned {
        kind,
        distribution: Distribution::Replicated,
        capacity: 10_000,
        // So that tests that count new items meet no false positive.
        size: FilterSize::Rate(1e-6),
        hashing: Hashing::Keyed,
    };
    let (id, _) = coordinator.create(&name(filter), &new, None, deadline()).await.unwrap();
    confirmed(coordinator).await;
    id
}

/// Waits until all nodes' copies are as the catalogue requires: a node that has just started may not be heard yet.
pub(super) async fn confirmed(coordinator: &Coordinator) {
    let end = deadline();
    while !coordinator.copies().unconfirmed(end).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "a node stays away");
        tokio::task::yield_now().await;
    }
}

pub(super) async fn insert(
    coordinator: &Coordinator,
    filter: &str,
    range: std::ops::Range<u32>,
) -> u32 {
    let (new, level) =
        coordinator.insert(filter, &items(range), None, None, deadline()).await.unwrap();
    assert_eq!(level, AckLevel::Local);
    new.count_ones()
}

pub(super) async fn present(
    coordinator: &Coordinator,
    filter: &str,
    range: std::ops::Range<u32>,
    level: ReadLevel,
) -> u32 {
    let (present, got) =
        coordinator.contains(filter, &items(range), Some(level), deadline()).await.unwrap();
    assert_eq!(got, level);
    present.count_ones()
}

/// Flushes until no node is missing: the link to a node that has just restarted may be broken. Returns the nodes.
pub(super) async fn flush_all(coordinator: &Coordinator, filter: &str) -> Vec<NodeId> {
    let end = deadline();
    loop {
        let flushed = coordinator.copies().flush(&name(filter), end).await.unwrap();
        if flushed.missing.is_empty() {
            return flushed.nodes;
        }
        assert!(Instant::now() < end, "a node stays away");
    }
}

/// The copies, once each node has answered in time, and its partners have confirmed that they have everything, which
/// they do when they ask the next time.
async fn copies_info(coordinator: &Coordinator, filter: &str) -> CopiesInfo {
    let end = deadline();
    loop {
        let info = coordinator.info(&name(filter), deadline()).await.unwrap();
        let copies = info.copies.unwrap();
        let has_told_all = |(_, report): &(NodeId, Option<CopyReport>)| {
            let lags = report.as_ref().map(|report| &report.load.lags);
            lags.is_some_and(|lags| lags.iter().all(|(_, lag)| *lag == 0))
        };
        if copies.all.iter().all(has_told_all) {
            return copies;
        }
        assert!(Instant::now() < end, "{:?}", copies.all);
        // Begins another sweep.
        coordinator.copies().flush(&name(filter), deadline()).await.unwrap();
    }
}

pub(super) async fn stop(nodes: Vec<Node>) {
    futures_util::future::join_all(nodes.into_iter().map(Node::shutdown)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_inserted_anywhere_is_everywhere_after_a_flush() {
    for kind in KINDS {
        // Not those of the kind before: their sweeps may still go on, and bring items before they are inserted.
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let (_, nodes) = start_quiet(&folders).await;
        let coordinators: Vec<_> = nodes.iter().map(Node::coordinator).collect();
        let filter = kind.to_string();
        let id = create(&coordinators[0], &filter, kind).await;
        for (coordinator, first) in coordinators.iter().zip([0, 500, 1000]) {
            assert_eq!(insert(coordinator, &filter, first..first + 1000).await, 1000);
            assert_eq!(insert(coordinator, &filter, first..first + 1000).await, 0);
        }
        assert_eq!(flush_all(&coordinators[1], &filter).await.len(), 3);
        for (node, coordinator) in nodes.iter().zip(&coordinators) {
            assert_eq!(present(coordinator, &filter, 0..2000, ReadLevel::Local).await, 2000);
            assert!(present(coordinator, &filter, 2000..4000, ReadLevel::Local).await < 10);
            assert!(node.copy(id) == nodes[0].copy(id), "{} differs", node.id());
        }
        // A node learns a little after a flush that the others have what it told them.
        let copies = loop {
            let copies = copies_info(&coordinators[2], &filter).await;
            let mut loads = copies.all.iter().map(|(_, report)| &report.as_ref().unwrap().load);
            if loads.all(|load| load.convergence_ms.is_some()) {
                break copies;
            }
        };
        assert_eq!(copies.all.len(), 3);
        for (node, report) in &copies.all {
            let report = report.as_ref().unwrap();
            assert_eq!(report.load.new_count, 1000, "{node}");
            assert!(report.load.sent_bytes > 0 && report.load.received_bytes > 0, "{node}");
            assert_eq!(report.load.lags.len(), if node.0 == 1 { 2 } else { 1 }, "{node}");
        }
        let counts: Vec<_> = copies.distinct.nodes.iter().map(|(_, n)| n.count).collect();
        assert_eq!(counts, [1000.0; 3]);
        assert!((copies.distinct.union.count - 2000.0).abs() < 300.0, "{:?}", copies.distinct);
        drop(coordinators);
        stop(nodes).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn levels_reach_as_far_as_they_say() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let (_, mut nodes) = start_quiet(&folders).await;
    let coordinators: Vec<_> = nodes.iter().map(Node::coordinator).collect();
    create(&coordinators[0], "seen", Kind::Blocked).await;
    let by = |level| {
        let coordinators = &coordinators;
        async move {
            let (new, got) = coordinators[0]
                .insert("seen", &items(0..100), None, Some(level), deadline())
                .await
                .unwrap();
            assert_eq!(got, level);
            new.count_ones()
        }
    };
    assert_eq!(by(AckLevel::Local).await, 100);
    assert_eq!(present(&coordinators[1], "seen", 0..100, ReadLevel::Local).await, 0);
    // The items are not new here any more, but they are on the other nodes' disks now.
    assert_eq!(by(AckLevel::Majority).await, 0);
    let others =
        [&coordinators[1], &coordinators[2]].map(|c| present(c, "seen", 0..100, ReadLevel::Local));
    let others = futures_util::future::join_all(others).await;
    assert!(others.contains(&100), "{others:?}");
    for coordinator in &coordinators {
        assert_eq!(present(coordinator, "seen", 0..100, ReadLevel::Majority).await, 100);
        assert_eq!(present(coordinator, "seen", 100..200, ReadLevel::Majority).await, 0);
    }
    let refused = coordinators[0]
        .contains("seen", &items(0..1), Some(ReadLevel::Linearizable), deadline())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("is read at local or majority"), "{refused}");
    // Without a majority, only local reads are answered.
    for node in nodes.split_off(1) {
        node.shutdown().await;
    }
    let soon = || Instant::now() + Duration::from_secs(1);
    assert_eq!(present(&coordinators[0], "seen", 0..200, ReadLevel::Local).await, 100);
    let level = Some(ReadLevel::Majority);
    let failed =
        coordinators[0].contains("seen", &items(100..101), level, soon()).await.unwrap_err();
    assert!(matches!(failed, CallFailure::NoQuorum { .. }), "{failed}");
    let level = Some(AckLevel::OnePartner);
    let failed =
        coordinators[0].insert("seen", &items(7..8), None, level, soon()).await.unwrap_err();
    assert!(failed.to_string().contains("on 1 of 3 nodes"), "{failed}");
    drop(coordinators);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_has_its_own_inserts_and_gets_the_rest() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (configs, mut nodes) = start_quiet(&folders).await;
    for kind in KINDS {
        let filter = kind.to_string();
        let (one, two) = (nodes[0].coordinator(), nodes[1].coordinator());
        let id = create(&one, &filter, kind).await;
        insert(&one, &filter, 0..1000).await;
        insert(&two, &filter, 1000..1500).await;
        one.copies().flush(&name(&filter), deadline()).await.unwrap();
        insert(&one, &filter, 1500..2000).await;
        drop((one, two));

        let restarted = nodes.remove(0);
        restarted.shutdown().await;
        nodes.insert(0, start(configs[0].clone()).await);
        let one = nodes[0].coordinator();
        // Its own inserts were on its disk; merged ones may have to be requested again.
        assert_eq!(present(&one, &filter, 0..1000, ReadLevel::Local).await, 1000);
        assert_eq!(present(&one, &filter, 1500..2000, ReadLevel::Local).await, 500);
        flush_all(&one, &filter).await;
        assert_eq!(present(&one, &filter, 0..2000, ReadLevel::Local).await, 2000);
        assert!(nodes[0].copy(id) == nodes[1].copy(id));
    }
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cleared_bits_stay_cleared_and_dropped_copies_leave_no_files() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (configs, mut nodes) = start_quiet(&folders).await;
    let (one, two) = (nodes[0].coordinator(), nodes[1].coordinator());
    let id = create(&one, "seen", Kind::Blocked).await;
    insert(&one, "seen", 0..1000).await;
    insert(&two, "seen", 1000..2000).await;
    one.copies().flush(&name("seen"), deadline()).await.unwrap();
    insert(&two, "seen", 2000..3000).await;

    let (generation, is_replicated) = two.clear(&name("seen"), None, deadline()).await.unwrap();
    assert_eq!((generation, is_replicated), (Generation(2), true));
    confirmed(&two).await;
    insert(&one, "seen", 5000..5010).await;
    two.copies().flush(&name("seen"), deadline()).await.unwrap();
    drop((one, two));
    let restarted = nodes.remove(1);
    restarted.shutdown().await;
    nodes.push(start(configs[1].clone()).await);
    for node in &nodes {
        let coordinator = node.coordinator();
        flush_all(&coordinator, "seen").await;
        assert_eq!(present(&coordinator, "seen", 0..3000, ReadLevel::Local).await, 0);
        assert_eq!(present(&coordinator, "seen", 5000..5010, ReadLevel::Local).await, 10);
        let (generation, filter) = node.copy(id).unwrap();
        assert_eq!(generation, Generation(2));
        assert!(filter.describe().one_count <= 10 * 20);
    }
    let coordinator = nodes[0].coordinator();
    assert!(coordinator.drop_filter(&name("seen"), None, deadline()).await.unwrap());
    confirmed(&coordinator).await;
    for node in &nodes {
        assert_eq!(node.copy(id), None);
        assert!(!node.local().storage().groups().iter().any(|group| group.copy().is_some()));
    }
    drop(coordinator);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_snapshot_holds_leaves_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { dev: true, shards: 1, replicas: 1, ..config(folder.path()) };
    let node = start(config.clone()).await;
    for kind in KINDS {
        let filter = kind.to_string();
        let coordinator = node.coordinator();
        let id = create(&coordinator, &filter, kind).await;
        insert(&coordinator, &filter, 0..1000).await;
        let group = GroupId::of_copy(id).unwrap();
        let storage = node.local().storage();
        assert!(storage.log_bytes(group) > 16_000);
        // The log is longer than 0 bytes.
        node.local().copies().save_due(0, false).await;
        assert_eq!(storage.log_bytes(group), 0);
        insert(&coordinator, &filter, 1000..1500).await;
    }
    node.shutdown().await;
    let node = start(config).await;
    for kind in KINDS {
        let (filter, coordinator) = (kind.to_string(), node.coordinator());
        assert_eq!(present(&coordinator, &filter, 0..1500, ReadLevel::Local).await, 1500);
        assert_eq!(insert(&coordinator, &filter, 0..1600).await, 100);
        let info = coordinator.info(&name(&filter), deadline()).await.unwrap().copies.unwrap();
        assert_eq!(info.own.new_count, 1600);
        let union = info.distinct.union;
        assert!((union.count - 1600.0).abs() < 5.0 * union.standard_error, "{union:?}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_take_longer_than_a_sweep_come_in() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let addresses = free_addresses(folders.len());
    let configs = folders.iter().zip(&addresses).map(|(folder, address)| Config {
        sweep_interval_ms: 10,
        exchange_bytes_per_second_max: 64 << 10,
        ..quiet(folder, address, &addresses)
    });
    let nodes = futures_util::future::join_all(configs.map(start)).await;
    let coordinators: Vec<_> = nodes.iter().map(Node::coordinator).collect();
    create(&coordinators[0], "seen", Kind::Blocked).await;
    // Five bytes per item: more than a second for each node that needs them.
    insert(&coordinators[0], "seen", 0..20_000).await;
    let (mut next, deadline) = (20_000, deadline());
    for coordinator in &coordinators[1..] {
        while present(coordinator, "seen", 0..20_000, ReadLevel::Local).await < 20_000 {
            // There is always a reason for another sweep.
            insert(&coordinators[1], "seen", next..next + 1).await;
            next += 1;
            assert!(Instant::now() < deadline, "it does not come in");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    drop(coordinators);
    stop(nodes).await;
}

/// A node's answer to a step and its questions.
async fn answer_to(
    node: &Node,
    identity: LocalIdentity,
    step: v1::ExchangeStep,
    questions: Vec<v1::CopyQuestion>,
) -> Result<Vec<v1::exchange_part::Part>, tonic::Status> {
    use v1::exchange_question::Part;

    let net: Arc<dyn umbel_ports::Net> = Arc::new(umbel_ports::RealNet);
    let mut client = peer_client(&net, node.address()).unwrap();
    let parts = [Part::Step(step)].into_iter().chain(questions.into_iter().map(Part::Question));
    let messages: Vec<_> = parts.map(|part| v1::ExchangeQuestion { part: Some(part) }).collect();
    let mut request = tonic::Request::new(tokio_stream::iter(messages));
    add_hello(&mut request, identity, node.id());
    let mut answer = client.exchange(request).await?.into_inner();
    let mut parts = Vec::new();
    while let Some(part) = answer.message().await? {
        parts.extend(part.part);
    }
    Ok(parts)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_partner_would_ask_is_refused_and_counted() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_, mut nodes) = start_quiet(&folders).await;
    nodes.sort_by_key(Node::id);
    let coordinator = nodes[0].coordinator();
    let id = create(&coordinator, "seen", Kind::Blocked).await;
    insert(&coordinator, "seen", 0..100).await;
    coordinator.copies().flush(&name("seen"), deadline()).await.unwrap();
    let before = (nodes[0].copy(id), nodes[0].local().copies().refused_count());
    // The test plays the role of node 2.
    let identity = nodes[1].local().identity();
    nodes.remove(1).shutdown().await;
    let epoch = nodes[0].local().read_meta(|state| state.epoch().0);
    let step = v1::ExchangeStep { epoch, rank: 1, sweep: 1_000_000, step: 0 };
    let question = |generation, own_count| v1::CopyQuestion {
        filter: id.0,
        generation,
        number: 1,
        knows: vec![v1::NodeCount { node: nodes[0].id().0, count: own_count }],
        ..Default::default()
    };
    for (wrong, expected) in [
        (v1::ExchangeStep { rank: 0, ..step }, "node 2 says that it is rank 0, expected rank 1"),
        (v1::ExchangeStep { epoch: 99, ..step }, "node 2 exchanges in epoch 99, expected epoch"),
        (v1::ExchangeStep { step: 9, ..step }, "node 2 asks in step 9 of a cube of 2 nodes"),
        (v1::ExchangeStep { sweep: u64::MAX, ..step }, "sweep 18446744073709551615 of node 2"),
    ] {
        let refused = answer_to(&nodes[0], identity, wrong, Vec::new()).await.unwrap_err();
        assert!(refused.message().contains(expected), "{refused}");
    }
    let stranger = LocalIdentity { cluster: 5, ..identity };
    let refused = answer_to(&nodes[0], stranger, step, Vec::new()).await.unwrap_err();
    assert!(refused.message().contains("not node 1 of cluster 0000"), "{refused}");
    // Questions that do not fit are refused individually.
    let questions = vec![question(7, 0), question(1, 1_000), question(1, 0)];
    let parts = answer_to(&nodes[0], identity, step, questions).await.unwrap();
    let refusals: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            v1::exchange_part::Part::Refusal(refusal) => Some(refusal.message.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        refusals,
        [
            format!("node 2 is at generation 7 of {id}, expected generation 1"),
            format!("node 2 knows of 1000 inserts of node 1 into {id}, which made 100"),
        ]
    );
    assert!(matches!(parts.last(), Some(v1::exchange_part::Part::End(_))), "{parts:?}");
    assert!(nodes[0].copy(id) == before.0);
    let report = nodes[0].local().copies();
    // A node of another cluster is refused before refusals are counted.
    assert_eq!(report.refused_count(), before.1 + 4 + 2);
    assert_eq!(report.get(id).unwrap().load(None).await.refused_count, 2);
    drop(coordinator);
    stop(nodes).await;
}
