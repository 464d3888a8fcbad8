//! Snapshots on a disk that fails, fills up and loses power.

use openraft::StoredMembership;
use openraft::vote::leader_id_adv::LeaderId;
use umbel_engine::NodeId;
use umbel_ports::RealDisk;

use super::super::testing::{FaultDisk, Faults};
use super::*;
use crate::types::LogId;

const GROUP: GroupId = GroupId::from_number(4);

fn meta(index: u64) -> SnapshotMeta {
    let leader_id = LeaderId { term: 2, node_id: NodeId(1) };
    let last_log_id = Some(LogId { leader_id, index });
    SnapshotMeta { last_log_id, last_membership: StoredMembership::default() }
}

fn store(disk: &FaultDisk) -> SnapshotStore {
    // A storage that never closes.
    let (closing, watched) = watch::channel(false);
    std::mem::forget(closing);
    SnapshotStore::new(Arc::new(disk.clone()), GROUP, watched)
}

async fn write(store: &SnapshotStore, index: u64, body: &[u8]) -> SnapshotFile {
    let mut writer = store.writer(meta(index)).await.unwrap();
    for piece in body.chunks(300_000) {
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    writer.finish().await.unwrap()
}

fn body(byte_count: usize) -> Vec<u8> {
    (0..byte_count).map(|byte| u8::try_from(byte % 251).unwrap()).collect()
}

#[tokio::test]
async fn the_newest_survives_a_power_loss_and_older_ones_stay_readable() {
    let disk = FaultDisk::new();
    let snapshots = store(&disk);
    assert!(snapshots.latest().await.unwrap().is_none());
    let old = write(&snapshots, 9, b"old").await;
    let body = body(2 * BLOCK_BYTES + 77);
    write(&snapshots, 10, &body).await;
    assert_eq!(disk.paths(), ["snapshots/4/10-2.snap"]);
    assert_eq!(old.read(0, 10).await.unwrap(), &b"old"[..]);

    let disk = disk.crash(|_| 0);
    let newest = store(&disk).latest().await.unwrap().unwrap();
    assert_eq!(newest.meta(), &meta(10));
    assert_eq!(newest.byte_count(), body.len() as u64);
    assert_eq!(newest.read(5, body.len()).await.unwrap(), &body[5..]);
    assert_eq!(newest.read(1 << 20, 3).await.unwrap(), &body[1 << 20..(1 << 20) + 3]);
    assert!(newest.read(u64::MAX, 3).await.unwrap().is_empty());
    // A snapshot that is finished late does not replace a newer one, but is readable.
    let snapshots = store(&disk);
    let late = write(&snapshots, 3, b"late").await;
    assert_eq!(late.meta(), &meta(3));
    assert_eq!(late.read(0, 9).await.unwrap(), &b"late"[..]);
    assert_eq!(snapshots.latest().await.unwrap().unwrap().meta(), &meta(10));
}

#[tokio::test]
async fn a_large_snapshot_is_synced_while_it_is_written() {
    let disk = FaultDisk::new();
    let mut writer = store(&disk).writer(meta(1)).await.unwrap();
    let piece = Bytes::from(body(1 << 20));
    let begun = disk.syncs();
    for mib in 1..=80 {
        writer.write(piece.clone()).await.unwrap();
        assert_eq!(disk.syncs() - begun, mib / 32, "{mib} MiB");
    }
    writer.finish().await.unwrap();
}

#[tokio::test]
async fn every_damaged_byte_is_found() {
    let disk = FaultDisk::new();
    write(&store(&disk), 7, b"some bytes").await;
    let path = "snapshots/4/7-2.snap";
    for byte in 0..disk.len(path) {
        disk.flip(path, byte, 4);
        let error = store(&disk).latest().await.unwrap_err().to_string();
        assert!(error.contains(path), "{error}");
        // An unknown version may belong to a newer release.
        let is_version = (8..12).contains(&byte);
        assert!(is_version || error.contains("let it join again"), "{error}");
        disk.flip(path, byte, 4);
    }
    let whole = disk.bytes(path);
    for length in 0..whole.len() {
        disk.put(path, &whole[..length]);
        store(&disk).latest().await.unwrap_err();
    }
}

#[tokio::test]
async fn damage_since_a_file_was_written_is_found_until_a_new_one_replaces_it() {
    let disk = FaultDisk::new();
    let snapshots = store(&disk);
    let written = write(&snapshots, 7, &body(BLOCK_BYTES + 9)).await;
    written.verify().await.unwrap();
    let path = "snapshots/4/7-2.snap";
    // In the head, in the body, in the body's length and in the checksum.
    let length = disk.len(path);
    for byte in [30, BLOCK_BYTES, length - 12, length - 1] {
        disk.flip(path, byte, 4);
        for file in [&written, &snapshots.latest().await.unwrap().unwrap()] {
            let error = file.verify().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains(path), "{error}");
        }
        disk.flip(path, byte, 4);
    }
    disk.flip(path, 30, 4);
    write(&snapshots, 7, b"again").await;
    snapshots.latest().await.unwrap().unwrap().verify().await.unwrap();
}

