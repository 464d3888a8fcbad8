//! The Redis protocol: clients of Redis, RedisBloom and their cluster modes see filters as keys.
//!
//! | module | what it does |
//! |---|---|
//! | `connection`, `parting` | bytes to commands and back, within limits |
//! | `pipeline` | commands in their order, adjacent ones joined, transactions |
//! | `filters`, `cuckoo`, `keys`, `server`, `cluster`, `info` | what commands do |
//! | `nodes` | the nodes that clients in cluster mode can use |
//! | `session` | the caller of a connection, and what it has chosen |
//! | `needs`, `answers` | rights that commands require; failures as clients know them |
//! | `shared`, `turns` | what connections share |
//! | `waiting` | a client whose command waits for those of others |

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use umbel_node::metrics;
use umbel_ports::{FailedAccepts, Incoming, Listener};

use self::shared::Counts;
pub(crate) use self::shared::Shared;
use super::limits::{RESP_CONNECTIONS_MAX, STOP_GRACE_MAX};

mod answers;
mod chain_debug;
mod chain_dumps;
mod cluster;
mod coming_pieces;
mod connection;
mod cuckoo;
mod dump_bytes;
mod dumps;
mod expiry;
mod filters;
mod fixed_chains;
mod info;
mod keys;
mod look_and_add;
mod names;
mod needs;
mod nodes;
mod packed;
mod parting;
mod payloads;
mod pipeline;
mod server;
mod session;
mod shared;
mod turns;
mod umbel;
mod waiting;
mod writing;

#[cfg(test)]
mod audit_test;
#[cfg(test)]
mod chain_dumps_test;
#[cfg(test)]
mod cluster_test;
#[cfg(test)]
mod cuckoo_test;
#[cfg(test)]
mod cut_dumps_test;
#[cfg(test)]
mod dumps_test;
#[cfg(test)]
mod names_test;
#[cfg(test)]
mod payloads_test;
#[cfg(test)]
mod replicated_test;
#[cfg(test)]
mod resp_test;
#[cfg(test)]
mod rights_test;
#[cfg(test)]
mod server_test;
#[cfg(test)]
mod set_test;
#[cfg(test)]
mod strict_test;
#[cfg(test)]
mod umbel_test;

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` completes, then accepts no further connections and lets running commands end, for
/// at most `STOP_GRACE_MAX`.
pub(crate) async fn serve(
    mut listener: Box<dyn Listener>,
    shared: Shared,
    stop: impl Future<Output = ()>,
) {
    let shared = Arc::new(shared);
    let (stopping, stopped) = watch::channel(false);
    let (mut tasks, mut failed) = (JoinSet::new(), FailedAccepts::default());
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
            Ok(taken) if !shared.clients.has_place(RESP_CONNECTIONS_MAX) => {
                metrics::connection_refused("no_room");
                Counts::add(&shared.counts.rejected, 1);
                tasks.spawn(refuse(taken));
            }
            Ok(taken) => {
                tasks.spawn(connection::serve(taken, Arc::clone(&shared), stopped.clone()));
            }
            Err(error) => {
                failed.tell(&error);
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
