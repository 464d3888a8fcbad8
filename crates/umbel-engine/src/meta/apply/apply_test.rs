//! What entries do, one rule per test, and laws of all of them.

use proptest::prelude::*;

use super::shards_test::check_shards;
use super::*;
use crate::ids::{Epoch, FilterId, Generation};
use crate::limits::{FILTER_BYTES_MAX, FILTER_COUNT_MAX, SLICE_BYTES_MAX};
use crate::meta::testing::{command, create, form, settings, sip_key};
use crate::meta::{
    ClusterVersion, FilterName, FilterSettings, FilterState, HashKey, NODE_ADDRESS_BYTES_MAX,
};

/// A formed cluster whose entries are numbered from 10.
pub(super) struct Cluster {
    pub(super) state: MetaState,
    log_index: u64,
}

impl Cluster {
    pub(super) fn new(nodes: u64, shard_count: u32, replica_count: u32) -> Self {
        let mut state = MetaState::new();
        assert_eq!(state.apply(2, &form(nodes, shard_count, replica_count)), MetaReply::Done);
        Self { state, log_index: 9 }
    }

    pub(super) fn apply(&mut self, command: &MetaCommand) -> MetaReply {
        self.log_index += 1;
        self.state.apply(self.log_index, command)
    }

    pub(super) fn error(&mut self, command: &MetaCommand) -> MetaError {
        let before = self.state.clone();
        let MetaReply::Refused(error) = self.apply(command) else { panic!("{command:?} was done") };
        assert_eq!(self.state, before);
        error
    }

    pub(super) fn done(&mut self, command: &MetaCommand) {
        assert_eq!(self.apply(command), MetaReply::Done, "{command:?}");
    }

    pub(super) fn filter_state(&self, filter: FilterId) -> Option<FilterState> {
        self.state.filter(filter).map(|record| record.state)
    }
}

fn node(number: u64) -> NodeId {
    NodeId(number)
}

fn add(address: &str, nonce: u64) -> MetaCommand {
    MetaCommand::AddNode { address: address.to_owned(), nonce }
}

fn create_with(name: &str, settings: FilterSettings) -> MetaCommand {
    MetaCommand::CreateFilter {
        name: FilterName::new(name).unwrap(),
        settings,
        importing: false,
        owner: None,
    }
}

#[test]
fn a_cluster_is_formed_once() {
    let mut cluster = Cluster::new(3, 4, 2);
    let before = cluster.state.clone();
    cluster.done(&form(5, 8, 1));
    assert_eq!(cluster.state, before);
    let state = &cluster.state;
    assert_eq!((state.cluster(), state.epoch()), (Some(77), Epoch(1)));
    assert_eq!((state.shard_count(), state.replica_count(), state.replicas_wanted()), (4, 2, 2));
    assert_eq!(state.node_address(node(2)), Some("node2:7070"));
    for (range, record) in state.shards() {
        assert_eq!(state.shard_map().shard_of(range.start()), Some(record.shard));
        assert_eq!((record.replicas.len(), record.is_formed), (2, false));
        assert_eq!(record.founders, record.replicas);
    }
}

#[test]
fn a_cluster_that_cannot_be_is_not_formed() {
    let twice = |a: (u64, &str), b: (u64, &str)| {
        let nodes = [a, b].map(|(id, address)| (NodeId(id), address.to_owned())).to_vec();
        MetaCommand::Form { cluster: 1, nodes, shard_count: 1, replica_count: 1 }
    };
    for command in [
        form(0, 1, 1),
        form(257, 1, 1),
        form(1, 0, 1),
        form(1, 1025, 1),
        form(1, 1, 0),
        form(1, 1, 10),
        twice((1, "a:1"), (1, "b:1")),
        twice((1, "a:1"), (2, "a:1")),
        twice((0, "a:1"), (2, "b:1")),
        twice((1, ""), (2, "b:1")),
    ] {
        let mut state = MetaState::new();
        assert!(matches!(state.apply(1, &command), MetaReply::Refused(_)), "{command:?}");
        assert_eq!(state, MetaState::new());
    }
}

