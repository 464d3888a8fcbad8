//! Final states of other groups, kept in the folder of the group that is to absorb them.
//!
//! A shard that is merged into its neighbour ends with an entry of its log, and every replica that applies
//! that entry keeps the state after it here. The neighbour's replica needs it when it applies the entry that
//! absorbs the shard, once or, after a restart, again; when a snapshot of its own covers that entry, and the
//! log is purged up to it, the state is removed.

use std::io;

use umbel_engine::GroupId;

use super::{SnapshotFile, SnapshotStore, SnapshotWriter, folder, sync_folder};
use crate::types::SnapshotMeta;

/// Names the final state of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FinalStateId {
    /// The group that ended.
    pub of: GroupId,
    /// Index of the entry that ended it.
    pub fence_index: u64,
}

impl FinalStateId {
    fn file_name(self) -> String {
        format!("final-{}-{}.state", self.of.number(), self.fence_index)
    }

    /// The state that a file of this name holds, or None if it holds something else.
    pub(super) fn of_file(name: &str) -> Option<Self> {
        let (of, fence_index) =
            name.strip_prefix("final-")?.strip_suffix(".state")?.split_once('-')?;
        let of = GroupId::from_number(of.parse().ok()?);
        Some(Self { of, fence_index: fence_index.parse().ok()? })
    }
}

impl SnapshotStore {
    /// Writes the final state of another group beside this group's snapshots, durably. Waits while the disk
    /// is full.
    ///
    /// # Errors
    /// If the disk fails or this group was forgotten.
    pub(crate) async fn keep_final(
        &self,
        id: FinalStateId,
        meta: SnapshotMeta,
        write: impl AsyncFnOnce(&mut SnapshotWriter) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut writer = self.writer(meta).await?;
        write(&mut writer).await?;
        let file = writer.finish_aside().await?;
        let folder = folder(self.group);
        let path = format!("{folder}/{}", id.file_name());
        self.shared
            .with_room(|| {
                Box::pin(async {
                    if let Some(part) = file.part.as_ref().filter(|part| !part.is_adopted()) {
                        self.disk.rename(&format!("{folder}/{}", part.name()), &path).await?;
                        part.set_adopted();
                    }
                    sync_folder(&*self.disk, &folder).await
                })
            })
            .await
    }

    /// Opens the final state of another group. Waits while the process lacks descriptors.
    ///
    /// # Errors
    /// If there is none, the disk fails, or the file is damaged: the error names the file.
    pub(crate) async fn final_state(&self, id: FinalStateId) -> io::Result<SnapshotFile> {
        let path = format!("{}/{}", folder(self.group), id.file_name());
        self.shared.with_room(|| Box::pin(self.open(path.clone()))).await
    }

    /// Removes the final state of another group. Waits while the process lacks descriptors.
    ///
    /// # Errors
    /// If the disk fails; the next call tries again.
    pub(crate) async fn drop_final(&self, id: FinalStateId) -> io::Result<()> {
        let folder = folder(self.group);
        match self.disk.remove(&format!("{folder}/{}", id.file_name())).await {
            // An earlier call removed it, and could not sync the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        self.shared.with_room(|| Box::pin(sync_folder(&*self.disk, &folder))).await
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::StoredMembership;
    use umbel_engine::ShardId;

    use super::*;
    use crate::Storage;
    use crate::crash_test::open;
    use crate::testing::{FaultDisk, Faults, id};

    const INTO: GroupId = GroupId::of_shard(ShardId(0));
    const STATE: FinalStateId = FinalStateId { of: GroupId::of_shard(ShardId(4)), fence_index: 17 };

    fn meta(index: u64) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: Some(id(1, index)),
            last_membership: StoredMembership::default(),
        }
    }

    async fn write(writer: &mut SnapshotWriter, body: &'static [u8]) -> io::Result<()> {
        writer.write(Bytes::from_static(body)).await
    }

    /// A folder in which one group has a snapshot and the final state of another one.
    async fn kept(disk: &FaultDisk) -> Storage {
        let storage = open(disk).await;
        storage.begin_group(INTO, meta(3), async |to| write(to, b"own").await).await.unwrap();
        let state = async |to: &mut SnapshotWriter| write(to, b"final").await;
        storage.keep_final_state(INTO, STATE, meta(17), state).await.unwrap();
        storage
    }

