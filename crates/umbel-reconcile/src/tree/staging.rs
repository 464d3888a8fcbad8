//! Holds received contents until they are put in place.

use super::left::{COPY_MARK, LOCK_NAME, NEXT_NAME, remove_left};
use super::unsynced::Unsynced;
use super::{Entry, PERMISSIONS, STAGING_PREFIX, Tree, hash_of, in_the_way};
use crate::change::Change;
use crate::error::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Permissions, rename};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use umbel_files::{PartialDirectory, is_at, rename_new, sync_folder};

/// Bytes copied at a time.
const COPY_BYTES: usize = 256 << 10;

/// A directory inside the set's own, so that files can be renamed out of it. It is removed when it is
/// dropped or the process is interrupted; the next process removes what a killed one left.
pub(super) struct Staging {
    directory: PartialDirectory,
    /// What is written there and not synced yet.
    unsynced: Unsynced,
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
        Self::begin(root, |_| {}).with_context(|| format!("{}: cannot write", root.display()))
    }

    /// `unlocked` is called with the path of a directory that has no lock yet, and again before its lock is taken; tests
    /// act there as another session may.
    fn begin(root: &Path, mut unlocked: impl FnMut(&Path)) -> std::io::Result<Self> {
        remove_left(root)?;
        loop {
            let directory = PartialDirectory::new_in(root, STAGING_PREFIX)?;
            let path = directory.path().join(LOCK_NAME);
            unlocked(directory.path());
            // Until it is locked, it looks to another session like one that was left.
            let lock = match File::create(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                created => created?,
            };
            unlocked(directory.path());
            lock.lock()?;
            if is_at(&lock, &path)? {
                let unsynced = Unsynced::default();
                return Ok(Self { directory, unsynced, _lock: lock });
            }
        }
    }

    fn path(&self, hash: [u8; 32]) -> PathBuf {
        self.directory.path().join(blake3::Hash::from_bytes(hash).to_hex().as_str())
    }

    /// The path of a content for one of its uses. The last one, 0, gets the content itself.
    fn path_of_use(&self, hash: [u8; 32], number: usize) -> PathBuf {
        let mut path = self.path(hash);
        if number > 0 {
            path.as_mut_os_string().push(format!("{COPY_MARK}{number}"));
        }
        path
    }

    /// Stores a content of `bytes` bytes; [`sync`](Self::sync) makes it durable.
    ///
    /// # Errors
    ///
    /// If it does not match its hash, or cannot be written.
    pub(super) fn stage(
        &mut self,
        hash: [u8; 32],
        bytes: u64,
        content: &mut dyn Read,
    ) -> Result<()> {
        let path = self.path(hash);
        let cannot = || cannot_write(&path);
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
        let file = written.with_context(cannot)?;
        self.unsynced.add(path, file, bytes)
    }

    /// Syncs all that was stored.
    ///
    /// # Errors
    ///
    /// If something could not be written.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.unsynced.sync()
    }

    /// Stores a copy of a content that waits here, for this use of it.
    fn copy_for_use(&mut self, hash: [u8; 32], number: usize) -> Result<()> {
        let path = self.path_of_use(hash, number);
        let copied = std::fs::copy(self.path(hash), &path);
        let opened = copied.and_then(|bytes| Ok((File::open(&path)?, bytes)));
        let (file, bytes) = opened.with_context(|| cannot_write(&path))?;
        self.unsynced.add(path, file, bytes)
    }

    /// Stages a copy of a content that this side already has under another name.
    fn copy(&mut self, tree: &Tree, index: usize) -> Result<()> {
        let (hash, bytes) = (tree.entries[index].hash, tree.entries[index].bytes);
        tree.check(index)?;
        self.stage(hash, bytes, &mut tree.content(index)?)
    }
}

/// The number of the next use of a content: they are counted down to 0.
fn next_use(left: &mut BTreeMap<[u8; 32], usize>, hash: [u8; 32]) -> usize {
    let left = left.get_mut(&hash).expect("all uses were counted");
    *left -= 1;
    *left
}

