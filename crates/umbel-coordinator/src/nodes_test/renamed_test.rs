//! Filters that are renamed during another operation on them.

use std::sync::Arc;

use umbel_engine::meta::{Distribution, FilterChange, FilterName, SeenExpiry};
use umbel_engine::shard::{Bitmap, PartError};
use umbel_engine::{OwnerId, RequestId};
use umbel_filter::Kind;
use umbel_ports::{Purpose, Rare, RealSeed, Seed};

use super::Coordinated;
use super::node_test::{create, deadline, items, start_alone};
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use crate::transfers::BackupPart;
use crate::{ClientRequest, Coordinator};
use umbel_node::failure::CallFailure;

fn name(text: &str) -> FilterName {
    FilterName::new(text).unwrap()
}

/// One filter replaces another that is still to be copied, one gets an unused name, one is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_each_filter_under_the_name_that_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let new = FilterRequest::Planned {
        kind: Kind::Blocked,
        distribution: Distribution::Partitioned,
        capacity: 1_000,
        size: FilterSize::Rate(0.01),
        hashing: Hashing::Keyed,
    };
    for filter in ["a", "b", "c", "d"] {
        coordinator.create(&name(filter), &new, None, deadline()).await.unwrap();
        coordinator.insert(filter, &items(0..10), None, None, deadline()).await.unwrap();
    }
    let mut backup = coordinator.backup(false, deadline()).await.unwrap();
    assert!(matches!(backup.next().await.unwrap(), Some(BackupPart::Head(_))));
    for (filter, new_name, replaces) in [("a", "z", false), ("b", "c", true)] {
        coordinator.rename(&name(filter), &name(new_name), replaces, deadline()).await.unwrap();
    }
    coordinator.drop_filter(&name("d"), None, deadline()).await.unwrap();
    let mut names = Vec::new();
    while let Some(part) = backup.next().await.unwrap() {
        match part {
            BackupPart::Filter(filter) => names.push(filter.name),
            BackupPart::End { filter_count } => assert_eq!(filter_count, 2),
            _ => {}
        }
    }
    assert_eq!(names, ["a", "b"]);
}

/// The changes begin, and nobody waits for their end: of the first filter when the backup lists it, of the
/// second one when its turn comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_filters_that_are_being_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let mut orders = Vec::new();
    for filter in ["a", "b"] {
        create(&coordinator, filter, Kind::Blocked).await;
        let info = coordinator.info(&name(filter), deadline()).await.unwrap();
        let change = FilterChange::Clear { generation: info.record.generation };
        orders.push((info, change));
    }
    let [(a, clear_a), (b, clear_b)] = orders.try_into().unwrap();
    coordinator.propose_order(a.id, &a.record, clear_a, deadline()).await.unwrap();
    let mut backup = coordinator.backup(false, deadline()).await.unwrap();
    assert!(matches!(backup.next().await.unwrap(), Some(BackupPart::Head(_))));
    coordinator.propose_order(b.id, &b.record, clear_b, deadline()).await.unwrap();
    let mut names = Vec::new();
    while let Some(part) = backup.next().await.unwrap() {
        if let BackupPart::Filter(filter) = part {
            names.push(filter.name);
        }
    }
    assert_eq!(names, ["a", "b"]);
    drop((backup, coordinator));
    node.shutdown().await;
}

/// Lets a coordinator work with a copy of the catalogue that is up to two seconds old.
struct Lagging;

impl Seed for Lagging {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        RealSeed.fill(purpose, bytes);
    }

    fn wall_ms(&self) -> u64 {
        RealSeed.wall_ms()
    }

    fn provokes(&self, rare: Rare) -> bool {
        rare == Rare::OldMap
    }
}

