//! Gives all outputs of a job their names in one step, which an interrupt does not cut.
//!
//! An interrupt that arrives before the step removes all unfinished outputs and ends the process. One that arrives within it
//! waits for its end, and is then void if the job ends with the step: the job is done, and says so by its own exit code.

use crate::PartialFile;
use crate::device::check_replaceable;
use crate::partial::{PartialPaths, lock, remove_all};
use rustix::fs::{AtFlags, CWD, linkat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps that have made the interrupts void that waited for them.
static JOBS_ENDED: AtomicU64 = AtomicU64::new(0);

/// The step in which files get their names. As long as it exists, interrupts wait. Whoever holds it must drop no
/// [`PartialFile`] before it, because a drop waits, too.
#[derive(Debug)]
pub struct Placing {
    partial: MutexGuard<'static, PartialPaths>,
}

impl Placing {
    /// Begins the step; does not return if an interrupt is about to end the process.
    #[must_use]
    pub fn begin() -> Self {
        Self { partial: lock() }
    }

    /// Renames a file into place, replacing what is there. The caller calls [`sync_folder`](crate::sync_folder) once for
    /// each folder afterwards.
    ///
    /// # Errors
    ///
    /// As for `rename`, or the name is that of a device or pipe; then the file is removed when it is dropped.
    pub fn rename(&mut self, aside: &PartialFile, to: &Path) -> io::Result<()> {
        check_replaceable(to)?;
        std::fs::rename(aside.path(), to)?;
        self.partial.remove(aside.path());
        Ok(())
    }

    /// As [`Placing::rename`], but only if nothing has the new name.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if something has that name, which stays; otherwise as for `rename`.
    pub fn rename_new(&mut self, aside: &PartialFile, to: &Path) -> io::Result<()> {
        rename_new(aside.path(), to)?;
        self.partial.remove(aside.path());
        Ok(())
    }

    /// Ends the step as the end of the job, so that interrupts that have waited for it are void.
    pub fn end_job(self) {
        JOBS_ENDED.fetch_add(1, Ordering::SeqCst);
    }
}

/// Renames a file or link to a name that nothing has.
///
/// # Errors
///
/// [`io::ErrorKind::AlreadyExists`] if something has that name, which stays; otherwise as for `rename`. File systems with
/// neither such a rename nor links are asked right before the rename, and replace what appears in between.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    rename_new_in(CWD, from, to)
}

/// The same for paths that begin in an open folder.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(crate) fn rename_new_in(folder: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{RenameFlags, renameat_with};

    /// How kernels and file systems say that they know no such rename.
    const UNKNOWN: [Errno; 4] = [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP];

    match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Err(error) if UNKNOWN.contains(&error) => link_new(folder, from, to),
        renamed => Ok(renamed?),
    }
}

/// The same for paths that begin in an open folder.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn rename_new_in(folder: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    link_new(folder, from, to)
}

/// The same by a second link, which replaces nothing either; where there are no links, by a look right before the rename.
fn link_new(folder: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    match linkat(folder, from, folder, to, AtFlags::empty()) {
        Ok(()) => {
            // A temporary name that cannot be removed is taken for abandoned by the next job, which removes it.
            let _ = unlinkat(folder, from, AtFlags::empty());
            Ok(())
        }
        Err(Errno::EXIST) => Err(Errno::EXIST.into()),
        Err(_) if statat(folder, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        Err(_) => Ok(renameat(folder, from, folder, to)?),
    }
}

/// An interrupt, from its arrival on.
#[derive(Debug)]
pub struct Interrupt {
    jobs_ended: u64,
}

impl Interrupt {
    /// An interrupt that arrives now.
    #[must_use]
    pub fn arrived() -> Self {
        Self { jobs_ended: JOBS_ENDED.load(Ordering::SeqCst) }
    }

    /// Removes all unfinished files and directories, then ends the process. Another thread that is about to
    /// rename a file into place blocks until the process ends. If outputs are being renamed into place, waits for the end of
    /// that step, and returns if the job ends with it.
    ///
    /// `last` runs right before the exit and returns the exit code.
    pub fn remove_partial_and_exit(self, last: impl FnOnce() -> i32) {
        let mut partial = lock();
        if JOBS_ENDED.load(Ordering::SeqCst) != self.jobs_ended {
            return;
        }
        let _directories = remove_all(&mut partial);
        let code = last();
        // Both locks are held until the exit, so that no file is renamed into place any more, and a thread whose directory
        // is gone does not end the process before.
        std::process::exit(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OWNER_ONLY;

    /// If the interrupt did not wait, or were not void, the process of this test would end.
    #[test]
    fn an_interrupt_within_the_step_finds_all_files_in_place_and_is_void() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let files = paths.each_ref().map(|path| PartialFile::beside(path, OWNER_ONLY).unwrap().0);
        let mut placing = Placing::begin();
        let interrupt = Interrupt::arrived();
        std::thread::scope(|scope| {
            let interrupted = scope.spawn(|| {
                interrupt.remove_partial_and_exit(|| panic!("the interrupt ends the process"));
                paths.each_ref().map(|path| path.exists())
            });
            for (file, path) in files.iter().zip(&paths) {
                placing.rename(file, path).unwrap();
            }
            placing.end_job();
            assert_eq!(interrupted.join().unwrap(), [true, true]);
        });
        drop(files);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn a_new_name_is_never_taken_from_others() {
        let ways: [fn(&Path, &Path) -> io::Result<()>; 2] =
            [rename_new, |from, to| link_new(CWD, from, to)];
        for way in ways {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            std::fs::write(at("own"), "own").unwrap();
            std::fs::write(at("theirs"), "theirs").unwrap();
            std::os::unix::fs::symlink("nothing", at("link")).unwrap();
            for taken in ["theirs", "link"] {
                let error = way(&at("own"), &at(taken)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            }
            way(&at("own"), &at("new")).unwrap();
            assert_eq!(std::fs::read_to_string(at("new")).unwrap(), "own");
            assert_eq!(std::fs::read_to_string(at("theirs")).unwrap(), "theirs");
            assert!(at("link").is_symlink() && !at("own").exists());
            // A link itself gets the name, not what it leads to.
            way(&at("link"), &at("new link")).unwrap();
            assert!(at("new link").is_symlink() && !at("link").is_symlink());
        }
    }

    #[test]
    fn a_file_that_is_not_renamed_goes_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::create_dir(&path).unwrap();
        let (file, _) = PartialFile::beside(&path, OWNER_ONLY).unwrap();
        let mut placing = Placing::begin();
        placing.rename(&file, &path).unwrap_err();
        drop(placing);
        drop(file);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }
}
