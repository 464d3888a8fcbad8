//! One module per subcommand: its arguments, their meaning, and its exit code.

pub(crate) mod access;
pub(crate) mod cluster;
pub(crate) mod dedup;
pub(crate) mod filter;
pub(crate) mod form;
pub(crate) mod index;
pub(crate) mod job;
pub(crate) mod plan;
pub(crate) mod reconcile;
pub(crate) mod serve;
pub(crate) mod sketch;
pub(crate) mod static_file;