#[test]
fn nodes_join_once() {
    let mut cluster = Cluster::new(2, 1, 1);
    assert_eq!(cluster.apply(&add("c:1", 5)), MetaReply::Node(node(3)));
    assert_eq!(cluster.state.epoch(), Epoch(2));
    assert_eq!(cluster.apply(&add("c:1", 5)), MetaReply::Node(node(3)));
    assert_eq!(cluster.state.epoch(), Epoch(2));
    let taken = MetaError::AddressTaken { address: "c:1".to_owned(), node: node(3) };
    assert_eq!(cluster.error(&add("c:1", 6)), taken);
    let taken = MetaError::AddressTaken { address: "node1:7070".to_owned(), node: node(1) };
    assert_eq!(cluster.error(&add("node1:7070", 6)), taken);
    let long = "x".repeat(NODE_ADDRESS_BYTES_MAX + 1);
    assert!(matches!(cluster.error(&add(&long, 7)), MetaError::Quota { .. }));
    // A new process on a removed node's machine is a new node.
    cluster.done(&MetaCommand::RemoveNode { node: node(3) });
    assert_eq!(cluster.apply(&add("c:1", 5)), MetaReply::Node(node(4)));
}

#[test]
fn numbers_of_nodes_are_small_and_never_given_again() {
    let mut state = MetaState::new();
    state.apply(2, &form(5, 1, 1));
    assert_eq!(state.apply(30, &add("f:1", 1)), MetaReply::Node(node(6)));
    assert_eq!(state.apply(31, &MetaCommand::RemoveNode { node: node(6) }), MetaReply::Done);
    assert_eq!(state.apply(40, &add("h:1", 3)), MetaReply::Node(node(7)));
}

#[test]
fn nodes_are_limited() {
    let mut cluster = Cluster::new(NODE_COUNT_MAX as u64, 1, 1);
    assert!(matches!(cluster.error(&add("one more:1", 1)), MetaError::Quota { .. }));
}

#[test]
fn the_last_node_stays() {
    let mut cluster = Cluster::new(2, 1, 2);
    let drain = |number, drain| MetaCommand::Drain { node: node(number), drain };
    cluster.done(&drain(1, true));
    assert_eq!((cluster.state.replicas_wanted(), cluster.state.epoch()), (1, Epoch(2)));
    cluster.done(&drain(1, true));
    assert_eq!(cluster.state.epoch(), Epoch(2));
    assert!(matches!(cluster.error(&drain(2, true)), MetaError::TooFewNodes { .. }));
    let remove = |number| MetaCommand::RemoveNode { node: node(number) };
    assert!(matches!(cluster.error(&remove(2)), MetaError::TooFewNodes { .. }));
    // One of two replicas is not a majority: the replicas must move first.
    assert!(matches!(cluster.error(&remove(1)), MetaError::TooFewNodes { .. }));
    let (shard, alone) = (ShardId(0), vec![node(2)]);
    cluster.done(&MetaCommand::PlanReplicas { shard, target: alone.clone() });
    cluster.done(&MetaCommand::ReplicasChanged { shard, replicas: alone });
    cluster.done(&remove(1));
    cluster.done(&remove(1));
    assert_eq!(cluster.state.node(node(1)), Some(&NodeRecord::Removed));
    assert_eq!(cluster.error(&drain(1, false)), MetaError::UnknownNode { node: node(1) });
    assert_eq!(cluster.error(&remove(9)), MetaError::UnknownNode { node: node(9) });
}

#[test]
fn replicas_move_one_at_a_time() {
    let mut cluster = Cluster::new(3, 1, 3);
    let (shard, to) = (ShardId(0), node(4));
    cluster.apply(&add("d:1", 1));
    let go = |from, to| MetaCommand::MoveReplica { shard, from: node(from), to: node(to) };
    for (from, to) in [(4, 4), (5, 4), (1, 2), (1, 1), (1, 11)] {
        assert!(matches!(cluster.error(&go(from, to)), MetaError::BadMove { .. }), "{from} {to}");
    }
    let nowhere = MetaCommand::MoveReplica { shard: ShardId(1), from: node(1), to };
    assert!(matches!(cluster.error(&nowhere), MetaError::BadMove { .. }));
    cluster.done(&MetaCommand::Drain { node: to, drain: true });
    assert!(matches!(cluster.error(&go(1, 4)), MetaError::BadMove { .. }));
    cluster.done(&MetaCommand::Drain { node: to, drain: false });

    cluster.done(&go(2, 4));
    let epoch = cluster.state.epoch();
    cluster.done(&go(2, 4));
    assert_eq!(cluster.state.epoch(), epoch);
    assert!(matches!(cluster.error(&go(1, 4)), MetaError::BadMove { .. }));
    let target = vec![node(1), node(3), to];
    assert_eq!(cluster.state.shard(shard).unwrap().target, Some(target.clone()));

    let changed = |replicas| MetaCommand::ReplicasChanged { shard, replicas };
    assert!(matches!(cluster.error(&changed(vec![node(1), to])), MetaError::BadMove { .. }));
    cluster.done(&changed(target.clone()));
    cluster.done(&changed(target.clone()));
    let record = cluster.state.shard(shard).unwrap();
    assert_eq!((&record.replicas, &record.target), (&target, &None));
    assert_eq!(cluster.state.epoch(), Epoch(epoch.0 + 1));
}

