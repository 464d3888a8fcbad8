//! Snapshots of groups: one file each, written under a temporary name and renamed when complete.
//!
//! ```text
//! UMBELSNP, version u32, group u32, length u32, meta encoded, body, body length u64, checksum u32
//! ```
//!
//! The checksum ([`BlockChecksum`]) covers everything before it. In version 2 the body is wrapped in
//! pieces of 64 KiB ([`Wrapping`]), the last one shorter; the body length counts wrapped bytes.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::watch;
use umbel_engine::GroupId;

mod final_states;
mod room;
mod wrapped;
mod writer;

pub use final_states::FinalStateId;

use wrapped::WrappedBody;
use writer::Part;
pub use writer::SnapshotWriter;

use umbel_ports::encoding::decode;
use umbel_ports::{Disk, File, PortFuture, locked};

use super::REJOIN;
use super::checksum::{BLOCK_BYTES, BlockChecksum};
use super::wal::{FULL_RETRY, is_full, is_short_of_descriptors};
use super::wrapping::{NO_KEY, Wrapping};
use crate::types::SnapshotMeta;

/// Folder that contains a folder for each group.
pub(super) const SNAPSHOT_FOLDER: &str = "snapshots";

const MAGIC: &[u8; 8] = b"UMBELSNP";
const VERSION: u32 = 1;
const WRAPPED_VERSION: u32 = 2;
const HEADER_BYTES: usize = 20;
const TRAILER_BYTES: u64 = 12;
/// The last bytes of the trailer.
const CHECKSUM_BYTES: usize = 4;

/// Most bytes of an encoded head: members and their addresses, at most thousands of them.
const META_BYTES_MAX: usize = 1 << 20;

/// A complete file with a valid checksum. It stays readable after a newer one replaces it.
#[derive(Clone)]
pub struct SnapshotFile {
    file: Arc<dyn File>,
    meta: SnapshotMeta,
    name: String,
    body_start: u64,
    byte_count: u64,
    /// How to read the body if it is wrapped.
    wrapped: Option<WrappedBody>,
    /// Its temporary file; None once it has become the newest snapshot.
    part: Option<Arc<Part>>,
}

impl fmt::Debug for SnapshotFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { meta, name, byte_count, .. } = self;
        f.debug_struct("SnapshotFile")
            .field("name", name)
            .field("meta", meta)
            .field("byte_count", byte_count)
            .finish_non_exhaustive()
    }
}

impl SnapshotFile {
    /// The last entry that the snapshot covers, and the members at that point.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// Index of the last entry that the snapshot covers; 0 if it covers none.
    pub fn last_index(&self) -> u64 {
        self.meta.last_log_id.map_or(0, |id| id.index)
    }

    /// Bytes of the body.
    pub fn byte_count(&self) -> u64 {
        self.byte_count
    }

    /// Bytes of the body from `offset` on: `byte_count` of them, or fewer at the end of the body.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn read(&self, offset: u64, byte_count: usize) -> io::Result<Bytes> {
        let left = self.byte_count.saturating_sub(offset);
        let byte_count = byte_count.min(usize::try_from(left).unwrap_or(usize::MAX));
        if byte_count == 0 {
            return Ok(Bytes::new());
        }
        if let Some(wrapped) = &self.wrapped {
            let body = (&*self.file, self.body_start);
            return wrapped.read(body, offset, byte_count).await.map_err(|error| match error {
                wrapped::ReadError::Io(error) => error,
                wrapped::ReadError::Cut => damaged(&self.name, "is cut off"),
                wrapped::ReadError::Wrapping(what) => unreadable(&self.name, &format!(": {what}")),
            });
        }
        let bytes = self.file.read_at(self.body_start + offset, byte_count).await?;
        if bytes.len() == byte_count { Ok(bytes) } else { Err(damaged(&self.name, "is cut off")) }
    }

    /// Reads the whole file once more and compares its checksum: what was whole when it was written or
    /// opened may have been damaged on the disk since.
    ///
    /// # Errors
    /// If the disk fails, or the file is damaged: that error is of the kind `InvalidData` and names the file.
    pub async fn verify(&self) -> io::Result<()> {
        let damage = find_damage(&*self.file).await?;
        damage.map_or(Ok(()), |what| Err(unreadable(&self.name, &what)))
    }
}

