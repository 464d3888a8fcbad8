//! Nodes for tests, here and above. Compiled for tests and with the feature `testing`.
#![expect(clippy::missing_panics_doc, reason = "a panic fails the test")]

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::meta::{ClusterVersion, MetaError};
use umbel_engine::shard::ShardState;
use umbel_engine::{FilterId, Generation, NodeId, ShardId};
use umbel_ports::testing::free_port;
use umbel_ports::{PortFuture, RealSeed, Seed, channel};
use umbel_replicated_engine::repair::ResidueTable;

use crate::client_interface::{ClientInterface, ServedNode};
use crate::config::Config;
use crate::cube::{self, Copy};
use crate::formation;
use crate::leader_calls::LeaderCalls;
use crate::node::Node;
use crate::ports::Ports;

#[cfg(test)]
mod clock;
mod described_jobs;
#[cfg(test)]
mod filters;

#[cfg(test)]
pub(crate) use clock::SetClock;
#[cfg(test)]
pub(crate) use filters::{create_filter, create_filter_of};

pub use described_jobs::DescribedSince;

/// A time that no call of a test needs, on however busy a machine: it only ends a hang.
pub fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(180)
}

/// Settings of a node on loopback with this data folder. The nodes of many tests share few cores, where a node that lives
/// may be silent for long, and an insert without a request id fails if its shard gets another leader meanwhile. A node
/// that is gone is found out sooner all the same, because nothing listens at its address.
pub fn config(data: &Path) -> Config {
    Config {
        listen: "127.0.0.1:0".to_owned(),
        data: data.display().to_string(),
        heartbeat_ms: 50,
        suspect_ms: 800,
        ..Config::default()
    }
}

/// Serves other nodes, and no clients.
pub struct PeersOnly;

impl ClientInterface for PeersOnly {
    fn serve(self: Box<Self>, node: ServedNode) -> PortFuture<'static, ()> {
        Box::pin(async move {
            let ServedNode { listener, routes, mut stopped, .. } = node;
            let stop = async move {
                // A dropped sender means that the node was dropped.
                let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
            };
            let server = channel::server().add_routes(routes);
            let incoming = channel::incoming(listener);
            server.serve_with_incoming_shutdown(incoming, stop).await.expect("it serves");
        })
    }
}

/// Starts a node on a real disk that serves other nodes alone.
pub async fn start(config: Config) -> Node {
    let ports = Ports::real(Path::new(&config.data)).expect("the folder can be used");
    Node::start(config, ports, Box::new(PeersOnly)).await.expect("the node starts")
}

/// Starts a node that is a cluster of its own, with four shards.
pub async fn start_alone(data: &Path) -> Node {
    start(alone(data)).await
}

/// The same with a wall clock that the test moves.
#[cfg(test)]
pub(crate) async fn start_alone_at(data: &Path, clock: &Arc<SetClock>) -> Node {
    let seed: Arc<dyn Seed> = Arc::clone(clock) as _;
    let ports = Ports { seed, ..Ports::real(data).expect("the folder can be used") };
    Node::start(alone(data), ports, Box::new(PeersOnly)).await.expect("the node starts")
}

fn alone(data: &Path) -> Config {
    Config { dev: true, shards: 4, replicas: 1, ..config(data) }
}

/// Addresses on which nobody else will listen, in the order in which founders are numbered: the first one's node
/// is node 1.
pub fn free_addresses(count: usize) -> Vec<String> {
    let mut addresses: Vec<String> =
        (0..count).map(|_| format!("127.0.0.1:{}", free_port())).collect();
    addresses.sort_unstable();
    addresses
}

/// Starts a cluster of nodes with four shards, one in each folder.
pub async fn start_cluster<F: AsRef<Path>>(folders: &[F]) -> Vec<Node> {
    let addresses = free_addresses(folders.len());
    let starts = folders.iter().zip(&addresses).map(|(folder, address)| {
        start(Config {
            listen: address.clone(),
            initial_cluster: addresses.clone(),
            shards: 4,
            ..config(folder.as_ref())
        })
    });
    futures_util::future::join_all(starts).await
}

