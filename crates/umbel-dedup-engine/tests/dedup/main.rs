//! The exchange of many workers in one thread: a loop delivers frames in any order, and the result is compared with a map
//! over all records.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod cost;
mod hostile;
mod known;
mod laws;
mod shuttle;
