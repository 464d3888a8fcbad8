//! A cluster forms, and items that are inserted through one node are present through every other.

use umbel_client::{NewFilter, ReadLevel};

use crate::load::item;
use crate::servers::{Cluster, Server, number_of};

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
