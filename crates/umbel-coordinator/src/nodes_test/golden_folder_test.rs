//! A data folder that an earlier build wrote must stay readable for ever.
//!
//! Each folder in `testdata/folders` has the number of the newest version of the cluster when it was written.
//! They contain a log and snapshots, filters of every kind and a replicated one, answers to requests, and
//! inserts after the snapshots:
//!
//! * `1` has a shard that was split;
//! * `3` has one that was absorbed and split off again, so that it is of a later era, and one whose final state
//!   is still on the disk, because no snapshot covers the entry that absorbed it;
//! * `4` has orders about filters by their names, and an import, in its log;
//! * `6` has inserts of what is absent, and times of expiry that replace those that were seen.
//!
//! A changed format gets a new number, a reader for the old one, and a folder beside these; existing folders
//! are never rewritten.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use umbel_engine::meta::{ClusterVersion, Distribution, FilterName, MetaState};
use umbel_engine::{OwnerId, RequestId, SessionId, ShardId};
use umbel_filter::Kind;

use super::node_test::{MINUTES, config, deadline, items, start};
use super::recut_test::{name, split};
use super::*;
use crate::ClientRequest;
use crate::catalogue::{FilterRequest, Hashing, Seen};
use crate::sizes::FilterSize;

/// If this variable is set and a folder does not exist, its test writes it: `UMBEL_WRITE_FOLDER=1`.
const WRITE: &str = "UMBEL_WRITE_FOLDER";

/// A file that does not belong to a node: the session of the test's requests.
const SESSION: &str = "session.txt";

const REPLICATED: &str = "replicated";

pub(super) fn golden(version: ClusterVersion) -> PathBuf {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/folders");
    folders.join(version.0.to_string())
}

