//! The Redis protocol: clients of Redis, RedisBloom and their cluster modes see filters as keys.
//!
//! | module | what it does |
//! |---|---|
//! | `connection` | bytes to commands and back, within limits |
//! | `pipeline` | commands in their order, adjacent ones joined, transactions |
//! | `filters`, `cuckoo`, `keys`, `server` | what commands do |
//! | `session` | the caller of a connection, and what it has chosen |
//! | `needs`, `answers` | rights that commands require; failures as clients know them |
//! | `shared` | what connections share |

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use umbel_coordinator::Coordinator;
use umbel_filter::Kind;
use umbel_node::config::{Config, host_of};
use umbel_node::metrics;
use umbel_ports::{Incoming, Listener};

use self::shared::Shared;
use super::admission::Budget;
use super::limits::{RESP_CONNECTIONS_MAX, STOP_GRACE_MAX};

mod answers;
mod chain_debug;
mod chain_dumps;
mod connection;
mod cuckoo;
mod dump_bytes;
mod dumps;
mod expiry;
mod filters;
mod keys;
mod names;
mod needs;
mod payloads;
mod pipeline;
mod server;
mod session;
mod shared;
mod umbel;
mod writing;

#[cfg(test)]
mod chain_dumps_test;
#[cfg(test)]
mod cuckoo_test;
#[cfg(test)]
mod dumps_test;
#[cfg(test)]
mod names_test;
#[cfg(test)]
mod payloads_test;
#[cfg(test)]
mod resp_test;
#[cfg(test)]
mod rights_test;
#[cfg(test)]
mod set_test;
#[cfg(test)]
mod umbel_test;

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    /// The host and port at which clients reach this listener.
    pub(crate) address: (String, u16),
}

impl RespGateway {
    /// From a node's configuration. Clients reach the listener at the host that the node advertises,
    /// unless the listener is bound to a particular one.
    pub(crate) fn new(
        config: &Config,
        advertised: &str,
        listener: &dyn Listener,
        coordinator: &Arc<Coordinator>,
        budget: Arc<Budget>,
    ) -> Self {
        let local = listener.local_address();
        let port = local.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
        let is_certain = |host: &&str| !matches!(*host, "0.0.0.0" | "::");
        let host = host_of(&local).filter(is_certain).or_else(|| host_of(advertised));
        Self {
            coordinator: Arc::clone(coordinator),
            timeout_max: Duration::from_millis(config.request_timeout_ms_max),
            budget,
            needs_member: config.require_node_identity,
            default_kind: config.default_kind().unwrap_or(Kind::Scalable),
            address: (host.unwrap_or("127.0.0.1").to_owned(), port),
        }
    }
}

/// Serves until `stop` completes, then accepts no further connections and lets running commands end, for
/// at most `STOP_GRACE_MAX`.
pub(crate) async fn serve(
    mut listener: Box<dyn Listener>,
    gateway: RespGateway,
    stop: impl Future<Output = ()>,
) {
    let shared = Arc::new(Shared::new(gateway));
    let (stopping, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tokio::pin!(stop);
    loop {
        metrics::resp_connections(shared.clients.count());
        let taken = tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = tasks.join_next() => continue,
            taken = listener.accept() => taken,
        };
        match taken {
            Ok(taken) if shared.clients.count() >= RESP_CONNECTIONS_MAX => {
                metrics::connection_refused("no_room");
                tasks.spawn(refuse(taken));
            }
            Ok(taken) => {
                tasks.spawn(connection::serve(taken, Arc::clone(&shared), stopped.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if timeout(STOP_GRACE_MAX, ended).await.is_err() {
        tracing::warn!("commands that were still running were cut off");
    }
}

/// Tells a connection that there are too many connections.
async fn refuse(mut taken: Incoming) {
    use tokio::io::AsyncWriteExt as _;
    let written = taken.stream.write_all(b"-ERR max number of clients reached\r\n");
    // The client may be gone already.
    let _ = timeout(ACCEPT_PAUSE, written).await;
}
