//! Devices, pipes, and the names of open files, such as `/dev/stdout`: outputs that are written directly. A
//! rename would put a file in their place.

use crate::folder_of;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Links that are followed one after the other: as many as Linux follows.
const LINKS_MAX: usize = 40;

/// What is said of a device or pipe where a file is expected.
pub(crate) const EXPECTED_FILE: &str = "a device or pipe, expected a file";

/// Whether this path is a device or pipe, which is written directly. So is the name of a file that a process
/// has open, as `/dev/stdout`, `/dev/fd/3`, and whatever leads to `/proc/*/fd/`: to replace that name is never
/// meant.
pub fn is_device(path: &Path) -> bool {
    let is_device =
        |there: Metadata| is_special(&there) || there.is_file() && names_open_file(path);
    std::fs::metadata(path).is_ok_and(is_device)
}

/// Opens a device or pipe for writing; a pipe waits for its reader. The file of standard output or error is written
/// where that stands, so that neither is written over the other; any other open file at its end.
///
/// # Errors
///
/// Any I/O error.
pub fn open_device(path: &Path) -> io::Result<File> {
    let there = std::fs::metadata(path)?;
    if there.is_file() {
        let own =
            [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
        let is_there = |open: &File| {
            open.metadata().is_ok_and(|open| (open.dev(), open.ino()) == (there.dev(), there.ino()))
        };
        if let Some(open) = own.into_iter().flatten().map(File::from).find(is_there) {
            return Ok(open);
        }
    }
    OpenOptions::new().write(true).append(there.is_file()).open(path)
}

/// Refuses a name that a device or pipe has, before a rename replaces it. A link to one is replaced itself.
pub(crate) fn check_replaceable(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(there) if is_special(&there) && !there.is_symlink() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, EXPECTED_FILE))
        }
        _ => Ok(()),
    }
}

fn is_special(there: &Metadata) -> bool {
    !there.is_file() && !there.is_dir()
}

/// Whether the links from this path lead through the folder of a process's open files.
fn names_open_file(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&path) else { break };
        let Ok(folder) = std::fs::canonicalize(folder_of(&path)) else { break };
        if folder.starts_with("/proc") && folder.ends_with("fd") {
            return true;
        }
        path = folder.join(target);
    }
    // Where there is no /proc, what is in this folder is no link.
    path.parent() == Some(Path::new("/dev/fd"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn a_name_of_an_open_file_is_written_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "1").unwrap();
        let file = OpenOptions::new().append(true).open(at("file")).unwrap();
        symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), at("open")).unwrap();
        symlink("open", at("again")).unwrap();
        for (name, content) in [("open", "12"), ("again", "122")] {
            assert!(is_device(&at(name)), "{name}");
            open_device(&at(name)).unwrap().write_all(b"2").unwrap();
            assert_eq!(std::fs::read_to_string(at("file")).unwrap(), content);
        }
    }

    #[test]
    fn files_folders_and_links_to_them_are_no_devices() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("gone", at("dangling")).unwrap();
        let opened = File::open(folder.path()).unwrap();
        symlink(format!("/proc/self/fd/{}", opened.as_raw_fd()), at("folder")).unwrap();
        for name in ["", "file", "link", "dangling", "folder", "folder/file", "gone"] {
            assert!(!is_device(&at(name)), "{name}");
            check_replaceable(&at(name)).unwrap();
        }
    }

    #[test]
    fn a_pipe_is_a_device_and_its_name_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("pipe", at("link")).unwrap();
        assert!(is_device(&at("pipe")) && is_device(&at("link")));
        check_replaceable(&at("pipe")).unwrap_err();
        check_replaceable(&at("link")).unwrap();
    }
}
