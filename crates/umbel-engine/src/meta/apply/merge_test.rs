//! Merging the shards that were split off, the last one first.

use super::apply_test::Cluster;
use super::*;
use crate::ids::{Epoch, FilterId, Generation};
use crate::limits::{ERA_MAX, SLICE_BYTES_MAX};
use crate::meta::testing::{create, create_replicated};
use crate::meta::{ClusterVersion, FilterName, FilterSettings, FilterState, MergeStep, SeenExpiry};
use crate::shard::{LateItems, SliceShape, WindowRules, WindowTime};

pub(super) fn split(shard_count: u32) -> MetaCommand {
    MetaCommand::SplitShard { shard_count }
}

pub(super) fn merge(shard_count: u32) -> MetaCommand {
    MetaCommand::MergeShard { shard_count }
}

pub(super) fn merged(shard: u32, era: u32) -> MetaCommand {
    MetaCommand::ShardMerged { shard: ShardId(shard), era }
}

pub(super) fn formed(shard: u32) -> MetaCommand {
    MetaCommand::ShardFormed { shard: ShardId(shard) }
}

/// Three nodes, and two shards with two replicas each that became this many, at version 3.
pub(super) fn cluster(shard_count: u32) -> Cluster {
    let mut cluster = Cluster::new(3, 2, 2);
    cluster.state = cluster.state.at_version(ClusterVersion(3));
    for shard in 0..shard_count {
        if shard >= 2 {
            cluster.done(&split(shard + 1));
        }
        cluster.done(&formed(shard));
    }
    cluster
}

/// Creates a window that is rotated by hand.
fn create_window(name: &str) -> MetaCommand {
    let (time, late) = (WindowTime::Manual, LateItems::Reject);
    let rules = WindowRules { slice_ms: 0, slice_count: 2, time, late, refresh: false };
    let cells = umbel_filter::CellCount::new(2).unwrap();
    let shape = SliceShape::plan_window(1_000, 0.01, cells, rules).unwrap();
    match create(name, 5, false) {
        MetaCommand::CreateFilter { name, settings, importing, owner } => {
            let settings = FilterSettings { shape, ..settings };
            MetaCommand::CreateFilter { name, settings, importing, owner }
        }
        command => command,
    }
}

/// A live filter.
fn live(cluster: &mut Cluster, command: &MetaCommand) -> FilterId {
    let MetaReply::Filter(filter) = cluster.apply(command) else { panic!("{command:?}") };
    cluster.done(&MetaCommand::FilterCreated { filter });
    filter
}

fn busy(cluster: &mut Cluster, command: &MetaCommand) -> String {
    match cluster.error(command) {
        MetaError::ShardBusy { what } => what,
        error => panic!("{command:?}: {error:?}"),
    }
}

fn bad(cluster: &mut Cluster, command: &MetaCommand) -> String {
    match cluster.error(command) {
        MetaError::BadMerge { what } => what,
        error => panic!("{command:?}: {error:?}"),
    }
}

/// The replicas of a shard, and the same with one of them moved to the node that has none.
fn replicas_and_others(cluster: &Cluster, shard: u32) -> (Vec<NodeId>, Vec<NodeId>) {
    let replicas = cluster.state.shard(ShardId(shard)).unwrap().replicas.clone();
    let free = (1..=3).map(NodeId).find(|node| !replicas.contains(node)).unwrap();
    let mut others = vec![replicas[0], free];
    others.sort_unstable();
    (replicas, others)
}

fn move_to(cluster: &mut Cluster, shard: u32, replicas: &[NodeId]) {
    let (shard, replicas) = (ShardId(shard), replicas.to_vec());
    cluster.done(&MetaCommand::PlanReplicas { shard, target: replicas.clone() });
    cluster.done(&MetaCommand::ReplicasChanged { shard, replicas });
}

