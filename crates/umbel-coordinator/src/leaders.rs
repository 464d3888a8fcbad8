//! What a coordinator takes from the calls of leaders.

use std::sync::Arc;

use tokio::time::Instant;
use umbel_engine::meta::{MetaCommand, MetaReply, MetaState};
use umbel_engine::{NodeId, ShardId};

use super::{Coordinator, Result};
use umbel_node::Local;
use umbel_node::calls::{ShardAnswer, ShardRequest};

impl Coordinator {
    pub(crate) fn local(&self) -> Result<&Arc<Local>> {
        self.calls.local()
    }

    /// The leader of the meta group, as far as this node knows.
    pub fn meta_leader(&self) -> Option<NodeId> {
        self.calls.meta_leader()
    }

    /// The leader of a shard, as far as this node knows.
    pub fn shard_leader_hint(&self, shard: ShardId) -> Option<NodeId> {
        self.calls.shard_leader_hint(shard)
    }

    /// Whether a node answers now.
    pub fn is_reachable(&self, node: NodeId) -> impl Future<Output = bool> {
        self.calls.is_reachable(node)
    }

    /// Whether another node is heard, by its beats.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.local().is_ok_and(|local| local.is_alive(node))
    }

    /// How far the wall clock of the node at this address is ahead, see [`umbel_node::Local::clock_ahead_ms`].
    pub async fn clock_ahead_ms(&self, node: NodeId, address: &str) -> Option<i64> {
        self.local().ok()?.clock_ahead_ms(node, address).await
    }

    /// Host and port at which clients reach the Redis protocol of the node at this address, see
    /// [`umbel_node::Local::resp_address_of`].
    ///
    /// # Errors
    /// If the node did not answer: why.
    pub async fn resp_address_of(
        &self,
        node: NodeId,
        address: &str,
    ) -> Result<Option<(String, u16)>, String> {
        let local = self.local().map_err(|failure| failure.to_string())?;
        local.resp_address_of(node, address).await
    }

    /// Reads this node's copy of the catalogue and the shard map.
    ///
    /// # Errors
    /// If the cluster is not formed.
    pub fn read_meta<T>(&self, read: impl FnOnce(&MetaState) -> T) -> Result<T> {
        self.calls.read_meta(read)
    }

    /// Like [`read_meta`](Self::read_meta), for guesses that the called nodes check.
    pub fn guess_meta<T>(&self, read: impl FnOnce(&MetaState) -> T) -> Result<T> {
        self.calls.guess_meta(read)
    }

    /// Waits until this node's copy of the catalogue shows what `until` looks for.
    pub fn wait_meta<T>(
        &self,
        deadline: Instant,
        until: impl FnMut(&MetaState) -> Option<T>,
    ) -> impl Future<Output = Result<T>> {
        self.calls.wait_meta(deadline, until)
    }

    /// Proposes a command to the meta group; returns once this node, too, has applied it.
    pub fn meta_propose(
        &self,
        command: MetaCommand,
        deadline: Instant,
    ) -> impl Future<Output = Result<MetaReply>> {
        self.calls.meta_propose(command, deadline)
    }

    /// Returns once this node's copy of the catalogue has all that was committed before the call.
    pub fn meta_refresh(&self, deadline: Instant) -> impl Future<Output = Result<()>> {
        self.calls.meta_refresh(deadline)
    }

    /// Calls a shard's leader, whichever node that is, or, if the request allows it, any replica.
    pub(crate) fn shard_call(
        &self,
        shard: ShardId,
        request: ShardRequest,
        deadline: Instant,
    ) -> impl Future<Output = Result<ShardAnswer>> {
        self.calls.shard_call(shard, request, deadline)
    }
}
