//! Counters of a run: faults planned, begun and felt by the product, states reached, checks made.
//!
//! A test whose fault never takes effect passes without showing anything; these counters reveal that.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counters of one run, or the sums over many.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counters {
    /// By fault class, which is the name of the fault in plans.
    pub(crate) faults: BTreeMap<String, FaultCounts>,
    /// How often a state was reached, by its name; 0 if it was announced and never reached.
    pub(crate) states: BTreeMap<String, u64>,
    /// How often something was checked, by invariant.
    pub(crate) checked: BTreeMap<String, u64>,
}

/// Counters of a fault class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultCounts {
    /// Faults in plans.
    pub(crate) planned: u64,
    /// Planned faults that began.
    pub(crate) fired: u64,
    /// Effects that the product could see: messages lost, bytes discarded, errors returned.
    pub(crate) effect: u64,
}

thread_local! {
    static RUN: RefCell<Counters> = RefCell::new(Counters::default());
}

/// A fault of this class is in the plan.
pub(crate) fn planned(class: &str) {
    fault(class, |counts| counts.planned += 1);
}

/// A fault of this class began.
pub(crate) fn fired(class: &str) {
    fault(class, |counts| counts.fired += 1);
}

/// Faults of this class had `count` effects that the product could see.
pub(crate) fn effect(class: &str, count: u64) {
    fault(class, |counts| counts.effect += count);
}

/// Registers states that some of many runs should reach, each with a count of 0.
pub(crate) fn announce_states(names: &[&str]) {
    RUN.with_borrow_mut(|run| {
        for name in names {
            add(&mut run.states, name, 0);
        }
    });
}

/// Counts that a state was reached which some of many runs should reach.
pub(crate) fn state(name: &str) {
    RUN.with_borrow_mut(|run| add(&mut run.states, name, 1));
}

/// Counts `count` checks of an invariant.
pub(crate) fn checked(invariant: &str, count: u64) {
    RUN.with_borrow_mut(|run| add(&mut run.checked, invariant, count));
}

/// Registers invariants that some of many runs should check, each with a count of 0.
pub(crate) fn announce_checks(names: &[&str]) {
    names.iter().for_each(|name| checked(name, 0));
}

/// Returns what was counted on this thread since the last call, and resets the counters.
pub(crate) fn take() -> Counters {
    RUN.take()
}

impl Counters {
    /// Adds the numbers of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        for (class, counts) in &other.faults {
            let sum = self.faults.entry(class.clone()).or_default();
            sum.planned += counts.planned;
            sum.fired += counts.fired;
            sum.effect += counts.effect;
        }
        for (name, count) in &other.states {
            add(&mut self.states, name, *count);
        }
        for (invariant, count) in &other.checked {
            add(&mut self.checked, invariant, *count);
        }
    }

    /// Fault classes that were planned and never had an effect.
    pub(crate) fn classes_without_effect(&self) -> Vec<String> {
        let idle =
            self.faults.iter().filter(|(_, counts)| counts.planned > 0 && counts.effect == 0);
        idle.map(|(class, _)| class.clone()).collect()
    }

    /// States that were announced and never reached.
    pub(crate) fn states_never_reached(&self) -> Vec<String> {
        let missed = self.states.iter().filter(|&(_, &count)| count == 0);
        missed.map(|(name, _)| name.clone()).collect()
    }

    /// Invariants that were announced and never checked.
    pub(crate) fn never_checked(&self) -> Vec<String> {
        let missed = self.checked.iter().filter(|&(_, &count)| count == 0);
        missed.map(|(name, _)| name.clone()).collect()
    }
}

fn fault(class: &str, change: impl FnOnce(&mut FaultCounts)) {
    RUN.with_borrow_mut(|run| match run.faults.get_mut(class) {
        Some(counts) => change(counts),
        None => change(run.faults.entry(class.to_owned()).or_default()),
    });
}

/// Allocates only for a name that is new.
fn add(counts: &mut BTreeMap<String, u64>, name: &str, count: u64) {
    match counts.get_mut(name) {
        Some(sum) => *sum += count,
        None => {
            counts.insert(name.to_owned(), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Counters {
        take();
        planned("crash");
        planned("crash");
        fired("crash");
        effect("crash", 3);
        planned("ring");
        fired("ring");
        announce_states(&["log_purged", "never"]);
        state("log_purged");
        announce_checks(&["bits_only_rise", "nothing_looks"]);
        checked("bits_only_rise", 40);
        checked("bits_only_rise", 2);
        take()
    }

    #[test]
    fn counts_are_added_and_reset() {
        let counters = sample();
        assert_eq!(counters.faults["crash"], FaultCounts { planned: 2, fired: 1, effect: 3 });
        assert_eq!(counters.states["log_purged"], 1);
        assert_eq!(counters.states["never"], 0);
        assert_eq!(counters.checked["bits_only_rise"], 42);
        assert_eq!(take(), Counters::default());
    }

    #[test]
    fn names_what_had_no_effect() {
        let counters = sample();
        assert_eq!(counters.classes_without_effect(), ["ring"]);
        assert_eq!(counters.states_never_reached(), ["never"]);
        assert_eq!(counters.never_checked(), ["nothing_looks"]);
    }

    #[test]
    fn a_sum_is_the_same_in_any_order() {
        let (one, mut other) = (sample(), Counters::default());
        other.faults.insert("ring".into(), FaultCounts { planned: 1, fired: 1, effect: 9 });
        other.states.insert("never".into(), 1);
        let mut first = one.clone();
        first.add(&other);
        let mut second = other.clone();
        second.add(&one);
        assert_eq!(first, second);
        assert_eq!(first.faults["ring"], FaultCounts { planned: 2, fired: 2, effect: 9 });
        assert!(first.classes_without_effect().is_empty());
        assert!(first.states_never_reached().is_empty());
    }

    #[test]
    fn survives_json() {
        let counters = sample();
        let json = serde_json::to_string(&counters).unwrap();
        assert_eq!(serde_json::from_str::<Counters>(&json).unwrap(), counters);
    }
}
