//! The driver of a duplicate-detection job on one machine: files in, workers in this process, files out.
//!
//! ```text
//! inputs    paths, globs, directories, `-`            -> sources, cut into chunks, dealt to workers in order
//! local     chunk -> records -> hashes -> runs        (hash range by hash range, in memory or on scratch disk)
//! exchange  cell by cell: all workers' entries go through the real state machines and frames of umbel-engine
//! compare   level bytes only: items of equal hashes are read again and compared
//! output    second reading: kept records, in input order; the report of dropped ones; the summary
//! ```
//!
//! Cells are independent, so threads take them one at a time; a thread holds one [`umbel_engine::dedup::Worker`] a
//! worker and shuttles their frames in a plain loop. Results do not depend on threads or workers.

mod bad;
mod chunks;
mod compare;
mod drops;
mod exchange;
mod hash_runs;
mod inputs;
mod job;
mod local_pass;
mod memory;
mod output;
mod outputs;
mod plan;
mod progress;
mod report;
mod run_builder;
mod sink;
mod spill;
mod summary;
mod turns;

pub(crate) use job::{JobSpec, OutputTarget, run};
pub(crate) use memory::{default_memory_bytes, parse_bytes};
pub(crate) use sink::is_closed_pipe;
