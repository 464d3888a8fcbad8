//! Which generations the replicated filters had, and which of them a call may have been about.
//!
//! The meta group's log says when a generation began for the catalogue. A node lives in the one that
//! its own copy of the catalogue names, which may be an old one, and until it learns of the next it
//! takes inserts into the old one, which are gone then. So a call is about some generation from the
//! last one that its node knew of when it began up to the last one that anybody knew of
//! when it ended.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use umbel_engine::meta::{FilterSettings, MetaState};
use umbel_engine::{FilterId, Generation};

use super::bits::NEVER_US;
use super::view::{CLOCKS_APART_US, end_us};
use crate::history::Call;
use crate::names::host_name;

/// One generation of a replicated filter.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// The filter.
    pub(crate) filter: FilterId,
    /// Its generation.
    pub(crate) generation: Generation,
    /// As it was created.
    pub(crate) settings: FilterSettings,
    /// The entry of the meta group's log that began it.
    from_index: u64,
    /// When that was applied first, in simulated microseconds.
    pub(crate) from_us: u64,
    /// When the entry that ended it was applied first, or never.
    pub(crate) to_us: u64,
}

/// A machine's disk was lost for good.
#[derive(Clone, Copy, Debug)]
struct Loss {
    machine: u32,
    /// When its node began to be retired.
    from_us: u64,
    /// When the machine got another node, or never.
    to_us: u64,
}

/// All generations of all replicated filters.
#[derive(Default, Debug)]
pub(crate) struct Generations {
    /// By name, in the order of their beginnings.
    lives: BTreeMap<String, Vec<Life>>,
    /// The last entry of the meta group that was looked at.
    defined: u64,
    /// For each host, up to which entry its node had applied from when on, since its last start.
    applied_on: BTreeMap<String, Vec<(u64, u64)>>,
    losses: Vec<Loss>,
    /// How old the catalogue may be that a node goes by.
    catalogue_age_us: u64,
}

/// How old the catalogue is that a node goes by where old maps are provoked, and a little more.
const OLD_MAP_US: u64 = 2_100_000;

impl Generations {
    /// Nodes go by old maps.
    pub(crate) const fn expect_old_maps(&mut self) {
        self.catalogue_age_us = OLD_MAP_US;
    }

    /// A host's node begins to read its log of the meta group: it knows nothing yet.
    pub(crate) fn started(&mut self, at_us: u64, host: &str) {
        self.applied_on.entry(host.to_owned()).or_default().push((at_us, 0));
    }

    /// A host's node has a catalogue up to this entry of the meta group's log; `newest` is what
    /// that log made of the catalogue so far.
    pub(crate) fn applied_on(&mut self, at_us: u64, host: &str, index: u64, newest: &MetaState) {
        if index > self.defined {
            self.defined = index;
            self.define(at_us, index, newest);
        }
        let applied_on = self.applied_on.entry(host.to_owned()).or_default();
        let before = applied_on.last().map_or(0, |&(_, index)| index);
        // Only beginnings matter.
        let begun = self.lives.values().flatten().filter(|life| life.from_index <= index);
        let begun = begun.map(|life| life.from_index).max().unwrap_or(0);
        if begun > before {
            applied_on.push((at_us, begun));
        }
    }

    fn define(&mut self, at_us: u64, index: u64, newest: &MetaState) {
        let replicated = || newest.filters().filter(|(_, record)| record.is_replicated());
        for life in self.lives.values_mut().flatten().filter(|life| life.to_us == NEVER_US) {
            let is_same = replicated()
                .any(|(id, record)| (id, record.generation) == (life.filter, life.generation));
            if !is_same {
                life.to_us = at_us;
            }
        }
        for (filter, record) in replicated() {
            let lives = self.lives.entry(record.name.as_str().to_owned()).or_default();
            let is_known = lives
                .iter()
                .any(|life| (life.filter, life.generation) == (filter, record.generation));
            if !is_known {
                lives.push(Life {
                    filter,
                    generation: record.generation,
                    settings: record.settings.clone(),
                    from_index: index,
                    from_us: at_us,
                    to_us: NEVER_US,
                });
            }
        }
    }

    /// A machine's node is retired with all that is on its disk.
    pub(crate) fn losing(&mut self, at_us: u64, machine: u32) {
        let is_open = |loss: &Loss| loss.machine == machine && loss.to_us == NEVER_US;
        if !self.losses.iter().any(is_open) {
            self.losses.push(Loss { machine, from_us: at_us, to_us: NEVER_US });
        }
    }

    /// A machine has an empty disk.
    pub(crate) fn lost(&mut self, at_us: u64, machine: u32) {
        self.losing(at_us, machine);
        let open = self.losses.iter_mut().filter(|loss| loss.machine == machine);
        open.filter(|loss| loss.to_us == NEVER_US).for_each(|loss| loss.to_us = at_us);
    }

    /// Names and generations of all replicated filters that there ever were.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &[Life])> {
        self.lives.iter().map(|(name, lives)| (name.as_str(), lives.as_slice()))
    }

    /// The generations that a call may be about, as places in the list of its filter's; None if there
    /// was none yet.
    pub(crate) fn span(&self, call: &Call) -> Option<RangeInclusive<usize>> {
        let lives = self.lives.get(&call.filter)?;
        let by_us = end_us(call).saturating_add(CLOCKS_APART_US);
        let last = lives.iter().rposition(|life| life.from_us <= by_us)?;
        let known = call.machine.map_or(0, |machine| self.known(machine, call.start_us));
        let first = lives.iter().rposition(|life| life.from_index <= known).unwrap_or(0);
        Some(first.min(last)..=last)
    }

    /// The one generation that a call was about, if only one may be.
    pub(crate) fn only(&self, call: &Call) -> Option<usize> {
        let span = self.span(call)?;
        (span.start() == span.end()).then_some(*span.start())
    }

    /// Up to which entry a machine's node had surely applied at a moment.
    fn known(&self, machine: u32, at_us: u64) -> u64 {
        let applied_on = self.applied_on.get(&host_name(machine)).map_or(&[][..], Vec::as_slice);
        let is_known = |from_us: u64| from_us + CLOCKS_APART_US + self.catalogue_age_us < at_us;
        let at = applied_on.partition_point(|&(from_us, _)| is_known(from_us));
        // A start takes effect at once.
        let started =
            applied_on[at..].iter().any(|&(from_us, index)| from_us <= at_us && index == 0);
        if started { 0 } else { at.checked_sub(1).map_or(0, |at| applied_on[at].1) }
    }

    /// Whether a machine's node was started in that time.
    pub(crate) fn was_started(&self, machine: u32, from_us: u64, to_us: u64) -> bool {
        let applied_on = self.applied_on.get(&host_name(machine)).map_or(&[][..], Vec::as_slice);
        applied_on.iter().any(|&(at_us, index)| {
            index == 0 && at_us + CLOCKS_APART_US >= from_us && at_us <= to_us + CLOCKS_APART_US
        })
    }

    /// Whether what a machine's node had on its disk at a moment was lost later.
    pub(crate) fn was_lost(&self, machine: u32, at_us: u64) -> bool {
        self.losses.iter().any(|loss| loss.machine == machine && loss.to_us >= at_us)
    }

    /// How many nodes were lost from a moment to another one.
    pub(crate) fn loss_count(&self, from_us: u64, to_us: u64) -> usize {
        let overlaps = |loss: &&Loss| loss.to_us >= from_us && loss.from_us <= to_us;
        self.losses.iter().filter(overlaps).count()
    }
}

#[cfg(test)]
#[path = "generations_test.rs"]
mod generations_test;
