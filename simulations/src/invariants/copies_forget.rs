//! Copies that forget keep an item for as many slices of time as the window has, and then drop it: the
//! queried node keeps what it acknowledged itself, and all nodes drop what was inserted anywhere.
//!
//! Wall clocks of such runs are off by at most [`WALL_CLOCK_NEAR_MS`], so no two differ by a whole
//! slice.

use umbel_engine::meta::FilterSettings;
use umbel_filter::Kind;

use super::checked::Checked;
use crate::history::{Call, Outcome, Verb};
use crate::oracle::generations::{GenerationLife, Generations};
use crate::oracle::view::CLOCKS_APART_US;
use crate::plan::{Ack, WALL_CLOCK_NEAR_MS, WINDOW};

/// Name of the invariant.
pub(crate) const NAME: &str = "copies_forget";

/// Maximum difference between the wall clocks of two nodes, or of one node at different times.
const SKEW_US: u64 = 2 * WALL_CLOCK_NEAR_MS.unsigned_abs() * 1_000;

/// Minimum time for which an item is kept, by any clock.
const KEPT_US: u64 =
    WINDOW.slice_ms * 1_000 * WINDOW.slice_count as u64 - SKEW_US - CLOCKS_APART_US;

/// Maximum time for which an item is kept.
const GONE_US: u64 =
    WINDOW.slice_ms * 1_000 * (WINDOW.slice_count as u64 + 1) + SKEW_US + CLOCKS_APART_US;

/// After this time no node holds items any more on behalf of an answered call.
const HELD_US: u64 = 15_000_000;

/// Whether a filter forgets.
pub(crate) fn forgets(settings: &FilterSettings) -> bool {
    settings.kind == Kind::Window.id()
}

/// Whether an insert's answer for the item at an index promises that it is found until a time. Only
/// `true` (new) does: an item that was present before is kept from its earlier insert on.
pub(crate) fn is_kept(
    settings: &FilterSettings,
    insert: &Call,
    place: usize,
    until_us: u64,
) -> bool {
    if !forgets(settings) {
        return true;
    }
    let Outcome::Done(bits) = &insert.outcome else { return false };
    bits.get(place) == Some(&true) && until_us < insert.start_us.saturating_add(KEPT_US)
}

/// Checks every answer about filters that forget.
pub(crate) fn check(calls: &[Call], generations: &Generations) -> Checked {
    let mut checked = Checked::new(NAME);
    let windows =
        generations.all().filter(|(_, lives)| lives.iter().any(|life| forgets(&life.settings)));
    for (name, lives) in windows {
        let of_name: Vec<&Call> = calls.iter().filter(|call| call.filter == name).collect();
        for call in &of_name {
            let is_question = matches!(call.verb, Verb::ContainsCopy | Verb::ContainsMajority);
            let (true, Outcome::Done(bits)) = (is_question, &call.outcome) else { continue };
            for (&item, &is_present) in call.items.iter().zip(bits) {
                let broken = if is_present {
                    should_be_gone(&of_name, call, item)
                } else {
                    should_be_kept((&of_name, lives), generations, call, item)
                };
                let described = |why: String| {
                    let (id, start_us) = (call.id, call.start_us);
                    let word = if is_present { "present" } else { "absent" };
                    format!(
                        "call {id} began at {start_us} us and called item {item} of {name} {word}, but {why}"
                    )
                };
                checked.record(call.end_us.unwrap_or(0), broken.map(described));
            }
        }
    }
    checked
}

/// A finished insert on the same node called it new, and its slices have not ended.
fn should_be_kept(
    (of_name, lives): (&[&Call], &[GenerationLife]),
    generations: &Generations,
    question: &Call,
    item: u32,
) -> Option<String> {
    let machine = question.machine?;
    let place = generations.only(question)?;
    let end_us = question.end_us?;
    let kept = of_name.iter().find(|insert| {
        let at = insert.items.iter().position(|&other| other == item);
        matches!(insert.verb, Verb::InsertCopy(_))
            && insert.machine == Some(machine)
            && insert.end_us.is_some_and(|at_us| at_us < question.start_us)
            && at.is_some_and(|at| is_kept(&lives[place].settings, insert, at, end_us))
            && !generations.was_lost(machine, insert.start_us)
            && generations.only(insert) == Some(place)
    })?;
    Some(format!("call {}, which began at {} us, called it new there", kept.id, kept.start_us))
}

/// No insert that began before the answer can have been applied late enough.
fn should_be_gone(of_name: &[&Call], question: &Call, item: u32) -> Option<String> {
    let may_have = |insert: &&&Call| {
        let Verb::InsertCopy(ack) = insert.verb else { return false };
        // Items that other nodes hold may reach the copies once enough nodes have answered.
        let more_us = if ack == Ack::Local { 0 } else { HELD_US };
        let last_us = match (&insert.outcome, insert.end_us) {
            (Outcome::NotApplied(_), _) => return false,
            (Outcome::Done(_), Some(end_us)) => end_us.saturating_add(GONE_US + more_us),
            _ => u64::MAX,
        };
        insert.items.contains(&item)
            && question.end_us.is_none_or(|end_us| insert.start_us <= end_us)
            && last_us >= question.start_us
    };
    let found = of_name.iter().any(|insert| may_have(&insert));
    (!found).then(|| "every insert of it is longer ago than the window".to_owned())
}
