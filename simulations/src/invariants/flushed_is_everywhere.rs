//! After a flush that reached every node, every copy has what was acknowledged anywhere before it
//! began: no node reports such an item as absent, unless the node was restarted since, before what it
//! had received was on its own disk.

use std::collections::BTreeMap;

use super::checked::Checked;
use super::copies_forget::is_kept;
use crate::history::{Call, Outcome, Verb};
use crate::oracle::generations::Generations;

/// Name of the invariant.
pub(crate) const NAME: &str = "flushed_is_everywhere";

/// Checks every *absent* of a copy.
pub(crate) fn check(calls: &[Call], generations: &Generations) -> Checked {
    let mut checked = Checked::new(NAME);
    for (name, lives) in generations.all() {
        let of_name = || calls.iter().filter(move |call| call.filter == name);
        let flushes: Vec<(usize, &Call)> = of_name()
            .filter(|call| call.verb == Verb::Flush && call.outcome == Outcome::Done(vec![true]))
            .filter_map(|call| Some((generations.only(call)?, call)))
            .collect();
        // By generation and item: the first acknowledged insert that was not lost, its time, and the
        // item's index in it.
        let mut acked: BTreeMap<(usize, u32), (u64, &Call, usize)> = BTreeMap::new();
        for call in of_name().filter(|call| matches!(call.verb, Verb::InsertCopy(_))) {
            let (Outcome::Done(_), Some(end_us)) = (&call.outcome, call.end_us) else { continue };
            let is_lost = call.machine.is_none_or(|one| generations.was_lost(one, call.start_us));
            let Some(place) = generations.only(call).filter(|_| !is_lost) else { continue };
            for (at, &item) in call.items.iter().enumerate() {
                let first = acked.entry((place, item)).or_insert((end_us, call, at));
                if end_us < first.0 {
                    *first = (end_us, call, at);
                }
            }
        }
        for call in of_name().filter(|call| call.verb == Verb::ContainsCopy) {
            let (Outcome::Done(bits), Some(machine)) = (&call.outcome, call.machine) else {
                continue;
            };
            let Some(place) = generations.only(call) else { continue };
            let end_us = call.end_us.unwrap_or(u64::MAX);
            // The last flush covers the most inserts.
            let flush =
                flushes.iter().rev().map(|(of, flush)| (*of, *flush)).find(|(of, flush)| {
                    *of == place
                        && flush.end_us.is_some_and(|at_us| at_us < call.start_us)
                        && !generations.was_started(machine, flush.start_us, end_us)
                });
            let Some((_, flush)) = flush else { continue };
            for (&item, _) in call.items.iter().zip(bits).filter(|(_, is_present)| !**is_present) {
                let acked = acked.get(&(place, item)).filter(|&&(at_us, insert, at)| {
                    at_us < flush.start_us && is_kept(&lives[place].settings, insert, at, end_us)
                });
                let what = |(at_us, ..): &(u64, &Call, usize)| {
                    let (id, by) = (call.id, flush.id);
                    format!(
                        "call {id} asked machine {machine} for item {item} of {name} and was told that it is \
                         absent, but it was acknowledged at {at_us} us, and flush {by} missed no node"
                    )
                };
                checked.record(end_us, acked.map(what));
            }
        }
    }
    checked
}
