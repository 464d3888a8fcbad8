//! The failure detector of this node: it sends beats to the other nodes, and carries out what follows from their
//! silence. What that is decides [`umbel_engine::liveness`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use umbel_engine::liveness::{Beat, GroupStanding, Input, Liveness, Order, Timing};
use umbel_engine::{GroupId, NodeId, Outbox};

use crate::config::Config;
use crate::local::Local;
use crate::peer::{CallError, CallKind};
use crate::raft::encoding::{decode, encode};

/// What this node knows of which others are alive.
pub(crate) struct Beats {
    began: Instant,
    timing: Timing,
    state: Mutex<State>,
}

struct State {
    liveness: Liveness,
    orders: Outbox<Order>,
}

impl Beats {
    /// The incarnation is a number that no other process of this node had.
    pub(crate) fn new(node: NodeId, incarnation: u64, config: &Config) -> Self {
        let timing = Timing { beat_ms: config.heartbeat_ms, suspect_ms: config.suspect_ms };
        let liveness = Liveness::new(node, incarnation, timing);
        let state = Mutex::new(State { liveness, orders: Outbox::new() });
        Self { began: Instant::now(), timing, state }
    }

    /// How long a node may be silent before it is suspected.
    pub(crate) const fn suspicion(&self) -> Duration {
        Duration::from_millis(self.timing.suspect_ms)
    }

    /// How long an election may take, with what has to be noticed before it and a few that come to nothing.
    pub(crate) fn election(&self) -> Duration {
        10 * self.suspicion()
    }

    /// Whether a node was heard, and is not any more.
    pub(crate) fn is_suspected(&self, node: NodeId) -> bool {
        self.lock().liveness.is_suspected(node)
    }

    /// Whether a majority of each of these sets is alive.
    pub(crate) fn has_majority(&self, voters: &[BTreeSet<NodeId>]) -> bool {
        self.lock().liveness.has_majority(voters)
    }

    /// Whether a live node other than the candidate leads a group, in this term or a later one.
    pub(crate) fn hears_leader(&self, group: GroupId, term: u64, candidate: NodeId) -> bool {
        self.lock().liveness.hears_leader(group, term, candidate)
    }

    /// Takes another node's beat; what it is answered.
    pub(crate) fn take(&self, node: NodeId, beat: Beat) -> Beat {
        let now_ms = self.now_ms();
        let mut state = self.lock();
        let State { liveness, orders } = &mut *state;
        liveness.step(Input::Heard { node, now_ms, beat }, orders);
        liveness.beat_for(node)
    }

    fn is_unreachable(&self, node: NodeId) {
        let mut state = self.lock();
        let State { liveness, orders } = &mut *state;
        liveness.step(Input::Unreachable { node }, orders);
    }

    /// A beat's time has passed: whom to send one, and what else is to be done.
    fn tick(
        &self,
        peers: &BTreeSet<NodeId>,
        groups: &[GroupStanding],
    ) -> (Vec<(NodeId, Beat)>, Vec<Order>) {
        let now_ms = self.now_ms();
        let mut state = self.lock();
        let State { liveness, orders } = &mut *state;
        liveness.step(Input::Tick { now_ms, peers, groups }, orders);
        let due = liveness.due().into_iter().map(|node| (node, liveness.beat_for(node)));
        (due.collect(), orders.take())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of the lock panics, and the detector is whole after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends beats and carries out what they order; never ends.
pub(crate) async fn beat(local: Arc<Local>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(local.beats().timing.beat_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sent = Sent::default();
    loop {
        tokio::select! {
            biased;
            Some(ended) = sent.tasks.join_next() => {
                // A task that panicked has said so, and holds up nothing: its node is beaten again.
                sent.forget(ended.ok().as_ref());
            }
            _ = ticks.tick() => {
                let addresses = local.all_addresses();
                let peers = addresses.keys().copied().filter(|&node| node != local.node()).collect();
                let groups: Vec<GroupStanding> =
                    local.groups().iter().map(|group| group.standing()).collect();
                let (due, orders) = local.beats().tick(&peers, &groups);
                for (node, beat) in due {
                    if let Some(address) = addresses.get(&node) {
                        sent.send(&local, node, address.clone(), beat);
                    }
                }
                for order in orders {
                    carry_out(&local, order, &mut sent);
                }
            }
        }
    }
}

/// What is on its way: one beat a node, one question for votes a group.
#[derive(Default)]
struct Sent {
    tasks: JoinSet<Errand>,
    nodes: BTreeSet<NodeId>,
    groups: BTreeSet<GroupId>,
}

/// What a task was for.
enum Errand {
    Beat(NodeId),
    Group(GroupId),
}

impl Sent {
    fn forget(&mut self, errand: Option<&Errand>) {
        match errand {
            Some(Errand::Beat(node)) => drop(self.nodes.remove(node)),
            Some(Errand::Group(group)) => drop(self.groups.remove(group)),
            None => {
                self.nodes.clear();
                self.groups.clear();
            }
        }
    }

    fn send(&mut self, local: &Arc<Local>, node: NodeId, address: String, beat: Beat) {
        if self.nodes.insert(node) {
            let local = Arc::clone(local);
            self.tasks.spawn(async move {
                send_beat(&local, node, &address, &beat).await;
                Errand::Beat(node)
            });
        }
    }

    /// One thing at a time for each group.
    fn order(&mut self, group: GroupId, errand: impl Future<Output = ()> + Send + 'static) {
        if self.groups.insert(group) {
            self.tasks.spawn(async move {
                errand.await;
                Errand::Group(group)
            });
        }
    }
}

async fn send_beat(local: &Local, node: NodeId, address: &str, beat: &Beat) {
    let (group, timeout) = (GroupId::META, local.beats().suspicion());
    let called =
        local.links().call(node, address, CallKind::Beat, group, encode(beat), timeout).await;
    match called.as_deref().map(decode::<Beat>) {
        Ok(Ok(answer)) => drop(local.beats().take(node, answer)),
        Ok(Err(error)) => tracing::warn!(%node, %error, "the answer to a beat was not understood"),
        Err(CallError::Unreachable { .. }) => local.beats().is_unreachable(node),
        // Silence, or a node that is starting: both show in time.
        Err(error) => tracing::debug!(%node, %error, "a beat was not answered"),
    }
}

fn carry_out(local: &Arc<Local>, order: Order, sent: &mut Sent) {
    match order {
        Order::Suspect(node) => {
            tracing::warn!(%node, "not heard any more: others take over what it leads");
            local.links().give_up(node);
        }
        Order::Trust(node) => tracing::info!(%node, "heard"),
        Order::Stand(id) => {
            if let Some(group) = local.group(id) {
                sent.order(id, async move { group.stand().await });
            }
        }
        Order::Remind(id) => {
            if let Some(group) = local.group(id) {
                sent.order(id, async move { group.remind().await });
            }
        }
        Order::HandOver { group: id, to } => {
            if let Some(group) = local.group(id) {
                sent.order(id, async move { group.hand_home(to).await });
            }
        }
    }
}
