//! Whole nodes on loopback and real disks, which tests ask as clients do, or through their coordinators.

use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::meta::{Distribution, FilterName};
use umbel_filter::Kind;
use umbel_node::coordinator::Coordinator;
use umbel_node::coordinator::catalogue::{Hashing, NewFilter};
use umbel_node::coordinator::item_batch::ItemBatch;
use umbel_node::coordinator::sizes::FilterSize;
use umbel_node::ports::Ports;
use umbel_node::{ClientInterface, Config, ServedNode};
use umbel_ports::PortFuture;
use umbel_proto::v1::Items;

use crate::client_interface;

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
struct Told {
    interface: Box<dyn ClientInterface>,
    coordinator: oneshot::Sender<Arc<Coordinator>>,
}

impl ClientInterface for Told {
    fn serve(self: Box<Self>, node: ServedNode) -> PortFuture<'static, ()> {
        assert!(self.coordinator.send(Arc::clone(&node.coordinator)).is_ok());
        self.interface.serve(node)
    }
}

pub(crate) fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Fast elections: the tests restart nodes.
pub(crate) fn config(data: &Path) -> Config {
    Config {
        listen: "127.0.0.1:0".to_owned(),
        data: data.display().to_string(),
        heartbeat_ms: 50,
        suspect_ms: 300,
        ..Config::default()
    }
}

pub(crate) async fn start(config: Config) -> Node {
    let ports = Ports::real(Path::new(&config.data)).unwrap();
    let (coordinator, told) = oneshot::channel();
    let clients = Told { interface: client_interface(None), coordinator };
    let node = umbel_node::Node::start(config, ports, Box::new(clients)).await.unwrap();
    Node { node, coordinator: told.await.unwrap() }
}

pub(crate) async fn start_alone(data: &Path) -> Node {
    start(Config { dev: true, shards: 4, replicas: 1, ..config(data) }).await
}

/// Creates a partitioned filter for 10,000 items.
pub(crate) async fn create(coordinator: &Coordinator, name: &str, kind: Kind) -> FilterId {
    let new = NewFilter::Planned {
        kind,
        distribution: Distribution::Partitioned,
        capacity: 10_000,
        size: FilterSize::Rate(1e-4),
        hashing: Hashing::Keyed,
    };
    coordinator.create(&FilterName::new(name).unwrap(), &new, None, deadline()).await.unwrap().0
}

pub(crate) fn items(range: Range<u32>) -> ItemBatch {
    let items = range.map(|item| Bytes::from(format!("item {item}"))).collect();
    ItemBatch::from_proto(Some(Items { items, ..Items::default() })).unwrap()
}
