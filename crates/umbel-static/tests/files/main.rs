//! Static files from outside: what holds for every file and index, damaged ones, and those of the first release.

#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod damage;
mod golden;
mod laws;
mod sliced;
