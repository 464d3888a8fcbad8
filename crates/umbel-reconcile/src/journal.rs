//! Journals on disk: the bytes that a session received, so that it can be resumed after a cut.
//!
//! A journal is a file with magic bytes and the engine's records. A lock of the system ensures that only
//! one process uses it at a time. A torn or damaged end is truncated when the file is opened. Only the
//! owner may read it, because it holds items.

use crate::error::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use umbel_reconcile_engine::{
    JournalHeader, JournalReader, JournalRecord, JournalState, StreamEnd, StreamHash,
};

/// Magic bytes at the start of a journal.
const MARK: &[u8; 8] = b"UMBELJNL";

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// How many journals of cut sessions a responder keeps. If there are more, it removes the oldest of the
/// owner that has most, so that no owner evicts others' journals with many sessions of its own. A journal
/// is as long as what its session received.
const KEPT_MAX: usize = 16;

/// Suffix of their file names.
const SUFFIX: &str = ".journal";

/// A journal that this process has locked.
pub(super) struct Journal {
    path: PathBuf,
    writer: Arc<JournalWriter>,
    /// Its state when it was opened, or since it was begun anew.
    state: Option<Box<JournalState>>,
}

/// The end of a journal, where several threads append records.
pub(super) struct JournalWriter {
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    received: StreamHash,
    received_max: u64,
    /// Whether a record could not be written: records after it would be unreadable.
    is_broken: bool,
}

/// Result of opening a journal.
pub(super) enum Opened {
    Ours(Journal),
    /// Another process holds it.
    Busy,
}

impl Journal {
    /// Opens a journal, or creates an empty one.
    ///
    /// # Errors
    ///
    /// If the file is not a journal, or cannot be read or written.
    pub(super) fn open(path: &Path, received_max: u64) -> Result<Opened> {
        let shown = || path.display().to_string();
        loop {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true).mode(0o600);
            let mut file = options.open(path).with_context(shown)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Opened::Busy),
                Err(TryLockError::Error(error)) => return Err(error).with_context(shown),
            }
            // The process that held the lock may have removed the file meanwhile.
            let locked = file.metadata().with_context(shown)?;
            ensure!(locked.is_file(), "{}: not a regular file", path.display());
            match std::fs::metadata(path) {
                Ok(now) if now.ino() == locked.ino() && now.dev() == locked.dev() => {}
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(shown),
            }
            let state = read_state(&mut file, path)?;
            let received = state.as_ref().map(|state| state.received.clone()).unwrap_or_default();
            let inner = Mutex::new(Inner { file, received, received_max, is_broken: false });
            let writer = Arc::new(JournalWriter { path: path.to_owned(), inner });
            let state = state.map(Box::new);
            return Ok(Opened::Ours(Self { path: path.to_owned(), writer, state }));
        }
    }

    /// Its state when it was opened, or since it was begun anew; `None` if it is empty.
    pub(super) fn state(&self) -> Option<&JournalState> {
        self.state.as_deref()
    }

    pub(super) const fn writer(&self) -> &Arc<JournalWriter> {
        &self.writer
    }

    /// Discards all records and begins anew.
    ///
    /// # Errors
    ///
    /// If the journal cannot be written.
    pub(super) fn begin(&mut self, header: JournalHeader) -> Result<()> {
        let shown = || format!("{}: cannot write the journal", self.path.display());
        let mut inner = self.writer.lock();
        inner.file.set_len(0).with_context(shown)?;
        inner.file.write_all(MARK).with_context(shown)?;
        let record = JournalRecord::Begin(header).to_bytes();
        inner.file.write_all(&record).with_context(shown)?;
        inner.file.sync_all().with_context(shown)?;
        let parent = self.path.parent().filter(|parent| *parent != Path::new(""));
        let synced = File::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
        synced.with_context(shown)?;
        (inner.received, inner.is_broken) = (StreamHash::default(), false);
        drop(inner);
        self.state = Some(Box::new(JournalState::new(header)));
        Ok(())
    }

    /// Records that the session was resumed, and how many bytes are sent again.
    pub(super) fn note_resumed(&mut self, again: u64) -> Result<()> {
        let record = JournalRecord::Resumed(again);
        self.writer.append(&record, true)?;
        if let Some(state) = &mut self.state {
            state.take(record);
        }
        Ok(())
    }

    /// Reads the received bytes from the first one on.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub(super) fn replay(&self) -> Result<Replay> {
        let file = File::open(&self.path).with_context(|| self.path.display().to_string())?;
        Replay::new(file, &self.path)
    }

    /// Removes the journal of a session that has ended.
    pub(super) fn remove(self) {
        // If the file stays, its next opening finds that the set has changed, or that the session is
        // complete.
        let _ = std::fs::remove_file(&self.path);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl JournalWriter {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, record: &JournalRecord, is_synced: bool) -> Result<()> {
        let shown = || format!("{}: cannot write the journal", self.path.display());
        let mut inner = self.lock();
        ensure!(!inner.is_broken, "{}", shown());
        let mut written = inner.file.write_all(&record.to_bytes());
        if is_synced {
            written = written.and_then(|()| inner.file.sync_data());
        }
        inner.is_broken = written.is_err();
        written.with_context(shown)
    }

    /// Makes received bytes durable, and returns the number of bytes received so far.
    ///
    /// # Errors
    ///
    /// If they cannot be written, or are more than a session may cost.
    pub(super) fn receive(&self, bytes: Vec<u8>) -> Result<u64> {
        let mut inner = self.lock();
        inner.received.update(&bytes);
        let (got, max) = (inner.received.mark().bytes, inner.received_max);
        drop(inner);
        ensure!(got <= max, "{got} bytes came, at most {max} are allowed: see --max-bytes");
        self.append(&JournalRecord::Received(bytes), true)?;
        Ok(got)
    }

    /// Records how many bytes were sent so far. Not synced: the number is only shown to users, so a crash
    /// may lose it.
    pub(super) fn note_sent(&self, bytes: u64) -> Result<()> {
        self.append(&JournalRecord::Sent(bytes), false)
    }

    /// Records the end of what was sent, and the fingerprint that the set will have after the change that
    /// follows.
    pub(super) fn note_end(
        &self,
        fingerprint: umbel_reconcile_engine::Fingerprint,
        end: StreamEnd,
    ) -> Result<()> {
        self.append(&JournalRecord::Ended { fingerprint, end }, true)
    }
}

