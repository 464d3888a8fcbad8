//! The driver of a duplicate-detection job on one machine: files in, workers in this process, files out.
//!
//! ```text
//! inputs    paths, globs, directories, `-`            -> sources, cut into chunks, dealt to workers in order
//! local     chunk -> records -> hashes -> runs        (hash range by hash range, in memory or on scratch disk)
//! exchange  cell by cell: all workers' entries go through the real state machines and frames of umbel-engine
//! compare   level bytes only: items of equal hashes are read again and compared
//! output    second reading: kept records, in input order, or annotations; the reports of dropped ones; the summary
//! ```
//!
//! Cells are independent, so threads take them one at a time; a thread holds one [`umbel_engine::dedup::Worker`] a
//! worker and shuttles their frames in a plain loop. Results do not depend on threads or workers.

mod addresses;
mod agreement;
mod annotate;
mod bad;
mod best;
mod by_size;
mod chunk_facts;
mod chunks;
mod commit;
mod compare;
mod content;
mod context;
mod destinations;
mod drop_rows;
mod drops;
mod error;
mod exchange;
mod filter_address;
mod footers;
mod format_rule;
mod groups;
mod hash_runs;
mod headers;
mod in_place;
mod inputs;
mod join_indexes;
mod json_lines;
mod local_pass;
mod memory;
mod name_filter;
mod object_inputs;
mod observer;
mod online;
mod output;
mod outputs;
mod paragraphs;
mod plan;
mod progress;
mod reach;
mod record_starts;
mod references;
mod report;
mod reports;
mod row_content;
mod row_group_output;
mod row_groups;
mod run;
mod run_builder;
mod save_index;
mod scope;
mod search;
mod sink;
mod sorted_rows;
mod sources;
mod spec;
mod spill;
mod summary;
mod turns;
mod unreadable;
mod whole_file;
mod worker_data;

pub(crate) use addresses::{is_directory, is_object};
pub(crate) use agreement::{agreed, check_possible, rules, spec_digest};
pub(crate) use best::BestField;
pub(crate) use commit::commit;
pub(crate) use error::{DedupError, chain_text};
pub(crate) use filter_address::FilterAddress;
pub(crate) use format_rule::FormatRule;
pub(crate) use inputs::identity;
pub(crate) use join_indexes::{index_facts, join_indexes};
pub(crate) use memory::{MEMORY_BYTES_MIN, default_memory_bytes, parse_bytes};
pub(crate) use name_filter::{NameFilter, NamePattern};
pub(crate) use object_inputs::ObjectStores;
pub(crate) use observer::{Observer, Unit};
pub(crate) use online::check_own;
pub(crate) use plan::JobPlan;
pub(crate) use reach::Reach;
pub(crate) use references::seed_of_first;
pub(crate) use run::{Done, plan, run};
pub(crate) use scope::Scope;
pub(crate) use search::{Search, resolve};
pub(crate) use sink::{Sink, is_closed_pipe, refuse_existing_file};
pub(crate) use spec::{
    BinaryFiles, BySize, EmptyItems, Groups, JobSpec, MissingKey, OutputTarget, SaveIndex,
};
pub(crate) use worker_data::{FOLDER_PREFIX, FileWorkshop, Membership, ended_before, remove_old};
