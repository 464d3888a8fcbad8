//! Rules for files that all commands share: no output is an input, and unfinished outputs are nobody's input.

mod aside;
mod likeness;
mod roles;

pub(crate) use aside::{
    STAGING_PREFIX, is_unfinished_output, lock_of_dead, name_aside, own_writer, remove_leftovers,
};
pub(crate) use likeness::Likeness;
pub(crate) use roles::{FileRoles, Inode, inode_of, place_of};