/// Puts everything in place, one whole file at a time; removals come last.
///
/// # Errors
///
/// If something was changed meanwhile or cannot be written; a second run does the rest.
pub(super) fn apply(tree: &Tree, staging: Option<Staging>, change: &Change) -> Result<()> {
    let mut staging = staging.map_or_else(|| Staging::new(&tree.root), Ok)?;
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
    // Every use of a content but the last is a copy.
    let mut copied = 0u64;
    for entry in &entries {
        let count = uses.entry(entry.hash).or_default();
        if *count > 0 {
            copied = copied.saturating_add(entry.bytes);
        }
        *count += 1;
        if !staging.path(entry.hash).exists() {
            let index = own.get(&entry.hash).context("a content did not come")?;
            staging.copy(tree, *index)?;
        }
    }
    tree.check_room(copied)?;
    let mut left = uses.clone();
    for entry in &entries {
        let number = next_use(&mut left, entry.hash);
        if number > 0 && !entry.is_link() {
            staging.copy_for_use(entry.hash, number)?;
        }
    }
    staging.sync()?;
    let blocking = in_the_way::of(tree, change)?;
    blocking.iter().try_for_each(|&index| remove(tree, index))?;
    let older = change.added.iter().map(|_| None);
    let older = older.chain(change.replaced.keys().map(|index| Some(place(index.0))));
    for (entry, older) in entries.iter().zip(older) {
        let made = make(tree, &staging, entry, next_use(&mut uses, entry.hash))?;
        put(tree, &made, entry, older)?;
    }
    // Sync the incoming files before anything is removed.
    sync_folders(&tree.root, entries.iter().map(|entry| &*entry.path))?;
    let rest: Vec<usize> = removed.filter(|index| !blocking.contains(index)).collect();
    rest.iter().try_for_each(|&index| remove(tree, index))?;
    sync_folders(&tree.root, rest.iter().map(|&index| &*tree.entries[index].path))
}

/// Syncs the directory entries of these paths, and those of the directories created for them.
fn sync_folders<'a>(root: &Path, paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    let folders: BTreeSet<&Path> = paths.flat_map(|path| path.ancestors().skip(1)).collect();
    for folder in folders {
        let folder = root.join(folder);
        match sync_folder(&folder) {
            // It was removed together with its last entry.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            synced => synced.with_context(|| format!("{}: cannot sync", folder.display()))?,
        }
    }
    Ok(())
}

fn cannot_write(path: &Path) -> String {
    format!("{}: cannot write", path.display())
}

/// Makes a file or link for this use of a content in the staging directory, and the directories above its place;
/// removes what blocks the place, if nothing is lost with it. Returns the path of what it made.
fn make(tree: &Tree, staging: &Staging, entry: &Entry, number: usize) -> Result<PathBuf> {
    let target = tree.root.join(&entry.path);
    let cannot = || cannot_write(&target);
    make_parents(&tree.root, &entry.path)?;
    let made = if entry.is_link() {
        let made = staging.directory.path().join(NEXT_NAME);
        let leads_to = std::fs::read(staging.path(entry.hash)).with_context(cannot)?;
        symlink(OsStr::from_bytes(&leads_to), &made).with_context(cannot)?;
        made
    } else {
        let made = staging.path_of_use(entry.hash, number);
        let permissions = Permissions::from_mode(entry.permissions());
        std::fs::set_permissions(&made, permissions).with_context(cannot)?;
        made
    };
    if std::fs::symlink_metadata(&target).is_ok_and(|found| found.is_dir()) {
        remove_empty_directories(&target).with_context(|| {
            format!("{}: a directory stands where a file comes", target.display())
        })?;
    }
    Ok(made)
}

