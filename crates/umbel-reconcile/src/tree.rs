//! A directory as a set: files and symbolic links with their paths, modes and contents.
//!
//! ```text
//! item  | path | 0 | mode    | bytes  | BLAKE3 of the content |
//!                    u32 LE    u64 LE   32 bytes
//! ```
//!
//! The content of a link is the path that it points to. A directory is present only if something is in
//! it. Owners, times, and the setuid, setgid and sticky bits are not compared.

use super::change::Change;
use super::delta::{Basis, CHUNKS_MAX};
use super::set::{Contents, ItemSet, OpenedContent, Shown, Wanted};
use crate::error::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use umbel_files::{FileState, STAGING_PREFIX};
use umbel_reconcile_engine::{Item, ItemIndex, ItemRef, Pass, SymbolKind};

mod in_the_way;
mod left;
mod places;
mod staging;
mod unsynced;

use staging::Staging;

/// Longest path of an item: the limit of Linux for a whole path.
const PATH_BYTES_MAX: usize = 4096;

/// Bytes of an item after its path and the zero: mode, length, hash.
const FACTS_BYTES: usize = 4 + 8 + 32;

/// Permissions that are compared and set: read, write and execute. The peer must not set setuid, setgid
/// or sticky bits.
const PERMISSIONS: u32 = 0o777;

/// Bits of a mode that mark a link.
const IS_LINK: u32 = 0o120_000;

/// A file or link, as its item describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Path relative to the directory.
    pub(super) path: PathBuf,
    mode: u32,
    pub(super) bytes: u64,
    pub(super) hash: [u8; 32],
}

impl Entry {
    fn is_link(&self) -> bool {
        self.mode & IS_LINK == IS_LINK
    }

    fn permissions(&self) -> u32 {
        self.mode & PERMISSIONS
    }

    fn item(&self) -> Vec<u8> {
        let mut item = self.path.as_os_str().as_bytes().to_vec();
        item.push(0);
        item.extend(self.mode.to_le_bytes());
        item.extend(self.bytes.to_le_bytes());
        item.extend(self.hash);
        item
    }

    /// Parses an item, which may come from a hostile peer.
    ///
    /// # Errors
    ///
    /// If it is not an item of a tree, or its path leads out of the directory.
    pub(super) fn parse(item: &[u8]) -> Result<Self> {
        let path_bytes = item.len().checked_sub(FACTS_BYTES + 1).context("it is too short")?;
        let (path, rest) = item.split_at(path_bytes);
        let (mode, rest) = rest[1..].split_first_chunk().context("it has no mode")?;
        let (bytes, hash) = rest.split_first_chunk().context("it has no length")?;
        ensure!(item[path_bytes] == 0 && !path.contains(&0), "its path has a zero");
        let entry = Self {
            path: OsStr::from_bytes(path).into(),
            mode: u32::from_le_bytes(*mode),
            bytes: u64::from_le_bytes(*bytes),
            hash: hash.try_into().ok().context("it has no hash")?,
        };
        check_path(path)?;
        ensure!(entry.mode & !(PERMISSIONS | IS_LINK) == 0, "its mode is {:o}", entry.mode);
        ensure!(
            !entry.is_link() || entry.bytes <= PATH_BYTES_MAX as u64,
            "its link has {} bytes",
            entry.bytes
        );
        Ok(entry)
    }
}

fn check_path(path: &[u8]) -> Result<()> {
    let shown = || String::from_utf8_lossy(path).into_owned();
    ensure!(path.len() <= PATH_BYTES_MAX, "its path has {} bytes", path.len());
    let is_plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    ensure!(path.split(|byte| *byte == b'/').all(is_plain), "its path is {}", shown());
    let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    ensure!(!first.starts_with(STAGING_PREFIX.as_bytes()), "its path is {}", shown());
    Ok(())
}

/// A path on one line, as rsync shows it: `\#` and three octal digits for a control character, and for a
/// backslash in front of what looks like such an escape. The other side chooses its names.
fn shown_path(path: &[u8]) -> Vec<u8> {
    let is_escape = |bytes: &[u8]| match bytes {
        [b'\\', b'#', digits @ ..] => {
            digits.len() >= 3 && digits[..3].iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    let mut shown = Vec::with_capacity(path.len());
    for (at, &byte) in path.iter().enumerate() {
        if byte.is_ascii_control() || is_escape(&path[at..]) {
            shown.extend(format!("\\#{byte:03o}").into_bytes());
        } else {
            shown.push(byte);
        }
    }
    shown
}

/// A directory, as it was when it was opened.
pub(crate) struct Tree {
    root: PathBuf,
    /// Sorted by path.
    entries: Vec<Entry>,
    /// First bytes of the hash of each entry, and its index, sorted: contents are requested by them.
    prefixes: Vec<([u8; 8], usize)>,
    /// For each entry, the metadata that changes when somebody writes to it.
    stamps: Vec<Stamp>,
    staging: std::sync::Mutex<Option<Staging>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    /// What a write changes. Unlike `changed_s` and `changed_ns`, it stays the same when another name of the
    /// file is removed.
    state: FileState,
    changed_s: i64,
    changed_ns: i64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            state: FileState::of(metadata),
            changed_s: metadata.ctime(),
            changed_ns: metadata.ctime_nsec(),
        }
    }
}

