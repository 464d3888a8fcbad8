//! Holds received contents until they are put in place.

use super::{Entry, STAGING_PREFIX, Tree, in_the_way};
use crate::change::Change;
use crate::error::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use umbel_files::{PartialDirectory, sync_folder};

/// Bytes copied at a time.
const COPY_BYTES: usize = 256 << 10;

/// The file in a staging directory that is locked while its process lives.
const LOCK_NAME: &str = "lock";

/// A directory inside the set's own, so that files can be renamed out of it. It is removed when it is
/// dropped or the process is interrupted; the next process removes what a killed one left.
pub(super) struct Staging {
    directory: PartialDirectory,
    /// Held as long as the directory is in use.
    _lock: File,
}

impl Staging {
    /// Creates a staging directory.
    ///
    /// # Errors
    ///
    /// If it cannot be created or locked.
    pub(super) fn new(root: &Path) -> Result<Self> {
        let cannot = || format!("{}: cannot write", root.display());
        remove_left(root).with_context(cannot)?;
        let directory = PartialDirectory::new_in(root, STAGING_PREFIX).with_context(cannot)?;
        let lock = File::create(directory.path().join(LOCK_NAME)).with_context(cannot)?;
        lock.lock().with_context(cannot)?;
        Ok(Self { directory, _lock: lock })
    }

    fn path(&self, hash: [u8; 32]) -> PathBuf {
        self.directory.path().join(blake3::Hash::from_bytes(hash).to_hex().as_str())
    }

    /// Stores a content of `bytes` bytes, and syncs it.
    ///
    /// # Errors
    ///
    /// If it does not match its hash, or cannot be written.
    pub(super) fn stage(&self, hash: [u8; 32], bytes: u64, content: &mut dyn Read) -> Result<()> {
        let path = self.path(hash);
        let cannot = || format!("{}: cannot write", path.display());
        let mut file = BufWriter::new(File::create(&path).with_context(cannot)?);
        let mut hasher = blake3::Hasher::new();
        let (mut buffer, mut rest) = (vec![0; COPY_BYTES], bytes);
        while rest > 0 {
            let room = usize::try_from(rest).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let count = content.read(&mut buffer[..room])?;
            ensure!(count > 0, "a content ended {rest} bytes too early");
            hasher.update(&buffer[..count]);
            file.write_all(&buffer[..count]).with_context(cannot)?;
            rest -= count as u64;
        }
        ensure!(*hasher.finalize().as_bytes() == hash, "a content is not what was asked for");
        let written = file.into_inner().map_err(std::io::IntoInnerError::into_error);
        written.and_then(|file| file.sync_all()).with_context(cannot)
    }

    /// Stages a copy of a content that this side already has under another name.
    fn copy(&self, tree: &Tree, index: usize) -> Result<()> {
        let (hash, bytes) = (tree.entries[index].hash, tree.entries[index].bytes);
        tree.check(index)?;
        self.stage(hash, bytes, &mut tree.content(index)?)
    }
}

/// Removes the staging directories of processes that are gone: those whose lock is free. One without a
/// lock file was just created, or belongs to an earlier release, and stays.
fn remove_left(root: &Path) -> std::io::Result<()> {
    for child in std::fs::read_dir(root)? {
        let child = child?;
        if !child.file_name().as_bytes().starts_with(STAGING_PREFIX.as_bytes()) {
            continue;
        }
        let Ok(lock) = File::open(child.path().join(LOCK_NAME)) else { continue };
        if lock.try_lock().is_ok() {
            std::fs::remove_dir_all(child.path())?;
        }
    }
    Ok(())
}

