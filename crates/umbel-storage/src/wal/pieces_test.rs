//! Segments that are read in pieces when the log is opened.

use std::sync::Arc;

use bytes::Bytes;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, RaftLogReader};
use umbel_engine::shard::HashList;
use umbel_engine::{Generation, GroupId};

use super::READ_BYTES_MAX;
use super::format::SEGMENT_HEADER_BYTES;
use super::wal_test::{FIRST, refused};
use crate::crash_test::options;
use crate::testing::{FaultDisk, id};
use crate::types::{CopyEntry, LogCommand, LogEntry, Types};
use crate::{OpenError, Storage, WalOptions};

/// Bytes of a piece.
const PIECE_BYTES: usize = READ_BYTES_MAX as usize;

/// An entry of a MiB.
fn long_entry(index: u64) -> LogEntry {
    let bytes = Bytes::from(vec![u8::try_from(index).unwrap(); 1 << 20]);
    let (generation, hashes) = (Generation(1), HashList::from_bytes(bytes).unwrap());
    let command = LogCommand::Copy(CopyEntry { generation, hashes });
    LogEntry { log_id: id(1, index), payload: EntryPayload::Normal(command) }
}

/// Settings of a log whose segments are several pieces long.
fn long_segments() -> WalOptions {
    WalOptions { segment_bytes_max: 6 << 20, ..options() }
}

/// A log of seven entries in two segments, the first of which is read in pieces, after the process stopped abruptly.
async fn several_pieces() -> FaultDisk {
    let disk = FaultDisk::new();
    let (storage, _) = Storage::open(Arc::new(disk.clone()), long_segments()).await.unwrap();
    let mut log = storage.log(GroupId::META);
    for index in 0..7 {
        let (sender, receiver) = <Types as TypeConfigExt>::oneshot();
        log.append([long_entry(index)], IOFlushed::signal(sender)).await.unwrap();
        receiver.await.unwrap().unwrap();
    }
    assert!(disk.len(FIRST) > PIECE_BYTES);
    assert_eq!(disk.paths().len(), 2);
    disk.crash(|_| 0)
}

/// A slow disk would take for one write of all as long as one that hangs.
#[tokio::test(start_paused = true)]
async fn what_waits_is_written_a_few_mib_at_a_time() {
    let disk = FaultDisk::new();
    let options = WalOptions { segment_bytes_max: 64 << 20, ..options() };
    let (storage, _) = Storage::open(Arc::new(disk.clone()), options).await.unwrap();
    let mut log = storage.log(GroupId::META);
    let before = disk.syncs();
    let (sender, receiver) = <Types as TypeConfigExt>::oneshot();
    log.append((0..20).map(long_entry), IOFlushed::signal(sender)).await.unwrap();
    receiver.await.unwrap().unwrap();
    // Seven entries of a MiB have room in one write.
    assert_eq!(disk.syncs() - before, 3);
    storage.close().await;
    let (storage, _) = Storage::open(Arc::new(disk), options).await.unwrap();
    let entries = storage.log(GroupId::META).try_get_log_entries(..).await.unwrap();
    assert!(entries == (0..20).map(long_entry).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_torn_tail_is_cut_behind_several_pieces() {
    let disk = several_pieces().await;
    let newest = disk.paths().pop().unwrap();
    disk.put(&newest, &disk.bytes(&newest)[..disk.len(&newest) - 8]);
    let opened = Storage::open(Arc::new(disk.clone()), long_segments()).await;
    let (storage, recovered) = opened.unwrap();
    assert!(recovered.cut_byte_count >= (1 << 20) - 8, "the last entry is cut");
    let entries = storage.log(GroupId::META).try_get_log_entries(..).await.unwrap();
    assert!(entries == (0..6).map(long_entry).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn damage_before_whole_records_is_refused_in_any_piece() {
    let disk = several_pieces().await;
    for byte in [SEGMENT_HEADER_BYTES, PIECE_BYTES - 9, PIECE_BYTES + 9] {
        disk.flip(FIRST, byte, 0x10);
        let error = refused(&disk, long_segments()).await;
        assert!(
            matches!(&error, OpenError::Damaged { path, .. } if path == FIRST),
            "{byte}: {error}"
        );
        disk.flip(FIRST, byte, 0x10);
    }
}

/// What is written again at a start is what was replayed, whatever a second read would return.
#[tokio::test(start_paused = true)]
async fn the_newest_segment_is_read_once() {
    let disk = several_pieces().await;
    let newest = disk.paths().pop().unwrap();
    disk.put(&newest, &disk.bytes(&newest)[..disk.len(&newest) - 8]);
    Storage::open(Arc::new(disk.clone()), long_segments()).await.unwrap();
    assert_eq!(disk.reads(&newest), 1);
    assert!(disk.reads(FIRST) > 1);
}
