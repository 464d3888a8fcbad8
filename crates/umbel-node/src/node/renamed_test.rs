//! Filters that are renamed during another operation on them.

use umbel_engine::meta::{Distribution, FilterName};
use umbel_filter::Kind;

use super::node_test::{deadline, items, start_alone};
use crate::coordinator::catalogue::{Hashing, NewFilter};
use crate::coordinator::copies::BackupPart;
use crate::coordinator::sizes::FilterSize;

fn name(text: &str) -> FilterName {
    FilterName::new(text).unwrap()
}

/// One filter replaces another that is still to be copied, one gets an unused name, one is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_each_filter_under_the_name_that_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let asked = node.coordinator();
    let new = NewFilter::Planned {
        kind: Kind::Blocked,
        distribution: Distribution::Partitioned,
        capacity: 1_000,
        size: FilterSize::Rate(0.01),
        hashing: Hashing::Keyed,
    };
    for filter in ["a", "b", "c", "d"] {
        asked.create(&name(filter), &new, None, deadline()).await.unwrap();
        asked.insert(filter, &items(0..10), None, None, deadline()).await.unwrap();
    }
    let mut backup = asked.backup(false, deadline()).await.unwrap();
    assert!(matches!(backup.next().await.unwrap(), Some(BackupPart::Head(_))));
    for (filter, new_name, replaces) in [("a", "z", false), ("b", "c", true)] {
        asked.rename(&name(filter), &name(new_name), replaces, deadline()).await.unwrap();
    }
    asked.drop_filter(&name("d"), None, deadline()).await.unwrap();
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
