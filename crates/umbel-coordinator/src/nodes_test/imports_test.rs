//! Imports at once under one name: one of them makes the filter.

use futures_util::{StreamExt, stream};
use umbel_engine::meta::{
    ClusterVerb, FilterVerb, Grant, MetaCommand, MetaError, MetaState, Principal, PrincipalName,
    Proof, Rights,
};
use umbel_filter::Kind;

use super::node_test::{deadline, items};
use super::recut_test::{ITEM_COUNT, exported, fill, import, name, start_alone};
use super::*;
use umbel_node::failure::CallFailure;

const NAME: &str = "again";

/// The kinds in which an item that was loaded twice is still present once it is removed.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.removes())
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, CallFailure>) {
    let refused = outcome.unwrap_err();
    assert!(matches!(refused, CallFailure::Meta(MetaError::NameTaken { .. })), "{refused:?}");
    assert_eq!(refused.to_string(), "a filter named \"again\" exists already");
}

/// Checks that the filter has each item once, and drops it.
async fn assert_loaded_once(coordinator: &Coordinator, kind: Kind) {
    let all = items(0..ITEM_COUNT);
    let removed = coordinator.remove(NAME, &all, None, deadline()).await.unwrap();
    assert_eq!(removed.count_ones(), ITEM_COUNT, "{kind}");
    let left = coordinator.contains(NAME, &all, None, deadline()).await.unwrap().0;
    assert_eq!(left.count_ones(), 0, "{kind}");
    coordinator.drop_filter(&name(NAME), None, deadline()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_refused_while_another_one_loads_the_filter() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    fill(&coordinator, 2_000).await;
    for kind in kinds() {
        let parts = exported(&coordinator, &kind.to_string(), NAME).await;
        let (last, end) = (parts.len() - 2, parts.len() - 1);
        let others = async {
            assert_refused(import(&coordinator, &parts).await);
            // One that found the name free just before: only the meta group can tell the two apart.
            let of = |state: &MetaState| state.filter_by_name(NAME).unwrap().1.settings.clone();
            let settings = coordinator.read_meta(of).unwrap();
            let command = coordinator.begun_import(name(NAME), settings.clone(), None).unwrap();
            assert!(matches!(command, MetaCommand::BeginImport { .. }), "{command:?}");
            let (settings, importing) = (&settings, true);
            let proposed = coordinator
                .propose_filter(&name(NAME), settings, importing, None, deadline())
                .await;
            assert_refused(proposed);
            Ok(parts[last].clone())
        };
        let first = stream::iter(parts[..last].iter().cloned().map(Ok));
        let held = first.chain(stream::once(others));
        let held = held.chain(stream::iter([Ok(parts[end].clone())]));
        coordinator.import(held.boxed_local(), None).await.unwrap();
        assert_loaded_once(&coordinator, kind).await;
    }
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_imports_at_once_one_makes_the_filter() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let (coordinator, other) = (node.coordinator(), node.coordinator());
    fill(&coordinator, 2_000).await;
    for kind in kinds() {
        let parts = exported(&coordinator, &kind.to_string(), NAME).await;
        match tokio::join!(import(&coordinator, &parts), import(&other, &parts)) {
            (Ok(()), refused) | (refused, Ok(())) => assert_refused(refused),
            (first, second) => panic!("{kind}: {first:?}, {second:?}"),
        }
        assert_loaded_once(&coordinator, kind).await;
    }
    drop((coordinator, other));
    node.shutdown().await;
}

/// Adds a principal with verbs on all filters whose names begin with a text.
async fn add(
    coordinator: &Coordinator,
    of: &str,
    verbs: &[FilterVerb],
    begin: &str,
) -> PrincipalName {
    let grant = Grant { pattern: format!("{begin}*"), verbs: verbs.iter().copied().collect() };
    // The first principal has to be an administrator.
    let cluster = if of == "root" { [ClusterVerb::Admin].into() } else { [].into() };
    let rights = Rights { cluster, grants: vec![grant] };
    // Each its own: their second letters differ.
    let proof = Proof::Token { digest: [of.as_bytes()[1]; 32] };
    let principal = Principal { proof, rights, created_ms: 0, expires_ms: None };
    let name = PrincipalName::new(of).unwrap();
    let command = MetaCommand::PutPrincipal { name: name.clone(), principal, replace: true };
    coordinator.meta_propose(command, deadline()).await.unwrap();
    name
}

/// A filter of its own under the same key tells a principal which positions the items of the other one have.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_has_a_secret_key_only_for_who_may_read_a_filter_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    fill(&coordinator, 2_000).await;
    let parts = exported(&coordinator, &Kind::Blocked.to_string(), NAME).await;
    let import = async |owner| {
        let parts = stream::iter(parts.iter().cloned().map(Ok));
        coordinator.import(parts, Some(owner)).await.map(drop)
    };
    add(&coordinator, "root", &[FilterVerb::Manage], NAME).await;
    // Who may export gets bits, which tell nothing without the key.
    for verb in [FilterVerb::Manage, FilterVerb::Export] {
        let owner = add(&coordinator, verb.name(), &[verb], "").await;
        let refused = import(owner.clone()).await.unwrap_err();
        assert!(matches!(refused, CallFailure::Denied { .. }), "{refused:?}");
        let expected = format!("principal {owner} may read no filter with hash key");
        assert!(refused.to_string().contains(&expected), "{refused}");
    }
    let owner = add(&coordinator, "reader", &[FilterVerb::Read], "").await;
    import(owner).await.unwrap();
    drop(coordinator);
    node.shutdown().await;
}
