//! Filters that are dropped at a time that has passed.

use umbel_engine::meta::{FilterName, MetaError};
use umbel_filter::Kind;
use umbel_node::failure::CallFailure;

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
    let late = coordinator.expire_now(&name, seen, None, deadline()).await;
    assert_eq!(late, Err(MetaError::ExpiryChanged { filter }.into()));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(Some((filter, last))));
    // Of two at once, by this command and another one, one has dropped it.
    let (expired, dropped) = tokio::join!(
        coordinator.expire_now(&name, seen, last, deadline()),
        coordinator.take_filter(&name, Some(seen), deadline()),
    );
    let (done, late) = if expired.is_ok() { (expired, dropped) } else { (dropped, expired) };
    assert_eq!(done, Ok(false));
    assert_eq!(late, Err(CallFailure::UnknownFilter { name: "f".to_owned() }));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(None));

    create_replicated(&coordinator, "near").await;
    let name = FilterName::new("near").unwrap();
    let (filter, _) = coordinator.expiry(&name, deadline()).await.unwrap().unwrap();
    let seen = Seen { filter, generation: None };
    assert_eq!(coordinator.expire_now(&name, seen, None, deadline()).await, Ok(true));
    assert_eq!(coordinator.expiry(&name, deadline()).await, Ok(None));
    drop(coordinator);
    node.shutdown().await;
}
