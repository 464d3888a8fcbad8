//! Which generations the replicated filters had, and which of them a call may have been about.
//!
//! The meta group's log determines when a generation began for the catalogue. A node uses the
//! generation in its own copy of the catalogue, which may be outdated. Until it learns of the next
//! generation, it accepts inserts into the old one, which are lost then. So a call is about some
//! generation between the last one that its node knew when the call began, and the last one that any
//! node knew when the call ended.

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
pub(crate) struct GenerationLife {
    /// The filter.
    pub(crate) filter: FilterId,
    /// Its generation.
    pub(crate) generation: Generation,
    /// As it was created.
    pub(crate) settings: FilterSettings,
    /// Index of the entry in the meta group's log that began it.
    from_index: u64,
    /// When that entry was first applied, in simulated microseconds.
    pub(crate) from_us: u64,
    /// When the entry that ended it was first applied, or never.
    pub(crate) to_us: u64,
}

/// A generation, and which of a name's generations it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedLife<'a> {
    pub(crate) name: &'a str,
    /// Its place among the generations of the name.
    pub(crate) place: usize,
    pub(crate) life: &'a GenerationLife,
}

/// A permanent loss of a machine's disk.
#[derive(Clone, Copy, Debug)]
struct DiskLoss {
    machine: u32,
    /// When the retirement of its node began.
    from_us: u64,
    /// When the machine got another node, or never.
    to_us: u64,
}

/// All generations of all replicated filters.
#[derive(Default, Debug)]
pub(crate) struct Generations {
    /// By name, in the order of their beginnings.
    lives: BTreeMap<String, Vec<GenerationLife>>,
    /// The last processed entry of the meta group.
    defined: u64,
    /// For each host, which entries its node had applied since its last start, with times.
    applied_on: BTreeMap<String, Vec<(u64, u64)>>,
    losses: Vec<DiskLoss>,
    /// Maximum age of the catalogue that a node uses.
    catalogue_age_us: u64,
}

/// Maximum age of a node's catalogue if old maps are provoked, and a margin.
const OLD_MAP_US: u64 = 2_100_000;

impl Generations {
    /// Call this if nodes use outdated maps.
    pub(crate) const fn expect_old_maps(&mut self) {
        self.catalogue_age_us = OLD_MAP_US;
    }

    /// A host's node begins to read its log of the meta group: it knows nothing yet.
    pub(crate) fn started(&mut self, at_us: u64, host: &str) {
        self.applied_on.entry(host.to_owned()).or_default().push((at_us, 0));
    }

    /// A host's node has a catalogue up to this entry of the meta group's log; `newest` is the state
    /// that the log has produced so far.
    pub(crate) fn applied_on(&mut self, at_us: u64, host: &str, index: u64, newest: &MetaState) {
        if index > self.defined {
            self.defined = index;
            self.define(at_us, index, newest);
        }
        let applied_on = self.applied_on.entry(host.to_owned()).or_default();
        let before = applied_on.last().map_or(0, |&(_, index)| index);
        if index > before {
            applied_on.push((at_us, index));
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
                lives.push(GenerationLife {
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

    /// A machine's node begins to be retired, with everything on its disk.
    pub(crate) fn losing(&mut self, at_us: u64, machine: u32) {
        let is_open = |loss: &DiskLoss| loss.machine == machine && loss.to_us == NEVER_US;
        if !self.losses.iter().any(is_open) {
            self.losses.push(DiskLoss { machine, from_us: at_us, to_us: NEVER_US });
        }
    }

    /// A machine has an empty disk.
    pub(crate) fn lost(&mut self, at_us: u64, machine: u32) {
        self.losing(at_us, machine);
        let open = self.losses.iter_mut().filter(|loss| loss.machine == machine);
        open.filter(|loss| loss.to_us == NEVER_US).for_each(|loss| loss.to_us = at_us);
    }

    /// Names and generations of all replicated filters that there ever were.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &[GenerationLife])> {
        self.lives.iter().map(|(name, lives)| (name.as_str(), lives.as_slice()))
    }

    /// The generations that a call may be about, as indices into the list of its filter's; `None` if
    /// there was none yet.
    pub(crate) fn span(&self, call: &Call) -> Option<RangeInclusive<usize>> {
        let lives = self.lives.get(&call.filter)?;
        let by_us = end_us(call).saturating_add(CLOCKS_APART_US);
        let last = lives.iter().rposition(|life| life.from_us <= by_us)?;
        let known = call.machine.map_or(0, |machine| self.known(machine, call.start_us));
        let first = lives.iter().rposition(|life| life.from_index <= known).unwrap_or(0);
        Some(first.min(last)..=last)
    }

    /// The generation that a call was about, if only one is possible.
    pub(crate) fn only(&self, call: &Call) -> Option<usize> {
        let span = self.span(call)?;
        (span.start() == span.end()).then_some(*span.start())
    }

    /// The last entry that a machine's node had certainly applied at a time.
    pub(crate) fn known(&self, machine: u32, at_us: u64) -> u64 {
        let applied_on = self.applied_on.get(&host_name(machine)).map_or(&[][..], Vec::as_slice);
        let is_known = |from_us: u64| from_us + CLOCKS_APART_US + self.catalogue_age_us < at_us;
        let at = applied_on.partition_point(|&(from_us, _)| is_known(from_us));
        // A start takes effect at once.
        let started =
            applied_on[at..].iter().any(|&(from_us, index)| from_us <= at_us && index == 0);
        if started { 0 } else { at.checked_sub(1).map_or(0, |at| applied_on[at].1) }
    }

    /// Whether a machine's node was started in that interval.
    pub(crate) fn was_started(&self, machine: u32, from_us: u64, to_us: u64) -> bool {
        let applied_on = self.applied_on.get(&host_name(machine)).map_or(&[][..], Vec::as_slice);
        applied_on.iter().any(|&(at_us, index)| {
            index == 0 && at_us + CLOCKS_APART_US >= from_us && at_us <= to_us + CLOCKS_APART_US
        })
    }

    /// Whether the data on a machine's disk at that time was lost later.
    pub(crate) fn was_lost(&self, machine: u32, at_us: u64) -> bool {
        self.losses.iter().any(|loss| loss.machine == machine && loss.to_us >= at_us)
    }

    /// How many nodes were lost in that interval.
    pub(crate) fn loss_count(&self, from_us: u64, to_us: u64) -> usize {
        let overlaps = |loss: &&DiskLoss| loss.to_us >= from_us && loss.from_us <= to_us;
        self.losses.iter().filter(overlaps).count()
    }
}

#[cfg(test)]
#[path = "generations_test.rs"]
mod generations_test;
