//! Inputs and outputs of a session.

use super::error::SessionError;
use super::item::{Item, ItemIndex, RemoteItem};
use super::outcome::SessionOutcome;
use super::pass::Pass;
use umbel_step::Outbox;

/// An event that the driver reports to the session.
#[derive(Debug)]
pub enum SessionInput {
    /// The snapshot is frozen; begin. Passed exactly once, before anything else.
    Start,
    /// Bytes from the peer, split anywhere.
    Received(Vec<u8>),
    /// The pass of [`SessionOutput::RunPass`], after every item was added to it or to a fork that was merged into it.
    PassDone(Pass),
    /// The items that [`SessionOutput::Fetch`] requested, in its order.
    Items(Vec<Item>),
    /// The items of one [`SessionOutput::OnlyThere`] are as durable as the driver makes them. Passed once for
    /// each.
    Applied,
    /// Answers [`SessionOutput::Pause`]: everything that was to be sent before it is written.
    Resume,
    /// The peer will send nothing more.
    Closed,
    /// Abort the session, and tell the peer this reason.
    Cancel(&'static str),
}

/// Where steps put their outputs.
pub(crate) type Out = Outbox<SessionOutput>;

/// An order to the driver. Orders are to be executed in sequence.
#[derive(Debug)]
pub enum SessionOutput {
    /// Send these bytes. The driver must keep reading while it writes; otherwise both sides could wait for
    /// each other.
    Send(Vec<u8>),
    /// Add every item of the snapshot to this pass, in any order, and answer [`SessionInput::PassDone`]. If the pass says
    /// [`includes_applied`](Pass::includes_applied), add also every item that this session handed out, by
    /// [`add_applied`](Pass::add_applied).
    RunPass(Pass),
    /// Read these items of the snapshot and answer [`SessionInput::Items`].
    Fetch(Vec<ItemIndex>),
    /// There is more to send: answer [`SessionInput::Resume`] once everything before this is written. This bounds
    /// the bytes that wait in memory.
    Pause,
    /// Items that only this side has; whole and verified. At most once, before `Finish`. A responder gets
    /// it only if the initiator asked for that ([`notify_responder`](super::Aim::notify_responder)) or the
    /// first frame sufficed. An initiator always gets it, unless symbols collided after items were sent, so
    /// that it is unknown which of them were new to the other side. The counts of the [`SessionOutcome`] are right
    /// in any case.
    OnlyHere(Vec<ItemIndex>),
    /// Items that only the other side has: to be applied if the direction says so, otherwise to be shown.
    /// Answer [`SessionInput::Applied`]. Items to be applied are handed out as they arrive, items to be shown once
    /// they are verified. An initiator without items that has the other side remove its own gets none.
    OnlyThere(Vec<RemoteItem>),
    /// The current phase, for progress displays and logs.
    Phase(&'static str),
    /// The session is over. Everything before this must still be sent.
    Finish(Result<SessionOutcome, SessionError>),
}
