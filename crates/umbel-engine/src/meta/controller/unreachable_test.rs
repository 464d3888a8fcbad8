//! Where replicas go while nodes are unreachable.

use super::controller_test::{Cluster, is_plan, nodes, of, view};
use super::*;
use crate::meta::MetaReply;

fn plans(cluster: &Cluster) -> Vec<Task> {
    cluster.tasks().into_iter().filter(is_plan).collect()
}

fn plan(shard: ShardId, target: &[u64]) -> Task {
    Task::Propose(MetaCommand::PlanReplicas { shard, target: nodes(target) })
}

#[test]
fn a_drain_ends_while_another_node_is_down() {
    let mut cluster = Cluster::new(5, 20, 3);
    cluster.down.insert(NodeId(5));
    cluster.drain(3);
    cluster.meta = view(&[1, 2, 4], &[3, 5]);
    let count = |cluster: &Cluster, node| cluster.state.shard_map().shards_of(NodeId(node)).count();
    let (leaving, on_down) = (count(&cluster, 3), count(&cluster, 5));
    assert_eq!((leaving, on_down), (12, 12));
    // A shard moves in three rounds.
    for _ in 0..3 * leaving {
        for change in cluster.propose() {
            let Task::ChangeMembers { group, voters, .. } = change else { panic!("{change:?}") };
            let view = GroupView { leader: Some(voters[0]), voters, ..GroupView::default() };
            cluster.views.insert(group, view);
        }
    }
    assert_eq!(cluster.tasks(), []);
    assert_eq!((count(&cluster, 3), count(&cluster, 5)), (0, on_down));
}

#[test]
fn a_shard_waits_for_a_node_that_is_alive_and_keeps_its_plan() {
    let mut cluster = Cluster::new(4, 1, 3);
    let shard = ShardId(0);
    let replicas = cluster.state.shard(shard).unwrap().replicas.clone();
    let spare = (1..=4).map(NodeId).find(|node| !replicas.contains(node)).unwrap();
    cluster.drain(replicas[0].0);
    cluster.down.insert(spare);
    assert_eq!(plans(&cluster), []);
    cluster.down.clear();
    let target: Vec<_> = (1..=4).filter(|&node| NodeId(node) != replicas[0]).collect();
    assert_eq!(plans(&cluster), [plan(shard, &target)]);
    cluster.propose();
    // A node that is silent for a moment causes no other plan.
    cluster.down.insert(spare);
    assert_eq!(plans(&cluster), []);
    assert_eq!(cluster.state.shard(shard).unwrap().target, Some(nodes(&target)));
}

#[test]
fn a_shard_with_too_few_replicas_gets_those_that_it_can_have() {
    let mut cluster = Cluster::new(1, 1, 3);
    let shard = ShardId(0);
    for nonce in [1, 2] {
        let address = format!("joined{nonce}:1");
        cluster.apply(&MetaCommand::AddNode { address, nonce });
    }
    cluster.down.insert(NodeId(2));
    assert_eq!(plans(&cluster), [plan(shard, &[1, 3])]);
    cluster.propose();
    cluster.views.insert(of(shard), view(&[1, 3], &[]));
    cluster.propose();
    assert_eq!(cluster.state.shard(shard).unwrap().replicas, nodes(&[1, 3]));
    assert_eq!(plans(&cluster), []);
    cluster.down.clear();
    assert_eq!(plans(&cluster), [plan(shard, &[1, 2, 3])]);
}

/// The voters that the meta group is to have.
fn meta_voters(cluster: &Cluster) -> Vec<NodeId> {
    let of_meta = |task: Task| match task {
        Task::ChangeMembers { group: GroupId::META, voters, .. } => Some(voters),
        _ => None,
    };
    let changed = cluster.tasks().into_iter().find_map(of_meta);
    changed.unwrap_or_else(|| sorted(&cluster.meta.voters))
}

#[test]
fn no_node_that_is_down_becomes_a_voter_of_the_meta_group() {
    let mut cluster = Cluster::new(7, 1, 1);
    cluster.meta = view(&[1, 2, 3, 4, 5], &[6, 7]);
    cluster.down.insert(NodeId(6));
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 3, 4, 5]));
    cluster.drain(3);
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 4, 5, 7]));
    // No other node can vote: the drain waits.
    cluster.down.insert(NodeId(7));
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 3, 4, 5]));
    // A node that is removed cannot wait.
    assert_eq!(cluster.apply(&MetaCommand::RemoveNode { node: NodeId(3) }), MetaReply::Done);
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 4, 5]));
    cluster.meta = view(&[1, 2, 4, 5], &[6, 7]);
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 4, 5]));
    cluster.down.remove(&NodeId(7));
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 4, 5, 7]));
}

#[test]
fn a_voter_of_the_meta_group_that_is_down_stays_one_unless_fewer_are_wanted() {
    let mut cluster = Cluster::new(5, 1, 1);
    cluster.meta = view(&[2, 1, 3], &[4, 5]);
    cluster.drain(4);
    cluster.drain(5);
    cluster.down.insert(NodeId(1));
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 3]));
    // Of the two that are left, one votes: the one that can.
    cluster.drain(3);
    assert_eq!(meta_voters(&cluster), nodes(&[2]));
}

#[test]
fn the_meta_group_gets_no_even_number_of_voters_because_a_node_is_down() {
    let mut cluster = Cluster::new(5, 1, 1);
    cluster.down.insert(NodeId(5));
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 3]));
    cluster.down.clear();
    assert_eq!(meta_voters(&cluster), nodes(&[1, 2, 3, 4, 5]));
}
