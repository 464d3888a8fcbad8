//! The exact rule for one item: its answers are *no* up to one moment and *yes* from then on.
//!
//! ```text
//!            No ├────┤     New ├──────┤
//!     No ├─────────┤              ├──────┤ Present     ├───┤ Maybe
//! ─────────────────────────────────▲──────────────────────────────▶ time
//!                   the moment: not before any `No` began, not after any `Maybe` ended
//! ```
//!
//! An item is a test-and-set register: the insert that set it answered `New`, and linearizability is
//! local (Herlihy & Wing 1990, doi:10.1145/78969.78972). A history of one item is linearizable if and
//! only if there is such a moment, and the insert that answered `New`, if any, contains it. Without
//! such an insert, one of unknown outcome may have set the item, or other items that share its bits.

/// An answer about the item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RegisterAnswer {
    /// An insert found it absent and set it.
    New,
    /// A query found it absent.
    No,
    /// An insert or a query found it present.
    Yes,
    /// An insert of unknown outcome: applied at some time after its start, or never.
    Unknown,
}

/// One answer, with times in simulated microseconds. An unknown outcome has no end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    /// The call, for messages.
    pub(crate) call: u32,
    /// What was answered.
    pub(crate) answer: RegisterAnswer,
    /// When the call began.
    pub(crate) start_us: u64,
    /// When its answer arrived.
    pub(crate) end_us: u64,
}

/// Why the operations on an item are not linearizable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Crossing {
    /// Two inserts both answered `New`.
    TwoNew(Operation, Operation),
    /// It was present before anything can have set it.
    YesOfNothing(Operation),
    /// The first answer is only possible before the item was set, the second only after, but the second
    /// ended before the first began.
    Crossed(Operation, Operation),
}

/// Checks all operations on one item, in any order. `others_from_us` is the time from which other items
/// may have set all its bits, or never.
pub(crate) fn check(operations: &[Operation], others_from_us: u64) -> Result<(), Crossing> {
    let of = |wanted: RegisterAnswer| operations.iter().filter(move |seen| seen.answer == wanted);
    let mut news = of(RegisterAnswer::New);
    let winner = news.next();
    if let (Some(one), Some(two)) = (winner, news.next()) {
        return Err(Crossing::TwoNew(*one, *two));
    }
    // Not before this one began, and not after that one ended.
    let before = of(RegisterAnswer::No).chain(winner).max_by_key(|seen| seen.start_us);
    let after = of(RegisterAnswer::Yes).chain(winner).min_by_key(|seen| seen.end_us);
    let Some(after) = after else { return Ok(()) };
    if let Some(before) = before
        && before.start_us > after.end_us
    {
        return Err(Crossing::Crossed(*before, *after));
    }
    let unknown_from_us = of(RegisterAnswer::Unknown).map(|seen| seen.start_us).min();
    let may_be_set_us = unknown_from_us.map_or(others_from_us, |from| from.min(others_from_us));
    if winner.is_none() && (may_be_set_us > after.end_us || may_be_set_us == u64::MAX) {
        return Err(Crossing::YesOfNothing(*after));
    }
    Ok(())
}