impl Tree {
    /// Checks that the disk has room for this many bytes, before the first of them is written.
    fn check_room(&self, needed: u64) -> Result<()> {
        let disk = rustix::fs::statvfs(&self.root).map_err(std::io::Error::from);
        let disk = disk.with_context(|| self.root.display().to_string())?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        ensure!(
            needed <= free,
            "{}: the other side's files have {needed} bytes, and the disk has {free} left",
            self.root.display()
        );
        Ok(())
    }

    /// Reads a directory and the contents of all its files.
    ///
    /// # Errors
    ///
    /// If something in it cannot be read, is neither file, link nor directory, or changes while it is
    /// read.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(root).with_context(|| root.display().to_string())?;
        ensure!(metadata.is_dir(), "{}: not a directory", root.display());
        let mut found = Vec::new();
        walk(root, Path::new(""), &mut found)?;
        found.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        let (mut entries, mut stamps) = (Vec::new(), Vec::new());
        for (path, metadata) in found {
            let full = root.join(&path);
            let stamp = Stamp::of(&metadata);
            let (hash, bytes) = hash_of(&full, &metadata)?;
            let now =
                std::fs::symlink_metadata(&full).with_context(|| full.display().to_string())?;
            ensure!(
                Stamp::of(&now) == stamp,
                "{}: changed while it was read; nothing was applied: run it again",
                full.display()
            );
            let kind = if metadata.is_symlink() { IS_LINK } else { metadata.mode() & PERMISSIONS };
            entries.push(Entry { path, mode: kind, bytes, hash });
            stamps.push(stamp);
        }
        let staging = std::sync::Mutex::new(None);
        let prefixes = prefixes_of(&entries);
        Ok(Self { root: root.to_owned(), entries, prefixes, stamps, staging })
    }

    fn shown(&self, path: &Path) -> String {
        self.root.join(path).display().to_string()
    }

    /// Checks that an entry is unchanged since the tree was opened.
    fn check(&self, index: usize) -> Result<()> {
        self.check_by(index, Stamp::eq)
    }

    /// Checks that the content of an entry is unchanged since the tree was opened, while the tree itself is
    /// being changed.
    fn check_content(&self, index: usize) -> Result<()> {
        self.check_by(index, |now, opened| now.state == opened.state)
    }

    fn check_by(&self, index: usize, is_same: fn(&Stamp, &Stamp) -> bool) -> Result<()> {
        let path = &self.entries[index].path;
        let now = std::fs::symlink_metadata(self.root.join(path));
        let now = now.with_context(|| self.shown(path))?;
        ensure!(
            is_same(&Stamp::of(&now), &self.stamps[index]),
            "{}: changed meanwhile; run it again",
            self.shown(path)
        );
        Ok(())
    }

    /// A file, cut into chunks for the comparison with another version of it.
    fn basis(&self, index: usize, salt: u64) -> Result<Option<Basis>> {
        let entry = &self.entries[index];
        if entry.is_link() || entry.bytes == 0 {
            return Ok(None);
        }
        self.check(index)?;
        let basis = Basis::of(self.root.join(&entry.path), entry.bytes, salt);
        basis.with_context(|| self.shown(&entry.path)).map(Some)
    }

    /// The contents to request, with at most so many chunks of older versions: the peer accepts no more, and what
    /// is without an older version comes whole.
    fn wanted_within(
        &self,
        change: &Change,
        salt: u64,
        mut chunks_left: u64,
    ) -> Result<Vec<Wanted>> {
        // Lengths of the contents that are here or requested.
        let mut known: BTreeMap<[u8; 32], u64> =
            self.entries.iter().map(|entry| (entry.hash, entry.bytes)).collect();
        let mut wanted = BTreeMap::new();
        let added = change.added.iter().map(|item| (item, None));
        let replaced = change.replaced.iter().map(|(index, item)| (item, Some(index.0)));
        for (item, older) in added.chain(replaced) {
            let entry = Entry::parse(&item.to_bytes()).context("what came is no file")?;
            if let Some(bytes) = known.insert(entry.hash, entry.bytes) {
                // A link, whose length has a limit, may name a content that is none.
                let shown = self.shown(&entry.path);
                ensure!(bytes == entry.bytes, "{shown}: its content has {bytes} bytes");
                continue;
            }
            let older = older.and_then(|index| usize::try_from(index).ok());
            let basis = older.map(|index| self.basis(index, salt)).transpose()?.flatten();
            let basis = basis.filter(|basis| basis.hashes.len() as u64 <= chunks_left);
            chunks_left -= basis.as_ref().map_or(0, |basis| basis.hashes.len() as u64);
            wanted.insert(entry.hash, Wanted { hash: entry.hash, bytes: entry.bytes, basis });
        }
        let wanted: Vec<Wanted> = wanted.into_values().collect();
        self.check_room(wanted.iter().fold(0u64, |sum, wanted| sum.saturating_add(wanted.bytes)))?;
        Ok(wanted)
    }

    fn content(&self, index: usize) -> Result<Box<dyn Read>> {
        let entry = &self.entries[index];
        let path = self.root.join(&entry.path);
        let shown = || path.display().to_string();
        if entry.is_link() {
            let target = std::fs::read_link(&path).with_context(shown)?;
            return Ok(Box::new(std::io::Cursor::new(
                target.into_os_string().into_encoded_bytes(),
            )));
        }
        Ok(Box::new(File::open(&path).with_context(shown)?))
    }
}

