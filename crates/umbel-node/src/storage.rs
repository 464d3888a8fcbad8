//! What a node keeps on disk: one log for all groups, snapshots, its identity.
//!
//! A start goes so: load the identity, open the storage (which locks the folder and checks that the
//! log is the identity's), save the identity if there was none.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use umbel_engine::GroupId;

mod checksum;
mod claims;
pub(crate) mod identity;
mod log_store;
mod log_stream;
mod snapshots;
mod wal;
mod wrapping;

#[cfg(test)]
mod crash_test;
#[cfg(test)]
pub(crate) mod fault_disk;
#[cfg(test)]
mod suite_test;
#[cfg(test)]
mod wrapping_test;
#[cfg(test)]
pub(crate) use crash_test::{entry as log_entry, id as log_id};

pub(crate) use identity::{Identity, IdentityError, MemberState};
pub(crate) use log_store::LogStore;
pub(crate) use snapshots::{SnapshotFile, SnapshotStore, SnapshotWriter};
pub(crate) use wal::{LogOwner, OpenError, Recovered, WalHealth, WalOptions};
pub(crate) use wrapping::Wrapping;

use crate::ports::observer::Event;
use crate::ports::{Disk, Observer};
use crate::raft::types::SnapshotMeta;
use claims::Claims;
use wal::Wal;

/// What to do with a data folder that cannot be trusted.
const REJOIN: &str =
    "remove this node from the cluster and let it join again with an empty data folder";

/// The open data folder. Clones are one and the same.
#[derive(Clone)]
pub(crate) struct Storage {
    disk: Arc<dyn Disk>,
    wal: Arc<Wal>,
    snapshots: Arc<Mutex<BTreeMap<GroupId, SnapshotStore>>>,
    observer: Option<Arc<dyn Observer>>,
    wrapping: Option<Arc<Wrapping>>,
    claims: Arc<Claims>,
}

impl Storage {
    /// Opens the data folder without a key.
    #[cfg(test)]
    pub(crate) async fn open(
        disk: Arc<dyn Disk>,
        options: WalOptions,
    ) -> Result<(Self, Recovered), OpenError> {
        Self::open_wrapped(disk, options, None).await
    }

