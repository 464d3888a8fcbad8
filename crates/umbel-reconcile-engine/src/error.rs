//! Errors of a session, and what the caller should do.

use std::fmt;

use thiserror::Error;
use umbel_bits::CodeError;

/// Why bytes of the peer are not a frame of this protocol. Nothing of the frame was used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SessionFrameError {
    /// The checksum differs: the bytes were damaged. Connect again.
    #[error("checksum {got:#010x} of a frame, computed {computed:#010x}")]
    Checksum {
        /// The checksum in the frame.
        got: u32,
        /// The checksum computed over the received bytes.
        computed: u32,
    },
    /// A frame type that this version does not know. Run the same release on both sides.
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
    /// A field has a value that it cannot have.
    #[error("frame field `{field}` is {got}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// Its value.
        got: u64,
    },
    /// A Hello of another version of the protocol. Run the same release on both sides.
    #[error("version {got} of the protocol")]
    Version {
        /// The version.
        got: u8,
    },
    /// A list in the frame cannot be decoded.
    #[error("malformed list in a frame")]
    Code(#[from] CodeError),
}

/// Why a responder refuses a session. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SessionRefusal {
    /// The responder speaks another version. Run the same release on both sides.
    Version,
    /// The responder's items are of another kind. Fix the arguments.
    Kind,
    /// The responder serves another dataset. Fix the arguments.
    Dataset,
    /// The responder accepts no items. Use `Compare` or `Pull`.
    ReadOnly,
    /// The sets differ in size by more than the responder allows. Raise its limit.
    TooLarge,
    /// The responder was given another rule for records that differ on both sides. Give both sides the same
    /// one, or only the initiator.
    Conflict,
}

impl fmt::Display for SessionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "it speaks another version: run the same release on both sides",
            Self::Kind => {
                "its items are of another kind: give both sides the same of --lines, --ids, --id-bytes, --kv, --key and --dir"
            }
            Self::Dataset => {
                "it has another dataset, or reads its items otherwise: give both sides the same of --lines, --ids, \
                 --id-bytes, --kv, --key and --dir"
            }
            Self::ReadOnly => "its set may not be changed: it was started without --writable",
            Self::TooLarge => {
                "the sets differ in size by more than it allows: give it --allow-skew, too"
            }
            Self::Conflict => {
                "it has another rule for what differs on both sides: give both the same --on-conflict, or only the \
                 side that begins"
            }
        })
    }
}

/// The text of [`SessionError::Resumable`]. A peer that is told it knows this error by it, in every release.
pub const JOURNAL_ON_ONE_SIDE: &str =
    "one side keeps a journal to resume the session by, the other does not";

/// The result of most functions of sessions.
pub(crate) type Result<T, E = SessionError> = std::result::Result<T, E>;

/// Why a session failed. Items that were handed out before are whole, were requested, and may be kept;
/// whether the sets are equal now is unknown.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SessionError {
    /// The responder refuses the session; nothing was changed.
    #[error("refused by the responder: {0}")]
    Refused(SessionRefusal),
    /// The sides have different domains, or a nonce was damaged. Nothing was exchanged. Run a new session; if
    /// that fails too, give both sides one domain.
    #[error("the sides derive different keys: their domains differ, or a message was damaged")]
    Key,
    /// The peer's bytes are not a frame. Run a new session; if that fails too, report it.
    #[error("malformed frame")]
    Frame(#[from] SessionFrameError),
    /// The peer wants a resumable session, and this side keeps no journal. Let both sides keep one, or
    /// neither.
    #[error("{JOURNAL_ON_ONE_SIDE}")]
    Resumable,
    /// The stored sketch does not match the set that was scanned. Update it with the changes, or rebuild
    /// it; or run the session without it.
    #[error("the stored sketch is not of this set: tell it what has changed, or build it again")]
    StaleSketch,
    /// A frame that is not allowed in this phase: a bug of the peer, or an attack.
    #[error("{frame} frame while {phase}")]
    OutOfOrder {
        /// The frame's name.
        frame: &'static str,
        /// The phase.
        phase: &'static str,
    },
    /// More than a limit allows. Raise the limit if the peer can be trusted.
    #[error("{got} {limit}, at most {max} are allowed")]
    LimitExceeded {
        /// The limit's name.
        limit: &'static str,
        /// The value.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// An item that was not requested: a bug of the peer, or an attack. It was not handed out.
    #[error("unexpected item with symbol {symbol:#x}")]
    UnexpectedItem {
        /// Its symbol.
        symbol: u64,
    },
    /// The digests differed under every key, and after the whole list. The counts are those of the unions
    /// that the sides computed. One of the sets changed meanwhile, or one side is broken: reconcile again
    /// from a snapshot.
    #[error("not converged: {ours} items in the union here, {theirs} there")]
    NotConverged {
        /// Items in the union as computed here.
        ours: u64,
        /// Items in the union as computed there.
        theirs: u64,
    },
    /// The peer aborted the session.
    #[error("the peer gave up: {text}")]
    Aborted {
        /// The reason that the peer gave.
        text: String,
    },
    /// The connection was closed. Run a new session.
    #[error("the connection ended while {phase}")]
    Disconnected {
        /// The phase.
        phase: &'static str,
    },
    /// The driver cancelled the session, for this reason.
    #[error("{why}")]
    Cancelled {
        /// The reason, which the peer is told.
        why: &'static str,
    },
    /// The driver passed something that was not requested, or other items than its snapshot had before. A
    /// bug of the driver, or the source changed during the session: run it again.
    #[error("driver out of step: {what}")]
    Driver {
        /// What was wrong.
        what: &'static str,
    },
}

/// The driver answered a request for a pass with another kind of pass.
pub(crate) const OTHER_PASS: SessionError =
    SessionError::Driver { what: "a pass of another kind than requested" };

/// A step that follows a plan, without one.
pub(crate) const NO_PLAN: SessionError = SessionError::Driver { what: "a step without a plan" };

pub(crate) const fn limit(limit: &'static str, got: u64, max: u64) -> SessionError {
    SessionError::LimitExceeded { limit, got, max }
}

pub(crate) const fn field(field: &'static str, got: u64) -> SessionError {
    SessionError::Frame(SessionFrameError::Field { field, got })
}
