//! Set reconciliation: two parties find and exchange the difference of their sets for close to the fewest bytes.
//!
//! An *initiator* and a *responder* hold sets of n_I and n_R items. Items are never sketched, *symbols*
//! are: 64-bit ids through a keyed permutation, everything else through a keyed hash. The first frame holds
//! a sketch that decodes up to fifteen differences in one round trip. Beyond that the responder answers
//! with an estimator, the initiator estimates the difference, chooses a plan by a cost model and sends it,
//! the responder encodes, and the initiator decodes.
//!
//! ```text
//!   initiator                                responder
//!     │  Hello (digest, small sketch)    ──►   equal? small difference? then decoded here
//!     │  ◄── Welcome (estimator)
//!     │  Plan                            ──►
//!     │  ◄── Filter, Sketch or List            which of my items do you lack, roughly, then exactly
//!     │  Items, Request                  ──►   what only the initiator has; what it lacks
//!     │  ◄── Items
//!     │  Done (128-bit digest)          ◄──►   equal: verified; else again under another key
//! ```
//!
//! [`Session`] is both halves. It owns no socket, clock, random generator or set: the driver carries bytes,
//! feeds its frozen snapshot into a [`Pass`] when it gets that output, fetches items by number, and applies
//! what arrives. Success means one thing: both sides computed the same count and 128-bit digest of the
//! union, over whole items.
//!
//! PinSketch: Dodis, Ostrovsky, Reyzin, Smith, "Fuzzy Extractors", SIAM J. Comput. 38, 2008,
//! doi:10.1137/060651380. Rateless coded symbols: Yang, Gilad, Alizadeh, "Practical Rateless Set Reconciliation",
//! SIGCOMM 2024, doi:10.1145/3651890.3672219.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::cast_possible_truncation))]

mod attempt;
mod beginning;
mod coded;
mod core;
mod difference;
mod digest;
#[cfg(test)]
mod drawn_test;
mod error;
mod event;
mod filter;
#[cfg(test)]
mod golden_test;
mod growth;
#[cfg(test)]
mod hostile_test;
mod initiator;
mod item;
mod items_code;
mod job;
mod keys;
pub mod limits;
mod listing;
mod lists;
mod message;
mod meter;
mod offline;
mod options;
mod outcome;
mod partition;
mod pass;
mod plan;
mod receive;
mod responder;
mod resume;
#[cfg(test)]
mod retry_test;
mod session;
#[cfg(test)]
mod session_test;
mod sets;
mod stored;
#[cfg(test)]
mod stored_test;
mod table;
mod terms;
#[cfg(test)]
mod testing;
mod traffic;
mod transfer;
pub mod wire;

pub use beginning::Beginning;
pub use error::{JOURNAL_ON_ONE_SIDE, SessionError, SessionFrameError, SessionRefusal};
pub use event::{SessionInput, SessionOutput};
pub use item::{Item, ItemIndex, ItemRef, RemoteItem};
pub use offline::{
    SketchCell, SketchDecoder, SketchDifference, SketchError, SketchFormatError, SketchHeader,
    SketchReader, SketchSpec, StoredSketch,
};
pub use options::{Aim, Direction, Limits, OnConflict, Optimize, Options, SessionRole, SymbolKind};
pub use outcome::{BytesByPhase, SessionOutcome};
pub use pass::{Fingerprint, Pass};
pub use resume::{
    JournalHeader, JournalReader, JournalRecord, JournalState, Regenerated, ResumeError,
    ResumeFrame, ResumeOffer, ResumeReader, ResumeVerdict, Resumption, SendWindow, StreamEnd,
    StreamHash, StreamMark,
};
pub use session::Session;
