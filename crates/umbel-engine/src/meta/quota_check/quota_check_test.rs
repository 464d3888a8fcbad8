//! What a quota refuses, and what counts towards it.

use super::*;
use umbel_filter::{ItemHash, Kind, RedisBloomShape};

use crate::ids::{FilterId, Generation, ShardId};
use crate::meta::testing::{form, settings, sip_key};
use crate::meta::{
    ClusterVerb, ClusterVersion, FilterName, HashKey, MetaCommand, Principal, Proof, Rights,
    SessionKey, SessionStanding,
};
use crate::shard::{HashList, SliceShape};

const MIB: u64 = 1 << 20;

fn named(name: &str) -> PrincipalName {
    PrincipalName::new(name).unwrap()
}

/// Three nodes, two replicas, and principals alice and bob.
struct Cluster {
    state: MetaState,
    log_index: u64,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self { state: MetaState::new(), log_index: 9 };
        cluster.done(&form(3, 4, 2));
        for name in ["alice", "bob"] {
            let rights = Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() };
            let principal =
                Principal { proof: Proof::Certificate, rights, created_ms: 1, expires_ms: None };
            let (name, replace) = (named(name), false);
            cluster.done(&MetaCommand::PutPrincipal { name, principal, replace });
        }
        cluster
    }

    fn apply(&mut self, command: &MetaCommand) -> MetaReply {
        self.log_index += 1;
        self.state.apply(self.log_index, command)
    }

    fn done(&mut self, command: &MetaCommand) {
        assert_eq!(self.apply(command), MetaReply::Done, "{command:?}");
    }

    fn error(&mut self, command: &MetaCommand) -> String {
        let before = self.state.clone();
        let MetaReply::Refused(error) = self.apply(command) else { panic!("{command:?} was done") };
        assert_eq!(self.state, before, "what is refused changes nothing");
        error.to_string()
    }

    fn made(&mut self, command: &MetaCommand) -> FilterId {
        match self.apply(command) {
            MetaReply::Filter(filter) => filter,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    /// Allows shard 0 to grow as far as it asks, for a part with items at these places.
    fn allow(&mut self, filter: FilterId, growth_bytes: u64, places: &[u64]) {
        for (ShardId(shard), bytes) in self.missing(filter, growth_bytes, places).unwrap() {
            self.done(&grow(filter, shard, bytes));
        }
        assert_eq!(self.missing(filter, growth_bytes, places), Ok(Vec::new()));
    }

    fn missing(
        &self,
        filter: FilterId,
        growth_bytes: u64,
        places: &[u64],
    ) -> Result<Vec<(ShardId, u64)>> {
        let hashes: Vec<_> = places.iter().map(|&place| ItemHash::new(place, 0)).collect();
        let (slice, hashes) = ((filter, Generation(1)), HashList::from_hashes(&hashes));
        self.state.missing_growth(slice, ShardId(0), growth_bytes, Some(&hashes))
    }

    /// Forms the shards, of which the next split cuts the first.
    fn formed(&mut self) {
        for shard in (0..4).map(ShardId) {
            self.done(&MetaCommand::ShardFormed { shard });
        }
    }

    /// What all filters use, in MiB.
    fn used_mib(&self) -> u64 {
        self.state.usage(None).memory_bytes / MIB
    }

    fn set(&mut self, of: Option<&str>, change: Quota) {
        self.done(&MetaCommand::SetQuota { of: of.map(named), change, from_none: false });
    }
}

fn filters(count: u64) -> Quota {
    Quota { filter_count: Some(count), ..Quota::default() }
}

fn memory(bytes: u64) -> Quota {
    Quota { memory_bytes: Some(bytes), ..Quota::default() }
}

/// A filter whose key id is its number of bytes.
fn create(name: &str, owner: Option<&str>, memory_bytes: u64) -> MetaCommand {
    let settings = FilterSettings { memory_bytes, ..settings(sip_key(memory_bytes)) };
    let (name, owner) = (FilterName::new(name).unwrap(), owner.map(named));
    MetaCommand::CreateFilter { name, settings, importing: false, owner }
}

#[test]
fn a_principal_has_as_many_filters_as_its_quota_until_their_slices_are_gone() {
    let mut cluster = Cluster::new();
    cluster.set(Some("alice"), filters(2));
    let first = cluster.made(&create("a", Some("alice"), 10));
    cluster.made(&create("b", Some("alice"), 11));
    let error = cluster.error(&create("c", Some("alice"), 12));
    assert_eq!(
        error,
        "principal alice has a quota of 2 filters, has 2 and needs 1 more: drop filters or plan smaller \
         ones, or have an administrator raise it (umbel access quota alice --filters N)"
    );
    // The request that created the second filter is retried.
    cluster.made(&create("b", Some("alice"), 11));
    // Other principals have quotas of their own.
    cluster.made(&create("c", Some("bob"), 12));
    cluster.made(&create("d", None, 13));
    cluster.done(&MetaCommand::FilterCreated { filter: first });
    let clear = MetaCommand::ClearFilter { filter: first, generation: Generation(1) };
    cluster.done(&clear);
    cluster.done(&MetaCommand::DropFilter { filter: first });
    assert!(cluster.error(&create("e", Some("alice"), 14)).contains("quota of 2 filters"));
    cluster.done(&MetaCommand::FilterDropped { filter: first });
    cluster.made(&create("e", Some("alice"), 14));
    cluster.set(Some("alice"), filters(3));
    cluster.made(&create("f", Some("alice"), 15));
    assert_eq!(cluster.state.usage(Some("alice")).filter_count, 3);
    assert_eq!(cluster.state.usage(None).filter_count, 5);
}

#[test]
fn memory_counts_on_all_nodes_together() {
    let mut cluster = Cluster::new();
    cluster.set(Some("alice"), memory(10 * MIB));
    cluster.made(&create("a", Some("alice"), 3 * MIB));
    assert_eq!(cluster.state.usage(Some("alice")).memory_bytes, 6 * MIB, "two replicas");
    let error = cluster.error(&create("b", Some("alice"), 2 * MIB + 1));
    assert!(error.contains("quota of 10485760 bytes"), "{error}");
    assert!(error.contains("uses 6291456 and needs 4194306 more"), "{error}");
    assert!(error.contains("umbel access quota alice --memory N"), "{error}");
    let MetaCommand::CreateFilter { name, settings, .. } = create("b", None, MIB) else { panic!() };
    let settings = FilterSettings { distribution: Distribution::Replicated, ..settings };
    let owner = Some(named("alice"));
    cluster.made(&MetaCommand::CreateFilter { name, settings, importing: true, owner });
    assert_eq!(cluster.state.usage(Some("alice")).memory_bytes, 9 * MIB, "a copy on three nodes");
    cluster.made(&create("c", Some("alice"), MIB / 2));
    assert!(cluster.error(&create("d", Some("alice"), 1)).contains("quota of 10485760 bytes"));
}

#[test]
fn the_largest_used_share_of_any_quota_is_reported() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.state.quota_shares(), (0.0, 0.0), "there is no quota");
    cluster.made(&create("a", Some("alice"), 2 * MIB));
    cluster.made(&create("b", None, MIB));
    cluster.set(Some("alice"), filters(2));
    cluster.set(Some("bob"), memory(MIB));
    cluster.set(None, memory(8 * MIB));
    assert_eq!(cluster.state.quota_shares(), (0.5, 0.75), "alice's filters, the cluster's memory");
    cluster.set(Some("alice"), memory(2 * MIB));
    assert_eq!(cluster.state.quota_shares(), (0.5, 2.0), "two replicas, and a quota set too late");
    cluster.set(Some("bob"), filters(0));
    assert_eq!(cluster.state.quota_shares().0, 0.5, "nothing of nothing is used");
}

