//! Entries that block incoming files: a file where a directory must be, or a directory where a file must
//! be.

use super::{Entry, Tree};
use crate::change::Change;
use crate::error::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;

/// The entries of a tree that must be removed before the incoming files can be put in place; the change
/// removes all of them.
///
/// # Errors
///
/// If the change would keep one of them; the error names it and the incoming file.
pub(super) fn of(tree: &Tree, change: &Change) -> Result<BTreeSet<usize>> {
    let paths: BTreeMap<&Path, usize> =
        tree.entries.iter().map(|entry| &*entry.path).zip(0..).collect();
    let goes: BTreeSet<usize> =
        change.removed.iter().filter_map(|index| usize::try_from(index.0).ok()).collect();
    let mut blocking = BTreeSet::new();
    for item in change.added.iter().chain(change.replaced.values()) {
        let entry = Entry::parse(&item.to_bytes()).context("what came is no file")?;
        let above = entry.path.ancestors().skip(1).filter_map(|path| paths.get(path));
        // Paths are sorted, so those below a path follow it.
        let from = (Bound::Excluded(&*entry.path), Bound::Unbounded);
        let below = paths.range::<Path, _>(from);
        let below = below.take_while(|(path, _)| path.starts_with(&entry.path)).map(|(_, at)| at);
        for &at in above.chain(below) {
            if !goes.contains(&at) {
                let stands = tree.shown(&tree.entries[at].path);
                let kinds = if tree.entries[at].path.starts_with(&entry.path) {
                    "a directory stands where a file comes"
                } else {
                    "a file stands where a directory comes"
                };
                bail!(
                    "{}: {kinds}, and {stands} would be lost: move it, or say --delete with --pull or --push",
                    tree.shown(&entry.path)
                );
            }
            blocking.insert(at);
        }
    }
    Ok(blocking)
}
