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

/// Refuses `-`, a device or a pipe as an output that has to be a file, such as one that is not written from its first
/// byte to its last.
///
/// # Errors
///
/// If the path is one. `flag` is the option that names the output.
pub fn refuse_stream(flag: &str, path: &Path) -> Result<(), UsageError> {
    refuse_standard_output(flag, path)?;
    if is_device(path) {
        return Err(UsageError(format!("{}: {EXPECTED_FILE}", path.display())));
    }
    Ok(())
}

/// Refuses `-` as an output that has to be a file.
///
/// # Errors
///
/// If the path is `-`. `flag` is the option that names the output.
pub fn refuse_standard_output(flag: &str, path: &Path) -> Result<(), UsageError> {
    refuse_dash(&format!("{flag} -"), path, "output")
}

/// Refuses `-` as an input that has to be a file, such as one that is read twice.
///
/// # Errors
///
/// If the path is `-`. `argument` is how the call names it.
pub fn refuse_standard_input(argument: &str, path: &Path) -> Result<(), UsageError> {
    refuse_dash(argument, path, "input")
}

/// Whoever means a file of this name can say so; a file that appears by chance must not change what `-` means.
fn refuse_dash(argument: &str, path: &Path, stream: &str) -> Result<(), UsageError> {
    if path != Path::new("-") {
        return Ok(());
    }
    Err(UsageError(format!(
        "{argument}: standard {stream}, expected a file; ./- is a file of that name"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_is_no_file_and_a_file_of_that_name_has_another() {
        let said = |refused: Result<(), UsageError>| refused.map_err(|UsageError(text)| text);
        assert_eq!(
            said(refuse_stream("--out", Path::new("-"))).unwrap_err(),
            "--out -: standard output, expected a file; ./- is a file of that name"
        );
        let input = said(refuse_standard_input("--file -", Path::new("-"))).unwrap_err();
        assert!(input.starts_with("--file -: standard input, expected a file"), "{input}");
        for path in ["./-", "-x", "--"].map(Path::new) {
            assert_eq!(refuse_stream("--out", path), Ok(()));
            assert_eq!(refuse_standard_input("", path), Ok(()));
        }
    }
}