#[test]
fn the_cluster_gives_filters_four_fifths_of_the_least_nodes_memory() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.state.cluster_quota(), Quota::default(), "nobody has told its limit");
    let limit =
        |node, limit_bytes| MetaCommand::NoteMemoryLimit { node: NodeId(node), limit_bytes };
    cluster.done(&limit(1, 50 * MIB));
    cluster.done(&limit(2, 10 * MIB));
    assert_eq!(cluster.state.cluster_quota().memory_bytes, Some(24 * MIB));
    cluster.made(&create("a", Some("alice"), 8 * MIB));
    let error = cluster.error(&create("b", None, 4 * MIB + 1));
    assert!(error.starts_with("the cluster has a quota of 25165824 bytes"), "{error}");
    assert!(error.contains("umbel access quota --all --memory N"), "{error}");
    cluster.made(&create("b", None, 4 * MIB));
    // A set limit overrides the computed one, and `from_none` removes it.
    cluster.set(None, memory(30 * MIB));
    cluster.made(&create("c", None, 3 * MIB));
    cluster.set(None, filters(3));
    assert!(
        cluster.error(&create("d", None, 1)).starts_with("the cluster has a quota of 3 filters")
    );
    let change = Quota::default();
    cluster.done(&MetaCommand::SetQuota { of: None, change, from_none: true });
    assert_eq!(cluster.state.cluster_quota(), memory(24 * MIB));
    // A removed node does not count any more.
    let error = cluster.error(&limit(9, MIB));
    assert_eq!(error, "there is no node 9");
    let mut alone = Cluster::new();
    alone.done(&limit(3, 5 * MIB));
    alone.done(&limit(1, 10 * MIB));
    for (shard, target) in (0..4).map(|shard| (shard, vec![NodeId(1), NodeId(2)])) {
        let shard = ShardId(shard);
        let replicas = target.clone();
        alone.apply(&MetaCommand::PlanReplicas { shard, target });
        alone.apply(&MetaCommand::ReplicasChanged { shard, replicas });
    }
    alone.done(&MetaCommand::RemoveNode { node: NodeId(3) });
    assert_eq!(alone.state.cluster_quota().memory_bytes, Some(16 * MIB));
}

