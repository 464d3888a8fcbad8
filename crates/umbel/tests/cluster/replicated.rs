//! Replicated filters on real processes: every node accepts inserts at full speed, one is killed or
//! isolated, and all nodes have all items after two whole sweeps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use umbel_client::{AckLevel, Client, ClientError, Distribution, NewFilter, ReadLevel};

use crate::load::{create_with_copies, item};
use crate::servers::{Cluster, Server, until};

/// Items of a batch.
const BATCH_ITEMS: u64 = 1000;

/// Batches that all nodes together must accept in each part of a test; each of them must accept at least
/// its share.
const BATCHES_MIN: u64 = 48;

/// Whole sweeps after which all nodes have all items.
const SWEEPS: u64 = 2;

fn replicated_filter() -> NewFilter {
    let distribution = Distribution::Replicated;
    NewFilter { distribution, ..NewFilter::for_rate(2_000_000, 1e-6) }
}

/// One writer per node, which inserts distinct items as long as its node answers.
struct Writers {
    acked: Arc<Mutex<Vec<u64>>>,
    batches: Vec<Arc<AtomicU64>>,
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Writers {
    fn begin(clients: Vec<Client>) -> Self {
        let mut writers = Self {
            acked: Arc::default(),
            batches: Vec::new(),
            is_over: Arc::default(),
            tasks: JoinSet::new(),
        };
        for (number, client) in (0..).zip(clients) {
            let (acked, is_over) = (Arc::clone(&writers.acked), Arc::clone(&writers.is_over));
            let batches = Arc::new(AtomicU64::new(0));
            writers.batches.push(Arc::clone(&batches));
            writers.tasks.spawn(async move {
                let filter = client.filter("seen");
                let mut first = number << 32;
                while !is_over.load(Ordering::Relaxed) {
                    let batch = first..first + BATCH_ITEMS;
                    match filter.insert_at(batch.clone().map(item), AckLevel::Local).await {
                        Ok(inserted) => {
                            assert_eq!(inserted.level(), AckLevel::Local);
                            let mut acked = acked.lock().unwrap_or_else(PoisonError::into_inner);
                            acked.extend(batch);
                            batches.fetch_add(1, Ordering::Relaxed);
                        }
                        // Its node is down; these items may or may not be inserted.
                        Err(ClientError::Unavailable(_) | ClientError::OutcomeUnknown { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    first += BATCH_ITEMS;
                }
            });
        }
        writers
    }

    /// Waits until each of these nodes has accepted more batches.
    async fn more(&self, nodes: &[usize]) {
        let counts = || nodes.iter().map(|&node| self.batches[node].load(Ordering::Relaxed));
        let before: Vec<u64> = counts().collect();
        until("more batches", || async {
            let mut both = counts().zip(&before);
            let share = BATCHES_MIN / nodes.len() as u64;
            both.all(|(now, before)| now >= before + share).then_some(())
        })
        .await;
    }

    /// Stops them; returns the acknowledged items.
    async fn end(mut self) -> Vec<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let acked = self.acked.lock().unwrap_or_else(PoisonError::into_inner);
        acked.clone()
    }
}

/// The number of a node's sweeps in which every partner answered.
async fn whole_sweeps(node: &Server) -> Option<u64> {
    let exchange = node.client().status().await.ok()?.exchange?;
    Some(exchange.sweep_count - exchange.broken_sweep_count)
}

/// Waits until every node has made this many further whole sweeps.
async fn after_whole_sweeps(nodes: &[Server], count: u64) {
    let mut wanted = Vec::new();
    for node in nodes {
        let now = until("a status", || whole_sweeps(node)).await;
        // The current one may have started before.
        wanted.push(now + count + 1);
    }
    for (node, wanted) in nodes.iter().zip(wanted) {
        until("whole sweeps", || async {
            // Without changes, no node starts a sweep.
            let _ = node.client().flush("seen").await;
            whole_sweeps(node).await.filter(|now| *now >= wanted)
        })
        .await;
    }
}

/// Asserts that every node's own copy has all items.
async fn assert_all_have(nodes: &[Server], items: &[u64]) {
    for node in nodes {
        let client = node.client();
        for batch in items.chunks(50_000) {
            let answers = client.filter("seen");
            let answers = answers
                .contains(batch.iter().map(|&number| item(number)), ReadLevel::Local)
                .await
                .unwrap();
            assert_eq!(answers.level(), ReadLevel::Local);
            assert_eq!(answers.present_count() as usize, batch.len(), "at {}", node.address);
        }
        // It has hardly any others.
        let absent = (1_u64 << 60..).take(10_000).map(item);
        let answers = client.filter("seen").contains(absent, ReadLevel::Local).await.unwrap();
        assert!(answers.present_count() < 10, "{} of 10,000", answers.present_count());
    }
}

/// Kills one node under load, and restarts it.
async fn kill_one_of(count: usize) {
    let mut cluster = Cluster::form(count).await;
    create_with_copies(&cluster.client(), "seen", &replicated_filter(), count).await;
    let writers = Writers::begin(cluster.nodes.iter().map(Server::client).collect());
    let all: Vec<usize> = (0..count).collect();
    writers.more(&all).await;
    cluster.nodes[count - 1].kill();
    writers.more(&all[..count - 1]).await;
    cluster.nodes[count - 1].start();
    cluster.nodes[count - 1].ready().await;
    writers.more(&all).await;
    let acked = writers.end().await;
    after_whole_sweeps(&cluster.nodes, SWEEPS).await;
    assert_all_have(&cluster.nodes, &acked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_have_everything_after_one_was_killed() {
    kill_one_of(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_nodes_have_everything_after_one_was_killed() {
    kill_one_of(8).await;
}
