//! Calls that make no sense as given, and outputs that exist.

use std::path::Path;

/// The call makes no sense as given, or there is nothing to do. Nothing was changed; correct the call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Refuses a path at which a file exists; a device or pipe is allowed.
///
/// # Errors
///
/// If a file exists there; the error names it.
pub fn refuse_existing_file(path: &Path) -> Result<(), UsageError> {
    if path.exists() && !is_device(path) { Err(existing_output(path)) } else { Ok(()) }
}

/// The error for an output that exists and may not be replaced.
pub fn existing_output(path: &Path) -> UsageError {
    UsageError(format!("{} exists: --overwrite replaces it", path.display()))
}

/// Whether this path is a device or pipe, which is written directly.
pub fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}
