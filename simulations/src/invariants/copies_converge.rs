//! At the end all copies of a replicated filter are equal, have the catalogue's generation, and contain
//! every acknowledged item: for any level, items acknowledged by a node whose disk was not lost since;
//! for level majority, those acknowledged by any node.

use std::collections::BTreeSet;

use umbel_filter::Contains;

use super::copies_forget;
use super::copies_hold_what_was_tried::SeenCopy;
use crate::history::{Call, Outcome, Verb};
use crate::oracle::bits::hash_of;
use crate::oracle::generations::{GenerationLife, Generations, NamedLife};
use crate::plan::Ack;

/// Name of the invariant.
pub(crate) const NAME: &str = "copies_converge";

/// The state that the copies of a filter must have.
pub(crate) struct Wanted<'a> {
    name: &'a str,
    life: &'a GenerationLife,
    items: BTreeSet<u32>,
}

impl<'a> Wanted<'a> {
    /// What calls that have ended have made of a generation; it may lose so many nodes' disks
    /// without losing what a majority had.
    pub(crate) fn new(
        generations: &Generations,
        calls: &[Call],
        of: NamedLife<'a>,
        losses_max: usize,
    ) -> Self {
        let NamedLife { name, place, life } = of;
        let inserts = calls.iter().filter(|call| call.filter == name);
        let mut items = BTreeSet::new();
        // Windows are checked by `copies_forget`.
        for call in inserts.filter(|_| !copies_forget::forgets(&life.settings)) {
            let (Verb::InsertCopy(ack), Outcome::Done(_)) = (call.verb, &call.outcome) else {
                continue;
            };
            let is_kept = match (ack, call.machine) {
                (Ack::Majority, _) => generations.loss_count(call.start_us, u64::MAX) <= losses_max,
                (_, machine) => {
                    machine.is_some_and(|one| !generations.was_lost(one, call.start_us))
                }
            };
            if is_kept && generations.only(call) == Some(place) {
                items.extend(&call.items);
            }
        }
        Self { name, life, items }
    }

    /// Number of items that every copy must have.
    pub(crate) fn item_count(&self) -> usize {
        self.items.len()
    }

    /// How the copies differ from that, or from each other.
    pub(crate) fn difference(&self, copies: &[SeenCopy<'_>]) -> Option<String> {
        let GenerationLife { filter, generation, settings, .. } = self.life;
        let described = |copy: &SeenCopy<'_>, what: &str| {
            format!("the copy of {} ({filter}) on {} {what}", self.name, copy.host)
        };
        for copy in copies {
            if copy.generation != *generation {
                let what = format!("is at {}, the catalogue at {generation}", copy.generation);
                return Some(described(copy, &what));
            }
            let hash = |item: u32| hash_of(settings.key, item);
            let missing: Vec<u32> = self
                .items
                .iter()
                .copied()
                .filter(|&item| !copy.bits.contains(hash(item)))
                .collect();
            if let Some(first) = missing.first() {
                let (count, of) = (missing.len(), self.items.len());
                let what =
                    format!("lacks {count} of {of} acknowledged items, the first is {first}");
                return Some(described(copy, &what));
            }
        }
        let (first, rest) = copies.split_first()?;
        let other = rest.iter().find(|copy| copy.bits != first.bits)?;
        Some(described(other, &format!("has other bits than the one on {}", first.host)))
    }
}
