//! What two filters have in common, as a node estimates it.

use umbel_engine::meta::FilterName;
use umbel_engine::shard::PartError;
use umbel_filter::Kind;
use umbel_filter::sizing::Estimate;

use super::Coordinated;
use super::node_test::{create, create_replicated, deadline, items, start_alone};
use crate::Coordinator;
use crate::catalogue::FilterRequest;
use umbel_node::failure::CallFailure;

fn name(text: &str) -> FilterName {
    FilterName::new(text).unwrap()
}

async fn like(coordinator: &Coordinator, new: &str, other: &str) {
    let like = FilterRequest::Like(name(other));
    coordinator.create(&name(new), &like, None, deadline()).await.unwrap();
}

async fn check(coordinator: &Coordinator, one: &str, other: &str) {
    for (filter, range) in [(one, 0..3_000), (other, 1_000..4_000)] {
        coordinator.insert(filter, &items(range), None, None, deadline()).await.unwrap();
    }
    let found = coordinator.overlap(&name(one), &name(other), deadline()).await.unwrap();
    let near = |estimate: Option<Estimate>, truth: f64| {
        let Estimate { item_count, standard_error } = estimate.unwrap();
        let apart = (item_count - truth).abs();
        assert!(apart < 4.0 * standard_error, "{item_count} ± {standard_error} for {truth}");
        assert!(standard_error < truth / 20.0, "{standard_error} for {truth}");
    };
    near(found.ours, 3_000.0);
    near(found.theirs, 3_000.0);
    near(found.either, 4_000.0);
    near(found.both, 2_000.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_filters_share_is_estimated() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    for kind in [Kind::Blocked, Kind::Classic, Kind::Partitioned] {
        let (one, other) = (format!("{kind} one"), format!("{kind} other"));
        create(&coordinator, &one, kind).await;
        like(&coordinator, &other, &one).await;
        check(&coordinator, &one, &other).await;
    }
    create_replicated(&coordinator, "near").await;
    like(&coordinator, "nearer", "near").await;
    check(&coordinator, "near", "nearer").await;

    // Filters with another shape, or another key.
    for (one, other) in [("blocked one", "classic one"), ("near", "blocked one")] {
        let refused = coordinator.overlap(&name(one), &name(other), deadline()).await.unwrap_err();
        let is_named = matches!(
            refused,
            CallFailure::Part(PartError::ShapeMismatch { .. } | PartError::WrongKind { .. })
        );
        assert!(is_named, "{refused}");
    }
    drop(coordinator);
    node.shutdown().await;
}
