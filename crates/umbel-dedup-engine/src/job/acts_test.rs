//! What happens in a drawn job.

use proptest::prelude::*;

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// A worker does whatever it can, and settles one of its cells.
    GoOn(usize, u32),
    Order(usize),
    Word(usize),
    Disconnect(usize),
    KillWorker(usize),
    KillCoordinator,
}

/// Mostly work, now and then trouble.
pub(super) fn act() -> impl Strategy<Value = Act> {
    let at = || any::<usize>();
    prop_oneof![
        30 => (at(), 0u32..8).prop_map(|(at, cell)| Act::GoOn(at, cell)),
        2 => at().prop_map(Act::Order),
        2 => at().prop_map(Act::Word),
        1 => at().prop_map(Act::Disconnect),
        1 => at().prop_map(Act::KillWorker),
        1 => Just(Act::KillCoordinator),
    ]
}
