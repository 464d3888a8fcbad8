//! Bugs in tables of this crate that are put in on purpose, to see that simulations find them: each is a switch that is
//! asked at the place where the bug would be. Without the feature `planted` every switch is the constant `false`, so
//! nothing of them is left in what ships.

/// A bug of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableBug {
    /// What an insert into a quotient filter shifts ends a slot early, so that the last item is overwritten.
    ShiftsShort = 1,
    /// A fingerprint that makes room in a cuckoo filter does not come to its other bucket. Buckets that have
    /// something count as full, for tables of simulations seldom are.
    LosesMoved = 2,
}

#[cfg(feature = "planted")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::TableBug;

    /// The number of the bug that is on; 0 for none.
    static ON: AtomicU8 = AtomicU8::new(0);

    /// Turns one bug on for the whole process, or all off.
    pub fn plant(bug: Option<TableBug>) {
        ON.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
    }

    /// Whether a bug is on.
    pub(crate) fn on(bug: TableBug) -> bool {
        ON.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(feature = "planted")]
pub(crate) use switch::on;
#[cfg(feature = "planted")]
pub use switch::plant;

/// Whether a bug is on: never, in this build.
#[cfg(not(feature = "planted"))]
pub(crate) const fn on(_: TableBug) -> bool {
    false
}