/// Reads a whole file and compares its checksum. Returns how the file is damaged, or None if it is whole.
async fn find_damage(file: &dyn File) -> io::Result<Option<String>> {
    let cut = || Ok(Some("is cut off".to_owned()));
    let Some(end) = file.len().await?.checked_sub(CHECKSUM_BYTES as u64) else { return cut() };
    let mut checksum = BlockChecksum::default();
    let mut offset = 0;
    while offset < end {
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let bytes = file.read_at(offset, left.min(BLOCK_BYTES)).await?;
        if bytes.is_empty() {
            return cut();
        }
        checksum.update(&bytes);
        offset += bytes.len() as u64;
    }
    let expected = file.read_at(end, CHECKSUM_BYTES).await?;
    let Some(expected) = expected.first_chunk() else { return cut() };
    let (expected, got) = (u32::from_le_bytes(*expected), checksum.finish());
    let is_damaged = expected != got;
    Ok(is_damaged.then(|| format!("is damaged: checksum {got:08x}, expected {expected:08x}")))
}

fn damaged(path: &str, what: &str) -> io::Error {
    unreadable(path, &format!("{what}: {REJOIN}"))
}

fn unreadable(path: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("snapshot {path} {what}"))
}

fn folder(group: GroupId) -> String {
    format!("{SNAPSHOT_FOLDER}/{}", group.number())
}

/// File name of a complete snapshot; names contain the index and term of its last entry, if it has one.
fn file_name(meta: &SnapshotMeta) -> String {
    match &meta.last_log_id {
        Some(id) => format!("{}-{}.snap", id.index, id.leader_id.term),
        None => "empty.snap".to_owned(),
    }
}

/// Key that orders snapshots by age; None for names of other files.
fn order(name: &str) -> Option<Option<(u64, u64)>> {
    let stem = name.strip_suffix(".snap")?;
    if stem == "empty" {
        return Some(None);
    }
    let (index, term) = stem.split_once('-')?;
    Some(Some((index.parse().ok()?, term.parse().ok()?)))
}

/// Removes unfinished files of writers, and snapshots of groups that the log does not know, with their folders:
/// the removal of such a group was cut short. The names that are left are durable when this returns. Returns the
/// final states that are kept, each with the group that is to absorb it.
pub(super) async fn clean(
    disk: &dyn Disk,
    groups: &[GroupId],
) -> io::Result<BTreeSet<(GroupId, FinalStateId)>> {
    disk.make_folder(SNAPSHOT_FOLDER).await?;
    disk.sync_folder("").await?;
    sync_folder(disk, SNAPSHOT_FOLDER).await?;
    let mut kept = BTreeSet::new();
    for name in disk.list(SNAPSHOT_FOLDER).await? {
        let Some(group) = name.parse().ok().map(GroupId::from_number) else { continue };
        let is_known = groups.contains(&group);
        remove_files(disk, group, |name| !is_known || name.ends_with(".part")).await?;
        if !is_known {
            disk.remove_folder(&folder(group)).await?;
            continue;
        }
        // A process that died before it synced the folder may have left a file whose name is not durable.
        sync_folder(disk, &folder(group)).await?;
        let names = disk.list(&folder(group)).await?;
        let states = names.iter().filter_map(|name| FinalStateId::of_file(name));
        kept.extend(states.map(|state| (group, state)));
    }
    Ok(kept)
}

async fn remove_files(
    disk: &dyn Disk,
    group: GroupId,
    goes: impl Fn(&str) -> bool,
) -> io::Result<()> {
    let folder = folder(group);
    let mut count = 0;
    for name in disk.list(&folder).await? {
        let is_final = FinalStateId::of_file(&name).is_some();
        let is_ours = is_final || order(&name).is_some() || name.ends_with(".part");
        if is_ours && goes(&name) {
            match disk.remove(&format!("{folder}/{name}")).await {
                // Another snapshot of the group that begins or ends at the same time was first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            count += 1;
        }
    }
    if count > 0 { sync_folder(disk, &folder).await } else { Ok(()) }
}

/// Syncs a folder. Only an error for lack of a descriptor says that a retry may succeed: what is on disk is
/// unknown after a sync that failed, also if it failed because the disk is full.
async fn sync_folder(disk: &dyn Disk, folder: &str) -> io::Result<()> {
    disk.sync_folder(folder).await.map_err(|error| {
        if is_short_of_descriptors(&error) { error } else { io::Error::other(error) }
    })
}

/// The snapshots of one group.
#[derive(Clone)]
pub struct SnapshotStore {
    disk: Arc<dyn Disk>,
    group: GroupId,
    wrapping: Option<Arc<Wrapping>>,
    build_turn: Option<Arc<tokio::sync::Mutex<()>>>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The newest snapshot, once known; locked while files are renamed and removed.
    newest: tokio::sync::Mutex<Option<SnapshotFile>>,
    parts: Mutex<Parts>,
    /// True when the storage is closing.
    closing: watch::Receiver<bool>,
}

impl Shared {
    /// Repeats a call while the disk is full or the process lacks descriptors, until the storage closes or
    /// the group is forgotten: openraft stops a group whose snapshot fails.
    async fn with_room<'a, T>(
        &self,
        call: impl Fn() -> PortFuture<'a, io::Result<T>>,
    ) -> io::Result<T> {
        let mut closing = self.closing.clone();
        let mut has_waited = false;
        loop {
            let error = match call().await {
                Err(error) if is_full(&error) && !locked(&self.parts).is_forgotten => error,
                result => return result,
            };
            if !has_waited {
                tracing::warn!(%error, "a snapshot waits for room on the disk");
                has_waited = true;
            }
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return Err(error),
                () = tokio::time::sleep(FULL_RETRY) => {}
            }
        }
    }
}

