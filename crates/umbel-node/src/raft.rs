//! Wraps openraft in Umbel's types; no other module runs its groups.

pub(crate) mod group;
pub(crate) mod known_members;
pub(crate) mod network;
pub(crate) mod read_rounds;
pub(crate) mod state_machine;
