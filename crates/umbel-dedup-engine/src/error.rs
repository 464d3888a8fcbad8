//! The errors of an exchange, and what the caller should do about each.

use super::entry::WorkerId;
use super::frame::FrameKind;
use thiserror::Error;
use umbel_bits::CodeError;

/// Why a frame was rejected. The worker's state is unchanged: fix or replace the sender, or send the frame
/// again.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ExchangeFrameError {
    /// The bytes end before the frame ends. Wait for more, or treat the stream as broken.
    #[error("frame ends after {got} bytes, {needed} are needed")]
    Truncated {
        /// Bytes that the frame needs, as far as they are known.
        needed: usize,
        /// Received bytes.
        got: usize,
    },
    /// Bytes follow the frame. The stream is out of step: drop the connection.
    #[error("{extra} bytes follow the frame's end")]
    TrailingBytes {
        /// How many.
        extra: usize,
    },
    /// Not a frame of the exchange. Check the peer's address.
    #[error("frame starts with byte {got:#04x}, expected {expected:#04x}")]
    Magic {
        /// The expected byte.
        expected: u8,
        /// The received one.
        got: u8,
    },
    /// Another version of the protocol. Run the same release on all workers.
    #[error("frame version {got}, this worker speaks {expected}")]
    Version {
        /// The version of this worker.
        expected: u8,
        /// The version of the peer.
        got: u8,
    },
    /// A kind of frame that this version does not know.
    #[error("unknown frame kind {got:#04x}")]
    Kind {
        /// The kind's byte.
        got: u8,
    },
    /// A flag that this version does not know, or that does not fit the kind.
    #[error("flags {got:#010b} do not fit a frame of kind {kind:?}")]
    Flags {
        /// The kind.
        kind: FrameKind,
        /// The flags' byte.
        got: u8,
    },
    /// A header number that is not in its shortest form or does not fit.
    #[error("header field `{field}` is malformed")]
    Header {
        /// The field's name.
        field: &'static str,
    },
    /// A field beyond its limit.
    #[error("header field `{field}` is {got}, at most {max} is possible here")]
    TooLarge {
        /// The field's name.
        field: &'static str,
        /// The received value.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// The checksum over link, header and payload differs: damaged, or meant for another job, sender or receiver.
    #[error(
        "checksum {got:#010x} of the frame, computed {computed:#010x}: damaged, or of another job or link"
    )]
    Checksum {
        /// The checksum in the frame.
        got: u32,
        /// The checksum of the received bytes.
        computed: u32,
    },
    /// A field that differs from what the plan or the stream requires.
    #[error("header field `{field}` is {got}, expected {expected}")]
    Unexpected {
        /// The field's name.
        field: &'static str,
        /// The value that the plan or the stream requires.
        expected: u64,
        /// The value in the frame.
        got: u64,
    },
    /// The payload's codes are malformed.
    #[error("malformed payload")]
    Code(#[from] CodeError),
    /// A position and a residue that no hash in the cell has.
    #[error(
        "survivor {index}: no hash of the cell has position {position} and residue {residue:#x}"
    )]
    Residue {
        /// Index in the frame.
        index: usize,
        /// The survivor's position.
        position: u64,
        /// Its residue.
        residue: u64,
    },
}

/// Why a step failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ExchangeError {
    /// The job's shape is beyond a limit. Request less; nothing was started.
    #[error("{got} {what}, possible are 1 to {max}")]
    JobShape {
        /// Workers or cells.
        what: &'static str,
        /// The requested number.
        got: u64,
        /// The limit.
        max: u32,
    },
    /// A peer's frame was rejected; the state is unchanged. Have the peer send it again, or fail the job.
    #[error("worker {from}, cell {cell:?}: refused frame", from = from.0)]
    Frame {
        /// The sender.
        from: WorkerId,
        /// The cell in its header, if the header could be read.
        cell: Option<u32>,
        /// What is wrong with it.
        #[source]
        source: ExchangeFrameError,
    },
    /// A frame that is not possible in this state: the sender is out of step. The state is unchanged.
    #[error("worker {from}, cell {cell}: {kind:?} frame in the wrong phase", from = from.0)]
    OutOfPhase {
        /// The sender.
        from: WorkerId,
        /// The cell.
        cell: u32,
        /// The frame's kind.
        kind: FrameKind,
    },
    /// A peer sent more frames before the plan than it may have unacknowledged. The state is unchanged.
    #[error("worker {from} sent {max} frames before the plan", from = from.0)]
    TooEarly {
        /// The sender.
        from: WorkerId,
        /// The limit.
        max: usize,
    },
    /// A peer sends frames of too many cells that this worker has not begun: it does not keep to the order of
    /// cells, or is hostile. The state is unchanged.
    #[error(
        "worker {from} opens cell {cell} while {max} cells are open that this worker has not come to",
        from = from.0
    )]
    TooFarAhead {
        /// The sender.
        from: WorkerId,
        /// The cell.
        cell: u32,
        /// The limit.
        max: usize,
    },
    /// A number of a received plan is beyond a limit. Run the same release on all workers.
    #[error("a plan with {field} {got}, at most {max} is possible")]
    Plan {
        /// The field's name.
        field: &'static str,
        /// Its value.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// An input that is not possible in this state: a bug of the driver.
    #[error("driver out of step: {what}")]
    Driver {
        /// The inputs that would have been possible.
        what: &'static str,
    },
    /// A worker has more entries in a cell than the limit. Use more cells.
    #[error("cell {cell} holds {got} entries, at most {max} are possible: use more cells")]
    CellTooLarge {
        /// The cell.
        cell: u32,
        /// Entries in it.
        got: usize,
        /// The limit.
        max: usize,
    },
}

/// Why a worker rejected a neighbour's message; nothing of it was used. Drop the connection and fail the job.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RelayError {
    /// The message is malformed.
    #[error("worker {neighbour}: refused message of frames", neighbour = neighbour.0)]
    Message {
        /// The neighbour.
        neighbour: WorkerId,
        /// What is wrong with it.
        #[source]
        source: ExchangeFrameError,
    },
    /// The frame's path does not lead from the neighbour to this worker. Run the same release everywhere.
    #[error(
        "worker {neighbour} handed worker {me} a frame from {from} to {to}, which does not pass there",
        neighbour = neighbour.0, me = me.0, from = from.0, to = to.0
    )]
    Path {
        /// The frame's sender.
        from: WorkerId,
        /// Its receiver.
        to: WorkerId,
        /// The neighbour.
        neighbour: WorkerId,
        /// This worker.
        me: WorkerId,
    },
}
