//! A node that is cut off from the network: its connections end, and new ones are neither accepted nor
//! refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, copy, copy_bidirectional, duplex, sink};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use umbel_client::{Client, ClientOptions, Connecting, Connector};
use umbel_proto::v1::Hashing;

use super::fake::Cluster;
use super::options;

/// Bound for a call, which takes milliseconds unless it waits for the node that is cut off.
const PATIENCE: Duration = Duration::from_secs(30);

/// Buffer of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// Connects to all nodes, and can cut one of them off.
struct Cuttable {
    node: String,
    is_cut: watch::Receiver<bool>,
    /// A clone of this exists per open connection to that node.
    connection: Arc<watch::Sender<()>>,
}

impl Connector for Cuttable {
    fn connect(&self, address: &str) -> Connecting {
        let (address, is_own) = (address.to_owned(), address == self.node);
        let (mut is_cut, connection) = (self.is_cut.clone(), Arc::clone(&self.connection));
        Box::pin(async move {
            if !is_own {
                return Ok(Box::new(TcpStream::connect(address).await?) as _);
            }
            let _ = is_cut.wait_for(|is_cut| !is_cut).await;
            let mut stream = TcpStream::connect(address).await?;
            let (near, mut far) = duplex(BUFFER_BYTES);
            tokio::spawn(async move {
                tokio::select! {
                    _ = copy_bidirectional(&mut far, &mut stream) => {}
                    _ = is_cut.wait_for(|is_cut| *is_cut) => {}
                }
                // The client reads the end of the stream and drops the connection.
                let _ = far.shutdown().await;
                let _ = copy(&mut far, &mut sink()).await;
                drop(connection);
            });
            Ok(Box::new(near) as _)
        })
    }
}

/// The nodes that have answered inserts since the last call of this function.
fn used(cluster: &Cluster) -> BTreeSet<usize> {
    std::mem::take(&mut cluster.world().seen).into_iter().map(|seen| seen.node).collect()
}

#[tokio::test]
async fn no_call_waits_for_a_node_that_is_gone_and_it_is_called_again_once_it_is_back() {
    let cluster = Cluster::start(2).await;
    cluster.put("seen", Hashing::Keyed, 1);
    let (cut, is_cut) = watch::channel(false);
    let connection = Arc::new(watch::Sender::new(()));
    let connector = Cuttable {
        node: cluster.addresses[0].clone(),
        is_cut,
        connection: Arc::clone(&connection),
    };
    let usual = ClientOptions::default();
    let options = ClientOptions {
        timeout: usual.timeout,
        attempt_timeout: usual.attempt_timeout,
        connect_timeout: 10 * PATIENCE,
        ..options()
    };
    let client = Client::connect_through(cluster.addresses.clone(), options, connector).unwrap();
    let seen = client.filter("seen");
    let insert = async || timeout(PATIENCE, seen.insert(["a"])).await.unwrap().unwrap();
    while used(&cluster) != BTreeSet::from([0, 1]) {
        insert().await;
        insert().await;
    }
    cut.send_replace(true);
    // One clone is the connector's, one is the test's.
    while Arc::strong_count(&connection) > 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..8 {
        insert().await;
    }
    assert_eq!(used(&cluster), BTreeSet::from([1]));
    cut.send_replace(false);
    while !used(&cluster).contains(&0) {
        insert().await;
    }
}
