//! A supervisor and an operator, who act on nodes that do not run.

use std::rc::Rc;

use super::World;
use crate::counters;
use crate::host::{Failure, Host};
use crate::now::now_us;
use crate::operator::Task;
use crate::trace;
use crate::watch;

/// After this time the supervisor restarts a failed node, in simulated microseconds.
const RESTART_US: u64 = 1_000_000;

/// How long the operator lets a node wait for the one that it joins through, in simulated microseconds.
/// Machines that start together are up by then.
const JOIN_PATIENCE_US: u64 = 5_000_000;

impl World {
    /// Passes the groups' reports to the checks, and restarts, replaces or redirects nodes that do not
    /// run.
    pub(super) fn look(&mut self) {
        self.look_at_certificates();
        self.look_at_leaders();
        for host in self.hosts.clone() {
            if let Some(node) = host.node()
                && !host.is_lost.get()
            {
                watch::look(&host.name, &node.groups());
            }
            let number = host.number;
            if self.reserved.contains_key(&number) {
                continue;
            }
            if self.retiring.contains_key(&number) {
                // The fault that began the retirement may be over.
                self.replace(number, false);
                continue;
            }
            match host.failure() {
                Some(Failure::Stopped(_)) => {
                    let due = *self.restarts.entry(number).or_insert(now_us() + RESTART_US);
                    if due <= now_us() {
                        self.restarts.remove(&number);
                        self.start(number);
                    }
                }
                Some(Failure::Data(_) | Failure::Membership(_)) => {
                    self.replace(number, false);
                }
                None => self.redirect(&host),
            }
        }
    }

    /// Has a node that waits to join through one that is not running join through another member.
    /// Otherwise a member that lost its disk and the node that joins through it could wait for each
    /// other.
    fn redirect(&mut self, host: &Rc<Host>) {
        let waits_since = now_us().saturating_sub(JOIN_PATIENCE_US);
        let Some(through) = host.joins_through(waits_since) else { return };
        if self.hosts.iter().any(|other| other.is_up() && other.address() == through) {
            return;
        }
        let Some(other) = self.member_beside(host.number) else { return };
        trace::line(now_us(), &host.name, "redirected", format_args!("{through} -> {other}"));
        host.join.replace(Some(other));
        self.kill(host.number);
        self.start(host.number);
    }

    /// The address of a running node on another machine.
    fn member_beside(&self, number: u32) -> Option<String> {
        let member = self.hosts.iter().find(|host| host.number != number && host.is_up());
        member.map(|host| host.address())
    }

    /// Numbers of the machines whose nodes are being retired.
    pub(crate) fn retiring(&self) -> impl Iterator<Item = u32> {
        self.retiring.keys().copied()
    }

    /// Has the operator retire a node, and then starts a new one on its machine. Called repeatedly until
    /// it returns true, which means that the new node was started.
    pub(crate) fn replace(&mut self, number: u32, drain: bool) -> bool {
        let host = Rc::clone(self.host(number));
        let listed = || host.failure().as_ref().and_then(Failure::listed);
        let Some(node) = host.node_id.get().or_else(listed) else {
            // The node never got an id, so there is nothing to retire.
            self.kill(number);
            return self.renew(number);
        };
        watch::with(|checks| checks.generations.losing(now_us(), number));
        let operation = self
            .retiring
            .entry(number)
            .or_insert_with(|| self.operator.send(Task::Retire { node, drain }));
        match operation.outcome() {
            None => false,
            Some(Err(_)) => {
                self.retiring.remove(&number);
                false
            }
            Some(Ok(())) => {
                self.retiring.remove(&number);
                self.kill(number);
                self.renew(number)
            }
        }
    }

    /// Starts a machine with an empty disk as a new node; false if there is no running node to join
    /// through.
    fn renew(&mut self, number: u32) -> bool {
        let Some(through) = self.member_beside(number) else { return false };
        let host = Rc::clone(self.host(number));
        watch::with(|checks| {
            checks.raft.lost_disk(&host.name);
            checks.generations.lost(now_us(), number);
        });
        host.become_new(through);
        counters::state("node_replaced");
        self.start(number);
        true
    }
}
