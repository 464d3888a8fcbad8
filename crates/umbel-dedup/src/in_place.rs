//! `--in-place`: replaces every input file by its kept records.
//!
//! The outputs are those of an output directory, each with the name of its input. Before anything is read,
//! inputs are rejected that cannot be replaced, or whose replacement would change more than their content:
//! pipes, objects, links, and one file under two names.

use super::inputs::{Source, is_dash};
use super::spec::JobSpec;
use crate::error::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use umbel_files::Inode;
use umbel_files::UsageError;

/// Most temporary files with a lock of their own, which stay open until the end; with more files, one locked file in their
/// common directory marks all as in use. A quarter of the 1,024 files that a process may usually open.
pub(crate) const OWN_LOCKS_MAX: usize = 256;

/// Refuses pipes and devices before they are opened: they would be read to their end, and a pipe that nobody writes to
/// would never open. Only those that are named can be among the inputs.
///
/// # Errors
///
/// A [`UsageError`] that names the input.
pub(crate) fn check_arguments(spec: &JobSpec) -> Result<()> {
    let is_other = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
    };
    let mut named = spec.inputs.iter().filter(|_| spec.in_place);
    match named.find(|arg| is_dash(Path::new(arg)) || is_other(Path::new(arg))) {
        Some(arg) => Err(no_file(&arg.display().to_string()).into()),
        None => Ok(()),
    }
}

fn no_file(name: &str) -> UsageError {
    UsageError(format!("--in-place: {name} is no file that could be replaced"))
}

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
            return Err(no_file(name).into());
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