#[test]
fn plans_are_checked() {
    let mut cluster = Cluster::new(3, 1, 1);
    let plan = |numbers: &[u64]| MetaCommand::PlanReplicas {
        shard: ShardId(0),
        target: numbers.iter().copied().map(NodeId).collect(),
    };
    for bad in [&[][..], &[2, 1], &[1, 1], &[1, 9], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]] {
        assert!(matches!(cluster.error(&plan(bad)), MetaError::BadMove { .. }), "{bad:?}");
    }
    cluster.done(&plan(&[2, 3]));
    cluster.done(&plan(&[1, 3]));
    // Node 2 was a target, and may be a replica by now.
    assert_eq!(cluster.state.shard_map().members(ShardId(0)), [1, 2, 3].map(NodeId));
    let remove = MetaCommand::RemoveNode { node: node(2) };
    assert!(matches!(cluster.error(&remove), MetaError::TooFewNodes { .. }));
    cluster.done(&MetaCommand::ShardFormed { shard: ShardId(0) });
    assert!(cluster.state.shard(ShardId(0)).unwrap().is_formed);
}

#[test]
fn filters_live_and_die() {
    let mut cluster = Cluster::new(1, 2, 1);
    let filter = FilterId(10);
    assert_eq!(cluster.apply(&create("a", 1, false)), MetaReply::Filter(filter));
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Creating { importing: false }));
    let clear = MetaCommand::ClearFilter { filter, generation: Generation(1) };
    let busy = MetaError::Busy { name: "a".to_owned(), state: "being created".to_owned() };
    assert_eq!(cluster.error(&clear), busy);
    assert_eq!(cluster.error(&MetaCommand::ActivateImport { filter }), busy);

    cluster.done(&MetaCommand::FilterCreated { filter });
    cluster.done(&MetaCommand::FilterCreated { filter });
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Live));
    cluster.done(&MetaCommand::ActivateImport { filter });

    cluster.done(&clear);
    cluster.done(&clear);
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Clearing { to: Generation(2) }));
    let cleared = |to| MetaCommand::FilterCleared { filter, generation: Generation(to) };
    assert!(matches!(cluster.error(&cleared(3)), MetaError::Busy { .. }));
    cluster.done(&cleared(2));
    cluster.done(&cleared(2));
    cluster.done(&cleared(1));
    let record = cluster.state.filter(filter).unwrap();
    assert_eq!((record.state, record.generation), (FilterState::Live, Generation(2)));
    // The same request is retried.
    cluster.done(&clear);
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Live));
    let record = cluster.state.filter(filter).unwrap();
    assert_eq!(record.slice_spec(filter).generation, Generation(2));

    assert!(matches!(
        cluster.error(&MetaCommand::FilterDropped { filter }),
        MetaError::Busy { .. }
    ));
    cluster.done(&MetaCommand::DropFilter { filter });
    cluster.done(&MetaCommand::DropFilter { filter });
    assert_eq!(cluster.error(&clear), MetaError::UnknownFilter { filter });
    assert_eq!(cluster.state.filter_by_name("a"), None);
    let MetaReply::Filter(next) = cluster.apply(&create("a", 1, false)) else { panic!() };
    assert_ne!(next, filter);
    cluster.done(&MetaCommand::FilterDropped { filter });
    cluster.done(&MetaCommand::FilterDropped { filter });
    cluster.done(&MetaCommand::DropFilter { filter });
    assert_eq!(cluster.filter_state(filter), None);
    assert_eq!(cluster.state.filter_by_name("a").map(|(id, _)| id), Some(next));
}

