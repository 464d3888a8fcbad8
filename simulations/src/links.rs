//! Which hosts can currently reach each other, given all active faults.
//!
//! Faults overlap, and turmoil only keeps the last setting of a link. So every fault adds a claim here
//! and withdraws it at its end, and the state of a link is the worst of its claims: cut before held
//! before healthy.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::counters;
use crate::names::host_name;

pub(crate) mod closed;

/// Number of the host of all clients; nodes are numbered from 1.
pub(crate) const CLIENTS: u32 = 0;

/// Name of the clients' host.
pub(crate) const CLIENTS_HOST: &str = "clients";

/// The name of a host in links.
pub(crate) fn link_name(number: u32) -> String {
    if number == CLIENTS { CLIENTS_HOST.to_owned() } else { host_name(number) }
}

/// What a fault does to messages from one host to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Claim {
    /// Messages are held; both directions are always claimed together.
    Held,
    /// Messages are dropped.
    Cut,
}

/// One direction of a link: from, to.
pub(crate) type Direction = (u32, u32);

/// The state of a pair of hosts in turmoil.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkState {
    /// All messages arrive.
    Healthy,
    /// Messages are held.
    Held,
    /// Messages in the flagged directions are dropped.
    Cut {
        /// Lower to higher.
        up: bool,
        /// Higher to lower.
        down: bool,
    },
}

/// The claims of all active faults.
#[derive(Default)]
pub(crate) struct Links {
    claims: BTreeMap<Direction, Vec<(Claim, &'static str)>>,
    states: BTreeMap<Direction, LinkState>,
}

thread_local! {
    /// The fault class that currently affects each direction, for the hosts that write to it.
    static SUFFERING: RefCell<BTreeMap<Direction, &'static str>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// Called when a host writes to another one: a fault of their link has an effect.
pub(crate) fn note_write(from: u32, to: u32) {
    SUFFERING.with_borrow(|suffering| {
        if let Some(class) = suffering.get(&(from, to)) {
            counters::effect(class, 1);
        }
    });
}

/// Changes how turmoil treats a pair of hosts, the lower number first.
pub(crate) fn set_link(
    sim: &turmoil::Sim<'_>,
    [low, high]: [&str; 2],
    before: LinkState,
    wanted: LinkState,
) {
    match before {
        LinkState::Held => sim.release(low, high),
        _ => sim.repair(low, high),
    }
    match wanted {
        LinkState::Healthy => {}
        LinkState::Held => sim.hold(low, high),
        LinkState::Cut { up, down } => {
            if up {
                sim.partition_oneway(low, high);
            }
            if down {
                sim.partition_oneway(high, low);
            }
        }
    }
}

impl Links {
    /// Adds a fault's claims; returns the pairs (lower, higher) whose state changes.
    pub(crate) fn claim(
        &mut self,
        directions: &[Direction],
        claim: Claim,
        class: &'static str,
    ) -> Vec<(Direction, LinkState, LinkState)> {
        for &direction in directions {
            self.claims.entry(direction).or_default().push((claim, class));
        }
        self.update_states(directions)
    }

    /// Withdraws a fault's claims; returns the pairs whose state changes.
    pub(crate) fn release(
        &mut self,
        directions: &[Direction],
        claim: Claim,
        class: &'static str,
    ) -> Vec<(Direction, LinkState, LinkState)> {
        for direction in directions {
            if let Some(claims) = self.claims.get_mut(direction)
                && let Some(at) = claims.iter().position(|known| *known == (claim, class))
            {
                claims.remove(at);
            }
        }
        self.update_states(directions)
    }

    /// Whether each of two hosts can connect to the other one, and all messages arrive.
    pub(crate) fn is_healthy(&self, [one, other]: [u32; 2]) -> bool {
        let state = self.states.get(&(one.min(other), one.max(other)));
        closed::is_open([one, other]) && state.is_none_or(|state| *state == LinkState::Healthy)
    }

    /// Whether no fault affects the messages between any two hosts. Which of them can connect is not asked.
    pub(crate) fn carry_all(&self) -> bool {
        self.states.values().all(|state| *state == LinkState::Healthy)
    }

    fn is_cut(&self, direction: Direction) -> bool {
        let claims = self.claims.get(&direction);
        claims.is_some_and(|claims| claims.iter().any(|(claim, _)| *claim == Claim::Cut))
    }

    fn update_states(
        &mut self,
        directions: &[Direction],
    ) -> Vec<(Direction, LinkState, LinkState)> {
        let mut changed = Vec::new();
        for &(one, other) in directions {
            let pair = (one.min(other), one.max(other));
            let (up, down) = (self.is_cut(pair), self.is_cut((pair.1, pair.0)));
            let is_held = [pair, (pair.1, pair.0)]
                .iter()
                .any(|direction| self.claims.get(direction).is_some_and(|c| !c.is_empty()));
            let wanted = match (up || down, is_held) {
                (true, _) => LinkState::Cut { up, down },
                (false, true) => LinkState::Held,
                (false, false) => LinkState::Healthy,
            };
            let before = self.states.insert(pair, wanted).unwrap_or(LinkState::Healthy);
            if before != wanted {
                changed.push((pair, before, wanted));
            }
        }
        SUFFERING.with_borrow_mut(|suffering| {
            suffering.clear();
            for (direction, claims) in &self.claims {
                if let Some((_, class)) = claims.iter().max_by_key(|(claim, _)| *claim) {
                    suffering.insert(*direction, class);
                }
            }
        });
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_faults_leave_the_link_when_the_last_one_ends() {
        let mut links = Links::default();
        let both = [(1, 2), (2, 1)];
        let cut = LinkState::Cut { up: true, down: true };
        let changed = links.claim(&both, Claim::Cut, "isolate");
        assert_eq!(
            changed,
            [((1, 2), LinkState::Healthy, LinkState::Cut { up: true, down: true })]
        );
        assert!(!links.carry_all());
        assert!(links.claim(&both, Claim::Cut, "split").is_empty());
        assert!(links.claim(&both, Claim::Held, "hold").is_empty(), "cut before held");
        assert!(links.release(&both, Claim::Cut, "isolate").is_empty());
        assert_eq!(links.release(&both, Claim::Cut, "split"), [((1, 2), cut, LinkState::Held)]);
        let healthy = [((1, 2), LinkState::Held, LinkState::Healthy)];
        assert!(!links.carry_all(), "held");
        assert_eq!(links.release(&both, Claim::Held, "hold"), healthy);
        assert!(links.carry_all());
    }

    #[test]
    fn one_direction_is_cut_alone() {
        let mut links = Links::default();
        let changed = links.claim(&[(2, 1)], Claim::Cut, "one_way");
        let cut = LinkState::Cut { up: false, down: true };
        assert_eq!(changed, [((1, 2), LinkState::Healthy, cut)]);
    }
}