#[test]
fn quotas_change_limit_by_limit_and_go_with_their_principal() {
    let mut cluster = Cluster::new();
    let rates = Rates { calls: Some(5), ..Rates::default() };
    cluster.set(Some("bob"), Quota { rates, ..filters(1) });
    cluster.set(Some("bob"), memory(7));
    let all = Quota { filter_count: Some(1), memory_bytes: Some(7), rates };
    assert_eq!(cluster.state.quota("bob"), all);
    let set = |of: Option<&str>, change, from_none| {
        let of = of.map(named);
        MetaCommand::SetQuota { of, change, from_none }
    };
    assert!(cluster.error(&set(Some("eve"), filters(1), false)).contains("no principal named eve"));
    let none = Rates { items: Some(0), ..Rates::default() };
    let none = Quota { rates: none, ..Quota::default() };
    assert!(cluster.error(&set(Some("bob"), none, false)).contains("at least 1 a second"));
    let of_cluster = Quota { rates, ..Quota::default() };
    assert!(cluster.error(&set(None, of_cluster, false)).contains("not of the cluster"));
    cluster.done(&set(Some("bob"), memory(8), true));
    assert_eq!(cluster.state.quota("bob"), memory(8));
    // Its filters stay, and count towards a later principal of the same name.
    cluster.made(&create("b", Some("bob"), 1));
    cluster.done(&MetaCommand::DropPrincipal { name: named("bob") });
    assert_eq!(cluster.state.quota("bob"), Quota::default());
    assert_eq!(cluster.state.usage(Some("bob")).filter_count, 1);
}

#[test]
fn absurd_sizes_do_not_wrap() {
    let mut cluster = Cluster::new();
    cluster.set(None, memory(u64::MAX));
    let limit_bytes = u64::MAX;
    for node in [1, 2, 3].map(NodeId) {
        cluster.done(&MetaCommand::NoteMemoryLimit { node, limit_bytes });
    }
    cluster.done(&MetaCommand::SetQuota { of: None, change: Quota::default(), from_none: true });
    assert_eq!(cluster.state.cluster_quota().memory_bytes, Some(u64::MAX));
    let settings = FilterSettings { memory_bytes: u64::MAX, ..settings(sip_key(1)) };
    assert_eq!(cluster.state.holders().bytes(&settings), u64::MAX);
    assert!(cluster.state.check_quota(None, &settings).is_ok());
}

#[test]
fn sessions_of_one_principal_have_one_owner() {
    let mut cluster = Cluster::new();
    let mut owner_of = |name: &str| {
        let (key, owner) = (SessionKey::new([7; 16]), name.to_owned());
        let MetaReply::Session(session) = cluster.apply(&MetaCommand::OpenSession { key, owner })
        else {
            panic!("no session")
        };
        match cluster.state.session_standing(session, name) {
            SessionStanding::Given { owner, .. } => owner,
            other => panic!("{other:?}"),
        }
    };
    let [alice, bob, again, nobody] = ["alice", "bob", "alice", ""].map(&mut owner_of);
    assert_eq!(alice, again);
    assert!(alice != bob && alice != nobody && bob != nobody);
}

