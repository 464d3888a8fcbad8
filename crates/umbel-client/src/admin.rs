//! Operations on the cluster itself.

use umbel_proto::v1::{
    DrainRequest, MergeShardRequest, MergeShardResponse, MoveShardRequest, PutJoinTokenRequest,
    RemoveNodeRequest, SetAutoSplitRequest, SplitShardRequest, SplitShardResponse, StatusRequest,
    StatusResponse, UpgradeRequest, UpgradeResponse,
};

use crate::caller::{CallPolicy, ask};
use crate::client::Client;
use crate::error::Result;

impl Client {
    /// The nodes, shards and leaders of the cluster.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); nothing is changed.
    pub async fn status(&self) -> Result<StatusResponse> {
        self.request_status(StatusRequest::default()).await
    }

    /// The status, with the replicas that would move later in `moves`: for the cluster as it is, or as if
    /// a node were being drained. Changes nothing.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); nothing is changed. If that node cannot be drained, the error says why.
    pub async fn status_with_plan(&self, without_node: Option<u64>) -> Result<StatusResponse> {
        let without_node = without_node.unwrap_or_default();
        self.request_status(StatusRequest { plan: true, without_node }).await
    }

    async fn request_status(&self, request: StatusRequest) -> Result<StatusResponse> {
        Ok(ask!(self, CallPolicy::freely("status"), admin.status, request)?)
    }

    /// Stores a token with which one node may join: the BLAKE3 hash of its secret, and its expiry in
    /// milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm.
    pub async fn put_join_token(&self, digest: [u8; 32], expires_ms: u64) -> Result<()> {
        let message = PutJoinTokenRequest { digest: digest.to_vec().into(), expires_ms };
        ask!(self, CallPolicy::order("token for joining"), admin.put_join_token, message)?;
        Ok(())
    }

    /// Drains a node of its replicas, or with `undo` allows it replicas again. Returns the number of
    /// replicas that it still has as soon as the order is recorded; [`status`](Self::status) shows the
    /// progress.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm.
    pub async fn drain(&self, node: u64, undo: bool) -> Result<u32> {
        let target = format!("drain of node {node}");
        let message = DrainRequest { node, undo };
        Ok(ask!(self, CallPolicy::order(&target), admin.drain, message)?.replica_count)
    }

    /// Removes a node permanently; if it still runs, drain it first.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm. If an earlier attempt had no answer, `Refused` may
    /// mean that it removed the node.
    pub async fn remove_node(&self, node: u64) -> Result<()> {
        let target = format!("removal of node {node}");
        ask!(self, CallPolicy::order(&target), admin.remove, RemoveNodeRequest { node })?;
        Ok(())
    }

    /// Orders a replica of a shard to move from one node to another. Returns when the order is recorded.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm. If an earlier attempt had no answer, `Refused` may
    /// mean that it recorded the order.
    pub async fn move_shard(&self, shard: u32, from: u64, to: u64) -> Result<()> {
        let target = format!("move of shard {shard}");
        let message = MoveShardRequest { shard, from, to };
        ask!(self, CallPolicy::order(&target), admin.move_shard, message)?;
        Ok(())
    }

    /// Returns the release of each node and, unless `check` is set, raises the cluster version as far as
    /// all nodes support. This cannot be undone. If a node does not answer, the version stays, and the
    /// node's `failure` says why.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm.
    pub async fn upgrade(&self, check: bool) -> Result<UpgradeResponse> {
        let target = "the cluster's version";
        let policy = if check { CallPolicy::freely(target) } else { CallPolicy::order(target) };
        Ok(ask!(self, policy, admin.upgrade, UpgradeRequest { check })?)
    }

    /// Switches automatic splits of shards, as cores and filters grow, on or off.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm.
    pub async fn set_auto_split(&self, is_on: bool) -> Result<()> {
        let policy = CallPolicy::order("splits by themselves");
        ask!(self, policy, admin.set_auto_split, SetAutoSplitRequest { is_on })?;
        Ok(())
    }

    /// Splits the next shard in turn, so that there are `shard_count` shards, one more than now. Returns
    /// when the new shard has a leader.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm: a split that has begun continues by itself.
    pub async fn split_shard(&self, shard_count: u32) -> Result<SplitShardResponse> {
        let target = format!("split into {shard_count} shards");
        let message = SplitShardRequest { shard_count };
        Ok(ask!(self, CallPolicy::order(&target), admin.split_shard, message)?)
    }

    /// Merges the last shard into the one that it was split off, so that there are `shard_count` shards,
    /// one fewer than now. Returns when that is done. A cluster of a version below 3, and fewer shards than
    /// it was founded with, are refused.
    ///
    /// # Errors
    /// [`ClientError`](crate::ClientError); calling again does no harm: what has begun continues by itself.
    pub async fn merge_shard(&self, shard_count: u32) -> Result<MergeShardResponse> {
        let target = format!("merge into {shard_count} shards");
        let message = MergeShardRequest { shard_count };
        Ok(ask!(self, CallPolicy::order(&target), admin.merge_shard, message)?)
    }
}
