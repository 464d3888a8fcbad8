//! Files that are being written: beside their names until they are whole, and gone when their process is.
//!
//! | module | what it holds |
//! |---|---|
//! | `aside` | names of what is not finished, and whether its writer lives |
//! | `partial` | files and directories that are removed on drop and on interrupt |
//! | `sync` | names that a power failure does not take back |
//! | `likeness` | permissions and owner that an output takes over |
//!
//! The handler of signals is the program's: it calls [`remove_partial_and_exit`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aside;
mod likeness;
mod partial;
mod sync;

pub use aside::{STAGING_PREFIX, is_unfinished_output, remove_leftovers};
pub use likeness::Likeness;
pub use partial::{
    ANY_NEW_FILE, BegunEmpty, OWNER_ONLY, PartialDirectory, PartialFile, remove_partial_and_exit,
};
pub use sync::{folder_of, sync_folder};
