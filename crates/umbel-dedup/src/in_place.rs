//! `--in-place`: replaces every input file by its kept records.
//!
//! The outputs are those of an output directory, each with the name of its input. Before anything is read,
//! inputs are rejected that cannot be replaced, or whose replacement would change more than their content:
//! pipes, objects, links, and one file under two names.

use super::inputs::Source;
use super::spec::JobSpec;
use crate::error::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use umbel_files::Inode;
use umbel_files::UsageError;

/// Most temporary files with a lock of their own, which stay open until the end; with more files, one locked file in their
/// common directory marks all as in use. A quarter of the 1,024 files that a process may usually open.
pub(crate) const OWN_LOCKS_MAX: usize = 256;

/// Refuses inputs that cannot be replaced.
///
/// # Errors
///
/// A [`UsageError`] that names the input.
pub(crate) fn check_in_place(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    if !spec.in_place {
        return Ok(());
    }
    let mut names: BTreeMap<Inode, &str> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_unreadable() && !source.is_copied) {
        let name = &source.name;
        let refuse = |text: String| Err(UsageError(format!("--in-place: {text}")).into());
        let Some(inode) = source.inode.filter(|_| source.identity.is_some()) else {
            return refuse(format!("{name} is no file that could be replaced"));
        };
        if source.identity.as_ref() != Some(&source.absolute) {
            return refuse(format!(
                "{name} is a link: name the file that it leads to, or --exclude it"
            ));
        }
        if let Some(other) = names.insert(inode, name) {
            return refuse(format!("{other} and {name} are one file: leave one of them out"));
        }
    }
    Ok(())
}

/// The directory that all files have in common.
pub(crate) fn common_directory(sources: &[Source]) -> Option<PathBuf> {
    let source = sources.iter().find(|source| source.inode.is_some())?;
    let steps = source.relative.components().count();
    source.absolute.ancestors().nth(steps).map(Path::to_owned)
}
