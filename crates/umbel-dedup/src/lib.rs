//! Duplicate detection over files: finds equal items exactly, and keeps one of each.
//!
//! ```text
//! spec      the specification of a job                run        its phases in order; the commit is the last
//! sources   paths, globs, objects, `-`                -> inputs, cut into chunks, which workers get in input order
//! local     chunk -> records -> hashes -> runs        (partitioned by hash range, in memory or on scratch disk)
//! exchange  cell by cell: all workers' entries go through the state machines of umbel-dedup-engine
//! compare   exactness bytes only: items with equal hashes are read again and compared
//! output    second reading: kept records in input order, or annotations; reports of dropped records; the summary
//! worker_data   the same for one worker among many machines: each step is durable; umbel-jobs drives it
//! gathered_items  hashes of items for other programs, read like the input of a job
//! observer  progress and cancellation                 error      why there is no result
//! ```
//!
//! Cells are independent, so each thread takes one cell at a time; it has one [`umbel_dedup_engine::Worker`] per worker of
//! the job. A job in one process is usually one worker, which compares a cell in memory and sends nothing
//! ([`Mode::Local`](umbel_dedup_engine::Mode::Local)); with several workers, or hashes of earlier jobs, a thread passes
//! frames between them in a loop. Results do not depend on the number of threads or workers. The caller shows progress and
//! chooses the exit code: it passes an [`Observer`] and gets a [`Summary`] or a [`DedupError`].
//!
//! ```
//! use umbel_dedup::{FormatRule, JobSpec, MEMORY_BYTES_MIN, Observer, OutputTarget, run};
//! use umbel_records::Granularity;
//!
//! struct Quiet;
//!
//! impl Observer for Quiet {
//!     fn warn(&self, text: &str) {
//!         eprintln!("{text}");
//!     }
//! }
//!
//! let folder = tempfile::tempdir()?;
//! let (input, output) = (folder.path().join("names.txt"), folder.path().join("unique.txt"));
//! std::fs::write(&input, "alice\nbob\nalice\n")?;
//!
//! let (inputs, rule, scratch) = (vec![input.into()], FormatRule::default(), folder.path().into());
//! let spec = JobSpec {
//!     output: OutputTarget::File(output.clone()),
//!     ..JobSpec::reading(inputs, rule, Granularity::Line, scratch, MEMORY_BYTES_MIN)
//! };
//! let summary = run(&spec, &Quiet)?.summary;
//! assert_eq!(summary.value()["records"], 3);
//! assert_eq!(summary.value()["distinct"], 2);
//! assert_eq!(std::fs::read_to_string(output)?, "alice\nbob\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod addresses;
mod agreement;
mod annotate;
mod bad;
mod best;
mod by_size;
mod chunk_facts;
mod chunks;
mod clock;
mod commit;
mod compare;
mod content;
mod context;
mod destinations;
mod drop_rows;
mod drops;
mod error;
mod exchange;
mod file_repeats;
mod filter_address;
mod footers;
mod format_rule;
mod gathered_items;
mod glob_names;
mod groups;
mod hash_runs;
mod headers;
mod in_place;
mod inputs;
mod join_indexes;
mod json_lines;
mod ledger_line;
mod local_pass;
mod lost_rest;
mod memory;
mod name_filter;
mod object_inputs;
mod observer;
mod online;
mod output;
mod outputs;
mod overlap;
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
mod segments;
mod sent_job;
mod sink;
mod sorted_rows;
mod sources;
mod spec;
mod spec_conflicts;
mod spill;
mod summary;
mod turns;
mod unchanged;
mod unreadable;
mod whole_file;
mod worker_data;

pub use addresses::{is_directory, is_object};
pub use agreement::{agreed, check_possible, rules, spec_digest};
pub use best::BestField;
pub use clock::{ProcessorTime, Stopwatch};
pub use commit::{write_file, write_stdout};
pub use error::{DedupError, InputError, chain_text};
pub use filter_address::FilterAddress;
pub use format_rule::FormatRule;
pub use gathered_items::{FoundRecord, GatheredItems, ItemSource, OpenedItems};
pub use inputs::identity;
pub use join_indexes::{IndexFacts, index_facts, join_indexes};
pub use memory::{MEMORY_BYTES_MIN, default_memory_bytes};
pub use name_filter::{NameFilter, NamePattern};
pub use object_inputs::ObjectStores;
pub use observer::{Observer, Unit};
pub use outputs::PageOutput;
pub use plan::JobPlan;
pub use reach::{Connect, Reach};
pub use references::seed_of_first;
pub use run::{Done, plan, run};
pub use scope::Scope;
pub use search::input_paths;
pub use sent_job::{JOB_MESSAGES_SINCE, SentJob, SentJobError};
pub use spec::{
    BinaryFiles, BySize, EmptyItems, Groups, JobSpec, MissingKey, OutputTarget, SaveIndex,
};
pub use summary::Summary;
pub use worker_data::{FOLDER_PREFIX, FileWorkshop, Membership, ended_before, remove_old};