/// Reads all records, and truncates the file after the last whole one.
fn read_state(file: &mut File, path: &Path) -> Result<Option<JournalState>> {
    let shown = || path.display().to_string();
    let bytes = file.metadata().with_context(shown)?.len();
    let mut mark = vec![0; MARK.len().min(usize::try_from(bytes).unwrap_or(MARK.len()))];
    file.seek(SeekFrom::Start(0)).with_context(shown)?;
    file.read_exact(&mut mark).with_context(shown)?;
    if mark[..] != MARK[..mark.len()] {
        bail!("{}: not a journal of a session; nothing was written to it", path.display());
    }
    let mut replay = Replay::new(file.try_clone().with_context(shown)?, path)?;
    let mut state: Option<JournalState> = None;
    while let Some(record) = replay.next_record()? {
        match (&mut state, record) {
            (None, JournalRecord::Begin(header)) => state = Some(JournalState::new(header)),
            (None, _) => break,
            (Some(state), record) => state.take(record),
        }
    }
    if state.is_some() && replay.whole_bytes < bytes {
        file.set_len(replay.whole_bytes).with_context(shown)?;
        file.sync_data().with_context(shown)?;
    }
    Ok(state)
}

/// Reads the received bytes, record by record.
pub(super) struct Replay {
    file: File,
    path: PathBuf,
    reader: JournalReader,
    at: u64,
    whole_bytes: u64,
    has_ended: bool,
}

impl Replay {
    fn new(file: File, path: &Path) -> Result<Self> {
        let at = MARK.len() as u64;
        let (path, reader) = (path.to_owned(), JournalReader::default());
        Ok(Self { file, path, reader, at, whole_bytes: at, has_ended: false })
    }

