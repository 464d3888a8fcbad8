//! The folder of a worker's job, its lock, and its data files.

use crate::error::{Context, Result, bail, refuse};
use crate::segments::SegmentFile;
use crc_fast::{CrcAlgorithm, checksum};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use umbel_files::OWNER_ONLY;

/// Permissions of the folder, which contains hashes of records and a job's secret.
const FOLDER_MODE: u32 = 0o700;

/// The journal.
pub(super) const JOURNAL: &str = "journal";

/// The first bytes of each record of a journal.
pub(super) const JOURNAL_MAGIC: [u8; 2] = *b"UJ";

/// The end record, the only file that remains.
pub(super) const ENDED: &str = "ended";

/// The first bytes of an end record, whatever release has written it.
const ENDED_HEAD: &[u8] = b"{\"version\":";

/// The end record, until it is complete.
const ENDED_ASIDE: &str = "ended.new";

/// The file that the process which uses the folder holds locked.
const LOCK: &str = "lock";

/// The data files that `Bench::open` opens: runs of entries, dropped records, groups, kept items that filters contain.
const DATA_FILES: [&str; 4] = ["runs", "drops", "groups", "asked"];

/// A directory at the root of many file systems, which are empty all the same.
const LOST_AND_FOUND: &str = "lost+found";

/// A folder that no other process uses, because this one holds its lock.
#[derive(Debug)]
pub(super) struct JobFolder {
    path: PathBuf,
    /// Closing the file releases the lock.
    _lock: File,
}

impl JobFolder {
    /// Creates the folder if it does not exist, and locks it.
    ///
    /// # Errors
    ///
    /// A usage error if another process has locked it, or if it is of no job and holds something.
    pub(super) fn take(path: &Path) -> Result<Self> {
        check_own(path)?;
        let cannot = || format!("{}: cannot make the folder of the job", path.display());
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).with_context(cannot)?;
        let lock = path.join(LOCK);
        let file = open_file(&lock)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                refuse!(
                    "{}: another process works on this job; every worker needs a --job-dir of its own",
                    path.display()
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{}: cannot lock", lock.display()));
            }
        }
        sync_folder(path)?;
        sync_folder(umbel_files::folder_of(path))?;
        Ok(Self { path: path.to_owned(), _lock: file })
    }

    /// The path of a file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the job's files, and the folder if nothing else is in it. If the process is killed meanwhile, the next
    /// one finds a consistent folder: a journal that records the end (`speaks_of_end`) is removed last; any other
    /// journal is removed first, and then no step counts as done.
    pub(super) fn remove(&self, speaks_of_end: bool) -> Result<()> {
        let removed = || -> std::io::Result<()> {
            let records = [ENDED_ASIDE, ENDED];
            if speaks_of_end {
                self.remove_files(&DATA_FILES)?;
                umbel_files::sync_folder(&self.path)?;
                self.remove_files(&records)?;
                self.remove_files(&[JOURNAL])?;
            } else {
                self.remove_files(&[JOURNAL])?;
                umbel_files::sync_folder(&self.path)?;
                self.remove_files(&DATA_FILES)?;
                self.remove_files(&records)?;
            }
            self.remove_files(&[LOCK])?;
            match std::fs::remove_dir(&self.path) {
                // Files of others stay, and so do links and mount points.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::DirectoryNotEmpty
                            | ErrorKind::NotADirectory
                            | ErrorKind::ResourceBusy
                    ) =>
                {
                    Ok(())
                }
                outcome => outcome,
            }
        };
        removed().with_context(|| format!("{}: cannot remove", self.path.display()))
    }

    /// Writes the end record, durably, and then removes all other files of the job.
    pub(super) fn leave(&self, record: &[u8]) -> Result<()> {
        let left = || -> std::io::Result<()> {
            let aside = self.file(ENDED_ASIDE);
            let mut file = OpenOptions::new();
            let file = file.write(true).create(true).truncate(true).mode(OWNER_ONLY);
            let mut file = file.open(&aside)?;
            file.write_all(record)?;
            file.sync_all()?;
            std::fs::rename(aside, self.file(ENDED))?;
            umbel_files::sync_folder(&self.path)?;
            self.remove_files(&DATA_FILES)?;
            std::fs::remove_file(self.file(JOURNAL))?;
            std::fs::remove_file(self.file(LOCK))
        };
        left().with_context(|| format!("{}: cannot be left", self.path.display()))
    }

    /// Removes those of these files that are there. Nothing else is touched: only these names are known to be the job's.
    fn remove_files(&self, names: &[&str]) -> std::io::Result<()> {
        for name in names {
            if let Err(error) = std::fs::remove_file(self.file(name))
                && error.kind() != ErrorKind::NotFound
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Refuses a folder that holds something and is of no job: its files might have the names of the job's, and would be
/// overwritten and removed. A journal or an end record shows by its first bytes whose folder it is. A process that was killed
/// before its first record, or that had removed its journal, leaves neither, but the lock, which is empty, and nothing of
/// others.
fn check_own(path: &Path) -> Result<()> {
    if begins_with(&path.join(JOURNAL), &JOURNAL_MAGIC)?
        || begins_with(&path.join(ENDED), ENDED_HEAD)?
    {
        return Ok(());
    }
    let cannot = || format!("{}: cannot read the folder of the job", path.display());
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(cannot)?,
    };
    let is_empty_file = |metadata: Metadata| metadata.is_file() && metadata.len() == 0;
    let was_locked = std::fs::metadata(path.join(LOCK)).is_ok_and(is_empty_file);
    let of_jobs = [JOURNAL, LOCK, ENDED, ENDED_ASIDE];
    for entry in entries {
        let name = entry.with_context(cannot)?.file_name();
        let is_of_job = of_jobs.iter().chain(&DATA_FILES).any(|of_job| name == **of_job);
        if name != LOST_AND_FOUND && !(was_locked && is_of_job) {
            refuse!(
                "{}: holds {}, which is of no job; every worker needs a --job-dir of its own: name a new or an empty folder",
                path.display(),
                name.display()
            );
        }
    }
    Ok(())
}

/// Whether this is a file that begins with these bytes.
fn begins_with(path: &Path, head: &[u8]) -> Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    let mut found = Vec::new();
    File::open(path)
        .and_then(|file| file.take(head.len() as u64).read_to_end(&mut found))
        .with_context(|| format!("{}: cannot read", path.display()))?;
    Ok(found == head)
}

