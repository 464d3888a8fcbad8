//! An in-memory disk that loses whatever was not synced, for tests.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use umbel_ports::{Disk, File, PortFuture, WriteError};

/// Writes are cut into pieces of this many bytes; each piece survives a crash or not.
const SECTOR_BYTES: usize = 32;

/// How often a write that hangs looks whether it may go on, so that time that is paused goes on, too.
const HANG_LOOK: Duration = Duration::from_millis(10);

/// The disk. Clones share one state.
#[derive(Clone, Default)]
pub(crate) struct FaultDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since their folder was last synced: the name, and its file or None.
    name_changes: Vec<Vec<(String, Option<usize>)>>,
    faults: Faults,
    calls: u64,
    opens: u64,
    syncs: u64,
    /// Reads of each file.
    reads: BTreeMap<usize, u64>,
    locked: bool,
}

/// The faults to inject.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Writes and new files find no room; half of the write is done.
    pub(crate) full: bool,
    /// No file or folder can be opened: the process has too many open.
    pub(crate) no_descriptors: bool,
    /// The same in the opening calls after the first number and up to the second.
    pub(crate) without_descriptors: Option<(u64, u64)>,
    /// Syncs of folders fail because the disk is full.
    pub(crate) folder_sync_is_full: bool,
    /// The same as `full`, in the changing calls after the first number and up to the second.
    pub(crate) full_calls: Option<(u64, u64)>,
    /// The bytes that fit on the disk; of the write that fills it, what fits is done.
    pub(crate) room: Option<u64>,
    /// Writes fail with another error.
    pub(crate) write_fails: bool,
    /// The next sync fails; the one after it succeeds although data is lost, as on Linux.
    pub(crate) sync_fails_once: bool,
    /// Writes do not return before this ends.
    pub(crate) hangs: bool,
    /// Writes panic, as code with a bug may.
    pub(crate) panics: bool,
    /// Every call fails after this many changing calls, as if the process were dead.
    pub(crate) dies_after: Option<u64>,
}

