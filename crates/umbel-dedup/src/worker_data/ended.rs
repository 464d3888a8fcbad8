//! The end record: the one file that remains of a worker's folder when its job has succeeded.
//!
//! If a worker is killed after its folder was removed, but before its process has ended, a supervisor starts
//! the same command again. The end record tells the new process that the job has ended; without it, the
//! process would reject the command, because the command's own outputs exist.

use super::super::addresses::object_at;
use super::super::agreement::digest_of;
use super::super::destinations::store_of;
use super::super::object_inputs::{OPENING_THREADS, each_of};
use super::super::outputs::is_updated_index;
use super::super::spec::JobSpec;
use super::bench::{Bench, Membership};
use super::folder::{ENDED, JOURNAL};
use super::journal_records::LAYOUT_VERSION;
use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use umbel_files::{OutputFolder, is_device};

/// Prefix of the names of folders that the user did not name.
pub const FOLDER_PREFIX: &str = ".umbel-job-";

/// How long an end record is kept: supervisors restart a killed process within minutes, people may do so the
/// next morning.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Most bytes of an end record: the paths of a million outputs.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// An output that has its final name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct NamedOutput {
    path: PathBuf,
    /// Its length, if it is a file.
    bytes: Option<u64>,
}

/// The end of a worker's job and its outputs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct EndRecord {
    version: u32,
    job: u64,
    worker: u16,
    spec_digest: [u8; 16],
    /// See [`digest_of_names`].
    names_digest: [u8; 16],
    /// Bad records, which determine the exit code.
    bad: u64,
    outputs: Vec<NamedOutput>,
}

impl EndRecord {
    /// The end record of a worker whose outputs, and summary and page, exist.
    pub(super) fn new(
        bench: &Bench,
        bad: u64,
        outputs: impl Iterator<Item = PathBuf>,
    ) -> Result<Self> {
        let Membership { job, worker, spec_digest } = bench.member;
        let last = [&bench.spec.summary, &bench.spec.page].into_iter().flatten().cloned();
        let paths: BTreeSet<PathBuf> = outputs.chain(last).collect();
        // Outputs that a new job would replace are no evidence that the job has ended.
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
            Ok(NamedOutput { path, bytes })
        });
        let outputs = outputs.collect::<Result<_>>()?;
        let (version, names_digest) = (LAYOUT_VERSION, digest_of_names(&bench.spec));
        Ok(Self { version, job, worker, spec_digest, names_digest, bad, outputs })
    }

    /// The bytes of the file.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).context("note of the end")
    }

    /// Whether there are outputs, and all of them still exist.
    fn stands(&self, spec: &JobSpec) -> Result<bool> {
        let mut objects = Vec::new();
        for NamedOutput { path, bytes } in &self.outputs {
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

/// The digest of inputs, references and outputs as a worker's command names them. Each worker has its own, so they
/// are no part of the digest that all agree on.
fn digest_of_names(spec: &JobSpec) -> [u8; 16] {
    let read = (&spec.inputs, &spec.names, &spec.references);
    let outputs: Vec<_> = spec.named_outputs().collect();
    digest_of(&format!("{read:?} {:?} {outputs:?}", spec.output))
}

/// The number of bad records that this command's job has skipped, if the job has ended before. `None` also if
/// the command names other inputs or outputs than the one that has ended, and if a new job would not be rejected: if
/// an output is missing, or existing outputs are to be replaced.
///
/// # Errors
///
/// An object store cannot be queried for the outputs.
pub fn ended_before(spec: &JobSpec, member: &Membership, folder: &Path) -> Result<Option<u64>> {
    // If there is a journal, the job is resumed from it.
    if spec.overwrite || folder.join(JOURNAL).exists() {
        return Ok(None);
    }
    let path = folder.join(ENDED);
    let mut bytes = Vec::new();
    let read =
        File::open(&path).and_then(|file| file.take(RECORD_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("{}: cannot read", path.display()))?,
    };
    // A record of another release, which may lack a field, is ignored.
    let Ok(record) = serde_json::from_slice::<EndRecord>(&bytes) else { return Ok(None) };
    let Membership { job, worker, spec_digest } = *member;
    let is_same = (record.version, record.job, record.worker, record.spec_digest)
        == (LAYOUT_VERSION, job, worker, spec_digest)
        && record.names_digest == digest_of_names(spec);
    Ok((is_same && record.stands(spec)?).then_some(record.bad))
}

/// Removes a folder's end record if it is old and the folder has no journal. Other users may write to the
/// directory that contains the folder, so links are not followed.
fn remove_end_record(folder: &Path, now: Duration) -> std::io::Result<bool> {
    let folder = OutputFolder::unless_linked(folder)?;
    let record = Path::new(ENDED);
    let written = folder.modified(record)?.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let is_old = written.is_some_and(|at| at.saturating_add(KEPT) < now);
    if !is_old || folder.has(Path::new(JOURNAL))? {
        return Ok(false);
    }
    folder.remove(record).map(|()| true)
}

/// Removes old end records and their folders from a scratch directory, except `own`. Ignores those that
/// cannot be removed.
pub fn remove_old(scratch: &Path, own: &Path, now: Duration) {
    let Ok(entries) = std::fs::read_dir(scratch) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path == own || !name.as_encoded_bytes().starts_with(FOLDER_PREFIX.as_bytes()) {
            continue;
        }
        if remove_end_record(&path, now).is_ok_and(|is_removed| is_removed) {
            let _ = std::fs::remove_dir(&path);
        }
    }
}