/// A scalable filter of this name, created and live.
fn scalable(cluster: &mut Cluster, name: &str, owner: Option<&str>) -> FilterId {
    let MetaCommand::CreateFilter { name, settings, importing, owner } = create(name, owner, MIB)
    else {
        panic!()
    };
    let shape = SliceShape::Scalable { item_count: 100, false_positive_rate: 0.01 };
    let settings = FilterSettings { kind: Kind::Scalable.id(), shape, ..settings };
    let filter = cluster.made(&MetaCommand::CreateFilter { name, settings, importing, owner });
    cluster.done(&MetaCommand::FilterCreated { filter });
    filter
}

fn grow(filter: FilterId, shard: u32, growth_bytes: u64) -> MetaCommand {
    let (generation, shard) = (Generation(1), ShardId(shard));
    MetaCommand::GrowFilter { filter, generation, shard, growth_bytes }
}

#[test]
fn growth_of_a_filter_counts_in_each_replica_until_it_is_cleared() {
    let mut cluster = Cluster::new();
    cluster.set(Some("alice"), memory(10 * MIB));
    let filter = scalable(&mut cluster, "a", Some("alice"));
    let used = |cluster: &Cluster| cluster.state.usage(Some("alice")).memory_bytes;
    assert_eq!(used(&cluster), 2 * MIB);
    cluster.done(&grow(filter, 0, MIB));
    cluster.done(&grow(filter, 1, 2 * MIB));
    assert_eq!(used(&cluster), 8 * MIB, "two replicas of each slice");
    // Requested again, and for less than it has.
    cluster.done(&grow(filter, 1, 2 * MIB));
    cluster.done(&grow(filter, 1, MIB));
    assert_eq!(used(&cluster), 8 * MIB);
    let error = cluster.error(&grow(filter, 0, 2 * MIB + 1));
    assert!(error.contains("uses 8388608 and needs 2097154 more"), "{error}");
    cluster.done(&grow(filter, 0, 2 * MIB));
    assert!(cluster.error(&create("b", Some("alice"), 1)).contains("quota of 10485760 bytes"));
    let clear = MetaCommand::ClearFilter { filter, generation: Generation(1) };
    cluster.done(&clear);
    assert!(cluster.error(&grow(filter, 3, MIB)).contains("being cleared"));
    cluster.done(&MetaCommand::FilterCleared { filter, generation: Generation(2) });
    assert_eq!(used(&cluster), 2 * MIB);
    assert!(cluster.error(&grow(filter, 0, MIB)).contains("live"), "of the generation before");
}

#[test]
fn the_clusters_quota_counts_growth_and_other_filters_do_not_grow() {
    let mut cluster = Cluster::new();
    cluster.set(None, memory(4 * MIB));
    let filter = scalable(&mut cluster, "a", None);
    cluster.done(&grow(filter, 2, MIB));
    assert!(cluster.error(&grow(filter, 2, MIB + 1)).starts_with("the cluster has a quota"));
    cluster.set(None, memory(100 * MIB));
    let fixed = cluster.made(&create("b", None, MIB));
    cluster.done(&MetaCommand::FilterCreated { filter: fixed });
    assert!(cluster.error(&grow(fixed, 0, 1)).contains("the size that it was made with"));
    assert!(cluster.error(&grow(filter, 4, 1)).contains("there is no"));
    let most = crate::limits::SLICE_BYTES_MAX;
    assert!(cluster.error(&grow(filter, 0, most + 1)).contains("at most"));
    cluster.done(&MetaCommand::DropFilter { filter });
    assert!(cluster.error(&grow(filter, 0, 1)).contains("there is no"));
}

/// Cuts shard 0, which has an eighth of the hashes then.
const SPLIT: MetaCommand = MetaCommand::SplitShard { shard_count: 5 };

/// A hash that shard 0 keeps when it is cut, and one that it loses.
const PLACES: [u64; 2] = [0, 1 << 61];

