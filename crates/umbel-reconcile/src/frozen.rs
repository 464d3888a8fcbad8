//! A file that must not change while it is reconciled.

use crate::error::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_files::{FileState, UsageError};

/// Refuses `-` as a set: it is standard input.
///
/// # Errors
///
/// If the path is `-`, whether or not there is a file of that name.
pub(crate) fn refuse_dash(path: &Path) -> Result<(), UsageError> {
    if path != Path::new("-") {
        return Ok(());
    }
    let text = "-: standard input is no set, because a set is read more than once: name a file; \
                ./- is a file of that name";
    Err(UsageError(text.into()))
}

/// A file, and its state when it was opened.
pub(crate) struct FrozenFile {
    path: PathBuf,
    file: Arc<File>,
    state: FileState,
}

impl FrozenFile {
    /// Opens a regular file.
    ///
    /// # Errors
    ///
    /// If the path is not a regular file that can be read; the error names the path.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let shown = || path.display().to_string();
        refuse_dash(path)?;
        // Looked at before it is opened: a pipe would wait for somebody who writes to it.
        let metadata = std::fs::metadata(path).with_context(shown)?;
        if metadata.is_dir() {
            bail!(
                "{}: a directory, expected a file: a set that is a directory needs --dir",
                path.display()
            );
        }
        if !metadata.is_file() {
            bail!("{}: not a regular file: a set is read more than once", path.display());
        }
        let file = File::open(path).with_context(shown)?;
        let state = FileState::of(&file.metadata().with_context(shown)?);
        Ok(Self { path: path.to_owned(), file: Arc::new(file), state })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The open file; its cursor is undefined.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.bytes()
    }

    /// When it was last modified: seconds, and nanoseconds.
    pub(crate) fn modified(&self) -> (i64, i64) {
        self.state.modified()
    }

    /// Checks that the path still leads to this file, unchanged.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub(crate) fn check(&self) -> Result<()> {
        let shown = || self.path.display().to_string();
        let now = std::fs::metadata(&self.path).with_context(shown)?;
        if FileState::of(&now) != self.state {
            bail!(
                "{}: changed while it was read; nothing was applied: run it again when nobody writes to the file",
                self.path.display()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_sort_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let frozen = FrozenFile::open(&path).unwrap();
        frozen.check().unwrap();
        assert_eq!(frozen.bytes(), 3);
        std::fs::write(&path, "four").unwrap();
        let error = frozen.check().unwrap_err().to_string();
        assert!(error.contains("changed while it was read"), "{error}");
        let frozen = FrozenFile::open(&path).unwrap();
        std::fs::write(directory.path().join("b"), "four").unwrap();
        std::fs::rename(directory.path().join("b"), &path).unwrap();
        assert!(frozen.check().is_err());
        let error = FrozenFile::open(directory.path()).err().unwrap().to_string();
        assert!(error.contains("--dir"), "{error}");
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = FrozenFile::open(&pipe).err().unwrap().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        let error = FrozenFile::open(Path::new("-")).err().unwrap();
        assert!(error.is_usage() && error.to_string().contains("standard input"), "{error}");
    }
}
