//! What drives a session, and what it orders.

use super::error::SessionError;
use super::item::{Item, ItemIndex, RemoteItem};
use super::outcome::Outcome;
use super::pass::Pass;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The snapshot is frozen; begin. Exactly once, first.
    Start,
    /// Bytes of the peer, cut anywhere.
    Received(Vec<u8>),
    /// The pass of [`Output::RunPass`], after every item was added to it or to a fork that was merged into it.
    PassDone(Pass),
    /// What [`Output::Fetch`] asked for, in its order.
    Items(Vec<Item>),
    /// What one [`Output::OnlyThere`] handed out is as durable as it shall be. Once for each.
    Applied,
    /// What [`Output::Pause`] waited for: everything that was to be sent before it is on its way.
    Resume,
    /// The peer will send nothing more.
    Closed,
    /// Give up.
    Cancel,
}

/// What is to be done, in this order.
#[derive(Debug)]
pub enum Output {
    /// Send these bytes. The driver goes on reading while it writes, else both sides could wait for each other.
    Send(Vec<u8>),
    /// Add every item of the snapshot to this pass, in any order, and answer [`Input::PassDone`]. If the pass says
    /// [`includes_applied`](Pass::includes_applied), add also every item that this session handed out, by
    /// [`add_applied`](Pass::add_applied).
    RunPass(Pass),
    /// Get these items of the snapshot and answer [`Input::Items`].
    Fetch(Vec<ItemIndex>),
    /// There is more to send: answer [`Input::Resume`] once what stands before this is written. It bounds what waits
    /// in memory.
    Pause,
    /// Items that only this side has; whole and verified. At most once, before `Finish`. A responder gets it only
    /// where the initiator told it to ([`notify_responder`](super::Aim::notify_responder)) or the first frame sufficed; an
    /// initiator always, unless symbols collided, items went over, and what was new to the other side is unknown
    /// any more. The counts of the [`Outcome`] are right in any case.
    OnlyHere(Vec<ItemIndex>),
    /// Items that only the other side has: to be applied if the direction says so, else to be shown. Answer
    /// [`Input::Applied`]. What is to be applied comes as it arrives, what is to be shown once it is verified.
    OnlyThere(Vec<RemoteItem>),
    /// What goes on now, for progress displays and logs.
    Phase(&'static str),
    /// The session is over; it does nothing more. What stands before this must still be sent.
    Finish(Result<Outcome, SessionError>),
}
