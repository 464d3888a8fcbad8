//! An item of a replicated filter whose insert was acknowledged at level majority is found by every
//! later query at that level.
//!
//! Except if the filter was cleared since, or more than one node was lost with its disk: the remaining
//! nodes may then form a majority without what the lost ones had.

use std::collections::BTreeMap;

use super::checked::Checked;
use super::copies_forget::is_kept;
use crate::history::{Call, Outcome, Verb};
use crate::oracle::generations::Generations;
use crate::plan::Ack;

/// Name of the invariant.
pub(crate) const NAME: &str = "majority_finds_majority";

/// Most nodes that may be lost between insert and query.
const LOSSES_MAX: usize = 1;

/// Checks every *absent* of a majority.
pub(crate) fn check(calls: &[Call], generations: &Generations) -> Checked {
    let mut checked = Checked::new(NAME);
    for (name, lives) in generations.all() {
        // By generation and item: inserts that a majority acknowledged.
        let mut acked: BTreeMap<(usize, u32), Vec<&Call>> = BTreeMap::new();
        let of_name = || calls.iter().filter(move |call| call.filter == name);
        for call in of_name().filter(|call| call.verb == Verb::InsertCopy(Ack::Majority)) {
            let Outcome::Done(_) = call.outcome else { continue };
            let Some(place) = generations.only(call) else { continue };
            call.items.iter().for_each(|&item| acked.entry((place, item)).or_default().push(call));
        }
        for call in of_name().filter(|call| call.verb == Verb::ContainsMajority) {
            let (Outcome::Done(bits), Some(end_us)) = (&call.outcome, call.end_us) else {
                continue;
            };
            // A query in an older generation finds no majority there.
            let Some(span) = generations.span(call) else { continue };
            for (&item, _) in call.items.iter().zip(bits).filter(|(_, is_present)| !**is_present) {
                let acked = acked.get(&(*span.end(), item)).map_or(&[][..], Vec::as_slice);
                let settings = &lives[*span.end()].settings;
                let missed = acked.iter().find(|insert| {
                    let at = insert.items.iter().position(|&other| other == item);
                    at.is_some_and(|at| is_kept(settings, insert, at, end_us))
                        && insert.end_us.is_some_and(|at_us| at_us < call.start_us)
                        && generations.loss_count(insert.start_us, end_us) <= LOSSES_MAX
                });
                let what = |insert: &&Call| {
                    let (id, start_us) = (call.id, call.start_us);
                    let (by, at_us) = (insert.id, insert.end_us.unwrap_or(0));
                    format!(
                        "call {id} began at {start_us} us and found item {item} of {name} at no majority, but \
                         call {by} had it on one at {at_us} us"
                    )
                };
                checked.record(end_us, missed.map(what));
            }
        }
    }
    checked
}
