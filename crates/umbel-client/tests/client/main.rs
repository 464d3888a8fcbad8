//! Tests of the client against a cluster of fake nodes that fail on demand.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod fake;
mod first_calls;
mod replicated;
mod retries;
mod runtimes;
mod singles;
mod slow;
mod vanished;

use std::time::Duration;

use tokio_stream::StreamExt;
use umbel_client::{
    Client, ClientError, ClientOptions, Hashing, NewFilter, PackedBatch, ReadLevel, proto,
};

use fake::Cluster;

/// A time that no call of a test needs, on however busy a machine: it only ends a hang.
const LONG: Duration = Duration::from_secs(180);

/// Short pauses make tests fast. The time limits are long, because hashing many items blocks the only thread for longer
/// than the defaults, and tests count the attempts.
fn options() -> ClientOptions {
    ClientOptions {
        timeout: LONG,
        attempt_timeout: LONG,
        probe_timeout: LONG,
        pause_first: Duration::from_millis(1),
        pause_max: Duration::from_millis(4),
        ..ClientOptions::default()
    }
}

/// A client that was given only the first node.
fn client(cluster: &Cluster, options: ClientOptions) -> Client {
    Client::connect_with(cluster.addresses[0].as_str(), options).unwrap()
}

fn numbers(range: std::ops::Range<u32>) -> impl Iterator<Item = [u8; 4]> {
    range.map(u32::to_le_bytes)
}

#[tokio::test]
async fn items_go_in_and_out() {
    let cluster = Cluster::start(1).await;
    let client = client(&cluster, options());
    client.create("seen", &NewFilter::for_rate(100, 0.01)).await.unwrap();
    let seen = client.filter("seen");
    // Calls can run in tasks of their own.
    let inserted = tokio::spawn(seen.insert(["a", "b", "", "a"])).await.unwrap().unwrap();
    assert_eq!(inserted.iter().collect::<Vec<_>>(), [true, true, true, false]);
    let inserted = client.filter("other").insert(Vec::<&str>::new()).await.unwrap();
    assert!(inserted.is_empty(), "nothing needs no filter");
    assert!(seen.clone().sending_empty().insert(Vec::<&str>::new()).await.unwrap().is_empty());
    let other = client.filter("other").sending_empty();
    let refused = [
        other.insert(Vec::<&str>::new()).await.err(),
        other.contains(Vec::<&str>::new(), ReadLevel::Unspecified).await.err(),
        other.remove(Vec::<&str>::new()).await.err(),
    ];
    for refused in refused {
        assert!(matches!(refused, Some(ClientError::Refused(_))), "{refused:?}");
    }

    let inserted = client.filter("seen").insert(["c", "d", ""]).await.unwrap();
    assert_eq!(inserted.is_new(0), Some(true));
    let answers = seen.contains(["c", "x", "d"], ReadLevel::AnyReplica).await.unwrap();
    assert_eq!(answers.iter().collect::<Vec<_>>(), [true, false, true]);
    let removed = seen.remove(["c", "x"]).await.unwrap();
    assert_eq!((removed.removed_count(), removed.absent_count()), (1, 1));
    assert_eq!(cluster.world().calls["open_session"], 1);
}

/// A header of the only call that listed filters.
fn list_header(cluster: &Cluster, name: &str) -> String {
    let world = cluster.world();
    let [headers] = &world.list_headers[..] else { panic!("{} lists", world.list_headers.len()) };
    headers.get(name).unwrap().to_str().unwrap().to_owned()
}

/// Nodes send clients of former releases, which named tonic alone, other details of errors.
#[tokio::test]
async fn the_client_names_itself() {
    let cluster = Cluster::start(1).await;
    client(&cluster, options()).list("").await.unwrap();
    let agent = list_header(&cluster, "user-agent");
    assert!(agent.starts_with("umbel-client/"), "{agent}");
}

/// Otherwise the call ends without the reason that the node is about to give.
#[tokio::test]
async fn the_client_waits_longer_for_the_catalogue_than_a_node_may_take() {
    let cluster = Cluster::start(1).await;
    let attempt_timeout = Duration::from_secs(60);
    client(&cluster, ClientOptions { attempt_timeout, ..options() }).list("").await.unwrap();
    let waits = list_header(&cluster, "grpc-timeout");
    assert_eq!(waits, "60250000u");
}