#[test]
fn a_shard_that_is_to_be_cut_grows_by_what_it_asks_for_and_not_by_half_more() {
    let mut cluster = Cluster::new();
    cluster.formed();
    let filter = scalable(&mut cluster, "a", None);
    cluster.done(&grow(filter, 0, 2 * MIB));
    let mut cut_later = cluster.state.clone();
    cluster.done(&SPLIT);
    assert_eq!(cluster.used_mib(), 2 * (1 + 2), "two replicas of the plan and the growth");
    // The shard's own entry alone would count the upper half once more.
    let mut counted_twice = cluster.state.clone();
    counted_twice.apply(90, &grow(filter, 0, 3 * MIB));
    assert_eq!(counted_twice.usage(None).memory_bytes, 2 * (1 + 3 + 1) * MIB);
    cluster.allow(filter, 3 * MIB, &PLACES);
    assert_eq!(cluster.used_mib(), 2 * (1 + 3));
    // As if the shard had grown first and been cut then.
    cut_later.apply(90, &grow(filter, 0, 3 * MIB));
    cut_later.apply(91, &SPLIT);
    assert_eq!(cluster.state.filter(filter), cut_later.filter(filter));
    // A shard that asks for items that it keeps may be cut already: all of it is its own.
    assert_eq!(cluster.missing(filter, 2 * MIB, &PLACES[..1]), Ok(vec![(ShardId(0), 2 * MIB)]));
    cluster.done(&MetaCommand::ShardFormed { shard: ShardId(4) });
    cluster.allow(filter, 2 * MIB, &PLACES[..1]);
    let record = cluster.state.filter(filter).unwrap();
    assert_eq!([0, 4].map(|shard| record.growth_bytes(ShardId(shard)) * 2 / MIB), [4, 3]);
}

#[test]
fn growth_of_both_halves_needs_room_for_both() {
    let mut cluster = Cluster::new();
    cluster.formed();
    let filter = scalable(&mut cluster, "a", Some("alice"));
    cluster.done(&grow(filter, 0, 2 * MIB));
    cluster.done(&SPLIT);
    // There is room for the growth of one half.
    cluster.set(Some("alice"), memory(8 * MIB - 1));
    let refused = cluster.missing(filter, 3 * MIB, &PLACES).unwrap_err().to_string();
    assert!(refused.contains("uses 6291456 and needs 2097152 more"), "{refused}");
    // What counts already is not refused, even by a quota that was lowered since.
    cluster.set(Some("alice"), memory(1));
    cluster.allow(filter, 2 * MIB, &PLACES);
    cluster.set(Some("alice"), memory(8 * MIB));
    cluster.allow(filter, 3 * MIB, &PLACES);
    assert_eq!(cluster.used_mib(), 8);
}

#[test]
fn what_a_filter_in_one_shard_grew_by_counts_once_after_splits_and_merges() {
    let mut cluster = Cluster::new();
    cluster.state = cluster.state.at_version(ClusterVersion::NEWEST);
    cluster.formed();
    let MetaCommand::CreateFilter { name, settings, importing, owner } = create("a", None, MIB)
    else {
        panic!()
    };
    let shape = SliceShape::from(RedisBloomShape::for_rate(10, 0.01).unwrap()).placed(PLACES[0]);
    let (kind, key) = (Kind::RedisBloom.id(), HashKey::RedisBloom);
    let settings = FilterSettings { kind, shape, key, ..settings };
    let filter = cluster.made(&MetaCommand::CreateFilter { name, settings, importing, owner });
    cluster.done(&MetaCommand::FilterCreated { filter });
    cluster.allow(filter, 2 * MIB, &PLACES);
    cluster.done(&SPLIT);
    cluster.done(&MetaCommand::ShardFormed { shard: ShardId(4) });
    // Half of it counts at the other shard, which has nothing of the filter, and would count beside all of it.
    let mut counted_twice = cluster.state.clone();
    counted_twice.apply(90, &grow(filter, 0, 4 * MIB));
    assert_eq!(counted_twice.usage(None).memory_bytes, 2 * (1 + 4 + 1) * MIB);
    for growth_mib in [2, 4, 7] {
        cluster.allow(filter, growth_mib * MIB, &PLACES);
        assert_eq!(cluster.used_mib(), 2 * (1 + growth_mib));
    }
    cluster.done(&MetaCommand::MergeShard { shard_count: 4 });
    cluster.done(&MetaCommand::ShardMerged { shard: ShardId(4), era: 0 });
    cluster.allow(filter, 9 * MIB, &PLACES);
    assert_eq!(cluster.used_mib(), 2 * (1 + 9));
}
