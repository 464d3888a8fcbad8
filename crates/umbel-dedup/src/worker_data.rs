//! A worker's data in a job over many machines: its input, its durable scratch, its outputs.
//!
//! ```text
//! job folder:  lock      one process at a time
//!              journal   marks and notes, oldest first; whatever it does not speak of was never done
//!              runs      entries of chunks that were read, in segments partitioned by cell
//!              drops     what was dropped in cells that are settled
//!              groups    how many records stand for each kept one, where outputs tell of it
//!              asked     what filters of a cluster hold of the kept items
//!              ended     behind the end, alone: that the job has ended, and where its outputs stand
//! ```
//!
//! Every step adds its data first, syncs it, and notes it then. A process that is started again reads the notes, cuts
//! what they do not speak of, and goes on from there.

mod bench;
#[cfg(test)]
mod cancel_test;
mod catalogue;
mod claims;
mod conclusion;
#[cfg(test)]
mod crash_test;
mod drop_file;
#[cfg(test)]
mod end_test;
mod ended;
mod filters;
mod folder;
mod group_file;
mod group_reports;
mod journal;
mod kept_index;
mod notes;
mod part_names;
#[cfg(test)]
mod place_test;
mod reading;
#[cfg(test)]
mod reading_test;
mod repeats;
mod report;
#[cfg(test)]
mod roots_test;
mod same_job;
mod segments;
#[cfg(test)]
mod tally_test;
mod times;
mod uploads;
mod weights;
mod workshop;
mod writing;

pub use bench::Membership;
pub use ended::{FOLDER_PREFIX, ended_before, remove_old};
pub use workshop::FileWorkshop;
