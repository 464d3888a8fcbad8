//! Wraps openraft in Umbel's types; no other module uses openraft directly.

pub(crate) mod group;
pub(crate) mod known_members;
pub(crate) mod network;
pub(crate) mod state_machine;
pub(crate) mod types;
