//! The commit of a job: gives all outputs their names, the last output after all others.
//!
//! Objects are completed before files are renamed, because a request is more likely to fail than a rename. If anything
//! fails, new objects are removed again; replaced ones cannot be restored.

use super::object_inputs::{OPENING_THREADS, each_of};
use super::sink::{Complete, Finished, Sink};
use crate::error::{Context, Result};
use std::path::{Path, PathBuf};
use umbel_files::PartialFile;
use umbel_files::{folder_of, sync_folder};
use umbel_objects::PendingObject;

/// Gives all outputs their names: first objects in parallel, then files in order, then the last output.
///
/// # Errors
///
/// Names the output.
pub(crate) fn commit(outputs: Vec<Complete>) -> Result<()> {
    let mut outputs: Vec<Finished> =
        outputs.into_iter().filter_map(|output| output.finished).collect();
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

/// Writes a single file, and renames it to its name once it is complete.
///
/// # Errors
///
/// A [`UsageError`](umbel_files::UsageError) if it exists and may not be replaced; otherwise the system's error, with the path.
pub fn write_file(path: &Path, overwrite: bool, bytes: &[u8]) -> Result<()> {
    let mut sink = Sink::file(path, overwrite)?;
    sink.write(bytes)?;
    commit(vec![sink.complete()?])
}

/// Writes to standard output.
///
/// # Errors
///
/// The system's error; that of a closed reader is recognised by [`DedupError::is_closed_pipe`](crate::DedupError).
pub fn write_stdout(bytes: &[u8]) -> Result<()> {
    let mut sink = Sink::stdout()?;
    sink.write(bytes)?;
    sink.check_reader()
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