#[test]
fn a_merge_undoes_a_split_in_two_steps() {
    let mut cluster = cluster(2);
    let before = cluster.state.shard_map().clone();
    cluster.done(&merge(2));
    assert_eq!(cluster.state.shard_map(), &before);
    cluster.done(&split(3));
    cluster.done(&formed(2));
    assert_eq!(cluster.state.epoch(), Epoch(3));
    cluster.done(&merge(2));
    cluster.done(&merge(2));
    let map = cluster.state.shard_map();
    assert_eq!((map.merging(), map.absorbing()), (Some(ShardId(2)), Some(ShardId(0))));
    assert_eq!((cluster.state.shard_count(), cluster.state.epoch()), (3, Epoch(4)));
    cluster.done(&merged(2, 0));
    cluster.done(&merged(2, 0));
    let map = cluster.state.shard_map();
    assert_eq!((&map.shards, map.epoch, map.merging()), (&before.shards, Epoch(5), None));
    assert_eq!((map.merge_count, map.ranges().unwrap().count()), (1, 2));
    cluster.done(&merge(2));

    // The next shard of this number is another group, which a late entry about the earlier one spares.
    cluster.done(&split(3));
    let made_again = cluster.state.shard(ShardId(2)).unwrap().group();
    assert_eq!(format!("{made_again:#}"), "shard 2 (made after 1 merge)");
    cluster.done(&formed(2));
    cluster.done(&merged(2, 0));
    cluster.done(&merge(2));
    cluster.done(&merged(2, 0));
    assert_eq!(cluster.state.shard_count(), 3);
    cluster.done(&merged(2, 1));
    assert_eq!(cluster.state.shard_count(), 2);
}

#[test]
fn what_cannot_be_merged_is_refused() {
    let mut early = Cluster::new(1, 1, 1);
    let too_low = MetaError::VersionTooLow { needed: ClusterVersion(3), is: ClusterVersion::FIRST };
    assert_eq!(early.error(&merge(1)), too_low);
    assert_eq!(early.state.merge_step(1), Err(too_low));

    let mut cluster = cluster(4);
    assert_eq!(
        bad(&mut cluster, &merge(1)),
        "a cluster that was started with 2 shards has at least 2, not 1"
    );
    for shard_count in [2, 5, u32::MAX] {
        assert_eq!(
            bad(&mut cluster, &merge(shard_count)),
            format!("4 shards become 3 by the next merge, not {shard_count}")
        );
    }
    assert_eq!(bad(&mut cluster, &merged(3, 0)), "shard 3 is not being merged into another shard");
    cluster.state.shard_map.merge_count = ERA_MAX;
    assert_eq!(
        bad(&mut cluster, &merge(3)),
        "the cluster has merged 1048575 times, which is the most"
    );
    // The last merge that there may be.
    cluster.state.shard_map.merge_count = ERA_MAX - 1;
    cluster.done(&merge(3));
    cluster.done(&merged(3, 0));
    cluster.done(&split(4));
    assert_eq!(cluster.state.shard(ShardId(3)).unwrap().group().era(), ERA_MAX);
}

#[test]
fn both_shards_are_on_the_same_nodes_and_stay_there() {
    let mut cluster = cluster(4);
    cluster.done(&split(5));
    assert_eq!(busy(&mut cluster, &merge(4)), "shard 4 is being made");
    cluster.done(&formed(4));
    let (replicas, others) = replicas_and_others(&cluster, 4);
    for shard in [4, 0] {
        let plan = MetaCommand::PlanReplicas { shard: ShardId(shard), target: others.clone() };
        cluster.done(&plan);
        assert_eq!(
            busy(&mut cluster, &merge(4)),
            format!("the replicas of shard {shard} are being moved")
        );
        move_to(&mut cluster, shard, &replicas);
    }
    move_to(&mut cluster, 4, &others);
    let list = |nodes: &[NodeId]| format!("{}, {}", nodes[0].0, nodes[1].0);
    assert_eq!(
        busy(&mut cluster, &merge(4)),
        format!(
            "shard 4 is on nodes {}, and shard 0, into which it is merged, on nodes {}: move shard 4 there first",
            list(&others),
            list(&replicas)
        )
    );
    move_to(&mut cluster, 4, &replicas);
    // Other shards may be on their way.
    let plan = |shard, target: &[NodeId]| MetaCommand::PlanReplicas {
        shard: ShardId(shard),
        target: target.to_vec(),
    };
    let (_, elsewhere) = replicas_and_others(&cluster, 1);
    cluster.done(&plan(1, &elsewhere));
    cluster.done(&merge(4));
    let under_way = "shard 4 is being merged into shard 0: try again";
    for shard in [0, 4] {
        assert_eq!(busy(&mut cluster, &plan(shard, &others)), under_way);
        let (from, to) = (replicas[1], others[0].max(others[1]));
        let by_hand = MetaCommand::MoveReplica { shard: ShardId(shard), from, to };
        assert_eq!(busy(&mut cluster, &by_hand), under_way);
    }
    let (_, elsewhere) = replicas_and_others(&cluster, 3);
    cluster.done(&plan(3, &elsewhere));
    for command in [split(5), split(6), merge(3), merge(5)] {
        assert_eq!(busy(&mut cluster, &command), under_way);
    }
    cluster.done(&merged(4, 0));
    cluster.done(&plan(0, &others));
}

