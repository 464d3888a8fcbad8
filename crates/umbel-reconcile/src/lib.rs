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
//!
//! ```
//! use std::time::Duration;
//! use umbel_reconcile::{
//!     Driving, Form, Initiative, PeerConnection, SessionObserver, Timeouts, answer, open_set,
//!     reconcile,
//! };
//! use umbel_reconcile_engine::{Direction, Options};
//!
//! struct Silent;
//!
//! impl SessionObserver for Silent {
//!     fn notice(&self, _: std::fmt::Arguments<'_>) {}
//! }
//!
//! let folder = tempfile::tempdir()?;
//! let (here, there) = (folder.path().join("here"), folder.path().join("there"));
//! std::fs::write(&here, "alice\nbob\n")?;
//! std::fs::write(&there, "bob\ncarol\n")?;
//! let (ours, theirs) = (open_set(&here, &Form::Lines)?, open_set(&there, &Form::Lines)?);
//!
//! // Each side gets what it lacks. A program draws the numbers: they must be unpredictable.
//! let asked = Options::initiator(ours.kind(), Direction::TwoWay, 1);
//! let allowed = Options::responder(theirs.kind(), 2);
//! let driving = Driving {
//!     initiative: Initiative { delete: false },
//!     timeouts: Timeouts { idle: Duration::from_secs(60), whole: None },
//!     journal: None,
//!     observer: &Silent,
//!     draw: || 3,
//! };
//! let [to_there, to_here] = PeerConnection::pair(["there".to_owned(), "here".to_owned()])?;
//! let (answered, begun) = std::thread::scope(|scope| {
//!     let answering = scope.spawn(|| answer(&*theirs, allowed, to_here, driving).map(drop));
//!     let begun = reconcile(&*ours, asked, to_there, driving);
//!     (answering.join().expect("it does not panic"), begun)
//! });
//! answered?;
//! let ended = begun?;
//! assert_eq!((ended.only_here.len(), ended.only_there.len()), (1, 1));
//! for path in [here, there] {
//!     let text = std::fs::read_to_string(path)?;
//!     let mut lines: Vec<&str> = text.lines().collect();
//!     lines.sort_unstable();
//!     assert_eq!(lines, ["alice", "bob", "carol"]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
