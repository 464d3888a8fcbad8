//! The cluster view: nodes, hash ranges, leaders and replicas.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use umbel_coordinator::Coordinator;
use umbel_engine::NodeId;
use umbel_engine::clocks::clocks_differ;
use umbel_engine::meta::MetaState;
use umbel_node::calls::NodeStanding;
use umbel_proto::v1;

use crate::console::json::{self, Value};
use crate::errors::Result;
use crate::limits::{STATUS_CALLS_MAX, STATUS_TIMEOUT};
use crate::status::status_now;

/// The standing of each node that has reported it.
pub(super) type NodeStandings = BTreeMap<NodeId, NodeStanding>;

/// Takes a sample.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn sample(coordinator: &Coordinator) -> Result<Value> {
    let request = v1::StatusRequest::default();
    let (status, standings) =
        tokio::join!(status_now(coordinator, &request), standings(coordinator));
    Ok(described(&status?, &standings?))
}

/// Requests the standing of all live nodes; leaves out those that do not answer in time.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn standings(coordinator: &Coordinator) -> Result<NodeStandings> {
    let nodes = coordinator.read_meta(MetaState::live_nodes)?;
    let asked = stream::iter(nodes).map(async |node| {
        let standing = coordinator.reports().standing_of(node, STATUS_TIMEOUT).await;
        standing.map(|standing| (node, standing))
    });
    Ok(asked.buffer_unordered(STATUS_CALLS_MAX).filter_map(std::future::ready).collect().await)
}

fn described(status: &v1::StatusResponse, standings: &NodeStandings) -> Value {
    json::object([
        ("epoch", status.epoch.into()),
        ("meta_leader", status.meta_leader.into()),
        ("filter_count", status.filter_count.into()),
        ("replica_count", status.replica_count.into()),
        ("clocks_differ", clocks_differ(status.nodes.iter().filter_map(clock)).into()),
        ("nodes", json::list(status.nodes.iter().map(|status| node(status, standings)))),
        ("shards", json::list(status.shards.iter().map(shard))),
    ])
}

/// The clock of a node, if it told it.
fn clock(node: &v1::NodeStatus) -> Option<(NodeId, i64)> {
    Some((NodeId(node.node), node.clock_ahead_ms?))
}

fn node(node: &v1::NodeStatus, standings: &NodeStandings) -> Value {
    let standing = standings.get(&NodeId(node.node));
    json::object([
        ("node", node.node.into()),
        ("address", (&*node.address).into()),
        ("state", (&*node.state).into()),
        ("answers", node.is_reachable.into()),
        ("replica_count", node.replica_count.into()),
        ("leader_count", node.leader_count.into()),
        ("meta_role", (&*node.meta_role).into()),
        ("version", standing.map(|standing| &*standing.version).into()),
        ("free_bytes", standing.and_then(|standing| rounded(standing.free_bytes?)).into()),
        ("is_disk_short", standing.is_some_and(|standing| standing.is_disk_short).into()),
    ])
}

/// Free bytes, rounded down to 64 MiB: writes to a log must not change the view.
const fn rounded(free_bytes: u64) -> Option<u64> {
    Some(free_bytes >> 26 << 26)
}

/// Hashes have 64 bits, JavaScript's numbers 53: a range is given as shares of the hash space, for
/// drawing, and in hexadecimal digits, for reading.
fn shard(shard: &v1::ShardStatus) -> Value {
    json::object([
        ("shard", shard.shard.into()),
        ("start", share(shard.range_start.into()).into()),
        ("end", share(u128::from(shard.range_last) + 1).into()),
        ("first", format!("{:016x}", shard.range_start).into()),
        ("last", format!("{:016x}", shard.range_last).into()),
        ("leader", shard.leader.into()),
        ("replicas", json::list(shard.replicas.iter().copied())),
        ("target", json::list(shard.target.iter().copied())),
        ("memory_bytes", shard.memory_bytes.into()),
        ("applied_index", shard.applied_index.into()),
    ])
}

fn share(hash: u128) -> f64 {
    hash as f64 / (1_u128 << 64) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_shows_whose_clock_is_wrong() {
        let node =
            |node, clock_ahead_ms| v1::NodeStatus { node, clock_ahead_ms, ..Default::default() };
        let shown = |ahead_ms| {
            let nodes = vec![node(1, Some(0)), node(2, None), node(3, Some(ahead_ms))];
            let status = v1::StatusResponse { nodes, ..Default::default() };
            described(&status, &NodeStandings::new())["clocks_differ"].clone()
        };
        assert_eq!(shown(30_000), Value::Null);
        assert_eq!(shown(95_000), "node 3 is 95 s ahead of node 1: correct the wrong clock");
    }

    #[test]
    fn a_status_shows_ranges_as_shares() {
        let node = v1::NodeStatus {
            node: 2,
            address: "<b>:1".to_owned(),
            state: "live".to_owned(),
            is_reachable: true,
            meta_role: "voter".to_owned(),
            ..Default::default()
        };
        let shard = v1::ShardStatus {
            shard: 3,
            range_start: 3 << 62,
            range_last: u64::MAX,
            replicas: vec![1, 2],
            target: vec![2, 3],
            ..Default::default()
        };
        let status =
            v1::StatusResponse { nodes: vec![node], shards: vec![shard], ..Default::default() };
        let standing = NodeStanding {
            version: "1.2.3".to_owned(),
            free_bytes: Some((3 << 26) + 5),
            is_disk_short: true,
            sweeps: umbel_node::calls::SweepCounts::default(),
            step: None,
        };
        let shown = described(&status, &[(NodeId(2), standing)].into());
        let node = &shown["nodes"][0];
        assert_eq!((&node["address"], &node["version"]), (&"<b>:1".into(), &"1.2.3".into()));
        assert_eq!(
            (&node["free_bytes"], &node["is_disk_short"]),
            (&(3 << 26).into(), &true.into())
        );
        assert_eq!(described(&status, &NodeStandings::new())["nodes"][0]["version"], Value::Null);
        let shard = &shown["shards"][0];
        assert_eq!((&shard["start"], &shard["end"]), (&0.75.into(), &1.0.into()));
        assert_eq!(shard["first"], "c000000000000000");
        assert_eq!(shard["last"], "ffffffffffffffff");
        assert_eq!(shard["replicas"], json::list([1, 2]));
        assert_eq!(shard["target"], json::list([2, 3]));
    }
}
