//! A node's persistent state: one log for all groups, snapshots, its identity.
//!
//! | item | what it is |
//! |---|---|
//! | [`Storage`] | the open data folder: creates and removes groups |
//! | [`LogStore`] | a group's log, in the form that openraft requires; all are in one write-ahead log |
//! | [`SnapshotStore`] | a group's snapshots |
//! | [`identity`] | the node's identity |
//! | [`Wrapping`] | encryption of the meta group's secrets on disk |
//! | [`types`] | openraft's types as Umbel configures them: entries, votes, members |
//! | [`observer`] | the events of a node that an observer gets |
//! | [`metrics`] | measurements of the log |
//!
//! Order of a start: load the identity, open the storage (which locks the folder and checks that the
//! log belongs to the identity), save the identity if there was none.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use umbel_engine::GroupId;
use umbel_ports::{Disk, locked};

mod checksum;
mod claims;
pub mod identity;
mod log_store;
mod log_stream;
pub mod metrics;
pub mod observer;
mod snapshots;
mod standing;
pub mod types;
mod wal;
mod wrapping;

#[cfg(test)]
mod crash_test;
#[cfg(test)]
mod suite_test;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod wrapping_test;

pub use log_store::LogStore;
pub use snapshots::{FinalStateId, SnapshotFile, SnapshotStore, SnapshotWriter};
pub use wal::{LogOwner, OpenError, Recovered, WalHealth, WalOptions};
pub use wrapping::Wrapping;

use crate::observer::{Event, NodeObserver};
use crate::types::SnapshotMeta;
use claims::Claims;
use wal::Wal;

/// Advice for a data folder that cannot be trusted.
const REJOIN: &str =
    "remove this node from the cluster and let it join again with an empty data folder";

/// The open data folder. Clones share one state.
#[derive(Clone)]
pub struct Storage {
    disk: Arc<dyn Disk>,
    wal: Arc<Wal>,
    snapshots: Arc<Mutex<BTreeMap<GroupId, SnapshotStore>>>,
    /// Taken by the shard whose snapshot is being built.
    build_turn: Arc<tokio::sync::Mutex<()>>,
    observer: Option<Arc<dyn NodeObserver>>,
    wrapping: Option<Arc<Wrapping>>,
    claims: Arc<Claims>,
    /// Final states of groups, each with the group that is to absorb it.
    final_states: Arc<Mutex<FinalStates>>,
}

type FinalStates = BTreeSet<(GroupId, FinalStateId)>;

impl Storage {
    /// Opens the data folder without a key.
    #[cfg(test)]
    pub(crate) async fn open(
        disk: Arc<dyn Disk>,
        options: WalOptions,
    ) -> Result<(Self, Recovered), OpenError> {
        Self::open_wrapped(disk, options, None).await
    }

