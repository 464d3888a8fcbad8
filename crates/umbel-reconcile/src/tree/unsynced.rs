//! Received contents that are written, but not synced yet.
//!
//! The sync of a file waits for at least one commit of the file system's journal and for the disk. Syncs that run at the
//! same time share these waits, so small contents are gathered and then synced by several threads. `syncfs` would take
//! even fewer commits, but it waits for whatever other programs have written to the file system, Linux before 5.8 does
//! not report with it that a write failed, and FUSE does not pass it on.

use crate::error::{Context, Result};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// Files that are gathered. Each stays open, because a file that is opened again may not tell of a write that failed
/// before; some systems let a process open only 256.
const FILES_MAX: usize = 64;

/// Bytes that are gathered: a disk takes longer to write them than to commit a few times.
const BYTES_MAX: u64 = 8 << 20;

/// Threads that sync at the same time. More hardly make it faster.
const THREADS_MAX: usize = 8;

/// Written files that are to be synced together.
#[derive(Default)]
pub(super) struct Unsynced {
    files: Vec<(PathBuf, File)>,
    bytes: u64,
}

impl Unsynced {
    /// Takes a file to which so many bytes were written, and syncs all files once enough are gathered.
    ///
    /// # Errors
    ///
    /// As for [`sync`](Self::sync).
    pub(super) fn add(&mut self, path: PathBuf, file: File, bytes: u64) -> Result<()> {
        self.files.push((path, file));
        self.bytes = self.bytes.saturating_add(bytes);
        if self.files.len() < FILES_MAX && self.bytes < BYTES_MAX { Ok(()) } else { self.sync() }
    }

    /// Syncs all files that were added.
    ///
    /// # Errors
    ///
    /// If one cannot be synced; the error names it.
    pub(super) fn sync(&mut self) -> Result<()> {
        let files = std::mem::take(&mut self.files);
        self.bytes = 0;
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while let Some((path, file)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                file.sync_all().with_context(|| format!("{}: cannot write", path.display()))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            // Without further threads, this one does all the work.
            let spawn = |_| Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..THREADS_MAX.min(files.len())).map_while(spawn).collect();
            let synced = work();
            let others = others.into_iter().map(|other| other.join().expect("it does not panic"));
            synced.and(others.collect())
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use tempfile::TempDir;

    /// A pipe, which cannot be synced.
    pub(in crate::tree) fn unsyncable() -> File {
        let (_, writer) = std::io::pipe().unwrap();
        OwnedFd::from(writer).into()
    }

    #[test]
    fn files_are_gathered_up_to_a_number_and_to_a_length() {
        let folder = TempDir::new().unwrap();
        let mut unsynced = Unsynced::default();
        let mut most = 0;
        for number in 0..2 * FILES_MAX {
            let path = folder.path().join(number.to_string());
            let file = File::create(&path).unwrap();
            unsynced.add(path, file, 1).unwrap();
            most = most.max(unsynced.files.len());
        }
        assert_eq!((most, unsynced.files.len(), unsynced.bytes), (FILES_MAX - 1, 0, 0));
        for (bytes, left) in [(BYTES_MAX - 1, 1), (1, 0), (u64::MAX, 0)] {
            let path = folder.path().join("large");
            let file = File::create(&path).unwrap();
            unsynced.add(path, file, bytes).unwrap();
            assert_eq!(unsynced.files.len(), left);
        }
    }

    #[test]
    fn each_file_is_synced_and_one_that_cannot_be_is_named() {
        let folder = TempDir::new().unwrap();
        for bad in [0, THREADS_MAX, 2 * THREADS_MAX] {
            let mut unsynced = Unsynced::default();
            for number in 0..=2 * THREADS_MAX {
                let path = folder.path().join(number.to_string());
                let file = if number == bad { unsyncable() } else { File::create(&path).unwrap() };
                unsynced.add(path, file, 1).unwrap();
            }
            let message = unsynced.sync().unwrap_err().to_string();
            let path = folder.path().join(bad.to_string());
            assert_eq!(message, format!("{}: cannot write", path.display()));
        }
    }
}