    /// Locks the data folder, reads the log and the newest snapshots, and removes leftovers. With
    /// `wrapping` secrets are wrapped by it where they go to the disk.
    pub(crate) async fn open_wrapped(
        disk: Arc<dyn Disk>,
        options: WalOptions,
        wrapping: Option<Arc<Wrapping>>,
    ) -> Result<(Self, Recovered), OpenError> {
        let guard = disk.lock().await.map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked,
            _ => OpenError::Io { path: "lock".to_owned(), source },
        })?;
        wrapping::check(&*disk, wrapping.as_deref()).await?;
        let (wal, recovered) = wal::open(Arc::clone(&disk), options, guard).await?;
        let wal = wal.wrapped_by(wrapping.clone());
        let cleaned = snapshots::clean(&*disk, &wal.groups()).await;
        if let Err(error) = cleaned {
            wal.close().await;
            return Err(OpenError::io(snapshots::SNAPSHOT_FOLDER)(error));
        }
        let (wal, snapshots) = (Arc::new(wal), Arc::default());
        let claims = Arc::default();
        let storage = Self { disk, wal, snapshots, observer: None, wrapping, claims };
        if let Err(error) = storage.cover_logs().await {
            storage.close().await;
            return Err(OpenError::io("wal")(error));
        }
        Ok((storage, recovered))
    }

    /// Tells an observer, if there is one, of what happens from now on.
    pub(crate) fn observed_by(self, observer: Option<Arc<dyn Observer>>) -> Self {
        Self { observer, ..self }
    }

    /// Whoever watches the node.
    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.as_ref()
    }

    /// Ends what a power loss cut short between a snapshot that came in and the purge of the log.
    ///
    /// What a snapshot covers was committed. A log that ends before it, or has another entry in the
    /// place of its last one, holds nothing else that was; but openraft refuses to start with it.
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

    /// The log of a group; a new group's is empty.
    pub(crate) fn log(&self, group: GroupId) -> LogStore {
        LogStore::new(Arc::clone(&self.wal), group, self.observer.clone())
    }

    /// The snapshots of a group.
    pub(crate) fn snapshots(&self, group: GroupId) -> SnapshotStore {
        let mut stores = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        let wrapping = self.wrapping.clone().filter(|_| group == GroupId::META);
        let make = || {
            SnapshotStore::new(Arc::clone(&self.disk), group, self.wal.closing())
                .wrapped_by(wrapping)
        };
        stores.entry(group).or_insert_with(make).clone()
    }

    /// Removes all of a group, durably. Its Raft must have stopped.
    ///
    /// # Errors
    /// If the log has failed, or a snapshot cannot be removed: the next start does that.
    pub(crate) async fn forget(&self, group: GroupId) -> io::Result<()> {
        if let Some(observer) = &self.observer {
            observer.observe(&Event::Forgotten { group });
        }
        // The log first: snapshots without a log are leftovers, not the other way round.
        self.wal.forget(group).await?;
        self.remove_snapshots(group).await
    }

    async fn remove_snapshots(&self, group: GroupId) -> io::Result<()> {
        let store = self.snapshots(group);
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).remove(&group);
        store.remove_all().await
    }

    /// Like [`forget`](Self::forget), for a replica that may come back to this node: what it has
    /// promised is kept.
    ///
    /// # Errors
    /// If the log has failed, or a snapshot cannot be removed: the next start does that.
    pub(crate) async fn leave(&self, group: GroupId) -> io::Result<()> {
        if let Some(observer) = &self.observer {
            observer.observe(&Event::Forgotten { group });
        }
        self.wal.leave(group).await?;
        self.remove_snapshots(group).await?;
        self.claims.release(group).await;
        Ok(())
    }

    /// Begins a group with a first snapshot, which `write` writes, unless it runs here, or ever did: then what
    /// there is counts. When this returns, all of it is on the disk.
    ///
    /// # Errors
    /// If the disk fails; nothing is begun then, and the next try begins anew.
    pub(crate) async fn begin_group(
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
        // The log last: a snapshot of a group that the log does not know is a leftover.
        self.wal.cover(group, through).await?;
        self.claims.note_begun();
        Ok(())
    }

    /// Before a group starts: from here on nobody else writes it.
    pub(crate) async fn claim(&self, group: GroupId) {
        self.claims.claim(group).await;
    }

    /// How many groups were begun here by others, and every change of that.
    pub(crate) fn begun_count(&self) -> watch::Receiver<u64> {
        self.claims.begun_count()
    }

    /// Whether this node has, or had, a replica of a group.
    pub(crate) fn has_seen(&self, group: GroupId) -> bool {
        self.wal.has_seen(group)
    }

    /// Groups of which the log knows anything, in their order.
    pub(crate) fn groups(&self) -> Vec<GroupId> {
        self.wal.groups()
    }

    /// How the log is, and every change of that.
    pub(crate) fn health(&self) -> watch::Receiver<WalHealth> {
        self.wal.health()
    }

    /// Bytes in the log of a group's entries that are not purged.
    pub(crate) fn log_bytes(&self, group: GroupId) -> u64 {
        self.wal.log_bytes(group)
    }

    /// Bytes of the log of all groups on disk.
    pub(crate) fn wal_bytes(&self) -> u64 {
        self.wal.byte_count()
    }

    /// Groups that keep the oldest segment of the log from being removed: a snapshot and a purge
    /// of each frees it. None if there is only one segment.
    pub(crate) fn groups_holding_oldest_segment(&self) -> Vec<GroupId> {
        self.wal.groups_holding_oldest_segment()
    }

    /// Makes everything durable that was handed in before, and frees the folder. Later calls get
    /// errors.
    pub(crate) async fn close(&self) {
        self.wal.close().await;
    }
}