/// Files under temporary names.
#[derive(Default)]
struct Parts {
    last: u64,
    open: BTreeSet<String>,
    /// The group was removed; writers that are still at work must not create files of it again.
    is_forgotten: bool,
}

impl SnapshotStore {
    /// `closing` turns true when calls should stop waiting for room.
    pub(super) fn new(disk: Arc<dyn Disk>, group: GroupId, closing: watch::Receiver<bool>) -> Self {
        let (newest, parts) = (tokio::sync::Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { newest, parts, closing });
        Self { disk, group, wrapping: None, build_turn: None, shared }
    }

    /// Builds snapshots only with this turn, which stores of other groups take, too.
    pub(super) fn in_turn(self, build_turn: Option<Arc<tokio::sync::Mutex<()>>>) -> Self {
        Self { build_turn, ..self }
    }

    /// Wraps the bodies of new snapshots, and unwraps those of wrapped ones.
    pub(super) fn wrapped_by(self, wrapping: Option<Arc<Wrapping>>) -> Self {
        Self { wrapping, ..self }
    }

    /// Begins a snapshot. It is invisible until it is finished. If the writer is dropped, the next
    /// writer or start removes whatever it left. Waits while the disk is full.
    ///
    /// # Errors
    /// If the disk fails, the head is too large, or the group was forgotten.
    pub async fn writer(&self, meta: SnapshotMeta) -> io::Result<SnapshotWriter> {
        SnapshotWriter::begin(self.clone(), meta).await
    }

    /// Makes a finished snapshot the newest one, durably, and removes older ones. If a newer one
    /// exists, that one stays the newest, and this one is readable as long as it is held. Waits while
    /// the disk is full.
    ///
    /// # Errors
    /// If the disk fails or the group was forgotten; the older snapshot remains the newest then.
    pub async fn adopt(&self, file: &SnapshotFile) -> io::Result<SnapshotFile> {
        self.shared.with_room(|| Box::pin(self.try_adopt(file))).await
    }

    async fn try_adopt(&self, file: &SnapshotFile) -> io::Result<SnapshotFile> {
        let mut newest = self.shared.newest.lock().await;
        if locked(&self.shared.parts).is_forgotten {
            return Err(io::Error::other(format!("{} was forgotten", self.group)));
        }
        if newest.is_none() {
            *newest = match self.find_newest().await {
                Err(error) if is_short_of_descriptors(&error) => return Err(error),
                // A damaged snapshot must not prevent a new one.
                found => found.unwrap_or(None),
            };
        }
        let stands = newest.as_ref().is_some_and(|newest| is_newer(&newest.meta, &file.meta));
        let Some(part) = file.part.as_ref().filter(|_| !stands) else { return Ok(file.clone()) };
        let (folder, name) = (folder(self.group), file_name(&file.meta));
        let path = format!("{folder}/{name}");
        if !part.is_adopted() {
            self.disk.rename(&format!("{folder}/{}", part.name()), &path).await?;
            part.set_adopted();
        }
        sync_folder(&*self.disk, &folder).await?;
        let adopted = SnapshotFile { name: path, part: None, ..file.clone() };
        *newest = Some(adopted.clone());
        let is_older = |other: &str| {
            order(other).is_some_and(|other| order(&name).is_some_and(|own| other < own))
        };
        if let Err(error) = remove_files(&*self.disk, self.group, is_older).await {
            // The next adopted snapshot tries again.
            tracing::warn!(%error, "older snapshot not removed");
        }
        Ok(adopted)
    }

    /// The newest snapshot. The checksum of one that was found on the disk is verified when it is first
    /// read; [`SnapshotFile::verify`] does so again. Waits while the process lacks descriptors.
    ///
    /// # Errors
    /// If the disk fails, or the newest file is damaged: the error names the file.
    pub async fn latest(&self) -> io::Result<Option<SnapshotFile>> {
        self.shared.with_room(|| Box::pin(self.try_latest())).await
    }

