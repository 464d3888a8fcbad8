//! Who this node is in its cluster, what it knows of the other nodes, and how it calls them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use umbel_engine::meta::MetaState;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::encode;
use umbel_ports::{Net, Seed};
use umbel_raft::peer::{CallError, CallKind, LocalIdentity};
use umbel_raft::{Group, GroupHost};

use crate::calls::GroupRequest;
use crate::node_failure::NodeFailure;
use crate::ports::Ports;

/// How long to wait for another node to answer whether it is reachable.
const REACH_TIMEOUT: Duration = Duration::from_millis(500);

/// This node as a member of its cluster, without the shards and copies that it has: these call other nodes, too.
pub(crate) struct Member {
    identity: LocalIdentity,
    net: Arc<dyn Net>,
    seed: Arc<dyn Seed>,
    host: Arc<GroupHost>,
    meta: Arc<Group>,
    /// Why the node must stop, once it must.
    failure: watch::Sender<Option<NodeFailure>>,
}

impl Member {
    pub(crate) fn new(
        identity: LocalIdentity,
        ports: &Ports,
        host: Arc<GroupHost>,
        meta: Arc<Group>,
        failure: watch::Sender<Option<NodeFailure>>,
    ) -> Self {
        let (net, seed) = (Arc::clone(&ports.net), Arc::clone(&ports.seed));
        Self { identity, net, seed, host, meta, failure }
    }

    /// This node's number.
    pub(crate) fn node(&self) -> NodeId {
        self.identity.node
    }

    /// This node's identity.
    pub(crate) fn identity(&self) -> LocalIdentity {
        self.identity
    }

    /// This node's network.
    pub(crate) fn net(&self) -> &Arc<dyn Net> {
        &self.net
    }

    /// Entropy and wall-clock time, as the machine has them.
    pub(crate) fn seed(&self) -> &dyn Seed {
        &*self.seed
    }

    /// Reads this node's copy of the catalogue and the shard map, formed or not.
    pub(crate) fn read_meta<T>(&self, read: impl FnOnce(&MetaState) -> T) -> T {
        self.meta.replica().read_meta(read)
    }

    /// Another node's address, as far as this node knows.
    pub(crate) fn address_of(&self, node: NodeId) -> Option<String> {
        self.read_meta(|state| state.node_address(node).map(ToOwned::to_owned))
    }

    /// Calls another node.
    pub(crate) async fn call(
        &self,
        node: NodeId,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let unreachable =
            |address: &str, cause: &str| Err(CallError::unreachable(node, address, cause, false));
        match self.address_of(node) {
            Some(address) if self.host.beats().is_suspected(node) => {
                unreachable(&address, "the node is not heard any more")
            }
            Some(address) => {
                self.host.links().call(node, &address, kind, group, body, timeout).await
            }
            None => unreachable("no address", "the catalogue has no such node"),
        }
    }

    /// Whether another node responds now.
    pub(crate) async fn is_reachable(&self, node: NodeId) -> bool {
        self.runs(node, GroupId::META).await
    }

    /// Whether another node responds, and runs its replica of a group.
    pub(crate) async fn runs(&self, node: NodeId, group: GroupId) -> bool {
        let body = encode(&GroupRequest::View);
        self.call(node, CallKind::Group, group, body, REACH_TIMEOUT).await.is_ok()
    }

    /// Whether a node that is not in the catalogue yet responds at an address.
    pub(crate) async fn is_there(&self, node: NodeId, address: &str) -> bool {
        let body = encode(&GroupRequest::View);
        let group = GroupId::META;
        let called =
            self.host.links().call(node, address, CallKind::Group, group, body, REACH_TIMEOUT);
        called.await.is_ok()
    }

    /// Reports that the node cannot continue. Only the first reason is logged: all other nodes may report the same.
    pub(crate) fn fail(&self, why: NodeFailure) {
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            if is_first {
                tracing::error!(why = why.to_string(), "the node stops");
                *failure = Some(why);
            }
            is_first
        });
    }
}
