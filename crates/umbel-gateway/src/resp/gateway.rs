//! What the listener of the Redis protocol gets from its node.

use std::sync::Arc;
use std::time::Duration;

use umbel_coordinator::Coordinator;
use umbel_filter::Kind;
use umbel_node::config::{ClusterAnswers, Config, Transactions, reached_at};
use umbel_ports::Listener;

use crate::budget::Budget;

/// What the listener needs to serve.
pub(crate) struct RespGateway {
    pub(crate) coordinator: Arc<Coordinator>,
    /// The longest timeout that a client's command is granted.
    pub(crate) timeout_max: Duration,
    /// Limits the memory that the requests of clients in progress hold.
    pub(crate) budget: Arc<Budget>,
    /// Whether a node's certificate must name the node.
    pub(crate) needs_member: bool,
    /// The kind of the filters that plain commands create.
    pub(crate) default_kind: Kind,
    /// How `CLUSTER` is answered.
    pub(crate) cluster_answers: ClusterAnswers,
    /// Whether `EXEC` refuses commands that those of other clients could come between.
    pub(crate) is_strict: bool,
    /// The host and port of this listener.
    pub(crate) address: (String, u16),
    /// The host and port at which clients reach it.
    pub(crate) announced: (String, u16),
}

impl RespGateway {
    /// From a node's configuration. Clients reach the listener at the host that the node advertises,
    /// unless the listener is bound to a particular one, or the configuration announces another address.
    pub(crate) fn new(
        config: &Config,
        advertised: &str,
        listener: &dyn Listener,
        coordinator: &Arc<Coordinator>,
        budget: Arc<Budget>,
    ) -> Self {
        let local = listener.local_address();
        Self {
            coordinator: Arc::clone(coordinator),
            timeout_max: Duration::from_millis(config.request_timeout_ms_max),
            budget,
            needs_member: config.require_node_identity,
            default_kind: config.default_kind().unwrap_or(Kind::Scalable),
            cluster_answers: config.cluster_answers().unwrap_or(ClusterAnswers::Single),
            is_strict: config.transactions() == Some(Transactions::Strict),
            address: reached_at(&local, advertised),
            announced: config.resp_reached_at(&local, advertised),
        }
    }
}
