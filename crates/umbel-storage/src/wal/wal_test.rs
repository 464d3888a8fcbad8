//! What the log does when its disk misbehaves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::{RaftLogReader, StoredMembership};
use umbel_engine::{GroupId, NodeId};

use super::format::SEGMENT_HEADER_BYTES;
use crate::crash_test::{open, options};
use crate::observer::{EntryId, Event, NodeObserver};
use crate::testing::{FaultDisk, Faults, entry, id};
use crate::types::{SnapshotMeta, Types, Vote};
use crate::{LogOwner, LogStore, OpenError, Storage, WalHealth, WalOptions};

pub(super) const FIRST: &str = "wal/00000001.log";

type Answer = tokio::sync::oneshot::Receiver<std::io::Result<()>>;

pub(super) async fn append(
    log: &mut LogStore,
    indexes: std::ops::Range<u64>,
) -> std::io::Result<Answer> {
    let (sender, receiver) = <Types as TypeConfigExt>::oneshot();
    log.append(indexes.map(|index| entry(1, index)), IOFlushed::signal(sender)).await?;
    Ok(receiver)
}

pub(super) async fn durable(log: &mut LogStore, indexes: std::ops::Range<u64>) {
    append(log, indexes).await.unwrap().await.unwrap().unwrap();
}

pub(super) async fn indexes(storage: &Storage, group: GroupId) -> Vec<u64> {
    let entries = storage.log(group).try_get_log_entries(..).await.unwrap();
    entries.into_iter().map(|entry| entry.log_id.index).collect()
}

pub(super) async fn refused(disk: &FaultDisk, options: WalOptions) -> OpenError {
    Storage::open(Arc::new(disk.clone()), options).await.err().expect("the start is refused")
}

/// A log of three batches in one segment, after the process stopped abruptly.
async fn three_batches() -> (FaultDisk, Vec<usize>) {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let mut log = storage.log(GroupId::META);
    let mut ends = vec![disk.len(FIRST)];
    for index in 0..3 {
        durable(&mut log, index..index + 1).await;
        ends.push(disk.len(FIRST));
    }
    assert_eq!(ends[0], SEGMENT_HEADER_BYTES);
    (disk.crash(|_| 0), ends)
}

#[tokio::test(start_paused = true)]
async fn a_torn_tail_is_cut() {
    let (disk, ends) = three_batches().await;
    // The last eight bytes are the filter's number, so zeros in their place are damage.
    for (end, count) in [(ends[3] - 8, 2), (ends[2] + 5, 2), (ends[1], 1)] {
        let disk = disk.crash(|_| 0);
        let mut bytes = disk.bytes(FIRST)[..end].to_vec();
        // Zeros may follow.
        bytes.extend([0; 40]);
        disk.put(FIRST, &bytes);
        let (storage, recovered) = Storage::open(Arc::new(disk.clone()), options()).await.unwrap();
        assert_eq!(recovered.cut_byte_count, (bytes.len() - ends[count]) as u64);
        assert_eq!(recovered.record_count, count as u64);
        assert_eq!(disk.len(FIRST), ends[count]);
        // The log continues at the cut.
        durable(&mut storage.log(GroupId::META), count as u64..6).await;
        storage.close().await;
        assert_eq!(indexes(&open(&disk).await, GroupId::META).await, [0, 1, 2, 3, 4, 5]);
    }
}