/// Puts what was made in its place; `older` is the entry that it replaces. What somebody has put or written
/// there after the set was read is not replaced.
fn put(tree: &Tree, made: &Path, entry: &Entry, older: Option<usize>) -> Result<()> {
    let target = tree.root.join(&entry.path);
    let placed = match older {
        None => rename_new(made, &target),
        Some(older) => {
            // The copies before may have taken long.
            tree.check_content(older)?;
            rename(made, &target)
        }
    };
    match placed {
        Err(error) if older.is_none() && error.kind() == ErrorKind::AlreadyExists => {
            let is_same = holds(&target, entry).with_context(|| tree.shown(&entry.path))?;
            ensure!(is_same, "{}: changed meanwhile; run it again", tree.shown(&entry.path));
            std::fs::remove_file(made).with_context(|| cannot_write(made))
        }
        placed => placed.with_context(|| cannot_write(&target)),
    }
}

/// Whether the file or link at this path is what the entry describes, so that nothing has to be placed.
fn holds(path: &Path, entry: &Entry) -> Result<bool> {
    let metadata = std::fs::symlink_metadata(path)?;
    let is_alike = if entry.is_link() {
        metadata.is_symlink()
    } else {
        metadata.is_file() && metadata.mode() & PERMISSIONS == entry.permissions()
    };
    Ok(is_alike && hash_of(path, &metadata)? == (entry.hash, entry.bytes))
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

/// Removes a file, unless somebody has written to it after the set was read, and the directories that this
/// leaves empty.
fn remove(tree: &Tree, index: usize) -> Result<()> {
    let path = &*tree.entries[index].path;
    let full = tree.root.join(path);
    if std::fs::symlink_metadata(&full).is_ok() {
        tree.check_content(index)?;
    }
    match std::fs::remove_file(&full) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::unsynced::tests::unsyncable;
    use crate::{
        Contents as _, Driving, Form, Initiative, ItemSet as _, PeerConnection, SessionObserver,
        Timeouts, answer, reconcile,
    };
    use std::time::Duration;
    use tempfile::TempDir;
    use umbel_reconcile_engine::{
        Aim, Direction, Item, ItemIndex, Limits, OnConflict, Options, SessionRole,
    };

    /// A set that was empty when it was read, and a change that adds `a` to it.
    fn receiving(mode: u32, content: &[u8]) -> (TempDir, Tree, Change) {
        let folder = TempDir::new().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let hash = *blake3::hash(content).as_bytes();
        let entry = Entry { path: "a".into(), mode, bytes: content.len() as u64, hash };
        let mut staging = Staging::new(folder.path()).unwrap();
        staging.stage(hash, entry.bytes, &mut &content[..]).unwrap();
        *tree.staging.lock().unwrap() = Some(staging);
        let change = Change { added: vec![Item::Bytes(entry.item())], ..Change::default() };
        (folder, tree, change)
    }

    fn apply_to(tree: &Tree, change: &Change) -> Result<()> {
        let staging = tree.staging.lock().unwrap().take();
        apply(tree, staging, change)
    }

    #[test]
    fn what_was_created_meanwhile_is_not_replaced() {
        let (folder, tree, change) = receiving(0o644, b"theirs");
        let path = folder.path().join("a");
        std::fs::write(&path, "of the user").unwrap();
        let message = apply_to(&tree, &change).unwrap_err().to_string();
        assert_eq!(message, format!("{}: changed meanwhile; run it again", path.display()));
        assert_eq!(std::fs::read(&path).unwrap(), b"of the user");

        // A link at the place is not followed, and a link that comes replaces nothing either.
        let (folder, tree, change) = receiving(0o644, b"theirs");
        symlink("nowhere", folder.path().join("a")).unwrap();
        assert!(apply_to(&tree, &change).is_err());
        let (folder, tree, change) = receiving(super::super::IS_LINK, b"elsewhere");
        std::fs::write(folder.path().join("a"), "of the user").unwrap();
        assert!(apply_to(&tree, &change).is_err());
        assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), b"of the user");
    }

    /// A set of the file `a` under `names`, and the entry that is to replace it.
    fn holding(names: &[&str]) -> (TempDir, Tree, Entry) {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("a"), "ours").unwrap();
        for name in names {
            std::fs::hard_link(folder.path().join("a"), folder.path().join(name)).unwrap();
        }
        let tree = Tree::open(folder.path()).unwrap();
        let (hash, bytes) = (*blake3::hash(b"theirs").as_bytes(), 6);
        let mut staging = Staging::new(folder.path()).unwrap();
        staging.stage(hash, bytes, &mut &b"theirs"[..]).unwrap();
        *tree.staging.lock().unwrap() = Some(staging);
        (folder, tree, Entry { path: "a".into(), mode: 0o644, bytes, hash })
    }

    #[test]
    fn what_was_written_while_a_change_is_applied_is_neither_replaced_nor_removed() {
        let (folder, tree, entry) = holding(&[]);
        let staging = tree.staging.lock().unwrap().take().unwrap();
        let made = make(&tree, &staging, &entry, 0).unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "of the user").unwrap();
        let changed = format!("{}: changed meanwhile; run it again", path.display());
        assert_eq!(put(&tree, &made, &entry, Some(0)).unwrap_err().to_string(), changed);
        assert_eq!(remove(&tree, 0).unwrap_err().to_string(), changed);
        assert_eq!(std::fs::read(&path).unwrap(), b"of the user");
        // What is gone is removed.
        std::fs::remove_file(&path).unwrap();
        remove(&tree, 0).unwrap();
    }

    #[test]
    fn a_file_of_several_names_is_replaced_and_removed_under_all() {
        let (folder, tree, entry) = holding(&["b", "c", "d"]);
        let other = Entry { path: "b".into(), ..entry.clone() };
        let items = [entry, other].map(|entry| Item::Bytes(entry.item()));
        let change = Change {
            replaced: [ItemIndex(0), ItemIndex(1)].into_iter().zip(items).collect(),
            removed: vec![ItemIndex(2), ItemIndex(3)],
            ..Change::default()
        };
        apply_to(&tree, &change).unwrap();
        let names: BTreeSet<PathBuf> =
            std::fs::read_dir(folder.path()).unwrap().map(|child| child.unwrap().path()).collect();
        assert_eq!(names, BTreeSet::from(["a", "b"].map(|name| folder.path().join(name))));
        assert!(names.iter().all(|path| std::fs::read(path).unwrap() == b"theirs"));
    }

    #[test]
    fn what_is_there_already_is_no_change() {
        let (folder, tree, change) = receiving(0o600, b"the same");
        let path = folder.path().join("a");
        std::fs::write(&path, "the same").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        apply_to(&tree, &change).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // Other permissions are a change.
        let (folder, tree, change) = receiving(0o600, b"the same");
        let path = folder.path().join("a");
        std::fs::write(&path, "the same").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(apply_to(&tree, &change).is_err());
    }

    #[test]
    fn each_file_of_one_content_gets_its_own_and_links_lead_where_it_says() {
        let (folder, tree, mut change) = receiving(0o600, b"a");
        let hash = *blake3::hash(b"a").as_bytes();
        let link = super::super::IS_LINK | 0o777;
        for (path, mode) in [("b", link), ("c", 0o644), ("d", link), ("e", 0o755), ("f", link)] {
            change
                .added
                .push(Item::Bytes(Entry { path: path.into(), mode, bytes: 1, hash }.item()));
        }
        apply_to(&tree, &change).unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, mode) in [("a", 0o600), ("c", 0o644), ("e", 0o755)] {
            let metadata = std::fs::symlink_metadata(at(name)).unwrap();
            assert_eq!((metadata.mode() & PERMISSIONS, metadata.nlink()), (mode, 1), "{name}");
            assert_eq!(std::fs::read(at(name)).unwrap(), b"a");
        }
        for name in ["b", "d", "f"] {
            assert_eq!(std::fs::read_link(at(name)).unwrap(), Path::new("a"));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 6);
    }

    /// A set in which something waits that cannot be synced.
    fn failing(folder: &TempDir) -> Tree {
        let tree = Tree::open(folder.path()).unwrap();
        let mut staging = Staging::new(folder.path()).unwrap();
        staging.unsynced.add("bad".into(), unsyncable(), 1).unwrap();
        *tree.staging.lock().unwrap() = Some(staging);
        tree
    }

    #[test]
    fn nothing_is_placed_before_all_contents_are_synced() {
        let folder = TempDir::new().unwrap();
        let tree = failing(&folder);
        let hash = *blake3::hash(b"x").as_bytes();
        tree.stage(hash, 1, &mut &b"x"[..]).unwrap();
        let items = ["a", "b"].map(|path| Entry { path: path.into(), mode: 0o644, bytes: 1, hash });
        let added = items.iter().map(|entry| Item::Bytes(entry.item())).collect();
        let change = Change { added, ..Change::default() };
        assert_eq!(apply_to(&tree, &change).unwrap_err().to_string(), "bad: cannot write");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    struct Silent;

    impl SessionObserver for Silent {
        fn notice(&self, _: std::fmt::Arguments<'_>) {}
    }

    fn driving() -> Driving<'static> {
        let initiative = Initiative { delete: false };
        let timeouts = Timeouts { idle: Duration::from_secs(3600), whole: None };
        Driving { initiative, timeouts, journal: None, observer: &Silent, draw: || 7 }
    }

    fn options(tree: &Tree, role: SessionRole) -> Options {
        let (dataset_id, limits) = (Form::Tree.dataset_id(tree), Limits::default());
        Options { role, kind: tree.kind(), dataset_id, domain: [0; 16], nonce: 5, limits }
    }

    /// If what came were synced only when it is put in place, the other side would have changed its set by then.
    #[test]
    fn what_cannot_be_synced_ends_a_session_before_either_set_is_changed() {
        let folders = ["a", "b"].map(|name| {
            let folder = TempDir::new().unwrap();
            std::fs::write(folder.path().join(name), name).unwrap();
            folder
        });
        let (here, there) = (failing(&folders[0]), Tree::open(folders[1].path()).unwrap());
        let [to_there, to_here] = PeerConnection::pair(["b", "a"].map(str::to_owned)).unwrap();
        let begun = std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let on_conflict = OnConflict::Report;
                let role = SessionRole::Responder { accept_items: true, on_conflict };
                answer(&there, options(&there, role), to_here, driving()).map(drop)
            });
            let role = SessionRole::Initiator(Aim::new(Direction::TwoWay));
            let begun = reconcile(&here, options(&here, role), to_there, driving()).map(drop);
            answering.join().unwrap().unwrap_err();
            begun
        });
        let message = format!("{:#}", begun.unwrap_err());
        assert!(message.contains("nothing was applied here: bad: cannot write"), "{message}");
        drop(here);
        for folder in folders {
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn without_room_for_all_copies_of_a_content_nothing_is_placed() {
        let (folder, tree, mut change) = receiving(0o644, b"theirs");
        let hash = *blake3::hash(b"theirs").as_bytes();
        let copy = Entry { path: "b".into(), mode: 0o644, bytes: 1 << 62, hash };
        change.added.push(Item::Bytes(copy.item()));
        let message = apply_to(&tree, &change).unwrap_err().to_string();
        assert!(message.contains("the disk has"), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_another_session_takes_for_left_is_made_again() {
        let folder = TempDir::new().unwrap();
        let mut seen = Vec::new();
        let staging = Staging::begin(folder.path(), |made| {
            seen.push(made.to_owned());
            // The first one before it has a lock, the second one before that is taken.
            if seen.len() == 1 || seen.len() == 3 {
                remove_left(folder.path()).unwrap();
                assert!(!made.exists());
            }
        });
        let mut staging = staging.unwrap();
        assert_eq!(seen.len(), 5);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 3);
        let content = b"content";
        staging.stage(*blake3::hash(content).as_bytes(), 7, &mut &content[..]).unwrap();
        // From now on it is in use.
        remove_left(folder.path()).unwrap();
        assert!(staging.directory.path().exists());
    }
}
