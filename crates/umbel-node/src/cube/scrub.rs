//! Compares copies bit by bit with partners' copies, and sets missing bits: damage that version vectors
//! cannot reveal.
//!
//! Copies with equal versions are considered equal without a comparison of their bits; so a bit that
//! memory or a bug loses would stay lost for ever. A comparison takes an image of a copy's bits at one
//! moment, with their coverage, and runs a repair session (`umbel_replicated_engine::repair`) between two such
//! images.
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
//! | [`image`] | a copy's bits at one moment; sets the missing bits that were found |
//! | [`line`] | sends and receives parts, with a timeout for each |
//! | [`talk`] | runs a repair session over a line |
//! | [`asking`], [`answering`] | the two sides of a comparison |
//! | [`turns`] | decides which copy is compared next, with which partner |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use umbel_engine::{FilterId, NodeId};
use umbel_replicated_engine::repair::{FilterBitsError, RepairError};

use super::failure::CopyFailure;
use crate::comparisons::{Comparison, LastComparisons};

mod answering;
mod asking;
mod image;
mod line;
mod talk;
mod turns;

pub(crate) use answering::answer_scrub;
pub(crate) use asking::compare;
#[cfg(any(test, feature = "testing"))]
pub(crate) use image::shape_id;
pub(crate) use turns::{take_turns, turn_pause};

/// Comparisons that a node initiates at once, and as many that it answers. Each holds an image of a
/// copy, up to 1 GiB. The two kinds have separate permits, so nodes cannot wait for each other in a
/// cycle.
const SESSIONS_MAX: usize = 1;

/// Partners that wait until this node can answer them: more than a node of the largest cluster has.
const WAITING_MAX: usize = 16;

/// Time limit of one comparison: enough for the largest filter at 60 Mbit/s if all of it differs.
pub const SESSION_TIME_MAX: Duration = Duration::from_secs(300);

/// How long a partner waits while another one is being answered.
const TURN_PATIENCE: Duration = Duration::from_secs(60);

/// What two copies differed in; both have all of these bits now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CopyComparison {
    /// Bits that this node's copy lacked.
    pub ours: SetBits,
    /// Bits that the partner's copy lacked.
    pub theirs: SetBits,
    /// Bytes of the comparison in both directions.
    pub byte_count: u64,
}

/// Bits that a copy lacked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SetBits {
    /// Bits that its version covers: the copy had lost them.
    pub lost_count: u64,
    /// Bits that may have been in transit to it.
    pub news_count: u64,
}

/// Why two copies were not compared, or not completely. Bits that were set stay set; retry later.
#[derive(Debug, Error)]
pub(crate) enum ScrubError {
    /// The copy cannot be compared.
    #[error(transparent)]
    Copy(#[from] CopyFailure),
    /// Filters of this kind or size are not compared.
    #[error(transparent)]
    Bits(#[from] FilterBitsError),
    /// The partner's address is unknown, or it is not a member.
    #[error("{0} has no address")]
    NoAddress(NodeId),
    /// The connection failed.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The partner stopped, hangs or is cut off: it may answer later.
    #[error("{node} at {address} did not compare its copy: {why}")]
    Away {
        /// The partner.
        node: NodeId,
        /// Its address.
        address: String,
        /// What was noticed of it.
        why: String,
    },
    /// The other side cannot compare its copy, or found a false claim.
    #[error("refused: {0}")]
    Refused(String),
    /// Another comparison takes too long.
    #[error("others are being compared")]
    Busy,
    /// No part was received, or none could be sent.
    #[error("nothing happened within {} s", .0.as_secs())]
    Timeout(Duration),
    /// A part is malformed or unexpected.
    #[error("it makes no sense: {0}")]
    Nonsense(String),
    /// The difference is larger than between any two copies of one filter.
    #[error("more than {max} bits are lacking here")]
    TooMuch {
        /// The limit.
        max: u64,
    },
    /// The session failed.
    #[error(transparent)]
    Session(#[from] RepairError),
    /// The partner found the difference, but could not set the bits that it lacks.
    #[error("the partner did not set what it lacks: {0}")]
    NotSet(String),
}

impl ScrubError {
    /// The same, as the side that asked tells it: whoever reads it has to know which node to look at.
    fn of_partner(self, node: NodeId, address: &str) -> Self {
        match self {
            Self::Broken(_) | Self::Timeout(_) => {
                Self::Away { node, address: address.to_owned(), why: self.to_string() }
            }
            other => other,
        }
    }
}

/// State of a node's comparisons.
pub(crate) struct CopyScrubs {
    asking: Arc<Semaphore>,
    answering: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// Copies to compare soon, because this node's copy had lost bits that the partner's may have lost
    /// too: the earliest time, and the number of tries so far.
    due: Mutex<BTreeMap<(FilterId, NodeId), Due>>,
    /// The last results of the comparisons that this node initiated.
    last: LastComparisons<(FilterId, NodeId)>,
    /// Notified when a comparison is due.
    is_due: Notify,
    /// True once the node stops: comparisons are not answered any more.
    is_stopping: watch::Sender<bool>,
}

#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    try_count: u32,
}

impl CopyScrubs {
    pub(super) fn new() -> Self {
        let room = |count| Arc::new(Semaphore::new(count));
        Self {
            asking: room(SESSIONS_MAX),
            answering: room(SESSIONS_MAX),
            waiting: room(WAITING_MAX),
            due: Mutex::default(),
            last: LastComparisons::default(),
            is_due: Notify::new(),
            is_stopping: watch::Sender::new(false),
        }
    }

    /// Ends the comparisons that are being answered.
    pub(super) fn stop(&self) {
        self.is_stopping.send_replace(true);
    }

    /// The result of the last comparison of each copy with each of its partners.
    pub(super) fn last_of(
        &self,
        pairs: Vec<(FilterId, NodeId)>,
    ) -> Vec<((FilterId, NodeId), Option<Comparison>)> {
        self.last.of(pairs)
    }

    /// The longest time since a copy was last found equal to a partner's or made so, or was opened here.
    pub(super) fn age(&self, filters: &BTreeSet<FilterId>) -> Option<Duration> {
        self.last.age(filters, |&(filter, _)| filter)
    }
}
