//! Copies compared bit by bit with partners', and what one lacks set: what versions cannot find.
//!
//! Copies of equal versions are taken to be equal, and nobody compares bits; so what memory loses, or
//! a bug, is lost for ever. Here a copy's bits are taken as they are at one moment, with their
//! coverage, and a repair session (`umbel_engine::repair`) runs between two such images.
//!
//! ```text
//!   asking                                    answering
//!     │  Open (filter, generation)     ──►      takes its image
//!     │  ◄──  Claim                             other generation: refused
//!     │  Claim  ──►                             takes its image
//!     │  ◄── frames of the session ──►
//!     │  ◄──  End (bits that it set)            both have set in the copy what only the other had
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`image`] | a copy's bits at one moment, and what was found to be lacking set in the copy |
//! | [`line`] | parts to and from the other side, with a patience for each |
//! | [`talk`] | a session over a line |
//! | [`asking`], [`answering`] | its two sides |
//! | [`turns`] | which copy is compared with whose next |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use umbel_engine::repair::{FilterBitsError, RepairError};
use umbel_engine::{FilterId, NodeId};

use super::failure::CopyFailure;
use crate::comparisons::{Comparison, LastComparisons};

mod answering;
mod asking;
mod image;
mod line;
mod talk;
mod turns;

pub(crate) use answering::{ScrubAnswer, answer_scrub};
pub(crate) use asking::compare;
#[cfg(test)]
pub(crate) use image::shape_id;
pub(crate) use turns::{take_turns, turn_pause};

/// Comparisons that a node asks for at once, and as many that it answers: each holds an image of a
/// copy, up to 1 GiB. One of each, and no one waits for a turn of the other kind, so none wait in a ring.
const SESSIONS_MAX: usize = 1;

/// Partners that wait until this node can answer them: more than a node of the largest cluster has.
const WAITING_MAX: usize = 16;

/// How long one comparison may take: the largest filter, if all of it differs, at 60 Mbit/s.
pub(crate) const SESSION_TIME_MAX: Duration = Duration::from_secs(300);

/// How long a partner waits to be answered while another one is.
const TURN_PATIENCE: Duration = Duration::from_secs(60);

/// What two copies differed in. It is set in both of them now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Compared {
    /// What this node's copy lacked.
    pub(crate) ours: SetBits,
    /// What the partner's copy lacked.
    pub(crate) theirs: SetBits,
    /// Bytes of the comparison, both ways.
    pub(crate) byte_count: u64,
}

/// Bits that a copy lacked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct SetBits {
    /// Bits that its version says it has: it had lost them.
    pub(crate) lost_count: u64,
    /// Bits that may have been under way to it.
    pub(crate) news_count: u64,
}

/// Why two copies were not compared, or not to the end. What was set stays; try again later.
#[derive(Debug, Error)]
pub(crate) enum ScrubError {
    /// The copy does not take part.
    #[error(transparent)]
    Copy(#[from] CopyFailure),
    /// The filter is of a kind or size that is not compared.
    #[error(transparent)]
    Bits(#[from] FilterBitsError),
    /// Nobody knows where the partner is, or it is no member.
    #[error("{0} has no address")]
    NoAddress(NodeId),
    /// The connection failed.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The other side does not take part, or found that this one lies.
    #[error("refused: {0}")]
    Refused(String),
    /// Another comparison takes too long.
    #[error("others are being compared")]
    Busy,
    /// Nothing came, or nothing was taken.
    #[error("nothing happened within {} s", .0.as_secs())]
    Timeout(Duration),
    /// A part that makes no sense here.
    #[error("it makes no sense: {0}")]
    Nonsense(String),
    /// More differs than copies of one filter can differ in.
    #[error("more than {max} bits are lacking here")]
    TooMuch {
        /// The limit.
        max: u64,
    },
    /// The session failed.
    #[error(transparent)]
    Session(#[from] RepairError),
    /// The partner found what differs, and could not set what it lacks.
    #[error("the partner did not set what it lacks: {0}")]
    NotSet(String),
}

/// What a node holds of comparisons.
pub(crate) struct Scrubs {
    asking: Arc<Semaphore>,
    answering: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    state: Mutex<State>,
    /// What comparisons that this node asked for found last.
    last: LastComparisons<(FilterId, NodeId)>,
    /// Told when a comparison is due.
    is_due: Notify,
    /// True once the node stops: nobody is answered any more.
    is_stopping: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    /// When a copy was last found equal to a partner's, or made so.
    verified: BTreeMap<FilterId, Instant>,
    /// Copies to compare soon, because this node's had lost something that the partner may have lost
    /// too: when at the earliest, and how often it was tried.
    due: BTreeMap<(FilterId, NodeId), Due>,
}

#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    try_count: u32,
}

impl Scrubs {
    pub(super) fn new() -> Self {
        let room = |count| Arc::new(Semaphore::new(count));
        Self {
            asking: room(SESSIONS_MAX),
            answering: room(SESSIONS_MAX),
            waiting: room(WAITING_MAX),
            state: Mutex::default(),
            last: LastComparisons::default(),
            is_due: Notify::new(),
            is_stopping: watch::Sender::new(false),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // No holder of the lock panics, and the state is whole after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what is being answered.
    pub(super) fn stop(&self) {
        self.is_stopping.send_replace(true);
    }

    /// What the last comparison of each of these copies with each of its partners came to.
    pub(super) fn last_of(
        &self,
        pairs: Vec<(FilterId, NodeId)>,
    ) -> Vec<((FilterId, NodeId), Option<Comparison>)> {
        self.last.of(pairs)
    }

    fn verified(&self, filter: FilterId) {
        self.state().verified.insert(filter, Instant::now());
    }

    /// How long ago each copy was last found equal to a partner's or made so, or was opened here.
    pub(super) fn ages(&self, filters: &[FilterId]) -> Vec<(FilterId, Duration)> {
        let mut state = self.state();
        state.verified.retain(|filter, _| filters.contains(filter));
        self.last.retain(|(filter, _)| filters.contains(filter));
        let age = |&filter: &FilterId| {
            let at = state.verified.entry(filter).or_insert_with(Instant::now);
            (filter, at.elapsed())
        };
        filters.iter().map(age).collect()
    }
}
