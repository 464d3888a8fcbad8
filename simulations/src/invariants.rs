//! What must hold in every run, one file a promise; and the check of a complete history against all of them.

use crate::history::{Call, FilterFacts};
use crate::oracle::generations::Generations;
use crate::oracle::reference::Reference;
use crate::oracle::view::View;
use crate::violation::Violation;

pub(crate) mod absent_is_added_once;
pub(crate) mod acked_is_contained;
pub(crate) mod answers_linearize;
pub(crate) mod attempted_bounds_bits;
#[cfg(test)]
mod check_test;
pub(crate) mod checked;
pub(crate) mod copies_are_counted;
pub(crate) mod copies_converge;
pub(crate) mod copies_forget;
pub(crate) mod copies_hold_what_was_tried;
pub(crate) mod dedup_matches_reference;
pub(crate) mod drained_gets_none;
pub(crate) mod entries_are_known;
pub(crate) mod epoch_rises;
pub(crate) mod errors_change_nothing;
pub(crate) mod every_call_returns;
pub(crate) mod expired_filter_takes_nothing;
pub(crate) mod expiry_is_set_once;
pub(crate) mod failover_is_short;
pub(crate) mod filter_is_taken_once;
pub(crate) mod flushed_is_everywhere;
pub(crate) mod identities_hold;
pub(crate) mod last_items_stay;
pub(crate) mod leaders_reach_voters;
pub(crate) mod majority_finds_majority;
pub(crate) mod merged_is_contained;
pub(crate) mod nothing_ungranted_is_done;
pub(crate) mod one_new_per_item;
pub(crate) mod placements;
pub(crate) mod quotas_hold;
pub(crate) mod raft;
pub(crate) mod removed_stay_out;
pub(crate) mod reset_is_atomic;
pub(crate) mod retry_is_first_answer;
pub(crate) mod rotations_forget;
pub(crate) mod sessions_are_their_owners;
pub(crate) mod snapshots_are_one_moment;
mod window_answers;
pub(crate) mod windows_forget;

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
        (absent_is_added_once::NAME, absent_is_added_once::check(&view)),
        (expiry_is_set_once::NAME, expiry_is_set_once::check(&view)),
        (filter_is_taken_once::NAME, filter_is_taken_once::check(&view)),
        (copies_are_counted::NAME, copies_are_counted::check(&view)),
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

/// Checks a complete history against the invariant of filters whose time passes, in the same way. `generations` knows what
/// nodes have heard of the catalogue.
pub(crate) fn check_expiries(
    calls: &[Call],
    facts: &[FilterFacts],
    reference: &Reference,
    generations: &Generations,
) -> (&'static str, u64, Vec<Violation>) {
    let checked = expired_filter_takes_nothing::check(calls, facts, reference, generations);
    (expired_filter_takes_nothing::NAME, checked.count, checked.violations)
}

/// Checks a complete history of [`Profile::Failover`](crate::profile::Profile::Failover) against its
/// invariant, in the same way. Links of some node were closed at the times of `closed_us`.
pub(crate) fn check_failover(
    calls: &[Call],
    facts: &[FilterFacts],
    closed_us: &[(u64, u64)],
) -> (&'static str, u64, Vec<Violation>) {
    let checked = failover_is_short::check(calls, facts, closed_us);
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
