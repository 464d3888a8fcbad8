//! What stays of a worker's folder when its job has ended well: one file, which tells a later start of the same command
//! that it comes behind the end. Without it a worker that was killed after its data had gone, and before its process had
//! ended, would be told that its own outputs stand in its way.

use super::super::addresses::object_at;
use super::super::destinations::store_of;
use super::super::object_inputs::{OPENING_THREADS, each_of};
use super::super::outputs::is_updated_index;
use super::super::sink::is_device;
use super::super::spec::JobSpec;
use super::bench::{Bench, Membership};
use super::folder::{ENDED, JOURNAL};
use super::notes::LAYOUT_VERSION;
use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use umbel_files::OutputFolder;

/// What names of folders begin with that nobody named.
pub const FOLDER_PREFIX: &str = ".umbel-job-";

/// How long such a folder stays behind its job's end. Whoever starts what was killed does so within minutes; a day is
/// also enough for people who look in the morning.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Bytes of a note that are read: paths of a million outputs. What is longer is none.
const NOTE_BYTES_MAX: u64 = 256 << 20;

/// An output under its name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Standing {
    path: PathBuf,
    /// Its length, if it is a file.
    bytes: Option<u64>,
}

/// That a worker's job has ended, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct EndNote {
    version: u32,
    job: u64,
    worker: u16,
    spec_digest: [u8; 16],
    /// Bad records, by which the command exits.
    bad: u64,
    outputs: Vec<Standing>,
}

impl EndNote {
    /// The note of a worker whose outputs, among them these, stand.
    pub(super) fn new(
        bench: &Bench,
        bad: u64,
        outputs: impl Iterator<Item = PathBuf>,
    ) -> Result<Self> {
        let Membership { job, worker, spec_digest } = bench.member;
        let last = [&bench.spec.summary, &bench.spec.page].into_iter().flatten().cloned();
        let paths: BTreeSet<PathBuf> = outputs.chain(last).collect();
        // What a new job would replace or write to says nothing of an end.
        let would_refuse =
            |path: &PathBuf| !is_updated_index(&bench.spec, path) && !is_device(path);
        let outputs = paths.into_iter().filter(would_refuse).map(|path| {
            let bytes = match object_at(&path)? {
                Some(_) => None,
                None => {
                    let found = std::fs::metadata(&path);
                    Some(found.with_context(|| path.display().to_string())?.len())
                }
            };
            Ok(Standing { path, bytes })
        });
        let outputs = outputs.collect::<Result<_>>()?;
        Ok(Self { version: LAYOUT_VERSION, job, worker, spec_digest, bad, outputs })
    }

    /// As the file has it.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).context("note of the end")
    }

    /// Whether all outputs stand, and there are any.
    fn stands(&self, spec: &JobSpec) -> Result<bool> {
        let mut objects = Vec::new();
        for Standing { path, bytes } in &self.outputs {
            match object_at(path)? {
                Some(address) => objects.push((store_of(spec, path)?, address)),
                None if std::fs::metadata(path).ok().map(|found| found.len()) == *bytes => {}
                None => return Ok(false),
            }
        }
        let has = |index: usize| {
            let (store, address) = &objects[index];
            store.has(address).with_context(|| format!("{address}: cannot look for it"))
        };
        let found = each_of(OPENING_THREADS, objects.len(), has)?;
        Ok(!self.outputs.is_empty() && found.into_iter().all(|is_there| is_there))
    }
}

/// Whether the job of this command had ended before, and how many bad records it has left out: only where the command
/// would be refused as a new job, for all outputs stand and are not to be replaced.
///
/// # Errors
///
/// If a store cannot be asked for them.
pub fn ended_before(spec: &JobSpec, member: &Membership, folder: &Path) -> Result<Option<u64>> {
    // A journal tells all by itself.
    if spec.overwrite || folder.join(JOURNAL).exists() {
        return Ok(None);
    }
    let path = folder.join(ENDED);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(NOTE_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("{}: cannot read", path.display()))?,
    };
    // What another release has left says nothing, as if it were not there.
    let Ok(note) = serde_json::from_slice::<EndNote>(&bytes) else { return Ok(None) };
    let Membership { job, worker, spec_digest } = *member;
    let is_same = (note.version, note.job, note.worker, note.spec_digest)
        == (LAYOUT_VERSION, job, worker, spec_digest);
    Ok((is_same && note.stands(spec)?).then_some(note.bad))
}

/// Removes the note of a folder if nothing else is left of its job, and it is old. Others may write to the directory that
/// the folder is in: what a link there leads to is none of ours.
fn remove_note(folder: &Path, now: Duration) -> std::io::Result<bool> {
    let folder = OutputFolder::unless_linked(folder)?;
    let note = Path::new(ENDED);
    let written = folder.modified(note)?.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let is_old = written.is_some_and(|at| at.saturating_add(KEPT) < now);
    if !is_old || folder.has(Path::new(JOURNAL))? {
        return Ok(false);
    }
    folder.remove(note).map(|()| true)
}

/// Removes what jobs that ended long ago have left in a scratch directory. What cannot be removed stays: it is in
/// nobody's way.
pub fn remove_old(scratch: &Path, own: &Path, now: Duration) {
    let Ok(entries) = std::fs::read_dir(scratch) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path == own || !name.as_encoded_bytes().starts_with(FOLDER_PREFIX.as_bytes()) {
            continue;
        }
        if remove_note(&path, now).is_ok_and(|is_removed| is_removed) {
            let _ = std::fs::remove_dir(&path);
        }
    }
}
