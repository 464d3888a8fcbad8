//! Determines whether the name of an input or output is a file, a directory, or an object of a store.

use crate::error::{Result, refuse};
use std::path::Path;
use umbel_files::UsageError;
use umbel_files::is_object_address;
use umbel_objects::ObjectAddress;

/// Parses an address of an object or prefix.
///
/// # Errors
///
/// If it is malformed.
pub(super) fn object_address(text: &str) -> Result<ObjectAddress, UsageError> {
    ObjectAddress::parse(text).map_err(|error| UsageError(error.to_string()))
}

/// Whether an output is an object.
pub fn is_object(path: &Path) -> bool {
    // A name that is not UTF-8 may begin like an object; it is refused later.
    is_object_address(&path.to_string_lossy())
}

/// Refuses the name of an input that is not there and looks like an address: none but those of objects are read.
///
/// # Errors
///
/// A [`UsageError`] that names it.
pub(super) fn refuse_address(text: &str) -> Result<()> {
    let is_scheme = |scheme: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        !scheme.is_empty() && scheme.bytes().all(is_allowed)
    };
    if text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)) {
        refuse!("{text}: only s3:// is read; umbel:// goes to --reference");
    }
    Ok(())
}

/// The object that a path names, if it names one.
///
/// # Errors
///
/// A [`UsageError`] if it is malformed.
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

/// Whether an output is a directory, by its name or because one exists there.
pub fn is_directory(path: &Path) -> bool {
    if is_object(path) {
        let address = ObjectAddress::parse(&path.to_string_lossy());
        return address.is_ok_and(|address| address.is_prefix());
    }
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}
