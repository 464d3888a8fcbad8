//! The errors of a repair, and what the caller should do.

use std::fmt;

use thiserror::Error;

use umbel_reconcile_engine::SessionFrameError;

/// Why a responder refuses a session. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RepairRefusal {
    /// It has another protocol version. Run the same release on both sides.
    Version,
    /// Its array has another meaning: another filter, seed or slice. Request the right one.
    Shape {
        /// The initiator's shape.
        ours: u64,
        /// The responder's shape.
        theirs: u64,
    },
    /// Its array has another size. Copy the whole filter, or resize it first.
    BitCount {
        /// Bits of the initiator's array.
        ours: u64,
        /// Bits of the responder's array.
        theirs: u64,
    },
    /// The two sides belong to different clusters. Compare copies of one cluster.
    Key,
    /// Its bits must not be changed. Use `Mirror` or `Compare`.
    ReadOnly,
}

impl fmt::Display for RepairRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => {
                f.write_str("it speaks another version: run the same release on both sides")
            }
            Self::Shape { ours, theirs } => {
                write!(f, "its array is of shape {theirs:#018x}, ours of {ours:#018x}")
            }
            Self::BitCount { ours, theirs } => {
                write!(f, "its array has {theirs} bits, ours has {ours}")
            }
            Self::Key => {
                f.write_str("the sides derive different keys: they belong to different clusters")
            }
            Self::ReadOnly => f.write_str("its bits may not be changed"),
        }
    }
}

/// The result of most functions of this module.
pub(super) type Result<T, E = RepairError> = std::result::Result<T, E>;

/// Why a repair failed. Differences reported before were verified block by block and may be kept, but it is
/// not known whether the copies are equal now. Unless the variant says otherwise, run a new session.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RepairError {
    /// The responder refused the session. Nothing was changed.
    #[error("refused by the responder: {0}")]
    Refused(RepairRefusal),
    /// This side refused the initiator's request. Nothing was changed.
    #[error("refused the initiator")]
    RefusedHere,
    /// The peer's bytes are not a frame. If a new session fails, too, report it.
    #[error("malformed frame")]
    Frame(#[from] SessionFrameError),
    /// A frame that is not expected in this phase: a bug of the peer, or an attack.
    #[error("{frame} frame while {phase}")]
    OutOfOrder {
        /// The name of the frame.
        frame: &'static str,
        /// The phase.
        phase: &'static str,
    },
    /// A limit would be exceeded. Raise the limit if the peer is trusted.
    #[error("{got} {limit}, at most {max} are allowed")]
    LimitExceeded {
        /// The limit's name.
        limit: &'static str,
        /// The value that exceeds it.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// The bits of a block do not match the hash that the peer sent: one of the copies was written to
    /// meanwhile, or the peer is lying. Nothing of the block's window was reported. Repair again from
    /// copies that do not change.
    #[error("block {block} changed meanwhile")]
    Changed {
        /// One of the blocks.
        block: u32,
    },
    /// The roots still differ after all blocks were repaired: a residue table does not match its bits, or a
    /// copy was written to. Recompute the tables, which is a scrub, and repair again.
    #[error("not converged: the roots differ after all blocks were repaired")]
    NotConverged,
    /// The peer gave up. Its text says why.
    #[error("the peer gave up: {text}")]
    Aborted {
        /// The peer's text.
        text: String,
    },
    /// The connection ended before the session was complete.
    #[error("the connection ended while {phase}")]
    Disconnected {
        /// The phase.
        phase: &'static str,
    },
    /// The caller cancelled the session.
    #[error("cancelled")]
    Cancelled,
}

/// Why a residue table cannot be made. Fix the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TableError {
    /// The array is empty or too large.
    #[error("an array of {bit_count} bits, expected 1 to {max}")]
    BitCount {
        /// The array's number of bits.
        bit_count: u64,
        /// The largest number of bits.
        max: u64,
    },
    /// The number of words does not match the number of bits.
    #[error("{got} words, expected {expected}")]
    Words {
        /// The given number of words.
        got: usize,
        /// The required number of words.
        expected: usize,
    },
    /// A bit after the last one is set.
    #[error("a bit is set behind the last one")]
    Tail,
}