fn prefixes_of(entries: &[Entry]) -> Vec<([u8; 8], usize)> {
    let prefix = |entry: &Entry| *entry.hash.first_chunk().expect("a hash is longer");
    let mut prefixes: Vec<([u8; 8], usize)> = entries.iter().map(prefix).zip(0..).collect();
    prefixes.sort_unstable();
    prefixes
}

fn walk(root: &Path, below: &Path, found: &mut Vec<(PathBuf, Metadata)>) -> Result<()> {
    let directory = root.join(below);
    let shown = || directory.display().to_string();
    for child in std::fs::read_dir(&directory).with_context(shown)? {
        let child = child.with_context(shown)?;
        let name = child.file_name();
        if below == Path::new("") && name.as_bytes().starts_with(STAGING_PREFIX.as_bytes()) {
            continue;
        }
        let path = below.join(name);
        let metadata = child.metadata().with_context(|| child.path().display().to_string())?;
        if metadata.is_dir() {
            walk(root, &path, found)?;
        } else if metadata.is_file() || metadata.is_symlink() {
            found.push((path, metadata));
        } else {
            bail!("{}: neither file, link nor directory", child.path().display());
        }
    }
    Ok(())
}

fn hash_of(path: &Path, metadata: &Metadata) -> Result<([u8; 32], u64)> {
    let shown = || path.display().to_string();
    let mut hasher = blake3::Hasher::new();
    if metadata.is_symlink() {
        hasher.update(std::fs::read_link(path).with_context(shown)?.as_os_str().as_bytes());
    } else {
        hasher.update_reader(File::open(path).with_context(shown)?).with_context(shown)?;
    }
    Ok((*hasher.finalize().as_bytes(), hasher.count()))
}

impl ItemSet for Tree {
    fn kind(&self) -> SymbolKind {
        SymbolKind::Hashed
    }

    fn item_count(&self) -> u64 {
        self.entries.len() as u64
    }

    fn scan(&self, pass: &mut Pass) -> Result<()> {
        for (entry, index) in self.entries.iter().zip(0..) {
            pass.add(ItemIndex(index), ItemRef::Bytes(&entry.item()));
        }
        Ok(())
    }

    fn items(&self, wanted: &[ItemIndex]) -> Result<Vec<Item>> {
        let entry = |index: &ItemIndex| self.entries.get(usize::try_from(index.0).ok()?);
        let items = wanted.iter().map(|index| Some(Item::Bytes(entry(index)?.item())));
        items.collect::<Option<Vec<Item>>>().context("an item that is not in the set")
    }

