//! Checks that no input file was changed after the job opened it.
//!
//! The digests of the second reading find changed bytes, but neither lines that were appended behind the span that the job
//! reads, nor what was changed after the second reading. A job in place would delete such lines with the file.

use super::inputs::Source;
use crate::error::{InputError, Result};

/// Fails if a file was changed, replaced or removed since it was opened. What has no path, as a pipe, and objects, whose
/// version is pinned, are not looked at.
///
/// # Errors
///
/// Names the first such file.
pub(crate) fn check_unchanged(sources: &[Source]) -> Result<()> {
    for source in sources {
        if source.opened.is_some() && source.state_now() != source.opened {
            return Err(InputError::Changed(source.name.clone()).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::format_rule::FormatRule;
    use super::super::inputs::{self, Directories};
    use super::*;
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::SystemTime;

    fn opened(path: &Path) -> Source {
        let scratch = std::env::temp_dir();
        let format = FormatRule::default();
        inputs::source(path.to_owned(), format, &scratch, &mut Directories::default(), None)
            .unwrap()
    }

    #[test]
    fn each_change_of_a_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let changes: [&dyn Fn(); 4] = [
            &|| fs::write(&path, "x\ny\n").unwrap(),
            // Of the same length, and with a time that differs even where clocks are coarse.
            &|| File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap(),
            &|| {
                let (other, times) = (folder.path().join("b"), fs::metadata(&path).unwrap());
                fs::write(&other, "z\n").unwrap();
                File::open(&other).unwrap().set_modified(times.modified().unwrap()).unwrap();
                fs::rename(&other, &path).unwrap();
            },
            &|| fs::remove_file(&path).unwrap(),
        ];
        for change in changes {
            fs::write(&path, "x\n").unwrap();
            let sources = [opened(&path)];
            check_unchanged(&sources).unwrap();
            change();
            let error = check_unchanged(&sources).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}: the file was changed", path.display())));
        }
    }
}
