//! Changes of the catalogue that a shard cannot apply name that shard, and are applied once it can.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use umbel_client::{Client, ClientError, ClientOptions};

use crate::load::{insert, sharp_filter};
use crate::servers::{Cluster, Server, options, until};

/// Time limit of the changes, which leaves time for a query after the change itself.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Filters to drop: a try needs one of its own, since a filter that is being dropped has no name any more.
const DROPS_MAX: usize = 16;

/// The error of a change whose outcome is unknown, with the shard that it waits for. On a busy machine, a node may lack
/// the time to ask for it.
async fn reason<T: std::fmt::Debug>(change: impl AsyncFn() -> Result<T, ClientError>) -> String {
    until("the reason why a change is late", || async {
        let error = change().await.unwrap_err();
        let text = error.to_string();
        let is_named = matches!(error, ClientError::ChangeUnknown(_)) && text.contains("; shard 0");
        is_named.then_some(text)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_clear_and_a_late_drop_name_the_shard_that_they_wait_for() {
    let mut cluster = Cluster::form(5).await;
    let to_drop: Vec<String> = (0..DROPS_MAX).map(|n| format!("dropped-{n}")).collect();
    for name in to_drop.iter().map(String::as_str).chain(["cleared"]) {
        cluster.client().create(name, &sharp_filter()).await.unwrap();
        insert(&cluster.client().filter(name), &[1, 2, 3]).await;
    }
    // Shard 0 loses two replicas; the catalogue still has three of five voters.
    let status = cluster
        .status_until("shard 0 has three replicas", |status| status.shards[0].replicas.len() == 3)
        .await;
    let gone: Vec<usize> = status.shards[0].replicas[..2]
        .iter()
        .map(|&node| usize::try_from(node).unwrap() - 1)
        .collect();
    gone.iter().for_each(|&node| cluster.nodes[node].kill());
    let is_left = |&(at, _): &(usize, &Server)| !gone.contains(&at);
    let left = cluster.nodes.iter().enumerate().filter(is_left);
    let left: Vec<&str> = left.map(|(_, node)| node.address.as_str()).collect();
    let hasty = ClientOptions { timeout: TIMEOUT, attempt_timeout: TIMEOUT, ..options() };
    let client = Client::connect_with(left, hasty).unwrap();
    until("the catalogue has a leader", || async {
        client.create("sign", &sharp_filter()).await.err().as_ref().and_then(reason_if_begun)
    })
    .await;

    let cleared = reason(async || client.clear("cleared").await).await;
    assert!(cleared.contains("not every shard has done its part"), "{cleared}");
    let tries = AtomicUsize::new(0);
    reason(async || {
        let name = to_drop.get(tries.fetch_add(1, Ordering::Relaxed));
        client.drop_filter(name.expect("a try names the shard")).await
    })
    .await;
    let dropped = &to_drop[tries.into_inner() - 1];

    gone.iter().for_each(|&node| cluster.nodes[node].start());
    for node in gone {
        cluster.nodes[node].ready().await;
    }
    let client = cluster.client();
    until("both changes are done", || async {
        let filters = client.list("").await.ok()?;
        let names: Vec<_> = filters.iter().map(|filter| filter.name.as_str()).collect();
        (!names.contains(&dropped.as_str())).then_some(())?;
        (client.info("cleared").await.ok()?.new_count == 0).then_some(())
    })
    .await;
}

/// Some if the catalogue has accepted a change that a shard has not applied.
fn reason_if_begun(error: &ClientError) -> Option<()> {
    error.to_string().contains("not every shard has done its part").then_some(())
}
