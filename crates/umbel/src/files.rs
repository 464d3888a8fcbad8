//! Rules for files that all commands share: no output is an input, and unfinished outputs are nobody's input.

mod output_folder;
mod roles;
mod roots;

pub(crate) use output_folder::OutputFolder;
pub(crate) use roles::{FileRoles, Inode, PATH_BYTES_MAX, inode_of, place_of};
pub(crate) use roots::{NotBelow, OpenBelowError, Roots, open_regular};
pub(crate) use umbel_files::{Likeness, is_unfinished_output, remove_leftovers};
