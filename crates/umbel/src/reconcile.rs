//! Reconciliation of files on this machine with others, here or elsewhere: what the command does with a session.
//!
//! ```text
//!   set.rs        a frozen set of items: scanned, fetched, changed     records.rs, tree.rs  the sorts of them
//!   endpoint.rs   where the other set is, and a connection to it       drive.rs    a session over a connection
//!   link.rs       threads of a connection, frames of a resumable one    journal.rs  what came, on disk
//!   apply.rs      what shall become of a set, and how a file changes     report.rs   the difference and what it cost
//!   contents.rs   what items name but do not hold                       listen.rs   sessions that others begin
//!   offline.rs    sketch files in place of a set                       kept.rs     a set that has one
//! ```
//!
//! The session itself is [`umbel_engine::reconcile`]; nothing here decides what travels.

mod apply;
mod contents;
mod delta;
mod drive;
mod endpoint;
mod frozen;
mod ids;
mod journal;
mod kept;
mod keyed;
mod lines;
mod link;
mod listen;
mod offline;
mod records;
mod report;
mod set;
mod tree;

pub(crate) use apply::OnConflict;
pub(crate) use drive::{Ended, Initiative, answer, reconcile};
pub(crate) use endpoint::{Beside, Connection, Endpoint};
pub(crate) use kept::KeptSet;
pub(crate) use link::Patience;
pub(crate) use listen::listen;
pub(crate) use offline::{SketchFile, compare_sketches, compare_with_set, sketch_of, write_new};
pub(crate) use report::{Report, count_changed, show_difference};
pub(crate) use set::{Form, ItemSet, open_set};