/// Copies of a request reach a new filter of the name by one node, and by another one the filter that had
/// the name before, which was dropped or renamed: the second node was behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_behind_returns_the_first_answer_to_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let session = coordinator.sessions().open(String::new(), deadline()).await.unwrap();
    for (turn, is_renamed) in [(1, false), (2, true)] {
        create(&coordinator, "f", Kind::Blocked).await;
        let behind = Coordinator::new(Arc::new(node.leader_calls(Arc::new(Lagging))));
        behind.contains("f", &items(0..1), None, deadline()).await.unwrap();
        if is_renamed {
            coordinator.rename(&name("f"), &name("g"), false, deadline()).await.unwrap();
        } else {
            coordinator.drop_filter(&name("f"), None, deadline()).await.unwrap();
        }
        create(&coordinator, "f", Kind::Blocked).await;
        let id = RequestId { session, sequence: turn };
        let request = Some(ClientRequest { id, acknowledged_below: 0, owner: OwnerId(0) });
        // So many that each shard gets some of both: a shard that had none before would insert the others.
        let (batch, others) = (items(0..200), items(200..400));
        let (first, _) = coordinator.insert("f", &batch, request, None, deadline()).await.unwrap();
        assert_eq!(first, Bitmap::ones(200));
        let (again, _) = behind.insert("f", &batch, request, None, deadline()).await.unwrap();
        assert_eq!(again, first);
        let other = behind.insert("f", &others, request, None, deadline()).await;
        let other = other.unwrap_err();
        assert!(matches!(other, CallFailure::Part(PartError::RequestReused { .. })), "{other}");
        coordinator.drop_filter(&name("f"), None, deadline()).await.unwrap();
    }
    node.shutdown().await;
}

/// The caller's right was checked for the name that the filter had before: whoever changes it then changes
/// nothing of the filter under its new name.
#[tokio::test(flavor = "multi_thread")]
async fn no_order_follows_a_filter_to_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    create(&coordinator, "a", Kind::Blocked).await;
    let before = coordinator.info(&name("a"), deadline()).await.unwrap();
    coordinator.rename(&name("a"), &name("b"), false, deadline()).await.unwrap();
    let (id, record) = (before.id, &before.record);
    let dropped = coordinator.propose_order(id, record, FilterChange::Drop, deadline()).await;
    let unknown = CallFailure::UnknownFilter { name: "a".to_owned() };
    assert_eq!(dropped, Err(unknown.clone()));
    let change = FilterChange::SetExpiry { expires_ms: Some(1) };
    let expired = coordinator.propose_order(id, record, change, deadline()).await;
    assert_eq!(expired, Err(unknown));
    let expiry = coordinator.expiry(&name("b"), deadline()).await;
    assert_eq!(expiry, Ok(Some((before.id, None))));
    drop(coordinator);
    node.shutdown().await;
}

/// Whoever has ordered it may have meant either filter. Once no filter has the name, there is none to mean.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_late_tells_whether_another_filter_has_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    create(&coordinator, "a", Kind::Blocked).await;
    create(&coordinator, "b", Kind::Blocked).await;
    let before = coordinator.info(&name("a"), deadline()).await.unwrap();
    let generation = before.record.generation;
    coordinator.rename(&name("b"), &name("a"), true, deadline()).await.unwrap();
    let changed = CallFailure::Changed { name: "a".to_owned() };
    let unknown = CallFailure::UnknownFilter { name: "a".to_owned() };
    for failure in [changed, unknown] {
        for change in [
            FilterChange::Take { seen: SeenExpiry::Any },
            FilterChange::ReplaceExpiry { seen_ms: None, expires_ms: Some(u64::MAX) },
            FilterChange::SetExpiry { expires_ms: Some(u64::MAX) },
            FilterChange::Rename { generation, name: name("c"), replaced: None },
        ] {
            let (id, record) = (before.id, &before.record);
            let late = coordinator.propose_order(id, record, change, deadline()).await;
            assert_eq!(late, Err(failure.clone()));
        }
        // The first time, the filter that has taken over the name is still as it was.
        let dropped = coordinator.take_filter(&name("a"), None, deadline()).await;
        let gone = CallFailure::UnknownFilter { name: "a".to_owned() };
        assert_eq!(dropped, if failure == gone { Err(gone) } else { Ok(false) });
    }
    drop(coordinator);
    node.shutdown().await;
}