#[test]
fn filters_that_came_and_went_leave_nothing() {
    let mut cluster = Cluster::new(1, 2, 1);
    let before = cluster.state.clone();
    for number in 0..1000 {
        let name = format!("filter-{number}");
        let MetaReply::Filter(filter) = cluster.apply(&create(&name, number, false)) else {
            panic!("{name} is not created")
        };
        cluster.done(&MetaCommand::FilterCreated { filter });
        cluster.done(&MetaCommand::DropFilter { filter });
        cluster.done(&MetaCommand::FilterDropped { filter });
    }
    assert_eq!(cluster.state, before);
}

#[test]
fn imports_are_activated() {
    let mut cluster = Cluster::new(1, 2, 1);
    let filter = FilterId(10);
    assert_eq!(cluster.apply(&create("a", 1, true)), MetaReply::Filter(filter));
    cluster.done(&MetaCommand::FilterCreated { filter });
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Importing));
    assert_eq!(cluster.apply(&create("a", 1, true)), MetaReply::Filter(filter));
    // Another caller's import or filter.
    assert!(matches!(cluster.error(&create("a", 2, true)), MetaError::NameTaken { .. }));
    assert!(matches!(cluster.error(&create("a", 1, false)), MetaError::NameTaken { .. }));
    cluster.done(&MetaCommand::ActivateImport { filter });
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Live));
    assert!(matches!(cluster.error(&create("a", 1, true)), MetaError::NameTaken { .. }));
}

#[test]
fn a_retried_create_is_the_same_filter() {
    let mut cluster = Cluster::new(1, 2, 1);
    let id = cluster.apply(&create("a", 1, false));
    assert_eq!(cluster.apply(&create("a", 1, false)), id);
    let taken = MetaError::NameTaken { name: "a".to_owned() };
    assert_eq!(cluster.error(&create("a", 2, false)), taken);
    // Seeds are not drawn, so requests with equal settings are equal.
    let plain = |capacity| {
        let key = HashKey::Xxh3 { seed: 0 };
        create_with("b", FilterSettings { capacity, ..settings(key) })
    };
    let id = cluster.apply(&plain(1000));
    assert_eq!(cluster.apply(&plain(1000)), id);
    assert!(matches!(cluster.error(&plain(1001)), MetaError::NameTaken { .. }));
}

#[test]
fn settings_are_checked() {
    let mut cluster = Cluster::new(1, 16, 1);
    let good = settings(sip_key(1));
    let bad = [
        FilterSettings { kind: 0, ..good.clone() },
        FilterSettings { capacity: 0, ..good.clone() },
        FilterSettings { false_positive_rate: f64::NAN, ..good.clone() },
        FilterSettings { false_positive_rate: 0.0, ..good.clone() },
        FilterSettings { false_positive_rate: 1.0, ..good.clone() },
    ];
    for settings in bad {
        let error = cluster.error(&create_with("a", settings));
        assert!(matches!(error, MetaError::BadSettings { .. }), "{error}");
    }
    for memory_bytes in [FILTER_BYTES_MAX + 1, 16 * SLICE_BYTES_MAX + 1] {
        let settings = FilterSettings { memory_bytes, ..good.clone() };
        assert!(matches!(cluster.error(&create_with("a", settings)), MetaError::Quota { .. }));
    }
    let largest = FilterSettings { memory_bytes: 16 * SLICE_BYTES_MAX, ..good };
    assert!(matches!(cluster.apply(&create_with("a", largest)), MetaReply::Filter(_)));
}

#[test]
fn filters_are_limited() {
    let mut cluster = Cluster::new(1, 1, 1);
    let plain = settings(HashKey::Xxh3 { seed: 0 });
    for i in 0..FILTER_COUNT_MAX {
        cluster.apply(&create_with(&i.to_string(), plain.clone()));
    }
    assert_eq!(cluster.state.filters().count(), FILTER_COUNT_MAX);
    assert!(matches!(cluster.error(&create_with("one more", plain)), MetaError::Quota { .. }));
}

