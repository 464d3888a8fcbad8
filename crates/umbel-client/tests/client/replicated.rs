//! Replicated filters: one node at a time, no request ids, levels, nodes that do not confirm.

use std::time::Duration;

use umbel_client::{
    AckLevel, Applied, ClientError, ClientOptions, Code, Distribution, ErrorCode, Filter, Hashing,
    NewFilter, Outcome, ReadLevel,
};

use crate::fake::{Cluster, Fault, Seen, detail};
use crate::{client, numbers, options};

/// Three nodes, a client that knows all of them, and a replicated filter whose hashing is public.
async fn start(options: ClientOptions) -> (Cluster, Filter) {
    let cluster = Cluster::start(3).await;
    cluster.put_replicated("near");
    let client = client(&cluster, options);
    cluster.put("other", Hashing::Keyed, 0);
    client.filter("other").contains(["a"], ReadLevel::Linearizable).await.unwrap();
    while client.node_addresses().len() < 3 {
        tokio::task::yield_now().await;
    }
    cluster.world().seen.clear();
    let near = client.filter("near");
    (cluster, near)
}

fn nodes(seen: &[Seen]) -> Vec<usize> {
    seen.iter().map(|seen| seen.node).collect()
}

#[tokio::test]
async fn one_node_gets_the_items_as_they_are_and_no_names() {
    let (cluster, near) = start(options()).await;
    for start in (0..50).step_by(5) {
        near.insert(numbers(start..start + 5)).await.unwrap();
    }
    // Another handle of the same client, with a batch of several requests.
    let found = near.clone().contains(numbers(0..150_000), ReadLevel::Unspecified).await.unwrap();
    assert_eq!(found.present_count(), 50);
    let seen = cluster.seen();
    assert_eq!(nodes(&seen), [0; 13], "the first address that was given");
    for seen in &seen {
        assert!(seen.items.packed.is_some() && seen.items.hashes.is_empty(), "not routed by hash");
        assert_eq!(seen.request, Default::default());
    }
    assert_eq!(cluster.world().session_count, 0);
}

#[tokio::test]
async fn another_node_is_taken_when_it_fails_and_stayed_with() {
    let (cluster, near) = start(options()).await;
    near.insert(["a"]).await.unwrap();
    cluster.fail([Fault::Break]);
    for number in 0..10_u32 {
        near.insert([number.to_le_bytes()]).await.unwrap();
    }
    let nodes = nodes(&cluster.seen()[1..]);
    assert_eq!(nodes[0], 0, "the one that breaks");
    assert!(nodes[1] != 0 && nodes[1..].iter().all(|node| *node == nodes[1]), "{nodes:?}");
}

#[tokio::test]
async fn levels_travel_and_answers_say_theirs() {
    let (cluster, near) = start(options()).await;
    assert_eq!(near.insert(["a"]).await.unwrap().level(), AckLevel::Local);
    for level in [AckLevel::Local, AckLevel::OnePartner, AckLevel::Majority] {
        assert_eq!(near.insert_at(["a"], level).await.unwrap().level(), level);
    }
    let found = near.contains(numbers(0..70_000), ReadLevel::Unspecified).await.unwrap();
    assert_eq!((found.level(), found.len()), (ReadLevel::Local, 70_000), "of two requests");
    for level in [ReadLevel::Local, ReadLevel::Majority] {
        assert_eq!(near.contains(["a"], level).await.unwrap().level(), level);
    }
    let levels: Vec<i32> = cluster.seen().iter().map(|seen| seen.level).collect();
    assert_eq!(levels, [0, 1, 2, 3, 0, 0, 3, 4]);
    let nothing = near.insert(Vec::<&str>::new()).await.unwrap();
    assert_eq!(nothing.level(), AckLevel::Unspecified);
}

#[tokio::test]
async fn partitioned_filters_have_their_own_levels() {
    let cluster = Cluster::start(3).await;
    cluster.put("open", Hashing::Public, 42);
    cluster.put("keyed", Hashing::Keyed, 0);
    let client = client(&cluster, options());
    for name in ["open", "keyed"] {
        let filter = client.filter(name);
        assert_eq!(filter.insert(numbers(0..100)).await.unwrap().level(), AckLevel::Majority);
        let found = filter.contains(numbers(0..100), ReadLevel::Unspecified).await.unwrap();
        assert_eq!((found.level(), found.present_count()), (ReadLevel::Linearizable, 100));
        let found = filter.contains(["a"], ReadLevel::AnyReplica).await.unwrap();
        assert_eq!(found.level(), ReadLevel::AnyReplica);
        let refused = filter.insert_at(["b"], AckLevel::OnePartner).await;
        assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
        let refused = filter.contains(["b"], ReadLevel::Local).await;
        assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
    }
    assert!(cluster.seen().iter().all(|seen| seen.node < 3 && seen.level != 3));
}

