//! Single items of many tasks, which are sent in batches.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

use tokio::task::JoinSet;
use umbel_client::proto::{Applied, ErrorCode};
use umbel_client::{Client, ClientError, Hashing, ReadLevel};

use crate::fake::{Cluster, Fault, detail};
use crate::{client, options};

const TASKS: usize = 200;

async fn handle(cluster: &Cluster) -> Client {
    cluster.put("seen", Hashing::Keyed, 0);
    client(cluster, options())
}

#[tokio::test]
async fn items_of_many_tasks_go_in_few_requests_and_one_of_equal_ones_is_new() {
    let cluster = Cluster::start(1).await;
    let seen = handle(&cluster).await.filter("seen");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let seen = seen.clone();
        let item = (task / 2).to_string();
        tasks.spawn(async move { (item.clone(), seen.insert_one(item).await.unwrap()) });
    }
    let mut new_counts: BTreeMap<String, usize> = BTreeMap::new();
    for (item, is_new) in tasks.join_all().await {
        *new_counts.entry(item).or_default() += usize::from(is_new);
    }
    assert_eq!(new_counts.len(), TASKS / 2);
    assert!(new_counts.values().all(|&count| count == 1), "{new_counts:?}");
    // All tasks have added their items before the first gets an answer: two batches, and the items that
    // waited.
    assert!(cluster.seen().len() <= 4, "{} requests", cluster.seen().len());

    let level = ReadLevel::Linearizable;
    let asked = ["0", "nobody", "99"].map(|item| seen.contains_one(item, level));
    let [first, none, last] = asked.map(|asked| async { asked.await.unwrap() });
    assert_eq!(tokio::join!(first, none, last), (true, false, true));
}

#[tokio::test]
async fn a_lone_item_goes_at_once_and_what_cannot_travel_spoils_nobody_elses() {
    let cluster = Cluster::start(1).await;
    let seen = handle(&cluster).await.filter("seen");
    assert!(seen.insert_one("alice").await.unwrap());
    assert!(!seen.insert_one("alice").await.unwrap());
    assert_eq!(cluster.seen().len(), 2);
    let long = vec![0; (16 << 20) + 1];
    let (long, short) = tokio::join!(seen.insert_one(&long), seen.insert_one("bob"));
    assert!(matches!(&*long.unwrap_err(), ClientError::Item(_)));
    assert!(short.unwrap());
}

#[tokio::test]
async fn a_failure_is_returned_to_all_of_its_batch_and_to_nobody_behind_it() {
    let cluster = Cluster::start(1).await;
    let seen = handle(&cluster).await.filter("seen");
    assert!(seen.insert_one("first").await.unwrap(), "what the filter is like is known");
    let refusal = detail(ErrorCode::FilterFull, Applied::No);
    cluster.fail([Fault::Refuse(umbel_client::Code::ResourceExhausted, refusal)]);
    let refused = seen.insert_one("a").await.unwrap_err();
    let ClientError::Refused(failure) = &*refused else { panic!("{refused}") };
    assert_eq!(failure.cause, ErrorCode::FilterFull);
    assert!(seen.insert_one("a").await.unwrap());
}

#[tokio::test]
async fn an_item_whose_task_has_gone_before_its_turn_is_not_sent() {
    let cluster = Cluster::start(1).await;
    let seen = handle(&cluster).await.filter("seen");
    let mut gone = Box::pin(seen.insert_one("gone"));
    // The task that sends it has not had its turn when this goes on.
    let is_waiting = poll_fn(|cx| Poll::Ready(gone.as_mut().poll(cx).is_pending())).await;
    assert!(is_waiting);
    drop(gone);
    assert!(seen.insert_one("stays").await.unwrap());
    assert!(seen.insert_one("gone").await.unwrap(), "it was sent before");
}

#[tokio::test]
async fn who_gives_up_takes_nothing_from_the_others() {
    let cluster = Cluster::start(1).await;
    let seen = handle(&cluster).await.filter("seen");
    let given_up = tokio::spawn({
        let seen = seen.clone();
        async move { seen.insert_one("gone").await }
    });
    let others = ["a", "b"].map(|item| seen.insert_one(item));
    given_up.abort();
    let [a, b] = others.map(|inserted| async { inserted.await.unwrap() });
    assert_eq!(tokio::join!(a, b), (true, true));
}
