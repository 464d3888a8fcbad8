//! The commit of a job: all outputs under their names, the last one behind all others.
//!
//! Objects come before files, for a request may still fail where a rename hardly does. Where anything fails, objects that
//! are new are removed again; nobody can bring back what was replaced.

use super::object_inputs::{OPENING_THREADS, each_of};
use super::sink::{Complete, Finished, Sink};
use crate::error::{Context, Result};
use std::path::{Path, PathBuf};
use umbel_files::PartialFile;
use umbel_files::{folder_of, sync_folder};
use umbel_objects::PendingObject;

/// Puts all outputs under their names: files in order, objects side by side, the last output last.
///
/// # Errors
///
/// Names the output.
pub(crate) fn commit(outputs: Vec<Complete>) -> Result<()> {
    let mut outputs: Vec<Finished> =
        outputs.into_iter().filter_map(|Complete(done)| done).collect();
    let last = outputs.pop();
    let (mut objects, mut files, mut last_object) = (Vec::new(), Vec::new(), Vec::new());
    for output in outputs {
        match output {
            Finished::File(aside, path) => files.push((aside, path)),
            Finished::Object(object) => objects.push(object),
        }
    }
    match last {
        Some(Finished::File(aside, path)) => files.push((aside, path)),
        Some(Finished::Object(object)) => last_object.push(object),
        None => {}
    }
    let done = put(&objects).and_then(|()| rename(files)).and_then(|()| put(&last_object));
    if done.is_err() {
        let all: Vec<&PendingObject> = objects.iter().chain(&last_object).collect();
        let take_back = |index: usize| {
            all[index].take_back();
            Ok(())
        };
        each_of(OPENING_THREADS, all.len(), take_back)?;
    }
    done
}

/// Writes a file of its own, under its name once it is whole.
///
/// # Errors
///
/// A [`UsageError`](umbel_files::UsageError) if it exists and may not be replaced; else what the system said, with the path.
pub fn write_file(path: &Path, overwrite: bool, bytes: &[u8]) -> Result<()> {
    let mut sink = Sink::file(path, overwrite)?;
    sink.write(bytes)?;
    commit(vec![sink.complete()?])
}

/// Writes to standard output.
///
/// # Errors
///
/// What the system said; a reader that has gone is told apart ([`DedupError::is_closed_pipe`](crate::DedupError)).
pub fn write_stdout(bytes: &[u8]) -> Result<()> {
    Sink::stdout()?.write(bytes)
}

fn put(objects: &[PendingObject]) -> Result<()> {
    let put = |index: usize| {
        let object = &objects[index];
        object.commit().with_context(|| format!("{}: cannot complete", object.address()))
    };
    each_of(OPENING_THREADS, objects.len(), put).map(drop)
}

fn rename(files: Vec<(PartialFile, PathBuf)>) -> Result<()> {
    let mut directories: Vec<PathBuf> = Vec::new();
    for (aside, path) in files {
        aside
            .rename_unsynced(&path)
            .with_context(|| format!("{}: cannot rename into place", path.display()))?;
        let directory = folder_of(&path).to_owned();
        if directories.last() != Some(&directory) {
            directories.push(directory);
        }
    }
    directories.sort();
    directories.dedup();
    for directory in directories {
        sync_folder(&directory).with_context(|| format!("{}: cannot sync", directory.display()))?;
    }
    Ok(())
}