    fn text(&self, item: &Item) -> Vec<u8> {
        let bytes = item.to_bytes();
        shown_path(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
    }

    fn key<'i>(&self, item: &'i Item) -> Option<&'i [u8]> {
        match item {
            Item::Bytes(bytes) => bytes.split(|byte| *byte == 0).next(),
            _ => None,
        }
    }

    fn find(&self, keys: &BTreeSet<&[u8]>) -> Result<BTreeMap<Vec<u8>, ItemIndex>> {
        let paths = self.entries.iter().map(|entry| entry.path.as_os_str().as_bytes());
        let found = paths.zip(0..).filter(|(path, _)| keys.contains(path));
        Ok(found.map(|(path, index)| (path.to_vec(), ItemIndex(index))).collect())
    }

    /// The same content under another path is a rename; other content under the same path is a change.
    fn show(&self, ours: &[Item], theirs: &[Item]) -> Result<Vec<Shown>> {
        let parse = |items: &[Item]| -> Result<Vec<Entry>> {
            items.iter().map(|item| Entry::parse(&item.to_bytes())).collect()
        };
        let (ours, theirs) = (parse(ours)?, parse(theirs)?);
        let paths: BTreeSet<&Path> = theirs.iter().map(|entry| &*entry.path).collect();
        let mut gone: BTreeMap<[u8; 32], Vec<&Entry>> = BTreeMap::new();
        let mut shown = Vec::new();
        let text = |path: &Path| shown_path(path.as_os_str().as_bytes());
        let is_changed = |entry: &&Entry| paths.contains(&*entry.path);
        let changed: BTreeSet<&Path> =
            ours.iter().filter(is_changed).map(|entry| &*entry.path).collect();
        for entry in ours.iter().filter(|entry| !changed.contains(&*entry.path)) {
            gone.entry(entry.hash).or_default().push(entry);
        }
        for entry in theirs {
            if changed.contains(&*entry.path) {
                shown.push(Shown::Changed(text(&entry.path)));
            } else if let Some(from) = gone.get_mut(&entry.hash).and_then(Vec::pop) {
                shown.push(Shown::Renamed { here: text(&from.path), there: text(&entry.path) });
            } else {
                shown.push(Shown::OnlyThere(text(&entry.path)));
            }
        }
        let gone = gone.into_values().flatten();
        shown.extend(gone.map(|entry| Shown::OnlyHere(text(&entry.path))));
        Ok(shown)
    }

    fn contents(&self) -> Option<&dyn Contents> {
        Some(self)
    }

    fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    fn check_change(&self, change: &Change) -> Result<()> {
        in_the_way::of(self, change)?;
        places::check(self, change)
    }

    fn apply(&self, change: &Change) -> Result<()> {
        let staging = self.staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        staging::apply(self, staging, change)
    }
}

impl Contents for Tree {
    fn wanted(&self, change: &Change, salt: u64) -> Result<Vec<Wanted>> {
        self.wanted_within(change, salt, CHUNKS_MAX)
    }

    fn open(&self, prefix: [u8; 8]) -> Result<OpenedContent> {
        let at = self.prefixes.partition_point(|(own, _)| *own < prefix);
        let found = self.prefixes.get(at).filter(|(own, _)| *own == prefix);
        let (_, index) = *found.context("a content that is not here was asked for")?;
        self.check(index)?;
        let Entry { path, bytes, .. } = &self.entries[index];
        let (name, content) = (self.shown(path), self.content(index)?);
        Ok(OpenedContent { name, bytes: *bytes, content })
    }

    fn stage(&self, hash: [u8; 32], bytes: u64, content: &mut dyn Read) -> Result<()> {
        let mut staging = self.staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if staging.is_none() {
            *staging = Some(Staging::new(&self.root)?);
        }
        staging.as_mut().expect("it was made").stage(hash, bytes, content)
    }