    async fn try_latest(&self) -> io::Result<Option<SnapshotFile>> {
        let mut newest = self.shared.newest.lock().await;
        if newest.is_none() {
            *newest = self.find_newest().await?;
        }
        Ok(newest.clone())
    }

    /// The error for a missing snapshot although the log is purged up to `first_index`.
    pub fn missing(&self, first_index: u64) -> io::Error {
        let folder = folder(self.group);
        let what = format!(
            "{folder}: the snapshot that stands for all entries before {first_index} is missing: put it back, or {REJOIN}"
        );
        io::Error::new(io::ErrorKind::InvalidData, what)
    }

    async fn find_newest(&self) -> io::Result<Option<SnapshotFile>> {
        let folder = folder(self.group);
        let names = self.disk.list(&folder).await?;
        let name = names.iter().filter(|name| order(name).is_some()).max_by_key(|n| order(n));
        match name {
            Some(name) => Ok(Some(self.open(format!("{folder}/{name}")).await?)),
            None => Ok(None),
        }
    }

    /// Opens a file and verifies all of it.
    async fn open(&self, path: String) -> io::Result<SnapshotFile> {
        let file = self.disk.open(&path, false).await?;
        let byte_count = file.len().await?;
        let (meta, body_start, version) = self.read_head(&path, &*file).await?;
        let Some(body_end) = byte_count.checked_sub(TRAILER_BYTES).filter(|e| *e >= body_start)
        else {
            return Err(damaged(&path, "is cut off"));
        };
        let trailer = file.read_at(body_end, 8).await?;
        let Some(length) = trailer.first_chunk() else {
            return Err(damaged(&path, "is cut off"));
        };
        if u64::from_le_bytes(*length) != body_end - body_start {
            return Err(damaged(&path, "is damaged: its length differs from what it says"));
        }
        if let Some(what) = find_damage(&*file).await? {
            return Err(damaged(&path, &what));
        }
        let byte_count = body_end - body_start;
        let (byte_count, wrapped) = match (version, &self.wrapping) {
            (WRAPPED_VERSION, None) => return Err(unreadable(&path, NO_KEY)),
            (WRAPPED_VERSION, Some(wrapping)) => {
                let unwrapped = wrapped::unwrapped_byte_count(byte_count);
                (unwrapped, Some(WrappedBody::new(Arc::clone(wrapping), self.group)))
            }
            _ => (byte_count, None),
        };
        Ok(SnapshotFile { file, meta, name: path, body_start, byte_count, wrapped, part: None })
    }

    async fn read_head(&self, path: &str, file: &dyn File) -> io::Result<(SnapshotMeta, u64, u32)> {
        let header = file.read_at(0, HEADER_BYTES).await?;
        let header = header.first_chunk::<HEADER_BYTES>();
        let header = header.ok_or_else(|| damaged(path, "is cut off"))?;
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if &header[..8] != MAGIC {
            return Err(damaged(path, "is damaged: no snapshot begins so"));
        }
        if ![VERSION, WRAPPED_VERSION].contains(&number(8)) {
            let what = format!("has format version {}, known are 1 and 2", number(8));
            return Err(unreadable(path, &what));
        }
        if number(12) != self.group.number() {
            let what = format!("is of {}", GroupId::from_number(number(12)));
            return Err(damaged(path, &what));
        }
        let length = usize::try_from(number(16)).unwrap_or(usize::MAX);
        if length > META_BYTES_MAX {
            return Err(damaged(path, "is damaged: its head is too large"));
        }
        let meta = file.read_at(HEADER_BYTES as u64, length).await?;
        let meta = decode(&meta).map_err(|error| damaged(path, &format!("is damaged: {error}")))?;
        Ok((meta, (HEADER_BYTES + length) as u64, number(8)))
    }

    /// Whether all files of the group were removed for good.
    pub(super) fn is_forgotten(&self) -> bool {
        locked(&self.shared.parts).is_forgotten
    }

    /// Removes all files of the group for good, and their folder; writers that are still at work fail.
    pub(super) async fn remove_all(&self) -> io::Result<()> {
        locked(&self.shared.parts).is_forgotten = true;
        let mut newest = self.shared.newest.lock().await;
        *newest = None;
        remove_files(&*self.disk, self.group, |_| true).await?;
        // Not synced: if it returns, the next start removes it.
        self.disk.remove_folder(&folder(self.group)).await
    }
}

fn is_newer(one: &SnapshotMeta, other: &SnapshotMeta) -> bool {
    one.last_log_id > other.last_log_id
}

#[cfg(test)]
mod snapshots_test;
