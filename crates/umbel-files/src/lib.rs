//! Files as programs name, write and open them: outputs stand beside their names until they are whole, are gone when
//! their process is, and never take the place of what is read.
//!
//! | module | what it holds |
//! |---|---|
//! | `aside` | names of what is not finished, and whether its writer lives |
//! | `partial` | files and directories that are removed on drop and on interrupt |
//! | `sync` | names that a power failure does not take back |
//! | `likeness` | permissions and owner that an output takes over |
//! | `output_folder` | folders of outputs, opened once and used by their descriptors |
//! | `roles` | no output is an input, or the place of two outputs |
//! | `roots` | folders below which files may be opened for others |
//! | `usage` | what callers hear of a call that makes no sense |
//!
//! The handler of signals is the program's: it calls [`remove_partial_and_exit`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aside;
mod likeness;
mod output_folder;
mod partial;
mod roles;
mod roots;
mod sync;
mod usage;

pub use aside::{STAGING_PREFIX, is_unfinished_output, remove_leftovers};
pub use likeness::Likeness;
pub use output_folder::OutputFolder;
pub use partial::{
    ANY_NEW_FILE, BegunEmpty, OWNER_ONLY, PartialDirectory, PartialFile, remove_partial_and_exit,
};
pub use roles::{
    FileRoles, Inode, OBJECT_SCHEME, PATH_BYTES_MAX, inode_of, is_object_address, place_of,
};
pub use roots::{NotBelow, OpenBelowError, Roots, open_regular};
pub use sync::{folder_of, sync_folder};
pub use usage::UsageError;