    fn sync(&self) -> Result<()> {
        let mut staging = self.staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        staging.as_mut().map_or(Ok(()), Staging::sync)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> Entry {
        Entry { path: path.into(), mode: 0o644, bytes: 3, hash: [7; 32] }
    }

    #[test]
    fn an_item_encodes_its_entry() {
        let item = entry("a/b").item();
        assert_eq!(item.len(), 3 + 1 + 44);
        assert_eq!(Entry::parse(&item).unwrap(), entry("a/b"));
    }

    #[test]
    fn a_name_is_shown_on_one_line() {
        let shown = |path: &[u8]| String::from_utf8(shown_path(path)).unwrap();
        assert_eq!(shown("a/b c\\é#12".as_bytes()), "a/b c\\é#12");
        assert_eq!(shown(b"a\nb\x1b[0m\x7f"), r"a\#012b\#033[0m\#177");
        assert_eq!(shown(br"a\#012 \#12"), r"a\#134#012 \#12");
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in ["", "/etc/passwd", "a/../b", "..", "a//b", "a/", ".umbel-reconcile-1/x"] {
            assert!(Entry::parse(&entry(path).item()).is_err(), "{path:?}");
        }
        let mut item = entry("a").item();
        item[2] = 0xff; // The mode.
        item[4] = 0xff;
        assert!(Entry::parse(&item).is_err());
        for mode in [0o4755, 0o2755, 0o1777] {
            let item = Entry { mode, ..entry("a") }.item();
            assert!(Entry::parse(&item).is_err(), "{mode:o}");
        }
        assert!(Entry::parse(&[0; 44]).is_err());
    }

    #[test]
    fn contents_are_found_by_the_first_bytes_of_their_hashes() {
        let folder = tempfile::TempDir::new().unwrap();
        for number in 0..20u8 {
            std::fs::write(folder.path().join(number.to_string()), vec![number / 2; 3]).unwrap();
        }
        let tree = Tree::open(folder.path()).unwrap();
        let open = |bytes: &[u8]| {
            Contents::open(&tree, *blake3::hash(bytes).as_bytes().first_chunk().unwrap())
        };
        for content in 0..10u8 {
            let mut found = open(&[content; 3]).unwrap();
            let mut read = Vec::new();
            found.content.read_to_end(&mut read).unwrap();
            assert_eq!((found.bytes, read), (3, vec![content; 3]));
            assert!(Path::new(&found.name).starts_with(folder.path()), "{}", found.name);
        }
        assert!(open(b"elsewhere").is_err());
    }

    #[test]
    fn what_the_disk_has_no_room_for_is_not_asked_for() {
        let folder = tempfile::TempDir::new().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let item = |bytes, hash| {
            let entry = Entry { bytes, hash: [hash; 32], ..entry("a") };
            Item::Bytes(entry.item())
        };
        let small = Change { added: vec![item(3, 1)], ..Change::default() };
        assert_eq!(tree.wanted(&small, 0).unwrap().len(), 1);
        // Their sum overflows.
        for huge in [vec![item(1 << 62, 1)], vec![item(u64::MAX, 1), item(u64::MAX, 2)]] {
            let error = tree.wanted(&Change { added: huge, ..Change::default() }, 0).err();
            let message = error.unwrap().to_string();
            assert!(message.contains("the disk has"), "{message}");
        }
    }

    /// A peer that may push could have a file read whole as the target of a link.
    #[test]
    fn a_content_has_one_length() {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join("large"), [7; 9000]).unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let here = *blake3::hash(&[7; 9000]).as_bytes();
        let link = Entry { mode: IS_LINK | 0o777, bytes: 5, hash: here, ..entry("link") };
        let file = Entry { bytes: 9000, hash: [8; 32], ..entry("file") };
        let other = Entry { path: "other".into(), hash: [8; 32], ..link.clone() };
        let wanted = |entries: &[&Entry]| {
            let added = entries.iter().map(|entry| Item::Bytes(entry.item())).collect();
            tree.wanted(&Change { added, ..Change::default() }, 0)
        };
        let honest = Entry { bytes: 9000, hash: here, ..entry("copy") };
        assert_eq!(wanted(&[&honest]).unwrap().len(), 0);
        let error = wanted(&[&link]).err().unwrap().to_string();
        assert!(error.ends_with("link: its content has 9000 bytes"), "{error}");
        assert!(wanted(&[&file, &other]).is_err());
    }

    #[test]
    fn beyond_the_chunks_that_a_peer_accepts_contents_come_whole() {
        let folder = tempfile::TempDir::new().unwrap();
        for name in ["a", "b"] {
            std::fs::write(folder.path().join(name), name.repeat(100_000)).unwrap();
        }
        let tree = Tree::open(folder.path()).unwrap();
        let newer = |path, hash| Item::Bytes(Entry { hash: [hash; 32], ..entry(path) }.item());
        let replaced = [(ItemIndex(0), newer("a", 1)), (ItemIndex(1), newer("b", 2))];
        let change = Change { replaced: replaced.into(), ..Change::default() };
        let chunks = |most| {
            let wanted = tree.wanted_within(&change, 0, most).unwrap();
            let of = |wanted: &Wanted| wanted.basis.as_ref().map_or(0, |basis| basis.hashes.len());
            wanted.iter().map(of).collect::<Vec<_>>()
        };
        let all = chunks(u64::MAX);
        assert!(all[0] > 1 && all[1] > 1, "{all:?}");
        assert_eq!(chunks(all[0] as u64), [all[0], 0]);
        assert_eq!(chunks(all[0] as u64 - 1)[0], 0);
        assert_eq!(chunks(0), [0, 0]);
    }

    #[test]
    fn who_may_act_in_anothers_name_is_not_compared() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(Tree::open(folder.path()).unwrap().entries[0].permissions(), 0o755);
    }
}