async fn start_alone(data: &Path) -> Node {
    start(Config { dev: true, shards: 2, replicas: 1, ..config(data) }).await
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

async fn create(coordinator: &Coordinator, name: &str, kind: Kind, distribution: Distribution) {
    let size = match kind {
        Kind::Window => FilterSize::Window { rate: 1e-4, rules: MINUTES },
        _ => FilterSize::Rate(1e-4),
    };
    let hashing = Hashing::Keyed;
    let new = FilterRequest::Planned { kind, distribution, capacity: 400, size, hashing };
    coordinator.create(&FilterName::new(name).unwrap(), &new, None, deadline()).await.unwrap();
}

const fn request(session: u64, sequence: u64) -> Option<ClientRequest> {
    let id = RequestId { session: SessionId(session), sequence };
    Some(ClientRequest { id, acknowledged_below: 1, owner: OwnerId(0) })
}

/// Items of each filter: the first half was inserted before the snapshots, the second half after.
const ITEM_COUNT: u32 = 200;

/// The filters: one of each kind, and a replicated one.
fn filters() -> impl Iterator<Item = (String, Kind, Distribution)> {
    let all = Kind::ALL.into_iter();
    let all = all.map(|kind| (kind.to_string(), kind, Distribution::Partitioned));
    all.chain([(REPLICATED.to_owned(), Kind::Blocked, Distribution::Replicated)])
}

async fn insert_into_all(coordinator: &Coordinator, numbers: Range<u32>) {
    for (name, ..) in filters() {
        coordinator.insert(&name, &items(numbers.clone()), None, None, deadline()).await.unwrap();
    }
}

/// Creates all filters, inserts the first half into each, and repeats some of it under a name.
async fn write_first_half(coordinator: &Coordinator) -> SessionId {
    let session = coordinator.sessions().open(String::new(), deadline()).await.unwrap();
    for (name, kind, distribution) in filters() {
        create(coordinator, &name, kind, distribution).await;
    }
    insert_into_all(coordinator, 0..ITEM_COUNT / 2).await;
    coordinator
        .insert("blocked", &items(0..20), request(session.0, 1), None, deadline())
        .await
        .unwrap();
    session
}

async fn write_second_half(coordinator: &Coordinator, session: SessionId) {
    insert_into_all(coordinator, ITEM_COUNT / 2..ITEM_COUNT).await;
    let more = items(ITEM_COUNT - 10..ITEM_COUNT + 10);
    coordinator.insert("classic", &more, request(session.0, 2), None, deadline()).await.unwrap();
}

async fn write_split(node: &Node) -> SessionId {
    let coordinator = node.coordinator();
    let session = write_first_half(&coordinator).await;
    for group in node.local().groups() {
        group.snapshot().await;
    }
    split(&coordinator, 3).await;
    write_second_half(&coordinator, session).await;
    session
}

/// Shard 2 is absorbed by shard 0, and split off again; shard 3 is absorbed by shard 1.
async fn write_merged(node: &Node) -> SessionId {
    let coordinator = node.coordinator();
    split(&coordinator, 3).await;
    let session = write_first_half(&coordinator).await;
    coordinator.shards().merge(2, deadline()).await.unwrap();
    let parent = node.local().shard(ShardId(0)).unwrap();
    parent.group().drop_decided(Duration::from_secs(60)).await.unwrap();
    for shard_count in [3, 4] {
        split(&coordinator, shard_count).await;
    }
    for group in node.local().groups() {
        group.snapshot().await;
    }
    write_second_half(&coordinator, session).await;
    coordinator.shards().merge(3, deadline()).await.unwrap();
    session
}

/// Whether a final state is kept for some shard.
fn has_final_state(folder: &Path) -> bool {
    let name_of = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let groups = fs::read_dir(folder.join("snapshots")).unwrap();
    let mut files = groups.flat_map(|group| fs::read_dir(group.unwrap().path()).unwrap());
    files.any(|file| name_of(file.unwrap()).ends_with(".state"))
}

async fn check(coordinator: &Coordinator, session: SessionId) {
    for (name, ..) in filters() {
        let all = items(0..ITEM_COUNT + 100);
        let found = coordinator.contains(&name, &all, None, deadline()).await.unwrap().0;
        let count = found.iter().take(ITEM_COUNT as usize).filter(|&is_present| is_present).count();
        // An hour after its inserts, a windowed filter has forgotten all of its items.
        let has_forgotten = name == "window" && count == 0;
        assert!(has_forgotten || count == ITEM_COUNT as usize, "{name}: {count}");
        let wrong = found.iter().skip(ITEM_COUNT as usize + 10).filter(|&is_present| is_present);
        assert_eq!(wrong.count(), 0, "{name}");
    }
    // Repeated requests get their first answers, also those from before a split or a merge.
    for (filter, range, sequence, new_count) in
        [("blocked", 0..20, 1, 0), ("classic", ITEM_COUNT - 10..ITEM_COUNT + 10, 2, 10)]
    {
        let asked_again = request(session.0, sequence);
        let new = coordinator
            .insert(filter, &items(range), asked_again, None, deadline())
            .await
            .unwrap()
            .0;
        assert_eq!(new.count_ones(), new_count, "{filter}");
    }
}

/// A copy of the folder of a version, and the session of its requests. Where the folder is to be written
/// first, `write` makes its content on a new node.
async fn copied(
    version: ClusterVersion,
    write: impl AsyncFnOnce(&Node) -> SessionId,
) -> (TempDir, SessionId) {
    let golden = golden(version);
    if std::env::var_os(WRITE).is_some() && !golden.exists() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let session = write(&node).await;
        node.shutdown().await;
        fs::write(folder.path().join(SESSION), session.0.to_string()).unwrap();
        copy(folder.path(), &golden);
    }
    let folder = tempfile::tempdir().unwrap();
    copy(&golden, folder.path());
    let session = fs::read_to_string(folder.path().join(SESSION)).unwrap();
    (folder, SessionId(session.parse().unwrap()))
}