    /// Locks the data folder, reads the log and the newest snapshots, and removes leftovers. If
    /// `wrapping` is given, secrets are wrapped with its key before they are written.
    ///
    /// # Errors
    /// If another process uses the folder, the disk fails, the folder is damaged or another node's, or
    /// the key is not its key.
    pub async fn open_wrapped(
        disk: Arc<dyn Disk>,
        options: WalOptions,
        wrapping: Option<Arc<Wrapping>>,
    ) -> Result<(Self, Recovered), OpenError> {
        let guard = disk.lock().await.map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked,
            _ => OpenError::Io { path: "lock".to_owned(), source },
        })?;
        wrapping::check(&*disk, wrapping.as_deref()).await?;
        let (wal, recovered) =
            wal::open(Arc::clone(&disk), options, wrapping.clone(), guard).await?;
        let final_states = match snapshots::clean(&*disk, &wal.groups()).await {
            Ok(kept) => Arc::new(Mutex::new(kept)),
            Err(error) => {
                wal.close().await;
                return Err(OpenError::io(snapshots::SNAPSHOT_FOLDER)(error));
            }
        };
        let storage = Self {
            disk,
            wal: Arc::new(wal),
            snapshots: Arc::default(),
            build_turn: Arc::default(),
            observer: None,
            wrapping,
            claims: Arc::default(),
            final_states,
        };
        if let Err(error) = storage.cover_logs().await {
            storage.close().await;
            return Err(OpenError::io("wal")(error));
        }
        Ok((storage, recovered))
    }

    /// Reports events to this observer, if there is one, from now on.
    pub fn observed_by(self, observer: Option<Arc<dyn NodeObserver>>) -> Self {
        Self { observer, ..self }
    }

    /// The node's observer.
    pub fn observer(&self) -> Option<&Arc<dyn NodeObserver>> {
        self.observer.as_ref()
    }

    /// Repairs a log after a power loss between the installation of a snapshot and the purge of the
    /// log.
    ///
    /// Everything that a snapshot covers was committed. If the log ends before the snapshot's last
    /// entry, or has another entry at that index, the log holds nothing else that was committed; but
    /// openraft refuses to start with it.
    async fn cover_logs(&self) -> io::Result<()> {
        for group in self.groups() {
            // A damaged snapshot is reported when the group starts.
            let Ok(Some(newest)) = self.snapshots(group).latest().await else { continue };
            if let Some(through) = newest.meta().last_log_id {
                self.wal.cover(group, through).await?;
            }
        }
        Ok(())
    }

    /// The log of a group; empty for a new group.
    pub fn log(&self, group: GroupId) -> LogStore {
        LogStore::new(Arc::clone(&self.wal), group, self.observer.clone())
    }

    /// The snapshots of a group.
    pub fn snapshots(&self, group: GroupId) -> SnapshotStore {
        let mut stores = locked(&self.snapshots);
        let wrapping = self.wrapping.clone().filter(|_| group == GroupId::META);
        // The meta group's state is small, and all wait for it.
        let build_turn = (group != GroupId::META).then(|| Arc::clone(&self.build_turn));
        let make = || {
            SnapshotStore::new(Arc::clone(&self.disk), group, self.wal.closing())
                .wrapped_by(wrapping)
                .in_turn(build_turn)
        };
        stores.entry(group).or_insert_with(make).clone()
    }

    /// Removes all data of a group, durably. Its Raft must have stopped.
    ///
    /// # Errors
    /// If the log has failed, or a snapshot cannot be removed; the next start then removes the rest.
    pub async fn forget(&self, group: GroupId) -> io::Result<()> {
        if let Some(observer) = &self.observer {
            observer.observe(&Event::Forgotten { group });
        }
        // The log first: snapshots without a log are removed as leftovers, but a log needs its
        // snapshot.
        self.wal.forget(group).await?;
        self.remove_snapshots(group).await
    }

    async fn remove_snapshots(&self, group: GroupId) -> io::Result<()> {
        locked(&self.final_states).retain(|&(into, _)| into != group);
        let store = self.snapshots(group);
        let removed = store.remove_all().await;
        // Not before: what another store writes into the folder meanwhile would be removed, too.
        locked(&self.snapshots).remove(&group);
        removed
    }

    /// Like [`forget`](Self::forget), for a replica that may return to this node: keeps its promises,
    /// that is, its vote and the last entry of its log.
    ///
    /// # Errors
    /// If the log has failed, or a snapshot cannot be removed; the next start then removes the rest.
    pub async fn leave(&self, group: GroupId) -> io::Result<()> {
        if let Some(observer) = &self.observer {
            observer.observe(&Event::Forgotten { group });
        }
        self.wal.leave(group).await?;
        self.remove_snapshots(group).await?;
        self.claims.release(group).await;
        Ok(())
    }

    /// Creates a group with a first snapshot that `write` writes, unless the group runs on this node or
    /// ever did: then the existing state counts. Everything is durable when this returns.
    ///
    /// # Errors
    /// If the disk fails. The group is not created then, and the next attempt starts from the
    /// beginning.
    pub async fn begin_group(
        &self,
        group: GroupId,
        meta: SnapshotMeta,
        write: impl AsyncFnOnce(&mut SnapshotWriter) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(_held) = self.claims.hold(group).await else { return Ok(()) };
        let Some(through) = meta.last_log_id.filter(|_| !self.wal.has_seen(group)) else {
            return Ok(());
        };
        let store = self.snapshots(group);
        let mut writer = store.writer(meta).await?;
        write(&mut writer).await?;
        store.adopt(&writer.finish().await?).await?;
        // The log last: until it knows the group, the snapshot counts as a leftover.
        self.wal.cover(group, through).await?;
        self.claims.note_begun();
        Ok(())
    }

    /// The final states that are kept for a group to absorb.
    pub fn final_states(&self, into: GroupId) -> Vec<FinalStateId> {
        let states = locked(&self.final_states);
        states.iter().filter(|(group, _)| *group == into).map(|&(_, state)| state).collect()
    }

    /// Whether the final state of a group is kept for another one.
    pub fn has_final_state(&self, into: GroupId, id: FinalStateId) -> bool {
        locked(&self.final_states).contains(&(into, id))
    }

    /// Keeps the final state of a group, which `write` writes, for the group that is to absorb it, unless it
    /// is kept already. Durable when this returns.
    ///
    /// # Errors
    /// If the disk fails; then nothing is kept.
    pub async fn keep_final_state(
        &self,
        into: GroupId,
        id: FinalStateId,
        meta: SnapshotMeta,
        write: impl AsyncFnOnce(&mut SnapshotWriter) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.has_final_state(into, id) {
            return Ok(());
        }
        let store = self.snapshots(into);
        match store.keep_final(id, meta, write).await {
            Ok(()) => {
                locked(&self.final_states).insert((into, id));
                Ok(())
            }
            // The group left this node meanwhile, so nothing here needs the state.
            Err(_) if store.is_forgotten() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens the final state of a group.
    ///
    /// # Errors
    /// If there is none, the disk fails, or the file is damaged: the error names the file.
    pub async fn final_state(&self, into: GroupId, id: FinalStateId) -> io::Result<SnapshotFile> {
        self.snapshots(into).final_state(id).await
    }

    /// Removes the final state of a group, which the other group has absorbed.
    ///
    /// # Errors
    /// If the disk fails; the next call tries again.
    pub async fn drop_final_state(&self, into: GroupId, id: FinalStateId) -> io::Result<()> {
        if self.has_final_state(into, id) {
            self.snapshots(into).drop_final(id).await?;
            locked(&self.final_states).remove(&(into, id));
        }
        Ok(())
    }

    /// Marks a group as running before it starts: from here on only the group itself writes its state.
    pub async fn claim(&self, group: GroupId) {
        self.claims.claim(group).await;
    }

    /// Watches the number of groups that were created on this node by another group's split.
    pub fn begun_count(&self) -> watch::Receiver<u64> {
        self.claims.begun_count()
    }

    /// Whether this node has or had a replica of the group.
    pub fn has_seen(&self, group: GroupId) -> bool {
        self.wal.has_seen(group)
    }

    /// Groups that the log knows of, in ascending order.
    pub fn groups(&self) -> Vec<GroupId> {
        self.wal.groups()
    }

    /// Watches the health of the log.
    pub fn health(&self) -> watch::Receiver<WalHealth> {
        self.wal.health()
    }

    /// For how long the disk has not returned from what the log asked of it last; zero if the log asks nothing of it,
    /// or the disk has answered that it is full.
    pub fn disk_wait(&self) -> Duration {
        self.wal.disk_wait()
    }

    /// Bytes of a group's entries in the log that are not purged.
    pub fn log_bytes(&self, group: GroupId) -> u64 {
        self.wal.log_bytes(group)
    }

    /// Bytes of the log on disk, for all groups.
    pub fn wal_bytes(&self) -> u64 {
        self.wal.byte_count()
    }

    /// Groups that keep the oldest segment of the log from being removed. A snapshot and a purge of
    /// each of them frees it. Empty if there is only one segment.
    pub fn groups_holding_oldest_segment(&self) -> Vec<GroupId> {
        self.wal.groups_holding_oldest_segment()
    }

    /// Makes all earlier writes durable and releases the folder. Later calls return errors.
    pub async fn close(&self) {
        self.wal.close().await;
    }
}
