//! `umbel` as its users meet it: the real binary, real files, exit codes, messages, signals.
//!
//! Expected results come from a naive model (`model.rs`) that shares no code with the product.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod bad_records;
mod clashes;
mod cluster;
mod damaged;
mod duplicates;
mod filter;
mod inputs;
mod interrupt;
mod jsonl;
mod model;
mod odd_bytes;
mod outputs;
mod packed;
mod plan;
mod sandbox;
mod serve;
mod streams;
mod summary;
mod text;
mod usage;
