//! Commands for tests, written by hand or drawn at random.

use proptest::prelude::*;
use umbel_filter::Kind;

use crate::ids::{FilterId, Generation, JobId, NodeId, ShardId};
use crate::meta::{
    ClusterVerb, ClusterVersion, Distribution, FilterChange, FilterName, FilterOrder,
    FilterSettings, FilterVerb, Grant, HashKey, JobEnd, JobOrder, JobSecret, MetaCommand,
    Principal, PrincipalName, Proof, Quota, Rates, Rights, SeenExpiry, SessionKey,
};
use crate::placement::Zone;
use crate::shard::SliceShape;

/// Forms a cluster of nodes 1 to `nodes`.
pub(super) fn form(nodes: u64, shard_count: u32, replica_count: u32) -> MetaCommand {
    let nodes = (1..=nodes).map(|i| (NodeId(i), format!("node{i}:7070"))).collect();
    MetaCommand::Form { cluster: 77, nodes, shard_count, replica_count }
}

/// A key whose secret starts with its id.
pub(super) fn sip_key(key_id: u64) -> HashKey {
    let mut secret = [0xab; 16];
    secret[..8].copy_from_slice(&key_id.to_le_bytes());
    HashKey::SipHash { key_id, secret }
}

/// Settings of a small single-shot filter.
pub(super) fn settings(key: HashKey) -> FilterSettings {
    FilterSettings {
        distribution: Distribution::Partitioned,
        kind: Kind::SingleShot.id(),
        capacity: 1000,
        false_positive_rate: 0.01,
        shape: SliceShape::SingleShot { position_count: 99_500 },
        memory_bytes: 1100,
        key,
    }
}

/// Creates a filter whose key has this id.
pub(super) fn create(name: &str, key_id: u64, importing: bool) -> MetaCommand {
    let name = FilterName::new(name).unwrap();
    MetaCommand::CreateFilter { name, settings: settings(sip_key(key_id)), importing, owner: None }
}

/// Creates a replicated filter whose key has this id.
pub(super) fn create_replicated(name: &str, key_id: u64, importing: bool) -> MetaCommand {
    let name = FilterName::new(name).unwrap();
    let distribution = Distribution::Replicated;
    let settings = FilterSettings { distribution, ..settings(sip_key(key_id)) };
    MetaCommand::CreateFilter { name, settings, importing, owner: None }
}

fn rename(
    (filter, generation, name, replaced): (FilterId, u64, u64, Option<FilterId>),
) -> MetaCommand {
    let name = FilterName::new(format!("filter {name}")).unwrap();
    MetaCommand::RenameFilter { filter, generation: Generation(generation), name, replaced }
}

fn order((filter, named, change, number): (FilterId, u64, u8, u64)) -> MetaCommand {
    let generation = Generation(number);
    let name = |number| FilterName::new(format!("filter {number}")).unwrap();
    let change = match change {
        0 => FilterChange::Drop,
        1 => FilterChange::SetExpiry { expires_ms: Some(number) },
        2 => FilterChange::Clear { generation },
        3 => FilterChange::Rotate { generation },
        4 => FilterChange::ReplaceExpiry { seen_ms: None, expires_ms: Some(number) },
        5 if number == 0 => FilterChange::Take { seen: SeenExpiry::Any },
        5 => FilterChange::Take { seen: SeenExpiry::At(Some(number)) },
        _ => FilterChange::Rename { generation, name: name(number), replaced: None },
    };
    MetaCommand::Order(FilterOrder { filter, name: name(named), change })
}

/// Any command, mostly about objects that may exist.
pub(super) fn command() -> impl Strategy<Value = MetaCommand> {
    prop_oneof![
        3 => about_nodes(),
        3 => about_filters(),
        1 => about_jobs(),
        1 => about_principals(),
    ]
}

fn node() -> impl Strategy<Value = NodeId> {
    (1_u64..14).prop_map(NodeId)
}

fn nodes() -> impl Strategy<Value = Vec<NodeId>> {
    prop::collection::btree_set(node(), 0..5).prop_map(Vec::from_iter)
}

fn shard() -> impl Strategy<Value = ShardId> {
    (0_u32..5).prop_map(ShardId)
}

fn about_nodes() -> impl Strategy<Value = MetaCommand> {
    prop_oneof![
        (1_u64..4, 0_u32..5, 0_u32..4).prop_map(|(n, s, r)| form(n, s, r)),
        (0_u64..9, 0_u64..6).prop_map(|(a, nonce)| MetaCommand::AddNode {
            address: format!("node{a}:7070"),
            nonce
        }),
        (node(), any::<bool>()).prop_map(|(node, drain)| MetaCommand::Drain { node, drain }),
        node().prop_map(|node| MetaCommand::RemoveNode { node }),
        (shard(), node(), node()).prop_map(|(shard, from, to)| MetaCommand::MoveReplica {
            shard,
            from,
            to
        }),
        (shard(), nodes()).prop_map(|(shard, target)| MetaCommand::PlanReplicas { shard, target }),
        (shard(), nodes())
            .prop_map(|(shard, replicas)| MetaCommand::ReplicasChanged { shard, replicas }),
        shard().prop_map(|shard| MetaCommand::ShardFormed { shard }),
        (1_u32..9).prop_map(|shard_count| MetaCommand::SplitShard { shard_count }),
        (1_u32..9).prop_map(|shard_count| MetaCommand::MergeShard { shard_count }),
        (shard(), 0_u32..3).prop_map(|(shard, era)| MetaCommand::ShardMerged { shard, era }),
        any::<bool>().prop_map(|is_on| MetaCommand::SetAutoSplit { is_on }),
        (node(), 0_u32..9)
            .prop_map(|(node, core_count)| MetaCommand::NoteCoreCount { node, core_count }),
        (1_u32..5, nodes())
            .prop_map(|(to, asked)| MetaCommand::RaiseVersion { to: ClusterVersion(to), asked }),
    ]
}