#[tokio::test]
async fn the_first_filter_that_has_an_item_is_found() {
    let cluster = Cluster::start(2).await;
    let client = client(&cluster, options());
    for (name, items) in [("monday", ["a", "b"]), ("tuesday", ["b", "c"])] {
        client.create(name, &NewFilter::for_rate(100, 0.01)).await.unwrap();
        client.filter(name).insert(items).await.unwrap();
    }
    let ask = async |items: &[&str], level| {
        let items = PackedBatch::from_items(items).unwrap();
        client.contains_any(&["tuesday", "monday"], items, level).await
    };
    let found = ask(&["c", "b", "a", "x"], ReadLevel::AnyReplica).await.unwrap();
    assert_eq!(found.iter().collect::<Vec<_>>(), [Some(0), Some(0), Some(1), None]);
    assert_eq!((found.get(2), found.get(3), found.get(4)), (Some(1), None, None));
    assert_eq!((found.level(), found.len()), (ReadLevel::AnyReplica, 4));
    assert!(ask(&[], ReadLevel::Unspecified).await.unwrap().is_empty());
    // A batch of two requests.
    let items = PackedBatch::from_items(numbers(0..70_000)).unwrap();
    let found = client.contains_any(&["monday"], items, ReadLevel::Unspecified).await.unwrap();
    assert!(found.len() == 70_000 && found.iter().all(|first| first.is_none()));
    let items = PackedBatch::from_items(["a"]).unwrap();
    let missing = client.contains_any(&["gone"], items, ReadLevel::Unspecified).await;
    assert!(matches!(missing, Err(ClientError::Refused(_))), "{missing:?}");
}

#[tokio::test]
async fn large_batches_are_cut_and_answered_in_order() {
    let cluster = Cluster::start(3).await;
    cluster.put("seen", Hashing::Keyed, 0);
    let seen = client(&cluster, options()).filter("seen");
    let mut batch = PackedBatch::from_items(numbers(0..300_000).filter(|n| n[0] & 1 == 1)).unwrap();
    let inserted = seen.insert_packed(batch.take()).await.unwrap();
    assert_eq!((inserted.len(), inserted.new_count()), (150_000, 150_000));
    assert_eq!(cluster.seen().len(), 3, "150,000 items are 3 requests");

    let answers = seen.contains(numbers(0..300_000), ReadLevel::Linearizable).await.unwrap();
    assert!(answers.iter().enumerate().all(|(at, present)| present == (at % 2 == 1)));
    assert_eq!(answers.present_count(), 150_000);

    let long = [vec![1; 9 << 20], vec![2; 3 << 20], vec![3; 3 << 20]];
    assert_eq!(seen.insert(&long).await.unwrap().new_count(), 3);
    let sizes: Vec<usize> =
        cluster.seen()[8..].iter().map(|s| s.items.packed.as_ref().unwrap().data.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 15 << 20);
    assert_eq!(sizes.len(), 2, "a long item travels alone");

    let error = seen.insert([vec![], vec![0; (16 << 20) + 1]]).await.unwrap_err();
    assert!(matches!(error, ClientError::Item(_)), "{error}");
    assert!(error.to_string().contains("item 1 has 16777217 bytes"));
}

#[tokio::test]
async fn calls_spread_over_nodes_that_were_learned() {
    let cluster = Cluster::start(3).await;
    cluster.put("seen", Hashing::Keyed, 0);
    let client = client(&cluster, options());
    let seen = client.filter("seen");
    seen.insert(["a"]).await.unwrap();
    while client.node_addresses().len() < 3 {
        tokio::task::yield_now().await;
    }
    for number in 0..30_u32 {
        seen.insert([number.to_le_bytes()]).await.unwrap();
    }
    for node in 0..3 {
        assert!(cluster.seen().iter().filter(|seen| seen.node == node).count() >= 5);
    }
}

#[tokio::test]
async fn public_hashes_go_straight_to_leaders() {
    let cluster = Cluster::start(3).await;
    cluster.put("open", Hashing::Public, 42);
    let open = client(&cluster, options()).filter("open");
    let inserted = open.insert(numbers(0..1_000)).await.unwrap();
    assert_eq!(inserted.new_count(), 1_000);
    let width = u64::MAX / 3;
    for seen in cluster.seen() {
        assert!(seen.items.packed.is_none() && !seen.items.hashes.is_empty());
        for hash in seen.items.hashes.chunks(16) {
            let hi = u64::from_le_bytes(hash[..8].try_into().unwrap());
            assert_eq!(usize::try_from(hi.saturating_sub(1) / width).unwrap().min(2), seen.node);
        }
    }
    assert_eq!(cluster.seen().len(), 3, "one part a shard");
    let answers = open.contains(numbers(500..1_500), ReadLevel::Linearizable).await.unwrap();
    assert!(answers.iter().enumerate().all(|(at, present)| present == (at < 500)));
    let world = cluster.world();
    let asked = ["open_session", "list"].map(|call| world.calls.get(call).copied());
    assert_eq!(asked, [Some(1), None], "hashing is asked for once");
}