#[test]
fn no_slice_changes_from_beginning_to_end() {
    let mut cluster = cluster(3);
    let MetaReply::Filter(filter) = cluster.apply(&create("f", 1, true)) else { panic!() };
    let when = "shards are merged when all filters are live";
    assert_eq!(busy(&mut cluster, &merge(2)), format!("filter \"f\" is being created: {when}"));
    cluster.done(&MetaCommand::FilterCreated { filter });
    assert_eq!(busy(&mut cluster, &merge(2)), format!("filter \"f\" is being imported: {when}"));
    cluster.done(&MetaCommand::ActivateImport { filter });
    // No shard takes part in filters that every node has.
    let other = live(&mut cluster, &create_replicated("every", 2, false));
    live(&mut cluster, &create_replicated("importing", 4, true));
    let third = live(&mut cluster, &create("third", 3, false));
    let window = live(&mut cluster, &create_window("window"));
    cluster.done(&MetaCommand::SetExpiry { filter: third, expires_ms: Some(7) });
    cluster.done(&merge(2));

    let generation = Generation(1);
    let renamed = |filter, to: &str, replaced| MetaCommand::RenameFilter {
        filter,
        generation,
        name: FilterName::new(to).unwrap(),
        replaced,
    };
    let refused = [
        create("g", 1, false),
        create("g", 1, true),
        MetaCommand::DropFilter { filter },
        MetaCommand::DropExpired { filter: third, expires_ms: 7 },
        MetaCommand::ClearFilter { filter, generation },
        MetaCommand::RotateFilter { filter: window, generation },
        renamed(filter, "g", None),
        renamed(other, "f", Some(filter)),
        MetaCommand::TakeFilter { filter, seen: SeenExpiry::Any },
    ];
    for command in refused.clone() {
        assert_eq!(busy(&mut cluster, &command), "shard 2 is being merged into shard 0: try again");
    }
    // What needs no slice is done, as is what was done before.
    assert_eq!(cluster.apply(&create("third", 3, false)), MetaReply::Filter(third));
    cluster.done(&MetaCommand::DropExpired { filter: third, expires_ms: 6 });
    cluster.done(&MetaCommand::DropFilter { filter: FilterId(1) });
    cluster.done(&MetaCommand::ClearFilter { filter, generation: Generation(0) });
    cluster.done(&MetaCommand::RotateFilter { filter: window, generation: Generation(0) });
    cluster.done(&MetaCommand::ClearFilter { filter: other, generation });
    cluster.done(&renamed(filter, "f", None));
    cluster.done(&MetaCommand::DropFilter { filter: other });
    live(&mut cluster, &create_replicated("every", 2, false));
    cluster.done(&merged(2, 0));
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Live));
    assert!(matches!(cluster.apply(&refused[0]), MetaReply::Filter(_)));
    for command in &refused[2..4] {
        cluster.done(command);
    }
    // The shards are merged again only when all slices are dropped.
    cluster.done(&split(3));
    cluster.done(&formed(2));
    assert_eq!(busy(&mut cluster, &merge(2)), format!("filter \"f\" is being dropped: {when}"));
}

