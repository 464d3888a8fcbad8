//! Outputs of a worker in an object store. Before the commit, an upload's id and the entity tags of its parts
//! serve as a file's temporary name does.
//!
//! An upload is journaled when it has begun, and again when all its parts are stored. A restarted process aborts uploads
//! that have only begun, and completes the others at the commit; an object that is complete already is recognised by the
//! mark in its metadata.

use super::super::addresses::object_at;
use super::super::destinations::{store_of, upload_to};
use super::super::object_inputs::{OPENING_THREADS, ObjectStores, each_of};
use super::super::spec::JobSpec;
use super::super::turns::lock;
use super::bench::Bench;
use super::journal_records::{
    JournalRecord, JournalState, JournaledAside, JournaledOutput, JournaledUpload,
};
use crate::error::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;
use umbel_objects::{KeptUpload, ObjectAddress, Upload};

/// Begins the upload of an output and journals it; `None` if the output is a file.
pub(super) fn begin(bench: &Bench, path: &Path) -> Result<Option<Upload>> {
    let Some(upload) = upload_to(&bench.spec, path)? else { return Ok(None) };
    let upload = upload.begun().with_context(|| format!("{}: cannot begin", path.display()))?;
    let record = JournaledUpload { path: path.to_owned(), id: upload.id().to_owned() };
    lock(&bench.journal_state).begun.push(record.clone());
    bench.append_record(&JournalRecord::Begun(record))?;
    Ok(Some(upload))
}

/// The upload of an output and its address, if the output is an object.
fn kept(output: &JournaledOutput) -> Result<Option<(ObjectAddress, &KeptUpload)>> {
    let JournaledAside::Upload(upload) = &output.aside else { return Ok(None) };
    let address = object_at(&output.path)?.context("only objects are uploaded")?;
    Ok(Some((address, upload)))
}

/// Whether a journaled upload is still open, or its object exists.
pub(super) fn is_whole(spec: &JobSpec, output: &JournaledOutput) -> Result<bool> {
    let Some((address, upload)) = kept(output)? else { return Ok(false) };
    let found = store_of(spec, &output.path)?.holds(&address, upload);
    found.with_context(|| format!("{address}: cannot look for its upload"))
}

/// Completes the uploads of outputs, except for those whose objects exist.
pub(super) fn commit(spec: &JobSpec, outputs: &[&JournaledOutput]) -> Result<()> {
    let commit = |index: usize| {
        let output = outputs[index];
        let Some((address, upload)) = kept(output)? else { return Ok(()) };
        let done = store_of(spec, &output.path)?.commit(&address, upload, spec.overwrite);
        done.with_context(|| format!("{address}: cannot complete"))
    };
    each_of(OPENING_THREADS, outputs.len(), commit).map(drop)
}

/// Aborts the unfinished uploads of earlier processes, as far as the store responds.
pub(super) fn abort_unfinished(journal_state: &mut JournalState, stores: &ObjectStores) {
    let is_finished = |output: &JournaledOutput| match &output.aside {
        JournaledAside::Upload(upload) => Some(upload.id.clone()),
        JournaledAside::File { .. } => None,
    };
    let finished: BTreeSet<String> = journal_state.outputs.iter().filter_map(is_finished).collect();
    let is_over = |upload: &mut JournaledUpload| !finished.contains(&upload.id);
    let unfinished: Vec<JournaledUpload> = journal_state.begun.extract_if(.., is_over).collect();
    abort(stores, &unfinished);
}

/// Aborts all uploads of a job that will never be committed.
pub(super) fn abort_all(journal_state: &mut JournalState, stores: &ObjectStores) {
    let begun = std::mem::take(&mut journal_state.begun);
    abort(stores, &begun);
}

fn abort(stores: &ObjectStores, uploads: &[JournaledUpload]) {
    let abort = |index: usize| {
        let JournaledUpload { path, id } = &uploads[index];
        if let Some(address) = object_at(path)? {
            stores.store()?.abort_upload(&address, id);
        }
        Ok(())
    };
    // Uploads of which the abort fails are left to a lifecycle rule of the bucket.
    let _ = each_of(OPENING_THREADS, uploads.len(), abort);
}
