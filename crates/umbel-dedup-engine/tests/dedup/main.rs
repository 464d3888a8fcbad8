//! The exchange of many workers in one thread: messages are shuttled in a plain loop, in any order, and the outcome is
//! compared with a map over all records.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod cost;
mod hostile;
mod known;
mod laws;
mod shuttle;
