//! Temporary names of unfinished outputs and of the directories that a session of reconciliation fills.
//!
//! A process that is killed leaves such files behind, so every program that walks a directory may find
//! them. Their content is incomplete, so they are never read. A later job removes them once it is certain
//! that their writer has ended: a process holds a lock (`flock`) on each temporary file until the file is
//! renamed, so a free lock shows that the process is gone, independent of process ids, machines and clocks.
//! An output directory may have more files than a process can hold open, so one empty file, the anchor, is
//! locked for all of them.
//!
//! ```text
//! .NAME.umbel-4711.partial     a process writes NAME, and holds a lock on this file; 4711 is drawn
//! .NAME.umbel-12dx4711.partial a job, of which 12 was drawn, writes NAME of an output directory, and holds a lock on
//! .umbel-12d.partial           this file, which stands in the output directory itself
//! .NAME.umbel-00..2a-3.partial worker 3 of a job over many machines: its job folder knows it, and nobody else removes it
//! .umbel-reconcile-Xy12        what a session brought, until it is put in place
//! ```

use rustix::fs::{Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Prefix of the names of directories that hold what a reconciliation received, until it is put in place.
pub const STAGING_PREFIX: &str = ".umbel-reconcile-";

/// Suffix of the names of unfinished outputs.
const PARTIAL_SUFFIX: &[u8] = b".partial";

/// Marker in front of the writer in such a name.
const WRITER_MARK: &[u8] = b".umbel-";

/// Bytes of the final name that the temporary name keeps, so that the latter stays within the limit of 255
/// bytes.
const KEPT_NAME_BYTES: usize = 200;

/// Bytes of a random number: 15 digits at most, so that a name with two of them stays below 255 bytes.
const DRAWN_BYTES: usize = 6;

/// Marks the writers of files in an output directory.
const DIRECTORY_MARK: char = 'd';

/// Whether a file or directory of this name (not path) is an unfinished output of any `umbel` command:
/// `.NAME.umbel-WRITER.partial` or `.umbel-reconcile-…`.
///
/// Every directory walk and every glob match skips these.
pub fn is_unfinished_output(name: &OsStr) -> bool {
    name.as_bytes().starts_with(STAGING_PREFIX.as_bytes()) || writer_of(name).is_some()
}

/// The writer in the name of an unfinished file.
fn writer_of(name: &OsStr) -> Option<&str> {
    let stem = name.as_bytes().strip_suffix(PARTIAL_SUFFIX)?;
    let mark = stem.windows(WRITER_MARK.len()).rposition(|window| window == WRITER_MARK);
    let at = mark.filter(|_| stem.starts_with(b"."))?;
    let writer = std::str::from_utf8(&stem[at + WRITER_MARK.len()..]).ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!writer.is_empty() && writer.bytes().all(is_plain)).then_some(writer)
}

/// The temporary name of a file; without a name, that of the anchor whose lock stands for other files.
pub(crate) fn name_aside(name: Option<&OsStr>, writer: &str) -> OsString {
    let mut aside = OsString::new();
    if let Some(name) = name {
        let bytes = name.as_bytes();
        aside.push(".");
        aside.push(OsStr::from_bytes(&bytes[..bytes.len().min(KEPT_NAME_BYTES)]));
    }
    aside.push(format!(".umbel-{writer}.partial"));
    aside
}

/// An unpredictable number.
fn draw() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes[..DRAWN_BYTES])?;
    Ok(u64::from_le_bytes(bytes))
}

/// The writer in the name of a temporary file that has a lock of its own.
pub(crate) fn own_writer() -> io::Result<String> {
    Ok(draw()?.to_string())
}

/// The writer in the name of an anchor.
pub(crate) fn writer_of_anchor(drawn: &str) -> String {
    format!("{drawn}{DIRECTORY_MARK}")
}

/// The writer in the name of a file that the lock on this anchor stands for.
///
/// # Errors
///
/// The path is not that of an anchor.
pub(crate) fn writer_under(anchor: &Path, drawn: &str) -> io::Result<String> {
    let writer = anchor.file_name().and_then(writer_of).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(format!("{writer}x{drawn}"))
}

