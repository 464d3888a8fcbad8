//! Processes that are killed: one at a time under load, and all at once; and one that hangs.

use umbel_client::{Client, ClientOptions, ReadLevel, StatusResponse};

use crate::load::{Load, contains, insert, sharp_filter};
use crate::servers::{Cluster, LOOK_INTERVAL, Server, number_of, options, page, until};

/// Items that must be queried while nodes are killed.
const QUESTION_ITEMS: usize = 10_000;

/// Items that must be acknowledged while a node is down, and again after its restart.
const PROGRESS_ITEMS: usize = 1500;

/// Milliseconds after which nodes miss one that hangs: long enough for checks of readiness to meet its silence, and for no
/// node to be missed because its machine is slow. An election may take ten times as long.
const LONG_SUSPECT_MS: &str = "6000";

pub(crate) fn addresses(cluster: &Cluster) -> Vec<String> {
    cluster.nodes.iter().map(|node| node.address.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_nodes_lose_nothing_and_nothing_is_new_twice() {
    let rounds = number_of("UMBEL_CLUSTER_TEST_ROUNDS", 3);
    let mut cluster = Cluster::form(3).await;
    cluster.client().create("seen", &sharp_filter()).await.unwrap();
    let mut load = Load::begin("seen", &addresses(&cluster));
    load.progress(PROGRESS_ITEMS).await;
    for round in 0..usize::try_from(rounds).unwrap() {
        let node = round % 3;
        cluster.nodes[node].kill();
        load.progress(PROGRESS_ITEMS).await;
        cluster.nodes[node].start();
        cluster.nodes[node].ready().await;
        load.progress(PROGRESS_ITEMS).await;
    }
    load.questions(QUESTION_ITEMS).await;
    let mut history = load.finish().await;
    let asked_under_load = history.question_count();
    // In the end, every node has all items.
    let items = history.acknowledged().to_vec();
    for node in &cluster.nodes {
        let filter = node.client().filter("seen");
        let found = contains(&filter, &items, ReadLevel::Linearizable).await;
        items.iter().zip(found).for_each(|(&item, is_present)| history.asked(item, is_present));
    }
    history.check();
    println!("{rounds} rounds: {} items, {asked_under_load} questions", items.len());
}

/// Asks these nodes whether they are ready, for ever.
///
/// # Panics
///
/// If one of them is not, except for entries that reach it late.
async fn stay_ready(addresses: &[String]) {
    loop {
        for address in addresses {
            let said = page(address, "/readyz").await.unwrap();
            let is_ready = said.starts_with("HTTP/1.1 200 ");
            assert!(is_ready || said.contains("this replica has applied"), "{address}: {said}");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_stay_ready_while_they_elect_leaders_in_the_place_of_one_that_hangs() {
    let cluster = Cluster::form_with(3, |node| node.set("UMBEL_SUSPECT_MS", LONG_SUSPECT_MS)).await;
    let are_led = |status: &StatusResponse| status.shards.iter().all(|shard| shard.leader != 0);
    let status = cluster.status_until("all shards have leaders", are_led).await;
    let hangs = status.shards[0].leader;
    let index = usize::try_from(hangs).unwrap() - 1;
    let mut others = addresses(&cluster);
    others.remove(index);
    cluster.nodes[index].signal("STOP");
    let options = ClientOptions { learns_nodes: false, ..options() };
    let client = Client::connect_with(others.join(",").as_str(), options).unwrap();
    let are_others = |status: &StatusResponse| {
        are_led(status) && status.shards.iter().all(|shard| shard.leader != hangs)
    };
    let elected = until("all shards have other leaders", || async {
        client.status().await.ok().filter(&are_others)
    });
    tokio::select! {
        () = stay_ready(&others) => {}
        _ = elected => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_items_outlive_the_death_of_all_nodes_at_once() {
    let mut cluster = Cluster::form(3).await;
    cluster.client().create("seen", &sharp_filter()).await.unwrap();
    let mut load = Load::begin("seen", &addresses(&cluster));
    load.progress(2 * PROGRESS_ITEMS).await;
    // Requests are under way; they are repeated under the same names after the restart.
    cluster.nodes.iter_mut().for_each(Server::kill);
    cluster.nodes.iter_mut().for_each(Server::start);
    for node in &mut cluster.nodes {
        node.ready().await;
    }
    load.progress(PROGRESS_ITEMS).await;
    let mut history = load.finish().await;
    let items = history.acknowledged().to_vec();
    let filter = cluster.client().filter("seen");
    let found = contains(&filter, &items, ReadLevel::Linearizable).await;
    items.iter().zip(found).for_each(|(&item, is_present)| history.asked(item, is_present));
    history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_has_everything_again_after_each_end() {
    let mut cluster = Cluster::none().await;
    let mut node = cluster.another(&["--dev"]);
    node.start();
    node.ready().await;
    cluster.nodes.push(node);
    let membership = cluster.nodes[0].membership();
    cluster.client().create("seen", &sharp_filter()).await.unwrap();
    let mut expected = Vec::new();
    for round in 0..4 {
        let node = &mut cluster.nodes[0];
        let filter = node.client().filter("seen");
        let items: Vec<u64> = (round * 1000..(round + 1) * 1000).collect();
        assert_eq!(insert(&filter, &items).await.new_count(), items.len());
        expected.extend(items);
        if round % 2 == 0 {
            node.kill();
        } else {
            assert_eq!(node.stop().await.code(), Some(0), "{}", node.log());
        }
        node.start();
        node.ready().await;
        assert_eq!(node.membership(), membership);
        let filter = node.client().filter("seen");
        let found = contains(&filter, &expected, ReadLevel::Linearizable).await;
        assert!(found.iter().all(|&is_present| is_present));
        assert_eq!(insert(&filter, &expected).await.new_count(), 0);
    }
    let address = cluster.nodes[0].address.clone();
    until("the metrics say that all shards are led here", || async {
        let metrics = page(&address, "/metrics").await?;
        metrics.contains("\numbel_shards_led 4\n").then_some(())
    })
    .await;
}
