//! Directories with unfinished content: removed when they are dropped, and on an interrupt before the process ends.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Passes over a directory that is removed. It has another name by then, so that only a file whose creation began
/// before that can still appear: a second pass is rare, and a directory that is left after all of them cannot be removed.
const REMOVALS_TRIED: u32 = 100;

/// Suffix of the name of a directory that is being removed.
const REMOVED_SUFFIX: &str = ".removed";

/// Letters and digits that are drawn for the name of a directory: more than 10^10 names.
const DRAWN_CHARS: usize = 6;

/// Paths of directories with unfinished content.
pub(crate) type PartialDirectories = BTreeSet<PathBuf>;

static PARTIAL_DIRECTORIES: Mutex<PartialDirectories> = Mutex::new(BTreeSet::new());

fn lock() -> MutexGuard<'static, PartialDirectories> {
    PARTIAL_DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all of them, and returns their registry, which is locked.
pub(crate) fn remove_all() -> MutexGuard<'static, PartialDirectories> {
    let mut directories = lock();
    while let Some(path) = directories.pop_first() {
        remove(&path);
    }
    directories
}

/// Removes a directory in which another thread may still create files.
fn remove(path: &Path) {
    let renamed = PartialDirectory::path_while_removed(path);
    // Whoever creates a file by the old name fails from now on, and removal ends.
    let path = if std::fs::rename(path, &renamed).is_ok() { renamed.as_path() } else { path };
    let is_gone =
        || std::fs::remove_dir_all(path).is_ok() || std::fs::symlink_metadata(path).is_err();
    let _ = (0..REMOVALS_TRIED).any(|_| is_gone());
}

/// A directory with unfinished content: removed on interrupt and on drop.
#[derive(Debug)]
pub struct PartialDirectory {
    path: PathBuf,
}

impl PartialDirectory {
    /// Creates a directory with a new name in `parent`, that only its owner may access.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn new_in(parent: &Path, prefix: &str) -> io::Result<Self> {
        // None is made behind an interrupt that has removed what there was.
        let mut directories = lock();
        let mut builder = tempfile::Builder::new();
        let path = builder.prefix(prefix).rand_bytes(DRAWN_CHARS).tempdir_in(parent)?.keep();
        directories.insert(path.clone());
        Ok(Self { path })
    }

    /// Whether a directory with this prefix may have this name, also while it is removed.
    #[must_use]
    pub fn gives_name(prefix: &str, name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        let name = name.strip_suffix(REMOVED_SUFFIX.as_bytes()).unwrap_or(name);
        let drawn = name.strip_prefix(prefix.as_bytes());
        drawn.is_some_and(|drawn| {
            drawn.len() == DRAWN_CHARS && drawn.iter().all(u8::is_ascii_alphanumeric)
        })
    }

    /// The path of the directory while it is removed: one that has it already keeps it.
    #[must_use]
    pub fn path_while_removed(path: &Path) -> PathBuf {
        let mut renamed = path.as_os_str().to_owned();
        if !renamed.as_encoded_bytes().ends_with(REMOVED_SUFFIX.as_bytes()) {
            renamed.push(REMOVED_SUFFIX);
        }
        renamed.into()
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PartialDirectory {
    fn drop(&mut self) {
        // Locked until it is gone: an interrupt that comes meanwhile waits for that, and the exit follows one that
        // came before.
        let mut directories = lock();
        if directories.remove(&self.path) {
            remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::mpsc::channel;

    /// Regression: the removal failed with "Directory not empty", and left what it had not seen.
    #[test]
    fn removal_wins_against_a_thread_that_still_creates_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("partial");
        std::fs::create_dir(&path).unwrap();
        let (begun, has_begun) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0u64.. {
                    let created = File::create(path.join(number.to_string()));
                    if created.is_err() {
                        return;
                    }
                    let _ = begun.send(());
                }
            });
            has_begun.recv().unwrap();
            remove(&path);
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        });
    }

    #[test]
    fn names_are_known_also_of_those_that_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let made = PartialDirectory::new_in(folder.path(), ".made-").unwrap();
        let removed = PartialDirectory::path_while_removed(made.path());
        assert_eq!(PartialDirectory::path_while_removed(&removed), removed);
        for path in [made.path(), &removed] {
            assert!(PartialDirectory::gives_name(".made-", path.file_name().unwrap()));
        }
        for name in [".made-", ".made-short", ".made-longer0", ".made-dot.00", "made-abcdef"] {
            assert!(!PartialDirectory::gives_name(".made-", OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_directory_goes_when_it_is_dropped_and_one_that_is_gone_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let made = [(); 2].map(|()| PartialDirectory::new_in(folder.path(), ".made-").unwrap());
        assert!(made.iter().all(|made| made.path().is_dir()));
        std::fs::create_dir_all(made[0].path().join("a/b")).unwrap();
        std::fs::remove_dir(made[1].path()).unwrap();
        drop(made);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }
}
