//! Changes of the catalogue that a shard cannot apply name that shard, and are applied once it can.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use umbel_client::{Client, ClientError, ClientOptions};

use crate::load::{insert, sharp_filter};
use crate::servers::{Cluster, Server, options, until};

/// Time limit of the first try of a change, which leaves time for a query after the change itself. Each further try has
/// twice as much, because a busy machine needs more.
const TIMEOUT: Duration = Duration::from_secs(4);

/// The most that a try has.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Filters to drop: a try needs one of its own, since a filter that is being dropped has no name any more.
const DROPS_MAX: usize = 16;

/// Tries a change through clients of these nodes until its error is as wanted; returns what is wanted of it.
async fn until_refused<R>(
    addresses: &[&str],
    change: impl AsyncFn(Client) -> Option<ClientError>,
    wanted: impl Fn(&ClientError) -> Option<R>,
) -> R {
    let next = Cell::new(TIMEOUT);
    until("the reason why a change is late", || async {
        let timeout = next.get();
        next.set((2 * timeout).min(TIMEOUT_MAX));
        let hasty = ClientOptions { timeout, attempt_timeout: timeout, ..options() };
        let client = Client::connect_with(addresses.to_vec(), hasty).unwrap();
        wanted(&change(client).await?)
    })
    .await
}

/// The text of the error of a change whose outcome is unknown, if it names the shard that the change waits for. On a busy
/// machine, a node may lack the time to ask for it.
fn reason(error: &ClientError) -> Option<String> {
    let text = error.to_string();
    let is_named = matches!(error, ClientError::ChangeUnknown(_)) && text.contains("; shard 0");
    is_named.then_some(text)
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
    // Once the catalogue has a leader.
    let made = async |client: Client| client.create("sign", &sharp_filter()).await.err();
    until_refused(&left, made, reason_if_begun).await;

    let cleared = async |client: Client| Some(client.clear("cleared").await.unwrap_err());
    let cleared = until_refused(&left, cleared, reason).await;
    assert!(
        cleared.contains("not every shard has done its part for filter \"cleared\""),
        "{cleared}"
    );
    let tries = AtomicUsize::new(0);
    let dropped = async |client: Client| {
        let name = to_drop.get(tries.fetch_add(1, Ordering::Relaxed));
        let name = name.expect("a try names the shard");
        Some(client.drop_filter(name).await.unwrap_err())
    };
    until_refused(&left, dropped, reason).await;
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
