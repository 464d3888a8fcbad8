//! The release of each node, as an operator sees it.

use crate::servers::{Cluster, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_not_raised_while_a_node_is_away() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    // All founders run the same release.
    let found = until("the releases of all nodes", || async {
        client.upgrade(true).await.ok().filter(|found| found.newest_common != 0)
    })
    .await;
    assert_eq!((found.cluster_version, found.newest_common), (6, 6));
    assert_eq!(found.nodes.len(), 3);
    for node in &found.nodes {
        assert_eq!((node.oldest_version, node.newest_version), (1, 6), "{node:?}");
        assert_eq!((&*node.release, &*node.failure), (env!("CARGO_PKG_VERSION"), ""));
    }
    // Each node has two seconds for its answer.
    until("the same releases", || async {
        client.upgrade(false).await.ok().filter(|again| *again == found)
    })
    .await;
    assert_eq!(client.status().await.unwrap().cluster_version, 6);

    cluster.nodes[2].kill();
    let away = client.upgrade(false).await.unwrap();
    assert_eq!((away.cluster_version, away.newest_common), (6, 0));
    let silent: Vec<_> = away.nodes.iter().filter(|node| !node.failure.is_empty()).collect();
    assert_eq!(silent.len(), 1);
    assert_eq!(silent[0].address, cluster.nodes[2].address);

    cluster.nodes[2].start();
    until("the node that is back", || async {
        client.upgrade(true).await.ok().filter(|found| found.newest_common == 6)
    })
    .await;
}
