//! Histories and logs for the tests of the checks.

use std::collections::BTreeMap;

use umbel_engine::meta::{
    ClusterVersion, Distribution, FilterName, FilterSettings, HashKey, MetaCommand, MetaReply,
    MetaState,
};
use umbel_engine::placement::ShardRanges;
use umbel_engine::routing::BatchParts;
use umbel_engine::shard::{
    Bitmap, HashList, InsertPart, RemovePart, SetOperation, ShardCommand, ShardReply, ShardState,
    SliceShape,
};
use umbel_engine::{FilterId, Generation, GroupId, NodeId, ShardId};
use umbel_filter::{CellCount, Kind};
use umbel_node::ports::observer::{EntryId, Payload};

use super::bits::hash_of;
use super::reference::Reference;
use crate::history::{Call, FilterFacts, Outcome, Verb};
use crate::plan::{FilterKind, MANUAL_WINDOW, WINDOW};
use crate::violation::Violation;

/// Settings of a filter for so many items, with false positives of one percent, or of 1e-12 for windows.
pub(crate) fn settings(kind: FilterKind, capacity: u64, shards: CellCount) -> FilterSettings {
    let rules = if kind == FilterKind::ManualWindow { MANUAL_WINDOW } else { WINDOW };
    let kind = match kind {
        FilterKind::Classic => Kind::Classic,
        FilterKind::Blocked => Kind::Blocked,
        FilterKind::Counting => Kind::Counting,
        FilterKind::Scalable => Kind::Scalable,
        FilterKind::SingleShot => Kind::SingleShot,
        FilterKind::Window | FilterKind::ManualWindow => Kind::Window,
        FilterKind::Aging => Kind::Aging,
        FilterKind::Stable => Kind::Stable,
        FilterKind::Cuckoo => Kind::Cuckoo,
        FilterKind::Quotient => Kind::Quotient,
        FilterKind::RedisBloom => Kind::RedisBloom,
    };
    let shape = match kind {
        Kind::Window => SliceShape::plan_window(capacity, 1e-12, shards, rules),
        kind => SliceShape::plan(kind, capacity, 0.01, shards),
    };
    let shape = shape.unwrap();
    let key = match kind {
        Kind::RedisBloom => HashKey::RedisBloom,
        _ => HashKey::Xxh3 { seed: 7 },
    };
    let kind = kind.id();
    FilterSettings {
        distribution: Distribution::Partitioned,
        kind,
        capacity,
        false_positive_rate: 0.01,
        shape,
        memory_bytes: 64,
        key,
    }
}

/// Kinds of which the tests of answers take each in turn.
pub(crate) const KINDS: [FilterKind; 4] =
    [FilterKind::Classic, FilterKind::Blocked, FilterKind::Counting, FilterKind::Scalable];

/// One node that applies its entries, and a reference that watches it.
pub(crate) struct Cluster {
    pub(crate) reference: Reference,
    pub(crate) meta: MetaState,
    pub(crate) shards: Vec<ShardState>,
    next: BTreeMap<GroupId, u64>,
    pub(crate) at_us: u64,
}

impl Cluster {
    /// A formed cluster of two shards.
    pub(crate) fn new() -> Self {
        let ranges = Self::ranges();
        let shards = ranges.shards();
        let shards = shards.map(|shard| ShardState::new(shard, ranges.range(shard).unwrap()));
        let mut cluster = Self {
            reference: Reference::new(),
            meta: MetaState::new(),
            shards: shards.collect(),
            next: BTreeMap::new(),
            at_us: 0,
        };
        let nodes = vec![(NodeId(1), "a:1".to_owned())];
        let form = MetaCommand::Form { cluster: 1, nodes, shard_count: 2, replica_count: 1 };
        cluster.meta(&form).unwrap();
        cluster
    }

    /// A formed cluster with one filter, `f`.
    pub(crate) fn of(kind: FilterKind) -> Self {
        let mut cluster = Self::new();
        cluster.create("f", kind);
        cluster
    }

    /// The same at the newest version of the cluster.
    pub(crate) fn newest_of(kind: FilterKind) -> Self {
        let mut cluster = Self::new();
        for to in 2..=ClusterVersion::NEWEST.0 {
            let asked = vec![NodeId(1)];
            let raise = MetaCommand::RaiseVersion { to: ClusterVersion(to), asked };
            assert_eq!(cluster.meta(&raise).unwrap(), MetaReply::Done);
        }
        cluster.create("f", kind);
        cluster
    }

    fn ranges() -> ShardRanges {
        ShardRanges::new(2, 2).unwrap()
    }

