//! Names, creates and opens files: an output has a temporary name until it is complete, is removed if its
//! process ends before that, and never replaces an input.
//!
//! | module | what it holds |
//! |---|---|
//! | `aside` | temporary names of unfinished outputs, and whether their writers still run |
//! | `device` | devices, pipes and names of open files, which are written directly |
//! | `partial` | files that are removed on drop and on interrupt |
//! | `partial_directory` | the same for directories |
//! | `placing` | gives several outputs their names in one step, which an interrupt does not cut |
//! | `sync` | makes renames, creations and removals durable |
//! | `likeness` | the permissions and the owner that an output takes over |
//! | `output_folder` | output folders, opened once and used through their descriptors |
//! | `roles` | checks that no output is an input or another output |
//! | `roots` | the folders below which files may be opened on behalf of others |
//! | `state` | the state of a file, which shows that it was changed |
//! | `usage` | the error for a call that makes no sense, as one whose output exists |
//!
//! The program installs its own signal handler, which calls [`Interrupt::remove_partial_and_exit`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aside;
mod device;
mod likeness;
mod output_folder;
mod partial;
mod partial_directory;
mod placing;
mod roles;
mod roots;
mod state;
mod sync;
mod usage;

pub use aside::{STAGING_PREFIX, is_at, is_unfinished_output, remove_leftovers};
pub use device::{is_device, open_device};
pub use likeness::Likeness;
pub use output_folder::OutputFolder;
pub use partial::{
    ANY_NEW_FILE, BegunEmpty, OWNER_ONLY, PartialFile, make_folders, remove_empty_folders,
    write_whole,
};
pub use partial_directory::PartialDirectory;
pub use placing::{Interrupt, Placing, rename_new};
pub use roles::{
    FileRoles, Inode, OBJECT_SCHEME, PATH_BYTES_MAX, inode_of, is_object_address, is_too_long,
    place_of,
};
pub use roots::{NotBelow, OpenBelowError, Roots, open_regular};
pub use state::FileState;
pub use sync::{folder_of, sync_folder};
pub use usage::{
    UsageError, existing_output, refuse_existing_file, refuse_standard_input,
    refuse_standard_output, refuse_stream,
};
