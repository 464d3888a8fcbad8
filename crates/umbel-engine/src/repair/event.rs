//! What drives a repair, and what it orders.

use super::error::RepairError;
use super::options::{BlockDifference, RepairOutcome};

/// What happened.
#[derive(Debug)]
pub enum RepairInput {
    /// Begin. Exactly once, first.
    Start,
    /// Bytes of the peer, cut anywhere.
    Received(Vec<u8>),
    /// The peer will send nothing more.
    Closed,
    /// Give up.
    Cancel,
}

/// What is to be done, in this order, before the next step.
#[derive(Debug)]
pub enum RepairOutput {
    /// Send these bytes.
    Send(Vec<u8>),
    /// The copies differ in these bits of a block, which a hash has confirmed; some of them are to be flipped here. Each
    /// block comes once, but in several pieces to a responder. What the session reads from the next step on must have
    /// the flips.
    Differs(BlockDifference),
    /// The session is over; it does nothing more. What stands before this must still be sent.
    Finish(Result<Box<RepairOutcome>, RepairError>),
}
