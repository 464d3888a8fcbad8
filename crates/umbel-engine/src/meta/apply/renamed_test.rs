//! Renames in the catalogue: immediate, and once per request.

use super::apply_test::Cluster;
use super::*;
use crate::ids::{FilterId, Generation};
use crate::meta::testing::{create, create_replicated};
use crate::meta::{FilterChange, FilterName, FilterOrder, FilterState, SeenExpiry};

/// Takes a filter, whatever its expiry is.
const TAKE: FilterChange = FilterChange::Take { seen: SeenExpiry::Any };

fn made(cluster: &mut Cluster, name: &str) -> FilterId {
    let MetaReply::Filter(filter) = cluster.apply(&create(name, 1, false)) else { panic!() };
    cluster.done(&MetaCommand::FilterCreated { filter });
    filter
}

fn rename(filter: FilterId, to: &str, replaced: Option<FilterId>) -> MetaCommand {
    let name = FilterName::new(to).unwrap();
    MetaCommand::RenameFilter { filter, generation: Generation(1), name, replaced }
}

fn id_of(cluster: &Cluster, name: &str) -> Option<FilterId> {
    cluster.state.filter_by_name(name).map(|(id, _)| id)
}

#[test]
fn a_name_changes_at_once_and_shards_follow() {
    let mut cluster = Cluster::new(1, 2, 1);
    let MetaReply::Filter(early) = cluster.apply(&create("early", 1, false)) else { panic!() };
    assert!(matches!(cluster.error(&rename(early, "b", None)), MetaError::Busy { .. }));
    let filter = made(&mut cluster, "a");
    cluster.done(&rename(filter, "b", None));
    assert_eq!((id_of(&cluster, "a"), id_of(&cluster, "b")), (None, Some(filter)));
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Renaming { to: Generation(2) }));
    let clear = MetaCommand::ClearFilter { filter, generation: Generation(1) };
    let busy = MetaError::Busy { name: "b".to_owned(), state: "being renamed".to_owned() };
    assert_eq!(cluster.error(&clear), busy);
    // The same request is retried: also after completion, and when the filter has its old name again.
    cluster.done(&rename(filter, "b", None));
    cluster.done(&MetaCommand::FilterCleared { filter, generation: Generation(2) });
    assert_eq!(cluster.filter_state(filter), Some(FilterState::Live));
    cluster.done(&rename(filter, "b", None));
    let name = FilterName::new("a").unwrap();
    let back =
        MetaCommand::RenameFilter { filter, generation: Generation(2), name, replaced: None };
    cluster.done(&back);
    cluster.done(&rename(filter, "b", None));
    assert_eq!((id_of(&cluster, "a"), id_of(&cluster, "b")), (Some(filter), None));
}

#[test]
fn a_name_that_is_taken_is_refused_unless_its_filter_is_named() {
    let mut cluster = Cluster::new(1, 2, 1);
    let [one, two, three] = ["one", "two", "three"].map(|name| made(&mut cluster, name));
    let taken = MetaError::NameTaken { name: "two".to_owned() };
    assert_eq!(cluster.error(&rename(one, "two", None)), taken);
    // Meanwhile another filter has this name.
    assert_eq!(cluster.error(&rename(one, "two", Some(three))), taken);
    cluster.done(&rename(one, "two", Some(two)));
    assert_eq!((id_of(&cluster, "two"), id_of(&cluster, "one")), (Some(one), None));
    assert_eq!(cluster.filter_state(two), Some(FilterState::Dropping));
    // The filter to be replaced is already gone.
    cluster.done(&MetaCommand::DropFilter { filter: three });
    cluster.done(&MetaCommand::FilterCleared { filter: one, generation: Generation(2) });
    let name = FilterName::new("three").unwrap();
    let (filter, generation, replaced) = (one, Generation(2), Some(three));
    cluster.done(&MetaCommand::RenameFilter { filter, generation, name, replaced });
    assert_eq!(id_of(&cluster, "three"), Some(one));
}

fn order(filter: FilterId, name: &str, change: FilterChange) -> MetaCommand {
    MetaCommand::Order(FilterOrder { filter, name: FilterName::new(name).unwrap(), change })
}