    /// The next record; `None` at the end, and at a record that is torn or damaged.
    fn next_record(&mut self) -> Result<Option<JournalRecord>> {
        use std::os::unix::fs::FileExt;
        let mut buffer = vec![0; READ_BYTES];
        while !self.has_ended {
            match self.reader.next_record() {
                Ok(Some((record, bytes))) => {
                    self.whole_bytes += bytes;
                    return Ok(Some(record));
                }
                Ok(None) => {}
                Err(_) => self.has_ended = true,
            }
            let read = self.file.read_at(&mut buffer, self.at);
            let count = read.with_context(|| self.path.display().to_string())?;
            if count == 0 {
                return Ok(None);
            }
            self.at += count as u64;
            self.reader.push(&buffer[..count]);
        }
        Ok(None)
    }

    /// The next received bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            match self.next_record()? {
                Some(JournalRecord::Received(bytes)) => return Ok(Some(bytes)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Journals of a responder: a folder with one for each cut session.
pub(super) struct Journals {
    folder: PathBuf,
    received_max: u64,
}

impl Journals {
    /// The journals in this folder, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created.
    pub(super) fn open(folder: &Path, received_max: u64) -> Result<Self> {
        let mut made = std::fs::DirBuilder::new();
        made.recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), received_max })
    }

    /// All journals with their owners, oldest first.
    fn list(&self) -> Result<Vec<Kept>> {
        let shown = || self.folder.display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder).with_context(shown)? {
            let entry = entry.with_context(shown)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = name.strip_suffix(SUFFIX) else { continue };
            let (session, owner) = name.split_once('-').unwrap_or((name, ""));
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let (session, owner) = (session.to_owned(), owner.to_owned());
            let modified = modified.with_context(shown)?;
            found.push(Kept { modified, session, owner, path: entry.path() });
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The journal of a session, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`Journal::open`], and if the folder cannot be listed.
    pub(super) fn find(&self, session: u128) -> Result<Option<Opened>> {
        let session = format!("{session:032x}");
        match self.list()?.into_iter().find(|kept| kept.session == session) {
            Some(kept) => Journal::open(&kept.path, self.received_max).map(Some),
            None => Ok(None),
        }
    }

    /// A journal for a new session of this owner. If there are too many, one is removed: the oldest of
    /// the owner that has most.
    ///
    /// # Errors
    ///
    /// As for [`Journal::open`]; if another process holds a journal of that name.
    pub(super) fn make(&self, session: u128, owner: &str) -> Result<Journal> {
        self.prune(owner)?;
        let path = self.folder.join(format!("{session:032x}-{owner}{SUFFIX}"));
        match Journal::open(&path, self.received_max)? {
            Opened::Ours(journal) => Ok(journal),
            Opened::Busy => bail!("session {session:032x} is served already"),
        }
    }

    /// Makes room for one more journal of `newcomer`.
    fn prune(&self, newcomer: &str) -> Result<()> {
        let mut kept = self.list()?;
        while kept.len() >= KEPT_MAX {
            let Kept { path, .. } = kept.remove(next_to_go(&kept, newcomer));
            // A file that is not a journal, or is in use, stays.
            if let Ok(Opened::Ours(oldest)) = Journal::open(&path, self.received_max) {
                oldest.remove();
            }
        }
        Ok(())
    }
}

/// A journal in the folder; the oldest sorts first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    modified: SystemTime,
    session: String,
    owner: String,
    path: PathBuf,
}