fn shard_count(coordinator: &Coordinator) -> u32 {
    coordinator.read_meta(MetaState::shard_count).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_an_earlier_build_is_read() {
    let (folder, session) = copied(ClusterVersion::FIRST, write_split).await;
    for _ in 0..2 {
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        assert_eq!(shard_count(&coordinator), 3);
        check(&coordinator, session).await;
        drop(coordinator);
        // This build also reads what it writes.
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_merged_shards_is_read() {
    let (folder, session) = copied(ClusterVersion(3), write_merged).await;
    // A node removes the final state about a second after the merge: write the folder once more if it is gone.
    assert!(has_final_state(folder.path()));
    for shards_at_start in [3, 4] {
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        let map = coordinator.read_meta(|state| state.shard_map().clone()).unwrap();
        assert_eq!(shard_count(&coordinator), shards_at_start);
        assert_eq!((map.merge_count, map.get(ShardId(2)).unwrap().era), (2, 1));
        check(&coordinator, session).await;
        if shards_at_start == 3 {
            split(&coordinator, 4).await;
            insert_into_all(&coordinator, ITEM_COUNT + 100..ITEM_COUNT + 101).await;
            let map = coordinator.read_meta(|state| state.shard_map().clone()).unwrap();
            assert_eq!(map.get(ShardId(3)).unwrap().era, 2);
        }
        drop(coordinator);
        node.shutdown().await;
    }
}

/// One filter that is renamed, copied and gets a time of expiry, and one that is cleared, and dropped.
async fn write_orders(node: &Node) -> SessionId {
    let coordinator = node.coordinator();
    let session = coordinator.sessions().open(String::new(), deadline()).await.unwrap();
    for filter in ["before", "cleared"] {
        create(&coordinator, filter, Kind::Blocked, Distribution::Partitioned).await;
        coordinator.insert(filter, &items(0..ITEM_COUNT), None, None, deadline()).await.unwrap();
    }
    coordinator.rename(&name("before"), &name("renamed"), false, deadline()).await.unwrap();
    coordinator.copy_filter(&name("renamed"), &name("imported"), None, deadline()).await.unwrap();
    coordinator.expire(&name("renamed"), None, Some(u64::MAX), deadline()).await.unwrap();
    coordinator.clear(&name("cleared"), None, deadline()).await.unwrap();
    create(&coordinator, "dropped", Kind::Blocked, Distribution::Partitioned).await;
    coordinator.drop_filter(&name("dropped"), None, deadline()).await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_orders_by_name_is_read() {
    let (folder, _) = copied(ClusterVersion(4), write_orders).await;
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    let has_dropped =
        coordinator.read_meta(|state| state.filter_by_name("dropped").is_some()).unwrap();
    assert!(!has_dropped);
    for (filter, item_count, expires_ms) in [
        ("cleared", 0, None),
        ("imported", ITEM_COUNT, None),
        ("renamed", ITEM_COUNT, Some(u64::MAX)),
    ] {
        let all = items(0..ITEM_COUNT);
        let found = coordinator.contains(filter, &all, None, deadline()).await.unwrap().0;
        assert_eq!(found.count_ones(), item_count, "{filter}");
        let (_, expiry) = coordinator.expiry(&name(filter), deadline()).await.unwrap().unwrap();
        assert_eq!(expiry, expires_ms, "{filter}");
    }
    drop(coordinator);
    node.shutdown().await;
}

/// Filters that tell copies take each item once, and one of them gets a time of expiry.
async fn write_absent(node: &Node) -> SessionId {
    let coordinator = node.coordinator();
    let session = coordinator.sessions().open(String::new(), deadline()).await.unwrap();
    for kind in [Kind::Cuckoo, Kind::Quotient] {
        create(&coordinator, kind.name(), kind, Distribution::Partitioned).await;
        for numbers in [0..ITEM_COUNT / 2, 0..ITEM_COUNT] {
            let new = coordinator.insert_absent(kind.name(), &items(numbers), deadline()).await;
            assert!(new.unwrap().is_some());
        }
    }
    let (filter, _) =
        coordinator.expiry(&name("cuckoo"), deadline()).await.unwrap().expect("it was created");
    let seen = Seen { filter, generation: None };
    let expires_ms = Some(u64::MAX);
    coordinator.replace_expiry(&name("cuckoo"), seen, None, expires_ms, deadline()).await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_absent_items_is_read() {
    let (folder, _) = copied(ClusterVersion(6), write_absent).await;
    let node = start_alone(folder.path()).await;
    let coordinator = node.coordinator();
    for (kind, expires_ms) in [(Kind::Cuckoo, Some(u64::MAX)), (Kind::Quotient, None)] {
        let all = items(0..ITEM_COUNT);
        let found = coordinator.contains(kind.name(), &all, None, deadline()).await.unwrap().0;
        assert_eq!(found.count_ones(), ITEM_COUNT, "{kind}");
        let copies = coordinator.copies_of_item(kind.name(), &items(7..8), deadline()).await;
        assert_eq!(copies, Ok(1), "{kind}");
        let expiry = coordinator.expiry(&name(kind.name()), deadline()).await.unwrap();
        assert_eq!(expiry.map(|(_, expiry)| expiry), Some(expires_ms), "{kind}");
    }
    drop(coordinator);
    node.shutdown().await;
}
