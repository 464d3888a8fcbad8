//! Replicated filters that leave nodes and return: exports, backups, merges.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use umbel_engine::meta::Distribution;
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::SetOperation;
use umbel_filter::Kind;

use super::node_test::{deadline, items, start};
use super::replicated_test::{
    KINDS, confirmed, create, flush_all, insert, name, present, start_quiet, stop,
};
use super::*;
use crate::ReadLevel;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use crate::transfers::{BackupPart, ImportPart, one_shard};
use umbel_node::failure::CallFailure;
use umbel_node::limits::WHOLE_IMPORTS_MAX;

const UNION: SetOperation = SetOperation::Union;

/// An export of a filter that every node holds, which is of no shards, converted to an import under a name.
pub(super) async fn exported(
    coordinator: &Arc<Coordinator>,
    filter: &str,
    to: &str,
) -> Vec<ImportPart> {
    let parts = recut_test::exported(coordinator, filter, to).await;
    let heads = parts.iter().filter_map(|part| match part {
        ImportPart::Head(head) => Some(head),
        _ => None,
    });
    heads.for_each(|head| assert_eq!(head.ranges, one_shard()));
    parts
}

pub(super) async fn import(
    coordinator: &Arc<Coordinator>,
    parts: Vec<ImportPart>,
) -> Result<FilterId, CallFailure> {
    let parts = stream::iter(parts.into_iter().map(Ok));
    let (id, record) = coordinator.import(parts, None).await?;
    assert!(record.is_replicated());
    Ok(id)
}