#[tokio::test(start_paused = true)]
async fn damage_before_whole_records_is_refused() {
    let (disk, ends) = three_batches().await;
    for byte in SEGMENT_HEADER_BYTES..ends[2] {
        disk.flip(FIRST, byte, 0x10);
        let place = ends.iter().rev().find(|end| **end <= byte).unwrap();
        match refused(&disk, options()).await {
            OpenError::Damaged { path, offset } => {
                assert_eq!((path.as_str(), offset as usize), (FIRST, *place));
            }
            other => panic!("{other}"),
        }
        disk.flip(FIRST, byte, 0x10);
    }
    disk.flip(FIRST, ends[1] + 20, 1);
    let message = refused(&disk, options()).await.to_string();
    assert!(message.starts_with("wal/00000001.log: record at offset "), "{message}");
    assert!(message.contains("join again with an empty data folder"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_last_record_of_a_closed_log_may_not_be_damaged() {
    let (disk, ends) = three_batches().await;
    open(&disk).await.close().await;
    disk.flip(FIRST, ends[3] - 1, 1);
    assert!(matches!(refused(&disk, options()).await, OpenError::Damaged { .. }));
}

#[tokio::test(start_paused = true)]
async fn damage_in_older_segments_and_gaps_are_refused() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    for index in 0..40 {
        durable(&mut storage.log(GroupId::META), index..index + 1).await;
    }
    storage.close().await;
    let paths = disk.paths();
    assert!(paths.len() > 4, "{paths:?}");
    // A truncated tail is damage in every segment except the last.
    let whole = disk.bytes(&paths[1]);
    disk.put(&paths[1], &whole[..whole.len() - 3]);
    let error = refused(&disk, options()).await;
    assert!(matches!(&error, OpenError::Damaged { path, .. } if *path == paths[1]), "{error}");
    // A segment under another name than its own is not accepted.
    disk.put(&paths[1], &disk.bytes(&paths[2]));
    assert!(matches!(refused(&disk, options()).await, OpenError::Damaged { offset: 0, .. }));
    disk.delete(&paths[1]);
    let error = refused(&disk, options()).await;
    assert!(matches!(&error, OpenError::MissingSegment { path } if *path == paths[1]), "{error}");
    disk.delete(&paths[0]);
    let error = refused(&disk, options()).await;
    assert!(matches!(error, OpenError::MissingEntries { from: 0, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn other_versions_and_other_nodes_are_refused() {
    let (disk, _) = three_batches().await;
    let known = |nonce, joined| WalOptions::new(LogOwner::Known { nonce, joined });
    let error = refused(&disk, known(1, true)).await.to_string();
    assert!(error.starts_with("identity and log belong to different nodes"), "{error}");
    let new = WalOptions::new(LogOwner::New { nonce: 1 });
    assert!(matches!(refused(&disk, new).await, OpenError::MissingIdentity));
    let empty = FaultDisk::new();
    assert!(matches!(refused(&empty, known(1, true)).await, OpenError::MissingLog));
    disk.flip(FIRST, 8, 3);
    let error = refused(&disk, options()).await.to_string();
    assert_eq!(error, "wal/00000001.log: format version 2, known is 1");

    // A start that stopped before the identity was saved.
    let (storage, recovered) = Storage::open(Arc::new(empty.clone()), new).await.unwrap();
    assert_eq!(recovered.nonce, 1);
    storage.close().await;
    let other = WalOptions::new(LogOwner::New { nonce: 2 });
    let (_storage, recovered) = Storage::open(Arc::new(empty.clone()), other).await.unwrap();
    assert_eq!(recovered.nonce, 1);
    assert!(matches!(refused(&empty, other).await, OpenError::Locked));
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_sync_nothing_is_acknowledged() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let mut log = storage.log(GroupId::META);
    durable(&mut log, 0..2).await;
    disk.set(Faults { sync_fails_once: true, ..Faults::default() });
    let answers = [append(&mut log, 2..3).await.unwrap(), append(&mut log, 3..4).await.unwrap()];
    for answer in answers {
        let error = answer.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("sync failed: sync is broken"), "{error}");
    }
    // The disk reports success again, but the log has failed for good.
    assert_eq!(*storage.health().borrow(), WalHealth::Failed);
    assert!(append(&mut log, 4..5).await.is_err());
    assert!(log.save_vote(&Vote::new(1, NodeId(1))).await.is_err());
    assert!(log.purge(id(1, 0)).await.is_err());
    storage.close().await;
    let disk = disk.crash(|_| 0);
    assert_eq!(indexes(&open(&disk).await, GroupId::META).await, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_a_restart_reads_after_a_failed_sync_is_written_again() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let mut log = storage.log(GroupId::META);
    durable(&mut log, 0..2).await;
    disk.set(Faults { sync_fails_once: true, ..Faults::default() });
    append(&mut log, 2..3).await.unwrap().await.unwrap().unwrap_err();
    storage.close().await;
    // The process restarts: the entry is still in the page cache and counts as written.
    let storage = open(&disk).await;
    assert_eq!(indexes(&storage, GroupId::META).await, [0, 1, 2]);
    storage.close().await;
    // A reader may rely on it now, so it must survive a power loss.
    let disk = disk.crash(|_| 0);
    assert_eq!(indexes(&open(&disk).await, GroupId::META).await, [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_does_not_keep_the_log_from_closing() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let mut log = storage.log(GroupId::META);
    durable(&mut log, 0..2).await;
    disk.set(Faults { full: true, ..Faults::default() });
    let answer = append(&mut log, 2..3).await.unwrap();
    storage.close().await;
    assert!(answer.await.unwrap().is_err());
    disk.set(Faults::default());
    assert_eq!(indexes(&open(&disk).await, GroupId::META).await, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn other_write_errors_end_the_log() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    disk.set(Faults { write_fails: true, ..Faults::default() });
    assert!(storage.log(GroupId::META).save_vote(&Vote::new(1, NodeId(1))).await.is_err());
    assert_eq!(*storage.health().borrow(), WalHealth::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_panics_leaves_nobody_waiting() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let mut health = storage.health();
    let mut log = storage.log(GroupId::META);
    disk.set(Faults { panics: true, ..Faults::default() });
    let answers = [append(&mut log, 0..1).await.unwrap(), append(&mut log, 1..2).await.unwrap()];
    for answer in answers {
        answer.await.unwrap().unwrap_err();
    }
    health.wait_for(|health| *health == WalHealth::Failed).await.unwrap();
    assert!(append(&mut log, 2..3).await.is_err());
    assert!(log.save_vote(&Vote::new(1, NodeId(1))).await.is_err());
    storage.close().await;
    // The failure is reported once, so watchers do not spin.
    tokio::time::timeout(Duration::from_secs(1), health.changed()).await.unwrap_err();
    assert_eq!(storage.disk_wait(), Duration::ZERO, "the disk does not hang");
}

#[tokio::test(start_paused = true)]
async fn one_sync_serves_all_that_wait() {
    let disk = FaultDisk::new();
    let options = WalOptions { segment_bytes_max: 1 << 20, ..options() };
    let (storage, _) = Storage::open(Arc::new(disk.clone()), options).await.unwrap();
    let before = disk.syncs();
    let mut answers = Vec::new();
    // So few calls that the runtime does not make this task yield between them.
    for group in 0..20 {
        let mut log = storage.log(GroupId::from_number(group));
        answers.push(append(&mut log, 0..1).await.unwrap());
        // Hints cause no write.
        log.save_committed(Some(id(1, 0))).await.unwrap();
    }
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(disk.syncs() - before, 1);
    let calls = disk.calls();
    storage.log(GroupId::META).save_committed(Some(id(1, 0))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(disk.calls(), calls);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(disk.calls(), calls + 1, "written, not synced");
    storage.close().await;
    let mut log = open(&disk).await.log(GroupId::META);
    assert_eq!(log.read_committed().await.unwrap(), Some(id(1, 0)));
}

#[tokio::test(start_paused = true)]
async fn segments_go_when_no_group_needs_them() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let (one, two) = (GroupId::from_number(1), GroupId::from_number(2));
    storage.log(two).save_vote(&Vote::new(9, NodeId(1))).await.unwrap();
    durable(&mut storage.log(two), 0..1).await;
    for index in 0..60 {
        durable(&mut storage.log(one), index..index + 1).await;
    }
    let bytes = storage.wal_bytes();
    assert_eq!(storage.groups_holding_oldest_segment(), [one, two]);
    storage.log(one).purge(id(1, 58)).await.unwrap();
    // The other group's entry still pins all segments.
    assert!(storage.wal_bytes() > bytes);
    assert_eq!(storage.groups_holding_oldest_segment(), [two]);
    storage.log(two).purge(id(1, 0)).await.unwrap();
    assert!(storage.wal_bytes() < bytes / 3);
    assert_eq!(storage.log_bytes(two), 0);
    assert!(storage.log_bytes(one) > 0);
    assert!(!disk.paths().contains(&FIRST.to_owned()));

    let storage = open(&disk.crash(|_| 0)).await;
    assert_eq!(storage.log(two).read_vote().await.unwrap(), Some(Vote::new(9, NodeId(1))));
    assert_eq!(indexes(&storage, one).await, [59]);
}

#[tokio::test(start_paused = true)]
async fn forgotten_groups_leave_nothing() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let group = GroupId::from_number(5);
    durable(&mut storage.log(group), 0..30).await;
    durable(&mut storage.log(GroupId::META), 0..1).await;
    let meta =
        SnapshotMeta { last_log_id: Some(id(1, 3)), last_membership: StoredMembership::default() };
    let mut writer = storage.snapshots(group).writer(meta).await.unwrap();
    writer.write(Bytes::from_static(b"body")).await.unwrap();
    writer.finish().await.unwrap();
    assert_eq!(storage.groups(), [GroupId::META, group]);
    storage.forget(group).await.unwrap();
    assert_eq!(storage.groups(), [GroupId::META]);
    assert!(storage.snapshots(group).latest().await.unwrap().is_none());
    let disk = disk.crash(|_| 0);
    assert!(disk.paths().iter().all(|path| path.starts_with("wal/")), "{:?}", disk.paths());
    let storage = open(&disk).await;
    assert_eq!(storage.groups(), [GroupId::META]);
    // The group may come back as a new one.
    durable(&mut storage.log(group), 0..2).await;
    assert_eq!(indexes(&storage, group).await, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn gaps_and_purged_entries_are_not_taken() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let mut log = storage.log(GroupId::META);
    durable(&mut log, 0..3).await;
    assert!(append(&mut log, 4..5).await.is_err());
    log.purge(id(1, 2)).await.unwrap();
    assert!(append(&mut log, 2..3).await.is_err());
    assert!(append(&mut log, 4..5).await.is_err());
    durable(&mut log, 3..4).await;
}

/// Records the events of the log.
#[derive(Default)]
struct RecordingObserver(std::sync::Mutex<Vec<String>>);

impl NodeObserver for RecordingObserver {
    fn observe(&self, event: &Event<'_>) {
        let text = match event {
            Event::LogOpened { last, ends, vote, .. } => {
                let index = |entry: &EntryId| entry.index;
                let ends: Vec<u64> = ends.iter().map(index).collect();
                let vote = vote.map(|vote| (vote.term, vote.is_committed));
                format!("opened {:?} {ends:?} {vote:?}", last.as_ref().map(index))
            }
            Event::Appended { entry, .. } => format!("appended {}", entry.index),
            Event::Durable { through, .. } => format!("durable {}", through.index),
            Event::Truncated { after, .. } => format!("truncated {after:?}"),
            Event::Purged { through, .. } => format!("purged {}", through.index),
            Event::VoteSaved { vote, .. } => format!("vote {}", vote.term),
            Event::Forgotten { group } => format!("forgotten {group}"),
            _ => "something else".to_owned(),
        };
        self.0.lock().unwrap().push(text);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_receives_only_durable_events() {
    let disk = FaultDisk::new();
    let observer = Arc::new(RecordingObserver::default());
    let take_events = || std::mem::take(&mut *observer.0.lock().unwrap());
    let storage = open(&disk).await.observed_by(Some(Arc::clone(&observer) as _));
    let mut log = storage.log(GroupId::META);
    log.observe_opened(NodeId(1));
    durable(&mut log, 0..2).await;
    log.save_vote(&Vote::new(1, NodeId(1))).await.unwrap();
    log.truncate_after(Some(id(1, 0))).await.unwrap();
    log.purge(id(1, 0)).await.unwrap();
    durable(&mut log, 1..3).await;
    assert_eq!(
        take_events(),
        [
            "opened None [] None",
            "appended 0",
            "appended 1",
            "durable 1",
            "vote 1",
            "truncated Some(0)",
            "purged 0",
            "appended 1",
            "appended 2",
            "durable 2"
        ]
    );
    log.observe_opened(NodeId(1));
    assert_eq!(take_events(), ["opened Some(2) [2] Some((1, false))"]);
    storage.forget(GroupId::META).await.unwrap();
    assert_eq!(take_events(), [format!("forgotten {}", GroupId::META)]);
    disk.set(Faults { sync_fails_once: true, ..Faults::default() });
    append(&mut log, 0..1).await.unwrap().await.unwrap().unwrap_err();
    log.save_vote(&Vote::new(2, NodeId(1))).await.unwrap_err();
    assert_eq!(take_events(), ["appended 0"]);
}
