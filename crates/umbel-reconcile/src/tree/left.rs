//! Removes the staging directories that killed processes have left.
//!
//! A directory of the user may have such a name, too. So one is taken for left only if it holds nothing but what a session
//! puts there, and only that is removed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use umbel_files::{PartialDirectory, STAGING_PREFIX, is_at};

/// The file in a staging directory that is locked while its process lives.
pub(super) const LOCK_NAME: &str = "lock";

/// The link in a staging directory that is renamed into place next; earlier builds gave this name to files, too.
pub(super) const NEXT_NAME: &str = "next";

/// Stands between the name of a content and the number of a copy of it.
pub(super) const COPY_MARK: char = '-';

/// Digits of a content's name, which is its hash in hexadecimal.
const HASH_DIGITS: usize = 64;

/// Removes the staging directories of processes that are gone: those whose lock is free.
///
/// # Errors
///
/// If one cannot be removed. That another process removes it, too, is no error.
pub(super) fn remove_left(root: &Path) -> io::Result<()> {
    for child in std::fs::read_dir(root)? {
        let child = child?;
        // What a link leads to is no staging directory.
        let is_directory = child.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory
            && PartialDirectory::gives_name(STAGING_PREFIX, &child.file_name())
            && let Some(left) = Left::take(&child.path())?
        {
            left.remove()?;
        }
    }
    Ok(())
}

/// A staging directory whose process is gone. This process holds its lock, and it has a name by which no owner finds it.
struct Left {
    path: PathBuf,
    _lock: File,
}

impl Left {
    /// Takes the directory of this path; `None` if it is in use, another process removes it, or it is none of a session.
    ///
    /// One without a lock was just created, or its process was killed before it had one or while it removed the directory.
    /// As its owner would, this process creates the lock. An owner that comes then waits for it, or finds no directory
    /// once this one has its new name, and makes another one.
    fn take(path: &Path) -> io::Result<Option<Self>> {
        let lock_path = path.join(LOCK_NAME);
        let lock = match File::open(&lock_path) {
            Err(error) if error.kind() == ErrorKind::NotFound && holds_staged_alone(path) => {
                File::create_new(&lock_path)
            }
            opened => opened,
        };
        let Ok(lock) = lock else { return Ok(None) };
        // The lock is held while the directory is removed, so that others pass over it that long.
        if lock.try_lock().is_err() || !is_at(&lock, &lock_path)? || !holds_staged_alone(path) {
            return Ok(None);
        }
        let renamed = PartialDirectory::path_while_removed(path);
        match std::fs::rename(path, &renamed) {
            Ok(()) => Ok(Some(Self { path: renamed, _lock: lock })),
            Err(error) if is_anothers(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the directory. The lock goes last: others that find none would begin to remove what is there.
    fn remove(&self) -> io::Result<()> {
        let children = match std::fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            children => children?,
        };
        for child in children {
            let name = child?.file_name();
            if name != LOCK_NAME && is_staged(&name) {
                unless_anothers(std::fs::remove_file(self.path.join(name)))?;
            }
        }
        unless_anothers(std::fs::remove_file(self.path.join(LOCK_NAME)))?;
        // What has come meanwhile is the lock of another process, which removes the directory then, or the user's.
        unless_anothers(std::fs::remove_dir(&self.path))
    }
}

/// Whether another process has removed the directory or what is in it, or has put something there.
fn is_anothers(error: &io::Error) -> bool {
    use ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotFound};
    matches!(error.kind(), NotFound | DirectoryNotEmpty | AlreadyExists)
}

fn unless_anothers(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if is_anothers(&error) => Ok(()),
        removed => removed,
    }
}

/// Whether there is nothing in a directory but what a session puts there; not if that is not certain.
fn holds_staged_alone(directory: &Path) -> bool {
    let is_ours = |child: io::Result<std::fs::DirEntry>| {
        child.is_ok_and(|child| {
            is_staged(&child.file_name()) && child.file_type().is_ok_and(|kind| !kind.is_dir())
        })
    };
    std::fs::read_dir(directory).is_ok_and(|mut children| children.all(is_ours))
}

