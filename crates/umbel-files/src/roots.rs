//! Folders below which files may be opened on behalf of others, who may replace path components during the
//! check.
//!
//! A path is resolved first. Then the file is opened component by component from its root, and no component
//! may be a link, so a link that was put there in between is not followed. The checks look at the opened
//! file, not at its name.

use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// A folder on the way to a file: only a base for the next `openat`.
#[cfg(target_os = "linux")]
pub(super) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
#[cfg(not(target_os = "linux"))]
pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// A file to read. `NONBLOCK`: opening a pipe returns at once, and the check of the file type then rejects
/// it.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A set of folders, and everything below them.
#[derive(Clone, Debug, Default)]
pub struct Roots(Arc<[PathBuf]>);

/// The path is not below any of the folders. Name another file.
#[derive(Debug, Error)]
#[error("{}: may not be {what} by jobs here: it is not below {roots} (job_roots)", path.display())]
pub struct NotBelow {
    path: PathBuf,
    what: &'static str,
    roots: String,
}

/// Why a file or a folder was not opened.
#[derive(Debug, Error)]
pub enum OpenBelowError {
    /// The path is below none of the folders. Name another one.
    #[error(transparent)]
    NotBelow(NotBelow),
    /// The operating system's error.
    #[error(transparent)]
    Io(io::Error),
}

impl Roots {
    /// These folders; their paths must have no links.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        Self(roots.into())
    }

    /// The folder that contains, or is, `place`: a path without links, `.` and `..`.
    pub fn above(&self, place: &Path) -> Option<&Path> {
        self.0.iter().find(|root| place.starts_with(root)).map(PathBuf::as_path)
    }

    /// Opens a regular file below one of the folders.
    ///
    /// # Errors
    ///
    /// The path is below none of them, it is no regular file, or a component was replaced by a link in the
    /// meantime.
    pub fn open(&self, path: &Path) -> Result<File, OpenBelowError> {
        let place = std::fs::canonicalize(path).map_err(OpenBelowError::Io)?;
        let root = self.above_or(&place, path, "read")?;
        open_below(root, &place).map_err(OpenBelowError::Io)
    }

    /// The folder that contains `place`. For the error message: `path` as the user wrote it, and `what`
    /// would have been done.
    ///
    /// # Errors
    ///
    /// `place` is below none of the folders.
    pub(super) fn above_or(
        &self,
        place: &Path,
        path: &Path,
        what: &'static str,
    ) -> Result<&Path, OpenBelowError> {
        self.above(place).ok_or_else(|| {
            let (path, roots) = (path.to_owned(), self.to_string());
            OpenBelowError::NotBelow(NotBelow { path, what, roots })
        })
    }
}

impl std::fmt::Display for Roots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let roots: Vec<_> = self.0.iter().map(|root| root.display().to_string()).collect();
        f.write_str(&roots.join(" or "))
    }
}

fn open_below(root: &Path, place: &Path) -> io::Result<File> {
    let folder = rustix::fs::open(root, FOLDER | OFlags::CLOEXEC, Mode::empty())?;
    let mut folder: OwnedFd = folder;
    let below = place.strip_prefix(root).map_err(io::Error::other)?;
    let mut parts = below.components().peekable();
    while let Some(Component::Normal(part)) = parts.next() {
        let is_last = parts.peek().is_none();
        let flags = if is_last { READ } else { FOLDER };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = openat(&folder, part, flags, Mode::empty())?;
        if is_last {
            return regular(File::from(folder));
        }
    }
    Err(no_regular_file())
}

/// Opens a regular file; does not block on a pipe.
///
/// # Errors
///
/// It is no regular file, or any I/O error.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let opened = rustix::fs::open(path, READ | OFlags::CLOEXEC, Mode::empty())?;
    regular(File::from(opened))
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_regular_file()) }
}

fn no_regular_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no regular file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    struct Place {
        folder: tempfile::TempDir,
        roots: Roots,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = std::fs::canonicalize(folder.path()).unwrap().join("root");
            std::fs::create_dir_all(root.join("deep/er")).unwrap();
            std::fs::write(root.join("deep/er/a"), "inside").unwrap();
            std::fs::write(folder.path().join("secret"), "outside").unwrap();
            Self { folder, roots: Roots::new(vec![root]) }
        }

        fn path(&self, below: &str) -> PathBuf {
            std::fs::canonicalize(self.folder.path()).unwrap().join(below)
        }
    }

    fn pipe(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn what_is_below_is_opened_and_what_is_not_is_named() {
        let place = Place::new();
        symlink(place.path("root/deep/er/a"), place.path("root/link")).unwrap();
        symlink(place.path("secret"), place.path("root/out")).unwrap();
        for inside in ["root/deep/er/a", "root/link", "root/deep/../deep/er/a"] {
            let mut text = String::new();
            place.roots.open(&place.path(inside)).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside", "{inside}");
        }
        for outside in ["secret", "root/out", "root/../secret"] {
            let Err(OpenBelowError::NotBelow(error)) = place.roots.open(&place.path(outside))
            else {
                panic!("{outside}")
            };
            assert!(error.to_string().contains("may not be read by jobs here"), "{error}");
        }
    }

    #[test]
    fn only_regular_files_are_opened_and_nobody_waits() {
        let place = Place::new();
        pipe(&place.path("root/pipe"));
        for other in ["root/pipe", "root/deep", "root"] {
            let Err(OpenBelowError::Io(error)) = place.roots.open(&place.path(other)) else {
                panic!("{other}")
            };
            assert!(error.to_string().contains("no regular file"), "{other}: {error}");
            assert!(open_regular(&place.path(other)).is_err(), "{other}");
        }
        assert!(open_regular(Path::new("/dev/zero")).is_err());
        let mut text = String::new();
        open_regular(&place.path("secret")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "outside");
    }

    #[test]
    fn what_is_swapped_after_it_was_looked_at_leads_nowhere() {
        let place = Place::new();
        let (root, file) = (place.path("root"), place.path("root/deep/er/a"));
        // A link in place of the file, a pipe, and a link in place of a folder above it.
        std::fs::rename(&file, place.path("root/moved")).unwrap();
        symlink(place.path("secret"), &file).unwrap();
        assert!(open_below(&root, &file).is_err());
        std::fs::remove_file(&file).unwrap();
        pipe(&file);
        assert!(open_below(&root, &file).unwrap_err().to_string().contains("no regular file"));
        std::fs::remove_dir_all(place.path("root/deep")).unwrap();
        std::fs::create_dir(place.path("er")).unwrap();
        std::fs::write(place.path("er/a"), "outside").unwrap();
        symlink(place.path(""), place.path("root/deep")).unwrap();
        assert!(open_below(&root, &file).is_err());
    }
}
