//! Sends beats to the other nodes, and carries out the failure detector's orders.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use umbel_engine::liveness::{Beat, GroupStanding, LivenessOrder};
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::{decode, encode};

use crate::group::Group;
use crate::host::{GroupHost, RunningGroups};
use crate::peer::{CallError, CallKind};

/// Sends beats and carries out the failure detector's orders; never ends.
pub async fn beat(host: Arc<GroupHost>, running: Arc<dyn RunningGroups>) {
    let mut ticks = tokio::time::interval(host.beats().interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut sent, mut stall) = (Sent::default(), Stall::default());
    loop {
        tokio::select! {
            biased;
            Some(ended) = sent.tasks.join_next() => {
                // A panic has been logged already and blocks nothing: the task's purpose is retried.
                sent.forget(ended.ok().as_ref());
            }
            _ = ticks.tick() => {
                // The failure detector takes this for a pause of the node, which it is.
                if stall.look(&host) {
                    continue;
                }
                // On a node that has just started, the catalogue may be older or newer than the
                // membership in the meta group's log.
                let meta = running.group(GroupId::META);
                let mut addresses = meta.map(|meta| meta.addresses()).unwrap_or_default();
                addresses.extend(running.addresses());
                let peers = addresses.keys().copied().filter(|&node| node != host.node()).collect();
                let homes = running.homes();
                let standing = |group: &Arc<Group>| group.standing(homes.get(&group.id()).copied());
                let groups: Vec<GroupStanding> = running.groups().iter().map(standing).collect();
                let (due, orders) = host.beats().tick(&peers, &groups);
                for (node, beat) in due {
                    if let Some(address) = addresses.get(&node) {
                        sent.send(&host, &running, node, address.clone(), beat);
                    }
                }
                for order in orders {
                    carry_out(&host, &*running, order, &mut sent);
                }
            }
        }
    }
}

/// Whether the disk keeps the log waiting for too long, as last seen.
#[derive(Default)]
struct Stall {
    is_on: bool,
}

impl Stall {
    /// Looks again, and tells operators if it has begun or ended.
    fn look(&mut self, host: &GroupHost) -> bool {
        let is_on = host.is_stalled();
        if is_on && !self.is_on {
            tracing::error!(
                "the disk of the data folder does not return from a write: this node is silent until it does, and \
                 others take over what it leads; look at the disk, or stop this node"
            );
        } else if self.is_on && !is_on {
            tracing::warn!("the disk of the data folder returns again: this node goes on");
        }
        self.is_on = is_on;
        is_on
    }
}

/// Tasks in flight: at most one beat per node, and one order per group.
#[derive(Default)]
struct Sent {
    tasks: JoinSet<Task>,
    nodes: BTreeSet<NodeId>,
    groups: BTreeSet<GroupId>,
}

/// What a task is for; the value with which it ends.
enum Task {
    Beat(NodeId),
    Group(GroupId),
}

impl Sent {
    fn forget(&mut self, task: Option<&Task>) {
        match task {
            Some(Task::Beat(node)) => drop(self.nodes.remove(node)),
            Some(Task::Group(group)) => drop(self.groups.remove(group)),
            None => {
                self.nodes.clear();
                self.groups.clear();
            }
        }
    }

    fn send(
        &mut self,
        host: &Arc<GroupHost>,
        running: &Arc<dyn RunningGroups>,
        node: NodeId,
        address: String,
        beat: Beat,
    ) {
        if self.nodes.insert(node) {
            let (host, running) = (Arc::clone(host), Arc::clone(running));
            self.tasks.spawn(async move {
                send_beat(&host, &*running, node, &address, &beat).await;
                Task::Beat(node)
            });
        }
    }

    /// Starts a task for a group, unless one is in flight.
    fn order(&mut self, group: GroupId, work: impl Future<Output = ()> + Send + 'static) {
        if self.groups.insert(group) {
            self.tasks.spawn(async move {
                work.await;
                Task::Group(group)
            });
        }
    }
}

async fn send_beat(
    host: &GroupHost,
    running: &dyn RunningGroups,
    node: NodeId,
    address: &str,
    beat: &Beat,
) {
    let (group, timeout) = (GroupId::META, host.beats().suspicion());
    let called =
        host.links().call(node, address, CallKind::Beat, group, encode(beat), timeout).await;
    match called.as_deref().map(decode::<Beat>) {
        Ok(Ok(answer)) => host.beats().is_answered(node, answer),
        Ok(Err(error)) => tracing::warn!(%node, %error, "the answer to a beat was not understood"),
        Err(CallError::Unreachable { .. }) => host.beats().is_unreachable(node),
        // The entry that removes a node may never reach that node; another node that has it reports it.
        Err(error) if error.is_removal() => running.fail_as_removed(error.to_string()),
        // The node has answered over this node's own link, if only that it is starting or has no time.
        Err(CallError::Refused { .. }) => host.beats().is_refused(node),
        // Silence: the failure detector notices it.
        Err(error) => tracing::debug!(%node, %error, "a beat was not answered"),
    }
}

fn carry_out(host: &GroupHost, running: &dyn RunningGroups, order: LivenessOrder, sent: &mut Sent) {
    match order {
        LivenessOrder::Suspect(node) => {
            tracing::warn!(%node, "not heard any more: others take over what it leads");
            host.links().give_up(node);
        }
        LivenessOrder::Trust(node) => tracing::info!(%node, "heard"),
        LivenessOrder::OutOfReach { node, unanswered_ms } => tracing::warn!(
            %node,
            unanswered_ms,
            "heard, but it answers nothing over this node's own connections: does a firewall close them?"
        ),
        LivenessOrder::InReach(node) => tracing::info!(%node, "answers again"),
        LivenessOrder::Stand(id) => {
            if let Some(group) = running.group(id) {
                sent.order(id, async move { group.stand().await });
            }
        }
        LivenessOrder::Remind(id) => {
            if let Some(group) = running.group(id) {
                sent.order(id, async move { group.remind().await });
            }
        }
        LivenessOrder::HandOver { group: id, to } => {
            if let Some(group) = running.group(id) {
                sent.order(id, async move { group.hand_home(to).await });
            }
        }
    }
}
