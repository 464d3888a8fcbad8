//! Damage to durable bytes: bit rot and misdirected writes.

use super::SimDisk;
use super::fault_test::{bytes, content, create, put};
use crate::plan::{DiskPart, LossMode};

#[tokio::test(start_paused = true)]
async fn a_misdirected_write_hits_another_place() {
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        let mounted = disk.mount();
        let file = create(&mounted, "a").await;
        file.write_and_sync(0, bytes(1, 2048)).await.unwrap();
        disk.misdirect_next_write();
        file.write_and_sync(2048, bytes(2, 100)).await.unwrap();
        assert_eq!(disk.effects().misdirected_writes, 0, "a log could not tell");
        file.write_at(2148, bytes(3, 100)).await.unwrap();
        file.sync().await.unwrap();
        assert_eq!(disk.effects().misdirected_writes, 1);
        disk.power_loss(LossMode::All);
        let left = content(&disk.mount(), "a").await;
        assert_eq!(left.len(), 2248);
        assert_eq!(left[2048..2148], [0; 100]);
        assert_eq!(left[2148..], [3; 100]);
        let place = left.iter().position(|byte| *byte == 2).unwrap();
        assert_eq!(place % 512, 0);
        let mut expected = vec![1; 2048];
        expected[place..place + 100].fill(2);
        assert_eq!(left[..2048], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_misdirected_write_without_a_later_one_is_put_right() {
    for later in [0, 1, 2] {
        let disk = SimDisk::new(9);
        let mounted = disk.mount();
        let file = create(&mounted, "a").await;
        disk.misdirect_next_write();
        // The file is too short to have another place for the write, so it grows.
        file.write_and_sync(0, bytes(1, 100)).await.unwrap();
        let grown = file.read_at(0, 9999).await.unwrap();
        assert_eq!(grown, [vec![0; 512], vec![1; 100]].concat());
        match later {
            0 => {}
            1 => file.write_at(100, bytes(2, 100)).await.unwrap(),
            _ => {
                disk.fail_next_sync();
                file.write_and_sync(100, bytes(2, 100)).await.unwrap_err();
                file.sync().await.unwrap();
            }
        }
        disk.power_loss(LossMode::All);
        assert_eq!(content(&disk.mount(), "a").await, [1; 100]);
        assert_eq!(disk.effects().misdirected_writes, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn rot_flips_bits_and_counts_when_it_is_read() {
    let disk = SimDisk::new(10);
    assert!(disk.rot(DiskPart::Identity, 3).is_empty());
    assert!(disk.rot(DiskPart::Snapshots, 3).is_empty());
    let mounted = disk.mount();
    put(&mounted, "identity", &[0; 700]).await;
    put(&mounted, "snapshots/3/17-2.snap", &[0; 700]).await;
    put(&mounted, "snapshots/3/9.part", &[0; 700]).await;
    let loose = mounted.open("snapshots/3/18-2.snap", true).await.unwrap();
    loose.write_at(0, bytes(0, 100)).await.unwrap();

    for (part, path) in
        [(DiskPart::Identity, "identity"), (DiskPart::Snapshots, "snapshots/3/17-2.snap")]
    {
        let before = disk.effects().rotten_bytes_read;
        let mut flipped = disk.rot(part, 5);
        disk.power_loss(LossMode::All);
        let mounted = disk.mount();
        assert_eq!(disk.effects().rotten_bytes_read, before);
        let left = content(&mounted, path).await;
        let bits = (0..700 * 8).filter(|bit| left[bit / 8] >> (bit % 8) & 1 == 1);
        let mut expected: Vec<_> =
            bits.map(|bit| format!("{path}: offset {}, bit {}", bit / 8, bit % 8)).collect();
        expected.sort();
        flipped.sort();
        assert_eq!(flipped, expected);
        assert_eq!(flipped.len(), 5);
        let rotten = left.iter().filter(|byte| **byte != 0).count() as u64;
        assert_eq!(disk.effects().rotten_bytes_read, before + rotten);
        // A rotten part that is rewritten is sound again.
        let file = mounted.open(path, false).await.unwrap();
        file.write_and_sync(0, bytes(0, 700)).await.unwrap();
        assert_eq!(content(&mounted, path).await, [0; 700]);
        assert_eq!(disk.effects().rotten_bytes_read, before + rotten);
    }
    assert_eq!(content(&disk.mount(), "snapshots/3/9.part").await, [0; 700]);
}

/// The places that rot if every bit rots that may: paths and offsets.
async fn rotten_places(disk: &SimDisk) -> Vec<(String, usize)> {
    let damage = disk.rot(DiskPart::Log, u32::MAX);
    let place = |damage: &String| {
        let (path, rest) = damage.split_once(": offset ").unwrap();
        (path.to_owned(), rest.split_once(',').unwrap().0.parse().unwrap())
    };
    let mut places: Vec<_> = damage.iter().map(place).collect();
    places.dedup();
    places
}

#[tokio::test(start_paused = true)]
async fn rot_keeps_off_the_end_of_the_log() {
    let disk = SimDisk::new(11);
    let mounted = disk.mount();
    let (old, new) = ("wal/00000009.log", "wal/00000010.log");
    let file = create(&mounted, old).await;
    file.write_and_sync(0, bytes(1, 10)).await.unwrap();
    assert!(rotten_places(&disk).await.is_empty());

    let file = disk.mount().open(old, false).await.unwrap();
    file.write_at(10, bytes(2, 5)).await.unwrap();
    file.write_and_sync(15, bytes(2, 5)).await.unwrap();
    file.sync().await.unwrap();
    file.write_at(20, bytes(3, 5)).await.unwrap();
    let all_below = |end| (0..end).map(|offset| (old.to_owned(), offset)).collect::<Vec<_>>();
    assert_eq!(rotten_places(&disk).await, all_below(10));

    // Bytes that were cut off no longer count as a durable write, whether or not the cut is durable.
    let file = disk.mount().open(old, false).await.unwrap();
    file.write_and_sync(20, bytes(3, 5)).await.unwrap();
    assert_eq!(rotten_places(&disk).await, all_below(20));
    let file = disk.mount().open(old, false).await.unwrap();
    file.set_len(20).await.unwrap();
    assert_eq!(rotten_places(&disk).await, all_below(10));
    let file = disk.mount().open(old, false).await.unwrap();
    file.sync().await.unwrap();
    assert_eq!(rotten_places(&disk).await, all_below(10));

    // The end of an old segment may rot only when there is a newer one whose name is durable.
    let mounted = disk.mount();
    let file = mounted.open(new, true).await.unwrap();
    file.write_and_sync(0, bytes(4, 40)).await.unwrap();
    file.write_and_sync(40, bytes(4, 40)).await.unwrap();
    assert_eq!(rotten_places(&disk).await.iter().filter(|(path, _)| path == old).count(), 10);
    disk.mount().sync_folder("wal").await.unwrap();
    let places = rotten_places(&disk).await;
    assert_eq!(places.iter().filter(|(path, _)| path == old).count(), 20);
    assert_eq!(places.iter().filter(|(path, _)| path == new).map(|(_, o)| *o).max(), Some(39));
}

#[tokio::test(start_paused = true)]
async fn a_lost_tail_and_an_old_image_are_for_good() {
    let disk = SimDisk::new(9);
    let mounted = disk.mount();
    mounted.make_folder("wal").await.unwrap();
    mounted.sync_folder("").await.unwrap();
    for (name, byte) in [("wal/00000001.log", 1), ("wal/00000002.log", 2)] {
        create(&mounted, name).await.write_and_sync(0, bytes(byte, 1000)).await.unwrap();
    }
    mounted.sync_folder("wal").await.unwrap();
    let image = disk.image_now();
    // The process that uses the disk continues.
    let file = mounted.open("wal/00000002.log", false).await.unwrap();
    file.write_and_sync(1000, bytes(3, 50)).await.unwrap();
    assert_eq!(disk.lose_tail(70), 70);
    disk.power_loss(LossMode::All);
    assert_eq!(content(&disk.mount(), "wal/00000001.log").await, [1; 1000]);
    assert_eq!(content(&disk.mount(), "wal/00000002.log").await, [2; 980]);
    assert_eq!(disk.lose_tail(5000), 980);
    disk.restore(image);
    assert_eq!(content(&disk.mount(), "wal/00000002.log").await, [2; 1000]);
}
