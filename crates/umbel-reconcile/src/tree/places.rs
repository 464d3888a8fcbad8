//! Whether this process may change the directories in which a change puts or removes something.

use super::{Entry, Tree};
use crate::change::Change;
use crate::error::{Context, Result};
use rustix::fs::{Access, access};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Checks this before any of the change is applied: one that is refused in its middle would leave a part of
/// it.
///
/// # Errors
///
/// If one of the directories may not be written; the error names it.
pub(super) fn check(tree: &Tree, change: &Change) -> Result<()> {
    for folder in folders(tree, change)? {
        let standing = standing(&tree.root, &folder);
        let writable = access(&standing, Access::WRITE_OK | Access::EXEC_OK);
        writable
            .map_err(io::Error::from)
            .with_context(|| format!("{}: cannot write", standing.display()))?;
    }
    Ok(())
}

/// The directories of a change, relative to the set's own, which is one of them: contents wait there.
fn folders(tree: &Tree, change: &Change) -> Result<BTreeSet<PathBuf>> {
    let mut folders = BTreeSet::new();
    let mut add = |path: &Path| {
        let folder = path.parent().unwrap_or(Path::new(""));
        if !folders.contains(folder) {
            folders.insert(folder.to_owned());
        }
    };
    for item in change.added.iter().chain(change.replaced.values()) {
        add(&Entry::parse(&item.to_bytes()).context("what came is no file")?.path);
    }
    for index in &change.removed {
        let entry = usize::try_from(index.0).ok().and_then(|index| tree.entries.get(index));
        add(&entry.context("an item that is not in the set")?.path);
    }
    if !folders.is_empty() {
        folders.insert(PathBuf::new());
    }
    Ok(folders)
}

/// The directory, or the nearest one above it that stands: those below that are created.
fn standing(root: &Path, folder: &Path) -> PathBuf {
    let mut above = folder.ancestors().map(|above| root.join(above));
    let is_directory =
        |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    above.find(is_directory).unwrap_or_else(|| root.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::ItemSet as _;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use umbel_reconcile_engine::{Item, ItemIndex};

    #[test]
    fn a_directory_that_may_not_be_written_is_known_before_anything_is_applied() {
        let folder = tempfile::TempDir::new().unwrap();
        let locked = folder.path().join("locked");
        std::fs::create_dir(&locked).unwrap();
        std::fs::write(locked.join("gone"), "x").unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let item = |path: &str| {
            let entry = Entry { path: path.into(), mode: 0o644, bytes: 3, hash: [7; 32] };
            Item::Bytes(entry.item())
        };
        let come = |path| Change { added: vec![item("a"), item(path)], ..Change::default() };
        let (here, there) = (come("b/c/d"), come("locked/new/b"));
        let goes = Change { removed: vec![ItemIndex(0)], ..Change::default() };
        let names =
            |change: &Change| folders(&tree, change).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(names(&here), ["", "b/c"].map(PathBuf::from));
        assert_eq!(names(&goes), ["", "locked"].map(PathBuf::from));
        assert!(names(&Change::default()).is_empty());
        assert_eq!(standing(&tree.root, Path::new("locked/new")), locked);
        assert_eq!(standing(&tree.root, Path::new("locked/gone")), locked);

        std::fs::set_permissions(&locked, Permissions::from_mode(0o555)).unwrap();
        assert!(tree.check_change(&here).is_ok());
        // Whoever may write everywhere may write here.
        if access(&locked, Access::WRITE_OK).is_err() {
            for change in [there, goes] {
                let error = format!("{:#}", tree.check_change(&change).unwrap_err());
                assert!(error.contains("locked: cannot write"), "{error}");
            }
        }
        // Else the folder would stay behind.
        std::fs::set_permissions(&locked, Permissions::from_mode(0o755)).unwrap();
    }
}
