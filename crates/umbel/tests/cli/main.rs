//! `umbel` as users run it: the real binary, real files, exit codes, messages, signals.
//!
//! Expected results come from a naive model (`model.rs`) that shares no code with the product.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod access;
mod annotate;
mod bad_records;
mod by_size;
mod clashes;
mod cluster;
mod damaged;
mod devices;
mod dialects;
mod duplicates;
mod file_index;
mod file_roles;
mod filter;
mod found_files;
mod founding;
mod groups;
mod in_place;
mod include;
mod inputs;
mod interrupt;
mod jsonl;
mod keep_best;
mod kept_sketch;
mod leftovers;
mod machines;
mod machines_cutting;
mod machines_filters;
mod machines_killed;
mod many_machines;
mod meanwhile;
mod model;
mod object_outputs;
mod object_store;
mod object_workers;
mod objects;
mod odd_bytes;
mod outputs;
mod packed;
mod paragraphs;
mod parquet;
mod parquet_rules;
mod plan;
mod readme;
mod reconcile;
mod reconcile_arguments;
mod reconcile_changes;
mod reconcile_pages;
mod redis_dialect;
mod redis_files;
mod redis_server;
mod redis_sources;
mod redisbloom;
mod reference;
mod report_pages;
mod resp;
mod resume;
mod rules;
mod sandbox;
mod serve;
mod sketch;
mod static_file;
mod streams;
mod summary;
mod table;
mod text;
mod trees;
mod usage;
mod whole_file;
mod zero_terminated;
