//! Rules for files that all commands share: no output is an input, and unfinished outputs are nobody's input.

mod aside;
mod roles;

pub(crate) use aside::{STAGING_PREFIX, is_unfinished_output};
pub(crate) use roles::{FileRoles, Inode, inode_of, place_of};
