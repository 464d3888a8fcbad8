//! Groups that leave the node and come back.

use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use umbel_engine::{GroupId, NodeId};

use super::wal_test::{FIRST, durable, indexes};
use crate::Storage;
use crate::crash_test::open;
use crate::testing::{FaultDisk, id};
use crate::types::Vote;

/// A log after its group left; it ended at index 5 in term 1, with a vote for term 4.
async fn left_behind(disk: &FaultDisk) -> (Storage, GroupId) {
    let storage = open(disk).await;
    let group = GroupId::from_number(5);
    storage.log(group).save_vote(&Vote::new(4, NodeId(2))).await.unwrap();
    durable(&mut storage.log(group), 0..6).await;
    storage.leave(group).await.unwrap();
    assert_eq!(storage.groups(), []);
    (storage, group)
}

#[tokio::test(start_paused = true)]
async fn a_group_that_left_comes_back_with_what_it_has_promised() {
    let disk = FaultDisk::new();
    let (storage, group) = left_behind(&disk).await;
    // The segment that contains the record is removed.
    let other = GroupId::from_number(1);
    for index in 0..60 {
        durable(&mut storage.log(other), index..index + 1).await;
    }
    storage.log(other).purge(id(1, 58)).await.unwrap();
    assert!(!disk.paths().contains(&FIRST.to_owned()));
    let disk = disk.crash(|_| 0);
    let storage = open(&disk).await;
    assert_eq!(storage.groups(), [other]);
    let mut log = storage.log(group);
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(4, NodeId(2))));
    assert_eq!(log.floor(), Some(id(1, 5)));
    assert_eq!(log.get_log_state().await.unwrap().last_log_id, None);

    // The group stays behind until its log reaches as far as before, across restarts and another
    // departure.
    durable(&mut log, 0..5).await;
    assert_eq!(log.floor(), Some(id(1, 5)));
    let storage = open(&disk.crash(|_| 0)).await;
    assert_eq!(indexes(&storage, group).await, [0, 1, 2, 3, 4]);
    assert_eq!(storage.log(group).floor(), Some(id(1, 5)));
    storage.leave(group).await.unwrap();
    let mut log = storage.log(group);
    assert_eq!(log.floor(), Some(id(1, 5)));
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(4, NodeId(2))));
    durable(&mut log, 0..6).await;
    assert_eq!(log.floor(), None);
    log.truncate_after(Some(id(1, 2))).await.unwrap();
    assert_eq!(log.floor(), None, "what others overrule it may lose, as ever");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_brings_a_group_that_left_up_to_date() {
    let disk = FaultDisk::new();
    let (storage, group) = left_behind(&disk).await;
    let mut log = storage.log(group);
    log.purge(id(2, 3)).await.unwrap();
    assert_eq!(log.floor(), None, "an entry of a later term holds all before it");
    let storage = open(&disk.crash(|_| 0)).await;
    assert_eq!(storage.log(group).floor(), None);
    assert_eq!(storage.log(group).read_vote().await.unwrap(), Some(Vote::new(4, NodeId(2))));
}

#[tokio::test(start_paused = true)]
async fn a_group_of_which_nothing_was_kept_leaves_nothing() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let group = GroupId::from_number(5);
    storage.leave(group).await.unwrap();
    let mut log = storage.log(group);
    assert_eq!((log.floor(), log.read_vote().await.unwrap()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_lost_entries_remembers_it_until_it_has_them() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let group = GroupId::from_number(5);
    let mut log = storage.log(group);
    durable(&mut log, 0..4).await;
    // Other nodes know of no more than the log has.
    log.recall(Some(Vote::new(3, NodeId(1))), Some(id(1, 3))).await.unwrap();
    assert_eq!(
        (log.floor(), log.read_vote().await.unwrap()),
        (None, Some(Vote::new(3, NodeId(1))))
    );
    // They know of more, and of a lower vote than its own.
    log.recall(Some(Vote::new(2, NodeId(2))), Some(id(1, 6))).await.unwrap();
    log.lost(id(1, 5)).await.unwrap();
    let storage = open(&disk.crash(|_| 0)).await;
    let mut log = storage.log(group);
    assert_eq!(
        (log.floor(), log.read_vote().await.unwrap()),
        (Some(id(1, 6)), Some(Vote::new(3, NodeId(1))))
    );
    assert_eq!(indexes(&storage, group).await, [0, 1, 2, 3]);
    durable(&mut log, 4..6).await;
    assert_eq!(log.floor(), Some(id(1, 6)));
    durable(&mut log, 6..7).await;
    assert_eq!(log.floor(), None);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_empty_takes_over_what_others_know() {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let group = GroupId::from_number(5);
    storage.log(group).recall(Some(Vote::new(3, NodeId(1))), Some(id(2, 6))).await.unwrap();
    let storage = open(&disk.crash(|_| 0)).await;
    let mut log = storage.log(group);
    assert_eq!(
        (log.floor(), log.read_vote().await.unwrap()),
        (Some(id(2, 6)), Some(Vote::new(3, NodeId(1))))
    );
}
