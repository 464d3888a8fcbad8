//! Ctrl-C leaves no half output: files that are still being written are removed before the process ends, and uploads
//! aborted.

use crate::objects::abort_open_uploads;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Exit code of a process that was interrupted, as shells have it: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

static PARTIAL_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// From now on SIGINT, SIGTERM and SIGHUP remove all partial files, abort all uploads and end the process.
pub(crate) fn remove_partial_files_on_interrupt() {
    // Without a handler an interrupt still ends the process; only the partial files would stay.
    let _ = ctrlc::set_handler(|| {
        let mut partial = lock();
        while let Some(path) = partial.pop_first() {
            let _ = std::fs::remove_file(path);
        }
        abort_open_uploads(true);
        // The lock is held until the end, so that no file is renamed into place any more.
        std::process::exit(INTERRUPTED);
    });
}

fn lock() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTIAL_FILES.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A file that is not finished: removed on interrupt and on drop, unless it was renamed into place.
#[derive(Debug)]
pub(crate) struct PartialFile {
    path: PathBuf,
}

impl PartialFile {
    /// Puts the file under guard, before it is created.
    pub(crate) fn guard(path: PathBuf) -> Self {
        lock().insert(path.clone());
        Self { path }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the file from under guard: it stays, however the process ends.
    pub(crate) fn keep(self) -> PathBuf {
        lock().remove(&self.path);
        self.path.clone()
    }

    /// Renames it into place.
    ///
    /// # Errors
    ///
    /// As `rename`; the file is removed then.
    pub(crate) fn rename(self, to: &Path) -> std::io::Result<()> {
        let mut partial = lock();
        std::fs::rename(&self.path, to)?;
        partial.remove(&self.path);
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if lock().remove(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
