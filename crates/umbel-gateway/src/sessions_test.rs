//! Session numbers that were never issued, what a session comes with, and requests that are repeated across
//! splits and merges, over the wire.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use umbel_engine::meta::{
    ClusterVerb, FilterVerb, Grant, MetaCommand, Principal, PrincipalName, Proof, Rights,
};
use umbel_filter::Kind;
use umbel_ports::channel::channel_to;
use umbel_ports::{Net, RealNet};
use umbel_proto::v1;
use umbel_proto::v1::admin_client::AdminClient;
use umbel_proto::v1::filters_client::FiltersClient;

use crate::test_node::{create, deadline, start_alone};

type Filters = FiltersClient<Channel>;

const SECRET: &str = "0123456789abcdef";

/// Inserts one item under the first request of a session.
async fn insert(filters: &mut Filters, item: &str, session: u64) -> Result<u32, Status> {
    let items = vec![item.to_owned().into_bytes().into()];
    let request = v1::InsertRequest {
        filter: "seen".to_owned(),
        items: Some(v1::Items { items, ..v1::Items::default() }),
        request: Some(v1::RequestId { session, sequence: 1, acknowledged_below: 1 }),
        ..v1::InsertRequest::default()
    };
    Ok(filters.insert(request).await?.into_inner().new_count)
}

