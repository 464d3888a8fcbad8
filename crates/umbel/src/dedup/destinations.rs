//! Where outputs go: files, and objects of a store, by what their names say.

use super::inputs::Source;
use super::job::{JobSpec, OutputTarget};
use super::object_inputs::{OPENING_THREADS, each_of, object_address};
use super::outputs::{BAD_LIST_NAME, output_path};
use super::sink::{Sink, refuse_existing_file};
use crate::exit::UsageError;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_objects::{ObjectAddress, ObjectStore, Upload, is_object_address};
use umbel_records::Compression;

/// Whether an output is an object.
pub(crate) fn is_object(path: &Path) -> bool {
    // What is no UTF-8 may still mean one, and is refused later.
    is_object_address(&path.to_string_lossy())
}

/// The object that a path names, if it names one.
///
/// # Errors
///
/// A [`UsageError`] if it cannot be one.
pub(crate) fn object_at(path: &Path) -> Result<Option<ObjectAddress>> {
    if !is_object(path) {
        return Ok(None);
    }
    let refuse = |text: &str| UsageError(format!("{}: {text}", path.display()));
    let name = path.to_str().ok_or_else(|| refuse("keys of objects are UTF-8"))?;
    let address = object_address(name)?;
    if address.is_prefix() {
        return Err(refuse("expected the key of an object, which does not end in a slash").into());
    }
    Ok(Some(address))
}

/// Whether a place that an output goes to is a directory, by its name or by what stands there.
pub(crate) fn is_directory(path: &Path) -> bool {
    if is_object(path) {
        let address = ObjectAddress::parse(&path.to_string_lossy());
        return address.is_ok_and(|address| address.is_prefix());
    }
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Makes the directory that an output goes to. Objects need none.
pub(crate) fn make_directory(directory: &Path) -> Result<()> {
    if is_object(directory) {
        return Ok(());
    }
    std::fs::create_dir_all(directory)
        .with_context(|| format!("{}: cannot create directory", directory.display()))
}

/// A sink for a file or an object under this name, packed like this.
///
/// # Errors
///
/// As for [`Sink::packed_file`].
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
/// A [`UsageError`] if it cannot be one.
pub(crate) fn upload_to(spec: &JobSpec, path: &Path) -> Result<Option<Upload>> {
    let Some(address) = object_at(path)? else { return Ok(None) };
    Ok(Some(Upload::new(&store_of(spec, path)?, address, spec.overwrite, &spec.scratch)))
}

/// Refuses outputs that stand there already, unless they may be replaced. Stores are asked side by side.
///
/// # Errors
///
/// A [`UsageError`] that names the first one; or that the store cannot be asked.
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
        if store.has(address).with_context(|| format!("{address}: cannot look for it"))? {
            return Err(UsageError(format!("{address} exists: --overwrite replaces it")).into());
        }
        Ok(())
    };
    each_of(OPENING_THREADS, objects.len(), look).map(drop)
}

/// Finds out, before anything is read, whether objects may be written where outputs go.
///
/// # Errors
///
/// Names the output.
pub(crate) fn try_objects(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let mut paths: Vec<PathBuf> = spec.named_outputs().map(|(_, path)| path.to_owned()).collect();
    if let OutputTarget::Directory(root) = &spec.output {
        paths.extend(sources.first().map(|source| output_path(spec, root, source)));
        paths.extend(spec.skip_bad.is_some().then(|| root.join(BAD_LIST_NAME)));
    }
    // One behind the other: a process that is killed meanwhile leaves one upload, not many.
    for path in &paths {
        if let Some(address) = object_at(path)? {
            let tried = store_of(spec, path)?.try_upload(&address);
            tried.with_context(|| format!("{address}: cannot write"))?;
        }
    }
    Ok(())
}

/// The store of an output, if this process can write to it.
///
/// # Errors
///
/// A [`UsageError`] if it has no credentials.
pub(crate) fn store_of(spec: &JobSpec, path: &Path) -> Result<Arc<ObjectStore>> {
    let store = spec.stores.store()?;
    if !store.signs() {
        let text = format!(
            "{}: outputs are not written without credentials, for the signature holds the hash of what is stored: set \
             AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            path.display()
        );
        return Err(UsageError(text).into());
    }
    Ok(store)
}
