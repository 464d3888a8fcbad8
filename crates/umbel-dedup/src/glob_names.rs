//! Finds what a glob passes over in silence: names that are not UTF-8, which the crate `glob` matches with no pattern.

use crate::error::{Result, bail};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use umbel_files::is_unfinished_output;

/// The part of a pattern that stands for any number of directories.
const ANY_DEPTH: &str = "**";

/// Checks that a glob leaves out no file because of its name: the records would be lost without a word.
///
/// # Errors
///
/// Names the first file, or directory on the way, that the pattern would match if its name were text. It is no
/// [`UsageError`](umbel_files::UsageError): a node of a cluster ignores those of a pattern.
pub(super) fn check_names(pattern: &str) -> Result<()> {
    let mut parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    parts.dedup_by(|part, before| part == before && *part == ANY_DEPTH);
    let start = if pattern.starts_with('/') { "/" } else { "" };
    match passed_over(Path::new(start), &parts) {
        None => Ok(()),
        Some(path) => bail!(
            "{pattern}: {} has a name that is not UTF-8, which a glob does not match: name it, or its directory",
            path.as_os_str().as_bytes().escape_ascii()
        ),
    }
}

/// The first path below `directory` that these parts of a pattern would match, but for a name that is not UTF-8.
/// What cannot be read is left to the glob, which reports it.
fn passed_over(directory: &Path, parts: &[&str]) -> Option<PathBuf> {
    let (part, rest) = parts.split_first()?;
    if !part.contains(['*', '?', '[']) {
        return passed_over(&directory.join(part), rest);
    }
    let is_any_depth = *part == ANY_DEPTH;
    if is_any_depth {
        let found = passed_over(directory, rest);
        // Without a further part, the pattern matches directories only.
        if found.is_some() || rest.is_empty() {
            return found;
        }
    }
    let pattern = glob::Pattern::new(part).ok()?;
    let is_here = directory.as_os_str().is_empty();
    let entries = std::fs::read_dir(if is_here { Path::new(".") } else { directory }).ok()?;
    let mut names: Vec<OsString> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.retain(|name| !is_unfinished_output(name));
    names.sort_unstable();
    names.into_iter().find_map(|name| {
        let path = directory.join(&name);
        if is_any_depth {
            return if path.is_dir() { passed_over(&path, parts) } else { None };
        }
        if !pattern.matches(&name.to_string_lossy()) {
            return None;
        }
        match name.to_str() {
            Some(_) => passed_over(&path, rest),
            // The last part is for files, and those before it are for directories.
            None => (path.is_dir() != rest.is_empty()).then_some(path),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::chain_text;
    use std::ffi::OsStr;

    #[test]
    fn a_name_that_a_pattern_passes_over_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let odd = |bytes: &'static [u8]| directory.path().join(OsStr::from_bytes(bytes));
        std::fs::create_dir_all(odd(b"a/b")).unwrap();
        std::fs::create_dir_all(odd(b"a/odd\xfe")).unwrap();
        std::fs::write(odd(b"a/b/bad\xff.txt"), "x\n").unwrap();
        std::fs::write(odd(b"a/b/good.txt"), "x\n").unwrap();
        let root = directory.path().to_str().unwrap();
        for (pattern, name) in [
            ("a/b/*", r"a/b/bad\xff.txt"),
            ("a/*/*.txt", r"a/b/bad\xff.txt"),
            ("**/*.txt", r"a/b/bad\xff.txt"),
            ("a/**/**/bad*", r"a/b/bad\xff.txt"),
            ("a/odd*/x", r"a/odd\xfe"),
        ] {
            let error = check_names(&format!("{root}/{pattern}")).unwrap_err();
            assert!(!error.is_usage());
            let text = chain_text(&error);
            assert!(text.contains(&format!("/{name} has a name that is not UTF-8")), "{text}");
        }
        for pattern in ["a/b/g*", "a/*", "a/b/*.csv", "a/**", "gone/*", "a/b/good.txt/*"] {
            check_names(&format!("{root}/{pattern}")).unwrap();
        }
    }
}
