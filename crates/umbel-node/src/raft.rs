//! openraft behind Umbel's types; no other module knows it.

pub(crate) mod encoding;
pub(crate) mod group;
pub(crate) mod known_members;
pub(crate) mod network;
pub(crate) mod state_machine;
pub(crate) mod types;
