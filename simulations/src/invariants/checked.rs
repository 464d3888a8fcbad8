//! The result of a check over a whole history.

use crate::violation::Violation;

/// Most violations that one check lists: the first ones suffice to understand it.
const VIOLATIONS_MAX: usize = 32;

/// How often an invariant was checked, and where it was violated.
#[derive(Debug)]
pub(crate) struct Checked {
    /// Name of the invariant.
    invariant: &'static str,
    /// Number of answers, calls or items that were checked.
    pub(crate) count: u64,
    /// What was found, at most [`VIOLATIONS_MAX`].
    pub(crate) violations: Vec<Violation>,
}

impl Checked {
    /// Nothing checked yet.
    pub(crate) const fn new(invariant: &'static str) -> Self {
        Self { invariant, count: 0, violations: Vec::new() }
    }

    /// Counts one check. `broken` describes the violation, if there is one.
    pub(crate) fn record(&mut self, at_us: u64, broken: Option<String>) {
        self.count += 1;
        if let Some(what) = broken
            && self.violations.len() < VIOLATIONS_MAX
        {
            self.violations.push(Violation { invariant: self.invariant, at_us, what });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_violations_are_listed_and_all_checks_counted() {
        let mut checked = Checked::new("name");
        (0..100).for_each(|at_us| checked.record(at_us, (at_us % 2 == 1).then(String::new)));
        assert_eq!((checked.count, checked.violations.len()), (100, VIOLATIONS_MAX));
        assert_eq!((checked.violations[0].invariant, checked.violations[0].at_us), ("name", 1));
    }
}
