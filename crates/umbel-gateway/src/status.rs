//! The cluster's status as known to one node: nodes, shards, leaders.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout};
use umbel_coordinator::Coordinator;
use umbel_engine::meta::{
    GroupView, MetaCommand, MetaReply, MetaState, MoveCause, NodeRecord, ShardMove, forecast_moves,
    moves_under_way,
};
use umbel_engine::{NodeId, ShardId};
use umbel_proto::v1;

use super::convert;
use super::describe;
use super::errors::Result;
use super::limits::{STATUS_CALLS_MAX, STATUS_TIMEOUT};

/// The status as known to this node; it leaves out what is not answered within `STATUS_TIMEOUT`.
pub(super) async fn status_now(
    coordinator: &Coordinator,
    request: &v1::StatusRequest,
) -> Result<v1::StatusResponse> {
    let meta = coordinator.meta_view().unwrap_or_default();
    let mut response = coordinator.read_meta(|state| table(state, &meta))?;
    response.cluster_id = convert::cluster_text(coordinator.cluster_id());
    response.node = coordinator.node().0;
    response.meta_leader = coordinator.meta_leader().map_or(0, |node| node.0);
    umbel_node::VERSION.clone_into(&mut response.version);
    response.exchange = coordinator.copies().exchange().ok().map(describe::exchange);

    let shards = response.shards.iter().map(|shard| shard.shard);
    let shards = stream::iter(shards.collect::<Vec<_>>())
        .map(async |shard| {
            let deadline = Instant::now() + STATUS_TIMEOUT;
            coordinator.reports().leader_status(ShardId(shard), deadline).await
        })
        .buffered(STATUS_CALLS_MAX)
        .collect::<Vec<_>>();
    let member = |node: &v1::NodeStatus| {
        (node.state != REMOVED).then(|| (NodeId(node.node), node.address.clone()))
    };
    let nodes = stream::iter(response.nodes.iter().map(member).collect::<Vec<_>>())
        .map(async |member| {
            let Some((node, address)) = member else { return (false, None, false) };
            let reached = timeout(STATUS_TIMEOUT, coordinator.is_reachable(node)).await;
            if !reached.unwrap_or(false) {
                return (false, None, false);
            }
            let (clock, standing) = tokio::join!(
                timeout(STATUS_TIMEOUT, coordinator.clock_ahead_ms(node, &address)),
                coordinator.reports().standing_of(node, STATUS_TIMEOUT),
            );
            (true, clock.ok().flatten(), standing.is_some_and(|standing| standing.is_disk_short))
        })
        .buffered(STATUS_CALLS_MAX)
        .collect::<Vec<_>>();
    let (statuses, reached) = tokio::join!(shards, nodes);
    let mut leader_counts = BTreeMap::<u64, u32>::new();
    for (shard, status) in response.shards.iter_mut().zip(statuses) {
        let Some(status) = status else { continue };
        shard.leader = status.view.leader.map_or(0, |node| node.0);
        shard.applied_index = status.applied_index;
        shard.memory_bytes = status.memory_bytes;
        *leader_counts.entry(shard.leader).or_default() += 1;
    }
    for (node, (is_reachable, ahead_ms, is_disk_short)) in response.nodes.iter_mut().zip(reached) {
        node.is_reachable = is_reachable;
        node.clock_ahead_ms = ahead_ms;
        node.is_disk_short = is_disk_short;
        node.leader_count = leader_counts.get(&node.node).copied().unwrap_or(0);
    }
    let alive = response.nodes.iter().filter(|node| node.is_reachable);
    let alive = alive.map(|node| NodeId(node.node)).collect();
    let moves = if request.plan {
        planned(coordinator, NodeId(request.without_node), &alive)?
    } else {
        coordinator.read_meta(moves_under_way)?
    };
    response.moves = moves.iter().map(shard_move).collect();
    Ok(response)
}

