//! What operators ask for.

use umbel_proto::v1::{
    DrainRequest, MoveShardRequest, PutJoinTokenRequest, RemoveNodeRequest, SetAutoSplitRequest,
    SplitShardRequest, SplitShardResponse, StatusRequest, StatusResponse, UpgradeRequest,
    UpgradeResponse,
};

use crate::caller::{Ask, First, Repeat};
use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Nodes, shards, leaders.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed.
    pub async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.ask_status(StatusRequest::default()).await
    }

    /// The same, and in `moves` which replicas would move later: as the cluster is, or as if a node were being drained,
    /// which changes nothing.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is changed. If that node cannot be drained the cluster says why.
    pub async fn status_with_plan(
        &self,
        without_node: Option<u64>,
    ) -> Result<StatusResponse, ClientError> {
        let without_node = without_node.unwrap_or_default();
        self.ask_status(StatusRequest { plan: true, without_node }).await
    }

    async fn ask_status(&self, request: StatusRequest) -> Result<StatusResponse, ClientError> {
        let ask = Ask { target: "status", repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(
                &ask,
                request,
                |node, request| async move { node.admin().status(request).await },
            )
            .await
    }

    /// Keeps a token by which one node may join: the BLAKE3 hash of its secret, until a moment in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn put_join_token(
        &self,
        digest: [u8; 32],
        expires_ms: u64,
    ) -> Result<(), ClientError> {
        let ask = Ask { target: "token for joining", repeat: Repeat::Freely, first: First::InTurn };
        let message = PutJoinTokenRequest { digest: digest.to_vec().into(), expires_ms };
        self.caller
            .simple(&ask, message, |node, request| async move {
                node.admin().put_join_token(request).await
            })
            .await
            .map(drop)
    }

    /// Takes all replicas off a node, or with `undo` lets it have some again. Returns the number
    /// that it still has, as soon as the wish is recorded; [`status`](Self::status) shows how far
    /// it is.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn drain(&self, node: u64, undo: bool) -> Result<u32, ClientError> {
        let target = format!("drain of node {node}");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        let answer = self
            .caller
            .simple(&ask, DrainRequest { node, undo }, |node, request| async move {
                node.admin().drain(request).await
            })
            .await?;
        Ok(answer.replica_count)
    }

    /// Removes a node for ever; if it runs still, drain it first.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm. After an attempt without an answer `Refused`
    /// may mean that it is done.
    pub async fn remove_node(&self, node: u64) -> Result<(), ClientError> {
        let target = format!("removal of node {node}");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, RemoveNodeRequest { node }, |node, request| async move {
                node.admin().remove(request).await
            })
            .await?;
        Ok(())
    }

    /// Moves a replica of a shard from one node to another. Returns when it is recorded.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm. After an attempt without an answer `Refused`
    /// may mean that it is recorded.
    pub async fn move_shard(&self, shard: u32, from: u64, to: u64) -> Result<(), ClientError> {
        let target = format!("move of shard {shard}");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, MoveShardRequest { shard, from, to }, |node, request| async move {
                node.admin().move_shard(request).await
            })
            .await?;
        Ok(())
    }

    /// Which release each node runs; and, unless it is only asked for, raises the cluster's version as far as all of them can.
    /// There is no way back. If a node does not answer nothing is raised, and its `failure` says why.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn upgrade(&self, check: bool) -> Result<UpgradeResponse, ClientError> {
        let ask =
            Ask { target: "the cluster's version", repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, UpgradeRequest { check }, |node, request| async move {
                node.admin().upgrade(request).await
            })
            .await
    }

    /// Has shards be split by themselves, as cores and filters grow, or not.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm.
    pub async fn set_auto_split(&self, is_on: bool) -> Result<(), ClientError> {
        let ask =
            Ask { target: "splits by themselves", repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, SetAutoSplitRequest { is_on }, |node, request| async move {
                node.admin().set_auto_split(request).await
            })
            .await?;
        Ok(())
    }

    /// Cuts the next shard in turn in two, so that there are as many as named: one more than now. Returns when the new
    /// one has a leader.
    ///
    /// # Errors
    /// [`ClientError`]; calling again does no harm: what is begun goes on by itself.
    pub async fn split_shard(&self, shard_count: u32) -> Result<SplitShardResponse, ClientError> {
        let target = format!("split into {shard_count} shards");
        let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
        self.caller
            .simple(&ask, SplitShardRequest { shard_count }, |node, request| async move {
                node.admin().split_shard(request).await
            })
            .await
    }
}
