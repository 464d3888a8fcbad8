//! A stolen disk: which of the meta group's secrets it contains, and who can read them.

use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use openraft::StoredMembership;
use umbel_engine::NodeId;
use umbel_engine::meta::MetaCommand;
use umbel_ports::{RealSeed, WrappingKey};

use super::crash_test::options;
use super::testing::{FaultDisk, id};
use super::*;
use crate::types::{LogCommand, SnapshotMeta};

const SECRET: &str = "the key of all hashes";

/// A key of 32 equal bytes, from a file of this name.
pub(super) fn wrapping(byte: u8) -> Option<Arc<Wrapping>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("key-{byte}"));
    std::fs::write(&path, [byte; 32]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let key = Arc::new(WrappingKey::read(&path).unwrap());
    Some(Arc::new(Wrapping::new(key, Arc::new(RealSeed))))
}

async fn open(disk: &FaultDisk, key: Option<Arc<Wrapping>>) -> Storage {
    Storage::open_wrapped(Arc::new(disk.clone()), options(), key).await.unwrap().0
}

async fn refused(disk: &FaultDisk, key: Option<Arc<Wrapping>>) -> OpenError {
    let opened = Storage::open_wrapped(Arc::new(disk.clone()), options(), key).await;
    opened.map(drop).unwrap_err()
}

fn command() -> LogCommand {
    LogCommand::Meta(MetaCommand::AddNode { address: SECRET.to_owned(), nonce: 7 })
}

/// Writes an entry and a snapshot of the meta group that contain the secret; the snapshot has several
/// pieces.
async fn write(storage: &Storage, index: u64) {
    let log = storage.log(GroupId::META);
    log.append_own(NodeId(1), index, command()).await.unwrap().await.unwrap().unwrap();
    let last_log_id = Some(id(0, index));
    let meta = SnapshotMeta { last_log_id, last_membership: StoredMembership::default() };
    let mut writer = storage.snapshots(GroupId::META).writer(meta).await.unwrap();
    for piece in body().chunks(50_000) {
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    writer.finish_aside().await.unwrap();
}

fn body() -> Vec<u8> {
    SECRET.as_bytes().iter().copied().cycle().take(200_000).collect()
}

fn has_the_secret(disk: &FaultDisk) -> bool {
    let has_secret = |path: String| {
        disk.bytes(&path).windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
    };
    disk.paths().into_iter().any(has_secret)
}

#[tokio::test]
async fn a_stolen_disk_reveals_no_secret_without_the_key() {
    let disk = FaultDisk::new();
    let storage = open(&disk, None).await;
    write(&storage, 1).await;
    storage.close().await;
    assert!(has_the_secret(&disk), "this is how the test looks for it");

    let disk = FaultDisk::new();
    let storage = open(&disk, wrapping(1)).await;
    write(&storage, 1).await;
    storage.close().await;
    assert!(!has_the_secret(&disk));

    let storage = open(&disk, wrapping(1)).await;
    let entries = storage.log(GroupId::META).read_from(1).await.unwrap();
    assert_eq!(entries[0].payload, openraft::EntryPayload::Normal(command()));
    storage.close().await;
    assert!(matches!(refused(&disk, None).await, OpenError::KeyMissing));
    let error = refused(&disk, wrapping(2)).await;
    assert!(error.is_usage() && OpenError::KeyMissing.is_usage(), "{error}");
    assert!(!OpenError::Locked.is_usage(), "the other process may stop");
    let error = error.to_string();
    assert!(error.starts_with("key_file /") && error.contains("key-2: not the key"), "{error}");
}

#[tokio::test]
async fn wrapped_snapshots_are_read_from_any_byte_on() {
    let disk = FaultDisk::new();
    let storage = open(&disk, wrapping(1)).await;
    let snapshots = storage.snapshots(GroupId::META);
    let meta =
        SnapshotMeta { last_log_id: Some(id(1, 9)), last_membership: StoredMembership::default() };
    for byte_count in [0, 1, 65_535, 65_536, 65_537, 200_000] {
        let body = &body()[..byte_count];
        let mut writer = snapshots.writer(meta.clone()).await.unwrap();
        for piece in body.chunks(777) {
            writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        let file = writer.finish().await.unwrap();
        let again = {
            let fresh =
                SnapshotStore::new(Arc::new(disk.clone()), GroupId::META, storage.wal.closing());
            fresh.wrapped_by(wrapping(1)).latest().await.unwrap().unwrap()
        };
        for file in [&file, &again] {
            assert_eq!(file.byte_count(), byte_count as u64);
            for (offset, count) in
                [(0, byte_count), (1, 5), (65_535, 2), (65_536, 70_000), (byte_count, 1)]
            {
                let expected = body.get(offset..).unwrap_or_default();
                let expected = &expected[..expected.len().min(count)];
                let read = file.read(offset as u64, count).await.unwrap();
                assert!(read == expected, "{byte_count} bytes: {count} from {offset}");
            }
        }
    }
    storage.close().await;
}

/// A folder from before the node had a key stays usable, and new data is wrapped.
#[tokio::test]
async fn a_key_may_come_later() {
    let disk = FaultDisk::new();
    let storage = open(&disk, None).await;
    write(&storage, 1).await;
    storage.close().await;
    let storage = open(&disk, wrapping(1)).await;
    write(&storage, 2).await;
    storage.close().await;
    let storage = open(&disk, wrapping(1)).await;
    let entries = storage.log(GroupId::META).read_from(1).await.unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|e| e.payload == openraft::EntryPayload::Normal(command())));
    storage.close().await;
    assert!(matches!(refused(&disk, None).await, OpenError::KeyMissing));
}
