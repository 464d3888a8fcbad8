//! Whole nodes on loopback and real disks, which tests ask as clients do, or through their coordinators.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;
use umbel_coordinator::Coordinator;
pub(crate) use umbel_coordinator::testing::{create, items};
use umbel_engine::meta::{
    FilterVerb, Grant, MetaCommand, Principal, PrincipalName, Proof, Rights, VersionRange,
};
use umbel_node::ports::Ports;
pub(crate) use umbel_node::testing::{config, deadline};
use umbel_node::{ClientInterface, Config, ServedNode};
use umbel_ports::{PortFuture, Purpose, RealSeed, Seed};

use crate::Interface;

/// A running node, with the coordinator that serves its clients.
pub(crate) struct Node {
    node: umbel_node::Node,
    coordinator: Arc<Coordinator>,
}

impl Node {
    pub(crate) fn coordinator(&self) -> Arc<Coordinator> {
        Arc::clone(&self.coordinator)
    }

    pub(crate) async fn shutdown(self) {
        drop(self.coordinator);
        self.node.shutdown().await;
    }
}

impl Deref for Node {
    type Target = umbel_node::Node;

    fn deref(&self) -> &Self::Target {
        &self.node
    }
}

/// Serves clients, and sends the coordinator of the node.
struct CoordinatorSender {
    coordinator: oneshot::Sender<Arc<Coordinator>>,
}

impl ClientInterface for CoordinatorSender {
    fn serve(self: Box<Self>, node: ServedNode) -> PortFuture<'static, ()> {
        let coordinator = Arc::new(Coordinator::new(Arc::clone(&node.calls)));
        assert!(self.coordinator.send(Arc::clone(&coordinator)).is_ok());
        Interface { render_metrics: None }.serve_by(coordinator, node)
    }
}

pub(crate) async fn start(config: Config) -> Node {
    start_by(config, Arc::new(RealSeed)).await
}

/// Starts a node with this clock.
pub(crate) async fn start_by(config: Config, seed: Arc<dyn Seed>) -> Node {
    let ports = Ports { seed, ..Ports::real(Path::new(&config.data)).unwrap() };
    start_on(config, ports).await
}

/// Starts a node of a release that runs clusters of these versions.
pub(crate) async fn start_of(config: Config, versions: VersionRange) -> Node {
    let ports = Ports { versions, ..Ports::real(Path::new(&config.data)).unwrap() };
    start_on(config, ports).await
}

async fn start_on(config: Config, ports: Ports) -> Node {
    let (coordinator, coordinator_sent) = oneshot::channel();
    let clients = CoordinatorSender { coordinator };
    let node = umbel_node::Node::start(config, ports, Box::new(clients)).await.unwrap();
    Node { node, coordinator: coordinator_sent.await.unwrap() }
}

/// A wall clock that stands still unless the test sets it, in milliseconds since 1970.
pub(crate) struct Clock(pub(crate) AtomicU64);

impl Clock {
    /// A clock that stands at the machine's time.
    pub(crate) fn stopped() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(RealSeed.wall_ms())))
    }
}

impl Seed for Clock {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        RealSeed.fill(purpose, bytes);
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The secret of the tokens of [`put`].
pub(crate) const SECRET: &str = "0123456789abcdef";

/// Adds a principal whose token has [`SECRET`], or gives it these rights.
pub(crate) async fn put(node: &Node, name: &str, rights: Rights) {
    let proof = Proof::Token { digest: *blake3::hash(SECRET.as_bytes()).as_bytes() };
    let principal = Principal { proof, rights, created_ms: 0, expires_ms: None };
    let name = PrincipalName::new(name).unwrap();
    let command = MetaCommand::PutPrincipal { name, principal, replace: true };
    node.coordinator().meta_propose(command, deadline()).await.unwrap();
}

/// The right to do this with filters of these names.
pub(crate) fn grant(pattern: &str, verbs: &[FilterVerb]) -> Rights {
    let grant = Grant { pattern: pattern.to_owned(), verbs: verbs.iter().copied().collect() };
    Rights { grants: vec![grant], ..Rights::default() }
}

pub(crate) async fn start_alone(data: &Path) -> Node {
    start(Config { dev: true, shards: 4, replicas: 1, ..config(data) }).await
}
