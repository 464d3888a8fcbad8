//! The first of several filters that has an item, as a node returns it.

use umbel_engine::meta::{Distribution, FilterName};
use umbel_filter::Kind;

use super::Coordinated;
use super::node_test::{create, deadline, items, start_alone};
use crate::ReadLevel;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use umbel_node::failure::CallFailure;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_filter_that_has_an_item_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let names: Vec<FilterName> =
        (0..7).map(|at| FilterName::new(format!("day {at}")).unwrap()).collect();
    // Day n has 100 items from 50 n on, so that each item is in two days; day 6 is replicated.
    for (day, name) in (0..6).zip(&names) {
        create(&coordinator, name.as_str(), Kind::Blocked).await;
        let items = items(50 * day..50 * day + 100);
        coordinator.insert(name.as_str(), &items, None, None, deadline()).await.unwrap();
    }
    let near = FilterRequest::Planned {
        kind: Kind::Blocked,
        distribution: Distribution::Replicated,
        capacity: 1_000,
        size: FilterSize::Rate(1e-6),
        hashing: Hashing::Keyed,
    };
    coordinator.create(&names[6], &near, None, deadline()).await.unwrap();
    coordinator.insert("day 6", &items(0..400), None, None, deadline()).await.unwrap();

    // Compared with asking each filter separately.
    let everything = items(0..500);
    let mut expected = vec![None; 500];
    for (at, name) in names.iter().enumerate() {
        let present =
            coordinator.contains(name.as_str(), &everything, None, deadline()).await.unwrap().0;
        for (first, is_present) in expected.iter_mut().zip(present.iter()) {
            *first = first.or(is_present.then_some(at));
        }
    }
    assert_eq!((expected[0], expected[60], expected[399]), (Some(0), Some(0), Some(6)));
    let (found, level) =
        coordinator.contains_any(&names, &everything, None, deadline()).await.unwrap();
    assert_eq!((found, level), (expected.clone(), ReadLevel::Local));
    let level = Some(ReadLevel::AnyReplica);
    let found =
        coordinator.contains_any(&names[..6], &everything, level, deadline()).await.unwrap();
    let partitioned: Vec<_> = expected.iter().map(|first| first.filter(|&at| at < 6)).collect();
    assert_eq!(found, (partitioned, ReadLevel::AnyReplica));

    // Whatever the items are, an invalid list is refused, and the message names the filter.
    let refused = async |names: &[FilterName], level| {
        let found = coordinator.contains_any(names, &items(0..1), level, deadline()).await;
        found.unwrap_err()
    };
    let with_missing = [names[0].clone(), FilterName::new("day 9").unwrap()];
    let missing = CallFailure::UnknownFilter { name: "day 9".to_owned() };
    assert_eq!(refused(&with_missing, None).await, missing);
    let error = refused(&names, Some(ReadLevel::Linearizable)).await.to_string();
    assert!(error.starts_with("filter \"day 6\" is replicated"), "{error}");
    let error = refused(&vec![names[0].clone(); 2], None).await.to_string();
    assert_eq!(error, "filters[1] is named twice: \"day 0\"");
    let error = refused(&[], None).await.to_string();
    assert_eq!(error, "filters has 0 names, expected 1 to 32");
    drop(coordinator);
    node.shutdown().await;
}
