//! The cluster: nodes, hash ranges, leaders and replicas.

use umbel_proto::v1;

use crate::coordinator::Coordinator;
use crate::failure::CallFailure;
use crate::gateway::console::json::{self, Value};
use crate::gateway::status::status_now;

/// Takes a sample.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn sample(coordinator: &Coordinator) -> Result<Value, CallFailure> {
    Ok(described(&status_now(coordinator).await?))
}

fn described(status: &v1::StatusResponse) -> Value {
    json::object([
        ("epoch", status.epoch.into()),
        ("meta_leader", status.meta_leader.into()),
        ("filter_count", status.filter_count.into()),
        ("replica_count", status.replica_count.into()),
        ("nodes", json::list(status.nodes.iter().map(node))),
        ("shards", json::list(status.shards.iter().map(shard))),
    ])
}

fn node(node: &v1::NodeStatus) -> Value {
    json::object([
        ("node", node.node.into()),
        ("address", (&*node.address).into()),
        ("state", (&*node.state).into()),
        ("answers", node.is_reachable.into()),
        ("replica_count", node.replica_count.into()),
        ("leader_count", node.leader_count.into()),
        ("meta_role", (&*node.meta_role).into()),
    ])
}

/// Hashes have 64 bits, numbers of scripts 53: a range is told as shares of the space, to draw it, and
/// in digits, to read it.
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

#[expect(clippy::cast_precision_loss, reason = "a picture has some thousand points")]
fn share(hash: u128) -> f64 {
    hash as f64 / (1_u128 << 64) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_with_ranges_as_shares() {
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
        let told = described(&status);
        assert_eq!(told["nodes"][0]["address"], "<b>:1");
        let shard = &told["shards"][0];
        assert_eq!((&shard["start"], &shard["end"]), (&0.75.into(), &1.0.into()));
        assert_eq!(shard["first"], "c000000000000000");
        assert_eq!(shard["last"], "ffffffffffffffff");
        assert_eq!(shard["replicas"], json::list([1, 2]));
        assert_eq!(shard["target"], json::list([2, 3]));
    }
}
