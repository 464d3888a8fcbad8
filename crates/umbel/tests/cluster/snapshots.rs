//! Snapshots: of items that were inserted one after the other, each has a prefix and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umbel_client::{Client, ClientError, ExportOptions, ReadLevel};

use crate::load::{contains, copy_with, insert, item, sharp_filter};
use crate::servers::{Cluster, until};

const SNAPSHOT: ExportOptions = ExportOptions { known: None, snapshot: true };

/// Inserts items one after the other until told to stop, and counts how many were sent and acknowledged.
struct Chain {
    begun: AtomicU64,
    answered: AtomicU64,
    is_over: AtomicBool,
}

impl Chain {
    async fn run(self: Arc<Self>, client: Client, filter: &'static str) {
        let filter = client.filter(filter);
        for number in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            self.begun.store(number + 1, Ordering::SeqCst);
            insert(&filter, &[number]).await;
            self.answered.store(number + 1, Ordering::SeqCst);
        }
    }
}

/// Takes a snapshot; false if it was given up, as one is for which a busy machine takes too long: the shards let writes
/// pass again.
async fn is_taken(client: &Client, copy: &str) -> bool {
    match copy_with(client, "chain", copy, SNAPSHOT).await {
        Ok(()) => true,
        Err(ClientError::Unavailable(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Takes a snapshot while the chain continues, and checks which items it has.
async fn check_snapshot(client: &Client, chain: &Chain, copy: &str) {
    let answered = until("a snapshot", || async {
        let answered = chain.answered.load(Ordering::SeqCst);
        is_taken(client, copy).await.then_some(answered)
    })
    .await;
    let begun = chain.begun.load(Ordering::SeqCst);
    let numbers: Vec<u64> = (0..begun + 20).collect();
    let shown = contains(&client.filter(copy), &numbers, ReadLevel::Linearizable).await;
    let count = shown.iter().filter(|shown| **shown).count();
    assert!(shown[..count].iter().all(|shown| *shown), "{copy} shows {count} items with a gap");
    let least = usize::try_from(answered).unwrap();
    let most = usize::try_from(begun).unwrap();
    assert!((least..=most).contains(&count), "{copy} shows {count} of {least} to {most} items");
    client.drop_filter(copy).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_shows_what_was_inserted_up_to_one_moment() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("chain", &sharp_filter()).await.unwrap();
    let chain = Arc::new(Chain {
        begun: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let inserting = tokio::spawn(Arc::clone(&chain).run(client.clone(), "chain"));
    let grown = |least| {
        let chain = Arc::clone(&chain);
        until("more items", move || {
            let answered = chain.answered.load(Ordering::SeqCst);
            async move { (answered >= least).then_some(()) }
        })
    };
    grown(50).await;
    for number in 0..4 {
        check_snapshot(&client, &chain, &format!("copy.{number}")).await;
    }
    // Others lead its shards now, and have not copied these slices.
    cluster.nodes[2].kill();
    let client = cluster.nodes[0].patient_client();
    until("a snapshot without the killed node", || async {
        copy_with(&client, "chain", "early", SNAPSHOT).await.ok()
    })
    .await;
    check_snapshot(&client, &chain, "late").await;
    chain.is_over.store(true, Ordering::SeqCst);
    inserting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_of_a_filter_that_is_not_there_or_cannot_answer_change_nothing() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    let error = copy_with(&client, "chain", "copy", SNAPSHOT).await.unwrap_err();
    assert!(error.to_string().contains("there is no filter named \"chain\""), "{error}");
    client.create("chain", &sharp_filter()).await.unwrap();
    // No node has a majority.
    cluster.nodes[1].kill();
    cluster.nodes[2].kill();
    let hasty = cluster.nodes[0].hasty_client();
    let error = copy_with(&hasty, "chain", "copy", SNAPSHOT).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
    let client = cluster.nodes[0].client();
    cluster.nodes[1].start();
    cluster.nodes[1].ready().await;
    let inserted = client.filter("chain").insert([item(1)]).await.unwrap();
    assert_eq!(inserted.new_count(), 1);
    until("a snapshot", || async { is_taken(&client, "copy").await.then_some(()) }).await;
    let found = contains(&client.filter("copy"), &[1, 2], ReadLevel::Linearizable).await;
    assert_eq!(found, [true, false]);
}
