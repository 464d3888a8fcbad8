//! The inputs and outputs of a repair session.

use super::error::RepairError;
use super::options::{BlockDifference, RepairOutcome};
use umbel_step::Outbox;

/// An event.
#[derive(Debug)]
pub enum RepairInput {
    /// Starts the session. Given exactly once, first.
    Start,
    /// Bytes from the peer, split anywhere.
    Received(Vec<u8>),
    /// The peer sends nothing more.
    Closed,
    /// Cancels the session.
    Cancel,
}

/// Where steps put their outputs.
pub(crate) type Out = Outbox<RepairOutput>;

/// What the caller must do, in this order, before the next step.
#[derive(Debug)]
pub enum RepairOutput {
    /// Send these bytes.
    Send(Vec<u8>),
    /// The copies differ in these bits of a block, as a hash has confirmed; flip those in `flips` here. The
    /// initiator gets each block once, a responder possibly in several pieces. What the session reads from
    /// the next step on must include the flips.
    Differs(BlockDifference),
    /// The session is over. Outputs before this one must still be sent.
    Finish(Result<Box<RepairOutcome>, RepairError>),
}
