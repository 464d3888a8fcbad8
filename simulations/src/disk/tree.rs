//! Folders and names of the simulated disk. A name leads to an inode; files are changed through
//! inodes, so a lost rename shows the old file again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};

use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use super::content::Content;
use crate::plan::LossMode;

/// Number of a file or folder; never used twice on one disk.
pub(super) type Inode = u64;

const ROOT: Inode = 0;

#[derive(Clone, Default)]
struct Folder {
    names: BTreeMap<String, Inode>,
    durable_names: BTreeMap<String, Inode>,
}

/// A change of one name in a folder: it points to another inode from now on, or to none.
#[derive(Clone)]
struct NameStep {
    folder: Inode,
    name: String,
    inode: Option<Inode>,
}

/// Steps that are applied atomically.
type NameChange = Vec<NameStep>;

/// What a power loss discarded.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Loss {
    /// Bytes of files that differ from before, including those beyond the shorter of the two lengths.
    pub(crate) lost_bytes: u64,
    /// Files of which some changes survived and some did not.
    pub(crate) torn_files: u64,
    /// Creations, renames and removals that were undone.
    pub(crate) lost_names: u64,
}

/// The whole content of the disk, durable or not.
#[derive(Clone)]
pub(super) struct Tree {
    folders: BTreeMap<Inode, Folder>,
    files: BTreeMap<Inode, Content>,
    /// Changes of names that are not durable, in order.
    pending: Vec<NameChange>,
    /// How many open files each inode has.
    open_counts: BTreeMap<Inode, u32>,
    next_inode: Inode,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            folders: BTreeMap::from([(ROOT, Folder::default())]),
            files: BTreeMap::new(),
            pending: Vec::new(),
            open_counts: BTreeMap::new(),
            next_inode: ROOT + 1,
        }
    }
}

