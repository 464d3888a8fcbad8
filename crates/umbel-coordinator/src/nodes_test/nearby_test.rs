//! Reads that ask the fewest nodes.

use umbel_filter::Kind;

use super::Coordinated;
use super::node_test::{create, create_replicated, deadline, items, start_cluster};
use crate::ReadLevel;

/// The node that is asked may hear of the filters only by that.
#[tokio::test(flavor = "multi_thread")]
async fn a_nearby_read_is_at_a_level_that_the_filter_has() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let (one, two) = (nodes[0].coordinator(), nodes[1].coordinator());
    for (filter, level) in [("near", ReadLevel::Local), ("cut", ReadLevel::AnyReplica)] {
        match level {
            ReadLevel::Local => create_replicated(&one, filter).await,
            _ => drop(create(&one, filter, Kind::Blocked).await),
        }
        let (present, got) = two.contains_nearby(filter, &items(0..1), deadline()).await.unwrap();
        assert_eq!((present.count_ones(), got), (0, level));
        two.insert(filter, &items(0..100), None, None, deadline()).await.unwrap();
        let (present, got) = two.contains_nearby(filter, &items(0..100), deadline()).await.unwrap();
        assert_eq!((present.count_ones(), got), (100, level));
    }
    drop((one, two));
    for node in nodes {
        node.shutdown().await;
    }
}
