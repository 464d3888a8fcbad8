//! Which nodes can open no connections to which others, as behind a firewall with a rule for one direction.
//! Connections that the others open work in both directions.
//!
//! turmoil has no such fault: what it cuts one way are messages, also those of connections that the other end
//! opened. So the network of a host asks here before it connects.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::Direction;
use crate::counters;

/// What becomes of an attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Closing {
    /// It is refused at once.
    Refused,
    /// It gets no answer.
    Silent,
}

thread_local! {
    /// What all active faults do to attempts to connect, with their classes.
    static CLOSED: RefCell<BTreeMap<Direction, Vec<(Closing, &'static str)>>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// A fault closes these directions.
pub(crate) fn close(directions: &[Direction], closing: Closing, class: &'static str) {
    CLOSED.with_borrow_mut(|closed| {
        for &direction in directions {
            closed.entry(direction).or_default().push((closing, class));
        }
    });
}

/// A fault that closed these directions ends.
pub(crate) fn open(directions: &[Direction], closing: Closing, class: &'static str) {
    CLOSED.with_borrow_mut(|closed| {
        for direction in directions {
            let Some(closings) = closed.get_mut(direction) else { continue };
            if let Some(at) = closings.iter().position(|known| *known == (closing, class)) {
                closings.remove(at);
            }
            if closings.is_empty() {
                closed.remove(direction);
            }
        }
    });
}

/// Called when a host connects to another one: what becomes of the attempt, if the direction is closed. Silence
/// comes before refusal, since the attempt does not arrive where it would be refused.
pub(crate) fn attempt(from: u32, to: u32) -> Option<Closing> {
    CLOSED.with_borrow(|closed| {
        let (closing, class) = closed.get(&(from, to))?.iter().copied().max()?;
        counters::effect(class, 1);
        Some(closing)
    })
}

/// The directions that are closed now.
pub(crate) fn directions() -> BTreeSet<Direction> {
    CLOSED.with_borrow(|closed| closed.keys().copied().collect())
}

/// Whether each of two hosts can open connections to the other one.
pub(super) fn is_open([one, other]: [u32; 2]) -> bool {
    CLOSED.with_borrow(|closed| {
        !closed.contains_key(&(one, other)) && !closed.contains_key(&(other, one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_is_open_when_the_last_fault_ends() {
        let there = [(1, 2), (1, 3)];
        close(&there, Closing::Refused, "close_links");
        close(&there[..1], Closing::Silent, "close_links");
        assert_eq!(attempt(1, 2), Some(Closing::Silent));
        assert_eq!(attempt(1, 3), Some(Closing::Refused));
        assert_eq!(attempt(2, 1), None, "the other direction");
        assert!(!is_open([2, 1]) && is_open([2, 3]));
        open(&there[..1], Closing::Silent, "close_links");
        assert_eq!(attempt(1, 2), Some(Closing::Refused));
        open(&there, Closing::Refused, "close_links");
        assert_eq!(attempt(1, 2), None);
        assert!(directions().is_empty());
        assert_eq!(counters::take().faults["close_links"].effect, 3);
    }
}
