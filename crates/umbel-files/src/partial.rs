//! Unfinished files, and sets and folders that are begun empty: removed when they are dropped, and on an interrupt
//! before the process ends.

use crate::aside::{is_at, name_aside, own_writer, writer_of_anchor, writer_under};
use crate::device::check_replaceable;
use crate::partial_directory::{self, PartialDirectories};
use crate::sync::{folder_of, sync_folder};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Permissions of a file that only its owner may access.
pub const OWNER_ONLY: u32 = 0o600;

/// Permissions of a file that only the process's umask limits.
pub const ANY_NEW_FILE: u32 = 0o666;

/// Temporary names that are tried before an error. They are random, so one that is taken is rare, and so is one
/// that another job takes for a leftover before it is locked.
const NAMES_TRIED: u32 = 100;

/// Paths of unfinished files.
pub(crate) type PartialPaths = BTreeSet<PathBuf>;

static PARTIAL_FILES: Mutex<PartialPaths> = Mutex::new(BTreeSet::new());

/// Removes all unfinished files, whose registry is locked, and directories, and returns the registry of the latter: as
/// long as it is locked, none is created or dropped.
pub(crate) fn remove_all(
    partial: &mut PartialPaths,
) -> std::sync::MutexGuard<'static, PartialDirectories> {
    while let Some(path) = partial.pop_first() {
        let _ = std::fs::remove_file(path);
    }
    let directories = partial_directory::remove_all();
    remove_empty_folders();
    directories
}

/// Locks the registry of unfinished files.
pub(crate) fn lock() -> std::sync::MutexGuard<'static, PartialPaths> {
    PARTIAL_FILES.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

static BEGUN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn lock_begun() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    BEGUN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Removes an empty file or directory; anything else there stays.
fn remove_if_empty(path: &Path) {
    let is_empty_file = std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    let _ = if is_empty_file { std::fs::remove_file(path) } else { std::fs::remove_dir(path) };
}

/// Creates a folder and those that it needs. What this process creates is removed on interrupt, and by
/// [`remove_empty_folders`], if it is empty then.
///
/// # Errors
///
/// Any I/O error.
pub fn make_folders(folder: &Path) -> io::Result<()> {
    let above = folder.ancestors().take_while(|above| !above.as_os_str().is_empty());
    // Nothing is made behind an interrupt that has removed what there was.
    let _until_exit = lock();
    let missing: Vec<&Path> = above.take_while(|above| !above.exists()).collect();
    for missing in missing.into_iter().rev() {
        // Only after creation, as below; another process may have been faster.
        if std::fs::create_dir(missing).is_ok() {
            lock_begun().insert(missing.to_owned());
        }
    }
    // Finds nothing left to do, or says why it cannot.
    std::fs::create_dir_all(folder)
}

/// Removes the folders from [`make_folders`] that are empty, and sets in which nothing has been put: at the end of a
/// process whose job has failed.
pub fn remove_empty_folders() {
    // From the last one: a folder comes before what is in it.
    while let Some(path) = lock_begun().pop_last() {
        remove_if_empty(&path);
    }
}

/// A set that was created empty because none existed: removed on interrupt and on drop if it is still
/// empty.
#[derive(Debug)]
pub struct BegunEmpty {
    path: PathBuf,
}

impl BegunEmpty {
    /// Creates an empty set, as a directory or as a file.
    ///
    /// # Errors
    ///
    /// Any I/O error; also if the path exists.
    pub fn new(path: &Path, is_directory: bool) -> io::Result<Self> {
        if is_directory {
            std::fs::create_dir(path)?;
        } else {
            drop(File::create_new(path)?);
        }
        // Only after creation: if the path existed, it is not this process's to remove.
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

/// Writes a file with the permissions `mode`, and replaces whatever has its name: all of it, or nothing.
///
/// # Errors
///
/// Any I/O error; also if the name is that of a device or pipe.
pub fn write_whole(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let (aside, mut file) = PartialFile::beside(path, mode)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    aside.rename(path)
}

/// An unfinished file: removed on interrupt and on drop, unless it was renamed into place.
#[derive(Debug)]
pub struct PartialFile {
    path: PathBuf,
    /// Holds the lock that shows other processes that this one still runs.
    held: Option<File>,
    /// The anchor whose lock stands for this file's; it is removed with the last file that refers to it.
    anchor: Option<Arc<Self>>,
}

impl PartialFile {
    /// Creates a temporary file beside `target`, with the permissions `mode`, limited by the umask.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn beside(target: &Path, mode: u32) -> io::Result<(Self, File)> {
        let path = |drawn: &str| -> io::Result<PathBuf> {
            Ok(target.with_file_name(name_aside(target.file_name(), drawn)))
        };
        Self::create_new(&path, mode, None)
    }

    /// The same in an output directory, which may have more files than a process can hold open; the anchor
    /// is locked instead.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn of_directory(anchor: &Arc<Self>, target: &Path, mode: u32) -> io::Result<(Self, File)> {
        let path = |drawn: &str| -> io::Result<PathBuf> {
            let writer = writer_under(&anchor.path, drawn)?;
            Ok(target.with_file_name(name_aside(target.file_name(), &writer)))
        };
        Self::create_new(&path, mode, Some(anchor))
    }

