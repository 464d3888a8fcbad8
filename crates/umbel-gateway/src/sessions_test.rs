//! Session numbers that were never issued, over the wire.

use std::sync::Arc;

use tonic::{Code, Status};
use umbel_filter::Kind;
use umbel_ports::channel::channel_to;
use umbel_ports::{Net, RealNet};
use umbel_proto::v1;
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