#[tokio::test]
async fn a_second_attempt_gets_present() {
    let (cluster, near) = start(ClientOptions { attempt_count_max: 2, ..options() }).await;
    let unknown = || {
        let detail = detail(ErrorCode::OutcomeUnknown, Applied::Unknown);
        Fault::DoAndRefuse(Code::Aborted, detail)
    };
    cluster.fail([unknown()]);
    assert_eq!(near.insert(["a"]).await.unwrap().present_count(), 1);
    cluster.fail([unknown(), unknown()]);
    let error = near.insert(["b"]).await.unwrap_err();
    let ClientError::OutcomeUnknown { request, .. } = error else { panic!("{error}") };
    let Outcome::Inserted(inserted) = request.resend().await.unwrap() else { panic!() };
    assert_eq!((inserted.present_count(), inserted.level()), (1, AckLevel::Local));
}

#[tokio::test]
async fn no_majority_is_needed_where_a_node_suffices() {
    let age_max = Duration::from_millis(50);
    let quick = ClientOptions { map_age_max: age_max, attempt_count_max: 2, ..options() };
    let (cluster, near) = start(quick).await;
    cluster.world().has_no_majority = true;
    // A handle that knows nothing of the filter, with a level that only replicated filters have.
    near.insert_at(["a"], AckLevel::Local).await.unwrap();
    assert_eq!(near.contains(["a"], ReadLevel::Local).await.unwrap().present_count(), 1);
    let error = near.insert(["a"]).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
    // A handle that has looked the filter up before.
    cluster.world().has_no_majority = false;
    near.insert(["a"]).await.unwrap();
    cluster.world().has_no_majority = true;
    tokio::time::sleep(age_max * 2).await;
    assert_eq!(near.insert(["b"]).await.unwrap().level(), AckLevel::Local);
    assert_eq!(cluster.world().session_count, 0);
}

#[tokio::test]
async fn a_client_that_learns_no_nodes_names_no_requests_either() {
    let (cluster, near) = start(ClientOptions { learns_nodes: true, ..options() }).await;
    let stubborn = client(&cluster, ClientOptions { learns_nodes: false, ..options() });
    stubborn.filter("near").insert(["a"]).await.unwrap();
    assert_eq!(cluster.world().session_count, 0);
    cluster.put("open", Hashing::Public, 42);
    stubborn.filter("open").insert(["a"]).await.unwrap();
    assert_eq!(cluster.world().session_count, 1);
    assert!(cluster.seen().iter().all(|seen| seen.items.packed.is_some()));
    assert_eq!(near.contains(["a"], ReadLevel::Local).await.unwrap().present_count(), 1);
}

#[tokio::test]
async fn nodes_that_did_not_confirm_come_through() {
    let cluster = Cluster::start(3).await;
    let client = client(&cluster, options());
    cluster.world().silent_nodes = vec![3];
    let distribution = Distribution::Replicated;
    let wanted = NewFilter { distribution, ..NewFilter::for_rate(100, 0.01) };
    let created = client.create("near", &wanted).await.unwrap();
    assert_eq!(created.filter.distribution(), Distribution::Replicated);
    assert_eq!(created.unconfirmed_nodes, [3]);
    let cleared = client.clear("near").await.unwrap();
    assert_eq!((cleared.generation, cleared.unconfirmed_nodes), (2, vec![3]));
    let renamed = client.rename("near", "nearer").await.unwrap();
    assert_eq!((renamed.filter.name.as_str(), renamed.unconfirmed_nodes), ("nearer", vec![3]));
    let flushed = client.flush("near").await.unwrap();
    assert!(!flushed.is_complete());
    assert_eq!((flushed.nodes, flushed.missing_nodes), (vec![1, 2], vec![3]));
    assert_eq!(client.drop_filter("near").await.unwrap().unconfirmed_nodes, [3]);
    cluster.world().silent_nodes.clear();
    assert!(client.flush("near").await.unwrap().is_complete());
}