    /// Creates and locks an anchor in an output directory.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn anchor(directory: &Path) -> io::Result<Arc<Self>> {
        let path = |drawn: &str| -> io::Result<PathBuf> {
            Ok(directory.join(name_aside(None, &writer_of_anchor(drawn))))
        };
        let (anchor, _) = Self::create_new(&path, OWNER_ONLY, None)?;
        Ok(Arc::new(anchor))
    }

    /// Creates a file with this name, replacing what an earlier process left there. The file has no lock
    /// that would show whether its writer still runs.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn again(path: PathBuf, mode: u32) -> io::Result<(Self, File)> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let guard = Self::guard(path);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&guard.path)?;
        Ok((guard, file))
    }

    /// The same in an open folder, wherever the folder's path leads by now. An unfinished file is still
    /// removed by its path, whose name only temporary files have.
    ///
    /// # Errors
    ///
    /// Any I/O error; also if the path has no file name.
    pub fn again_in(folder: impl AsFd, path: PathBuf, mode: u32) -> io::Result<(Self, File)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        match unlinkat(&folder, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let guard = Self::guard(path);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, &name, flags, Mode::from_raw_mode(mode))?;
        Ok((guard, File::from(file)))
    }

    /// Creates a file whose path is made from what is drawn, and locks it, unless the anchor is locked for it.
    fn create_new(
        path: &dyn Fn(&str) -> io::Result<PathBuf>,
        mode: u32,
        anchor: Option<&Arc<Self>>,
    ) -> io::Result<(Self, File)> {
        for _ in 0..NAMES_TRIED {
            let path = path(&own_writer()?)?;
            let mut options = OpenOptions::new();
            // Exclusive: if the name exists, even as a link, this fails and leaves it there.
            let options = options.write(true).create_new(true).mode(mode);
            // Registered before it is created, unless the name exists: then it is another process's file.
            if path.symlink_metadata().is_ok() {
                continue;
            }
            let mut guard = Self::guard(path);
            match options.open(&guard.path) {
                Ok(file) => {
                    guard.anchor = anchor.cloned();
                    if anchor.is_some() || guard.hold(&file)? {
                        return Ok((guard, file));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => drop(guard.keep()),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Registers the file for removal, before it is created.
    fn guard(path: PathBuf) -> Self {
        lock().insert(path.clone());
        Self { path, held: None, anchor: None }
    }

    /// Locks the file until it is renamed or removed. Until then it looks to a job that removes leftovers like one
    /// whose writer has ended: `false` if such a job has locked or removed it before. Where files cannot be locked, no
    /// process takes it for abandoned either.
    fn hold(&mut self, file: &File) -> io::Result<bool> {
        match file.try_lock() {
            Ok(()) if !is_at(file, &self.path)? => return Ok(false),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        self.held = Some(file.try_clone()?);
        Ok(true)
    }

    /// Its temporary name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Unregisters the file: it stays, however the process ends.
    pub fn keep(self) -> PathBuf {
        lock().remove(&self.path);
        self.path.clone()
    }

    /// Renames the file into place, durably: the new name survives a power failure.
    ///
    /// # Errors
    ///
    /// As for `rename`, or the name is that of a device or pipe; then the file is removed. If the folder cannot be synced, the file keeps its new
    /// name.
    pub fn rename(self, to: &Path) -> io::Result<()> {
        self.rename_unsynced(to)?;
        sync_folder(folder_of(to))
    }

    /// Renames the file into place; the caller calls [`sync_folder`] afterwards. Several files that belong together are
    /// renamed by a [`Placing`](crate::Placing).
    ///
    /// # Errors
    ///
    /// As for `rename`, or the name is that of a device or pipe; then the file is removed.
    pub fn rename_unsynced(self, to: &Path) -> io::Result<()> {
        check_replaceable(to)?;
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
    use crate::aside::{lock_of_dead, remove_leftovers};

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

    #[test]
    fn folders_that_were_made_go_if_they_are_empty_and_all_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("theirs")).unwrap();
        for made in ["theirs", "theirs/a/b", "c/d", "c/e", "c/d"] {
            make_folders(&at(made)).unwrap();
        }
        std::fs::write(at("file"), "").unwrap();
        make_folders(&at("file/a")).unwrap_err();
        make_folders(&at("file")).unwrap_err();
        std::fs::write(at("c/d/kept"), "").unwrap();
        remove_empty_folders();
        let is_there = |name: &&str| at(name).exists();
        let names = ["theirs", "theirs/a", "c/d/kept", "c/e", "file"];
        assert_eq!(names.each_ref().map(is_there), [true, false, true, false, true]);
    }

    /// A sync of the folder begins with opening it, which must happen after the rename.
    #[test]
    fn a_rename_is_followed_by_a_sync_of_the_folder() {
        use rustix::fs::inotify;

        let folder = tempfile::tempdir().unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let events = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::OPEN;
        let (partial, file) = PartialFile::beside(&folder.path().join("out"), OWNER_ONLY).unwrap();
        inotify::add_watch(&watch, folder.path(), events).unwrap();
        partial.rename(&folder.path().join("out")).unwrap();
        drop(file);
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
        let mut reader = inotify::Reader::new(&watch, &mut buffer);
        let mut seen = Vec::new();
        while let Ok(event) = reader.next() {
            seen.push(event.events());
        }
        let opened = inotify::ReadFlags::OPEN | inotify::ReadFlags::ISDIR;
        assert_eq!(seen, [inotify::ReadFlags::MOVED_TO, opened]);
    }

    #[test]
    fn a_pipe_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let begin = || PartialFile::beside(&pipe, OWNER_ONLY).unwrap().0;
        let errors = [
            write_whole(&pipe, OWNER_ONLY, b"1").unwrap_err(),
            begin().rename(&pipe).unwrap_err(),
            begin().rename_unsynced(&pipe).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == io::ErrorKind::InvalidInput));
        assert!(!pipe.metadata().unwrap().is_file());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    /// Another user who may write into the folder cannot predict the name, and a link under it is not
    /// followed.
    #[test]
    fn names_aside_are_drawn_and_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        let made: BTreeSet<PathBuf> = (0..50)
            .map(|_| PartialFile::beside(&target, OWNER_ONLY).unwrap().0.path.clone())
            .collect();
        assert_eq!(made.len(), 50);
        let (elsewhere, link) = (folder.path().join("elsewhere"), folder.path().join("link"));
        std::fs::write(&elsewhere, "theirs").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let made = PartialFile::create_new(&|_| Ok(link.clone()), OWNER_ONLY, None);
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(lock_of_dead(&link).is_none());
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "theirs");
    }

    #[test]
    fn a_file_that_another_job_takes_for_a_leftover_is_not_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".out.umbel-1.partial");
        let begin = || {
            let guard = PartialFile::guard(path.clone());
            let file = File::create_new(&guard.path).unwrap();
            (guard, file)
        };
        let (mut guard, file) = begin();
        let remover = lock_of_dead(&path).unwrap();
        assert!(!guard.hold(&file).unwrap(), "the other job has locked it");
        std::fs::remove_file(&path).unwrap();
        drop(remover);
        assert!(!guard.hold(&file).unwrap(), "the other job has removed it");
        drop((guard, file));
        let (mut guard, file) = begin();
        assert!(guard.hold(&file).unwrap());
        assert!(lock_of_dead(&path).is_none());
    }

    #[test]
    fn jobs_in_one_folder_lose_nothing_to_each_other() {
        const JOBS: usize = 8;
        const FILES: usize = 50;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let folders = BTreeSet::from([root.to_owned()]);
        let job = |job: usize| {
            for file in 0..FILES {
                remove_leftovers(&folders, Some(root));
                let target = |name: &str| root.join(format!("{name}-{job}-{file}"));
                let (own, _) = PartialFile::beside(&target("own"), OWNER_ONLY).unwrap();
                let anchor = PartialFile::anchor(root).unwrap();
                let (under, _) =
                    PartialFile::of_directory(&anchor, &target("under"), OWNER_ONLY).unwrap();
                own.rename_unsynced(&target("own")).unwrap();
                under.rename_unsynced(&target("under")).unwrap();
            }
        };
        std::thread::scope(|scope| {
            (0..JOBS).for_each(|number| drop(scope.spawn(move || job(number))));
        });
        // The anchors are gone, too.
        assert_eq!(std::fs::read_dir(root).unwrap().count(), 2 * JOBS * FILES);
    }
}
