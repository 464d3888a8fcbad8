//! How many calls a new client makes before its first request about items.

use std::collections::BTreeMap;

use umbel_client::{ClientError, ClientOptions, ErrorCode, Hashing, ReadLevel};

use crate::fake::Cluster;
use crate::{client, numbers, options};

/// The calls so far, without those about items. With more than one node there may be those of the probes of nodes that
/// the map named, which nobody waits for.
fn calls(cluster: &Cluster) -> BTreeMap<&'static str, usize> {
    let mut calls = cluster.world().calls.clone();
    calls.remove("items");
    calls
}

#[tokio::test]
async fn an_insert_needs_one_call_before_it() {
    for hashing in [Hashing::Keyed, Hashing::Public] {
        let cluster = Cluster::start(1).await;
        cluster.put("seen", hashing, 42);
        let seen = client(&cluster, options()).filter("seen");
        assert_eq!(seen.insert(numbers(0..100)).await.unwrap().new_count(), 100);
        let found = seen.contains(numbers(0..100), ReadLevel::Linearizable).await.unwrap();
        assert_eq!(found.present_count(), 100);
        assert_eq!(seen.remove(numbers(0..100)).await.unwrap().removed_count(), 100);
        assert_eq!(calls(&cluster), BTreeMap::from([("open_session", 1)]), "{hashing:?}");
    }
}

#[tokio::test]
async fn the_map_comes_with_the_first_session() {
    let cluster = Cluster::start(3).await;
    cluster.put("seen", Hashing::Keyed, 42);
    let client = client(&cluster, options());
    client.filter("seen").insert(["a"]).await.unwrap();
    assert_eq!(client.node_addresses().len(), 3);
}

#[tokio::test]
async fn a_client_that_learns_no_nodes_gets_no_map() {
    let cluster = Cluster::start(3).await;
    cluster.put("seen", Hashing::Public, 42);
    let client = client(&cluster, ClientOptions { learns_nodes: false, ..options() });
    client.filter("seen").insert(["a"]).await.unwrap();
    assert_eq!(client.node_addresses().len(), 1);
    assert_eq!(calls(&cluster), BTreeMap::from([("open_session", 1)]));
}

#[tokio::test]
async fn a_question_needs_one_call_before_it_and_no_session() {
    let cluster = Cluster::start(1).await;
    cluster.put("seen", Hashing::Public, 42);
    let seen = client(&cluster, options()).filter("seen");
    seen.contains(numbers(0..100), ReadLevel::Linearizable).await.unwrap();
    assert_eq!(calls(&cluster), BTreeMap::from([("list", 1)]));
    seen.insert(["a"]).await.unwrap();
    assert_eq!(calls(&cluster), BTreeMap::from([("list", 1), ("open_session", 1)]));
}

#[tokio::test]
async fn nodes_of_an_older_release_are_called_for_each_part() {
    let cluster = Cluster::start(1).await;
    cluster.world().is_old = true;
    cluster.put("seen", Hashing::Public, 42);
    let asking = client(&cluster, options()).filter("seen");
    asking.contains(numbers(0..100), ReadLevel::Linearizable).await.unwrap();
    assert_eq!(calls(&cluster), BTreeMap::from([("list", 1), ("shard_map", 1)]));
    cluster.world().calls.clear();
    let inserting = client(&cluster, options()).filter("seen");
    assert_eq!(inserting.insert(numbers(0..100)).await.unwrap().new_count(), 100);
    let apart = [("list", 1), ("open_session", 1), ("shard_map", 1)];
    assert_eq!(calls(&cluster), BTreeMap::from(apart));
    assert_eq!(cluster.world().session_count, 1);
}

#[tokio::test]
async fn a_session_that_exists_costs_no_call() {
    let cluster = Cluster::start(1).await;
    cluster.put("one", Hashing::Keyed, 0);
    cluster.put("two", Hashing::Keyed, 0);
    let client = client(&cluster, options());
    let [one, two] = ["one", "two"].map(|name| client.filter(name));
    // The second insert waits for the session that the first one opens.
    let (first, second) = tokio::join!(one.insert(["a"]), two.insert(["b"]));
    assert_eq!((first.unwrap().new_count(), second.unwrap().new_count()), (1, 1));
    assert_eq!(calls(&cluster), BTreeMap::from([("list", 1), ("open_session", 1)]));
    assert_eq!(cluster.world().session_count, 1);
}

#[tokio::test]
async fn a_filter_that_is_not_there_is_looked_up_again() {
    let cluster = Cluster::start(1).await;
    let late = client(&cluster, options()).filter("late");
    let error = late.insert(["a"]).await.unwrap_err();
    let ClientError::Refused(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.cause, ErrorCode::UnknownFilter);
    assert_eq!(calls(&cluster), BTreeMap::from([("open_session", 1)]));
    cluster.put("late", Hashing::Public, 42);
    assert_eq!(late.insert(["a"]).await.unwrap().new_count(), 1);
    assert_eq!(calls(&cluster), BTreeMap::from([("list", 1), ("open_session", 1)]));
    assert!(!cluster.seen()[1].items.hashes.is_empty(), "its hashing is known");
}

#[tokio::test]
async fn a_replicated_filter_needs_one_call_and_no_session() {
    let cluster = Cluster::start(1).await;
    cluster.put_replicated("near");
    client(&cluster, options()).filter("near").insert(["a"]).await.unwrap();
    assert_eq!(calls(&cluster), BTreeMap::from([("open_session", 1)]));
    assert_eq!(cluster.world().session_count, 0);
}

#[tokio::test]
async fn a_first_call_that_fails_leaves_the_error_of_the_lookup() {
    let cluster = Cluster::start(1).await;
    cluster.put("seen", Hashing::Keyed, 0);
    cluster.world().has_no_majority = true;
    let quick = ClientOptions { attempt_count_max: 2, ..options() };
    let seen = client(&cluster, quick).filter("seen");
    let error = seen.insert(["a"]).await.unwrap_err();
    let ClientError::Unavailable(failure) = &error else { panic!("{error}") };
    assert_eq!((failure.cause, failure.attempt_count), (ErrorCode::NoQuorum, 2));
    assert!(error.to_string().contains("filter \"seen\""), "{error}");
    assert!(cluster.seen().is_empty());
    cluster.world().has_no_majority = false;
    assert_eq!(seen.insert(["a"]).await.unwrap().new_count(), 1);
    assert_eq!(cluster.world().session_count, 1);
}