/// Index of the journal to remove before `newcomer` gets one more: the oldest of the owner that has most;
/// on a tie the newcomer's.
fn next_to_go(kept: &[Kept], newcomer: &str) -> usize {
    let mut counts = BTreeMap::from([(newcomer, 1)]);
    kept.iter().for_each(|kept| *counts.entry(&kept.owner[..]).or_insert(0) += 1);
    let share = |kept: &Kept| (counts[&kept.owner[..]], kept.owner == newcomer);
    let most = kept.iter().map(share).max();
    kept.iter().position(|kept| Some(share(kept)) == most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_reconcile_engine::Fingerprint;

    fn header(session: u128) -> JournalHeader {
        let fingerprint = Fingerprint { count: 1, sum: 2 };
        let (dataset_id, nonce, secret) = (3, 4, [5; 16]);
        JournalHeader { session, is_initiator: true, dataset_id, nonce, secret, fingerprint }
    }

    fn open(path: &Path) -> Journal {
        match Journal::open(path, 1_000).unwrap() {
            Opened::Ours(journal) => journal,
            Opened::Busy => panic!("nobody has it"),
        }
    }

    fn came(journal: &Journal) -> Vec<u8> {
        let mut replay = journal.replay().unwrap();
        std::iter::from_fn(|| replay.next().unwrap()).flatten().collect()
    }

    #[test]
    fn what_came_is_there_when_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let mut journal = open(&path);
        assert!(journal.state().is_none());
        journal.begin(header(7)).unwrap();
        assert_eq!(journal.writer().receive(b"abc".to_vec()).unwrap(), 3);
        journal.writer().note_sent(90).unwrap();
        journal.note_resumed(11).unwrap();
        assert_eq!(journal.writer().receive(b"def".to_vec()).unwrap(), 6);
        assert_eq!(came(&journal), b"abcdef");
        assert!(matches!(Journal::open(&path, 9).unwrap(), Opened::Busy));
        drop(journal);
        let mut journal = open(&path);
        let state = journal.state().unwrap();
        assert_eq!((state.header, state.received.mark().bytes), (header(7), 6));
        assert_eq!((state.sent, state.resumed_count, state.again), (90, 1, 11));
        let error = journal.writer().receive(vec![0; 995]).unwrap_err().to_string();
        assert!(error.contains("--max-bytes"), "{error}");
        journal.begin(header(8)).unwrap();
        assert_eq!(came(&journal), b"");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        journal.remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_torn_end_is_cut_off_and_other_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let mut journal = open(&path);
        journal.begin(header(7)).unwrap();
        journal.writer().receive(b"abc".to_vec()).unwrap();
        journal.writer().receive(b"def".to_vec()).unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let journal = open(&path);
        journal.writer().receive(b"ghi".to_vec()).unwrap();
        drop(journal);
        assert_eq!(came(&open(&path)), b"abcghi");
        // A journal with a damaged beginning has no state.
        std::fs::write(&path, &whole[..20]).unwrap();
        assert!(open(&path).state().is_none());
        std::fs::write(&path, "lines\n").unwrap();
        let error = Journal::open(&path, 9).err().unwrap().to_string();
        assert!(error.contains("not a journal"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"lines\n");
    }

    #[test]
    fn a_folder_keeps_the_newest_journals() {
        let folder = tempfile::tempdir().unwrap();
        let journals = Journals::open(&folder.path().join("deep/er"), 9).unwrap();
        let held = journals.make(0, "10.0.0.1").unwrap();
        for session in 1..=20 {
            journals.make(session, "10.0.0.1").unwrap().begin(header(session)).unwrap();
        }
        assert!(matches!(journals.find(0).unwrap(), Some(Opened::Busy)));
        assert!(journals.find(1).unwrap().is_none());
        assert!(matches!(journals.find(20).unwrap(), Some(Opened::Ours(_))));
        let count = std::fs::read_dir(folder.path().join("deep/er")).unwrap().count();
        assert!(count <= KEPT_MAX + 1, "{count}");
        drop(held);
    }

    #[test]
    fn many_sessions_of_one_do_not_push_out_those_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let journals = Journals::open(folder.path(), 9).unwrap();
        let is_kept = |session| journals.find(session).unwrap().is_some();
        for session in 1..=3 {
            journals.make(session, "10.0.0.1").unwrap().begin(header(session)).unwrap();
        }
        for session in 100..200 {
            journals.make(session, "10.0.0.2").unwrap().begin(header(session)).unwrap();
        }
        assert!((1..=3).all(is_kept), "another one's");
        assert!(!is_kept(100) && is_kept(199));
        // Other owners get room as long as some owner has more than they have.
        for session in 300..305 {
            journals.make(session, "10.0.0.3").unwrap().begin(header(session)).unwrap();
        }
        assert!((1..=3).chain(300..305).all(is_kept));
        // If every owner has one, the oldest goes.
        let folder = tempfile::tempdir().unwrap();
        let journals = Journals::open(folder.path(), 9).unwrap();
        for session in 0..17 {
            let owner = format!("10.0.1.{session}");
            journals.make(session, &owner).unwrap().begin(header(session)).unwrap();
        }
        assert!(journals.find(0).unwrap().is_none() && journals.find(16).unwrap().is_some());
    }
}
