//! Output folders: opened once, so that files are created, renamed and removed in that folder and nowhere
//! else, wherever its path leads by then.
//!
//! Where outputs are allowed only below some roots, a folder is opened component by component from its
//! root, and missing components are created on the way: a component that became a link in the meantime is
//! not followed.

use super::Likeness;
use super::roots::{FOLDER, OpenBelowError, READ, Roots};
use crate::PartialFile;
use crate::folder_of;
use crate::placing::rename_new_in;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, mkdirat, openat, renameat, statat, unlinkat,
};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Mode of new folders: only the process's umask limits it.
const ANY_NEW_FOLDER: Mode = Mode::from_raw_mode(0o777);

/// A folder that can also be synced.
const OPEN_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub struct OutputFolder(OwnedFd);

impl OutputFolder {
    /// Opens the folder of a file that exists or will exist; with `roots`, only below one of them.
    ///
    /// # Errors
    ///
    /// The folder does not exist, or is below none of the roots.
    pub fn of(roots: Option<&Roots>, file: &Path) -> Result<Self, OpenBelowError> {
        Self::open(roots, folder_of(file), false)
    }

    /// Opens a folder inside a directory that others may write to; a link in its place is not followed.
    ///
    /// # Errors
    ///
    /// It is no folder, or any I/O error.
    pub fn unless_linked(folder: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(folder, OPEN_FOLDER | OFlags::NOFOLLOW, Mode::empty())?))
    }

    /// Creates a folder below some roots, with its missing parents.
    ///
    /// # Errors
    ///
    /// Any I/O error, or it is below none of the roots.
    pub fn make(roots: &Roots, folder: &Path) -> Result<(), OpenBelowError> {
        Self::open(Some(roots), folder, true).map(drop)
    }

    fn open(roots: Option<&Roots>, folder: &Path, is_made: bool) -> Result<Self, OpenBelowError> {
        let Some(roots) = roots else {
            let opened = rustix::fs::open(folder, OPEN_FOLDER, Mode::empty());
            return opened.map(Self).map_err(|error| OpenBelowError::Io(error.into()));
        };
        let (there, missing) = resolved(folder).map_err(OpenBelowError::Io)?;
        let root = roots.above_or(&there, folder, "written")?;
        let below = there
            .strip_prefix(root)
            .map_err(|error| OpenBelowError::Io(io::Error::other(error)))?;
        open_or_make(root, &below.join(&missing), is_made).map(Self).map_err(OpenBelowError::Io)
    }

    /// Creates a file in the folder, replacing what an earlier process left there; `path` is the file's
    /// path.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn create_again(&self, path: PathBuf, mode: u32) -> io::Result<(PartialFile, File)> {
        PartialFile::again_in(&self.0, path, mode)
    }

    /// Whether the folder has an entry of this path's name that must be neither opened nor replaced: a
    /// device, a pipe, a folder. A link is not followed: a rename replaces it.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn is_occupied(&self, path: &Path) -> io::Result<bool> {
        let kind = self.kind(path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(!matches!(kind, None | Some(FileType::RegularFile | FileType::Symlink)))
    }

    /// Whether the folder has a file or folder of this name, which an output would replace.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn is_taken(&self, path: &Path) -> io::Result<bool> {
        let kind = self.kind(path, AtFlags::empty())?;
        Ok(matches!(kind, Some(FileType::RegularFile | FileType::Directory)))
    }

    /// Whether the folder has any entry of this name. A dangling link counts as none.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn has(&self, path: &Path) -> io::Result<bool> {
        Ok(self.kind(path, AtFlags::empty())?.is_some())
    }

    /// The length of the file of this name, if it exists.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn bytes(&self, path: &Path) -> io::Result<Option<u64>> {
        let found = self.stat(path, AtFlags::empty())?;
        found.map(|found| u64::try_from(found.st_size).map_err(io::Error::other)).transpose()
    }

    /// When the file of this name was last modified, if it exists.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn modified(&self, path: &Path) -> io::Result<Option<SystemTime>> {
        match openat(
            &self.0,
            name_of(path)?,
            READ | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(opened) => File::from(opened).metadata()?.modified().map(Some),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn kind(&self, path: &Path, flags: AtFlags) -> io::Result<Option<FileType>> {
        Ok(self.stat(path, flags)?.map(|found| FileType::from_raw_mode(found.st_mode)))
    }

    fn stat(&self, path: &Path, flags: AtFlags) -> io::Result<Option<Stat>> {
        match statat(&self.0, name_of(path)?, flags) {
            Ok(found) => Ok(Some(found)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Permissions and owner of the regular file of this name, if there is one. A link is not followed.
    pub fn likeness(&self, path: &Path) -> Option<Likeness> {
        let flags = READ | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.0, name_of(path).ok()?, flags, Mode::empty()).ok()?;
        Likeness::of(&File::from(opened).metadata().ok()?)
    }

    /// Renames a file within the folder.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(renameat(&self.0, name_of(from)?, &self.0, name_of(to)?)?)
    }

    /// As [`OutputFolder::rename`], but only if nothing has the new name.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if something has that name, which stays; otherwise any I/O error.
    pub fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        rename_new_in(self.0.as_fd(), Path::new(name_of(from)?), Path::new(name_of(to)?))
    }

    /// The names of all entries, in no order.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
        }
        Ok(names)
    }

    /// Removes a file from the folder.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        Ok(unlinkat(&self.0, name_of(path)?, AtFlags::empty())?)
    }

    /// Makes the names in the folder durable.
    ///
    /// # Errors
    ///
    /// Any I/O error.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }
}