#[tokio::test]
async fn a_dead_leader_is_gone_around_and_the_map_asked_again() {
    let mut cluster = Cluster::start(3).await;
    cluster.put("open", Hashing::Public, 42);
    let open = client(&cluster, options()).filter("open");
    open.insert(numbers(0..300)).await.unwrap();
    cluster.stop_node(2).await;
    for shard in &mut cluster.world().map.shards {
        shard.leader = 1;
    }
    let inserted = open.insert(numbers(200..600)).await.unwrap();
    assert_eq!((inserted.new_count(), inserted.present_count()), (300, 100));
    assert_eq!(inserted.is_new(99), Some(false));
    assert_eq!(inserted.is_new(100), Some(true));
}

#[tokio::test]
async fn the_catalogue_is_served() {
    let cluster = Cluster::start(1).await;
    let client = client(&cluster, options());
    for name in ["b1", "a", "b3", "b2", "b4", "b5"] {
        client.create(name, &NewFilter::like("x")).await.unwrap();
    }
    let found = client.list("b").await.unwrap();
    let names: Vec<&str> = found.iter().map(|filter| &filter.name[..]).collect();
    assert_eq!(names, ["b1", "b2", "b3", "b4", "b5"]);
    let dropped = client.drop_filter("b1").await.unwrap();
    assert_eq!(dropped.unconfirmed_nodes, []);
    assert_eq!(client.list("b").await.unwrap().len(), 4);
    assert_eq!(client.info("a").await.unwrap().filter.unwrap().name, "a");
    assert_eq!(client.clear("a").await.unwrap().generation, 2);
    assert_eq!(client.rotate("a").await.unwrap(), 2);
    assert_eq!(client.merge("a", &["b2", "b3"]).await.unwrap(), 2);
    assert_eq!(client.status().await.unwrap().epoch, 7);
    assert_eq!(client.drain(1, false).await.unwrap(), 3);
    client.remove_node(1).await.unwrap();
    client.move_shard(0, 1, 2).await.unwrap();
    assert_eq!(client.split_shard(5).await.unwrap().into, 4);
    assert_eq!(client.merge_shard(4).await.unwrap().gone, 4);
    client.set_auto_split(true).await.unwrap();
    assert_eq!(client.upgrade(true).await.unwrap().cluster_version, 1);
    assert_eq!(client.upgrade(false).await.unwrap().cluster_version, 2);
}

#[tokio::test]
async fn copies_travel_as_streams() {
    let cluster = Cluster::start(1).await;
    let client = client(&cluster, options());
    let mut chunks = client.export("seen").await.unwrap();
    let mut count = 0;
    while let Some(chunk) = chunks.next().await.unwrap() {
        assert!(chunk.part.is_some());
        count += 1;
    }
    assert_eq!(count, 3);
    let mut chunks = client.export("cut short").await.unwrap();
    assert!(chunks.next().await.is_ok() && chunks.next().await.is_ok());
    assert!(matches!(chunks.next().await, Err(ClientError::BadAnswer(_))));

    let header = proto::ImportHeader { name: "copy".into(), exported: None };
    let part = Some(proto::import_chunk::Part::Header(header));
    let copied = client.import(tokio_stream::iter([proto::ImportChunk { part }])).await.unwrap();
    assert_eq!(copied.name, "copy");

    assert!(client.backup().await.unwrap().next().await.unwrap().is_some());
    let mut reports = client.scrub(Some("seen")).await.unwrap();
    let first = reports.next().await.unwrap().unwrap();
    let Some(proto::scrub_report::Part::Pair(pair)) = first.part else { panic!("a pair is first") };
    assert_eq!((pair.filter.as_str(), pair.node, pair.partner), ("seen", 1, 2));
    assert!(reports.next().await.unwrap().is_some(), "the end");
    assert!(reports.next().await.unwrap().is_none());
    let filter = |name: &str| proto::BackupFilter { name: name.into(), settings: "".into() };
    cluster.put("taken", Hashing::Keyed, 0);
    let parts =
        ["a", "taken", "b"].map(|name| Some(proto::backup_chunk::Part::Filter(filter(name))));
    let chunks = tokio_stream::iter(parts).map(|part| proto::BackupChunk { part });
    let outcome = client.restore(chunks).await.unwrap();
    assert_eq!(outcome.restored, ["a", "b"]);
    assert_eq!(outcome.skipped, ["taken"]);
}
