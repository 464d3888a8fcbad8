//! Where replicas go while nodes are unreachable.

use super::controller_test::{Cluster, is_plan, nodes, of, view};
use super::*;

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