/// Makes the names of a folder's files durable.
pub(super) fn sync_folder(path: &Path) -> Result<()> {
    umbel_files::sync_folder(path).with_context(|| format!("{}: cannot sync", path.display()))
}

/// A range of bytes in a data file, with its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Blob {
    offset: u64,
    bytes: u64,
    crc32c: u32,
}

impl Blob {
    /// The offset after its last byte.
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// Opens a file of the folder to read and write; one that does not exist is created, for its owner only.
pub(super) fn open_file(path: &Path) -> Result<File> {
    let mut file = OpenOptions::new();
    let file = file.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY);
    file.open(path).with_context(|| format!("{}: cannot open", path.display()))
}

/// CRC-32C, the checksum of all files in the folder.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).expect("a CRC-32 has 32 bits")
}

/// A file of the folder, to which many threads append and which they read. Its name is durable once it is open, its bytes
/// after [`DataFile::sync`].
#[derive(Debug)]
pub(super) struct DataFile {
    path: PathBuf,
    file: File,
    length: AtomicU64,
}

impl DataFile {
    /// Opens the file, of which the journal declares `good_bytes` valid, and truncates it to that length.
    ///
    /// # Errors
    ///
    /// If the file is shorter.
    pub(super) fn open(folder: &JobFolder, name: &str, good_bytes: u64) -> Result<Self> {
        let path = folder.file(name);
        let cannot = || format!("{}: cannot open", path.display());
        let file = open_file(&path)?;
        let length = file.metadata().with_context(cannot)?.len();
        if length < good_bytes {
            bail!(
                "{}: {length} bytes, expected {good_bytes}: remove the folder and start the job again",
                path.display()
            );
        }
        file.set_len(good_bytes).with_context(cannot)?;
        sync_folder(folder.path())?;
        Ok(Self { path, file, length: AtomicU64::new(good_bytes) })
    }

    /// Overwrites bytes, as damage does.
    #[cfg(test)]
    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        Ok(self.file.write_all_at(bytes, offset)?)
    }

    /// Appends bytes with a checksum.
    pub(super) fn append_blob(&self, bytes: &[u8]) -> Result<Blob> {
        let offset = self.append(bytes)?;
        Ok(Blob { offset, bytes: bytes.len() as u64, crc32c: crc32c(bytes) })
    }

    /// Reads the bytes of a `Blob`.
    ///
    /// # Errors
    ///
    /// If they differ from what was written.
    pub(super) fn read_blob(&self, blob: Blob) -> Result<Vec<u8>> {
        let Blob { offset, bytes: length, .. } = blob;
        let held = self.bytes();
        if offset.checked_add(length).is_none_or(|end| end > held) {
            bail!("{}: {held} bytes, expected {length} more at {offset}", self.name());
        }
        let mut bytes = vec![0; usize::try_from(length).context("bytes to read")?];
        self.read(offset, &mut bytes)?;
        if crc32c(&bytes) != blob.crc32c {
            bail!("{}: damaged in the {length} bytes at byte {offset}", self.name());
        }
        Ok(bytes)
    }

    /// Makes what was appended durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data().with_context(|| format!("{}: cannot sync", self.path.display()))
    }

    /// Truncates the file to an offset.
    pub(super) fn cut(&self, length: u64) -> Result<()> {
        self.length.store(length, Ordering::Relaxed);
        self.file.set_len(length).with_context(|| format!("{}: cannot cut", self.path.display()))
    }

    /// Bytes appended.
    pub(super) fn bytes(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }
}