/// Whether a session gives such a name to what it puts into its directory.
fn is_staged(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (hash, copy) = name.split_once(COPY_MARK).unwrap_or((name, "0"));
    let is_hash = || hash.len() == HASH_DIGITS && hash.bytes().all(is_digit);
    name == LOCK_NAME || name == NEXT_NAME || is_hash() && is_number(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// A directory of this name that holds an empty file of each of these names.
    fn directory(root: &TempDir, name: &str, files: &[&str]) -> PathBuf {
        let path = root.path().join(format!("{STAGING_PREFIX}{name}"));
        std::fs::create_dir(&path).unwrap();
        files.iter().for_each(|file| std::fs::write(path.join(file), "").unwrap());
        path
    }

    /// The name of a content.
    fn content() -> String {
        "0a".repeat(HASH_DIGITS / 2)
    }

    /// Regression: a process that was interrupted had removed the lock, and what it had not removed stayed for ever.
    #[test]
    fn what_is_left_goes_with_or_without_a_lock() {
        let root = TempDir::new().unwrap();
        directory(&root, "Left00", &[]);
        directory(&root, "Left01", &[&content()]);
        directory(&root, "Left02", &[&content(), LOCK_NAME, NEXT_NAME]);
        directory(&root, "Left03.removed", &[&content()]);
        directory(&root, "Left05", &[&content(), &format!("{}{COPY_MARK}12", content())]);
        let linked = directory(&root, "Left04", &[]);
        symlink("nowhere", linked.join(NEXT_NAME)).unwrap();
        remove_left(root.path()).unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    }

    /// Regression: whatever began as the names of these directories do was removed.
    #[test]
    fn what_the_user_has_put_under_such_a_name_stays() {
        let root = TempDir::new().unwrap();
        let (content, upper) = (content(), content().to_uppercase());
        let of_content = ["-", "-x", "-1-1"].map(|behind| format!("{content}{behind}"));
        let kept = [
            directory(&root, "copied", &[&of_content[0]]),
            directory(&root, "second", &[&of_content[1]]),
            directory(&root, "copyof", &[&of_content[2]]),
            directory(&root, "backup", &["x"]),
            directory(&root, "backed", &["x", LOCK_NAME]),
            directory(&root, "short", &[&content]),
            directory(&root, "longer-name", &[&content, LOCK_NAME]),
            directory(&root, "upper0", &[&upper]),
            directory(&root, "gone00.removed.old", &[&content]),
            directory(&root, "gone01.removed", &[&content, "x"]),
        ];
        let nested = directory(&root, "nested", &[]);
        std::fs::create_dir(nested.join(NEXT_NAME)).unwrap();
        let elsewhere = root.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        let link = root.path().join(format!("{STAGING_PREFIX}link00"));
        symlink(&elsewhere, &link).unwrap();
        let counts = || kept.clone().map(|path| std::fs::read_dir(path).unwrap().count());
        let before = counts();
        remove_left(root.path()).unwrap();
        assert_eq!(counts(), before);
        assert!(nested.join(NEXT_NAME).is_dir() && link.is_symlink());
        assert_eq!(std::fs::read_dir(elsewhere).unwrap().count(), 0);
    }

    /// Regression: the owner made another lock in it, went on, and whoever removed it failed with "Directory not empty".
    #[test]
    fn the_owner_of_a_directory_that_another_removes_does_not_find_it() {
        let root = TempDir::new().unwrap();
        let path = directory(&root, "Made00", &[]);
        let left = Left::take(&path).unwrap().unwrap();
        let created = File::create(path.join(LOCK_NAME));
        assert_eq!(created.unwrap_err().kind(), ErrorKind::NotFound);
        left.remove().unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    }

    #[test]
    fn what_another_process_removes_is_passed_over() {
        let root = TempDir::new().unwrap();
        let path = directory(&root, "Left00", &[&content()]);
        let left = Left::take(&path).unwrap().unwrap();
        assert!(left.path.join(LOCK_NAME).exists());
        remove_left(root.path()).unwrap();
        assert!(left.path.join(content()).exists() && left.path.join(LOCK_NAME).exists());
        // Once its process is gone, the next one goes on.
        drop(left);
        remove_left(root.path()).unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    }

    #[test]
    fn what_comes_into_a_directory_while_it_is_removed_stays_and_is_no_error() {
        let root = TempDir::new().unwrap();
        let left = Left::take(&directory(&root, "Left00", &[&content()])).unwrap().unwrap();
        std::fs::write(left.path.join("x"), "of the user").unwrap();
        left.remove().unwrap();
        assert_eq!(std::fs::read_dir(&left.path).unwrap().count(), 1);
        std::fs::remove_file(left.path.join("x")).unwrap();
        // Another process has come before.
        left.remove().unwrap();
        left.remove().unwrap();
        assert!(!left.path.exists());
    }
}