/// Splits a shard, as soon as the catalogue knows that all shards have leaders.
async fn split(admin: &mut AdminClient<Channel>, shard_count: u32) {
    let end = deadline();
    while let Err(status) = admin.split_shard(v1::SplitShardRequest { shard_count }).await {
        assert!(status.code() == Code::Unavailable && Instant::now() < end, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_nobody_was_given_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let mut filters = FiltersClient::new(channel_to(&net, node.address(), None).unwrap());

    // Also before any session exists.
    let refused = insert(&mut filters, "a", u64::MAX).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let opened =
        filters.open_session(v1::OpenSessionRequest::default()).await.unwrap().into_inner();
    assert_eq!(insert(&mut filters, "a", opened.session).await.unwrap(), 1);
    let near = [opened.session + 1, opened.session + (1 << 32), opened.session >> 32, 1, u64::MAX];
    for invented in near {
        let refused = insert(&mut filters, "b", invented).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{invented}: {refused}");
    }
    // Nothing was recorded for them: the session continues, and repeats its answer.
    assert_eq!(insert(&mut filters, "a", opened.session).await.unwrap(), 1);
    drop(filters);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_repeated_after_splits_and_merges_gets_its_first_answer() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let channel = channel_to(&net, node.address(), None).unwrap();
    let mut filters = FiltersClient::new(channel.clone());
    let mut admin = AdminClient::new(channel);
    let v1::OpenSessionResponse { session, .. } =
        filters.open_session(v1::OpenSessionRequest::default()).await.unwrap().into_inner();
    // Half of the last one's items were inserted by the one before.
    let mut call = async |sequence: u64| {
        let first = u32::try_from(sequence).unwrap() * 100;
        let items = (first..first + 200).map(|item| item.to_string().into_bytes().into()).collect();
        let request = v1::InsertRequest {
            filter: "seen".to_owned(),
            items: Some(v1::Items { items, ..v1::Items::default() }),
            request: Some(v1::RequestId { session, sequence, acknowledged_below: 1 }),
            ..v1::InsertRequest::default()
        };
        filters.insert(request).await.unwrap().into_inner().new_bits
    };
    let mut answers = vec![call(1).await];
    for shard_count in [5, 6] {
        split(&mut admin, shard_count).await;
        answers.push(call(shard_count.into()).await);
    }
    for (shard_count, shard) in [(5, 1), (4, 0)] {
        let merge = v1::MergeShardRequest { shard_count };
        // A request to merge that is repeated changes nothing.
        for _ in 0..2 {
            let merged = admin.merge_shard(merge).await.unwrap().into_inner();
            assert_eq!(merged, v1::MergeShardResponse { shard, gone: shard_count });
        }
        for (sequence, answer) in [1, 5, 6].into_iter().zip(&answers) {
            assert_eq!(call(sequence).await, answer, "{sequence} with {shard_count} shards");
        }
    }
    let fewer = admin.merge_shard(v1::MergeShardRequest { shard_count: 3 }).await.unwrap_err();
    assert_eq!(fewer.code(), Code::FailedPrecondition);
    assert_eq!(fewer.message(), "a cluster that was started with 4 shards has at least 4, not 3");
    drop((filters, admin));
    node.shutdown().await;
}

fn wish(filter: &str) -> v1::OpenSessionRequest {
    v1::OpenSessionRequest { filter: filter.to_owned(), with_shard_map: true }
}

fn list(prefix: &str) -> v1::ListRequest {
    v1::ListRequest {
        prefix: prefix.to_owned(),
        limit: 1,
        with_shard_map: true,
        ..v1::ListRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_comes_with_what_list_and_shard_map_answer() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    for name in ["seen", "seen.too"] {
        create(&node.coordinator(), name, Kind::Blocked).await;
    }
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let channel = channel_to(&net, node.address(), None).unwrap();
    let mut filters = FiltersClient::new(channel.clone());
    let mut admin = AdminClient::new(channel);

    let opened = filters.open_session(wish("seen")).await.unwrap().into_inner();
    let listed = opened.listed.unwrap();
    let page = filters.list(list("seen")).await.unwrap().into_inner();
    assert_eq!((listed.filters.len(), &listed.filters), (1, &page.filters));
    let map = admin.shard_map(v1::ShardMapRequest {}).await.unwrap().into_inner();
    assert_eq!(map.shards.len(), 4);
    assert_eq!((&listed.shard_map, &page.shard_map), (&Some(map.clone()), &Some(map)));
    assert_eq!(insert(&mut filters, "a", opened.session).await.unwrap(), 1);

    // Each part comes only if it is requested.
    let plain = v1::OpenSessionRequest::default();
    let opened = filters.open_session(plain).await.unwrap().into_inner();
    assert!(opened.session != 0 && opened.listed.is_none(), "{opened:?}");
    let without_map = v1::OpenSessionRequest { with_shard_map: false, ..wish("seen") };
    let opened = filters.open_session(without_map).await.unwrap().into_inner();
    assert_eq!(opened.listed.unwrap().shard_map, None);
    let page = filters.list(v1::ListRequest::default()).await.unwrap().into_inner();
    assert_eq!((page.filters.len(), page.shard_map), (2, None));
    drop((filters, admin));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_opened_beside_a_name_without_filter() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    create(&node.coordinator(), "seen", Kind::Blocked).await;
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let mut filters = FiltersClient::new(channel_to(&net, node.address(), None).unwrap());
    // The beginning of a name, more than a name, and what no filter can be called.
    let long = "a".repeat(100_000);
    for name in ["see", "seen.too", "new\nline", &long] {
        let opened = filters.open_session(wish(name)).await.unwrap().into_inner();
        let listed = opened.listed.unwrap();
        assert!(opened.session != 0 && listed.filters.is_empty() && !listed.has_more);
        assert!(listed.shard_map.is_some());
    }
    drop(filters);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replicated_filter_opens_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let mut filters = FiltersClient::new(channel_to(&net, node.address(), None).unwrap());
    let near = v1::CreateRequest {
        name: "near".to_owned(),
        capacity: 1_000,
        false_positive_rate: 0.01,
        distribution: v1::Distribution::Replicated.into(),
        ..v1::CreateRequest::default()
    };
    filters.create(near).await.unwrap();
    let opened = filters.open_session(wish("near")).await.unwrap().into_inner();
    assert_eq!(opened.session, 0);
    let listed = opened.listed.unwrap();
    assert_eq!(listed.filters[0].distribution(), v1::Distribution::Replicated);
    drop(filters);
    node.shutdown().await;
}

fn of_alice<M>(message: M) -> Request<M> {
    of("alice", message)
}

/// The message as this principal sends it.
fn of<M>(name: &str, message: M) -> Request<M> {
    let mut request = Request::new(message);
    let token = format!("Bearer {name}.{SECRET}").parse().unwrap();
    request.metadata_mut().insert("authorization", token);
    request
}

/// Who has a right on some filter may open a session, which tells it no more than a list does.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_shows_no_filter_that_a_list_hides() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    for name in ["a.seen", "b.seen"] {
        create(&node.coordinator(), name, Kind::Blocked).await;
    }
    let proof = Proof::Token { digest: *blake3::hash(SECRET.as_bytes()).as_bytes() };
    let root = Rights { cluster: [ClusterVerb::Admin].into(), ..Rights::default() };
    let watcher = Rights { cluster: [ClusterVerb::Metrics].into(), ..Rights::default() };
    let grant = Grant { pattern: "a.*".to_owned(), verbs: [FilterVerb::Insert].into() };
    let alice = Rights { grants: vec![grant], ..Rights::default() };
    let grant = Grant { pattern: "a.*".to_owned(), verbs: [FilterVerb::Export].into() };
    let exporter = Rights { grants: vec![grant], ..Rights::default() };
    let all = [("root", root), ("alice", alice), ("watcher", watcher), ("exporter", exporter)];
    for (name, rights) in all {
        let principal = Principal { proof, rights, created_ms: 0, expires_ms: None };
        let name = PrincipalName::new(name).unwrap();
        let command = MetaCommand::PutPrincipal { name, principal, replace: true };
        node.coordinator().meta_propose(command, deadline()).await.unwrap();
    }
    let net: Arc<dyn Net> = Arc::new(RealNet);
    let mut filters = FiltersClient::new(channel_to(&net, node.address(), None).unwrap());
    let stranger = filters.open_session(wish("a.seen")).await.unwrap_err();
    assert_eq!(stranger.code(), Code::Unauthenticated, "{stranger}");
    for (name, seen_count) in [("a.seen", 1), ("b.seen", 0), ("b.none", 0)] {
        let opened = filters.open_session(of_alice(wish(name))).await.unwrap().into_inner();
        let page = filters.list(of_alice(list(name))).await.unwrap().into_inner();
        assert_eq!(page.filters.len(), seen_count, "{name}");
        assert!(opened.session != 0, "{name}");
        assert_eq!(opened.listed, Some(page), "{name}");
    }
    // The number of a secret key is for who may export the filter.
    for (name, sees_key) in [("alice", false), ("exporter", true)] {
        let page = filters.list(of(name, list("a.seen"))).await.unwrap().into_inner();
        assert_eq!(page.filters[0].key_id != 0, sees_key, "{name}");
    }
    // Who has no right on any filter opens none. The shard map, by which clients find nodes, is for every principal.
    let refused = filters.open_session(of("watcher", wish(""))).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let mut admin = AdminClient::new(channel_to(&net, node.address(), None).unwrap());
    admin.shard_map(of("watcher", v1::ShardMapRequest {})).await.unwrap();
    let stranger = admin.shard_map(v1::ShardMapRequest {}).await.unwrap_err();
    assert_eq!(stranger.code(), Code::Unauthenticated, "{stranger}");
    drop((filters, admin));
    node.shutdown().await;
}