#[test]
fn growth_adds_up_within_the_limit_of_a_slice() {
    let mut cluster = cluster(4);
    let filter = live(&mut cluster, &create("f", 1, false));
    let set = |cluster: &mut Cluster, of: [u64; 4]| {
        let growth = (0..).map(ShardId).zip(of).filter(|(_, bytes)| *bytes > 0).collect();
        cluster.state.filters.get_mut(&filter).unwrap().growth = growth;
    };
    // Three shards are planned as two wide ones: 2,000 bytes in each.
    let memory = |cluster: &mut Cluster, bytes| {
        cluster.state.filters.get_mut(&filter).unwrap().settings.memory_bytes = bytes;
    };
    memory(&mut cluster, 4_000);
    set(&mut cluster, [1, 400, 0, SLICE_BYTES_MAX - 2_000 - 399]);
    assert_eq!(
        bad(&mut cluster, &merge(3)),
        "filter \"f\" would take 268435457 bytes in shard 1 together with shard 3, at most 268435456 are allowed"
    );
    set(&mut cluster, [1, 400, 0, SLICE_BYTES_MAX - 2_000 - 400]);
    cluster.done(&merge(3));
    // Meanwhile neither may grow beyond that; the kind of this filter grows for no other reason.
    let record = cluster.state.filter(filter).unwrap();
    let checked = |shard, bytes| cluster.state.check_merged_growth(record, ShardId(shard), bytes);
    assert_eq!(checked(1, 400), Ok(()));
    assert!(matches!(checked(1, 401), Err(MetaError::BadSettings { .. })));
    assert!(matches!(checked(3, SLICE_BYTES_MAX - 2_399), Err(MetaError::BadSettings { .. })));
    assert_eq!(checked(0, SLICE_BYTES_MAX), Ok(()));
    cluster.done(&merged(3, 0));
    let growth = cluster.state.filter(filter).unwrap().growth.clone();
    let expected = [(ShardId(0), 1), (ShardId(1), SLICE_BYTES_MAX - 2_000)];
    assert_eq!(growth, expected.into_iter().collect());

    // The plan alone may be too much for fewer shards.
    set(&mut cluster, [0; 4]);
    memory(&mut cluster, 2 * SLICE_BYTES_MAX + 1);
    assert!(bad(&mut cluster, &merge(2)).contains("in shard 0 together with shard 2"));
    memory(&mut cluster, 2 * SLICE_BYTES_MAX);
    cluster.done(&merge(2));
    cluster.done(&merged(2, 0));
}

#[test]
fn a_split_and_a_merge_leave_the_growth_that_there_was() {
    let mut cluster = cluster(2);
    let filter = live(&mut cluster, &create("f", 1, false));
    let mut record = cluster.state.filter(filter).unwrap().clone();
    let parts =
        |record: &crate::meta::FilterRecord| [0, 2].map(|s| record.growth_bytes(ShardId(s)));
    record.growth.insert(ShardId(0), 100);
    record.split_growth(ShardId(0), ShardId(2));
    assert_eq!(parts(&record), [50, 50]);
    record.merge_growth(ShardId(0), ShardId(2));
    assert_eq!((parts(&record), record.growth.len()), ([100, 0], 1));
    // One that grew while the other did not.
    record.merge_growth(ShardId(1), ShardId(0));
    assert_eq!(record.growth, [(ShardId(1), 100)].into_iter().collect());
    record.merge_growth(ShardId(1), ShardId(0));
    assert_eq!(record.growth.len(), 1);
}

/// Carries out steps until there are that many shards; returns how many commands that took.
fn run_merges(cluster: &mut Cluster, shard_count: u32) -> usize {
    for commands in 0..100 {
        let map = cluster.state.shard_map();
        if let Some(from) = map.merging() {
            let waits = cluster.state.merge_step(shard_count);
            assert!(matches!(waits, Ok(MergeStep::Wait { .. })), "{waits:?}");
            let era = map.get(from).unwrap().era;
            cluster.done(&merged(from.0, era));
        } else if let Some(record) = map.shards.iter().find(|record| record.target.is_some()) {
            let (shard, replicas) = (record.shard, record.target.clone().unwrap());
            let waits = cluster.state.merge_step(shard_count);
            assert!(matches!(waits, Ok(MergeStep::Wait { .. })), "{waits:?}");
            cluster.done(&MetaCommand::ReplicasChanged { shard, replicas });
        }
        match cluster.state.merge_step(shard_count).unwrap() {
            MergeStep::Done => return commands,
            MergeStep::Propose(command) => cluster.done(&command),
            MergeStep::Wait { what } => panic!("{what}"),
        }
    }
    panic!("it does not end: {:?}", cluster.state.shard_map())
}

