//! Turns the items that a session received into the change of a set, and writes it to a file: all of it,
//! or nothing.

use super::change::Change;
use super::frozen::FrozenFile;
use super::set::ItemSet;
use crate::error::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use umbel_files::{Likeness, OWNER_ONLY, PartialFile, folder_of, sync_folder};
use umbel_reconcile_engine::{Item, ItemIndex};

/// Most bytes of a record that an error shows.
const SHOWN_BYTES_MAX: usize = 200;

/// A temporary file, written next to the file that it will replace.
pub(crate) struct Target {
    writer: BufWriter<File>,
    unterminated: bool,
}

impl Target {
    /// Writes bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.writer.write_all(bytes)?)
    }

    /// Writes a record; only the last one may lack its line end.
    pub(crate) fn write_record(&mut self, record: &[u8]) -> Result<()> {
        if std::mem::replace(&mut self.unterminated, !record.ends_with(b"\n")) {
            self.write(b"\n")?;
        }
        self.write(record)
    }

    /// Writes a line and its end.
    pub(crate) fn write_line(&mut self, line: &[u8]) -> Result<()> {
        if std::mem::take(&mut self.unterminated) {
            self.write(b"\n")?;
        }
        self.write(line)?;
        self.write(b"\n")
    }
}

/// Replaces a file with what `write` writes: synced, with the old permissions, and only if nobody else
/// changed it meanwhile.
///
/// # Errors
///
/// If the file cannot be written, or somebody changed it; it then keeps its old contents.
pub(crate) fn replace(
    file: &FrozenFile,
    write: impl FnOnce(&mut Target) -> Result<()>,
) -> Result<()> {
    let path = &std::fs::canonicalize(file.path()).with_context(|| shown(file.path()))?;
    let cannot = || format!("{}: cannot write; nothing was changed", path.display());
    let (aside, created) = PartialFile::beside(path, OWNER_ONLY).with_context(cannot)?;
    let metadata = file.file().metadata().with_context(cannot)?;
    let likeness = Likeness::of(&metadata);
    likeness.map_or(Ok(()), |likeness| likeness.give(&created)).with_context(cannot)?;
    let mut target = Target { writer: BufWriter::new(created), unterminated: false };
    write(&mut target).with_context(cannot)?;
    let written = target.writer.into_inner().map_err(std::io::IntoInnerError::into_error);
    written.and_then(|written| written.sync_all()).with_context(cannot)?;
    file.check()?;
    aside.rename_unsynced(path).with_context(cannot)?;
    let folder = folder_of(path);
    sync_folder(folder).with_context(|| format!("{}: cannot sync", folder.display()))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The change of a set that adds the items `added` and removes the items `removed`. If the set already
/// has another version of an added record, `theirs_win` decides: `Some(true)` replaces it, `Some(false)`
/// skips the new version, and `None` counts a conflict.
///
/// # Errors
///
/// If the set cannot be read, or two of the added items have the same key.
pub(crate) fn change_of(
    set: &dyn ItemSet,
    mut added: Vec<Item>,
    removed: Vec<ItemIndex>,
    theirs_win: Option<bool>,
) -> Result<Change> {
    added.sort_unstable();
    check_keys(set, &added)?;
    let mut change = Change::default();
    let ours = set.find(&added.iter().filter_map(|item| set.key(item)).collect())?;
    for item in added {
        match set.key(&item).and_then(|key| ours.get(key).copied()) {
            None => change.added.push(item),
            Some(index) => {
                change.differing_count += 1;
                match theirs_win {
                    Some(true) => drop(change.replaced.insert(index, item)),
                    Some(false) => {}
                    None => change.conflict_count += 1,
                }
            }
        }
    }
    change.removed = removed;
    change.removed.retain(|index| !change.replaced.contains_key(index));
    Ok(change)
}

/// Checks that no two of these sorted items have the same key: no set holds two such records, and one
/// that did could not be read any more. The session compared whole items.
fn check_keys(set: &dyn ItemSet, added: &[Item]) -> Result<()> {
    for pair in added.windows(2) {
        let [first, second] = pair else { continue };
        let is_same = set.key(first).is_some_and(|key| set.key(second) == Some(key));
        let text = |item: &Item| {
            let text = set.text(item);
            String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES_MAX)]).into_owned()
        };
        ensure!(
            !is_same,
            "two records with the same key came, `{}` and `{}`",
            text(first),
            text(second)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, open_set};

    #[test]
    fn two_records_that_come_have_two_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "z\t1\n").unwrap();
        let set = open_set(&path, &Form::TabKeyed).unwrap();
        let item = |line: &str| {
            let (key, value) = line.split_once('\t').unwrap();
            Item::Keyed { key: key.as_bytes().to_vec(), value: value.as_bytes().to_vec() }
        };
        let change = change_of(&*set, vec![item("z\t2"), item("k\t1")], Vec::new(), Some(true));
        let change = change.unwrap();
        assert_eq!((change.added.len(), change.replaced.len()), (1, 1));
        for repeated in ["k", "z"] {
            let items = ["1", "2"].map(|value| item(&format!("{repeated}\t{value}")));
            let came = [&items[..], &[item("l\t1")]].concat();
            let error = change_of(&*set, came, Vec::new(), Some(true)).unwrap_err().to_string();
            assert!(error.contains(&format!("`{repeated}\t1` and `{repeated}\t2`")), "{error}");
        }
    }

    #[test]
    fn two_files_that_come_have_two_paths() {
        let folder = tempfile::tempdir().unwrap();
        let set = open_set(folder.path(), &Form::Tree).unwrap();
        let item = |path: &str, mode: u8| {
            let mut bytes = format!("{path}\0").into_bytes();
            bytes.extend([mode; 44]);
            Item::Bytes(bytes)
        };
        let change_of = |items| change_of(&*set, items, Vec::new(), None);
        assert!(change_of(vec![item("a", 1), item("a/b", 1), item("b", 1)]).is_ok());
        assert!(change_of(vec![item("a", 1), item("a/b", 1), item("a", 2)]).is_err());
    }
}
