//! Shards that are split and merged while clients insert and query.

use umbel_client::proto::ShardStatus;
use umbel_client::{Client, ClientError, NewFilter, ReadLevel, StatusResponse};

use crate::history::History;
use crate::load::{Load, contains, item, sharp_filter};
use crate::servers::{Cluster, until};

/// Splits shards until there are this many, despite failures.
pub(crate) async fn split_to(cluster: &Cluster, wanted: usize) {
    let client = cluster.client();
    until("the splits", || async {
        let count = client.status().await.ok()?.shards.len();
        if count >= wanted {
            return Some(());
        }
        match client.split_shard(u32::try_from(count + 1).unwrap()).await {
            // The number of shards is read again.
            Ok(_) | Err(ClientError::Unavailable(_) | ClientError::OrderUnknown(_)) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

/// Merges shards until there are this many, despite failures.
async fn merge_to(cluster: &Cluster, wanted: usize) {
    let client = cluster.client();
    until("the merges", || async {
        let count = client.status().await.ok()?.shards.len();
        if count <= wanted {
            return Some(());
        }
        match client.merge_shard(u32::try_from(count - 1).unwrap()).await {
            // The number of shards is read again.
            Ok(_) | Err(ClientError::Unavailable(_) | ClientError::OrderUnknown(_)) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

fn addresses(cluster: &Cluster) -> Vec<String> {
    cluster.nodes.iter().map(|node| node.address.clone()).collect()
}

/// Asserts that the ranges tile the space, and that the widest is at most twice the narrowest.
fn assert_tiled(shards: &[ShardStatus]) {
    let mut ranges: Vec<_> =
        shards.iter().map(|shard| (shard.range_start, shard.range_last)).collect();
    ranges.sort_unstable();
    let mut next = 0;
    for &(start, last) in &ranges {
        assert_eq!(u128::from(start), next, "{ranges:?}");
        next = u128::from(last) + 1;
    }
    assert_eq!(next, 1 << 64);
    let widths = || ranges.iter().map(|&(start, last)| last - start);
    assert!(widths().max().unwrap() / 2 <= widths().min().unwrap(), "{ranges:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_split_under_load_and_amid_kills() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let before = client.status().await.unwrap().shards.len();
    let mut load = Load::begin("seen", &addresses(&cluster));
    load.progress(1000).await;
    split_to(&cluster, before + 3).await;
    load.progress(300).await;
    // A node that was down gets its replicas of the new shards from their leaders.
    cluster.nodes[2].kill();
    split_to(&cluster, before + 6).await;
    load.progress(300).await;
    cluster.nodes[2].start();
    cluster.nodes[2].ready().await;
    split_to(&cluster, before + 8).await;
    load.progress(300).await;
    let mut history = load.finish().await;
    // The new shards are on the disks of their nodes.
    let status = restarted(&mut cluster).await;
    assert_eq!(status.shards.len(), before + 8);
    assert_tiled(&status.shards);
    check_all(&client, &mut history).await;
}

/// The status after the death of all nodes at once, when each shard has a leader again.
async fn restarted(cluster: &mut Cluster) -> StatusResponse {
    cluster.nodes.iter_mut().for_each(crate::servers::Server::kill);
    cluster.nodes.iter_mut().for_each(crate::servers::Server::start);
    for node in &mut cluster.nodes {
        node.ready().await;
    }
    cluster
        .status_until("a leader and three replicas of each shard", |status| {
            let is_whole = |shard: &ShardStatus| shard.leader != 0 && shard.replicas.len() == 3;
            status.shards.iter().all(is_whole)
        })
        .await
}

/// After the merges, the next splits give the same numbers to other shards.
#[tokio::test(flavor = "multi_thread")]
async fn shards_are_merged_under_load_and_amid_kills_and_split_again() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let before = client.status().await.unwrap().shards.len();
    let mut load = Load::begin("seen", &addresses(&cluster));
    split_to(&cluster, before + 4).await;
    load.progress(1000).await;
    merge_to(&cluster, before + 3).await;
    load.progress(300).await;
    // A node that was down has no final state of the shards that were merged meanwhile.
    cluster.nodes[2].kill();
    merge_to(&cluster, before + 1).await;
    load.progress(300).await;
    cluster.nodes[2].start();
    cluster.nodes[2].ready().await;
    merge_to(&cluster, before).await;
    load.progress(300).await;
    split_to(&cluster, before + 2).await;
    load.progress(300).await;
    merge_to(&cluster, before + 1).await;
    let mut history = load.finish().await;
    check_all(&client, &mut history).await;
    let status = restarted(&mut cluster).await;
    assert_eq!((status.shards.len(), status.merging), (before + 1, None));
    assert_tiled(&status.shards);
    check_all(&client, &mut history).await;
    let refused = client.merge_shard(u32::try_from(before - 1).unwrap()).await.unwrap_err();
    let founded = format!("was started with {before} shards has at least {before}");
    assert!(refused.to_string().contains(&founded), "{refused}");
}

/// Asserts that no acknowledged item is missing.
async fn check_all(client: &Client, history: &mut History) {
    let items = history.acknowledged().to_vec();
    let found = contains(&client.filter("seen"), &items, ReadLevel::Linearizable).await;
    items.iter().zip(found).for_each(|(&item, is_present)| history.asked(item, is_present));
    history.check();
}

/// A filter that is created after splits, and one that grows, on shards of two widths.
#[tokio::test(flavor = "multi_thread")]
async fn filters_are_made_and_grow_on_shards_that_were_split() {
    let cluster = Cluster::form(1).await;
    let client = cluster.client();
    let growing =
        NewFilter { kind: umbel_client::Kind::Scalable, ..NewFilter::for_rate(2_000, 0.01) };
    client.create("grows", &growing).await.unwrap();
    let grows = client.filter("grows");
    grows.insert((0..5_000).map(item)).await.unwrap();
    let before = client.status().await.unwrap().shards.len();
    split_to(&cluster, before + 1).await;
    client.create("later", &NewFilter::for_rate(20_000, 0.01)).await.unwrap();
    let later = client.filter("later");
    later.insert((0..20_000).map(item)).await.unwrap();
    grows.insert((5_000..20_000).map(item)).await.unwrap();
    for filter in [&grows, &later] {
        let all = filter.contains((0..20_000).map(item), ReadLevel::Linearizable).await.unwrap();
        assert_eq!(all.iter().filter(|&is_present| is_present).count(), 20_000);
        let strangers =
            filter.contains((20_000..40_000).map(item), ReadLevel::Linearizable).await.unwrap();
        let wrong = strangers.iter().filter(|&is_present| is_present).count();
        assert!(wrong < 300, "{wrong} of 20,000, where 200 are expected at most");
    }
    for name in ["grows", "later"] {
        let info = client.info(name).await.unwrap();
        assert!(info.false_positive_rate_now < 0.012, "{info:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_split_by_themselves_until_every_core_has_two_replicas() {
    let cluster = Cluster::form_with(3, |node| node.set("UMBEL_CORES", "5")).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let status = client.status().await.unwrap();
    // The number was set explicitly, so it does not change.
    assert_eq!((status.shards.len(), status.auto_split), (4, false));
    let mut load = Load::begin("seen", &addresses(&cluster));
    load.progress(300).await;
    client.set_auto_split(true).await.unwrap();
    let status = cluster
        .status_until("two replicas for each of 15 cores", |status| status.shards.len() == 16)
        .await;
    assert_eq!((status.auto_split, status.shards_wanted), (true, 16));
    assert_tiled(&status.shards);
    load.progress(300).await;
    let mut history = load.finish().await;
    check_all(&client, &mut history).await;
}