fn about_filters() -> impl Strategy<Value = MetaCommand> {
    let filter = || (1_u64..60).prop_map(FilterId);
    prop_oneof![
        3 => (0..4_u64, 0_u64..3, any::<bool>())
            .prop_map(|(name, key, importing)| create(&format!("filter {name}"), key, importing)),
        3 => filter().prop_map(|filter| MetaCommand::FilterCreated { filter }),
        1 => filter().prop_map(|filter| MetaCommand::ActivateImport { filter }),
        1 => filter().prop_map(|filter| MetaCommand::DropFilter { filter }),
        1 => filter().prop_map(|filter| MetaCommand::FilterDropped { filter }),
        1 => (0..4_u64, 0_u64..3, any::<bool>()).prop_map(|(name, key, importing)| {
            create_replicated(&format!("filter {name}"), key, importing)
        }),
        2 => (filter(), 0_u64..4).prop_map(|(filter, g)| MetaCommand::ClearFilter {
            filter,
            generation: Generation(g),
        }),
        1 => (filter(), 0_u64..4).prop_map(|(filter, g)| MetaCommand::RotateFilter {
            filter,
            generation: Generation(g),
        }),
        2 => (filter(), 0_u64..4, 0..4_u64, prop::option::of(filter())).prop_map(rename),
        2 => (filter(), 0..4_u64, 0..7_u8, 0..4_u64).prop_map(order),
        1 => (filter(), 0_u64..4)
            .prop_map(|(filter, expires_ms)| MetaCommand::RenewImport { filter, expires_ms }),
        1 => (0..4_u64, 0_u64..3, 0_u64..4).prop_map(|(name, key, expires_ms)| {
            let name = FilterName::new(format!("filter {name}")).unwrap();
            let settings = settings(sip_key(key));
            MetaCommand::BeginImport { name, settings, owner: None, expires_ms }
        }),
        2 => (filter(), 0_u64..4).prop_map(|(filter, g)| MetaCommand::FilterCleared {
            filter,
            generation: Generation(g),
        }),
        2 => (filter(), 0_u64..4, shard(), 0_u64..2_000_000_000).prop_map(
            |(filter, g, shard, growth_bytes)| {
                let generation = Generation(g);
                MetaCommand::GrowFilter { filter, generation, shard, growth_bytes }
            },
        ),
        1 => any::<[u8; 16]>().prop_map(|key| {
            MetaCommand::OpenSession { key: SessionKey::new(key), owner: String::new() }
        }),
    ]
}

fn about_jobs() -> impl Strategy<Value = MetaCommand> {
    let job = || (1_u64..60).prop_map(JobId);
    let failed = |resumable| JobEnd::Failed { cause: String::new(), resumable };
    prop_oneof![
        (0_u64..9, nodes()).prop_map(|(nonce, workers)| {
            let (seed, spec, submitted_ms) = (nonce, Vec::new(), nonce);
            let secret = JobSecret::new([0; JobSecret::BYTES]);
            MetaCommand::SubmitJob(JobOrder { nonce, seed, secret, workers, spec, submitted_ms })
        }),
        (job(), 0_u32..3, any::<bool>()).prop_map(move |(job, run, resumable)| {
            MetaCommand::EndJob { job, run, end: failed(resumable) }
        }),
        job().prop_map(|job| MetaCommand::CancelJob { job }),
        job().prop_map(|job| MetaCommand::ResumeJob { job }),
    ]
}

fn about_principals() -> impl Strategy<Value = MetaCommand> {
    let name = || (0_u64..4).prop_map(|i| PrincipalName::new(format!("principal{i}")).unwrap());
    let put = (name(), any::<bool>(), any::<bool>(), any::<bool>(), 0_u64..3);
    prop_oneof![
        put.prop_map(|(name, is_admin, ends, replace, created_ms)| {
            let grant = Grant { pattern: "crawl.*".to_owned(), verbs: [FilterVerb::Read].into() };
            let cluster = is_admin.then_some(ClusterVerb::Admin).into_iter().collect();
            let rights = Rights { grants: vec![grant], cluster };
            let expires_ms = ends.then_some(7);
            let principal = Principal { proof: Proof::Certificate, rights, created_ms, expires_ms };
            MetaCommand::PutPrincipal { name, principal, replace }
        }),
        name().prop_map(|name| MetaCommand::DropPrincipal { name }),
        (prop::option::of(name()), 0_u64..3, any::<bool>()).prop_map(|(of, count, from_none)| {
            let change = Quota {
                filter_count: (count < 2).then_some(count),
                memory_bytes: (count > 0).then_some(count * 2_000),
                rates: Rates::default(),
            };
            MetaCommand::SetQuota { of, change, from_none }
        }),
        (1_u64..14, 1_000_u64..9_000).prop_map(|(node, limit_bytes)| {
            MetaCommand::NoteMemoryLimit { node: NodeId(node), limit_bytes }
        }),
        (1_u64..14, 0_u32..5).prop_map(|(node, core_count)| {
            MetaCommand::NoteCoreCount { node: NodeId(node), core_count }
        }),
        any::<bool>().prop_map(|is_on| MetaCommand::SetAutoSplit { is_on }),
        (1_u64..14, 0_u8..4).prop_map(|(node, zone)| {
            let zone = (zone > 0).then(|| Zone::new(format!("z{zone}")).unwrap());
            MetaCommand::NoteZone { node: NodeId(node), zone }
        }),
    ]
}
