//! A data folder that an earlier build wrote must stay readable for ever.
//!
//! `testdata/folders/1` contains a log and snapshots, filters of every kind and a replicated one,
//! answers to requests, a shard that was split, and inserts after the snapshots. A changed format gets
//! a new number, a reader for the old one, and a folder beside this one; existing folders are never
//! rewritten.

use std::fs;
use std::path::{Path, PathBuf};

use umbel_engine::meta::{Distribution, FilterName};
use umbel_engine::{OwnerId, RequestId, SessionId};
use umbel_filter::Kind;

use super::node_test::{MINUTES, config, deadline, items, start};
use super::*;
use crate::ClientRequest;
use crate::catalogue::{Hashing, NewFilter};
use crate::sizes::FilterSize;

/// If this variable is set and the folder does not exist, the test writes it: `UMBEL_WRITE_FOLDER=1`.
const WRITE: &str = "UMBEL_WRITE_FOLDER";

/// A file that does not belong to a node: the session of the test's requests.
const SESSION: &str = "session.txt";

const REPLICATED: &str = "replicated";

pub(super) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/folders/1")
}

async fn start_alone(data: &Path) -> Node {
    start(Config { dev: true, shards: 2, replicas: 1, ..config(data) }).await
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

async fn create(asked: &Coordinator, name: &str, kind: Kind, distribution: Distribution) {
    let size = match kind {
        Kind::Window => FilterSize::Window { rate: 1e-4, rules: MINUTES },
        _ => FilterSize::Rate(1e-4),
    };
    let hashing = Hashing::Keyed;
    let new = NewFilter::Planned { kind, distribution, capacity: 400, size, hashing };
    asked.create(&FilterName::new(name).unwrap(), &new, None, deadline()).await.unwrap();
}

const fn request(session: u64, sequence: u64) -> Option<ClientRequest> {
    let id = RequestId { session: SessionId(session), sequence };
    Some(ClientRequest { id, acknowledged_below: 1, owner: OwnerId(0) })
}

/// Items of each filter: the first half was inserted before the snapshots, the second half after.
const ITEM_COUNT: u32 = 200;

async fn write(folder: &Path) {
    let node = start_alone(folder).await;
    let asked = node.coordinator();
    let session = asked.open_session(String::new(), deadline()).await.unwrap();
    let names = Kind::ALL.map(|kind| (kind.to_string(), kind, Distribution::Partitioned));
    let replicated = (REPLICATED.to_owned(), Kind::Blocked, Distribution::Replicated);
    let names = || names.iter().chain([&replicated]);
    for (name, kind, distribution) in names() {
        create(&asked, name, *kind, *distribution).await;
        let first = items(0..ITEM_COUNT / 2);
        asked.insert(name, &first, None, None, deadline()).await.unwrap();
    }
    asked.insert("blocked", &items(0..20), request(session.0, 1), None, deadline()).await.unwrap();
    for group in node.local().groups() {
        group.snapshot().await;
    }
    asked.split_shard(3, deadline()).await.unwrap();
    for (name, ..) in names() {
        let second = items(ITEM_COUNT / 2..ITEM_COUNT);
        asked.insert(name, &second, None, None, deadline()).await.unwrap();
    }
    let more = items(ITEM_COUNT - 10..ITEM_COUNT + 10);
    asked.insert("classic", &more, request(session.0, 2), None, deadline()).await.unwrap();
    drop(asked);
    node.shutdown().await;
    fs::write(folder.join(SESSION), session.0.to_string()).unwrap();
}

async fn check(asked: &Coordinator, session: u64) {
    assert_eq!(asked.read_meta(umbel_engine::meta::MetaState::shard_count).unwrap(), 3);
    let names = Kind::ALL.iter().map(ToString::to_string).chain([REPLICATED.to_owned()]);
    for name in names {
        let all = items(0..ITEM_COUNT + 100);
        let found = asked.contains(&name, &all, None, deadline()).await.unwrap().0;
        let count = found.iter().take(ITEM_COUNT as usize).filter(|&is_present| is_present).count();
        // An hour after its inserts, a windowed filter has forgotten all of its items.
        let has_forgotten = name == "window" && count == 0;
        assert!(has_forgotten || count == ITEM_COUNT as usize, "{name}: {count}");
        let wrong = found.iter().skip(ITEM_COUNT as usize + 10).filter(|&is_present| is_present);
        assert_eq!(wrong.count(), 0, "{name}");
    }
    // Repeated requests get their first answers, also those from before the split.
    for (filter, range, sequence, new_count) in
        [("blocked", 0..20, 1, 0), ("classic", ITEM_COUNT - 10..ITEM_COUNT + 10, 2, 10)]
    {
        let asked_again = request(session, sequence);
        let new =
            asked.insert(filter, &items(range), asked_again, None, deadline()).await.unwrap().0;
        assert_eq!(new.count_ones(), new_count, "{filter}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_an_earlier_build_is_read() {
    if std::env::var_os(WRITE).is_some() && !golden().exists() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).await;
        copy(folder.path(), &golden());
    }
    let folder = tempfile::tempdir().unwrap();
    copy(&golden(), folder.path());
    let session: u64 = fs::read_to_string(folder.path().join(SESSION)).unwrap().parse().unwrap();
    for _ in 0..2 {
        let node = start_alone(folder.path()).await;
        let asked = node.coordinator();
        check(&asked, session).await;
        drop(asked);
        // This build also reads what it writes.
        node.shutdown().await;
    }
}
