//! Names of what is not finished: outputs that wait beside their names, and directories that a session fills.
//!
//! A process that is killed leaves them behind, so whoever walks a directory meets them. They hold half of something,
//! and are never read. A later job removes them where it is certain that nobody will finish them: a process holds a lock
//! (`flock`) on each file that it writes aside until that has its name, so a lock that is free tells that the process is
//! gone, whatever its number, its machine and the time. Of an output directory, whose files may be more than a process
//! can hold open, one file of no bytes is locked for all.
//!
//! ```text
//! .NAME.umbel-4711.partial     a process writes NAME, and holds a lock on this file; 4711 is drawn
//! .NAME.umbel-12dx4711.partial process 12, a drawn number too, writes NAME of an output directory, and holds a lock on
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
use std::sync::OnceLock;

/// How names of directories begin that hold what a reconciliation brought until it is put in place.
pub const STAGING_PREFIX: &str = ".umbel-reconcile-";

/// How names of outputs end until they are complete.
const PARTIAL_SUFFIX: &[u8] = b".partial";

/// What stands in such a name before its writer.
const WRITER_MARK: &[u8] = b".umbel-";

/// Bytes of a name that are kept in the name aside, so that this is a name, too: 255 bytes at most.
const KEPT_NAME_BYTES: usize = 200;

/// Bytes of a drawn number: 15 digits at most, so that two of them keep a name aside below 255 bytes.
const DRAWN_BYTES: usize = 6;

/// What tells the files of an output directory from others.
const DIRECTORY_MARK: char = 'd';

/// Whether a file or directory of this name (not path) is an output of any `umbel` command that is not finished:
/// `.NAME.umbel-WRITER.partial` or `.umbel-reconcile-…`.
///
/// Every walk of a directory and every match of a glob leaves these out.
pub fn is_unfinished_output(name: &OsStr) -> bool {
    name.as_bytes().starts_with(STAGING_PREFIX.as_bytes()) || writer_of(name).is_some()
}

/// Who writes a file that is not finished.
fn writer_of(name: &OsStr) -> Option<&str> {
    let stem = name.as_bytes().strip_suffix(PARTIAL_SUFFIX)?;
    let mark = stem.windows(WRITER_MARK.len()).rposition(|window| window == WRITER_MARK);
    let at = mark.filter(|_| stem.starts_with(b"."))?;
    let writer = std::str::from_utf8(&stem[at + WRITER_MARK.len()..]).ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!writer.is_empty() && writer.bytes().all(is_plain)).then_some(writer)
}

/// The name aside of a file; without one, of the file whose lock stands for others.
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

/// A number that nobody can tell before it stands in a name.
fn draw() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes[..DRAWN_BYTES])?;
    Ok(u64::from_le_bytes(bytes))
}

/// How a file aside is signed that has a lock of its own.
pub(crate) fn own_writer() -> io::Result<String> {
    Ok(draw()?.to_string())
}

/// How this process signs the files whose locks stand for output directories.
pub(crate) fn own_anchor() -> io::Result<String> {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    let drawn = draw()?;
    Ok(format!("{}{DIRECTORY_MARK}", DRAWN.get_or_init(|| drawn)))
}

/// How it signs a file in an output directory.
pub(crate) fn own_writer_in_directory() -> io::Result<String> {
    Ok(format!("{}x{}", own_anchor()?, draw()?))
}

/// Whether a lock on the file itself tells that its writer lives.
fn holds_own_lock(writer: &str) -> bool {
    let (process, number) = writer.split_once('x').unwrap_or((writer, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(process) && is_number(number)
}

/// The writer whose file without a name is locked for this one.
fn anchor_writer(writer: &str) -> Option<&str> {
    let end = writer.find(DIRECTORY_MARK)? + 1;
    let process = &writer[..end - 1];
    (!process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some(&writer[..end])
}

/// Takes the lock of a file that nobody holds any more; nothing if that is not certain.
pub(crate) fn lock_of_dead(path: &Path) -> Option<File> {
    let is_file = |metadata: &std::fs::Metadata| metadata.file_type().is_file();
    std::fs::symlink_metadata(path).ok().filter(is_file)?;
    // Some network file systems lock only what is open for writing. What took its place since it was looked at
    // is not followed and not waited for.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
    }
    // It may have got its name, or been removed, before it was locked.
    let (here, there) = (file.metadata().ok()?, std::fs::symlink_metadata(path).ok()?);
    ((here.dev(), here.ino()) == (there.dev(), there.ino())).then_some(file)
}

/// Removes what dead processes have left in these folders; `root` is an output directory that all of them are in.
///
/// Whatever cannot be looked at, locked or removed stays: nobody reads it.
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
    // Last: as long as it is there, a process that is killed here leaves what the next one finds.
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
        let drawn = [own_writer(), own_anchor(), own_writer_in_directory(), Ok("9".repeat(15))];
        for writer in drawn.map(io::Result::unwrap) {
            let aside = name_aside(Some(&long), &writer);
            assert!(aside.len() <= 255 && is_unfinished_output(&aside), "{aside:?}");
            let is_of_directory = writer.contains(DIRECTORY_MARK);
            assert_eq!(holds_own_lock(&writer), !is_of_directory);
            assert_eq!(anchor_writer(&writer).is_some(), is_of_directory);
        }
        let longest = format!("{0}d{0}", "9".repeat(15));
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
            ".f.umbel-5d.partial", // Its lock is nowhere: nothing is certain.
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
