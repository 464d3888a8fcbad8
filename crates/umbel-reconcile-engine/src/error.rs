//! What can go wrong in a session, and what the caller should do.

use std::fmt;

use thiserror::Error;
use umbel_bits::CodeError;

/// Why bytes of the peer are no frame of this protocol. Nothing of the frame was used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// The checksum differs: the bytes were damaged. Connect again.
    #[error("checksum {got:#010x} of a frame, computed {computed:#010x}")]
    Checksum {
        /// In the frame.
        got: u32,
        /// Over what came.
        computed: u32,
    },
    /// A type of frame that this version does not know. Run the same release on both sides.
    #[error("unknown frame type {got}")]
    Type {
        /// The byte.
        got: u8,
    },
    /// A body that announces more than a frame may hold, or a number that is not in its shortest form.
    #[error("frame length is malformed or above {max} bytes")]
    Length {
        /// Largest body.
        max: usize,
    },
    /// The body ends inside this field. A bug of the peer, or an attack.
    #[error("frame ends inside `{field}`")]
    Truncated {
        /// The field's name.
        field: &'static str,
    },
    /// Bytes follow the last field.
    #[error("{extra} bytes follow a frame's last field")]
    Trailing {
        /// How many.
        extra: usize,
    },
    /// A field with a value that it cannot have.
    #[error("frame field `{field}` is {got}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// Its value.
        got: u64,
    },
    /// A list in the frame is no list.
    #[error("malformed list in a frame")]
    Code(#[from] CodeError),
}

/// Why a responder does not take part. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// It speaks another version. Run the same release on both sides.
    Version,
    /// Its items are of another kind. Fix the arguments.
    Kind,
    /// It serves another dataset. Fix the arguments.
    Dataset,
    /// It takes no items. Use `Compare` or `Pull`.
    ReadOnly,
    /// The sets differ in size by more than it allows. Raise its limit.
    TooLarge,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "it speaks another version: run the same release on both sides",
            Self::Kind => "its items are of another kind",
            Self::Dataset => "it has another dataset, or reads its items otherwise",
            Self::ReadOnly => "its set may not be changed",
            Self::TooLarge => "the sets differ in size by more than it allows",
        })
    }
}

/// Why a session ended without success. Items that were handed out before are whole, were asked for, and may be kept;
/// that the sets agree now is not known.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SessionError {
    /// The responder does not take part; nothing was changed.
    #[error("refused by the responder: {0}")]
    Refused(Refusal),
    /// The sides have different secrets, or a nonce was damaged. Nothing was exchanged; fix the configuration.
    #[error("the sides derive different keys: their secrets differ")]
    Key,
    /// The peer's bytes are no frame. Run a new session; if that fails too, report it.
    #[error("malformed frame")]
    Frame(#[from] FrameError),
    /// The peer wants a session that outlives its connection, and this side keeps no journal. Let both keep one, or none.
    #[error("one side keeps a journal to resume the session by, the other does not")]
    Resumable,
    /// The stored sketch is not that of the set that was scanned. Tell it what has changed, or build it again; or run the
    /// session without it.
    #[error("the stored sketch is not of this set: tell it what has changed, or build it again")]
    StaleSketch,
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
    /// An item that was not asked for: a bug of the peer, or an attack. It was not handed out.
    #[error("unexpected item with symbol {symbol:#x}")]
    UnexpectedItem {
        /// Its symbol.
        symbol: u64,
    },
    /// The digests differed under every key, and after the whole list. Both counts are of the unions that the sides
    /// arrived at. One of the sets changed meanwhile, or one side is broken: reconcile again from a snapshot.
    #[error("not converged: {ours} items in the union here, {theirs} there")]
    NotConverged {
        /// Here.
        ours: u64,
        /// There.
        theirs: u64,
    },
    /// The peer gave up. Its text says why.
    #[error("the peer gave up: {text}")]
    Aborted {
        /// Its words.
        text: String,
    },
    /// The connection ended. Run a new session.
    #[error("the connection ended while {phase}")]
    Disconnected {
        /// What was going on.
        phase: &'static str,
    },
    /// The driver said so.
    #[error("cancelled")]
    Cancelled,
    /// The driver gave what was not asked for, or other items than its snapshot had before. A bug of the driver, or the
    /// source changed during the session: run it again.
    #[error("driver out of step: {what}")]
    Driver {
        /// What was wrong.
        what: &'static str,
    },
}

pub(crate) const fn limit(limit: &'static str, got: u64, max: u64) -> SessionError {
    SessionError::LimitExceeded { limit, got, max }
}

pub(crate) const fn field(field: &'static str, got: u64) -> SessionError {
    SessionError::Frame(FrameError::Field { field, got })
}
