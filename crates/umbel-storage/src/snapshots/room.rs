//! Snapshots that give way to the log when the disk is full.
//!
//! A snapshot and the log stall together if the snapshot keeps the last free bytes while it waits for more:
//! the log gets none, and without the log nothing happens that would free any. The log cannot do without its
//! bytes, and a snapshot can be written again, so it gives them back before it waits.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::MutexGuard;
use umbel_ports::PortFuture;

use super::{SnapshotFile, SnapshotStore, SnapshotWriter};
use crate::types::SnapshotMeta;
use crate::wal::SEGMENT_BYTES_MAX;

/// Shortest pause before a snapshot that gave way begins again. Where free bytes do not tell that the disk
/// is full, as with quotas, the log has the disk for itself for at least this long at a time.
const BEGIN_AGAIN: Duration = Duration::from_secs(5);

/// Bytes that a snapshot leaves to the log: a segment, which the log needs before it can remove an older one.
const LOG_BYTES: u64 = SEGMENT_BYTES_MAX as u64;

/// A snapshot met a full disk, and what was written of it was removed. Begin again when there is room.
#[derive(Debug, Error)]
#[error(
    "the disk has no room for a snapshot of {byte_count} bytes or more; what was written of it was \
     removed: free some space ({cause})"
)]
pub(super) struct GaveWay {
    /// Bytes that were written, or were to be written next.
    byte_count: u64,
    cause: io::Error,
}

impl GaveWay {
    pub(super) fn error(byte_count: u64, cause: io::Error) -> io::Error {
        io::Error::new(io::ErrorKind::StorageFull, Self { byte_count, cause })
    }

    fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// The disk lacks the bytes that an incoming snapshot announces.
#[derive(Debug, Error)]
#[error(
    "a snapshot of {needed} bytes beside the log's, and the disk has {free} left: free some space"
)]
struct NoRoom {
    needed: u64,
    free: u64,
}

