//! One file a subcommand: its arguments, what they mean, and how it ends.

pub(crate) mod dedup;
