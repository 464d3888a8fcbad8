//! Faults of the links of a world.

use std::time::Duration;

use super::{LATENCY, World};
use crate::links::{Claim, Direction, LinkState, link_name, set_link};

impl World {
    /// The numbers of all hosts, including the clients' host.
    pub(crate) fn everybody(&self) -> Vec<u32> {
        (0..=u32::try_from(self.hosts.len()).expect("a few hosts")).collect()
    }

    /// Has a fault claim directions of links.
    pub(crate) fn claim(&mut self, directions: &[Direction], claim: Claim, class: &'static str) {
        let changed = self.links.claim(directions, claim, class);
        self.set_links(&changed);
    }

    /// Whether no fault affects the messages between two machines.
    pub(crate) fn is_healthy(&self, pair: [u32; 2]) -> bool {
        self.links.is_healthy(pair)
    }

    /// Has a fault release directions of links.
    pub(crate) fn unclaim(&mut self, directions: &[Direction], claim: Claim, class: &'static str) {
        let changed = self.links.release(directions, claim, class);
        self.set_links(&changed);
    }

    fn set_links(&self, changed: &[(Direction, LinkState, LinkState)]) {
        for &((low, high), before, wanted) in changed {
            set_link(&self.sim, [&link_name(low), &link_name(high)], before, wanted);
        }
    }

    /// Sets the longest latency of messages from and to a node; `None` for the default.
    pub(crate) fn set_latency(&self, number: u32, longest: Option<Duration>) {
        for other in self.everybody().into_iter().filter(|other| *other != number) {
            self.set_link_latency([number, other], longest.unwrap_or(LATENCY[1]));
        }
    }

    /// Sets the longest latency of messages between two machines.
    pub(crate) fn set_link_latency(&self, pair: [u32; 2], longest: Duration) {
        let [one, other] = pair.map(link_name);
        self.sim.set_link_max_message_latency(one.as_str(), other.as_str(), longest);
    }
}
