//! Calls that make no sense as given, and outputs that exist.

use crate::device::{EXPECTED_FILE, is_device};
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

/// Refuses a device or pipe as an output that cannot be written from its first byte to its last.
///
/// # Errors
///
/// If the path is one; the error names it.
pub fn refuse_device(path: &Path) -> Result<(), UsageError> {
    if is_device(path) {
        return Err(UsageError(format!("{}: {EXPECTED_FILE}", path.display())));
    }
    Ok(())
}