/// Puts everything in place, one whole file at a time; removals come last.
///
/// # Errors
///
/// If something was changed meanwhile or cannot be written; a second run does the rest.
pub(super) fn apply(tree: &Tree, staging: Option<Staging>, change: &Change) -> Result<()> {
    let staging = staging.map_or_else(|| Staging::new(&tree.root), Ok)?;
    let own: BTreeMap<[u8; 32], usize> =
        tree.entries.iter().map(|entry| entry.hash).zip(0..).collect();
    let place = |index: u64| usize::try_from(index).expect("an index of this set");
    let replaced = change.replaced.keys().map(|index| place(index.0));
    let removed = change.removed.iter().map(|index| place(index.0));
    replaced.chain(removed.clone()).try_for_each(|index| tree.check(index))?;

    let items = change.added.iter().chain(change.replaced.values());
    let entries: Result<Vec<Entry>> = items.map(|item| Entry::parse(&item.to_bytes())).collect();
    let mut uses: BTreeMap<[u8; 32], usize> = BTreeMap::new();
    let entries = entries.context("what came is no file")?;
    for entry in &entries {
        *uses.entry(entry.hash).or_default() += 1;
        if !staging.path(entry.hash).exists() {
            let index = own.get(&entry.hash).context("a content did not come")?;
            staging.copy(tree, *index)?;
        }
    }
    let blocking = in_the_way::of(tree, change)?;
    blocking.iter().try_for_each(|&index| remove(tree, &tree.entries[index].path))?;
    for entry in &entries {
        let left = uses.entry(entry.hash).or_default();
        *left -= 1;
        put(tree, &staging, entry, *left == 0)?;
    }
    // Sync the incoming files before anything is removed.
    sync_folders(&tree.root, entries.iter().map(|entry| &*entry.path))?;
    let rest: Vec<usize> = removed.filter(|index| !blocking.contains(index)).collect();
    rest.iter().try_for_each(|&index| remove(tree, &tree.entries[index].path))?;
    sync_folders(&tree.root, rest.iter().map(|&index| &*tree.entries[index].path))
}

/// Syncs the directory entries of these paths, and those of the directories created for them.
fn sync_folders<'a>(root: &Path, paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    let folders: BTreeSet<&Path> = paths.flat_map(|path| path.ancestors().skip(1)).collect();
    for folder in folders {
        let folder = root.join(folder);
        match sync_folder(&folder) {
            // It was removed together with its last entry.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            synced => synced.with_context(|| format!("{}: cannot sync", folder.display()))?,
        }
    }
    Ok(())
}

fn put(tree: &Tree, staging: &Staging, entry: &Entry, is_last: bool) -> Result<()> {
    let target = tree.root.join(&entry.path);
    let cannot = || format!("{}: cannot write", target.display());
    make_parents(&tree.root, &entry.path)?;
    let staged = staging.path(entry.hash);
    let made = staging.directory.path().join("next");
    if entry.is_link() {
        let leads_to = std::fs::read(&staged).with_context(cannot)?;
        symlink(OsStr::from_bytes(&leads_to), &made).with_context(cannot)?;
    } else {
        if is_last {
            std::fs::rename(&staged, &made).with_context(cannot)?;
        } else {
            std::fs::copy(&staged, &made).with_context(cannot)?;
            File::open(&made).and_then(|file| file.sync_all()).with_context(cannot)?;
        }
        let permissions = Permissions::from_mode(entry.permissions());
        std::fs::set_permissions(&made, permissions).with_context(cannot)?;
    }
    if std::fs::symlink_metadata(&target).is_ok_and(|found| found.is_dir()) {
        remove_empty_directories(&target).with_context(|| {
            format!("{}: a directory stands where a file comes", target.display())
        })?;
    }
    std::fs::rename(&made, &target).with_context(cannot)
}

/// Removes a directory that contains only directories, which are not part of a set.
fn remove_empty_directories(directory: &Path) -> std::io::Result<()> {
    for child in std::fs::read_dir(directory)? {
        let child = child?;
        if child.file_type()?.is_dir() {
            remove_empty_directories(&child.path())?;
        }
    }
    // Fails if a file has appeared meanwhile.
    std::fs::remove_dir(directory)
}

/// Creates the directories above a path. None of them may be a link: it could lead out of the set.
fn make_parents(root: &Path, path: &Path) -> Result<()> {
    let mut directory = root.to_owned();
    for part in path.parent().into_iter().flatten() {
        directory.push(part);
        let shown = || directory.display().to_string();
        match std::fs::symlink_metadata(&directory) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => bail!("{}: something else stands where a directory comes", shown()),
            Err(_) => std::fs::create_dir(&directory).with_context(shown)?,
        }
    }
    Ok(())
}

/// Removes a file, and the directories that this leaves empty.
fn remove(tree: &Tree, path: &Path) -> Result<()> {
    let full = tree.root.join(path);
    match std::fs::remove_file(&full) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{}: cannot remove", full.display()));
        }
        _ => {}
    }
    for parent in path.ancestors().skip(1).filter(|parent| *parent != Path::new("")) {
        if std::fs::remove_dir(tree.root.join(parent)).is_err() {
            break;
        }
    }
    Ok(())
}