/// The moves under way and those to come: as the cluster is now, or with the node `without` drained (0
/// for none).
fn planned(
    coordinator: &Coordinator,
    without: NodeId,
    alive: &BTreeSet<NodeId>,
) -> Result<Vec<ShardMove>> {
    // Works on a copy: a forecast for a thousand shards takes a while and must not block the catalogue.
    let mut state = coordinator.read_meta(MetaState::clone)?;
    if without != NodeId(0) {
        let drain = MetaCommand::Drain { node: without, drain: true };
        if let MetaReply::Refused(error) = state.apply(0, &drain) {
            return Err(error.into());
        }
    }
    Ok(forecast_moves(&state, alive))
}

fn shard_move(moved: &ShardMove) -> v1::ShardMove {
    let cause = match moved.cause {
        MoveCause::NodeLeaves => "node_leaves",
        MoveCause::TooFew => "too_few",
        MoveCause::Zones => "zones",
        MoveCause::Balance => "balance",
        MoveCause::Ordered => "ordered",
    };
    v1::ShardMove {
        shard: moved.shard.0,
        from: describe::numbers(&moved.from),
        to: describe::numbers(&moved.to),
        cause: cause.to_owned(),
        is_begun: moved.is_begun,
        from_bytes: moved.node_bytes.0,
        to_bytes: moved.node_bytes.1,
    }
}

const REMOVED: &str = "removed";

/// The status from the catalogue alone, before other nodes are asked.
fn table(state: &MetaState, meta: &GroupView) -> v1::StatusResponse {
    let mut replica_counts = BTreeMap::<NodeId, u32>::new();
    for (_, record) in state.shards() {
        for &node in &record.replicas {
            *replica_counts.entry(node).or_default() += 1;
        }
    }
    let nodes = state.nodes().map(|(node, record)| v1::NodeStatus {
        node: node.0,
        address: record.address().unwrap_or_default().to_owned(),
        state: node_state(record).to_owned(),
        replica_count: replica_counts.get(&node).copied().unwrap_or(0),
        leader_count: 0,
        is_reachable: false,
        meta_role: meta_role(meta, node).to_owned(),
        zone: state.zones().get(node).map(ToString::to_string).unwrap_or_default(),
        clock_ahead_ms: None,
        is_disk_short: false,
    });
    let shards = state.shards().map(|(range, record)| v1::ShardStatus {
        shard: record.shard.0,
        range_start: range.start(),
        range_last: range.last(),
        leader: 0,
        replicas: describe::numbers(&record.replicas),
        target: describe::numbers(record.target.as_deref().unwrap_or_default()),
        applied_index: 0,
        memory_bytes: 0,
    });
    v1::StatusResponse {
        epoch: state.epoch().0,
        nodes: nodes.collect(),
        shards: shards.collect(),
        filter_count: state.filters().count() as u64,
        replica_count: state.replica_count(),
        auto_split: state.auto_split() == Some(true),
        shards_wanted: state.shards_wanted(),
        shards_needed: state.shards_needed(),
        cluster_version: state.version().0,
        splitting: state.shard_map().splitting().map(|shard| shard.0),
        merging: state.shard_map().merging().map(|shard| shard.0),
        merging_into: state.shard_map().absorbing().map(|shard| shard.0),
        ..v1::StatusResponse::default()
    }
}

const fn node_state(record: &NodeRecord) -> &'static str {
    match record {
        NodeRecord::Live { is_draining: false, .. } => "live",
        NodeRecord::Live { is_draining: true, .. } => "draining",
        NodeRecord::Removed => REMOVED,
    }
}