#[test]
fn steps_lead_to_the_number_that_is_wanted() {
    let mut cluster = cluster(6);
    let (_, others) = replicas_and_others(&cluster, 5);
    move_to(&mut cluster, 5, &others);
    assert_eq!(cluster.state.merge_step(6), Ok(MergeStep::Done));
    let target = cluster.state.shard(ShardId(1)).unwrap().replicas.clone();
    let plan = MetaCommand::PlanReplicas { shard: ShardId(5), target };
    assert_eq!(cluster.state.merge_step(3), Ok(MergeStep::Propose(plan)));
    // One move and three merges.
    assert_eq!(run_merges(&mut cluster, 3), 4);
    assert_eq!((cluster.state.shard_count(), cluster.state.shard_map().merge_count), (3, 3));

    let bad = |wanted| match cluster.state.merge_step(wanted) {
        Err(MetaError::BadMerge { what }) => what,
        step => panic!("{step:?}"),
    };
    assert_eq!(bad(4), "there are only 3 shards, not 4");
    assert_eq!(bad(1), "a cluster that was started with 2 shards has at least 2, not 1");
    cluster.done(&merge(2));
    let under_way = "shard 2 is being merged into shard 0: try again".to_owned();
    assert_eq!(cluster.state.merge_step(3), Err(MetaError::ShardBusy { what: under_way }));
}

#[test]
fn a_step_waits_for_what_the_controller_does() {
    let mut cluster = cluster(3);
    let waits = |cluster: &Cluster| match cluster.state.merge_step(2) {
        Ok(MergeStep::Wait { what }) => what,
        step => panic!("{step:?}"),
    };
    let (replicas, others) = replicas_and_others(&cluster, 0);
    move_to(&mut cluster, 2, &others);
    // Nothing is moved to a node that loses its replicas.
    let gone = *replicas.iter().find(|node| !others.contains(node)).unwrap();
    cluster.done(&MetaCommand::Drain { node: gone, drain: true });
    assert_eq!(waits(&cluster), "the replicas of shard 0 are about to be moved");
    cluster.done(&MetaCommand::PlanReplicas { shard: ShardId(0), target: others.clone() });
    assert_eq!(waits(&cluster), "the replicas of shard 0 are being moved");
    cluster.done(&MetaCommand::ReplicasChanged { shard: ShardId(0), replicas: others });
    assert_eq!(cluster.state.merge_step(2), Ok(MergeStep::Propose(merge(2))));
    cluster.done(&split(4));
    assert_eq!(waits(&cluster), "shard 3 is being made");
    cluster.done(&formed(3));
    // An import may last: whoever asks decides whether to wait.
    cluster.apply(&create("f", 1, true));
    assert!(matches!(cluster.state.merge_step(2), Err(MetaError::ShardBusy { .. })));
}

/// Each proposal would be an entry of the log for nothing, four times a second.
#[test]
fn an_expired_filter_waits_for_the_end_of_a_merge_unless_it_is_in_no_shard() {
    let mut cluster = cluster(3);
    let cut = live(&mut cluster, &create("cut", 5, false));
    let copied = live(&mut cluster, &create_replicated("copied", 7, false));
    for filter in [cut, copied] {
        cluster.done(&MetaCommand::SetExpiry { filter, expires_ms: Some(1_000) });
    }
    let drop = |filter| MetaCommand::DropExpired { filter, expires_ms: 1_000 };
    assert_eq!(cluster.state.expired(1_000), [drop(cut), drop(copied)]);
    cluster.done(&merge(2));
    assert_eq!(cluster.state.expired(1_000), [drop(copied)]);
    cluster.done(&MetaCommand::SetExpiry { filter: copied, expires_ms: None });
    assert_eq!(cluster.state.next_expiry_ms(), None);
    cluster.done(&merged(2, 0));
    assert_eq!(cluster.state.next_expiry_ms(), Some(1_000));
    assert_eq!(cluster.state.expired(1_000), [drop(cut)]);
}
