//! What is being written and not finished: removed when it is dropped, and before the process ends on an interrupt.

use crate::aside::{lock_of_dead, name_aside, own_writer};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Permissions of a file that nobody but its owner shall see.
pub const OWNER_ONLY: u32 = 0o600;

/// Permissions of a file that the process's mask alone bounds.
pub const ANY_NEW_FILE: u32 = 0o666;

/// Names aside that are tried before it is given up: as many files of one name are written at a time at most.
const NAMES_TRIED: u32 = 1000;

static PARTIAL_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

static PARTIAL_DIRECTORIES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes all files and directories that are being written, and ends the process: what another thread would rename into
/// place meanwhile waits for the end.
///
/// `last` runs before the end and says the exit code.
pub fn remove_partial_and_exit(last: impl FnOnce() -> i32) -> ! {
    let mut partial = lock();
    while let Some(path) = partial.pop_first() {
        let _ = std::fs::remove_file(path);
    }
    while let Some(path) = lock_directories().pop_first() {
        let _ = std::fs::remove_dir_all(path);
    }
    while let Some(path) = lock_begun().pop_first() {
        remove_if_empty(&path);
    }
    let code = last();
    // The lock is held until the end, so that no file is renamed into place any more.
    std::process::exit(code)
}

fn lock() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTIAL_FILES.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn lock_directories() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTIAL_DIRECTORIES.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A directory that holds what is not finished: removed on interrupt and on drop.
#[derive(Debug)]
pub struct PartialDirectory {
    directory: tempfile::TempDir,
}

impl PartialDirectory {
    /// Makes one of a new name in a directory.
    ///
    /// # Errors
    ///
    /// As the system.
    pub fn new_in(parent: &Path, prefix: &str) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        lock_directories().insert(directory.path().to_owned());
        Ok(Self { directory })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for PartialDirectory {
    fn drop(&mut self) {
        lock_directories().remove(self.directory.path());
    }
}

static BEGUN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn lock_begun() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    BEGUN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Removes a file or directory without content; whatever else stands there stays.
fn remove_if_empty(path: &Path) {
    let is_empty_file = std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    let _ = if is_empty_file { std::fs::remove_file(path) } else { std::fs::remove_dir(path) };
}

/// A set that was begun with nothing in it, because none stood there: on interrupt and on drop it goes again, unless
/// something was put into it.
#[derive(Debug)]
pub struct BegunEmpty {
    path: PathBuf,
}

impl BegunEmpty {
    /// Begins one, as a directory or as a file.
    ///
    /// # Errors
    ///
    /// As the system, also if something stands there.
    pub fn new(path: &Path, is_directory: bool) -> io::Result<Self> {
        match is_directory {
            true => std::fs::create_dir(path)?,
            false => drop(File::create_new(path)?),
        }
        // Not before: what somebody else has put there is not ours to remove.
        lock_begun().insert(path.to_owned());
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for BegunEmpty {
    fn drop(&mut self) {
        lock_begun().remove(&self.path);
        remove_if_empty(&self.path);
    }
}

/// A file that is not finished: removed on interrupt and on drop, unless it was renamed into place.
#[derive(Debug)]
pub struct PartialFile {
    path: PathBuf,
    /// As long as it is open, others see by its lock that this process lives.
    held: Option<File>,
    /// The file whose lock says so instead, which goes with the last that it stands for.
    anchor: Option<Arc<Self>>,
}

impl PartialFile {
    /// Creates a file beside its name to be, with these permissions as far as the process's mask allows.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn beside(target: &Path, mode: u32) -> io::Result<(Self, File)> {
        Self::create_new(
            &|writer| target.with_file_name(name_aside(target.file_name(), writer)),
            mode,
            None,
        )
    }

    /// The same in an output directory, whose files are too many to hold each of them open.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn of_directory(anchor: &Arc<Self>, target: &Path, mode: u32) -> io::Result<(Self, File)> {
        let path = |writer: &str| target.with_file_name(name_aside(target.file_name(), writer));
        Self::create_new(&path, mode, Some(anchor))
    }

    /// What stands for all files of an output directory.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn anchor(directory: &Path) -> io::Result<Arc<Self>> {
        let path = directory.join(name_aside(None, &own_writer(true, 0)));
        // What stands there is of a dead process that had the number of this one, or of a live one elsewhere.
        if lock_of_dead(&path).is_some() {
            std::fs::remove_file(&path)?;
        }
        let guard = Self::guard(path);
        let file =
            OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(&guard.path)?;
        Ok(Arc::new(guard.hold(&file)?))
    }

    /// Creates a file with this name, in place of what an earlier process has left there. Nobody sees by a lock whether
    /// its writer lives.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn again(path: PathBuf, mode: u32) -> io::Result<(Self, File)> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let guard = Self::guard(path);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&guard.path)?;
        Ok((guard, file))
    }

    fn create_new(
        path: &dyn Fn(&str) -> PathBuf,
        mode: u32,
        anchor: Option<&Arc<Self>>,
    ) -> io::Result<(Self, File)> {
        for number in 0..NAMES_TRIED {
            let path = path(&own_writer(anchor.is_some(), number));
            let mut options = OpenOptions::new();
            let options = options.write(true).create_new(true).mode(mode);
            // Under guard before it is created, unless somebody else's stands there.
            let is_taken = path.symlink_metadata().is_ok();
            if is_taken && anchor.is_none() && lock_of_dead(&path).is_some() {
                std::fs::remove_file(&path)?;
            } else if is_taken {
                continue;
            }
            let guard = Self::guard(path);
            match options.open(&guard.path) {
                Ok(file) => {
                    let mut guard = if anchor.is_some() { guard } else { guard.hold(&file)? };
                    guard.anchor = anchor.cloned();
                    return Ok((guard, file));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => drop(guard.keep()),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Puts the file under guard, before it is created.
    fn guard(path: PathBuf) -> Self {
        lock().insert(path.clone());
        Self { path, held: None, anchor: None }
    }

    /// Locks the file until it has its name or is gone. Where files cannot be locked nobody can be certain, either.
    fn hold(mut self, file: &File) -> io::Result<Self> {
        let _ = file.try_lock();
        self.held = Some(file.try_clone()?);
        Ok(self)
    }

    /// Takes the file from under guard: it stays, however the process ends.
    pub fn keep(self) -> PathBuf {
        lock().remove(&self.path);
        self.path.clone()
    }

    /// Renames it into place.
    ///
    /// # Errors
    ///
    /// As `rename`; the file is removed then.
    pub fn rename(self, to: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_goes_if_nothing_came_and_what_others_made_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("theirs"), "").unwrap();
        std::fs::create_dir(at("their folder")).unwrap();
        assert!(BegunEmpty::new(&at("theirs"), false).is_err());
        assert!(BegunEmpty::new(&at("their folder"), true).is_err());
        assert!(at("theirs").exists() && at("their folder").exists());
        let begun = ["empty", "full"].map(|name| BegunEmpty::new(&at(name), false).unwrap());
        let folders = BegunEmpty::new(&at("folder"), true).unwrap();
        std::fs::write(at("full"), "1").unwrap();
        drop((begun, folders));
        assert_eq!(
            [at("empty"), at("folder"), at("full")].map(|path| path.exists()),
            [false, false, true]
        );
    }
}
