//! Filters that are dropped at a time that has passed.

use umbel_engine::meta::{FilterName, MetaError};
use umbel_filter::Kind;

use super::Coordinated;
use super::node_test::{create, create_replicated, deadline, start_alone};
use crate::catalogue::Seen;

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_dropped_at_a_time_as_it_was_seen() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let filter = create(&coordinator, "f", Kind::Blocked).await;
    let (name, seen) = (FilterName::new("f").unwrap(), Seen { filter, generation: None });
    let last = Some(u64::MAX);
    coordinator.expire(&name, None, last, deadline()).await.unwrap();
    let late = coordinator.expire_now(&name, seen, None, 1, deadline()).await;
    assert_eq!(late, Err(MetaError::ExpiryChanged { filter }.into()));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(Some((filter, last))));
    // As if it had got this time after the one that has passed.
    assert_eq!(coordinator.drop_expired(filter, &name, 1, deadline()).await, Ok(false));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(Some((filter, last))));
    assert_eq!(coordinator.expire_now(&name, seen, last, 1, deadline()).await, Ok(false));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(None));

    create_replicated(&coordinator, "near").await;
    let name = FilterName::new("near").unwrap();
    let (filter, _) = coordinator.expiry(&name, deadline()).await.unwrap().unwrap();
    let seen = Seen { filter, generation: None };
    assert_eq!(coordinator.expire_now(&name, seen, None, 1, deadline()).await, Ok(true));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(None));
    drop(coordinator);
    node.shutdown().await;
}
