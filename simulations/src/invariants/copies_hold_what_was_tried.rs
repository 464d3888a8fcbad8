//! A copy of a replicated filter has no bit that no insert into its generation can have set, and no
//! answer reports an item as present that the inserts so far cannot cover: nothing appears without an
//! insert, and what was cleared stays cleared.
//!
//! Checked against a filter of the same shape and key that contains all items that were ever attempted.
//! For windows, [`super::copies_forget`] checks this.

use std::collections::BTreeSet;

use umbel_engine::{FilterId, Generation};
use umbel_filter::{AnyFilter, Contains, Insert};

use super::checked::Checked;
use super::copies_forget;
use crate::history::{Call, Outcome, Verb};
use crate::oracle::bits::hash_of;
use crate::oracle::generations::{GenerationLife, Generations, NamedLife};
use crate::violation::Violation;

/// Name of the invariant.
pub(crate) const NAME: &str = "copies_hold_what_was_tried";

/// Most unexpected items that a violation names.
const STRAYS_MAX: usize = 8;

/// All items that were inserted under a name.
pub(crate) fn items(calls: &[Call], name: &str) -> BTreeSet<u32> {
    let inserts = calls.iter().filter(|call| call.filter == name && may_insert(call));
    inserts.flat_map(|call| &call.items).copied().collect()
}

/// Everything that may have been inserted into a generation by calls that have begun so far.
pub(crate) fn tried(generations: &Generations, calls: &[Call], of: NamedLife<'_>) -> AnyFilter {
    let NamedLife { name, place, life } = of;
    let mut filter = empty(life);
    for call in calls.iter().filter(|call| call.filter == name && may_insert(call)) {
        if generations.span(call).is_some_and(|span| span.contains(&place)) {
            insert(&mut filter, life, call);
        }
    }
    filter
}

fn empty(life: &GenerationLife) -> AnyFilter {
    life.settings.shape.create_copy().expect("the nodes have created one")
}

fn may_insert(call: &Call) -> bool {
    matches!(call.verb, Verb::InsertCopy(_)) && !matches!(call.outcome, Outcome::NotApplied(_))
}

fn insert(filter: &mut AnyFilter, life: &GenerationLife, call: &Call) {
    for &item in &call.items {
        let hash = hash_of(life.settings.key, item);
        filter.insert(hash).expect("a copy has the whole hash space");
    }
}

/// A node's copy, as it is now.
pub(crate) struct SeenCopy<'a> {
    pub(crate) host: &'a str,
    pub(crate) filter: FilterId,
    pub(crate) generation: Generation,
    pub(crate) bits: AnyFilter,
}

/// Checks the copies of one generation while the run goes on. `others` are items that were inserted
/// into any generation: they help to find where a bit came from.
pub(crate) fn look(
    at_us: u64,
    of: NamedLife<'_>,
    tried: &AnyFilter,
    copies: &[SeenCopy<'_>],
    others: &BTreeSet<u32>,
) -> Vec<Violation> {
    let NamedLife { name, life, .. } = of;
    let phantom = |copy: &SeenCopy<'_>| {
        let SeenCopy { host, filter, generation, bits } = copy;
        let what = match tried.clone().merge(bits) {
            Ok(0) => return None,
            Ok(count) => {
                let is_stray = |item: &&u32| {
                    let hash = hash_of(life.settings.key, **item);
                    bits.contains(hash) && !tried.contains(hash)
                };
                let strays: Vec<&u32> = others.iter().filter(is_stray).take(STRAYS_MAX).collect();
                format!("{count} bits that no insert into it has set; there are items {strays:?}")
            }
            Err(error) => format!("another shape: {error}"),
        };
        let what = format!("the copy of {name} ({filter}) on {host}, at {generation}, has {what}");
        Some(Violation { invariant: NAME, at_us, what })
    };
    copies.iter().filter_map(phantom).collect()
}

/// Checks every answer that calls an item of a replicated filter present.
pub(crate) fn check(calls: &[Call], generations: &Generations) -> Checked {
    let mut checked = Checked::new(NAME);
    for (name, lives) in generations.all() {
        if lives.iter().any(|life| copies_forget::forgets(&life.settings)) {
            continue;
        }
        let of_name = || calls.iter().filter(move |call| call.filter == name);
        let mut questions: Vec<&Call> =
            of_name().filter(|call| is_answered_question(call)).collect();
        questions.sort_by_key(|call| call.end_us);
        let inserts: Vec<&Call> = of_name().filter(|call| may_insert(call)).collect();
        // Answers that no generation so far could have given.
        let mut open: Vec<(&Call, u32)> = questions
            .iter()
            .flat_map(|&call| present(call).map(move |item| (call, item)))
            .collect();
        let count = open.len();
        for (place, life) in lives.iter().enumerate() {
            let is_about =
                |call: &Call| generations.span(call).is_some_and(|span| span.contains(&place));
            let mut upcoming = inserts.iter().filter(|call| is_about(call)).peekable();
            let mut filter = empty(life);
            open.retain(|&(call, item)| {
                let end_us = call.end_us.unwrap_or(u64::MAX);
                while let Some(begun) = upcoming.next_if(|insert| insert.start_us <= end_us) {
                    insert(&mut filter, life, begun);
                }
                !(is_about(call) && filter.contains(hash_of(life.settings.key, item)))
            });
        }
        (open.len()..count).for_each(|_| checked.record(0, None));
        for (call, item) in open {
            let Call { id, verb, start_us, .. } = call;
            let what = format!(
                "call {id} ({verb:?} of {name}) began at {start_us} us and called item {item} present, which \
                 the inserts until then do not cover"
            );
            checked.record(call.end_us.unwrap_or(0), Some(what));
        }
    }
    checked
}

fn is_answered_question(call: &Call) -> bool {
    let asks = matches!(call.verb, Verb::ContainsCopy | Verb::ContainsMajority);
    asks && matches!(call.outcome, Outcome::Done(_))
}

fn present(call: &Call) -> impl Iterator<Item = u32> {
    let bits: &[bool] = match &call.outcome {
        Outcome::Done(bits) => bits,
        Outcome::NotApplied(_) | Outcome::Unknown(_) | Outcome::Reused(_) => &[],
    };
    let answers = call.items.iter().copied().zip(bits.iter().copied());
    answers.filter(|&(_, is_present)| is_present).map(|(item, _)| item)
}
