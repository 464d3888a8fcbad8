//! Sinks by name: files or objects of a store.

use super::addresses::{is_object, object_at};
use super::object_inputs::{OPENING_THREADS, each_of};
use super::sink::Sink;
use super::spec::JobSpec;
use crate::error::{Context, DedupError, Result, refuse};
use std::path::Path;
use std::sync::Arc;
use umbel_files::{OutputFolder, make_folders, refuse_existing_file};
use umbel_objects::{ObjectAddress, ObjectError, ObjectStore, Upload};
use umbel_records::Compression;

/// Creates the directory of an output, below the job's roots if it has any. Objects need none.
pub(crate) fn make_directory(spec: &JobSpec, directory: &Path) -> Result<()> {
    if is_object(directory) {
        return Ok(());
    }
    let made = match &spec.roots {
        Some(roots) => OutputFolder::make(roots, directory).map_err(DedupError::from),
        None => make_folders(directory).map_err(DedupError::from),
    };
    made.with_context(|| format!("{}: cannot create directory", directory.display()))
}

/// A sink for a file or an object with this name and compression.
///
/// # Errors
///
/// As [`Sink::packed_file`].
pub(crate) fn open_sink(spec: &JobSpec, path: &Path, compression: Compression) -> Result<Sink> {
    match upload_to(spec, path)? {
        Some(upload) => Sink::object(path, compression, upload),
        None => Sink::packed_file(path, compression, spec.overwrite),
    }
}

/// An upload to the object that a path names, if it names one.
///
/// # Errors
///
/// A usage error if it names no possible object.
pub(crate) fn upload_to(spec: &JobSpec, path: &Path) -> Result<Option<Upload>> {
    let Some(address) = object_at(path)? else { return Ok(None) };
    Ok(Some(Upload::new(&store_of(spec, path)?, address, spec.overwrite, &spec.scratch)))
}

/// Whether a file or an object may have the name of an output: also if the store refuses to say it, as to credentials by
/// which objects are put and not read.
///
/// # Errors
///
/// That of a store that does not respond.
pub(crate) fn output_may_exist(spec: &JobSpec, path: &Path) -> Result<bool> {
    match object_at(path)? {
        Some(address) => {
            let store = store_of(spec, path)?;
            match store.has(&address) {
                Err(ObjectError::Refused(_)) => Ok(true),
                found => found.with_context(|| cannot_look(&address)),
            }
        }
        None => Ok(path.exists()),
    }
}

fn cannot_look(address: &ObjectAddress) -> String {
    format!("{address}: cannot look for it")
}

/// Rejects outputs that exist already, unless they may be replaced. Queries stores in parallel.
///
/// # Errors
///
/// A usage error that names the first such output; the error of a store that does not respond.
pub(crate) fn refuse_existing<'a>(
    spec: &JobSpec,
    paths: impl Iterator<Item = &'a Path>,
) -> Result<()> {
    let mut objects = Vec::new();
    for path in paths {
        match object_at(path)? {
            Some(address) => objects.push((store_of(spec, path)?, address)),
            None if !spec.overwrite => refuse_existing_file(path)?,
            None => {}
        }
    }
    if spec.overwrite {
        return Ok(());
    }
    let look = |index: usize| {
        let (store, address) = &objects[index];
        if store.has(address).with_context(|| cannot_look(address))? {
            refuse!("{address} exists: --overwrite replaces it");
        }
        Ok(())
    };
    each_of(OPENING_THREADS, objects.len(), look).map(drop)
}

/// The store of an output, if this process can write to it.
///
/// # Errors
///
/// A usage error if it has no credentials.
pub(crate) fn store_of(spec: &JobSpec, path: &Path) -> Result<Arc<ObjectStore>> {
    let store = spec.stores.store()?;
    if !store.signs() {
        refuse!(
            "{}: outputs are not written without credentials, for the signature holds the hash of what is stored: set \
             AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            path.display()
        );
    }
    Ok(store)
}
