//! The bytes of the meta group's commands and replies are those that earlier builds write, send and expect.

use std::path::Path;

use umbel_engine::meta::{
    Applicant, ClusterVerb, ClusterVersion, Distribution, FilterChange, FilterName, FilterOrder,
    FilterSettings, FilterVerb, Grant, HashKey, JobEnd, JobOrder, JobSecret, MetaCommand,
    MetaError, MetaReply, Principal, PrincipalName, Proof, Quota, Rates, Rights, SeenExpiry,
    SessionKey,
};
use umbel_engine::placement::Zone;
use umbel_engine::shard::SliceShape;
use umbel_engine::{Epoch, FilterId, Generation, JobId, NodeId, SessionId, ShardId};
use umbel_ports::testing::recorded::Recordings;

umbel_ports::recorded! {
    MetaCommand {
        Form, AddNode, AdmitNode, PutJoinToken, Drain, RemoveNode, MoveReplica, PlanReplicas, ReplicasChanged,
        SplitShard, ShardFormed, CreateFilter, FilterCreated, ActivateImport, DropFilter, FilterDropped,
        ClearFilter, FilterCleared, OpenSession, SubmitJob, EndJob, CancelJob, ResumeJob, PutPrincipal,
        DropPrincipal, SetQuota, NoteMemoryLimit, NoteZone, NoteCoreCount, SetAutoSplit, GrowFilter,
        SetExpiry, DropExpired, RotateFilter, RenameFilter, RaiseVersion, MergeShard, ShardMerged,
        MergeGivenUp, Order, RenewImport, BeginImport, ReplaceExpiry, TakeFilter,
    }
    MetaReply { Done, Node, Filter, Session, Job, Refused }
    MetaError {
        UnknownFilter, NameTaken, Busy, UnknownNode, AddressTaken, TooFewNodes, BadMove, BadSplit, ShardBusy,
        UnknownJob, JobState, Quota, NotFormed, BadSettings, BadJoinToken, BadPrincipal, VersionTooLow,
        BadVersion, BadMerge, ExpiryChanged,
    }
    FilterChange { Drop, SetExpiry, Clear, Rotate, Rename, ReplaceExpiry, Take }
    JobEnd { Done, Failed, Cancelled }
    Proof { Token, Certificate }
    FilterVerb { Read, Insert, Remove, Manage, Export }
    ClusterVerb { Admin, Backup, Jobs, Metrics }
    Distribution { Partitioned, Replicated }
    HashKey { Xxh3, SipHash, RedisBloom }
    SeenExpiry { Any, At }
}
const FILTER: FilterId = FilterId(7);
const GENERATION: Generation = Generation(2);

fn name() -> FilterName {
    FilterName::new("a").unwrap()
}

fn ann() -> PrincipalName {
    PrincipalName::new("ann").unwrap()
}

fn settings() -> FilterSettings {
    FilterSettings {
        distribution: Distribution::Partitioned,
        kind: 1,
        capacity: 10,
        false_positive_rate: 0.5,
        shape: SliceShape::SingleShot { position_count: 100 },
        memory_bytes: 20,
        key: HashKey::Xxh3 { seed: 3 },
    }
}

fn principal() -> Principal {
    let grant = Grant { pattern: "a*".to_owned(), verbs: [FilterVerb::Read].into() };
    let rights = Rights { grants: vec![grant], cluster: [ClusterVerb::Jobs].into() };
    Principal { proof: Proof::Certificate, rights, created_ms: 8, expires_ms: Some(9) }
}

fn commands_about_nodes() -> Vec<MetaCommand> {
    let (address, shard, node) = ("n1:1".to_owned(), ShardId(3), NodeId(1));
    let (key, digest) = ([2; 32], [4; 32]);
    let nodes = vec![(node, address.clone())];
    let applicant = Applicant { address: address.clone(), nonce: 5, digest, key, now_ms: 6 };
    vec![
        MetaCommand::Form { cluster: 9, nodes, shard_count: 2, replica_count: 3 },
        MetaCommand::AddNode { address, nonce: 5 },
        MetaCommand::AdmitNode(applicant),
        MetaCommand::PutJoinToken { digest, expires_ms: 9, now_ms: 6 },
        MetaCommand::Drain { node, drain: true },
        MetaCommand::RemoveNode { node },
        MetaCommand::MoveReplica { shard, from: node, to: NodeId(2) },
        MetaCommand::PlanReplicas { shard, target: vec![node, NodeId(2)] },
        MetaCommand::ReplicasChanged { shard, replicas: vec![node] },
        MetaCommand::SplitShard { shard_count: 4 },
        MetaCommand::ShardFormed { shard },
        MetaCommand::NoteMemoryLimit { node, limit_bytes: 1 << 30 },
        MetaCommand::NoteZone { node, zone: Some(Zone::new("z").unwrap()) },
        MetaCommand::NoteCoreCount { node, core_count: 8 },
        MetaCommand::SetAutoSplit { is_on: true },
        MetaCommand::RaiseVersion { to: ClusterVersion(2), asked: vec![node] },
        MetaCommand::MergeShard { shard_count: 2 },
        MetaCommand::ShardMerged { shard, era: 1 },
        MetaCommand::MergeGivenUp { since: Epoch(15), what: "what".to_owned() },
    ]
}