impl SnapshotStore {
    /// Writes a snapshot and makes it the newest one. `copy` takes a copy of the state, with its position,
    /// and `write` writes it. When the disk is full, the file is removed, and all of that is done again once
    /// there is room: openraft stops a group whose snapshot fails.
    ///
    /// Shards do this one after another. What changes while its copy is being written may be in memory twice, so
    /// this bounds the additional memory by that of the largest shard; and a disk writes many snapshots no
    /// faster together than one by one. The turn is not kept while this waits for room.
    ///
    /// # Errors
    /// If the disk fails, the storage closes while this waits, or the group was forgotten; the older
    /// snapshot remains the newest then.
    pub async fn build<T>(
        &self,
        copy: impl Fn() -> (SnapshotMeta, T),
        write: impl for<'w> Fn(&'w mut SnapshotWriter, T) -> PortFuture<'w, io::Result<()>>,
    ) -> io::Result<SnapshotFile> {
        loop {
            let turn = self.turn().await;
            let (meta, state) = copy();
            let mut writer = self.writer(meta).await?.giving_way();
            let error = match write(&mut writer, state).await {
                Ok(()) => match writer.finish_aside().await {
                    Ok(file) => return self.adopt(&file).await,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            drop(turn);
            self.wait_for_room(error).await?;
        }
    }

    /// Waits until no other shard builds a snapshot.
    async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        match &self.build_turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        }
    }

    /// Begins a snapshot whose body has this many bytes and that another node sends. When the disk is full,
    /// a call fails, and what was written is removed: the sender has it, and sends it again.
    ///
    /// # Errors
    /// As [`Self::writer`], or if the disk has no room for it.
    pub async fn writer_of(
        &self,
        meta: SnapshotMeta,
        byte_count: u64,
    ) -> io::Result<SnapshotWriter> {
        // First: the part that came of a transfer that broke may have the room which its repetition needs.
        self.remove_dropped().await?;
        let needed = byte_count.saturating_add(LOG_BYTES);
        match self.disk.free_bytes().await {
            Ok(free) if free < needed => {
                Err(io::Error::new(io::ErrorKind::StorageFull, NoRoom { needed, free }))
            }
            // If the disk does not tell, the writes show it.
            _ => Ok(self.writer(meta).await?.giving_way()),
        }
    }

    /// Waits until a snapshot that gave way may fit, and the log beside it; any other error is returned.
    async fn wait_for_room(&self, error: io::Error) -> io::Result<()> {
        let Some(GaveWay { byte_count, .. }) = GaveWay::of(&error) else { return Err(error) };
        let needed = byte_count.saturating_add(LOG_BYTES);
        tracing::warn!(%error, "a snapshot gave way to the log");
        let mut closing = self.shared.closing.clone();
        loop {
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return Err(error),
                () = tokio::time::sleep(BEGIN_AGAIN) => {}
            }
            if self.is_forgotten() {
                return Err(error);
            }
            // If the disk does not tell, the writes show it.
            if self.disk.free_bytes().await.is_ok_and(|free| free < needed) {
                continue;
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use openraft::StoredMembership;
    use openraft::storage::RaftLogStorage;
    use umbel_engine::{GroupId, NodeId};

    use super::*;
    use crate::WalHealth;
    use crate::crash_test::open;
    use crate::testing::{FaultDisk, Faults, id};
    use crate::types::Vote;

    const GROUP: GroupId = GroupId::from_number(4);
    const BODY_BYTES: usize = 8 << 20;

    /// A disk that has room for less than the body.
    fn small() -> Faults {
        Faults { room: Some(3 << 20), ..Faults::default() }
    }

    /// A disk that has room for all.
    fn large() -> Faults {
        Faults { room: Some(200 << 20), ..Faults::default() }
    }

    fn meta(index: u64) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: Some(id(1, index)),
            last_membership: StoredMembership::default(),
        }
    }

    async fn write(writer: &mut SnapshotWriter) -> io::Result<()> {
        for piece in vec![7; BODY_BYTES].chunks(300_000) {
            writer.write(Bytes::copy_from_slice(piece)).await?;
        }
        Ok(())
    }

    fn has_part(disk: &FaultDisk) -> bool {
        disk.paths().iter().any(|path| path.ends_with(".part"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_that_does_not_fit_gives_the_log_its_room() {
        let disk = FaultDisk::new();
        let storage = open(&disk).await;
        let mut log = storage.log(GROUP);
        disk.set(small());
        let (snapshots, copies) = (storage.snapshots(GROUP), Arc::new(AtomicUsize::new(0)));
        let copied = Arc::clone(&copies);
        let building = tokio::spawn(async move {
            let copy = || (meta(copied.fetch_add(1, Ordering::Relaxed) as u64), ());
            snapshots.build(copy, |writer, ()| Box::pin(write(writer))).await
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(copies.load(Ordering::Relaxed), 1, "it waits for room");
        assert!(!building.is_finished() && !has_part(&disk));
        log.save_vote(&Vote::new(4, NodeId(2))).await.unwrap();
        assert_eq!(*storage.health().borrow(), WalHealth::Good);

        disk.set(large());
        let file = building.await.unwrap().unwrap();
        // From the state as of then.
        assert_eq!(file.meta(), &meta(1));
        assert!(!has_part(&disk));
        assert_eq!(file.read(0, 2 * BODY_BYTES).await.unwrap(), vec![7; BODY_BYTES]);
        let newest = storage.snapshots(GROUP).latest().await.unwrap().unwrap();
        assert_eq!(newest.meta(), &meta(1));
    }

    /// Writes a small body, and takes a second.
    fn write_slowly(
        writer: &mut SnapshotWriter,
        copies: Arc<AtomicUsize>,
    ) -> PortFuture<'_, io::Result<()>> {
        Box::pin(async move {
            writer.write(Bytes::from_static(b"body")).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            copies.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        })
    }

    /// How many copies of states there are at once while three groups build their snapshots.
    async fn copies_at_once(groups: [GroupId; 3]) -> usize {
        let disk = FaultDisk::new();
        let storage = open(&disk).await;
        let (now, most) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let copy = || {
            let count = now.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(count, Ordering::Relaxed);
            (meta(1), Arc::clone(&now))
        };
        let stores = groups.map(|group| storage.snapshots(group));
        let [first, second, third] = stores.each_ref().map(|store| store.build(copy, write_slowly));
        let (first, second, third) = tokio::join!(first, second, third);
        assert!([first, second, third].iter().all(Result::is_ok));
        most.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn shards_build_snapshots_one_after_another_and_the_meta_group_beside_them() {
        let [first, second, third] = [4, 5, 6].map(GroupId::from_number);
        assert_eq!(copies_at_once([first, second, third]).await, 1);
        assert_eq!(copies_at_once([first, second, GroupId::META]).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_that_waits_for_room_lets_others_be_built() {
        let disk = FaultDisk::new();
        let storage = open(&disk).await;
        disk.set(small());
        let snapshots = storage.snapshots(GROUP);
        let large = tokio::spawn(async move {
            snapshots.build(|| (meta(1), ()), |writer, ()| Box::pin(write(writer))).await
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!large.is_finished() && !has_part(&disk));
        let other = storage.snapshots(GroupId::from_number(5));
        let copies = Arc::new(AtomicUsize::new(1));
        other.build(|| (meta(2), Arc::clone(&copies)), write_slowly).await.unwrap();
        assert!(!large.is_finished());
        large.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_build_that_waits_for_room_ends_with_the_storage_or_the_group() {
        for closes in [true, false] {
            let disk = FaultDisk::new();
            let storage = open(&disk).await;
            disk.set(small());
            let snapshots = storage.snapshots(GROUP);
            let building = tokio::spawn(async move {
                snapshots.build(|| (meta(1), ()), |writer, ()| Box::pin(write(writer))).await
            });
            tokio::time::sleep(Duration::from_secs(60)).await;
            if closes {
                storage.close().await;
            } else {
                storage.forget(GROUP).await.unwrap();
            }
            let message = building.await.unwrap().unwrap_err().to_string();
            assert!(message.contains("free some space"), "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_incoming_snapshot_that_does_not_fit_is_refused_and_leaves_nothing() {
        let disk = FaultDisk::new();
        let snapshots = open(&disk).await.snapshots(GROUP);
        disk.set(small());
        let error = snapshots.writer_of(meta(1), BODY_BYTES as u64).await.err().unwrap();
        assert!(error.to_string().contains("free some space"), "{error}");

        // There was room when it began.
        disk.set(large());
        let mut writer = snapshots.writer_of(meta(1), BODY_BYTES as u64).await.unwrap();
        disk.set(small());
        let error = write(&mut writer).await.unwrap_err();
        assert!(GaveWay::of(&error).is_some(), "{error}");
        assert!(!has_part(&disk));
        writer.finish().await.unwrap_err();
        assert!(snapshots.latest().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_of_a_broken_transfer_gives_its_room_to_the_next() {
        let disk = FaultDisk::new();
        let storage = open(&disk).await;
        let snapshots = storage.snapshots(GROUP);
        let (body_bytes, paths) = (BODY_BYTES as u64, disk.paths());
        let used: u64 = paths.iter().map(|path| disk.len(path) as u64).sum();
        // Enough for one and a half.
        let room = Some(used + LOG_BYTES + body_bytes * 3 / 2);
        disk.set(Faults { room, ..Faults::default() });
        let mut broken = snapshots.writer_of(meta(1), body_bytes).await.unwrap();
        write(&mut broken).await.unwrap();
        // As long as it may go on, it keeps its room.
        let error = snapshots.writer_of(meta(1), body_bytes).await.err().unwrap();
        assert!(error.to_string().contains("free some space"), "{error}");
        drop(broken);

        let mut again = snapshots.writer_of(meta(1), body_bytes).await.unwrap();
        write(&mut again).await.unwrap();
        again.finish().await.unwrap();
        assert!(!has_part(&disk));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_sync_of_a_folder_is_not_repeated() {
        let disk = FaultDisk::new();
        let snapshots = open(&disk).await.snapshots(GROUP);
        disk.set(Faults { folder_sync_is_full: true, ..Faults::default() });
        let error = snapshots.writer(meta(1)).await.err().unwrap();
        assert!(!crate::wal::is_full(&error), "{error}");
    }
}