fn name_of(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no name of a file"))
}

/// The existing part of a path, links resolved, and the missing components behind it.
fn resolved(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let mut missing: Vec<OsString> = Vec::new();
    let mut there = path;
    loop {
        match std::fs::canonicalize(there) {
            Ok(place) => return Ok((place, missing.iter().rev().collect())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
                    return Err(error);
                };
                missing.push(name.to_owned());
                there = parent;
            }
            Err(error) => return Err(error),
        }
    }
}

fn open_or_make(root: &Path, below: &Path, is_made: bool) -> io::Result<OwnedFd> {
    let mut folder = rustix::fs::open(root, FOLDER | OFlags::CLOEXEC, Mode::empty())?;
    for part in below.components() {
        let Component::Normal(part) = part else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path that leads up"));
        };
        if is_made {
            match mkdirat(&folder, part, ANY_NEW_FOLDER) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        folder = openat(&folder, part, FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    }
    // `FOLDER` opens with `O_PATH` on Linux, and such a descriptor cannot be synced: open the folder again.
    Ok(openat(&folder, ".", OPEN_FOLDER, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    struct Place {
        folder: tempfile::TempDir,
        roots: Roots,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let place = std::fs::canonicalize(folder.path()).unwrap();
            std::fs::create_dir_all(place.join("root/deep")).unwrap();
            std::fs::create_dir(place.join("outside")).unwrap();
            Self { folder, roots: Roots::new(vec![place.join("root")]) }
        }

        fn path(&self, below: &str) -> PathBuf {
            self.folder.path().join(below)
        }

        fn outside(&self) -> usize {
            std::fs::read_dir(self.path("outside")).unwrap().count()
        }

        fn of(&self, below: &str) -> Result<OutputFolder, OpenBelowError> {
            OutputFolder::of(Some(&self.roots), &self.path(below))
        }

        fn make(&self, below: &str) -> Result<(), OpenBelowError> {
            OutputFolder::make(&self.roots, &self.path(below))
        }
    }

    #[test]
    fn folders_are_made_below_the_roots_and_nowhere_else() {
        let place = Place::new();
        place.make("root/deep/a/b").unwrap();
        place.make("root/deep/a/b").unwrap();
        assert!(place.path("root/deep/a/b").is_dir());
        symlink(place.path("root/deep"), place.path("root/inside")).unwrap();
        place.make("root/inside/c").unwrap();
        assert!(place.path("root/deep/c").is_dir());
        symlink(place.path("outside"), place.path("root/out")).unwrap();
        for outside in ["outside/a", "root/out/a", "root/out/a/b", "root/../outside/a"] {
            let error = place.make(outside).unwrap_err();
            assert!(
                matches!(&error, OpenBelowError::NotBelow(why) if why.to_string().contains("may not be written by jobs")),
                "{outside}: {error:?}"
            );
            assert!(place.of(outside).is_err(), "{outside}");
        }
        assert!(matches!(place.make("root/no/../../outside/a"), Err(OpenBelowError::Io(_))));
        symlink(place.path("outside/new"), place.path("root/dangling")).unwrap();
        assert!(place.make("root/dangling/a").is_err());
        assert!(matches!(place.of("root/none/a"), Err(OpenBelowError::Io(_))), "nothing is made");
        assert_eq!(place.outside(), 0);
    }

    #[test]
    fn a_folder_that_is_swapped_after_it_was_resolved_leads_nowhere() {
        let place = Place::new();
        let root = std::fs::canonicalize(place.path("root")).unwrap();
        std::fs::rename(place.path("root/deep"), place.path("root/moved")).unwrap();
        symlink(place.path("outside"), place.path("root/deep")).unwrap();
        for is_made in [false, true] {
            assert!(open_or_make(&root, Path::new("deep"), is_made).is_err());
            assert!(open_or_make(&root, Path::new("deep/new"), is_made).is_err());
        }
        assert_eq!(place.outside(), 0);
    }

    #[test]
    fn what_is_done_in_a_folder_stays_in_it_wherever_its_path_leads() {
        let place = Place::new();
        let (out, aside) = (place.path("root/deep/out"), place.path("root/deep/.out.aside"));
        let folder = place.of("root/deep/out").unwrap();
        std::fs::rename(place.path("root/deep"), place.path("root/moved")).unwrap();
        symlink(place.path("outside"), place.path("root/deep")).unwrap();
        std::fs::write(place.path("outside/out"), "theirs").unwrap();
        let (partial, _file) = folder.create_again(aside.clone(), 0o640).unwrap();
        let moved = place.path("root/moved/.out.aside");
        assert_eq!(moved.metadata().unwrap().permissions().mode() & 0o737, 0o600);
        assert!(!folder.has(&out).unwrap());
        folder.rename(&aside, &out).unwrap();
        partial.keep();
        folder.sync().unwrap();
        assert!(folder.is_taken(&out).unwrap() && folder.likeness(&out).is_some());
        std::fs::write(place.path("root/moved/out"), "ours").unwrap();
        assert_eq!(folder.bytes(&out).unwrap(), Some(4));
        std::fs::write(&moved, "new").unwrap();
        let taken = folder.rename_new(&aside, &out).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(folder.bytes(&out).unwrap(), Some(4));
        let names = folder.names().unwrap();
        assert!(names.contains(&"out".into()) && names.contains(&".out.aside".into()), "{names:?}");
        folder.remove(&out).unwrap();
        folder.rename_new(&aside, &out).unwrap();
        assert_eq!((folder.bytes(&out).unwrap(), moved.exists()), (Some(3), false));
        folder.remove(&out).unwrap();
        assert!(!folder.has(&out).unwrap() && folder.bytes(&out).unwrap().is_none());
        assert_eq!(std::fs::read_to_string(place.path("outside/out")).unwrap(), "theirs");
    }

    #[test]
    fn devices_pipes_and_folders_are_distinguished_from_files() {
        let place = Place::new();
        let folder = place.of("root/any").unwrap();
        let pipe = place.path("root/pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        symlink(place.path("root/pipe"), place.path("root/link")).unwrap();
        std::fs::write(place.path("root/file"), "").unwrap();
        let at = |name: &str| place.path("root").join(name);
        let occupied = ["pipe", "deep", "link", "file", "none"]
            .map(|name| folder.is_occupied(&at(name)).unwrap());
        assert_eq!(occupied, [true, true, false, false, false]);
        assert!(folder.likeness(&at("pipe")).is_none() && folder.likeness(&at("link")).is_none());
    }
}
