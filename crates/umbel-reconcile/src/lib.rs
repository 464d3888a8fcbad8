//! Reconciles local files and directories with others, local or remote: sets, and sessions over
//! connections.
//!
//! ```text
//!   set.rs        what a session needs of a set            records.rs, ids.rs, tree.rs  the sorts of sets
//!   open.rs       a file or directory as a set             kept.rs      a set with a stored sketch
//!   endpoint.rs   where the other set is, and a connection drive.rs     a session over a connection
//!   link.rs       threads of a connection                  journal.rs   what came, on disk
//!   change.rs     what becomes of a set                    apply.rs     how a file changes
//!   contents.rs   what items name but do not hold          listen.rs    sessions that others begin
//!   offline.rs    sketch files in place of a set           foreign.rs   peers that speak otherwise
//!   turn.rs       how long others wait for a session       greeting.rs  peers that say nothing at first
//!   error.rs, observer.rs  what callers get
//! ```
//!
//! The session protocol itself is [`umbel_reconcile_engine`]; nothing here decides what is sent. What the
//! user sees and how the process ends is up to the caller: it passes a [`SessionObserver`] and gets a
//! [`ReconcileError`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apply;
mod change;
mod contents;
mod delta;
mod drive;
mod endpoint;
mod error;
mod foreign;
mod form;
mod frozen;
mod greeting;
mod ids;
mod journal;
mod kept;
mod keyed;
mod lines;
mod link;
mod listen;
mod observer;
mod offline;
mod open;
mod records;
mod set;
mod traffic;
mod tree;
mod turn;

pub use change::Change;
pub use drive::{Driving, Ended, Initiative, answer, reconcile};
pub use endpoint::{Endpoint, PeerConnection, RemoteFiles};
pub use error::ReconcileError;
pub use form::Form;
pub use kept::KeptSet;
pub use listen::{Listening, listen};
pub use observer::SessionObserver;
pub use offline::{
    Compared, SketchFile, SketchPlace, compare_sketches, compare_with_set, sketch_of,
};
pub use open::open_set;
pub use set::{Contents, ItemSet, OpenedContent, Shown, Wanted};
pub use traffic::WireBytes;
pub use turn::Timeouts;
pub use umbel_files::UsageError;
