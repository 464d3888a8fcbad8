//! What an output takes over from the file that it derives from or replaces: the permissions, and the owner
//! where the process may change it.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

/// The permissions that are taken over: read, write and execute. The bits for set-user-id, set-group-id and
/// sticky are not: new content must not run with another user's rights.
const PERMISSIONS: u32 = 0o777;

/// Permissions and owner of a file.
#[derive(Clone, Copy, Debug)]
pub struct Likeness {
    mode: u32,
    user: u32,
    group: u32,
}

impl Likeness {
    /// The permissions and owner of a regular file; `None` for anything else.
    pub fn of(metadata: &Metadata) -> Option<Self> {
        let (mode, user, group) = (metadata.mode() & PERMISSIONS, metadata.uid(), metadata.gid());
        metadata.is_file().then_some(Self { mode, user, group })
    }

    /// Applies them to a file that was created with access for its owner alone. If the group cannot be set,
    /// the file's group gets the permissions of all others.
    ///
    /// # Errors
    ///
    /// The permissions cannot be set, or the metadata cannot be read.
    pub fn give(self, file: &File) -> io::Result<()> {
        let Self { mut mode, user, group } = self;
        let metadata = file.metadata()?;
        if metadata.uid() != user {
            // Only root may change the owner.
            let _ = fchown(file, Some(user), None);
        }
        if metadata.gid() != group && fchown(file, None, Some(group)).is_err() {
            mode = mode & !0o070 | (mode & 0o007) << 3;
        }
        file.set_permissions(Permissions::from_mode(mode))
    }
}