    /// The next entry of a group.
    pub(crate) fn entry(&mut self, group: GroupId) -> EntryId {
        let index = self.next.entry(group).or_insert(1);
        *index += 1;
        EntryId { term: 1, leader: NodeId(1), index: *index - 1 }
    }

    pub(crate) fn meta(&mut self, command: &MetaCommand) -> Result<MetaReply, Violation> {
        let entry = self.entry(GroupId::META);
        let reply = self.meta.apply(entry.index, command);
        let (at_us, payload) = (self.at_us, Payload::Meta(command, &reply));
        let (group, digest) = (GroupId::META, || panic!("the meta group has no digest"));
        self.reference.applied(at_us, "node1", group, entry, &payload, &digest)?;
        Ok(reply)
    }

    pub(crate) fn shard(
        &mut self,
        shard: ShardId,
        command: &ShardCommand,
    ) -> Result<ShardReply, Violation> {
        let entry = self.entry(GroupId::of_shard(shard));
        let state = &mut self.shards[shard.0 as usize];
        let reply = state.apply(command);
        let (at_us, payload) = (self.at_us, Payload::Shard(command, &reply));
        let (group, digest) = (GroupId::of_shard(shard), || state.digest());
        self.reference.applied(at_us, "node1", group, entry, &payload, &digest)?;
        Ok(reply)
    }

    fn each_shard(&mut self, command: &ShardCommand) {
        (0..2).map(ShardId).for_each(|shard| drop(self.shard(shard, command).unwrap()));
    }

    /// Creates a filter for 40 items.
    pub(crate) fn create(&mut self, name: &str, kind: FilterKind) -> FilterId {
        let settings = settings(kind, 40, Self::ranges().widest());
        let name = FilterName::new(name).unwrap();
        let create = MetaCommand::CreateFilter { name, settings, importing: false, owner: None };
        let MetaReply::Filter(filter) = self.meta(&create).unwrap() else { panic!("refused") };
        let spec = self.meta.filter(filter).unwrap().slice_spec(filter);
        self.each_shard(&ShardCommand::CreateSlice(spec));
        self.meta(&MetaCommand::FilterCreated { filter }).unwrap();
        filter
    }

    fn named(&self, name: &str) -> (FilterId, Generation, HashKey) {
        let (filter, record) = self.meta.filter_by_name(name).unwrap();
        (filter, record.generation, record.settings.key)
    }

    /// Inserts items and returns their answers.
    pub(crate) fn insert(&mut self, name: &str, items: &[u32]) -> Vec<bool> {
        let (filter, generation, key) = self.named(name);
        let hashes: Vec<_> = items.iter().map(|&item| hash_of(key, item)).collect();
        let parts = BatchParts::cut(&hashes, Self::ranges());
        let mut answers = BTreeMap::new();
        for (shard, hashes) in parts.parts() {
            let proposed = Bitmap::ones(u32::try_from(hashes.len()).unwrap());
            let (request, hashes) = (None, hashes.clone());
            let growth_bytes = u64::MAX;
            let part = InsertPart { filter, generation, request, proposed, hashes, growth_bytes };
            let reply = self.shard(*shard, &ShardCommand::Insert(vec![part])).unwrap();
            let ShardReply::Inserted(mut replies) = reply else { panic!("another reply") };
            answers.insert(*shard, replies.pop().unwrap().unwrap());
        }
        parts.join(|shard| answers.remove(&shard)).unwrap().iter().collect()
    }

    /// Which of the items are contained.
    pub(crate) fn contains(&self, name: &str, items: &[u32]) -> Vec<bool> {
        let (filter, generation, key) = self.named(name);
        let one = |&item: &u32| {
            let hash = hash_of(key, item);
            let state = &self.shards[Self::ranges().shard_of(hash.hi()).0 as usize];
            let hashes = HashList::from_hashes(&[hash]);
            state.contains(filter, generation, &hashes).unwrap().get(0)
        };
        items.iter().map(one).collect()
    }

    /// Removes an item, and returns whether it was contained.
    pub(crate) fn remove(&mut self, name: &str, item: u32) -> bool {
        let (filter, generation, key) = self.named(name);
        let parts = BatchParts::cut(&[hash_of(key, item)], Self::ranges());
        let (shard, hashes) = parts.parts()[0].clone();
        let part = RemovePart { filter, generation, request: None, hashes };
        let ShardReply::Removed(reply) = self.shard(shard, &ShardCommand::Remove(part)).unwrap()
        else {
            panic!("another reply")
        };
        reply.unwrap().get(0)
    }

