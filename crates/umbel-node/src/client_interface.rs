//! The interface between a node and what serves its clients.

use std::sync::Arc;

use tokio::sync::watch;
use tonic::service::Routes;
use umbel_ports::{Listener, PortFuture};

use crate::config::Config;
use crate::leader_calls::LeaderCalls;
use crate::node_failure::NodeFailure;

/// What a node gives to its [`ClientInterface`].
pub struct ServedNode {
    /// The settings of the node.
    pub config: Config,
    /// The address at which other nodes reach the node.
    pub address: String,
    /// The listener of the gRPC port. Other nodes connect to this port, too.
    pub listener: Box<dyn Listener>,
    /// The listener of the port of the Redis protocol; None if the node does not serve it.
    pub resp_listener: Option<Box<dyn Listener>>,
    /// Calls the leaders of groups, for the calls of clients.
    pub calls: Arc<LeaderCalls>,
    /// The services for other nodes and for workers of jobs, to be served on the gRPC port.
    pub routes: Routes,
    /// Becomes true when the node stops. If the sender is dropped, the node was dropped.
    pub stopped: watch::Receiver<bool>,
    /// Takes the reason if the interface fails; the node stops then.
    pub failure: watch::Sender<Option<NodeFailure>>,
}

/// Serves the clients of a node.
pub trait ClientInterface: Send {
    /// Serves until the node stops. The node calls this before it is a member of a cluster, because other
    /// nodes admit it over the same port; all calls of leaders fail until then.
    fn serve(self: Box<Self>, node: ServedNode) -> PortFuture<'static, ()>;
}
