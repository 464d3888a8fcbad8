//! What the log waits for: room on the disk, and file descriptors.

use std::time::Duration;

use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use umbel_engine::{GroupId, NodeId};

use super::wal_test::{FIRST, append, durable, indexes};
use crate::WalHealth;
use crate::crash_test::open;
use crate::testing::{FaultDisk, Faults, id};
use crate::types::Vote;

/// Appends entries up to this index during a fault of the disk, then ends the fault: nothing is
/// acknowledged before, and everything is there afterwards.
async fn is_waited_for(faults: impl FnOnce(&FaultDisk) -> Faults, through: u64) {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let mut health = storage.health();
    let mut log = storage.log(GroupId::META);
    durable(&mut log, 0..2).await;
    disk.set(faults(&disk));
    let mut answer = append(&mut log, 2..through).await.unwrap();
    health.wait_for(|health| *health != WalHealth::Good).await.unwrap();
    assert_eq!(*health.borrow(), WalHealth::Full);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(answer.try_recv().is_err(), "nothing is acknowledged");
    // Entries that were passed in can be read as usual.
    assert_eq!(log.try_get_log_entries(..).await.unwrap().len() as u64, through);
    disk.set(Faults::default());
    answer.await.unwrap().unwrap();
    assert_eq!(*health.borrow(), WalHealth::Good);
    log.save_vote(&Vote::new(4, NodeId(2))).await.unwrap();
    storage.close().await;
    let storage = open(&disk.crash(|_| 0)).await;
    assert_eq!(indexes(&storage, GroupId::META).await, (0..through).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_waited_for() {
    is_waited_for(|_| Faults { full: true, ..Faults::default() }, 30).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_without_descriptors_waits_with_its_next_segment() {
    // More entries than fit into a segment.
    is_waited_for(|_| Faults { no_descriptors: true, ..Faults::default() }, 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_return_is_told_from_one_that_is_full_or_idle() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let (mut health, mut log) = (storage.health(), storage.log(GroupId::META));
    durable(&mut log, 0..2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(storage.disk_wait(), Duration::ZERO, "nothing is written");
    disk.set(Faults { hangs: true, ..Faults::default() });
    let answer = append(&mut log, 2..4).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let waited = storage.disk_wait();
    assert!((Duration::from_secs(59)..=Duration::from_secs(60)).contains(&waited), "{waited:?}");
    assert_eq!(*health.borrow(), WalHealth::Good);
    disk.set(Faults { full: true, ..Faults::default() });
    health.wait_for(|health| *health == WalHealth::Full).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(storage.disk_wait(), Duration::ZERO, "it says that it is full");
    disk.set(Faults::default());
    answer.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(storage.disk_wait(), Duration::ZERO, "it is done");
}

/// The file of the next segment can be opened, its folder cannot.
#[tokio::test(start_paused = true)]
async fn a_process_without_descriptors_waits_to_sync_the_folder_of_a_segment() {
    let faults = |disk: &FaultDisk| {
        let without_descriptors = Some((disk.opens() + 1, u64::MAX));
        Faults { without_descriptors, ..Faults::default() }
    };
    is_waited_for(faults, 60).await;
}

/// The process ends when the head of the next segment is durable, and before the segment's name is.
#[tokio::test(start_paused = true)]
async fn what_is_written_to_a_segment_that_another_process_began_survives() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let (mut health, mut log) = (storage.health(), storage.log(GroupId::META));
    durable(&mut log, 0..2).await;
    let without_descriptors = Some((disk.opens() + 1, u64::MAX));
    disk.set(Faults { without_descriptors, ..Faults::default() });
    let answer = append(&mut log, 2..60).await.unwrap();
    health.wait_for(|health| *health == WalHealth::Full).await.unwrap();
    storage.close().await;
    answer.await.unwrap().unwrap_err();
    assert_eq!(disk.paths(), [FIRST, "wal/00000002.log"]);

    disk.set(Faults::default());
    let storage = open(&disk).await;
    let next = indexes(&storage, GroupId::META).await.len() as u64;
    durable(&mut storage.log(GroupId::META), next..next + 1).await;
    let storage = open(&disk.crash(|_| 0)).await;
    assert_eq!(indexes(&storage, GroupId::META).await, (0..=next).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_process_without_descriptors_waits_to_remove_old_segments() {
    let filled = async || {
        let disk = FaultDisk::new();
        let storage = open(&disk).await;
        durable(&mut storage.log(GroupId::META), 0..60).await;
        (disk, storage)
    };
    let (disk, storage) = filled().await;
    storage.log(GroupId::META).purge(id(1, 58)).await.unwrap();
    storage.close().await;
    let opens = disk.opens();
    // The last of these calls syncs the folder after a removal.
    let (disk, storage) = filled().await;
    let without_descriptors = Some((opens - 1, u64::MAX));
    disk.set(Faults { without_descriptors, ..Faults::default() });
    let (mut health, mut log) = (storage.health(), storage.log(GroupId::META));
    let purge = tokio::spawn(async move { log.purge(id(1, 58)).await });
    health.wait_for(|health| *health != WalHealth::Good).await.unwrap();
    assert_eq!(*health.borrow(), WalHealth::Full);
    disk.set(Faults::default());
    // Although nothing is written any more.
    health.wait_for(|health| *health == WalHealth::Good).await.unwrap();
    purge.await.unwrap().unwrap();
    storage.log(GroupId::META).save_vote(&Vote::new(4, NodeId(2))).await.unwrap();
    assert!(!disk.paths().iter().any(|path| path == FIRST), "{:?}", disk.paths());
}

#[tokio::test]
async fn whoever_appends_in_the_same_turn_is_synced_with_the_others() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let [mut first, mut second] = [1, 2].map(|number| storage.log(GroupId::from_number(number)));
    let (turn, is_turn) = tokio::sync::oneshot::channel();
    let later = tokio::spawn(async move {
        is_turn.await.unwrap();
        durable(&mut second, 0..1).await;
    });
    tokio::task::yield_now().await;
    let before = disk.syncs();
    // The log's task is woken first, and the other one behind it.
    let answer = append(&mut first, 0..1).await.unwrap();
    turn.send(()).unwrap();
    answer.await.unwrap().unwrap();
    later.await.unwrap();
    assert_eq!(disk.syncs() - before, 1);
}
