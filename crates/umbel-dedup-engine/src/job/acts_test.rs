//! The events of a randomly generated job.

use proptest::prelude::*;

/// An event.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// A worker does all its tasks, and decides one cell.
    GoOn(usize, u32),
    Order(usize),
    Message(usize),
    Disconnect(usize),
    KillWorker(usize),
    KillCoordinator,
}

/// Mostly work, sometimes a fault.
pub(super) fn act() -> impl Strategy<Value = Act> {
    let at = || any::<usize>();
    prop_oneof![
        30 => (at(), 0u32..8).prop_map(|(at, cell)| Act::GoOn(at, cell)),
        2 => at().prop_map(Act::Order),
        2 => at().prop_map(Act::Message),
        1 => at().prop_map(Act::Disconnect),
        1 => at().prop_map(Act::KillWorker),
        1 => Just(Act::KillCoordinator),
    ]
}
