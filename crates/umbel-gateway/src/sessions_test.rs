//! Session numbers that were never issued, and requests that are repeated across splits and merges, over
//! the wire.

use std::sync::Arc;

use tonic::{Code, Status};
use umbel_filter::Kind;
use umbel_ports::channel::channel_to;
use umbel_ports::{Net, RealNet};
use umbel_proto::v1;
use umbel_proto::v1::admin_client::AdminClient;
use umbel_proto::v1::filters_client::FiltersClient;

use crate::test_node::{create, start_alone};

type Filters = FiltersClient<tonic::transport::Channel>;

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
    let opened = filters.open_session(v1::OpenSessionRequest {}).await.unwrap().into_inner();
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
    let v1::OpenSessionResponse { session } =
        filters.open_session(v1::OpenSessionRequest {}).await.unwrap().into_inner();
    // Half of the last one's items were inserted by the one before.
    let mut ask = async |sequence: u64| {
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
    let mut answers = vec![ask(1).await];
    for shard_count in [5, 6] {
        admin.split_shard(v1::SplitShardRequest { shard_count }).await.unwrap();
        answers.push(ask(shard_count.into()).await);
    }
    for (shard_count, shard) in [(5, 1), (4, 0)] {
        let merge = v1::MergeShardRequest { shard_count };
        // A request to merge that is repeated changes nothing.
        for _ in 0..2 {
            let merged = admin.merge_shard(merge).await.unwrap().into_inner();
            assert_eq!(merged, v1::MergeShardResponse { shard, gone: shard_count });
        }
        for (sequence, answer) in [1, 5, 6].into_iter().zip(&answers) {
            assert_eq!(ask(sequence).await, answer, "{sequence} with {shard_count} shards");
        }
    }
    let fewer = admin.merge_shard(v1::MergeShardRequest { shard_count: 3 }).await.unwrap_err();
    assert_eq!(fewer.code(), Code::FailedPrecondition);
    assert_eq!(fewer.message(), "a cluster that was started with 4 shards has at least 4, not 3");
    drop((filters, admin));
    node.shutdown().await;
}