#[tokio::test]
async fn leftovers_are_removed() {
    let disk = FaultDisk::new();
    let snapshots = store(&disk);
    let first = snapshots.writer(meta(1)).await.unwrap();
    let second = snapshots.writer(meta(2)).await.unwrap();
    assert_eq!(disk.paths(), ["snapshots/4/1.part", "snapshots/4/2.part"]);
    drop(first);
    let third = snapshots.writer(meta(3)).await.unwrap();
    assert_eq!(disk.paths(), ["snapshots/4/2.part", "snapshots/4/3.part"]);
    third.finish().await.unwrap();
    // It is not renamed, because a newer one exists.
    second.finish().await.unwrap();
    assert_eq!(snapshots.latest().await.unwrap().unwrap().meta(), &meta(3));
    clean(&disk, &[GROUP]).await.unwrap();
    assert_eq!(disk.paths(), ["snapshots/4/3-2.snap"]);
    clean(&disk, &[]).await.unwrap();
    assert!(disk.paths().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_waited_for_until_the_storage_closes() {
    let disk = FaultDisk::new();
    let (closing, watched) = watch::channel(false);
    let snapshots = SnapshotStore::new(Arc::new(disk.clone()), GROUP, watched);
    write(&snapshots, 1, b"old").await;
    // The disk becomes full before each of the calls that a snapshot makes.
    let body = body(2 * BLOCK_BYTES);
    for (index, calls) in (2..).zip(0..14) {
        let from = disk.calls() + calls;
        disk.set(Faults { full_calls: Some((from, from + 4)), ..Faults::default() });
        write(&snapshots, index, &body).await;
        let newest = store(&disk.crash(|_| 0)).latest().await.unwrap().unwrap();
        assert_eq!((newest.meta(), newest.byte_count()), (&meta(index), body.len() as u64));
    }

    let mut writer = snapshots.writer(meta(20)).await.unwrap();
    disk.set(Faults { full: true, ..Faults::default() });
    let waiting = tokio::spawn(async move { writer.write(Bytes::from(body)).await });
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(!waiting.is_finished());
    closing.send_replace(true);
    assert!(is_full(&waiting.await.unwrap().unwrap_err()));
    assert_eq!(store(&disk).latest().await.unwrap().unwrap().meta(), &meta(15));
}

/// The process has no descriptors left before each of the calls that need one.
#[tokio::test(start_paused = true)]
async fn a_lack_of_descriptors_is_waited_for() {
    let disk = FaultDisk::new();
    write(&store(&disk), 1, b"old").await;
    for (index, calls) in (2..).zip(0..7) {
        // A store that has to look for the newest snapshot first, beside what a writer left.
        let snapshots = store(&disk);
        drop(snapshots.writer(meta(0)).await.unwrap());
        let from = disk.opens() + calls;
        let without_descriptors = Some((from, from + 4));
        disk.set(Faults { without_descriptors, ..Faults::default() });
        write(&snapshots, index, b"new").await;
        assert!(disk.opens() > from + 4, "call {calls} of a snapshot needs no descriptor");
        let newest = store(&disk.crash(|_| 0)).latest().await.unwrap().unwrap();
        assert_eq!(newest.meta(), &meta(index));
    }
    assert_eq!(disk.paths(), ["snapshots/4/8-2.snap"]);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_group_gets_no_files_back() {
    let disk = FaultDisk::new();
    let snapshots = store(&disk);
    let late = snapshots.writer(meta(1)).await.unwrap();
    let aside = snapshots.writer(meta(2)).await.unwrap().finish_aside().await.unwrap();
    snapshots.remove_all().await.unwrap();
    late.finish().await.unwrap_err();
    snapshots.adopt(&aside).await.unwrap_err();
    assert!(snapshots.writer(meta(3)).await.is_err());
    assert!(disk.paths().is_empty());
}

#[tokio::test]
async fn a_group_that_is_gone_leaves_no_folder() {
    let data = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(data.path()).unwrap());
    let (_closing, watched) = watch::channel(false);
    let snapshots = SnapshotStore::new(Arc::clone(&disk), GROUP, watched);
    write(&snapshots, 1, b"old").await;
    assert_eq!(disk.list(SNAPSHOT_FOLDER).await.unwrap(), ["4"]);
    snapshots.remove_all().await.unwrap();
    assert!(disk.list(SNAPSHOT_FOLDER).await.unwrap().is_empty());

    // Earlier builds left it.
    disk.make_folder(&folder(GROUP)).await.unwrap();
    clean(&*disk, &[GROUP]).await.unwrap();
    assert_eq!(disk.list(SNAPSHOT_FOLDER).await.unwrap(), ["4"]);
    clean(&*disk, &[]).await.unwrap();
    assert!(disk.list(SNAPSHOT_FOLDER).await.unwrap().is_empty());
}