#[derive(Clone, Default)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Bytes),
    Length(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, new) => {
                let end = offset + new.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(new);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl FaultDisk {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn set(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    /// Number of changing calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.inner().calls
    }

    /// Number of calls so far that opened a file or folder, or tried to.
    pub(crate) fn opens(&self) -> u64 {
        self.inner().opens
    }

    /// Number of file syncs so far.
    pub(crate) fn syncs(&self) -> u64 {
        self.inner().syncs
    }

    /// Number of reads of a file so far.
    pub(crate) fn reads(&self, path: &str) -> u64 {
        let inner = self.inner();
        inner.reads.get(&inner.names[path]).copied().unwrap_or(0)
    }

    pub(crate) fn len(&self, path: &str) -> usize {
        let inner = self.inner();
        inner.files[inner.names[path]].current.len()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.inner().names.keys().cloned().collect()
    }

    /// Flips bits of a byte permanently.
    pub(crate) fn flip(&self, path: &str, byte: usize, bits: u8) {
        let mut inner = self.inner();
        let file = inner.names[path];
        let file = &mut inner.files[file];
        file.current[byte] ^= bits;
        if let Some(byte) = file.durable.get_mut(byte) {
            *byte ^= bits;
        }
    }

    /// Replaces a file's bytes, durably.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let mut inner = self.inner();
        let content =
            Content { durable: bytes.to_vec(), current: bytes.to_vec(), pending: Vec::new() };
        inner.files.push(content);
        let file = inner.files.len() - 1;
        inner.names.insert(path.to_owned(), file);
        inner.durable_names.insert(path.to_owned(), file);
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        let inner = self.inner();
        inner.files[inner.names[path]].current.clone()
    }

    pub(crate) fn delete(&self, path: &str) {
        let mut inner = self.inner();
        inner.names.remove(path);
        inner.durable_names.remove(path);
    }

    /// The disk after a power loss. `choose` returns how many of the n pending changes of names survive
    /// when called with n, and whether a single sector survives when called with 1.
    pub(crate) fn crash(&self, mut choose: impl FnMut(usize) -> usize) -> Self {
        let inner = self.inner();
        let mut names = inner.durable_names.clone();
        for change in inner.name_changes.iter().take(choose(inner.name_changes.len())) {
            apply_names(&mut names, change);
        }
        let survive = |file: &Content| {
            let mut bytes = file.durable.clone();
            for change in &file.pending {
                match change {
                    Change::Write(offset, new) => {
                        for start in (0..new.len()).step_by(SECTOR_BYTES) {
                            let end = new.len().min(start + SECTOR_BYTES);
                            if choose(1) == 1 {
                                Change::Write(offset + start, new.slice(start..end))
                                    .apply(&mut bytes);
                            }
                        }
                    }
                    Change::Length(_) if choose(1) == 1 => change.apply(&mut bytes),
                    Change::Length(_) => {}
                }
            }
            Content { durable: bytes.clone(), current: bytes, pending: Vec::new() }
        };
        let files = inner.files.iter().map(survive).collect();
        let durable_names = names.clone();
        let inner = Inner { files, names, durable_names, ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }
}

fn apply_names(names: &mut BTreeMap<String, usize>, change: &[(String, Option<usize>)]) {
    for (name, file) in change {
        match file {
            Some(file) => names.insert(name.clone(), *file),
            None => names.remove(name),
        };
    }
}

impl Inner {
    /// Counts a changing call.
    fn begin(&mut self) -> io::Result<()> {
        self.calls += 1;
        self.alive()
    }

    fn alive(&self) -> io::Result<()> {
        match self.faults.dies_after {
            Some(calls) if self.calls > calls => Err(io::Error::other("the power is gone")),
            _ => Ok(()),
        }
    }

    /// Counts a call that opens a file or folder.
    fn take_descriptor(&mut self) -> io::Result<()> {
        self.opens += 1;
        let is_in = |(from, through)| self.opens > from && self.opens <= through;
        if self.faults.no_descriptors || self.faults.without_descriptors.is_some_and(is_in) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let is_in = |(from, through)| self.calls > from && self.calls <= through;
        self.faults.full || self.faults.full_calls.is_some_and(is_in)
    }

    /// The bytes that still fit; None if there is no limit.
    fn free_bytes(&self) -> Option<u64> {
        let used = self.names.values().map(|&file| self.files[file].current.len() as u64);
        self.faults.room.map(|room| room.saturating_sub(used.sum()))
    }

    fn rename(&mut self, change: Vec<(String, Option<usize>)>) {
        apply_names(&mut self.names, &change);
        self.name_changes.push(change);
    }

    fn write(&mut self, file: usize, offset: usize, bytes: &Bytes) -> io::Result<()> {
        self.begin()?;
        if self.faults.write_fails {
            return Err(io::Error::other("broken"));
        }
        let mut is_full = self.is_full();
        let mut bytes = if is_full { bytes.slice(..bytes.len() / 2) } else { bytes.clone() };
        if let Some(free) = self.free_bytes() {
            let fitting = place(free) + self.files[file].current.len().saturating_sub(offset);
            is_full |= fitting < bytes.len();
            bytes.truncate(fitting);
        }
        let change = Change::Write(offset, bytes);
        change.apply(&mut self.files[file].current);
        self.files[file].pending.push(change);
        if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.begin()?;
        self.syncs += 1;
        if self.faults.sync_fails_once {
            self.faults.sync_fails_once = false;
            self.files[file].pending.clear();
            return Err(io::Error::other("sync is broken"));
        }
        let file = &mut self.files[file];
        for change in file.pending.drain(..) {
            change.apply(&mut file.durable);
        }
        Ok(())
    }
}

struct Locked(FaultDisk);

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.inner().locked = false;
    }
}

