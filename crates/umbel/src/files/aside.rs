//! Names of what is not finished: outputs that wait beside their names, and directories that a session fills.
//!
//! A process that is killed leaves them behind, so whoever walks a directory meets them. They hold half of something,
//! and are never read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// How names of directories begin that hold what a reconciliation brought until it is put in place.
pub(crate) const STAGING_PREFIX: &str = ".umbel-reconcile-";

/// How names of outputs end until they are complete.
const PARTIAL_SUFFIX: &[u8] = b".partial";

/// What stands in such a name before its writer.
const WRITER_MARK: &[u8] = b".umbel-";

/// Whether a file or directory of this name (not path) is an output of any `umbel` command that is not finished:
/// `.NAME.umbel-WRITER.partial` or `.umbel-reconcile-…`.
///
/// Every walk of a directory and every match of a glob leaves these out.
pub(crate) fn is_unfinished_output(name: &OsStr) -> bool {
    let name = name.as_bytes();
    if name.starts_with(STAGING_PREFIX.as_bytes()) {
        return true;
    }
    let Some(stem) = name.strip_suffix(PARTIAL_SUFFIX) else { return false };
    let mark = stem.windows(WRITER_MARK.len()).rposition(|window| window == WRITER_MARK);
    let Some(at) = mark.filter(|_| stem.starts_with(b".")) else { return false };
    let writer = &stem[at + WRITER_MARK.len()..];
    !writer.is_empty() && writer.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_outputs_are_told_by_their_names() {
        let unfinished = [
            ".x.umbel-1.partial",
            ".a b.umbel-c.gz.umbel-4711.partial",
            ".out.umbel-00ff00ff00ff00ff-12.partial",
            ".umbel-7d.partial",
            ".umbel-reconcile-Xy12",
        ];
        let others = [
            "x.umbel-1.partial",
            ".x.umbel-.partial",
            ".x.umbel-1.partial.txt",
            ".x.partial",
            ".umbel-x",
            ".x.umbel-a.b.partial",
            "umbel-reconcile-1",
            "",
        ];
        unfinished
            .iter()
            .for_each(|name| assert!(is_unfinished_output(OsStr::new(name)), "{name}"));
        others.iter().for_each(|name| assert!(!is_unfinished_output(OsStr::new(name)), "{name}"));
    }
}