/// The parts of a path; paths that lead out of the data folder are refused.
fn parts(path: &str) -> io::Result<Vec<&str>> {
    let part = |part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    let parts: Option<Vec<_>> = Path::new(path).components().map(part).collect();
    parts.filter(|_| !path.contains('\0')).ok_or_else(|| {
        let message = format!("path {path:?} leads out of the data folder");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

/// The result of opening a file.
pub(super) struct Opening {
    /// The file.
    pub(super) inode: Inode,
    /// Bytes that were truncated.
    pub(super) emptied_bytes: usize,
}

impl Tree {
    fn walk(&self, parts: &[&str]) -> io::Result<Inode> {
        let mut inode = ROOT;
        for part in parts {
            let folder = self.folders.get(&inode).ok_or(io::ErrorKind::NotADirectory)?;
            inode = *folder.names.get(*part).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(inode)
    }

    fn folder(&self, parts: &[&str]) -> io::Result<Inode> {
        let inode = self.walk(parts)?;
        if self.folders.contains_key(&inode) {
            Ok(inode)
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// The folder in which a path's last name is, and that name.
    fn place<'a>(&self, path: &'a str) -> io::Result<(Inode, &'a str)> {
        let parts = parts(path)?;
        let (name, above) = parts.split_last().ok_or(io::ErrorKind::IsADirectory)?;
        Ok((self.folder(above)?, name))
    }

    fn named(&self, folder: Inode, name: &str) -> Option<Inode> {
        self.folders[&folder].names.get(name).copied()
    }

    /// The file at a place; not a folder.
    fn file_at(&self, folder: Inode, name: &str) -> io::Result<Inode> {
        let inode = self.named(folder, name).ok_or(io::ErrorKind::NotFound)?;
        if self.files.contains_key(&inode) {
            Ok(inode)
        } else {
            Err(io::ErrorKind::IsADirectory.into())
        }
    }

    fn change(&mut self, change: NameChange) {
        for step in &change {
            let folder = self.folders.entry(step.folder).or_default();
            apply(&mut folder.names, step);
        }
        self.pending.push(change);
    }

    fn new_inode(&mut self) -> Inode {
        self.next_inode += 1;
        self.next_inode - 1
    }

    /// Whether a path exists.
    pub(super) fn exists(&self, path: &str) -> bool {
        parts(path).is_ok_and(|parts| self.walk(&parts).is_ok())
    }

    /// Opens a file: an existing one, or with `create` an empty one.
    pub(super) fn open(&mut self, path: &str, create: bool) -> io::Result<Opening> {
        let (folder, name) = self.place(path)?;
        let inode = match self.file_at(folder, name) {
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
                let inode = self.new_inode();
                self.files.insert(inode, Content::default());
                let name = name.to_owned();
                self.change(vec![NameStep { folder, name, inode: Some(inode) }]);
                inode
            }
            inode => inode?,
        };
        let file = self.files.get_mut(&inode).ok_or(io::ErrorKind::NotFound)?;
        let emptied_bytes = if create { file.len() } else { 0 };
        if emptied_bytes > 0 {
            file.set_len(0);
        }
        *self.open_counts.entry(inode).or_default() += 1;
        Ok(Opening { inode, emptied_bytes })
    }

    /// Closes an open file.
    pub(super) fn close(&mut self, inode: Inode) {
        if let Some(count) = self.open_counts.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                self.open_counts.remove(&inode);
            }
        }
    }

    /// Closes all open files, and corrects the misdirected writes that no durable write follows.
    pub(super) fn close_all(&mut self) {
        self.open_counts.clear();
        self.files.values_mut().for_each(Content::put_right);
        self.forget_unreachable();
    }

    /// An open file's content.
    pub(super) fn file(&mut self, inode: Inode) -> io::Result<&mut Content> {
        self.files.get_mut(&inode).ok_or_else(|| io::Error::other("the file is not open"))
    }

    /// Names in a folder, sorted; empty if the folder does not exist.
    pub(super) fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        match self.folder(&parts(folder)?) {
            Ok(inode) => Ok(self.folders[&inode].names.keys().cloned().collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Creates a folder and its parents, if they do not exist.
    pub(super) fn make_folder(&mut self, path: &str) -> io::Result<()> {
        let parts = parts(path)?;
        for depth in 1..=parts.len() {
            let (above, name) = (self.folder(&parts[..depth - 1])?, parts[depth - 1]);
            match self.named(above, name) {
                Some(inode) if self.folders.contains_key(&inode) => {}
                Some(_) if depth == parts.len() => return Err(io::ErrorKind::AlreadyExists.into()),
                Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    let inode = self.new_inode();
                    self.folders.insert(inode, Folder::default());
                    let (folder, name) = (above, name.to_owned());
                    self.change(vec![NameStep { folder, name, inode: Some(inode) }]);
                }
            }
        }
        Ok(())
    }

    /// Renames a file and returns the length of the file that it replaces, 0 if there is none.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<usize> {
        parts(to)?;
        let (from_folder, from_name) = self.place(from)?;
        let (to_folder, to_name) = self.place(to)?;
        let inode = self.file_at(from_folder, from_name)?;
        let replaced = match self.file_at(to_folder, to_name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            replaced => Some(replaced?),
        };
        if replaced == Some(inode) {
            return Ok(0);
        }
        let step = |folder, name: &str, inode| NameStep { folder, name: name.to_owned(), inode };
        self.change(vec![
            step(from_folder, from_name, None),
            step(to_folder, to_name, Some(inode)),
        ]);
        Ok(replaced.and_then(|inode| self.files.get(&inode)).map_or(0, Content::len))
    }

    /// Removes a file's name and returns the length of the file.
    pub(super) fn remove(&mut self, path: &str) -> io::Result<usize> {
        let (folder, name) = self.place(path)?;
        let inode = self.file_at(folder, name)?;
        let name = name.to_owned();
        self.change(vec![NameStep { folder, name, inode: None }]);
        Ok(self.files[&inode].len())
    }

    /// Removes a folder's name, if there is such a folder and it is empty.
    pub(super) fn remove_folder(&mut self, path: &str) -> io::Result<()> {
        let (above, name) = match self.place(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            place => place?,
        };
        let Some(inode) = self.named(above, name) else { return Ok(()) };
        let folder = self.folders.get(&inode).ok_or(io::ErrorKind::NotADirectory)?;
        if folder.names.is_empty() {
            self.change(vec![NameStep { folder: above, name: name.to_owned(), inode: None }]);
        }
        Ok(())
    }

    /// Makes the names in a folder durable. A rename touches two folders, so earlier changes of the other
    /// one become durable, too: the order of changes within a folder is preserved.
    pub(super) fn sync_folder(&mut self, path: &str) -> io::Result<()> {
        let mut touched = BTreeSet::from([self.folder(&parts(path)?)?]);
        let (mut hardened, mut left) = (Vec::new(), Vec::new());
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            if change.iter().any(|step| touched.contains(&step.folder)) {
                touched.extend(change.iter().map(|step| step.folder));
                hardened.push(change);
            } else {
                left.push(change);
            }
        }
        left.reverse();
        self.pending = left;
        if hardened.is_empty() {
            return Ok(());
        }
        hardened.iter().rev().for_each(|change| self.harden(change));
        self.forget_unreachable();
        Ok(())
    }

    fn harden(&mut self, change: &NameChange) {
        for step in change {
            apply(&mut self.folders.entry(step.folder).or_default().durable_names, step);
        }
    }

    /// Loses names and contents that were not synced. Nothing is open afterwards.
    pub(super) fn lose(&mut self, mode: LossMode, rng: &mut ChaCha8Rng) -> Loss {
        self.close_all();
        let mut loss = Loss::default();
        for file in self.files.values_mut() {
            let file_loss = file.lose(mode, rng);
            loss.lost_bytes += file_loss.lost_bytes;
            loss.torn_files += u64::from(file_loss.is_torn);
        }
        let pending = std::mem::take(&mut self.pending);
        let kept = rng.random_range(0..=pending.len());
        pending[..kept].iter().for_each(|change| self.harden(change));
        loss.lost_names = (pending.len() - kept) as u64;
        for folder in self.folders.values_mut() {
            folder.names = folder.durable_names.clone();
        }
        self.forget_unreachable();
        loss
    }

    /// Drops inodes that are reachable neither from a name (current, durable or pending) nor from an open
    /// file.
    fn forget_unreachable(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut to_visit = vec![ROOT];
        to_visit.extend(self.open_counts.keys());
        let steps = self.pending.iter().flatten();
        to_visit.extend(steps.flat_map(|step| [Some(step.folder), step.inode]).flatten());
        while let Some(inode) = to_visit.pop() {
            reached.insert(inode);
            let Some(folder) = self.folders.get(&inode) else { continue };
            let named = folder.names.values().chain(folder.durable_names.values());
            to_visit.extend(named.filter(|inode| !reached.contains(inode)));
        }
        self.files.retain(|inode, _| reached.contains(inode));
        self.folders.retain(|inode, _| reached.contains(inode));
    }

    /// Files in a folder, by name: the current ones, or those whose names are durable.
    pub(super) fn files_in(&self, folder: &str, durable: bool) -> Vec<(String, Inode)> {
        let Some(folder) = parts(folder)
            .and_then(|parts| self.folder(&parts))
            .ok()
            .and_then(|inode| self.folders.get(&inode))
        else {
            return Vec::new();
        };
        let names = if durable { &folder.durable_names } else { &folder.names };
        let is_file = |(_, inode): &(&String, &Inode)| self.files.contains_key(inode);
        names.iter().filter(is_file).map(|(name, inode)| (name.clone(), *inode)).collect()
    }

    /// Files that are kept, named or not.
    #[cfg(test)]
    pub(super) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Ensures that no inode number of `other`, which this tree is about to replace, is used again.
    pub(super) fn number_above(&mut self, other: &Self) {
        self.next_inode = self.next_inode.max(other.next_inode);
    }
}

fn apply(names: &mut BTreeMap<String, Inode>, step: &NameStep) {
    match step.inode {
        Some(inode) => names.insert(step.name.clone(), inode),
        None => names.remove(&step.name),
    };
}
