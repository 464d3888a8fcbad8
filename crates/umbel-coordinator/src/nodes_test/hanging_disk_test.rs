//! A node whose disk does not return from writes.

use std::io;

use bytes::Bytes;
use tokio::sync::watch;
use umbel_engine::NodeId;
use umbel_filter::Kind;
use umbel_ports::{Disk, File, PortFuture, WriteError};

use super::node_test::{PeersOnly, config, create, deadline, free_addresses, items};
use super::*;
use crate::ReadLevel;
use umbel_node::failure::CallFailure;

/// A disk whose writes do not return while it hangs.
struct HangingDisk {
    disk: Arc<dyn Disk>,
    hangs: watch::Receiver<bool>,
}

struct HangingFile {
    file: Arc<dyn File>,
    hangs: watch::Receiver<bool>,
}

impl Disk for HangingDisk {
    fn open<'a>(
        &'a self,
        path: &'a str,
        create: bool,
    ) -> PortFuture<'a, io::Result<Arc<dyn File>>> {
        Box::pin(async move {
            let (file, hangs) = (self.disk.open(path, create).await?, self.hangs.clone());
            Ok(Arc::new(HangingFile { file, hangs }) as Arc<dyn File>)
        })
    }

    fn list<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<Vec<String>>> {
        self.disk.list(folder)
    }

    fn make_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        self.disk.make_folder(folder)
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> PortFuture<'a, io::Result<()>> {
        self.disk.rename(from, to)
    }

    fn remove<'a>(&'a self, path: &'a str) -> PortFuture<'a, io::Result<()>> {
        self.disk.remove(path)
    }

    fn remove_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        self.disk.remove_folder(folder)
    }

    fn sync_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        self.disk.sync_folder(folder)
    }

    fn free_bytes(&self) -> PortFuture<'_, io::Result<u64>> {
        self.disk.free_bytes()
    }

    fn lock(&self) -> PortFuture<'_, io::Result<Box<dyn Send + Sync>>> {
        self.disk.lock()
    }
}

impl HangingFile {
    async fn returned(&self) {
        // An error means that the test is over.
        let _ = self.hangs.clone().wait_for(|hangs| !hangs).await;
    }
}

impl File for HangingFile {
    fn read_at(&self, offset: u64, byte_count: usize) -> PortFuture<'_, io::Result<Bytes>> {
        self.file.read_at(offset, byte_count)
    }

    fn write_at(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.returned().await;
            self.file.write_at(offset, bytes).await
        })
    }

    fn write_and_sync(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            self.returned().await;
            self.file.write_and_sync(offset, bytes).await
        })
    }

    fn sync(&self) -> PortFuture<'_, io::Result<()>> {
        self.file.sync()
    }

    fn set_len(&self, byte_count: u64) -> PortFuture<'_, io::Result<()>> {
        self.file.set_len(byte_count)
    }

    fn len(&self) -> PortFuture<'_, io::Result<u64>> {
        self.file.len()
    }
}

/// Inserts an item until that succeeds: an insert without a request id fails if its shard gets another leader meanwhile.
async fn insert_one(coordinator: &Coordinator, number: u32) {
    let end = deadline();
    loop {
        let soon = Instant::now() + Duration::from_secs(1);
        if coordinator.insert("seen", &items(number..number + 1), None, None, soon).await.is_ok() {
            return;
        }
        assert!(Instant::now() < end, "item {number} is refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_take_over_what_a_node_leads_whose_disk_hangs() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let addresses = free_addresses(3);
    let (hang, hangs) = watch::channel(false);
    let starts = folders.iter().zip(&addresses).map(|(folder, address)| {
        let config = Config {
            listen: address.clone(),
            initial_cluster: addresses.clone(),
            shards: 4,
            suspect_ms: 300,
            ..config(folder.path())
        };
        let mut ports = Ports::real(folder.path()).unwrap();
        if *address == addresses[0] {
            ports.disk = Arc::new(HangingDisk { disk: ports.disk, hangs: hangs.clone() });
        }
        async move { Node::start(config, ports, Box::new(PeersOnly)).await.unwrap() }
    });
    let nodes = futures_util::future::join_all(starts).await;
    let coordinator = nodes[1].coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    let leads = |node: NodeId| nodes[1].groups().iter().any(|group| group.leader == Some(node));
    let end = deadline();
    while !leads(NodeId(1)) {
        assert!(Instant::now() < end, "the first node leads nothing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    hang.send_replace(true);
    // The node still hears what others send, and sends them entries: these do not wait for its disk.
    let mut number = 0;
    while leads(NodeId(1)) {
        insert_one(&coordinator, number).await;
        number += 1;
        assert!(Instant::now() < end, "the first node still leads");
    }
    insert_one(&coordinator, number).await;
    // On a machine that is busy the others may have missed the node before its disk had hung for long enough.
    let why_not = async || nodes[0].local().readiness().await.why_not.unwrap_or_default();
    while !why_not().await.contains("does not return from a write") {
        assert!(Instant::now() < end, "nobody is told why the node is not ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    hang.send_replace(false);
    let back = nodes[0].coordinator();
    let (asked, level) = (items(0..number + 1), Some(ReadLevel::Linearizable));
    let (present, _) = back.contains("seen", &asked, level, deadline()).await.unwrap();
    assert_eq!(present.count_ones(), number + 1);
    drop((coordinator, back));
    futures_util::future::join_all(nodes.into_iter().map(Node::shutdown)).await;
}

/// An insert waits for the disk, which may take any time: it is full, or hangs.
#[tokio::test(flavor = "multi_thread")]
async fn an_insert_waits_for_the_disk_until_its_deadline() {
    let past = Instant::now();
    let folders = [tempfile::tempdir().unwrap()];
    let (_, nodes) = replicated_test::start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    replicated_test::create(&coordinator, "near", Kind::Blocked).await;
    let late = coordinator.insert("near", &items(0..10), None, None, past).await;
    assert!(matches!(late, Err(CallFailure::OutcomeUnknown { .. })), "{late:?}");
    // It was queued, and what is inserted after it is written after it.
    replicated_test::insert(&coordinator, "near", 10..20).await;
    let (present, _) = coordinator.contains("near", &items(0..20), None, past).await.unwrap();
    assert_eq!(present.count_ones(), 20, "a query waits for nothing");
    drop(coordinator);
    replicated_test::stop(nodes).await;
}