fn commands_about_filters() -> Vec<MetaCommand> {
    let (filter, generation, settings) = (FILTER, GENERATION, settings());
    let (importing, owner) = (true, Some(ann()));
    let change = FilterChange::SetExpiry { expires_ms: Some(9) };
    let order = FilterOrder { filter, name: name(), change };
    let begin = MetaCommand::BeginImport {
        name: name(),
        settings: settings.clone(),
        owner: None,
        expires_ms: 9,
    };
    let replaced = Some(FilterId(8));
    vec![
        MetaCommand::CreateFilter { name: name(), settings, importing, owner },
        MetaCommand::FilterCreated { filter },
        MetaCommand::ActivateImport { filter },
        MetaCommand::DropFilter { filter },
        MetaCommand::FilterDropped { filter },
        MetaCommand::ClearFilter { filter, generation },
        MetaCommand::FilterCleared { filter, generation },
        MetaCommand::GrowFilter { filter, generation, shard: ShardId(3), growth_bytes: 640 },
        MetaCommand::SetExpiry { filter, expires_ms: Some(9) },
        MetaCommand::DropExpired { filter, expires_ms: 9 },
        MetaCommand::RotateFilter { filter, generation },
        MetaCommand::RenameFilter { filter, generation, name: name(), replaced },
        MetaCommand::Order(order),
        MetaCommand::RenewImport { filter, expires_ms: 9 },
        begin,
        MetaCommand::ReplaceExpiry { filter, seen_ms: None, expires_ms: Some(9) },
        MetaCommand::TakeFilter { filter, seen: SeenExpiry::At(Some(8)) },
    ]
}

fn commands_about_others() -> Vec<MetaCommand> {
    let job = JobId(4);
    let order = JobOrder {
        nonce: 1,
        seed: 2,
        secret: JobSecret::new([3; JobSecret::BYTES]),
        workers: vec![NodeId(1)],
        spec: b"spec".to_vec(),
        submitted_ms: 5,
    };
    let rates = Rates { calls: Some(1), items: None, bytes: Some(3) };
    let quota = Quota { filter_count: Some(4), memory_bytes: None, rates };
    vec![
        MetaCommand::OpenSession { key: SessionKey::new([6; 16]), owner: "ann".to_owned() },
        MetaCommand::SubmitJob(order),
        MetaCommand::EndJob { job, run: 2, end: JobEnd::Cancelled },
        MetaCommand::CancelJob { job },
        MetaCommand::ResumeJob { job },
        MetaCommand::PutPrincipal { name: ann(), principal: principal(), replace: true },
        MetaCommand::DropPrincipal { name: ann() },
        MetaCommand::SetQuota { of: Some(ann()), change: quota, from_none: true },
    ]
}

fn errors() -> Vec<MetaError> {
    let what = || "what".to_owned();
    let (needed, is) = (ClusterVersion(3), ClusterVersion(2));
    vec![
        MetaError::UnknownFilter { filter: FILTER },
        MetaError::NameTaken { name: "a".to_owned() },
        MetaError::Busy { name: "a".to_owned(), state: what() },
        MetaError::UnknownNode { node: NodeId(1) },
        MetaError::AddressTaken { address: "n1:1".to_owned(), node: NodeId(1) },
        MetaError::TooFewNodes { what: what() },
        MetaError::BadMove { what: what() },
        MetaError::BadSplit { what: what() },
        MetaError::ShardBusy { what: what() },
        MetaError::UnknownJob { job: JobId(4) },
        MetaError::JobState { job: JobId(4), state: what() },
        MetaError::Quota { what: what() },
        MetaError::NotFormed,
        MetaError::BadSettings { what: what() },
        MetaError::BadJoinToken { what: what() },
        MetaError::BadPrincipal { what: what() },
        MetaError::VersionTooLow { needed, is },
        MetaError::BadVersion { what: what() },
        MetaError::BadMerge { what: what() },
        MetaError::ExpiryChanged { filter: FILTER },
    ]
}

#[test]
fn every_command_of_the_meta_group_is_understood_as_it_was_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/meta_commands.txt");
    let mut recordings = Recordings::read(path);
    let commands =
        [commands_about_nodes(), commands_about_filters(), commands_about_others()].concat();
    check_all(&mut recordings, &commands);
    let replies = [
        MetaReply::Done,
        MetaReply::Node(NodeId(1)),
        MetaReply::Filter(FILTER),
        MetaReply::Session(SessionId(5)),
        MetaReply::Job(JobId(4)),
        MetaReply::Refused(MetaError::NotFormed),
    ];
    check_all(&mut recordings, &replies);
    check_all(&mut recordings, &errors());
    let (generation, replaced) = (GENERATION, None);
    let changes = [
        FilterChange::Drop,
        FilterChange::SetExpiry { expires_ms: None },
        FilterChange::Clear { generation },
        FilterChange::Rotate { generation },
        FilterChange::Rename { generation, name: name(), replaced },
        FilterChange::ReplaceExpiry { seen_ms: Some(8), expires_ms: Some(9) },
        FilterChange::Take { seen: SeenExpiry::Any },
    ];
    check_all(&mut recordings, &changes);
    check_all(&mut recordings, &[SeenExpiry::Any, SeenExpiry::At(None)]);
    let failed = JobEnd::Failed { cause: "disk full".to_owned(), resumable: true };
    let ends = [JobEnd::Done { summary: b"sum".to_vec() }, failed, JobEnd::Cancelled];
    check_all(&mut recordings, &ends);
    check_all(&mut recordings, &[Proof::Token { digest: [4; 32] }, Proof::Certificate]);
    check_all(&mut recordings, &FilterVerb::ALL);
    check_all(&mut recordings, &ClusterVerb::ALL);
    check_all(&mut recordings, &[Distribution::Partitioned, Distribution::Replicated]);
    let keyed = HashKey::SipHash { key_id: 7, secret: [42; 16] };
    check_all(&mut recordings, &[HashKey::Xxh3 { seed: 3 }, keyed, HashKey::RedisBloom]);
    recordings.finish();
}
