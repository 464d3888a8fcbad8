//! Writes a snapshot under a temporary name.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use umbel_ports::encoding::encode;
use umbel_ports::{File, locked};
use umbel_step::planted::{self, Planted};

use super::room::GaveWay;
use super::{
    MAGIC, META_BYTES_MAX, SNAPSHOT_FOLDER, Shared, SnapshotFile, SnapshotStore, VERSION,
    WRAPPED_VERSION, WrappedBody, folder, remove_files, sync_folder, wrapped,
};
use crate::checksum::{BLOCK_BYTES, BlockChecksum};
use crate::types::SnapshotMeta;
use crate::wal::is_full;

/// Bytes after which a snapshot is synced while it is written. What the last sync has left to do then takes a slow disk
/// of 10 MB/s less than the time that a sender waits for one call, however large the snapshot is.
const SYNC_BYTES: u64 = 32 << 20;

/// Protects a temporary file from removal while it is in use.
pub(super) struct Part {
    shared: Arc<Shared>,
    name: String,
    is_adopted: AtomicBool,
}

impl Part {
    fn new(store: &SnapshotStore) -> io::Result<Self> {
        let mut parts = locked(&store.shared.parts);
        if parts.is_forgotten {
            return Err(io::Error::other(format!("{} was forgotten", store.group)));
        }
        parts.last += 1;
        let name = format!("{}.part", parts.last);
        parts.open.insert(name.clone());
        let shared = Arc::clone(&store.shared);
        Ok(Self { shared, name, is_adopted: AtomicBool::new(false) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the file has its final name.
    pub(super) fn is_adopted(&self) -> bool {
        self.is_adopted.load(Ordering::Relaxed)
    }

    /// Relaxed suffices: the store's lock on the newest snapshot orders this with `is_adopted`.
    pub(super) fn set_adopted(&self) {
        self.is_adopted.store(true, Ordering::Relaxed);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        locked(&self.shared.parts).open.remove(&self.name);
    }
}

impl SnapshotStore {
    /// Removes what writers that were dropped have left.
    pub(super) async fn remove_dropped(&self) -> io::Result<()> {
        // The open ones are looked up once the names are read: a writer that begins meanwhile is among them.
        let dropped =
            |name: &str| name.ends_with(".part") && !locked(&self.shared.parts).open.contains(name);
        remove_files(&*self.disk, self.group, dropped).await
    }
}

/// A snapshot that is being written.
///
/// While the disk is full, its calls wait until the storage closes or the group is forgotten; or, if it
/// gives way ([`SnapshotStore::build`], [`SnapshotStore::writer_of`]), they remove what was written and fail.
pub struct SnapshotWriter {
    store: SnapshotStore,
    part: Part,
    file: Arc<dyn File>,
    meta: SnapshotMeta,
    body_start: u64,
    /// Bytes of the body so far, before wrapping.
    byte_count: u64,
    wrapped: Option<WrappedBody>,
    written: u64,
    /// How many of the written bytes are synced.
    synced: u64,
    pending: BytesMut,
    checksum: BlockChecksum,
    has_failed: bool,
    gives_way: bool,
}

impl SnapshotWriter {
    pub(super) async fn begin(store: SnapshotStore, meta: SnapshotMeta) -> io::Result<Self> {
        let encoded = encode(&meta);
        if encoded.len() > META_BYTES_MAX {
            let message = format!("{} bytes of members, at most {META_BYTES_MAX}", encoded.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let folder = folder(store.group);
        let part = Part::new(&store)?;
        store.shared.with_room(|| store.disk.make_folder(&folder)).await?;
        let sync = || sync_folder(&*store.disk, SNAPSHOT_FOLDER);
        store.shared.with_room(|| Box::pin(sync())).await?;
        store.shared.with_room(|| Box::pin(store.remove_dropped())).await?;

        let path = format!("{folder}/{}", part.name);
        let file = store.shared.with_room(|| store.disk.open(&path, true)).await?;
        let mut pending = BytesMut::with_capacity(BLOCK_BYTES);
        pending.put_slice(MAGIC);
        pending.put_u32_le(if store.wrapping.is_some() { WRAPPED_VERSION } else { VERSION });
        pending.put_u32_le(store.group.number());
        pending.put_u32_le(u32::try_from(encoded.len()).expect("checked above"));
        pending.put_slice(&encoded);
        let body_start = pending.len() as u64;
        let wrapping = store.wrapping.clone();
        let wrapped = wrapping.map(|wrapping| WrappedBody::new(wrapping, store.group));
        Ok(Self {
            store,
            part,
            file,
            meta,
            body_start,
            byte_count: 0,
            wrapped,
            written: 0,
            synced: 0,
            pending,
            checksum: BlockChecksum::default(),
            has_failed: false,
            gives_way: false,
        })
    }

    /// Lets a full disk end the snapshot: what was written is removed, so that others have the room.
    pub(super) fn giving_way(self) -> Self {
        Self { gives_way: true, ..self }
    }

    /// Appends bytes to the body.
    ///
    /// # Errors
    /// If the disk fails. The snapshot cannot be finished after that, nor after a call that was
    /// dropped.
    pub async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.byte_count += bytes.len() as u64;
        match &mut self.wrapped {
            Some(wrapped) => wrapped.push(&bytes, &mut self.pending),
            None => self.pending.put_slice(&bytes),
        }
        if self.pending.len() >= BLOCK_BYTES { self.flush().await } else { Ok(()) }
    }

    fn check_whole(&self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write of the snapshot failed"));
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.check_whole()?;
        // Stays set also if the call is dropped half way.
        self.has_failed = true;
        let bytes = self.pending.split().freeze();
        self.checksum.update(&bytes);
        self.write_bytes(bytes).await?;
        if self.written - self.synced >= SYNC_BYTES {
            self.file.sync().await?;
            self.synced = self.written;
        }
        self.has_failed = false;
        Ok(())
    }

    async fn write_bytes(&mut self, bytes: Bytes) -> io::Result<()> {
        let byte_count = bytes.len() as u64;
        let write = || self.file.write_at(self.written, bytes.clone());
        if self.gives_way {
            match write().await {
                Err(error) if is_full(&error) => {
                    return Err(self.give_way(byte_count, error).await);
                }
                written => written?,
            }
        } else {
            self.store.shared.with_room(write).await?;
        }
        self.written += byte_count;
        Ok(())
    }

    /// Gives the disk its bytes back; returns the error of the write that did not fit.
    async fn give_way(&self, byte_count: u64, error: io::Error) -> io::Error {
        let path = format!("{}/{}", folder(self.store.group), self.part.name);
        // Shortened first: a file that is removed keeps its bytes as long as it is open.
        let removed = match self.file.set_len(0).await {
            Ok(()) => self.store.disk.remove(&path).await,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            // The next writer removes it.
            tracing::warn!(path, %error, "a part of a snapshot was not removed");
        }
        GaveWay::error(self.written + byte_count, error)
    }

    /// Makes the snapshot durable and the newest one, as [`SnapshotStore::adopt`] does.
    ///
    /// # Errors
    /// If the disk fails; the older snapshot remains the newest then.
    pub async fn finish(self) -> io::Result<SnapshotFile> {
        let store = self.store.clone();
        let file = self.finish_aside().await?;
        store.adopt(&file).await
    }

    /// Makes the snapshot durable without making it the newest: until it is adopted, a start ignores
    /// it.
    ///
    /// # Errors
    /// If the disk fails. A sync that fails because the disk is full is not retried: what is on disk is
    /// unknown after it.
    pub async fn finish_aside(mut self) -> io::Result<SnapshotFile> {
        self.check_whole()?;
        if let Some(wrapped) = &mut self.wrapped {
            wrapped.finish(&mut self.pending);
        }
        let stored_byte_count = self.written + self.pending.len() as u64 - self.body_start;
        debug_assert_eq!(
            self.byte_count,
            match self.wrapped {
                Some(_) => wrapped::unwrapped_byte_count(stored_byte_count),
                None => stored_byte_count,
            }
        );
        self.pending.put_u64_le(stored_byte_count);
        self.flush().await?;
        let checksum = self.checksum.finish();
        self.write_bytes(Bytes::copy_from_slice(&checksum.to_le_bytes())).await?;
        if !planted::on(Planted::SnapshotNotSynced) {
            self.file.sync().await?;
        }
        let Self { store, part, file, meta, body_start, byte_count, wrapped, .. } = self;
        let name = format!("{}/{}", folder(store.group), part.name);
        let part = Some(Arc::new(part));
        Ok(SnapshotFile { file, meta, name, body_start, byte_count, wrapped, part })
    }
}
