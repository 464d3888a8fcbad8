//! What can go wrong in a repair, and what the caller should do.

use std::fmt;

use thiserror::Error;

use umbel_reconcile_engine::FrameError;

/// Why a responder does not take part. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RepairRefusal {
    /// It speaks another version. Run the same release on both sides.
    Version,
    /// Its array means something else: another filter, seed or slice. Ask for the right one.
    Shape {
        /// What the initiator said.
        ours: u64,
        /// What the responder has.
        theirs: u64,
    },
    /// Its array has another size. Copy the filter whole, or resize it first.
    BitCount {
        /// The initiator's.
        ours: u64,
        /// The responder's.
        theirs: u64,
    },
    /// The sides have different secrets. Fix the configuration.
    Key,
    /// Its bits may not be changed. Use `Mirror` or `Compare`.
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
            Self::Key => f.write_str("the sides derive different keys: their secrets differ"),
            Self::ReadOnly => f.write_str("its bits may not be changed"),
        }
    }
}

/// Why a repair ended without success. What was handed out before was verified block by block, and may be kept; that
/// the copies agree now is not known. Unless a variant says otherwise, run a new session.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RepairError {
    /// The responder does not take part; nothing was changed.
    #[error("refused by the responder: {0}")]
    Refused(RepairRefusal),
    /// The initiator asked for what this side does not have; it was refused, and nothing was changed.
    #[error("refused the initiator")]
    RefusedHere,
    /// The peer's bytes are no frame. If a new session fails too, report it.
    #[error("malformed frame")]
    Frame(#[from] FrameError),
    /// A frame that makes no sense here: a bug of the peer, or an attack.
    #[error("{frame} frame while {phase}")]
    OutOfOrder {
        /// What came.
        frame: &'static str,
        /// What was going on.
        phase: &'static str,
    },
    /// More than a limit allows. Raise the limit if the peer is to be trusted.
    #[error("{got} {limit}, at most {max} are allowed")]
    LimitExceeded {
        /// What is limited.
        limit: &'static str,
        /// What came.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// The bits of a block do not have the hash that the peer sent: one of the copies was written to meanwhile, or the
    /// peer lies. Nothing of the block's window was handed out. Repair again from copies that stand still.
    #[error("block {block} changed meanwhile")]
    Changed {
        /// One such block.
        block: u32,
    },
    /// All blocks were repaired and the roots differ still: a residue table is not that of its bits, or a copy was
    /// written to. Compute the tables anew, which is a scrub, and repair again.
    #[error("not converged: the roots differ after all blocks were settled")]
    NotConverged,
    /// The peer gave up. Its text says why.
    #[error("the peer gave up: {text}")]
    Aborted {
        /// Its words.
        text: String,
    },
    /// The connection ended.
    #[error("the connection ended while {phase}")]
    Disconnected {
        /// What was going on.
        phase: &'static str,
    },
    /// The driver said so.
    #[error("cancelled")]
    Cancelled,
}

/// There is no such residue table. Fix the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TableError {
    /// No array is empty or so large.
    #[error("an array of {bit_count} bits, expected 1 to {max}")]
    BitCount {
        /// Its size.
        bit_count: u64,
        /// The largest.
        max: u64,
    },
    /// The words are not as many as the bits need.
    #[error("{got} words, expected {expected}")]
    Words {
        /// How many there are.
        got: usize,
        /// How many are needed.
        expected: usize,
    },
    /// A bit behind the last one is set.
    #[error("a bit is set behind the last one")]
    Tail,
}