/// What both sides of a comparison must have in common, for a partner that lies about the rest.
#[must_use]
pub fn shape_id(
    copy: &Copy,
    generation: Generation,
    newest_slice: Option<u64>,
    table: &ResidueTable,
) -> u64 {
    cube::shape_id(copy, generation, newest_slice, table)
}

/// Raises the cluster's version as its founder does, over the nodes that it has asked.
///
/// # Errors
/// If the cluster refuses it.
pub async fn raise_to(
    node: &Node,
    newest: ClusterVersion,
    asked: &[NodeId],
) -> Result<(), MetaError> {
    formation::raise_to(node.local(), newest, asked).await
}

/// How long a requested snapshot of one group may take.
const GROUP_SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);

impl LeaderCalls {
    /// Calls of a node that belongs to no cluster.
    #[must_use]
    pub fn without_cluster() -> Self {
        Self::new(Arc::default(), Arc::new(RealSeed))
    }
}

impl Node {
    /// Calls of this node beside its own ones.
    #[must_use]
    pub fn leader_calls(&self, seed: Arc<dyn Seed>) -> LeaderCalls {
        LeaderCalls::new(Arc::new(OnceLock::from(Arc::clone(self.local()))), seed)
    }

    /// The exports of slices that this node serves. One that nobody ends stays among them until the next one begins, at
    /// least.
    #[must_use]
    pub fn export_count(&self) -> usize {
        self.local().exports.count()
    }

    /// Damages this node's copy of a replicated filter by clearing one in `every` of its set bits, as if memory
    /// had rotted. Returns the number of cleared bits; 0 if there is no copy.
    #[must_use]
    pub fn rot_copy(&self, filter: FilterId, every: usize) -> u64 {
        self.local().copies().get(filter).map_or(0, |copy| copy.rot(every))
    }

    /// Damages a filter's slice in this node's replica of a shard, as if memory had rotted. Flips one in `every`
    /// of its bits or, with `only_clears`, clears one in `every` of those that are set. Returns the number of
    /// changed bits; 0 if there is no such slice.
    #[must_use]
    pub fn rot_slice(
        &self,
        shard: ShardId,
        filter: FilterId,
        every: usize,
        only_clears: bool,
    ) -> u64 {
        let replica = self.local().shard(shard);
        replica.map_or(0, |replica| replica.group().replica().rot(filter, every, only_clears))
    }

    /// A digest of this node's replica of a shard, if it has one.
    #[must_use]
    pub fn shard_digest(&self, shard: ShardId) -> Option<u64> {
        Some(self.local().shard(shard)?.group().replica().read_shard(ShardState::digest))
    }

    /// Makes every group write a snapshot and purge its whole log up to it, one group after the other,
    /// as nodes do by themselves when logs are long. Returns false if a group failed or took longer than
    /// a minute; it may still finish later.
    pub async fn snapshot_groups(&self) -> bool {
        let mut is_done = true;
        for group in self.local().groups() {
            is_done &= group.snapshot_and_purge(GROUP_SNAPSHOT_TIMEOUT).await;
        }
        is_done
    }

    /// Looks at the wall clock, as a node does once a second: a test that moves its clock by less than what
    /// counts as a jump, and lets the node look, can move it as far as it likes.
    pub fn look_at_clock(&self) {
        self.local().believed_ms();
    }

    /// What clients of this node insert into a replicated filter comes later by so much.
    pub fn let_arrivals_wait(&self, filter: FilterId, ms: u64) {
        let copy = self.local().copies().get(filter).expect("the node has a copy");
        copy.arrivals.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// What is inserted into this node's replica of a shard comes later by so much.
    pub fn let_shard_arrivals_wait(&self, shard: ShardId, ms: u64) {
        let leader = self.local().shard(shard).expect("the node has a replica");
        leader.arrivals.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }
}
