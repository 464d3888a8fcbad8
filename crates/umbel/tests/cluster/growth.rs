//! A cluster that gets more nodes and shards, and fewer nodes again, while clients insert and query.

use umbel_client::proto::ShardStatus;
use umbel_client::{ReadLevel, StatusResponse};

use crate::crashes::addresses;
use crate::load::{Load, contains, sharp_filter};
use crate::members::remove;
use crate::servers::{Cluster, is_ready, line_of, until};
use crate::splits::split_to;

/// Items that must be acknowledged after each change.
const PROGRESS_ITEMS: usize = 300;

/// Nodes are balanced when no node has so many more replicas than another one (docs/cluster.md).
const IMBALANCE_MIN: u32 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go_and_shards_are_split_under_load() {
    let mut cluster = Cluster::form(1).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    // The clients know the first node alone, and writers learn of the others.
    let mut load = Load::begin("seen", &addresses(&cluster));
    load.progress(PROGRESS_ITEMS).await;

    let second = join(&mut cluster).await;
    join(&mut cluster).await;
    assert_eq!(spread_over(&cluster, 3).await, [4; 3]);
    load.progress(PROGRESS_ITEMS).await;
    split_to(&cluster, 8).await;
    load.progress(PROGRESS_ITEMS).await;
    join(&mut cluster).await;
    assert_eq!(spread_over(&cluster, 4).await.iter().sum::<u32>(), 8 * 3);
    load.progress(PROGRESS_ITEMS).await;
    split_to(&cluster, 16).await;
    assert_eq!(spread_over(&cluster, 4).await.iter().sum::<u32>(), 16 * 3);
    load.progress(PROGRESS_ITEMS).await;

    client.drain(second, false).await.unwrap();
    cluster
        .status_until("the second node drained", |status| {
            line_of(status, second).replica_count == 0
        })
        .await;
    load.progress(PROGRESS_ITEMS).await;
    remove(&cluster, second).await;
    let mut gone = cluster.nodes.remove(1);
    let ended = gone.ended().await;
    assert_eq!(ended.code(), Some(2), "{}", gone.log());
    // Three nodes, and three replicas of each shard: every node has one of each.
    assert_eq!(spread_over(&cluster, 3).await, [16; 3]);
    load.progress(PROGRESS_ITEMS).await;

    let mut history = load.finish().await;
    let items = history.acknowledged().to_vec();
    for node in &cluster.nodes {
        // A group may have to elect a leader after a member has left.
        until("each node ready", || async { is_ready(&node.address).await.then_some(()) }).await;
        let found = contains(&node.client().filter("seen"), &items, ReadLevel::Linearizable).await;
        items.iter().zip(found).for_each(|(&item, is_present)| history.asked(item, is_present));
    }
    history.check();
}

/// Starts another node, which joins through the first one; returns its number.
async fn join(cluster: &mut Cluster) -> u64 {
    let mut node = cluster.another(&["--join", &cluster.nodes[0].address]);
    node.start();
    node.ready().await;
    let (number, _) = node.membership();
    cluster.nodes.push(node);
    number
}

/// Waits until so many nodes are live, every shard has a leader and three replicas, and no replica is
/// to be moved; returns the replicas of each live node.
async fn spread_over(cluster: &Cluster, node_count: usize) -> Vec<u32> {
    let is_spread = |status: &StatusResponse| {
        let is_settled = |shard: &ShardStatus| {
            shard.leader != 0 && shard.replicas.len() == 3 && shard.target.is_empty()
        };
        let counts = replica_counts(status);
        let (least, most) = (counts.iter().min(), counts.iter().max());
        counts.len() == node_count
            && status.shards.iter().all(is_settled)
            && least.zip(most).is_some_and(|(least, most)| most - least < IMBALANCE_MIN)
    };
    let what = format!("replicas spread over {node_count} nodes");
    replica_counts(&cluster.status_until(&what, is_spread).await)
}

fn replica_counts(status: &StatusResponse) -> Vec<u32> {
    let live = status.nodes.iter().filter(|node| node.state == "live");
    live.map(|node| node.replica_count).collect()
}