    /// Empties a filter at this time.
    pub(crate) fn clear(&mut self, name: &str, at_us: u64) {
        self.at_us = at_us;
        let (filter, generation, _) = self.named(name);
        self.meta(&MetaCommand::ClearFilter { filter, generation }).unwrap();
        let generation = Generation(generation.0 + 1);
        self.each_shard(&ShardCommand::ClearSlice { filter, generation });
        self.meta(&MetaCommand::FilterCleared { filter, generation }).unwrap();
    }

    /// Drops a filter at this time.
    pub(crate) fn drop_filter(&mut self, name: &str, at_us: u64) {
        let (filter, ..) = self.named(name);
        self.drop_by(&MetaCommand::DropFilter { filter }, filter, at_us);
    }

    /// Drops a filter at this time, because its own has come.
    pub(crate) fn drop_expired(&mut self, name: &str, at_us: u64) {
        let (filter, record) = self.meta.filter_by_name(name).unwrap();
        let expires_ms = record.expires_ms.unwrap();
        self.drop_by(&MetaCommand::DropExpired { filter, expires_ms }, filter, at_us);
    }

    fn drop_by(&mut self, command: &MetaCommand, filter: FilterId, at_us: u64) {
        self.at_us = at_us;
        self.meta(command).unwrap();
        self.each_shard(&ShardCommand::DropSlice(filter));
        self.meta(&MetaCommand::FilterDropped { filter }).unwrap();
    }

    /// Merges one filter into another.
    pub(crate) fn merge(&mut self, target: &str, source: &str) {
        let (source, source_generation, _) = self.named(source);
        let (target, generation, _) = self.named(target);
        let sources = vec![(source, source_generation)];
        let operation = SetOperation::Union;
        self.each_shard(&ShardCommand::MergeSlices { target, generation, sources, operation });
    }
}

/// The history that the clients observed.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) calls: Vec<Call>,
    pub(crate) facts: Vec<FilterFacts>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The history of one filter, `f`, that was never rewritten.
    pub(crate) fn of(kind: FilterKind) -> Self {
        let mut history = Self::new();
        history.knows("f", kind, false);
        history
    }

    pub(crate) fn knows(&mut self, name: &str, kind: FilterKind, is_rewritten: bool) {
        self.facts.push(FilterFacts {
            name: name.to_owned(),
            kind,
            is_rewritten,
            is_punctual: true,
        });
    }

    pub(crate) fn call(
        &mut self,
        verb: Verb,
        filter: &str,
        items: &[u32],
        (start_us, end_us): (u64, u64),
        outcome: Outcome,
    ) -> &mut Call {
        let id = u32::try_from(self.calls.len()).unwrap();
        self.calls.push(Call {
            id,
            client: 0,
            filter: filter.to_owned(),
            verb,
            machine: None,
            items: items.to_vec(),
            sources: Vec::new(),
            frames: Vec::new(),
            ranges: None,
            request: None,
            start_us,
            end_us: Some(end_us),
            deadline_us: end_us,
            outcome,
        });
        self.calls.last_mut().unwrap()
    }

    pub(crate) fn done(
        &mut self,
        verb: Verb,
        filter: &str,
        items: &[u32],
        start_us: u64,
        end_us: u64,
        bits: &[bool],
    ) -> &mut Call {
        self.call(verb, filter, items, (start_us, end_us), Outcome::Done(bits.to_vec()))
    }

    pub(crate) fn insert(
        &mut self,
        filter: &str,
        items: &[u32],
        start_us: u64,
        end_us: u64,
        bits: &[bool],
    ) -> &mut Call {
        self.done(Verb::Insert, filter, items, start_us, end_us, bits)
    }

    pub(crate) fn contains(
        &mut self,
        filter: &str,
        items: &[u32],
        start_us: u64,
        end_us: u64,
        bits: &[bool],
    ) -> &mut Call {
        self.done(Verb::Contains, filter, items, start_us, end_us, bits)
    }

    pub(crate) fn unknown(
        &mut self,
        verb: Verb,
        filter: &str,
        items: &[u32],
        start_us: u64,
        end_us: u64,
    ) -> &mut Call {
        let outcome = Outcome::Unknown("deadline".to_owned());
        self.call(verb, filter, items, (start_us, end_us), outcome)
    }

    pub(crate) fn refused(
        &mut self,
        verb: Verb,
        filter: &str,
        items: &[u32],
        start_us: u64,
        end_us: u64,
    ) -> &mut Call {
        let outcome = Outcome::NotApplied("no quorum".to_owned());
        self.call(verb, filter, items, (start_us, end_us), outcome)
    }
}
