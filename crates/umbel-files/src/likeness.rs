//! What an output takes over from the file that it comes from or replaces: permissions, and the owner where the process may
//! give files away.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

/// Permissions that are taken over: those to read, write and execute. What a program may do in another's name is no
/// property of changed content.
const PERMISSIONS: u32 = 0o777;

/// Permissions and owner of a file.
#[derive(Clone, Copy, Debug)]
pub struct Likeness {
    mode: u32,
    user: u32,
    group: u32,
}

impl Likeness {
    /// Those of a regular file.
    pub fn of(metadata: &Metadata) -> Option<Self> {
        let (mode, user, group) = (metadata.mode() & PERMISSIONS, metadata.uid(), metadata.gid());
        metadata.is_file().then_some(Self { mode, user, group })
    }

    /// Gives them to a file that was created for its owner alone. If the group cannot be given, its members get what all
    /// others have.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn give(self, file: &File) -> io::Result<()> {
        let Self { mut mode, user, group } = self;
        let metadata = file.metadata()?;
        if metadata.uid() != user {
            // Only root may.
            let _ = fchown(file, Some(user), None);
        }
        if metadata.gid() != group && fchown(file, None, Some(group)).is_err() {
            mode = mode & !0o070 | (mode & 0o007) << 3;
        }
        file.set_permissions(Permissions::from_mode(mode))
    }
}
