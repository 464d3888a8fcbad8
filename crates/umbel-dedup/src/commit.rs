//! The commit of a job: gives all outputs their names, the index and the summary after all others.
//!
//! Objects are completed before files are renamed, because a request is more likely to fail than a rename. If anything
//! fails, new objects are removed again; replaced ones cannot be restored. From the first rename on, an interrupt waits for
//! the end of the commit.

use super::object_inputs::{OPENING_THREADS, each_of};
use super::sink::{Complete, FileAside, Finished, Sink};
use crate::error::{Context, Result};
use std::io::ErrorKind;
use std::path::Path;
use umbel_files::{Placing, existing_output, folder_of, sync_folder};
use umbel_objects::PendingObject;

/// The outputs of a job that are to get their names.
#[derive(Default)]
pub(crate) struct Commit {
    /// Outputs in any order.
    pub(crate) outputs: Vec<Complete>,
    /// Outputs that get their names one after the other, once all others have theirs durably: those by which later jobs, or
    /// people, know that this one is done.
    pub(crate) last: Vec<Complete>,
    /// Whether work follows that an interrupt may still end.
    pub(crate) goes_on: bool,
}

impl Commit {
    /// Gives all outputs their names: first objects in parallel, then files in order, then the last ones.
    ///
    /// # Errors
    ///
    /// A [`UsageError`](umbel_files::UsageError) if something else got the name of an output that replaces nothing; any
    /// error names the output.
    pub(crate) fn carry_out(self) -> Result<()> {
        let (mut files, mut objects) = (Vec::new(), Vec::new());
        for output in finished(self.outputs) {
            match output {
                Finished::File(file) => files.push(file),
                Finished::Object(object) => objects.push(object),
            }
        }
        let last: Vec<Finished> = finished(self.last).collect();
        let last_files = last.iter().filter_map(|output| match output {
            Finished::File(file) => Some(file),
            Finished::Object(_) => None,
        });
        // Looked at before anything is changed; the renames themselves replace nothing either.
        files.iter().chain(last_files).try_for_each(refuse_taken)?;
        let mut done = put(&objects);
        if done.is_ok() {
            // Its own lifetime is shorter than that of the files, which are dropped at the end.
            let mut placing = Placing::begin();
            done = place(&mut placing, &files)
                .and_then(|()| last.iter().try_for_each(|output| place_last(&mut placing, output)));
            // A commit that has failed is the end of the job, too.
            if done.is_err() || !self.goes_on {
                placing.end_job();
            }
        }
        if done.is_err() {
            let last = last.iter().filter_map(|output| match output {
                Finished::Object(object) => Some(object),
                Finished::File(_) => None,
            });
            let all: Vec<&PendingObject> = objects.iter().chain(last).collect();
            let take_back = |index: usize| {
                all[index].take_back();
                Ok(())
            };
            each_of(OPENING_THREADS, all.len(), take_back)?;
        }
        done
    }
}

/// Gives a single output its name.
///
/// # Errors
///
/// Names the output.
pub(crate) fn commit(output: Complete) -> Result<()> {
    Commit { outputs: vec![output], ..Commit::default() }.carry_out()
}

fn finished(outputs: Vec<Complete>) -> impl Iterator<Item = Finished> {
    outputs.into_iter().filter_map(|output| output.finished)
}

/// Writes a single file, and renames it to its name once it is complete.
///
/// # Errors
///
/// A [`UsageError`](umbel_files::UsageError) if it exists and may not be replaced; otherwise the system's error, with the path.
pub fn write_file(path: &Path, overwrite: bool, bytes: &[u8]) -> Result<()> {
    let mut sink = Sink::file(path, overwrite)?;
    sink.write(bytes)?;
    commit(sink.complete()?)
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

/// Refuses a file whose name something else has got since the job began, unless it may be replaced.
fn refuse_taken(file: &FileAside) -> Result<()> {
    let is_taken = !file.replaces && file.path.symlink_metadata().is_ok();
    if is_taken { Err(existing_output(&file.path).into()) } else { Ok(()) }
}

/// Renames files into place, and makes their names durable.
fn place(placing: &mut Placing, files: &[FileAside]) -> Result<()> {
    let mut directories: Vec<&Path> = Vec::new();
    for FileAside { partial, path, replaces } in files {
        match if *replaces {
            placing.rename(partial, path)
        } else {
            placing.rename_new(partial, path)
        } {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !replaces => {
                return Err(existing_output(path).into());
            }
            renamed => {
                renamed.with_context(|| format!("{}: cannot rename into place", path.display()))?;
            }
        }
        let directory = folder_of(path);
        if directories.last() != Some(&directory) {
            directories.push(directory);
        }
    }
    directories.sort_unstable();
    directories.dedup();
    for directory in directories {
        sync_folder(directory).with_context(|| format!("{}: cannot sync", directory.display()))?;
    }
    Ok(())
}

fn place_last(placing: &mut Placing, output: &Finished) -> Result<()> {
    match output {
        Finished::File(file) => place(placing, std::slice::from_ref(file)),
        Finished::Object(object) => put(std::slice::from_ref(object)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(path: &Path) -> Complete {
        let mut sink = Sink::file(path, true).unwrap();
        sink.write(b"new").unwrap();
        sink.complete().unwrap()
    }

    #[test]
    fn what_others_have_made_meanwhile_is_not_replaced_unless_asked() {
        for overwrite in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
            let sinks = [&first, &second].map(|path| Sink::file(path, overwrite).unwrap());
            let outputs = sinks.map(|sink| sink.complete().unwrap()).into();
            std::fs::write(&second, "theirs").unwrap();
            let done = Commit { outputs, ..Commit::default() }.carry_out();
            assert_eq!(done.err().map(|error| error.is_usage()), (!overwrite).then_some(true));
            assert_eq!(first.exists(), overwrite);
            let second = std::fs::read_to_string(&second).unwrap();
            assert_eq!(second, if overwrite { "" } else { "theirs" });
        }
    }

    /// A rename to the name of a folder fails.
    #[test]
    fn the_last_outputs_get_their_names_when_all_others_have_theirs() {
        let names = ["kept", "bad", "index", "summary"];
        for failing in 0..names.len() {
            let folder = tempfile::tempdir().unwrap();
            let paths = names.map(|name| folder.path().join(name));
            let [kept, bad, index, summary] = paths.each_ref().map(|path| complete(path));
            std::fs::create_dir(&paths[failing]).unwrap();
            let (outputs, last) = (vec![kept, bad], vec![index, summary]);
            let commit = Commit { outputs, last, goes_on: false };
            let error = commit.carry_out().unwrap_err().to_string();
            assert!(error.contains(names[failing]), "{error}");
            let placed: Vec<usize> =
                (0..names.len()).filter(|&number| paths[number].is_file()).collect();
            assert_eq!(placed, (0..failing).collect::<Vec<_>>());
            // Nothing else is left.
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), failing + 1);
        }
    }
}
