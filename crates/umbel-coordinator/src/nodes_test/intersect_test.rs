//! Intersections of filters, merged into another filter.

use umbel_engine::meta::{Distribution, FilterName};
use umbel_engine::shard::SetOperation;
use umbel_filter::Kind;

use super::Coordinated;
use super::node_test::{create, deadline, items, start_alone};
use crate::Coordinator;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use umbel_node::failure::CallFailure;

fn name(text: &str) -> FilterName {
    FilterName::new(text).unwrap()
}

async fn like(coordinator: &Coordinator, new: &str, other: &str) {
    let like = FilterRequest::Like(name(other));
    coordinator.create(&name(new), &like, None, deadline()).await.unwrap();
}

async fn intersect(
    coordinator: &Coordinator,
    target: &str,
    sources: &[&str],
) -> Result<u64, CallFailure> {
    let sources: Vec<_> = sources.iter().map(|source| name(source)).collect();
    let operation = SetOperation::Intersection;
    coordinator.merge(&name(target), &sources, operation, None, deadline()).await
}

async fn insert(coordinator: &Coordinator, filter: &str, range: std::ops::Range<u32>) {
    coordinator.insert(filter, &items(range), None, None, deadline()).await.unwrap();
}

async fn present(coordinator: &Coordinator, filter: &str, range: std::ops::Range<u32>) -> u32 {
    let answer = coordinator.contains(filter, &items(range), None, deadline()).await;
    answer.unwrap().0.count_ones()
}

/// Three filters with 1,000 common items, and a fourth that already has 500 others.
async fn check(coordinator: &Coordinator, base: &str) {
    let [second, third, target] = ["second", "third", "target"].map(|n| format!("{base} {n}"));
    for new in [&second, &third, &target] {
        like(coordinator, new, base).await;
    }
    insert(coordinator, base, 0..2_000).await;
    insert(coordinator, &second, 1_000..3_000).await;
    insert(coordinator, &third, 500..2_000).await;
    insert(coordinator, &target, 9_000..9_500).await;
    let sources = [base, &*second, &*third];
    assert!(intersect(coordinator, &target, &sources).await.unwrap() > 1_000);
    assert_eq!(present(coordinator, &target, 1_000..2_000).await, 1_000);
    assert_eq!(present(coordinator, &target, 9_000..9_500).await, 500);
    let alone = present(coordinator, &target, 0..1_000).await
        + present(coordinator, &target, 2_000..3_000).await;
    assert!(alone < 20, "{base}: {alone} of 2,000 come along");
    assert_eq!(intersect(coordinator, &target, &sources).await, Ok(0), "twice is once");
    assert_eq!(present(coordinator, base, 0..2_000).await, 2_000, "sources stay as they are");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_filters_share_goes_into_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    for kind in [Kind::Blocked, Kind::Classic, Kind::Partitioned] {
        create(&coordinator, &kind.to_string(), kind).await;
        check(&coordinator, &kind.to_string()).await;
    }
    let near = |kind, distribution, capacity, rate| FilterRequest::Planned {
        kind,
        distribution,
        capacity,
        size: FilterSize::Rate(rate),
        hashing: Hashing::Keyed,
    };
    let replicated = near(Kind::Blocked, Distribution::Replicated, 10_000, 1e-4);
    coordinator.create(&name("near"), &replicated, None, deadline()).await.unwrap();
    check(&coordinator, "near").await;

    let refused = async |target: &str, sources: &[&str]| {
        intersect(&coordinator, target, sources).await.unwrap_err().to_string()
    };
    let unlike = refused("blocked target", &["blocked", "classic"]).await;
    assert!(unlike.contains("\"blocked target\" and \"classic\" differ"), "{unlike}");
    let missing = refused("blocked target", &["blocked", "gone"]).await;
    assert!(missing.contains("\"gone\""), "{missing}");
    create(&coordinator, "single", Kind::SingleShot).await;
    like(&coordinator, "single too", "single").await;
    like(&coordinator, "single three", "single").await;
    let single = refused("single", &["single too", "single three"]).await;
    let which =
        "filter \"single\" is single-shot, which is not intersected, unlike blocked, classic";
    assert!(single.starts_with(which), "{single}");
    // Many items set every position of a small filter.
    let small = near(Kind::Blocked, Distribution::Partitioned, 10, 0.5);
    coordinator.create(&name("full"), &small, None, deadline()).await.unwrap();
    like(&coordinator, "empty", "full").await;
    like(&coordinator, "other", "full").await;
    insert(&coordinator, "full", 0..20_000).await;
    let full = refused("empty", &["other", "full"]).await;
    assert!(full.starts_with("filter \"full\" is full: every position of shard"), "{full}");
    assert_eq!(coordinator.info(&name("empty"), deadline()).await.unwrap().sum(|s| s.one_count), 0);
    drop(coordinator);
    node.shutdown().await;
}