impl Disk for FaultDisk {
    fn open<'a>(
        &'a self,
        path: &'a str,
        create: bool,
    ) -> PortFuture<'a, io::Result<Arc<dyn File>>> {
        Box::pin(async move {
            let mut inner = self.inner();
            inner.alive()?;
            if !create {
                inner.take_descriptor()?;
                let file = *inner.names.get(path).ok_or(io::ErrorKind::NotFound)?;
                return Ok(Arc::new(OpenFile { disk: self.clone(), file }) as Arc<dyn File>);
            }
            inner.begin()?;
            if inner.is_full() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            inner.take_descriptor()?;
            let file = if let Some(file) = inner.names.get(path).copied() {
                inner.files[file].current.clear();
                inner.files[file].pending.push(Change::Length(0));
                file
            } else {
                inner.files.push(Content::default());
                let file = inner.files.len() - 1;
                inner.rename(vec![(path.to_owned(), Some(file))]);
                file
            };
            Ok(Arc::new(OpenFile { disk: self.clone(), file }) as Arc<dyn File>)
        })
    }

    fn list<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<Vec<String>>> {
        Box::pin(async move {
            let mut inner = self.inner();
            inner.alive()?;
            inner.take_descriptor()?;
            let prefix = format!("{folder}/");
            let mut names: Vec<_> = inner
                .names
                .keys()
                .filter_map(|path| path.strip_prefix(&prefix))
                .map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
                .collect();
            names.dedup();
            Ok(names)
        })
    }

    fn make_folder<'a>(&'a self, _folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move { self.inner().alive() })
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mut inner = self.inner();
            inner.begin()?;
            if inner.is_full() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let file = *inner.names.get(from).ok_or(io::ErrorKind::NotFound)?;
            inner.rename(vec![(from.to_owned(), None), (to.to_owned(), Some(file))]);
            Ok(())
        })
    }

    fn remove<'a>(&'a self, path: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mut inner = self.inner();
            inner.begin()?;
            if !inner.names.contains_key(path) {
                return Err(io::ErrorKind::NotFound.into());
            }
            inner.rename(vec![(path.to_owned(), None)]);
            Ok(())
        })
    }

    fn remove_folder<'a>(&'a self, _folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move { self.inner().alive() })
    }

    fn sync_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let mut inner = self.inner();
            inner.begin()?;
            inner.take_descriptor()?;
            if inner.faults.folder_sync_is_full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let changes = std::mem::take(&mut inner.name_changes);
            for change in changes {
                if folder_of(&change[0].0) == folder {
                    apply_names(&mut inner.durable_names, &change);
                } else {
                    inner.name_changes.push(change);
                }
            }
            Ok(())
        })
    }

    fn free_bytes(&self) -> PortFuture<'_, io::Result<u64>> {
        Box::pin(async move {
            let inner = self.inner();
            Ok(if inner.faults.full { 0 } else { inner.free_bytes().unwrap_or(u64::MAX) })
        })
    }

    fn lock(&self) -> PortFuture<'_, io::Result<Box<dyn Send + Sync>>> {
        Box::pin(async move {
            let mut inner = self.inner();
            if std::mem::replace(&mut inner.locked, true) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(Box::new(Locked(self.clone())) as Box<dyn Send + Sync>)
        })
    }
}

struct OpenFile {
    disk: FaultDisk,
    file: usize,
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

impl File for OpenFile {
    fn read_at(&self, offset: u64, byte_count: usize) -> PortFuture<'_, io::Result<Bytes>> {
        Box::pin(async move {
            let mut inner = self.disk.inner();
            inner.alive()?;
            *inner.reads.entry(self.file).or_default() += 1;
            let bytes = &inner.files[self.file].current;
            let from = place(offset).min(bytes.len());
            let to = from.saturating_add(byte_count).min(bytes.len());
            Ok(Bytes::copy_from_slice(&bytes[from..to]))
        })
    }

    fn write_at(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, io::Result<()>> {
        Box::pin(async move {
            // Let other tasks run during the write.
            tokio::task::yield_now().await;
            while self.disk.inner().faults.hangs {
                tokio::time::sleep(HANG_LOOK).await;
            }
            let panics = self.disk.inner().faults.panics;
            assert!(!panics, "a bug that a test asked for");
            self.disk.inner().write(self.file, place(offset), &bytes)
        })
    }

    fn write_and_sync(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            self.write_at(offset, bytes).await.map_err(WriteError::Write)?;
            self.sync().await.map_err(WriteError::Sync)
        })
    }

    fn sync(&self) -> PortFuture<'_, io::Result<()>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.disk.inner().sync(self.file)
        })
    }

    fn set_len(&self, byte_count: u64) -> PortFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let mut inner = self.disk.inner();
            inner.begin()?;
            let change = Change::Length(place(byte_count));
            change.apply(&mut inner.files[self.file].current);
            inner.files[self.file].pending.push(change);
            Ok(())
        })
    }

    fn len(&self) -> PortFuture<'_, io::Result<u64>> {
        Box::pin(async move { Ok(self.disk.inner().files[self.file].current.len() as u64) })
    }
}
