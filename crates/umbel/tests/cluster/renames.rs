//! Names that are moved to other filters while clients query by name through every node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;
use umbel_client::{Client, ClientError, ErrorCode, ReadLevel};

use crate::load::{insert, item, sharp_filter};
use crate::servers::Cluster;

/// How many times a new filter takes the name of the previous one.
const ROUNDS: u64 = 6;

/// Queries by name until told to stop. Each round's filter has only the item of that round, so the
/// answers tell which filter was queried; none may be older than what an earlier answer showed.
async fn watch(client: Client, newest: Arc<AtomicU64>, is_over: Arc<AtomicBool>) -> u64 {
    let mut answered = 0;
    // At least once, however slow the node is.
    while answered == 0 || !is_over.load(Ordering::SeqCst) {
        let before = newest.load(Ordering::SeqCst);
        let items = (0..=ROUNDS).map(item);
        let filter = client.filter("current");
        let found = match filter.contains(items, ReadLevel::Linearizable).await {
            Ok(found) => found,
            // It has only just got the name, and will be ready in a moment.
            Err(ClientError::Unavailable(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        let rounds: Vec<u64> =
            (0..).zip(found.iter()).filter(|(_, found)| *found).map(|(round, _)| round).collect();
        let [round] = rounds[..] else { panic!("an answer is of the filters {rounds:?}") };
        assert!(round >= before, "round {round} was answered after round {before}");
        newest.fetch_max(round, Ordering::SeqCst);
        answered += 1;
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_takes_the_place_of_another_and_nobody_meets_neither() {
    let cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("current", &sharp_filter()).await.unwrap();
    insert(&client.filter("current"), &[0]).await;
    let (newest, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut watching = JoinSet::new();
    for node in &cluster.nodes {
        watching.spawn(watch(node.patient_client(), Arc::clone(&newest), Arc::clone(&is_over)));
    }
    for round in 1..=ROUNDS {
        client.create("next", &sharp_filter()).await.unwrap();
        insert(&client.filter("next"), &[round]).await;
        let renamed = client.rename_over("next", "current").await.unwrap().filter;
        assert_eq!((renamed.name.as_str(), renamed.state.as_str()), ("current", "live"));
        newest.fetch_max(round, Ordering::SeqCst);
        // No node knows the old name any more.
        for node in &cluster.nodes {
            let error = node.client().filter("next").insert([item(9)]).await.unwrap_err();
            let cause = error.failure().map(|failure| failure.cause);
            assert_eq!(cause, Some(ErrorCode::UnknownFilter), "{error}");
        }
    }
    is_over.store(true, Ordering::SeqCst);
    for answered in watching.join_all().await {
        assert!(answered > 0);
    }
    assert_eq!(client.list("").await.unwrap().len(), 1);
}
