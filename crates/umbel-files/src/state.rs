//! The state of a file, which shows that the file was changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use crate::Inode;

/// What a change of a file changes. The inode too, because most programs write a new file and rename it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileState {
    inode: Inode,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl FileState {
    /// The state that these metadata describe.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
        }
    }

    /// The file's length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the file was last modified: seconds, and nanoseconds.
    pub fn modified(&self) -> (i64, i64) {
        (self.modified_s, self.modified_ns)
    }
}
