//! Each fault of the simulated disk has its effect while it is on, and none while it is off.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};
use umbel_ports::{Disk, File, WriteError};

use super::{DiskEffects, SimDisk};
use crate::plan::{DiskPart, LossMode};

const MODES: [LossMode; 3] = [LossMode::All, LossMode::Prefix, LossMode::Subset];

pub(super) async fn create(disk: &Arc<dyn Disk>, path: &str) -> Arc<dyn File> {
    if let Some((folder, _)) = path.rsplit_once('/') {
        disk.make_folder(folder).await.unwrap();
        for (end, _) in folder.match_indices('/').chain([(folder.len(), "")]) {
            disk.sync_folder(folder[..end].rsplit_once('/').map_or("", |(above, _)| above))
                .await
                .unwrap();
        }
    }
    let file = disk.open(path, true).await.unwrap();
    disk.sync_folder(path.rsplit_once('/').map_or("", |(folder, _)| folder)).await.unwrap();
    file
}

pub(super) async fn put(disk: &Arc<dyn Disk>, path: &str, bytes: &[u8]) {
    let file = create(disk, path).await;
    file.write_and_sync(0, Bytes::copy_from_slice(bytes)).await.unwrap();
}

pub(super) async fn content(disk: &Arc<dyn Disk>, path: &str) -> Vec<u8> {
    disk.open(path, false).await.unwrap().read_at(0, 1 << 20).await.unwrap().to_vec()
}

pub(super) fn bytes(byte: u8, count: usize) -> Bytes {
    vec![byte; count].into()
}

#[tokio::test(start_paused = true)]
async fn a_lost_rename_shows_the_old_file() {
    let (mut seen_old, mut seen_new) = (0, 0);
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let mounted = disk.mount();
        put(&mounted, "identity", b"old").await;
        put(&mounted, "identity.part", b"new").await;
        mounted.rename("identity.part", "identity").await.unwrap();
        assert_eq!(content(&mounted, "identity").await, b"new");
        disk.crash();
        assert_eq!(content(&disk.mount(), "identity").await, b"new", "a crash loses nothing");
        let loss = disk.power_loss(LossMode::Subset);
        let mounted = disk.mount();
        if loss.lost_names == 1 {
            seen_old += 1;
            assert_eq!(content(&mounted, "identity").await, b"old");
            assert_eq!(content(&mounted, "identity.part").await, b"new");
        } else {
            seen_new += 1;
            assert_eq!(mounted.list("").await.unwrap(), ["identity"]);
            assert_eq!(content(&mounted, "identity").await, b"new");
        }
        mounted.sync_folder("").await.unwrap();
        assert_eq!(disk.effects().lost_names, loss.lost_names);
    }
    assert!(seen_old > 0 && seen_new > 0);
}

#[tokio::test(start_paused = true)]
async fn a_synced_file_without_a_durable_name_may_be_gone() {
    let is_there = async |seed, syncs_folder: bool| {
        let disk = SimDisk::new(seed);
        let mounted = disk.mount();
        let file = mounted.open("a", true).await.unwrap();
        file.write_and_sync(0, bytes(1, 9)).await.unwrap();
        if syncs_folder {
            mounted.sync_folder("").await.unwrap();
        }
        disk.power_loss(LossMode::All);
        disk.mount().open("a", false).await.is_ok()
    };
    let mut counts = (0, 0);
    for seed in 0..20 {
        counts.0 += u32::from(is_there(seed, false).await);
        counts.1 += u32::from(is_there(seed, true).await);
    }
    assert!(counts.0 > 0 && counts.0 < 20, "{counts:?}");
    assert_eq!(counts.1, 20);
}