fn meta_role(meta: &GroupView, node: NodeId) -> &'static str {
    if meta.voters.contains(&node) {
        "voter"
    } else if meta.learners.contains(&node) {
        "learner"
    } else {
        "none"
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbel_engine::meta::{ClusterVersion, MetaCommand};
    use umbel_engine::placement::Zone;
    use umbel_node::Config;

    use super::*;
    use crate::test_node::{config, start, start_alone};

    #[test]
    fn a_table_shows_the_catalogue() {
        let mut state = MetaState::new();
        let nodes = (1..=3).map(|i| (NodeId(i), format!("node{i}:7070"))).collect();
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 2 });
        state.apply(2, &MetaCommand::Drain { node: NodeId(3), drain: true });
        let zone = Zone::new("rack1").ok();
        state.apply(3, &MetaCommand::NoteZone { node: NodeId(2), zone });
        let meta = GroupView {
            leader: Some(NodeId(1)),
            voters: vec![NodeId(1)],
            learners: vec![NodeId(2)],
            is_joint: false,
        };
        let table = table(&state, &meta);
        let states: Vec<_> = table.nodes.iter().map(|node| node.state.as_str()).collect();
        assert_eq!(states, ["live", "live", "draining"]);
        let roles: Vec<_> = table.nodes.iter().map(|node| node.meta_role.as_str()).collect();
        assert_eq!(roles, ["voter", "learner", "none"]);
        let zones: Vec<_> = table.nodes.iter().map(|node| node.zone.as_str()).collect();
        assert_eq!(zones, ["", "rack1", ""]);
        assert_eq!(table.nodes.iter().map(|node| node.replica_count).sum::<u32>(), 8);
        assert_eq!((table.replica_count, table.shards.len()), (2, 4));
        assert_eq!((table.shards[1].range_start, table.shards[3].range_last), (1 << 62, u64::MAX));
        assert_eq!((table.splitting, table.shards_needed), (None, None), "no node told its cores");
        for shard in (0..4).map(ShardId) {
            state.apply(4, &MetaCommand::ShardFormed { shard });
        }
        state.apply(5, &MetaCommand::SplitShard { shard_count: 5 });
        assert_eq!(super::table(&state, &meta).splitting, Some(4));
        state.apply(6, &MetaCommand::ShardFormed { shard: ShardId(4) });
        assert_eq!(super::table(&state, &meta).splitting, None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_status_tells_how_far_clocks_are_from_that_of_the_node_that_answers() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let status = status_now(&node.coordinator(), &v1::StatusRequest::default()).await.unwrap();
        let said: Vec<_> =
            status.nodes.iter().map(|node| (node.is_reachable, node.clock_ahead_ms)).collect();
        assert_eq!(said, [(true, Some(0))]);
        node.shutdown().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_status_tells_whose_disk_is_nearly_full() {
        let folder = tempfile::tempdir().unwrap();
        let disk_reserve_bytes = 1 << 60;
        let node = start(Config { dev: true, disk_reserve_bytes, ..config(folder.path()) }).await;
        let coordinator = node.coordinator();
        // The node looks at its disk once a second.
        let told = async {
            let request = v1::StatusRequest::default();
            while !status_now(&coordinator, &request).await.unwrap().nodes[0].is_disk_short {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), told).await.unwrap();
        drop(coordinator);
        node.shutdown().await;
    }

    #[test]
    fn a_table_shows_which_shard_is_merged_into_which() {
        let mut state = MetaState::new().at_version(ClusterVersion(3));
        let nodes = vec![(NodeId(1), "node1:7070".to_owned())];
        let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 2, replica_count: 1 };
        let formed = |shard| MetaCommand::ShardFormed { shard: ShardId(shard) };
        let split = |shard_count| MetaCommand::SplitShard { shard_count };
        for command in [form, formed(0), formed(1), split(3), formed(2), split(4), formed(3)] {
            state.apply(1, &command);
        }
        let merging = |state: &MetaState| {
            let table = table(state, &GroupView::default());
            (table.shards.len(), table.merging, table.merging_into)
        };
        assert_eq!(merging(&state), (4, None, None));
        state.apply(2, &MetaCommand::MergeShard { shard_count: 3 });
        assert_eq!(merging(&state), (4, Some(3), Some(1)));
        state.apply(3, &MetaCommand::ShardMerged { shard: ShardId(3), era: 0 });
        assert_eq!(merging(&state), (3, None, None));
    }
}