    #[tokio::test]
    async fn a_final_state_outlives_a_power_loss_beside_newer_snapshots() {
        let disk = FaultDisk::new();
        let storage = kept(&disk).await;
        // It is kept once.
        let again = async |_: &mut SnapshotWriter| panic!("it is kept already");
        storage.keep_final_state(INTO, STATE, meta(17), again).await.unwrap();
        let mut newer = storage.snapshots(INTO).writer(meta(9)).await.unwrap();
        write(&mut newer, b"newer").await.unwrap();
        newer.finish().await.unwrap();
        let disk = disk.crash(|_| 0);
        let storage = open(&disk).await;
        assert_eq!(storage.final_states(INTO), [STATE]);
        let other = FinalStateId { fence_index: 18, ..STATE };
        assert!(storage.has_final_state(INTO, STATE) && !storage.has_final_state(INTO, other));
        let file = storage.final_state(INTO, STATE).await.unwrap();
        assert_eq!(file.read(0, 100).await.unwrap(), b"final"[..]);
        assert_eq!(file.meta().last_log_id, Some(id(1, 17)));
        // Neither is taken for the other.
        let newest = storage.snapshots(INTO).latest().await.unwrap().unwrap();
        assert_eq!(newest.read(0, 100).await.unwrap(), b"newer"[..]);
        assert!(storage.final_state(INTO, other).await.is_err());
        storage.drop_final_state(INTO, STATE).await.unwrap();
        storage.drop_final_state(INTO, STATE).await.unwrap();
        assert!(open_again(&disk, storage).await.final_states(INTO).is_empty());
    }

    async fn open_again(disk: &FaultDisk, storage: Storage) -> Storage {
        storage.close().await;
        drop(storage);
        open(disk).await
    }

    #[tokio::test]
    async fn a_final_state_goes_with_the_group_that_was_to_absorb_it() {
        let disk = FaultDisk::new();
        let storage = kept(&disk).await;
        storage.leave(INTO).await.unwrap();
        assert!(storage.final_states(INTO).is_empty());
        assert!(!disk.paths().iter().any(|path| path.contains("final-")), "{:?}", disk.paths());
        // A state of a group that this node does not know is a leftover.
        let state = async |to: &mut SnapshotWriter| write(to, b"final").await;
        storage.keep_final_state(INTO, STATE, meta(17), state).await.unwrap();
        assert!(open_again(&disk, storage).await.final_states(INTO).is_empty());
    }

    /// The process ends when the file has its name, and before the name is durable.
    #[tokio::test(start_paused = true)]
    async fn a_final_state_that_another_process_named_survives() {
        let disk = FaultDisk::new();
        kept(&disk).await;
        let last_open = disk.opens();
        let disk = FaultDisk::new();
        // The last of these calls syncs the folder.
        let without_descriptors = Some((last_open - 1, u64::MAX));
        disk.set(Faults { without_descriptors, ..Faults::default() });
        let storage = open(&disk).await;
        storage.begin_group(INTO, meta(3), async |to| write(to, b"own").await).await.unwrap();
        let state = async |to: &mut SnapshotWriter| write(to, b"final").await;
        let keep = storage.keep_final_state(INTO, STATE, meta(17), state);
        let close_once_named = async {
            while !disk.paths().iter().any(|path| path.ends_with(".state")) {
                tokio::task::yield_now().await;
            }
            storage.close().await;
        };
        let (kept, ()) = tokio::join!(keep, close_once_named);
        kept.unwrap_err();
        drop(storage);

        disk.set(Faults::default());
        let storage = open(&disk).await;
        assert_eq!(storage.final_states(INTO), [STATE]);
        let storage = open(&disk.crash(|_| 0)).await;
        assert_eq!(storage.final_states(INTO), [STATE]);
    }

    #[tokio::test]
    async fn a_final_state_whose_removal_was_not_synced_can_be_removed_again() {
        let disk = FaultDisk::new();
        let storage = kept(&disk).await;
        disk.set(Faults { folder_sync_is_full: true, ..Faults::default() });
        storage.drop_final_state(INTO, STATE).await.unwrap_err();
        assert!(storage.has_final_state(INTO, STATE));
        disk.set(Faults::default());
        storage.drop_final_state(INTO, STATE).await.unwrap();
        assert!(!storage.has_final_state(INTO, STATE));
        assert!(open(&disk.crash(|_| 0)).await.final_states(INTO).is_empty());
    }

    #[test]
    fn other_files_hold_no_final_state() {
        assert_eq!(STATE.file_name(), "final-5-17.state");
        assert_eq!(FinalStateId::of_file("final-5-17.state"), Some(STATE));
        for name in ["17-1.snap", "1.part", "final-5.state", "final-x-1.state", "final-5-17.snap"] {
            assert_eq!(FinalStateId::of_file(name), None, "{name}");
        }
    }
}
