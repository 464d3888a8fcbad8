//! Makes a plan that fails small, as long as it fails.
//!
//! Parts of a kind are taken out in chunks, all at once first, then halves, down to single ones: the
//! complements of delta debugging (Zeller and Hildebrandt 2002, DOI 10.1109/32.988498), without its
//! tests of the chunks alone, which rarely fail and would cost half of the runs. All kinds are gone
//! through again until nothing changes, so shrinking twice changes nothing, if the budget suffices.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::plan::Plan;

mod parts;

#[cfg(test)]
mod shrink_test;

/// A plan that still fails, and what it took.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Shrunk {
    /// The smallest plan that was seen to fail.
    pub(crate) plan: Plan,
    /// How often a plan was run.
    pub(crate) run_count: u32,
    /// How large the plan was.
    pub(crate) before: PlanSize,
    /// How large it is.
    pub(crate) after: PlanSize,
    /// Whether nothing more can be taken out; else the budget was spent before.
    pub(crate) is_minimal: bool,
}

/// How much a plan holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlanSize {
    /// Faults.
    pub(crate) fault_count: usize,
    /// Operations.
    pub(crate) op_count: usize,
    /// Items of all operations.
    pub(crate) item_count: usize,
    /// Clients that do something.
    pub(crate) client_count: usize,
    /// Filters.
    pub(crate) filter_count: usize,
}

impl PlanSize {
    fn of(plan: &Plan) -> Self {
        let clients: BTreeSet<u32> = plan.ops.iter().map(|op| op.client).collect();
        Self {
            fault_count: plan.faults.len(),
            op_count: plan.ops.len(),
            item_count: plan.ops.iter().filter_map(|op| op.op.items()).map(<[u32]>::len).sum(),
            client_count: clients.len(),
            filter_count: plan.filters.len(),
        }
    }
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan: _, run_count, before, after, is_minimal } = self;
        let counts = [
            (after.fault_count, before.fault_count, "faults"),
            (after.op_count, before.op_count, "operations"),
            (after.item_count, before.item_count, "items"),
            (after.client_count, before.client_count, "clients"),
            (after.filter_count, before.filter_count, "filters"),
        ];
        let kept = counts.map(|(after, before, what)| format!("{after} of {before} {what}"));
        write!(f, "{} after {run_count} runs", kept.join(", "))?;
        if *is_minimal { Ok(()) } else { f.write_str(", which were all that it had") }
    }
}

/// Makes a plan that fails small. `fails` says whether a plan fails in the same way; it is called at
/// most so often, and only with plans that pass [`Plan::check`] and, if the first one does, stay within
/// the damage budget. The plan itself is taken to fail and not run.
pub(crate) fn shrink(
    plan: &Plan,
    budget_runs: u32,
    fails: &mut dyn FnMut(&Plan) -> bool,
) -> Shrunk {
    let mut trials = Trials {
        best: plan.clone(),
        budget_runs,
        run_count: 0,
        was_refused: false,
        tried: BTreeSet::new(),
        is_within_budget: plan.excess_damage().is_none(),
        fails,
    };
    loop {
        let before = trials.best.clone();
        parts::shrink_once(&mut trials);
        if trials.best == before || trials.was_refused {
            break;
        }
    }
    Shrunk {
        before: PlanSize::of(plan),
        after: PlanSize::of(&trials.best),
        run_count: trials.run_count,
        is_minimal: !trials.was_refused,
        plan: trials.best,
    }
}

/// Runs of smaller plans.
struct Trials<'a> {
    /// The smallest plan that failed.
    best: Plan,
    /// How many runs there may be.
    budget_runs: u32,
    /// How many there were.
    run_count: u32,
    /// Whether a plan was not run because the budget was spent.
    was_refused: bool,
    /// Digests of the plans that did not fail. Two with an equal one only cost a chance.
    tried: BTreeSet<u64>,
    /// Whether the first plan was within the damage budget.
    is_within_budget: bool,
    fails: &'a mut dyn FnMut(&Plan) -> bool,
}

impl Trials<'_> {
    /// Takes the plan for the best one if it fails; says whether it does.
    fn take(&mut self, plan: Plan) -> bool {
        if plan == self.best
            || plan.check().is_err()
            || (self.is_within_budget && plan.excess_damage().is_some())
        {
            return false;
        }
        let digest = digest(&plan);
        if self.tried.contains(&digest) {
            return false;
        }
        if self.run_count == self.budget_runs {
            self.was_refused = true;
            return false;
        }
        self.run_count += 1;
        let does_fail = (self.fails)(&plan);
        if does_fail {
            self.best = plan;
        } else {
            self.tried.insert(digest);
        }
        does_fail
    }

    /// Takes the best plan, changed, if that still fails; says whether it does.
    fn change(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.best.clone();
        change(&mut plan);
        self.take(plan)
    }

    /// Takes out as many parts of one kind as possible, until none can be spared. `count` says how
    /// many there are; `remove` takes out those with these numbers, after which the others move up.
    fn thin(&mut self, count: impl Fn(&Plan) -> usize, remove: impl Fn(&mut Plan, Range<usize>)) {
        let mut size = count(&self.best);
        while size > 0 && !self.was_refused {
            let (mut at, mut was_any_taken) = (0, false);
            while at < count(&self.best) && !self.was_refused {
                let chunk = at..(at + size).min(count(&self.best));
                let left = count(&self.best);
                if self.change(|plan| remove(plan, chunk)) && count(&self.best) < left {
                    was_any_taken = true;
                } else {
                    at += size;
                }
            }
            if size > 1 {
                size = size.div_ceil(2);
            } else if !was_any_taken {
                break;
            }
        }
    }

    /// Takes as many elements as possible out of a list that the plan may have.
    fn thin_list<T>(&mut self, list: impl Fn(&mut Plan) -> Option<&mut Vec<T>>) {
        let count = |plan: &Plan| list(&mut plan.clone()).map_or(0, |list| list.len());
        let remove = |plan: &mut Plan, chunk: Range<usize>| {
            if let Some(list) = list(plan) {
                list.drain(chunk);
            }
        };
        self.thin(count, remove);
    }
}

fn digest(plan: &Plan) -> u64 {
    // Its keys are fixed, and its result does not leave the process.
    let mut hasher = DefaultHasher::new();
    plan.hash(&mut hasher);
    hasher.finish()
}