/// How many items each node finds once all have received everything.
async fn present_everywhere(nodes: &[Node], filter: &str, range: std::ops::Range<u32>) -> Vec<u32> {
    let mut counts = Vec::new();
    flush_all(&nodes[0].coordinator(), filter).await;
    for node in nodes {
        let coordinator = node.coordinator();
        counts.push(present(&coordinator, filter, range.clone(), ReadLevel::Local).await);
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_comes_back_under_another_name_on_all_nodes() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (configs, mut nodes) = start_quiet(&folders).await;
    for kind in KINDS {
        let (filter, again) = (kind.to_string(), format!("{kind} again"));
        let (one, two) = (nodes[0].coordinator(), nodes[1].coordinator());
        let first = create(&one, &filter, kind).await;
        insert(&one, &filter, 0..1000).await;
        let parts = exported(&one, &filter, &again).await;
        let id = import(&two, parts).await.unwrap();
        confirmed(&one).await;
        assert_eq!(present_everywhere(&nodes, &again, 0..1000).await, [1000; 2]);
        let original = nodes[0].copy(first).unwrap().1;
        for node in &nodes {
            assert!(node.copy(id).unwrap().1 == original, "{} differs", node.id());
        }
        // Inserts continue afterwards, and are exchanged as usual.
        insert(&two, &again, 1000..1100).await;
        insert(&one, &again, 1100..1200).await;
        assert_eq!(present_everywhere(&nodes, &again, 0..1200).await, [1200; 2]);
        drop((one, two));

        let restarted = nodes.remove(1);
        restarted.shutdown().await;
        nodes.push(start(configs[1].clone()).await);
        let two = nodes[1].coordinator();
        assert_eq!(present(&two, &again, 0..1100, ReadLevel::Local).await, 1100);
        insert(&two, &again, 1200..1300).await;
        assert_eq!(present_everywhere(&nodes, &again, 0..1300).await, [1300; 2]);
    }
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_right_after_an_import_keeps_all_of_it() {
    let folders = [tempfile::tempdir().unwrap()];
    let (configs, mut nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    for kind in KINDS {
        let filter = kind.to_string();
        create(&coordinator, &filter, kind).await;
        insert(&coordinator, &filter, 0..1000).await;
        let parts = exported(&coordinator, &filter, &format!("{kind} again")).await;
        import(&coordinator, parts).await.unwrap();
    }
    drop(coordinator);
    let node = nodes.remove(0);
    node.shutdown().await;
    let node = start(configs[0].clone()).await;
    let coordinator = node.coordinator();
    for kind in KINDS {
        let again = format!("{kind} again");
        assert_eq!(present(&coordinator, &again, 0..1000, ReadLevel::Local).await, 1000);
        assert!(present(&coordinator, &again, 1000..2000, ReadLevel::Local).await < 5);
    }
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_import_leaves_nothing() {
    let folders = [tempfile::tempdir().unwrap()];
    let (_, nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    insert(&coordinator, "seen", 0..1000).await;
    let good = exported(&coordinator, "seen", "again").await;
    let groups = nodes[0].local().storage().groups();
    let mut damaged = good.clone();
    let ImportPart::Frame(frame) = &mut damaged[1] else { panic!("a frame comes second") };
    let mut bytes = frame.frame.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    frame.frame = Bytes::from(bytes);
    let mut other_sum = good.clone();
    let Some(ImportPart::End(end)) = other_sum.last_mut() else { panic!("the end comes last") };
    end.checksum ^= 1;
    let mut incomplete = good.clone();
    incomplete.remove(1);
    let mut on_shards = good.clone();
    let ImportPart::Head(head) = &mut on_shards[0] else { panic!("the head comes first") };
    head.ranges = ShardRanges::new(4, 4).unwrap();
    let cut = good[..2].to_vec();
    for (parts, expected) in [
        (damaged, "frame 0: "),
        (other_sum, "1 frames with checksum"),
        (incomplete, "0 frames with checksum"),
        (on_shards, "made on 4 shards"),
        (cut, "ends early"),
    ] {
        let error = import(&coordinator, parts).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        confirmed(&coordinator).await;
        assert_eq!(nodes[0].local().storage().groups(), groups, "{expected}");
        let again = coordinator.info(&name("again"), deadline()).await;
        assert!(matches!(again, Err(CallFailure::UnknownFilter { .. })));
    }
    import(&coordinator, good).await.unwrap();
    assert_eq!(present(&coordinator, "again", 0..1000, ReadLevel::Local).await, 1000);
    drop(coordinator);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_that_hold_whole_filters_wait_for_room() {
    let folders = [tempfile::tempdir().unwrap()];
    let (_, nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    let id = create(&coordinator, "seen", Kind::Blocked).await;
    insert(&coordinator, "seen", 0..100).await;
    let (mut unended, mut senders) = (Vec::new(), Vec::new());
    for number in 0..WHOLE_IMPORTS_MAX {
        let mut parts = exported(&coordinator, "seen", &format!("unended {number}")).await;
        parts.pop();
        let (sender, more) = tokio::sync::mpsc::channel(1);
        let more = tokio_stream::wrappers::ReceiverStream::new(more);
        let coordinator = Arc::clone(&coordinator);
        unended.push(tokio::spawn(async move {
            coordinator
                .import(stream::iter(parts.into_iter().map(Ok)).chain(more), None)
                .await
                .map(|_| ())
        }));
        senders.push(sender);
    }
    let copies = nodes[0].local().copies();
    let end = deadline();
    while copies.import_room().now_or_never().is_some() {
        assert!(Instant::now() < end, "the imports do not begin");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let error =
        coordinator.import_room(Instant::now() + Duration::from_millis(20)).await.unwrap_err();
    assert!(error.to_string().contains("try again later"), "{error}");
    // A caller that gives up frees its room, and a waiting one gets it.
    let parts = exported(&coordinator, "seen", "again").await;
    let (imported, ()) = tokio::join!(import(&coordinator, parts), async { drop(senders.pop()) });
    let again = imported.unwrap();
    assert!(nodes[0].copy(again).unwrap().1 == nodes[0].copy(id).unwrap().1);
    drop(senders);
    for unended in unended {
        assert!(unended.await.unwrap().is_err());
    }
    drop(coordinator);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn merges_take_the_room_of_imports() {
    let folders = [tempfile::tempdir().unwrap()];
    let (_, nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    create(&coordinator, "into", Kind::Blocked).await;
    coordinator
        .create(&name("from"), &FilterRequest::Like(name("into")), None, deadline())
        .await
        .unwrap();
    insert(&coordinator, "from", 0..100).await;
    let mut rooms = Vec::new();
    for _ in 0..WHOLE_IMPORTS_MAX {
        rooms.push(nodes[0].local().copies().import_room().await);
    }
    // The filters are found first, for which a busy machine may need longer.
    let (sources, end) = ([name("from")], deadline());
    let mut patience = Duration::from_millis(500);
    loop {
        let soon = Instant::now() + patience;
        let error =
            coordinator.merge(&name("into"), &sources, UNION, None, soon).await.unwrap_err();
        if error.to_string().contains("try again later") {
            break;
        }
        assert!(Instant::now() < end, "{error}");
        patience *= 2;
    }
    rooms.pop();
    let merged = coordinator.merge(&name("into"), &sources, UNION, None, deadline()).await;
    assert!(merged.unwrap() > 0);
    // The merge has freed its room.
    let room = tokio::time::timeout_at(deadline(), nodes[0].local().copies().import_room()).await;
    drop((room.unwrap(), rooms, coordinator));
    stop(nodes).await;
}

/// While a merge waits for room, one of its filters is made anew with the same figures, and so with another key.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_does_not_follow_a_name_to_another_filter() {
    let folders = [tempfile::tempdir().unwrap()];
    let (_, nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    for replaced in ["into", "from"] {
        create(&coordinator, "into", Kind::Blocked).await;
        let like = FilterRequest::Like(name("into"));
        coordinator.create(&name("from"), &like, None, deadline()).await.unwrap();
        insert(&coordinator, "from", 0..100).await;
        let seen = async |name| coordinator.live_filter(name, deadline()).await.unwrap();
        let (into, from) = (seen("into").await, seen("from").await);
        coordinator.drop_filter(&name(replaced), None, deadline()).await.unwrap();
        create(&coordinator, replaced, Kind::Blocked).await;
        let refused = Some(CallFailure::Changed { name: replaced.to_owned() });
        let counted = coordinator.overlap_of_copies(into.clone(), from.clone(), deadline()).await;
        assert_eq!(counted.err(), refused);
        let merged = coordinator.merge_copies(into, vec![from], UNION, deadline()).await;
        assert_eq!(merged.err(), refused);
        let info = coordinator.info(&name("into"), deadline()).await.unwrap();
        assert_eq!(info.copies.unwrap().own.one_count, 0);
        for filter in ["into", "from"] {
            coordinator.drop_filter(&name(filter), None, deadline()).await.unwrap();
        }
    }
    drop(coordinator);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_holds_filters_of_both_distributions() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_, nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    let partitioned = FilterRequest::Planned {
        kind: Kind::Blocked,
        distribution: Distribution::Partitioned,
        capacity: 10_000,
        size: FilterSize::Rate(1e-4),
        hashing: Hashing::Keyed,
    };
    coordinator.create(&name("cut"), &partitioned, None, deadline()).await.unwrap();
    coordinator.insert("cut", &items(0..500), None, None, deadline()).await.unwrap();
    for kind in KINDS {
        create(&coordinator, &kind.to_string(), kind).await;
        insert(&coordinator, &kind.to_string(), 0..1000).await;
    }
    let backup = coordinator.backup(true, deadline()).await.unwrap().into_stream();
    let backup: Vec<BackupPart> = backup.try_collect().await.unwrap();
    drop(coordinator);
    stop(nodes).await;

    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_, nodes) = start_quiet(&folders).await;
    let coordinator = nodes[0].coordinator();
    let restored =
        coordinator.restore(stream::iter(backup.into_iter().map(Ok)).boxed(), None).await.unwrap();
    let mut expected = KINDS.map(|kind| kind.to_string()).to_vec();
    expected.push("cut".to_owned());
    expected.sort_unstable();
    assert_eq!(restored.restored, expected);
    confirmed(&coordinator).await;
    for kind in KINDS {
        let filter = kind.to_string();
        assert_eq!(present_everywhere(&nodes, &filter, 0..1000).await, [1000; 2]);
    }
    let level = ReadLevel::Linearizable;
    assert_eq!(present(&nodes[1].coordinator(), "cut", 0..500, level).await, 500);
    drop(coordinator);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_node_has_of_filters_is_merged_on_all() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_, nodes) = start_quiet(&folders).await;
    let (one, two) = (nodes[0].coordinator(), nodes[1].coordinator());
    for kind in KINDS {
        let [a, b, c] = ["a", "b", "c"].map(|letter| format!("{kind} {letter}"));
        create(&one, &a, kind).await;
        for other in [&b, &c] {
            let like = FilterRequest::Like(name(&a));
            one.create(&name(other), &like, None, deadline()).await.unwrap();
        }
        confirmed(&one).await;
        insert(&one, &a, 0..100).await;
        insert(&one, &b, 100..200).await;
        insert(&two, &c, 200..300).await;
        flush_all(&two, &c).await;
        let sources = [name(&b), name(&c)];
        assert!(one.merge(&name(&a), &sources, UNION, None, deadline()).await.unwrap() > 0);
        assert_eq!(present_everywhere(&nodes, &a, 0..300).await, [300; 2]);
        assert!(present(&two, &a, 300..1000, ReadLevel::Local).await < 5);
        assert_eq!(one.merge(&name(&a), &sources, UNION, None, deadline()).await.unwrap(), 0);
        // The same settings, but another key.
        let other = format!("{kind} d");
        create(&one, &other, kind).await;
        let error =
            one.merge(&name(&a), &[name(&other)], UNION, None, deadline()).await.unwrap_err();
        assert!(error.to_string().contains("hash items differently"), "{error}");
    }
    drop((one, two));
    stop(nodes).await;
}
