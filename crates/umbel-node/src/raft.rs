//! Wraps openraft in Umbel's types; no other module runs its groups.

pub(crate) mod group;
pub(crate) mod host;
mod known_members;
mod network;
mod read_rounds;
mod serving;
pub(crate) mod state_machine;
