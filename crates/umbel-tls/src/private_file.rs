//! Files of keys and secrets, which are for their owner alone: one rule and one text for all of them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Others than its owner may read or write a file of a key or a secret. Remove their permissions; anyone who has read the
/// file before knows its content: draw another one.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "{}: others than its owner may read or write the {what} (mode {mode:03o}): chmod 600, or 640 if it belongs to root; \
     for secrets of Kubernetes set `defaultMode: 0440`, for those of Docker Swarm `mode: 0440`",
    .file.display()
)]
pub struct OpenToOthers {
    file: PathBuf,
    what: &'static str,
    mode: u32,
}

/// Refuses a file of keys or secrets that others than its owner may read or write; `what` is the word for its content in
/// the error. One that belongs to root may be readable by its group, as Kubernetes mounts secrets with
/// `defaultMode: 0440`; its default is 0644, which is refused.
///
/// # Errors
/// If others may read or write the file.
pub fn check_private(
    file: &Path,
    metadata: &Metadata,
    what: &'static str,
) -> Result<(), OpenToOthers> {
    let mode = metadata.mode() & 0o777;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if mode & forbidden == 0 {
        return Ok(());
    }
    Err(OpenToOthers { file: file.to_owned(), what, mode })
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, metadata, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_of_a_secret_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        write(&file, "key").unwrap();
        let checked = |mode| {
            set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            check_private(&file, &metadata(&file).unwrap(), "key")
                .map_err(|error| error.to_string())
        };
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(checked(mode), Ok(()), "{mode:o}");
        }
        for mode in [0o604, 0o602, 0o620, 0o660, 0o601, 0o666] {
            let expected = format!(
                "{}: others than its owner may read or write the key (mode {mode:o}): chmod 600, or 640 if it belongs to \
                 root; for secrets of Kubernetes set `defaultMode: 0440`, for those of Docker Swarm `mode: 0440`",
                file.display()
            );
            assert_eq!(checked(mode), Err(expected));
        }
        let is_of_root = metadata(&file).unwrap().uid() == 0;
        assert_eq!(checked(0o640).is_ok(), is_of_root);
    }
}
