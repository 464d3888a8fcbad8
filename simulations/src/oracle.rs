//! What should have happened: applies the committed log once more, and checks the clients' history
//! against the result.
//!
//! | file | what it does |
//! |---|---|
//! | `reference` | applies every group's log to fresh states and compares replicas with them |
//! | `applied` | what an applied entry must not do, computed without the code that applied it |
//! | `view` | the history by filter, with the copies of a request merged into one |
//! | `bits` | which positions an item has, and when each was first set |
//! | `generations` | which generations replicated filters had, and which of them a call may be about |
//! | `rights` | what principals may do, for each version of the catalogue |
//! | `quotas` | what principals and the cluster hold and may hold, entry by entry |
//! | `seen` | texts of refusals, and inserts that no caller had the right to make |
//! | `windows` | what windows contain, computed from the entries of the logs alone |
//! | `last_items` | the last items inserted into aging filters, computed in the same way |
//! | `misses` | how often stable filters may miss items, computed in the same way |
//! | `register` | the exact rule for one item whose answers may be *no* first and *yes* later |

use crate::history::{Call, FilterFacts};
use crate::invariants::violation::Violation;
use crate::invariants::{
    acked_is_contained, answers_linearize, attempted_bounds_bits, copies_forget,
    copies_hold_what_was_tried, errors_change_nothing, every_call_returns, failover_is_short,
    flushed_is_everywhere, last_items_stay, majority_finds_majority, merged_is_contained,
    one_new_per_item, reset_is_atomic, retry_is_first_answer, rotations_forget,
    snapshots_are_one_moment, windows_forget,
};

mod answered;
pub(crate) mod applied;
pub(crate) mod bits;
#[cfg(test)]
mod check_test;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod generations;
pub(crate) mod last_items;
pub(crate) mod misses;
pub(crate) mod quotas;
pub(crate) mod reference;
#[cfg(test)]
mod reference_test;
pub(crate) mod register;
pub(crate) mod rights;
#[cfg(test)]
mod search_test;
pub(crate) mod seen;
pub(crate) mod slice_models;
pub(crate) mod view;
pub(crate) mod windows;

use generations::Generations;
use reference::Reference;
use view::View;

/// Checks a complete history against all invariants. Returns for each invariant its name, how many
/// checks it made, and the violations.
///
/// `facts` names every filter of the history; calls to other filters are left out.
pub(crate) fn check_history(
    calls: &[Call],
    facts: &[FilterFacts],
    reference: &Reference,
) -> Vec<(&'static str, u64, Vec<Violation>)> {
    let view = View::new(calls, facts, reference);
    let checks = [
        (acked_is_contained::NAME, acked_is_contained::check(&view)),
        (attempted_bounds_bits::NAME, attempted_bounds_bits::check(&view)),
        (one_new_per_item::NAME, one_new_per_item::check(&view)),
        (answers_linearize::NAME, answers_linearize::check(&view)),
        (retry_is_first_answer::NAME, retry_is_first_answer::check(&view)),
        (every_call_returns::NAME, every_call_returns::check(&view)),
        (errors_change_nothing::NAME, errors_change_nothing::check(&view)),
        (windows_forget::NAME, windows_forget::check(&view)),
        (merged_is_contained::NAME, merged_is_contained::check(&view)),
        (rotations_forget::NAME, rotations_forget::check(&view)),
        (last_items_stay::NAME, last_items_stay::check(&view)),
        (reset_is_atomic::NAME, reset_is_atomic::check(&view)),
        (snapshots_are_one_moment::NAME, snapshots_are_one_moment::check(&view)),
    ];
    checks.into_iter().map(|(name, checked)| (name, checked.count, checked.violations)).collect()
}

/// Checks a complete history of [`Profile::Failover`](crate::profile::Profile::Failover) against its
/// invariant, in the same way.
pub(crate) fn check_failover(
    calls: &[Call],
    facts: &[FilterFacts],
) -> (&'static str, u64, Vec<Violation>) {
    let checked = failover_is_short::check(calls, facts);
    (failover_is_short::NAME, checked.count, checked.violations)
}

/// Checks a complete history against the invariants of replicated filters, in the same way.
pub(crate) fn check_copies(
    calls: &[Call],
    generations: &Generations,
) -> Vec<(&'static str, u64, Vec<Violation>)> {
    let checks = [
        (copies_hold_what_was_tried::NAME, copies_hold_what_was_tried::check(calls, generations)),
        (majority_finds_majority::NAME, majority_finds_majority::check(calls, generations)),
        (flushed_is_everywhere::NAME, flushed_is_everywhere::check(calls, generations)),
        (copies_forget::NAME, copies_forget::check(calls, generations)),
    ];
    checks.into_iter().map(|(name, checked)| (name, checked.count, checked.violations)).collect()
}