/// A client may change "a", and the filter is "b" by the time at which the order arrives, at the same
/// generation.
#[test]
fn an_order_does_not_follow_a_filter_to_another_name() {
    let mut cluster = Cluster::new(1, 2, 1);
    let reply = cluster.apply(&create_replicated("a", 1, false));
    let MetaReply::Filter(filter) = reply else { panic!() };
    cluster.done(&rename(filter, "b", None));
    let (generation, name) = (Generation(1), FilterName::new("c").unwrap());
    let unknown = MetaError::UnknownFilter { filter };
    for change in [
        FilterChange::Drop,
        FilterChange::SetExpiry { expires_ms: Some(1) },
        FilterChange::Clear { generation },
        FilterChange::Rotate { generation },
        FilterChange::Rename { generation, name, replaced: None },
        FilterChange::ReplaceExpiry { seen_ms: None, expires_ms: Some(1) },
        TAKE,
        FilterChange::Take { seen: SeenExpiry::At(None) },
    ] {
        assert_eq!(cluster.error(&order(filter, "a", change)), unknown);
    }
    cluster.done(&order(filter, "b", FilterChange::SetExpiry { expires_ms: Some(1) }));
    assert_eq!(cluster.state.filter(filter).unwrap().expires_ms, Some(1));
    cluster.done(&order(filter, "b", FilterChange::Clear { generation }));
    assert_eq!(cluster.state.filter(filter).unwrap().generation, Generation(2));
}

#[test]
fn an_order_that_was_carried_out_may_arrive_again() {
    let mut cluster = Cluster::new(1, 2, 1);
    let filter = made(&mut cluster, "a");
    let name = FilterName::new("b").unwrap();
    let change = FilterChange::Rename { generation: Generation(1), name, replaced: None };
    for _ in 0..2 {
        cluster.done(&order(filter, "a", change.clone()));
    }
    assert_eq!(id_of(&cluster, "b"), Some(filter));
    // Twice while the shards drop their slices, and once when they have.
    for _ in 0..2 {
        cluster.done(&order(filter, "b", FilterChange::Drop));
    }
    cluster.done(&MetaCommand::FilterDropped { filter });
    cluster.done(&order(filter, "b", FilterChange::Drop));
}

/// Whoever is told that it is done has dropped it, and nobody else has.
#[test]
fn of_those_who_take_a_filter_one_has_dropped_it() {
    let mut cluster = Cluster::new(1, 2, 1);
    let reply = cluster.apply(&create_replicated("near", 1, false));
    let MetaReply::Filter(near) = reply else { panic!() };
    for (filter, name) in [(made(&mut cluster, "a"), "a"), (near, "near")] {
        let unknown = MetaError::UnknownFilter { filter };
        cluster.done(&order(filter, name, TAKE));
        assert_eq!(id_of(&cluster, name), None);
        assert_eq!(cluster.error(&order(filter, name, TAKE)), unknown);
        cluster.done(&order(filter, name, FilterChange::Drop));
        cluster.done(&MetaCommand::FilterDropped { filter });
        assert_eq!(cluster.error(&order(filter, name, TAKE)), unknown);
    }
    let dropped = made(&mut cluster, "b");
    cluster.done(&order(dropped, "b", FilterChange::Drop));
    let unknown = MetaError::UnknownFilter { filter: dropped };
    assert_eq!(cluster.error(&order(dropped, "b", TAKE)), unknown);
}

/// A client that saw no expiry drops the filter by a time that has passed, and others change the expiry at that moment.
#[test]
fn a_filter_is_taken_only_with_the_expiry_that_was_seen() {
    let mut cluster = Cluster::new(1, 2, 1);
    let filter = made(&mut cluster, "a");
    let take = |seen_ms| order(filter, "a", FilterChange::Take { seen: SeenExpiry::At(seen_ms) });
    let set = |expires_ms| MetaCommand::SetExpiry { filter, expires_ms };
    let changed = MetaError::ExpiryChanged { filter };
    cluster.done(&set(Some(1)));
    for seen_ms in [None, Some(2)] {
        assert_eq!(cluster.error(&take(seen_ms)), changed);
    }
    cluster.done(&set(None));
    assert_eq!(cluster.error(&take(Some(1))), changed);
    assert_eq!(id_of(&cluster, "a"), Some(filter));
    cluster.done(&take(None));
    assert_eq!(id_of(&cluster, "a"), None);
    // Whoever drops it at the same time, or makes it last for ever, is told that there is none.
    let unknown = MetaError::UnknownFilter { filter };
    let persist = FilterChange::ReplaceExpiry { seen_ms: Some(1), expires_ms: None };
    for late in [take(None), order(filter, "a", TAKE), order(filter, "a", persist)] {
        assert_eq!(cluster.error(&late), unknown);
    }
    // The expiry of an import is its own.
    let MetaReply::Filter(import) = cluster.apply(&create("import", 1, true)) else { panic!() };
    let take = MetaCommand::TakeFilter { filter: import, seen: SeenExpiry::At(None) };
    assert!(matches!(cluster.error(&take), MetaError::Busy { .. }));
    cluster.done(&order(import, "import", TAKE));
}
