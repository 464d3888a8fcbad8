//! A cluster forms, and items that are inserted through one node are present through every other.

use umbel_client::{NewFilter, ReadLevel};

use crate::load::item;
use crate::servers::{Cluster, Server, founders, number_of, page, until};

/// Items of a batch, which needs several requests.
const BATCH_ITEMS: u64 = 200_000;

#[tokio::test(flavor = "multi_thread")]
async fn items_inserted_through_one_node_are_found_through_every_other() {
    let item_count = number_of("UMBEL_CLUSTER_TEST_ITEMS", 200_000);
    // The last one of three is given another number.
    let mut numbers = ["16", "16", "8"].into_iter().cycle();
    let set_shards = |node: &mut Server| node.set("UMBEL_SHARDS", numbers.next().unwrap());
    let cluster = Cluster::form_with(3, set_shards).await;
    let has_warned = |node: &Server| node.log().contains("was started for 8 and 3");
    assert_eq!(
        cluster.nodes.iter().map(has_warned).collect::<Vec<_>>(),
        [false, false, true],
        "{}",
        cluster.logs()
    );
    let memberships: Vec<(u64, String)> = cluster.nodes.iter().map(Server::membership).collect();
    assert!((1..).zip(&memberships).all(|(number, found)| found.0 == number), "{memberships:?}");
    assert!(memberships.iter().all(|found| found.1 == memberships[0].1), "{memberships:?}");
    let status = cluster
        .status_until("all shards led by somebody", |status| {
            status.shards.iter().all(|shard| shard.leader != 0)
        })
        .await;
    assert_eq!((status.nodes.len(), status.shards.len()), (3, 16));
    assert!(status.shards.iter().all(|shard| shard.replicas == [1, 2, 3]), "{status:?}");

    let rate = 0.01;
    let new = NewFilter::for_rate(item_count, rate);
    cluster.nodes[0].patient_client().create("seen", &new).await.unwrap();
    let into = cluster.nodes[1].patient_client().filter("seen");
    let mut new_count = 0;
    for start in (0..item_count).step_by(usize::try_from(BATCH_ITEMS).unwrap()) {
        let end = (start + BATCH_ITEMS).min(item_count);
        let inserted = into.insert((start..end).map(item)).await.unwrap();
        new_count += inserted.new_count() as u64;
    }
    // At most the false positives were reported as present.
    assert!(new_count <= item_count && new_count as f64 > item_count as f64 * (1.0 - rate));

    for node in &cluster.nodes {
        let filter = node.patient_client().filter("seen");
        let mut false_count = 0;
        for start in (0..item_count).step_by(usize::try_from(BATCH_ITEMS).unwrap()) {
            let end = (start + BATCH_ITEMS).min(item_count);
            let found = filter.contains((start..end).map(item), ReadLevel::Linearizable).await;
            assert_eq!(found.unwrap().absent_count(), 0, "through {}", node.address);
            let others = (start..end).map(|number| item(number + item_count));
            let found = filter.contains(others, ReadLevel::AnyReplica).await.unwrap();
            false_count += found.present_count();
        }
        // Six standard deviations above the mean.
        let mean = item_count as f64 * rate;
        let bound = mean + 6.0 * mean.sqrt();
        assert!((false_count as f64) < bound, "{false_count} false positives, below {bound}");
        assert!(false_count > 0, "no false positive in {item_count} items");
    }
    let info = cluster.nodes[2].client().info("seen").await.unwrap();
    assert_eq!(info.new_count, new_count);
}

/// The third founder is never started.
#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_founder_says_whom_it_waits_for_also_when_nodes_start_anew() {
    let mut cluster = Cluster::none().await;
    cluster.nodes = founders(cluster.folder.path(), 3);
    let [first, second] = [0, 1].map(|node| cluster.nodes[node].address.clone());
    let until_it_says = async |words: &str| {
        let ask = || async { page(&second, "/readyz").await.filter(|page| page.contains(words)) };
        until(words, ask).await;
    };
    let forms = format!("the founder {first} forms it, and its page /readyz names");
    let silent = format!("the founder {first} does not answer this node: start it");
    cluster.nodes[0].start();
    cluster.nodes[1].start();
    until_it_says(&forms).await;
    cluster.nodes[0].kill();
    until_it_says(&silent).await;
    cluster.nodes[1].kill();
    cluster.nodes[1].start();
    until_it_says(&silent).await;
    cluster.nodes[0].start();
    until_it_says(&forms).await;
}