#[test]
fn keys_live_as_long_as_their_filters_and_are_never_printed() {
    let mut cluster = Cluster::new(1, 1, 1);
    cluster.apply(&create("a", 1, false));
    assert_eq!(cluster.state.key(1), Some(sip_key(1)));
    assert_eq!(cluster.state.filter(FilterId(10)).unwrap().settings.key, sip_key(1));
    cluster.done(&MetaCommand::DropFilter { filter: FilterId(10) });
    // Frames name their key only by its id, and slices of the filter still exist.
    let other = HashKey::SipHash { key_id: 1, secret: [0xcd; 16] };
    let error = cluster.error(&create_with("b", settings(other)));
    assert!(matches!(error, MetaError::BadSettings { .. }));
    cluster.apply(&create("c", 1, false));
    let text = format!("{:?} {:#?}", cluster.state, cluster.state);
    // 0xab is 171 in decimal.
    assert!(!text.contains("171") && !text.contains("secret") && text.contains("key_id"), "{text}");
    let (id, _) = cluster.state.filter_by_name("c").unwrap();
    for filter in [FilterId(10), id] {
        assert_eq!(cluster.state.key(1), Some(sip_key(1)));
        cluster.done(&MetaCommand::DropFilter { filter });
        cluster.done(&MetaCommand::FilterDropped { filter });
    }
    assert_eq!(cluster.state.key(1), None);
    assert!(matches!(cluster.apply(&create_with("b", settings(other))), MetaReply::Filter(_)));
}

#[test]
fn meta_voters_are_odd_and_stay() {
    let mut cluster = Cluster::new(6, 1, 1);
    let ids = |numbers: &[u64]| numbers.iter().copied().map(NodeId).collect::<Vec<_>>();
    let wanted = |c: &Cluster, current: &[u64]| {
        c.state.meta_voters_wanted(&ids(current), &c.state.live_nodes())
    };
    assert_eq!(wanted(&cluster, &[]), ids(&[1, 2, 3, 4, 5]));
    assert_eq!(wanted(&cluster, &[2, 3, 4, 5, 6]), ids(&[2, 3, 4, 5, 6]));
    cluster.done(&MetaCommand::Drain { node: node(4), drain: true });
    assert_eq!(wanted(&cluster, &[2, 3, 4, 5, 6]), ids(&[1, 2, 3, 5, 6]));
    cluster.done(&MetaCommand::Drain { node: node(6), drain: true });
    assert_eq!(wanted(&cluster, &[1, 2, 3, 5, 6]), ids(&[1, 2, 3]));
    assert_eq!(MetaState::new().meta_voters_wanted(&ids(&[1]), &BTreeSet::new()), ids(&[]));
}

/// The invariants that hold after any commands.
pub(super) fn check(state: &MetaState) {
    assert!(!state.available_nodes().is_empty());
    let named = state.filters().filter(|(_, record)| record.state != FilterState::Dropping);
    let named: Vec<_> = named.map(|(id, record)| (id, record.name.as_str().to_owned())).collect();
    assert_eq!(state.names.len(), named.len());
    for (id, name) in named {
        assert_eq!(state.filter_by_name(&name).map(|(id, _)| id), Some(id));
    }
    check_shards(state);
    for (_, record) in state.shards() {
        assert!(!record.replicas.is_empty() && record.replicas.is_sorted_by(|a, b| a < b));
        let members = record.members();
        assert!(record.replicas.iter().chain(record.wanted()).all(|node| members.contains(node)));
        let live = record.replicas.iter().filter(|&&node| state.is_live(node)).count();
        assert!(live > record.replicas.len() / 2);
    }
}

proptest! {
    #[test]
    fn every_log_can_be_applied(
        nodes in 1_u64..6,
        shard_count in 1_u32..5,
        version in 1_u32..4,
        commands in prop::collection::vec(command(), 0..60),
    ) {
        let mut state = MetaState::new().at_version(ClusterVersion(version));
        let mut log = vec![form(nodes, shard_count, 3)];
        log.extend(commands);
        for (log_index, command) in (1..).zip(&log) {
            let before = state.clone();
            let reply = state.apply(log_index, command);
            if matches!(reply, MetaReply::Refused(_)) {
                prop_assert_eq!(&state, &before);
            }
            let placed = |state: &MetaState| {
                let shards = &state.shard_map.shards;
                let shards: Vec<_> =
                    shards.iter().map(|r| (r.replicas.clone(), r.target.clone())).collect();
                let map = &state.shard_map;
                (state.nodes.clone(), shards, map.splitting(), map.merging(), map.merge_count)
            };
            let rises = u64::from(placed(&state) != placed(&before));
            prop_assert_eq!(state.epoch().0, before.epoch().0 + rises);
            prop_assert!(before.nodes.keys().all(|node| state.nodes.contains_key(node)));
            check(&state);
        }
        let mut again = MetaState::new().at_version(ClusterVersion(version));
        for (log_index, command) in (1..).zip(&log) {
            again.apply(log_index, command);
        }
        prop_assert_eq!(again, state);
    }
}