/// Whether a lock on the file itself shows that its writer still runs.
fn holds_own_lock(writer: &str) -> bool {
    let (process, number) = writer.split_once('x').unwrap_or((writer, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(process) && is_number(number)
}

/// The writer of the anchor whose lock stands for this writer's files.
fn anchor_writer(writer: &str) -> Option<&str> {
    let end = writer.find(DIRECTORY_MARK)? + 1;
    let process = &writer[..end - 1];
    (!process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some(&writer[..end])
}

/// Locks a temporary file whose writer has ended; `None` if that is not certain.
pub(crate) fn lock_of_dead(path: &Path) -> Option<File> {
    let is_file = |metadata: &std::fs::Metadata| metadata.file_type().is_file();
    std::fs::symlink_metadata(path).ok().filter(is_file)?;
    // Some network file systems lock only files that are open for writing. If the path became a link or a
    // pipe since the check, the link is not followed and the open does not block.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
    }
    // The file may have been renamed or removed before it was locked.
    is_at(&file, path).ok()?.then_some(file)
}

/// Whether the path still leads to this file.
///
/// # Errors
///
/// Any I/O error.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let here = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok((here.dev(), here.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the files that ended processes left in these folders; `root` is the output directory that
/// contains all the folders, if there is one.
///
/// A file that cannot be inspected, locked or removed stays: no program reads it.
pub fn remove_leftovers(folders: &BTreeSet<PathBuf>, root: Option<&Path>) {
    let mut anchors: BTreeMap<PathBuf, Option<File>> = BTreeMap::new();
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(writer) = writer_of(&name) else { continue };
            if holds_own_lock(writer) {
                if let Some(_held) = lock_of_dead(&entry.path()) {
                    let _ = std::fs::remove_file(entry.path());
                }
            } else if let (Some(writer), Some(root)) = (anchor_writer(writer), root) {
                let anchor = root.join(name_aside(None, writer));
                let is_anchor = anchor.file_name() == Some(&name);
                let held = anchors.entry(anchor).or_insert_with_key(|anchor| lock_of_dead(anchor));
                if held.is_some() && !is_anchor {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }
    // Last: if this process is killed before, the next one still finds the anchors and removes the rest.
    for (anchor, held) in anchors {
        if held.is_some() {
            let _ = std::fs::remove_file(anchor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_outputs_are_recognized_by_name() {
        let unfinished = [
            ".x.umbel-1.partial",
            ".a b.umbel-c.gz.umbel-4711.partial",
            ".out.umbel-00ff00ff00ff00ff-12.partial",
            ".umbel-7d.partial",
            ".umbel-reconcile-Xy12",
        ];
        let others = [
            "x.umbel-1.partial",
            ".x.umbel-.partial",
            ".x.umbel-1.partial.txt",
            ".x.partial",
            ".umbel-x",
            ".x.umbel-a.b.partial",
            "umbel-reconcile-1",
            "",
        ];
        unfinished
            .iter()
            .for_each(|name| assert!(is_unfinished_output(OsStr::new(name)), "{name}"));
        others.iter().for_each(|name| assert!(!is_unfinished_output(OsStr::new(name)), "{name}"));
    }

    #[test]
    fn names_aside_are_names_however_long_the_names_are() {
        let long = OsString::from("n".repeat(255));
        let drawn = own_writer().unwrap();
        let anchor = writer_of_anchor(&drawn);
        let under = writer_under(Path::new(&name_aside(None, &anchor)), &drawn).unwrap();
        for writer in [drawn, anchor, under, "9".repeat(15)] {
            let aside = name_aside(Some(&long), &writer);
            assert!(aside.len() <= 255 && is_unfinished_output(&aside), "{aside:?}");
            let is_of_directory = writer.contains(DIRECTORY_MARK);
            assert_eq!(holds_own_lock(&writer), !is_of_directory);
            assert_eq!(anchor_writer(&writer).is_some(), is_of_directory);
        }
        let longest = format!("{0}dx{0}", "9".repeat(15));
        assert!(name_aside(Some(&long), &longest).len() < 255);
        assert!(
            !holds_own_lock("00ff00ff00ff00ff-12")
                && anchor_writer("00ff00ff00ff00ff-12").is_none()
        );
        assert_eq!(anchor_writer("12dx3"), Some("12d"));
    }

    #[test]
    fn only_what_nobody_locks_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("sub")).unwrap();
        let dead = [
            ".a.umbel-1.partial",
            ".umbel-2d.partial",
            ".b.umbel-2d.partial",
            "sub/.c.umbel-2dx1.partial",
        ];
        let alive = [
            ".d.umbel-3.partial",
            ".umbel-4d.partial",
            "sub/.e.umbel-4d.partial",
            ".f.umbel-5d.partial", // Its anchor does not exist, so it is not certain that its writer has ended.
            ".g.umbel-00ff00ff00ff00ff-12.partial",
            "h.umbel-1.partial",
        ];
        dead.iter().chain(&alive).for_each(|name| drop(File::create(root.join(name)).unwrap()));
        let locked = [".d.umbel-3.partial", ".umbel-4d.partial"]
            .map(|name| File::open(root.join(name)).unwrap());
        locked.iter().for_each(|file| file.lock().unwrap());
        let folders = BTreeSet::from([root.to_owned(), root.join("sub"), root.join("none")]);
        remove_leftovers(&folders, Some(root));
        dead.iter().for_each(|name| assert!(!root.join(name).exists(), "{name}"));
        alive.iter().for_each(|name| assert!(root.join(name).exists(), "{name}"));
    }
}
