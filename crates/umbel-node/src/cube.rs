//! Replicated filters: this node's copies, and the exchange of changes with other nodes' copies.
//!
//! | module | what it does |
//! |---|---|
//! | `copy` | one copy behind a lock: local inserts and lookups, deltas sent and merged |
//! | `journal` | makes local inserts durable, then applies them in the order of the log |
//! | `load` | size and fill of a copy, for reports |
//! | `image` | saves a copy to a snapshot; restores it from the snapshot and the log |
//! | `copies` | all copies of this node, as the catalogue requires them |
//! | `exchange` | runs sweeps over the hypercube (`umbel_replicated_engine::hypercube`) |
//! | `events` | what the exchange is told |
//! | `asking`, `answering` | the two sides of one step of a sweep |
//! | `questions` | bounds the questions that a node holds in memory |
//! | `in_sync` | decides when a copy that was made late counts for a majority |
//! | `scrub` | compares copies bit by bit with partners' copies |
//! | `wire` | messages |

mod answering;
mod asking;
mod copies;
mod copy;
mod events;
mod exchange;
mod failure;
mod image;
mod in_sync;
mod journal;
mod load;
mod questions;
mod scrub;
mod serve;
mod wire;

pub(crate) use answering::take_questions;
pub use copies::Copies;
pub use copy::Copy;
pub(crate) use exchange::exchange;
pub use failure::CopyFailure;
pub use image::assembler;
#[cfg(any(test, feature = "testing"))]
pub(crate) use scrub::shape_id;
pub use scrub::{CopyComparison, SESSION_TIME_MAX};
pub(crate) use scrub::{answer_scrub, take_turns, turn_pause};

/// The result of most functions of copies.
pub(crate) type Result<T, E = CopyFailure> = std::result::Result<T, E>;