impl SegmentFile for DataFile {
    fn append(&self, bytes: &[u8]) -> Result<u64> {
        let offset = self.length.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, offset).with_context(|| {
            let (path, length) = (self.path.display(), bytes.len());
            format!(
                "{path}: cannot write {length} bytes at {offset}; --job-dir names another folder"
            )
        })?;
        Ok(offset)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len();
        self.file.read_exact_at(buffer, offset).with_context(|| {
            format!("{}: cannot read {length} bytes at {offset}", self.path.display())
        })
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_one_process_s_and_data_behind_the_good_is_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job");
        let folder = JobFolder::take(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("lock"))), (0o700, 0o600));
        let error = JobFolder::take(&path).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("another process"));
        let data = DataFile::open(&folder, "runs", 0).unwrap();
        assert_eq!(mode(&path.join("runs")), 0o600);
        assert_eq!((data.append(b"good").unwrap(), data.append(b"lost").unwrap()), (0, 4));
        drop(data);
        let data = DataFile::open(&folder, "runs", 4).unwrap();
        assert_eq!(data.append(b"new").unwrap(), 4);
        assert!(DataFile::open(&folder, "runs", 9).unwrap_err().to_string().contains("expected 9"));
        std::fs::write(folder.file(JOURNAL), "").unwrap();
        folder.leave(ENDED_HEAD).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(&path).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!((left, mode(&path.join("ended"))), (vec!["ended".into()], 0o600));
        JobFolder::take(&path).unwrap().remove(false).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_the_job_s_is_neither_taken_nor_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for name in ["groups", "thesis"] {
            std::fs::write(path.join(name), "mine").unwrap();
            let error = JobFolder::take(path).unwrap_err();
            let said = format!("holds {name}, which is of no job");
            assert!(error.is_usage() && error.to_string().contains(&said), "{error}");
            assert_eq!(std::fs::read_dir(path).unwrap().count(), 1);
            std::fs::remove_file(path.join(name)).unwrap();
        }
        // Someone's diary, say.
        std::fs::create_dir(path.join(JOURNAL)).unwrap();
        let error = JobFolder::take(path).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("holds journal, "), "{error}");
        std::fs::remove_dir(path.join(JOURNAL)).unwrap();
        // Files that happen to have the names of a job's.
        for (name, text) in
            [(JOURNAL, "UMBRIA, 3 May"), (LOCK, "4711"), (ENDED, "x"), ("runs", "in")]
        {
            let files = [(name, text), ("groups", "A and B")];
            files.iter().for_each(|(name, text)| std::fs::write(path.join(name), text).unwrap());
            let error = JobFolder::take(path).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("is of no job"), "{error}");
            for (name, text) in files {
                assert_eq!(std::fs::read_to_string(path.join(name)).unwrap(), text);
                std::fs::remove_file(path.join(name)).unwrap();
            }
        }
        [LOCK, "thesis"].iter().for_each(|name| std::fs::write(path.join(name), "").unwrap());
        let error = JobFolder::take(path).unwrap_err().to_string();
        assert!(error.contains("holds thesis, "), "{error}");
        [LOCK, "thesis"].iter().for_each(|name| std::fs::remove_file(path.join(name)).unwrap());
        std::fs::create_dir(path.join(LOST_AND_FOUND)).unwrap();
        for has_ended in [false, true] {
            let folder = JobFolder::take(path).unwrap();
            std::fs::create_dir_all(path.join("other")).unwrap();
            std::fs::write(path.join("other/thesis"), "mine").unwrap();
            std::fs::write(path.join("notes"), "mine").unwrap();
            for name in [JOURNAL, LOCK, ENDED].iter().chain(&DATA_FILES) {
                std::fs::write(path.join(name), "").unwrap();
            }
            folder.remove(has_ended).unwrap();
            let mut left: Vec<_> =
                std::fs::read_dir(path).unwrap().map(|it| it.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, [LOST_AND_FOUND, "notes", "other"]);
            std::fs::remove_file(path.join("notes")).unwrap();
            std::fs::remove_dir_all(path.join("other")).unwrap();
        }
        let folder = JobFolder::take(path).unwrap();
        std::fs::write(path.join("notes"), "mine").unwrap();
        std::fs::write(path.join(JOURNAL), "").unwrap();
        folder.leave(b"note").unwrap();
        assert!(path.join("notes").exists() && path.join(ENDED).exists());
    }
}
