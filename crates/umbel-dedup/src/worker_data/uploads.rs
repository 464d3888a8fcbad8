//! Outputs of a worker in an object store: an upload's id and the tags of its parts are what a name aside is to a file.
//!
//! An upload is noted when it has begun, and again when all of its parts are there. A later process aborts what was only
//! begun, and puts together what was finished; of what is done already the object's own mark tells.

use super::super::addresses::object_at;
use super::super::destinations::{store_of, upload_to};
use super::super::object_inputs::{OPENING_THREADS, ObjectStores, each_of};
use super::super::spec::JobSpec;
use super::super::turns::lock;
use super::bench::Bench;
use super::notes::{AsideNote, Note, OutputNote, Told, UploadNote};
use crate::error::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;
use umbel_objects::{KeptUpload, ObjectAddress, Upload};

/// Begins the upload of an output, durably noted; nothing if the output is a file.
pub(super) fn begin(bench: &Bench, path: &Path) -> Result<Option<Upload>> {
    let Some(upload) = upload_to(&bench.spec, path)? else { return Ok(None) };
    let upload = upload.begun().with_context(|| format!("{}: cannot begin", path.display()))?;
    let note = UploadNote { path: path.to_owned(), id: upload.id().to_owned() };
    lock(&bench.told).begun.push(note.clone());
    bench.note(&Note::Begun(note))?;
    Ok(Some(upload))
}

/// The upload of an output, if it is one, and where it goes.
fn kept(output: &OutputNote) -> Result<Option<(ObjectAddress, &KeptUpload)>> {
    let AsideNote::Upload(upload) = &output.aside else { return Ok(None) };
    let address = object_at(&output.path)?.context("only objects are uploaded")?;
    Ok(Some((address, upload)))
}

/// Whether an upload that was noted is still there, or its object.
pub(super) fn is_whole(spec: &JobSpec, output: &OutputNote) -> Result<bool> {
    let Some((address, upload)) = kept(output)? else { return Ok(false) };
    let found = store_of(spec, &output.path)?.holds(&address, upload);
    found.with_context(|| format!("{address}: cannot look for its upload"))
}

/// Puts outputs together that are objects, and leaves those that are.
pub(super) fn commit(spec: &JobSpec, outputs: &[&OutputNote]) -> Result<()> {
    let commit = |index: usize| {
        let output = outputs[index];
        let Some((address, upload)) = kept(output)? else { return Ok(()) };
        let done = store_of(spec, &output.path)?.commit(&address, upload, spec.overwrite);
        done.with_context(|| format!("{address}: cannot complete"))
    };
    each_of(OPENING_THREADS, outputs.len(), commit).map(drop)
}

/// Aborts uploads of processes before that have no end, as well as the store can be asked.
pub(super) fn abort_unfinished(told: &mut Told, stores: &ObjectStores) {
    let is_finished = |output: &OutputNote| match &output.aside {
        AsideNote::Upload(upload) => Some(upload.id.clone()),
        AsideNote::File { .. } => None,
    };
    let finished: BTreeSet<String> = told.outputs.iter().filter_map(is_finished).collect();
    let is_over = |upload: &mut UploadNote| !finished.contains(&upload.id);
    let unfinished: Vec<UploadNote> = told.begun.extract_if(.., is_over).collect();
    abort(stores, &unfinished);
}

/// Aborts all uploads of a job that will never be committed.
pub(super) fn abort_all(told: &mut Told, stores: &ObjectStores) {
    let begun = std::mem::take(&mut told.begun);
    abort(stores, &begun);
}

fn abort(stores: &ObjectStores, uploads: &[UploadNote]) {
    let abort = |index: usize| {
        let UploadNote { path, id } = &uploads[index];
        if let Some(address) = object_at(path)? {
            stores.store()?.abort_upload(&address, id);
        }
        Ok(())
    };
    // What cannot be asked for is left to a lifecycle rule of the bucket.
    let _ = each_of(OPENING_THREADS, uploads.len(), abort);
}
