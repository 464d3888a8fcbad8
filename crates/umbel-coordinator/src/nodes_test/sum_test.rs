//! Sums of counting filters, with repeated requests.

use umbel_engine::meta::{Distribution, FilterName};
use umbel_engine::shard::SetOperation;
use umbel_engine::{OwnerId, RequestId};
use umbel_filter::Kind;

use super::Coordinated;
use super::node_test::{deadline, items, start_alone};
use crate::ClientRequest;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;

fn name(text: &str) -> FilterName {
    FilterName::new(text).unwrap()
}

/// A filter that is planned for few items takes those of two others, grows for them if its kind does,
/// and takes them exactly once: each item is gone after it was removed once.
#[tokio::test(flavor = "multi_thread")]
async fn what_filters_count_is_added_up_once_for_each_request() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let session = coordinator.sessions().open(String::new(), deadline()).await.unwrap();
    // Of 3,000 lookups, one is wrong in one of 3,000 runs, also after growth to twenty times the items.
    for (kind, capacity, rate) in [(Kind::Counting, 20_000, 1e-7), (Kind::Quotient, 200, 1e-9)] {
        let [target, one, other] = ["target", "one", "other"].map(|name| format!("{kind} {name}"));
        let new = FilterRequest::Planned {
            kind,
            distribution: Distribution::Partitioned,
            capacity,
            size: FilterSize::Rate(rate),
            hashing: Hashing::Keyed,
        };
        coordinator.create(&name(&target), &new, None, deadline()).await.unwrap();
        for (filter, range) in [(&one, 0..2_000), (&other, 1_000..3_000)] {
            let like = FilterRequest::Like(name(&target));
            coordinator.create(&name(filter), &like, None, deadline()).await.unwrap();
            coordinator.insert(filter, &items(range), None, None, deadline()).await.unwrap();
        }
        let sources = [name(&one), name(&other)];
        let id = RequestId { session, sequence: u64::from(kind.id()) };
        let request = Some(ClientRequest { id, acknowledged_below: 1, owner: OwnerId::default() });
        let merge = async || {
            let operation = SetOperation::Union;
            coordinator.merge(&name(&target), &sources, operation, request, deadline()).await
        };
        let new_count = merge().await.unwrap();
        assert!(new_count >= 2_990, "{kind}: {new_count}");
        assert_eq!(merge().await, Ok(new_count), "{kind}");
        let present = async |range: std::ops::Range<u32>| {
            let answer = coordinator.contains(&target, &items(range), None, deadline()).await;
            answer.unwrap().0.count_ones()
        };
        assert_eq!(present(0..3_000).await, 3_000, "{kind}");
        coordinator.remove(&target, &items(0..3_000), None, deadline()).await.unwrap();
        let left =
            (present(0..1_000).await, present(1_000..2_000).await, present(2_000..3_000).await);
        assert_eq!(left, (0, 1_000, 0), "{kind}: what both had was there twice");
        let refused =
            coordinator.overlap(&name(&one), &name(&other), deadline()).await.unwrap_err();
        assert!(refused.to_string().contains("whose positions are not compared"), "{refused}");
    }
    drop(coordinator);
    node.shutdown().await;
}
