//! Copies from before shards were split, loaded into the cluster after it, and the reverse; requests from
//! before that are sent again.

use std::path::Path;

use futures_util::{StreamExt, TryStreamExt, stream};
use umbel_engine::limits::SHARD_COUNT_MAX;
use umbel_engine::meta::{Distribution, FilterName, MetaError, MetaState};
use umbel_engine::shard::SetOperation;
use umbel_engine::{OwnerId, RequestId};
use umbel_filter::Kind;

use super::node_test::{MINUTES, config, create, deadline, items, start};
use super::*;
use crate::ClientRequest;
use crate::catalogue::{FilterRequest, Hashing};
use crate::sizes::FilterSize;
use crate::transfers::{BackupPart, ExportPart, ExportWish, ImportHead, ImportPart, Restored};
use umbel_node::failure::CallFailure;

/// Items of each filter.
pub(super) const ITEM_COUNT: u32 = 600;

pub(super) fn name(name: &str) -> FilterName {
    FilterName::new(name).unwrap()
}

pub(super) async fn start_alone(data: &Path) -> Node {
    start(Config { dev: true, shards: 2, replicas: 1, ..config(data) }).await
}

/// Creates filters of every kind, for so many items, and inserts some.
pub(super) async fn fill(coordinator: &Arc<Coordinator>, capacity: u64) {
    for kind in Kind::ALL {
        let size = match kind {
            Kind::Window => FilterSize::Window { rate: 1e-4, rules: MINUTES },
            _ => FilterSize::Rate(1e-4),
        };
        let (distribution, hashing) = (Distribution::Partitioned, Hashing::Keyed);
        let new = FilterRequest::Planned { kind, distribution, capacity, size, hashing };
        coordinator.create(&name(&kind.to_string()), &new, None, deadline()).await.unwrap();
        coordinator
            .insert(&kind.to_string(), &items(0..ITEM_COUNT), None, None, deadline())
            .await
            .unwrap();
    }
}

pub(super) async fn exported(
    coordinator: &Arc<Coordinator>,
    filter: &str,
    to: &str,
) -> Vec<ImportPart> {
    let parts = coordinator.export(&name(filter), ExportWish::default(), deadline()).await.unwrap();
    let imported = |part| match part {
        ExportPart::Head(head) => ImportPart::Head(ImportHead {
            name: name(to),
            ranges: head.ranges,
            settings: head.settings,
        }),
        ExportPart::Frame(frame) => ImportPart::Frame(frame),
        ExportPart::Change(..) => panic!("nothing was known"),
        ExportPart::End(end) => ImportPart::End(end),
    };
    parts.into_stream().map_ok(imported).try_collect().await.unwrap()
}

pub(super) async fn import(
    coordinator: &Arc<Coordinator>,
    parts: &[ImportPart],
) -> Result<(), CallFailure> {
    let parts = stream::iter(parts.iter().cloned().map(Ok));
    coordinator.import(parts, None).await.map(drop)
}

/// Splits as soon as the existing shards have leaders.
pub(super) async fn split(coordinator: &Coordinator, shard_count: u32) {
    loop {
        match coordinator.shards().split(shard_count, deadline()).await {
            Err(CallFailure::Meta(MetaError::ShardBusy { .. })) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            outcome => {
                outcome.unwrap();
                return;
            }
        }
    }
}