#[tokio::test(start_paused = true)]
async fn stalled_calls_return_after_the_stall() {
    let disk = SimDisk::new(1);
    let mounted = disk.mount();
    let file = create(&mounted, "a").await;
    disk.set_stalled(true);
    let (one, other) = (Arc::clone(&file), Arc::clone(&mounted));
    let write = tokio::spawn(async move { one.write_and_sync(0, bytes(1, 4)).await });
    let list = tokio::spawn(async move { other.list("").await });
    sleep(Duration::from_secs(60)).await;
    assert!(!write.is_finished() && !list.is_finished());
    // A call whose future is dropped has had no effect.
    timeout(Duration::from_secs(1), file.write_at(100, bytes(2, 4))).await.unwrap_err();
    disk.set_stalled(false);
    write.await.unwrap().unwrap();
    assert_eq!(list.await.unwrap().unwrap(), ["a"]);
    assert_eq!(file.len().await.unwrap(), 4);
    assert_eq!(disk.effects().stalled_calls, 3);

    disk.set_stalled(true);
    let write = tokio::spawn(async move { file.write_at(0, bytes(1, 4)).await });
    sleep(Duration::from_secs(60)).await;
    disk.crash();
    write.await.unwrap().unwrap_err();
    disk.heal();
    assert_eq!(disk.mount().list("").await.unwrap(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn slow_calls_take_longer() {
    let time_ms = async |factor| {
        let disk = SimDisk::new(1);
        let mounted = disk.mount();
        let file = create(&mounted, "a").await;
        disk.set_slow(factor);
        let begin = Instant::now();
        for _ in 0..10 {
            file.write_at(0, bytes(1, 4)).await.unwrap();
            file.read_at(0, 4).await.unwrap();
            file.sync().await.unwrap();
        }
        (begin.elapsed().as_millis(), disk.effects().slow_calls)
    };
    let (usual_ms, slow_calls) = time_ms(1).await;
    assert!((2..40).contains(&usual_ms), "{usual_ms}");
    assert_eq!(slow_calls, 0);
    let (slow_ms, slow_calls) = time_ms(50).await;
    assert!((50 * usual_ms - 50..=50 * usual_ms + 150).contains(&slow_ms), "{usual_ms} {slow_ms}");
    assert_eq!(slow_calls, 30);
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_sync_left_is_lost_although_the_next_one_succeeds() {
    for mode in MODES {
        let disk = SimDisk::new(3);
        let mounted = disk.mount();
        put(&mounted, "a", &[1; 2000]).await;
        let file = mounted.open("a", false).await.unwrap();
        disk.fail_next_sync();
        let error = file.write_and_sync(1000, bytes(2, 3000)).await.unwrap_err();
        assert!(matches!(error, WriteError::Sync(_)), "{error}");
        assert_eq!(file.len().await.unwrap(), 4000);
        // A durable write beyond the end: the bytes in between read as zeros.
        file.write_at(4000, bytes(3, 100)).await.unwrap();
        file.sync().await.unwrap();
        assert_eq!(file.read_at(999, 2).await.unwrap(), &[1, 2][..]);
        disk.crash();
        assert_eq!(content(&disk.mount(), "a").await[1000..1004], [2; 4]);
        let loss = disk.power_loss(mode);
        assert_eq!((loss.lost_bytes, loss.torn_files), (3000, 0));
        let left = content(&disk.mount(), "a").await;
        let expected = [vec![1; 2000], vec![0; 2000], vec![3; 100]].concat();
        assert_eq!(left, expected);
        assert_eq!(disk.effects().sync_errors, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn dead_handles_change_nothing() {
    let disk = SimDisk::new(4);
    for how in 0..3 {
        let dead = disk.mount();
        let file = create(&dead, "a").await;
        let _guard = dead.lock().await.unwrap();
        assert_eq!(dead.lock().await.err().unwrap().kind(), ErrorKind::WouldBlock);
        match how {
            0 => disk.crash(),
            1 => drop(disk.power_loss(LossMode::All)),
            _ => {}
        }
        let mounted = disk.mount();
        let guard = mounted.lock().await.unwrap();
        file.write_at(0, bytes(1, 4)).await.unwrap_err();
        file.write_and_sync(0, bytes(1, 4)).await.unwrap_err();
        file.set_len(7).await.unwrap_err();
        file.sync().await.unwrap_err();
        file.read_at(0, 4).await.unwrap_err();
        file.len().await.unwrap_err();
        dead.open("a", true).await.err().unwrap();
        dead.open("b", true).await.err().unwrap();
        dead.make_folder("c").await.unwrap_err();
        dead.rename("a", "b").await.unwrap_err();
        dead.remove("a").await.unwrap_err();
        dead.sync_folder("").await.unwrap_err();
        dead.list("").await.unwrap_err();
        dead.free_bytes().await.unwrap_err();
        dead.lock().await.err().unwrap();
        assert_eq!(mounted.list("").await.unwrap(), ["a"]);
        assert!(content(&mounted, "a").await.is_empty());
        // Dropping the guard of a dead process does not unlock; dropping that of a living one does.
        drop(_guard);
        assert_eq!(mounted.lock().await.err().unwrap().kind(), ErrorKind::WouldBlock);
        drop(guard);
        drop(mounted.lock().await.unwrap());
        mounted.lock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_lose_equally() {
    let run = async |seed| {
        let disk = SimDisk::new(seed);
        let mut events = Vec::new();
        for round in 0..10 {
            let mounted = disk.mount();
            let begin = Instant::now();
            let file = create(&mounted, "wal/00000001.log").await;
            for number in 0..9_u8 {
                file.write_at(u64::from(number) * 700, bytes(number + round, 700)).await.unwrap();
                mounted.open(&format!("{number}"), true).await.unwrap();
            }
            file.sync().await.unwrap();
            file.write_at(3000, bytes(99, 3000)).await.unwrap();
            events.push(format!("{:?} {:?}", begin.elapsed(), disk.power_loss(LossMode::Subset)));
            let mounted = disk.mount();
            events.push(format!("{:?}", mounted.list("").await.unwrap()));
            events.push(format!("{:?}", content(&mounted, "wal/00000001.log").await));
        }
        events.push(format!("{:?}", disk.rot(DiskPart::Log, 3)));
        events.push(format!("{:?}", disk.effects()));
        events
    };
    assert_eq!(run(5).await, run(5).await);
    assert_ne!(run(5).await, run(6).await);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_takes_a_part_until_there_is_room() {
    let disk = SimDisk::new(6);
    let mounted = disk.mount();
    let file = create(&mounted, "a").await;
    put(&mounted, "b", &[5; 300]).await;
    assert_eq!(mounted.free_bytes().await.unwrap(), 64 << 30);
    disk.set_full(Some(1000));
    file.write_and_sync(0, bytes(1, 400)).await.unwrap();
    file.write_at(0, bytes(2, 400)).await.unwrap();
    assert_eq!(mounted.free_bytes().await.unwrap(), 600);
    let error = file.write_and_sync(400, bytes(3, 601)).await.unwrap_err();
    assert!(matches!(&error, WriteError::Write(e) if e.kind() == ErrorKind::StorageFull));
    let length = file.len().await.unwrap();
    assert!((400..=1000).contains(&length), "{length}");
    assert_eq!(mounted.free_bytes().await.unwrap(), 1000 - length);
    assert_eq!(file.set_len(5000).await.unwrap_err().kind(), ErrorKind::StorageFull);
    file.set_len(400).await.unwrap();
    assert_eq!(mounted.free_bytes().await.unwrap(), 600);
    file.write_and_sync(400, bytes(3, 600)).await.unwrap();

    assert_eq!(mounted.open("c", true).await.err().unwrap().kind(), ErrorKind::StorageFull);
    assert_eq!(mounted.rename("b", "c").await.unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(mounted.make_folder("c").await.unwrap_err().kind(), ErrorKind::StorageFull);
    mounted.make_folder("").await.unwrap();
    assert_eq!(disk.effects().full_errors, 5);
    mounted.remove("b").await.unwrap();
    mounted.open("c", true).await.unwrap();
    assert_eq!(mounted.free_bytes().await.unwrap(), 300);
    disk.heal();
    assert_eq!(mounted.free_bytes().await.unwrap(), 64 << 30);
    file.write_at(400, bytes(3, 5000)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failing_reads_and_writes() {
    let disk = SimDisk::new(7);
    let mounted = disk.mount();
    put(&mounted, "a", &[1; 100]).await;
    let file = mounted.open("a", false).await.unwrap();
    disk.set_reads_fail(true);
    assert_eq!(file.read_at(0, 1).await.unwrap_err().raw_os_error(), Some(5));
    disk.set_writes_fail(true);
    let error = file.write_and_sync(50, bytes(2, 100)).await.unwrap_err();
    assert!(matches!(error, WriteError::Write(_)), "{error}");
    assert_eq!(file.write_at(50, bytes(2, 100)).await.unwrap_err().raw_os_error(), Some(5));
    assert_eq!(file.set_len(1).await.unwrap_err().raw_os_error(), Some(5));
    file.sync().await.unwrap();
    disk.heal();
    let left = content(&mounted, "a").await;
    assert!((100..=150).contains(&left.len()) && left[..50] == [1; 50], "{left:?}");
    let DiskEffects { read_errors, write_errors, full_errors, .. } = disk.effects();
    assert_eq!((read_errors, write_errors, full_errors), (1, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn images_move_all_that_is_on_a_disk() {
    let (one, other) = (SimDisk::new(12), SimDisk::new(13));
    let mounted = one.mount();
    put(&mounted, "d/a", b"durable").await;
    mounted.open("loose", true).await.unwrap().write_at(0, bytes(1, 3)).await.unwrap();
    put(&other.mount(), "b", b"other").await;
    let (first, second) = (one.image(), other.image());
    one.restore(second);
    other.restore(first);
    mounted.list("").await.unwrap_err();
    assert_eq!(one.mount().list("").await.unwrap(), ["b"]);
    let mounted = other.mount();
    assert_eq!(mounted.list("").await.unwrap(), ["d", "loose"]);
    assert_eq!(content(&mounted, "loose").await, [1; 3]);
    put(&mounted, "c", b"later").await;
    let loss = other.power_loss(LossMode::All);
    assert_eq!(content(&other.mount(), "d/a").await, b"durable");
    assert_eq!(loss.lost_bytes, 3, "pending writes move as well");
    one.wipe();
    assert!(one.mount().list("").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn healed_disks_are_sound() {
    let disk = SimDisk::new(14);
    let mounted = disk.mount();
    let file = create(&mounted, "a").await;
    let sound = disk.effects();
    disk.set_slow(1000);
    disk.set_stalled(true);
    disk.set_reads_fail(true);
    disk.set_writes_fail(true);
    disk.fail_next_sync();
    disk.set_full(Some(0));
    disk.misdirect_next_write();
    disk.heal();
    file.write_and_sync(0, bytes(1, 3000)).await.unwrap();
    file.write_and_sync(3000, bytes(1, 3000)).await.unwrap();
    disk.power_loss(LossMode::All);
    assert_eq!(content(&disk.mount(), "a").await, [1; 6000]);
    let DiskEffects { calls, syncs, read_bytes, written_bytes, .. } = disk.effects();
    assert_eq!((syncs - sound.syncs, read_bytes, written_bytes), (2, 6000, 6000));
    assert_eq!(calls - sound.calls, 6);
    assert_eq!(disk.effects(), DiskEffects { calls, syncs, read_bytes, written_bytes, ..sound });
}

/// Removed files stay readable while they are open and take no memory afterwards.
#[tokio::test(start_paused = true)]
async fn removed_files_live_as_long_as_they_are_open() {
    let disk = SimDisk::new(15);
    let mounted = disk.mount();
    put(&mounted, "a", b"abc").await;
    let file = mounted.open("a", false).await.unwrap();
    mounted.remove("a").await.unwrap();
    mounted.sync_folder("").await.unwrap();
    assert_eq!(file.read_at(0, 9).await.unwrap(), &b"abc"[..]);
    assert_eq!(disk.state().tree.file_count(), 1);
    drop(file);
    put(&mounted, "b", b"").await;
    assert_eq!(disk.state().tree.file_count(), 1);
}
