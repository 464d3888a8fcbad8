//! Checks copies of replicated filters while a run goes on.

use std::rc::Rc;

use crate::counters;
use crate::history::Call;
use crate::host::Host;
use crate::invariants::copies_forget::forgets;
use crate::invariants::copies_hold_what_was_tried::{self, SeenCopy};
use crate::now::now_us;
use crate::oracle::generations::{GenerationLife, NamedLife};
use crate::watch;

/// Checks every existing copy against the inserts that were attempted so far.
pub(crate) fn look(hosts: &[Rc<Host>], calls: &[Call]) {
    let found: Vec<_> = watch::with(|checks| {
        let mut found = Vec::new();
        for (name, lives) in checks.generations.all() {
            for (place, life) in lives.iter().enumerate() {
                let copies = copies_of(hosts, life);
                let of_life: Vec<SeenCopy<'_>> =
                    copies.into_iter().filter(|copy| copy.generation == life.generation).collect();
                if of_life.is_empty() || forgets(&life.settings) {
                    continue;
                }
                counters::checked(copies_hold_what_was_tried::NAME, of_life.len() as u64);
                let of = NamedLife { name, place, life };
                let tried = copies_hold_what_was_tried::tried(&checks.generations, calls, of);
                let others = copies_hold_what_was_tried::items(calls, name);
                let looked =
                    copies_hold_what_was_tried::look(now_us(), of, &tried, &of_life, &others);
                found.extend(looked);
            }
        }
        found
    });
    watch::with(|checks| checks.add(found));
}

/// The copies of a filter on all running nodes, of any generation.
pub(crate) fn copies_of<'a>(hosts: &'a [Rc<Host>], life: &GenerationLife) -> Vec<SeenCopy<'a>> {
    let filter = life.filter;
    let copies = hosts.iter().filter(|host| !host.is_lost.get()).filter_map(|host| {
        let (generation, bits) = host.node()?.copy(filter)?;
        Some(SeenCopy { host: &host.name, filter, generation, bits })
    });
    copies.collect()
}
