//! Whether groups have leaders that can call a majority, while links are closed one way.

use std::collections::BTreeMap;

use umbel_engine::liveness::is_majority;
use umbel_engine::{GroupId, NodeId};

use super::World;
use crate::links::closed;
use crate::now::now_us;
use crate::profile::Profile;
use crate::watch;

impl World {
    /// Checks the leaders of all groups in a plan in which one node at a time fails, while links are closed one way and
    /// nothing else is wrong: all nodes run, and what is sent over open connections arrives.
    pub(super) fn look_at_leaders(&self) {
        if self.plan.profile != Profile::Failover.name() {
            return;
        }
        let closed = closed::directions();
        let is_judged = !closed.is_empty()
            && self.links.carry_all()
            && self.hosts.iter().all(|host| host.is_up());
        if !is_judged {
            watch::with(|checks| checks.leaders_reach.pause());
            return;
        }
        let number = |voter: NodeId| {
            let host = self.hosts.iter().find(|host| host.node_id.get() == Some(voter.0));
            host.map(|host| host.number)
        };
        let mut led = BTreeMap::<GroupId, bool>::new();
        for host in &self.hosts {
            let calls =
                |voter| number(voter).is_some_and(|to| !closed.contains(&(host.number, to)));
            for report in host.node().map(|node| node.groups()).unwrap_or_default() {
                let is_leader = report.is_leader && !report.is_handing_over;
                let leads = is_leader && is_majority(&report.voters, calls);
                *led.entry(report.group).or_default() |= leads;
            }
        }
        watch::with(|checks| {
            let found = checks.leaders_reach.look(now_us(), &led);
            checks.add(found);
        });
    }
}
