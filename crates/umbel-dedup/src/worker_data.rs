//! The data of one worker in a job over many machines: its input, its durable scratch, its outputs.
//!
//! ```text
//! job folder:  lock      one process at a time
//!              journal   records of durable steps, oldest first; a step without a record was not done
//!              runs      entries of chunks that were read, in segments partitioned by cell
//!              drops     dropped records of the decided cells
//!              groups    sizes of groups, if outputs report them
//!              asked     kept items that filters of a cluster contain
//!              ended     after the end, alone: that the job has ended, and its outputs
//! ```
//!
//! Every step appends its data, syncs it, and then appends a journal record. A restarted process reads the
//! journal, truncates the data files to the lengths in it, and continues from there.

mod attempt;
mod bench;
#[cfg(test)]
mod cancel_test;
mod catalogue;
mod claims;
#[cfg(test)]
mod commit_test;
mod conclusion;
#[cfg(test)]
mod crash_test;
mod drop_file;
#[cfg(test)]
mod end_test;
mod ended;
mod filters;
#[cfg(test)]
mod fixture_test;
mod folder;
#[cfg(test)]
mod group_count_test;
mod group_file;
mod group_reports;
mod journal;
mod journal_records;
mod part_names;
mod placing;
mod reading;
#[cfg(test)]
mod reading_test;
mod repeats;
mod report;
#[cfg(test)]
mod roots_test;
mod same_job;
mod times;
mod uploads;
mod weights;
mod workshop;
mod writing;

pub use bench::Membership;
pub use ended::{FOLDER_PREFIX, ended_before, remove_old};
pub use workshop::FileWorkshop;