async fn assert_full(coordinator: &Coordinator, filter: &str) {
    let all = items(0..2 * ITEM_COUNT);
    let found = coordinator.contains(filter, &all, None, deadline()).await.unwrap().0;
    let present = found.iter().take(ITEM_COUNT as usize).filter(|&is_present| is_present).count();
    assert_eq!(present, ITEM_COUNT as usize, "{filter}");
    // Expected false positives: 600 lookups at a rate of one in ten thousand.
    let wrong = found.iter().skip(ITEM_COUNT as usize).filter(|&is_present| is_present).count();
    assert!(wrong <= 3, "{filter}: {wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_into_as_many_shards_as_there_are_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    // Returns when the cluster is formed.
    create(&coordinator, "seen", Kind::Blocked).await;
    let shard_count = coordinator.read_meta(MetaState::shard_count).unwrap();
    let last = ShardId(shard_count - 1);
    let done = coordinator.shards().split(shard_count, deadline()).await;
    assert_eq!(done, Ok((last, last)));
    for impossible in [0, SHARD_COUNT_MAX + 1] {
        let refused = coordinator.shards().split(impossible, deadline()).await.unwrap_err();
        assert!(matches!(refused, CallFailure::Invalid { .. }), "{refused}");
    }
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_before_a_split_are_loaded_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    fill(&coordinator, 2_000).await;
    let mut exports = Vec::new();
    for kind in Kind::ALL {
        exports.push((
            kind,
            exported(&coordinator, &kind.to_string(), &format!("{kind} again")).await,
        ));
    }
    let backup = coordinator.backup(true, deadline()).await.unwrap().into_stream();
    let backup: Vec<BackupPart> = backup.try_collect().await.unwrap();
    for shard_count in [3, 4, 5] {
        split(&coordinator, shard_count).await;
    }
    for (kind, parts) in &exports {
        import(&coordinator, parts).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_full(&coordinator, &format!("{kind} again")).await;
        coordinator.drop_filter(&name(&kind.to_string()), None, deadline()).await.unwrap();
    }
    let restore =
        || coordinator.restore(stream::iter(backup.clone().into_iter().map(Ok)).boxed(), None);
    let names = restore().await.unwrap().restored;
    assert_eq!(names.len(), Kind::ALL.len());
    let all_taken = Restored { restored: Vec::new(), skipped: names };
    assert_eq!(restore().await, Ok(all_taken));
    for kind in Kind::ALL {
        assert_full(&coordinator, &kind.to_string()).await;
    }
    // The filter accepts more items and continues like an original one.
    coordinator.insert("scalable", &items(5_000..9_000), None, None, deadline()).await.unwrap();
    let found =
        coordinator.contains("scalable", &items(5_000..9_000), None, deadline()).await.unwrap().0;
    assert_eq!(found.count_ones(), 4_000);
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_after_a_split_waits_for_one_and_says_so() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let node = start_alone(folders[0].path()).await;
    let coordinator = node.coordinator();
    fill(&coordinator, 2_000).await;
    split(&coordinator, 3).await;
    let backup = coordinator.backup(false, deadline()).await.unwrap().into_stream();
    let backup: Vec<BackupPart> = backup.try_collect().await.unwrap();
    drop(coordinator);
    node.shutdown().await;

    let node = start_alone(folders[1].path()).await;
    let coordinator = node.coordinator();
    let restore = |coordinator: Arc<Coordinator>| {
        let parts = stream::iter(backup.clone().into_iter().map(Ok)).boxed();
        async move { coordinator.restore(parts, None).await }
    };
    let error = restore(Arc::clone(&coordinator)).await.unwrap_err().to_string();
    assert!(error.contains("umbel cluster split --to 3, then load it"), "{error}");
    split(&coordinator, 3).await;
    assert_eq!(restore(Arc::clone(&coordinator)).await.unwrap().restored.len(), Kind::ALL.len());
    for kind in Kind::ALL {
        assert_full(&coordinator, &kind.to_string()).await;
    }
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_cut_anew_is_whole_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    fill(&coordinator, 2_000).await;
    let whole = exported(&coordinator, "cuckoo", "again").await;
    split(&coordinator, 3).await;
    let is_frame = |part: &&ImportPart| matches!(part, ImportPart::Frame(_));
    assert!(whole.iter().filter(is_frame).count() >= 2);
    // Without its last frame, and with the first frame changed.
    let last = whole.iter().rposition(|part| matches!(part, ImportPart::Frame(_))).unwrap();
    let mut short = whole.clone();
    short.remove(last);
    let mut damaged = whole.clone();
    for part in &mut damaged {
        if let ImportPart::Frame(frame) = part {
            let mut bytes = frame.frame.to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            frame.frame = bytes.into();
            break;
        }
    }
    for parts in [short, damaged] {
        import(&coordinator, &parts).await.unwrap_err();
        let names = coordinator.read_meta(|state| state.filter_by_name("again").is_some()).unwrap();
        assert!(!names);
    }
    import(&coordinator, &whole).await.unwrap();
    assert_full(&coordinator, "again").await;
    drop(coordinator);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_before_splits_get_their_first_answers() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    fill(&coordinator, 2_000).await;
    let session = coordinator.sessions().open(String::new(), deadline()).await.unwrap();
    let request = |sequence: u64| {
        let id = RequestId { session, sequence };
        Some(ClientRequest { id, acknowledged_below: 1, owner: OwnerId::default() })
    };
    let number = |kind: Kind| 10 * u64::from(kind.id());
    let insert = async |kind: Kind, at: u64, range: std::ops::Range<u32>| {
        let request = request(number(kind) + at);
        let answer =
            coordinator.insert(&kind.to_string(), &items(range), request, None, deadline()).await;
        answer.unwrap().0
    };
    let counting = || Kind::ALL.into_iter().filter(|kind| kind.merges_by_sum());
    let sum = async |kind: Kind, at: u64| {
        let (target, sources) = (name(&format!("sum of {kind}")), [name(&kind.to_string())]);
        let (operation, request) = (SetOperation::Union, request(number(kind) + at));
        coordinator.merge(&target, &sources, operation, request, deadline()).await.unwrap()
    };
    let mut sums = Vec::new();
    for kind in counting() {
        let (target, like) = (name(&format!("sum of {kind}")), name(&kind.to_string()));
        coordinator.create(&target, &FilterRequest::Like(like), None, deadline()).await.unwrap();
        sums.push((kind, sum(kind, 9).await));
    }
    let mut first = Vec::new();
    for kind in Kind::ALL {
        first.push((kind, insert(kind, 1, 550..650).await, insert(kind, 2, 700..701).await));
    }
    for shard_count in [3, 4, 5] {
        split(&coordinator, shard_count).await;
    }
    for (kind, many, one) in first {
        assert_eq!(insert(kind, 1, 550..650).await, many, "{kind}");
        assert_eq!(insert(kind, 2, 700..701).await, one, "{kind}");
        let (filter, other) = (kind.to_string(), items(551..651));
        let reused = request(number(kind) + 1);
        let refused = coordinator.insert(&filter, &other, reused, None, deadline()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("came before with other items"), "{kind}: {refused}");
    }
    for (kind, new_count) in sums {
        // It counts once, though each half of a shard has the number of the whole.
        assert_eq!(sum(kind, 9).await, new_count, "{kind}");
    }
    drop(coordinator);
    node.shutdown().await;
}

/// Its node may die at any moment; what is complete stays for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_expires_while_it_is_loaded_and_not_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    create(&coordinator, "seen", Kind::Blocked).await;
    let parts = exported(&coordinator, "seen", "again").await;
    let expiry = || {
        let of = |state: &MetaState| state.filter_by_name("again").map(|(_, now)| now.expires_ms);
        coordinator.read_meta(of).unwrap()
    };
    let mut during = Vec::new();
    let watched = stream::iter(parts.into_iter().map(Ok)).inspect(|_| during.push(expiry()));
    coordinator.import(watched, None).await.unwrap();
    // The first part comes before the filter is made.
    assert_eq!(during[0], None);
    let has_end = during[1..].iter().all(|expires_ms| expires_ms.flatten().is_some());
    assert!(during.len() > 1 && has_end, "{during:?}");
    assert_eq!(expiry(), Some(None));
    drop(coordinator);
    node.shutdown().await;
}
