//! Decides which nodes are alive, and which replica stands for election when a group has lost its leader.
//!
//! If every group detected a dead leader with its own heartbeats, a thousand groups would send a thousand
//! heartbeats. Here each pair of nodes exchanges one [`Beat`] for all groups that they share. A beat lists
//! the groups that its sender leads, so a node knows for every group whether a live node claims to lead it,
//! and an idle group needs almost no messages of its own.
//!
//! * A node that has sent nothing for [`Timing::suspect_ms`] is **suspected**; so is one that could not be reached
//!   twice in a row, because nothing listens where a process has ended. Failed attempts tell nothing of a node that
//!   is out of reach, or that was heard although they had failed: only its silence does.
//! * A node that has left all beats over this node's own link unanswered for that long, and two beat intervals
//!   more, in which another beat is sent after one that was given up, is **out of reach**: it may still be heard,
//!   because it opens links of its own. A leader claims a group only while it reaches a majority of the voters,
//!   since entries, reads and snapshots go over its own links. So that each node knows about its own links, both
//!   nodes of a pair send beats, the second one seldom ([`Liveness::due`]). Operators are told of a node that has
//!   been heard for that long and is out of reach.
//! * A group is **vacant** here if no live node claims to lead it in the term known here or a later one.
//!   Its replicas stand for election in turn, each some time after the previous one, so that two rarely
//!   stand at once. The turn starts at a different node for each group, so the groups of a dead leader are
//!   spread over the live nodes.
//! * A replica stands only if a majority of the voters is alive, and a replica whose node receives beats of
//!   a live leader votes for no other candidate ([`Liveness::has_live_leader`]): a node that is cut off
//!   does not raise terms.
//! * Followers learn the commit index with the next entry. If no entry follows, the leader **reminds**
//!   them, at growing intervals: a follower that missed the first reminder gets the second.
//! * The first node in a group's turn is its **home**: the voter that the shard map gives
//!   ([`homes`](crate::placement::homes())), or one by the group's number. A leader elsewhere hands leadership
//!   over once the home has been alive for [`STEADY_MS`] and sends beats over its own link, so that leaders are
//!   spread evenly again after a failure. Homes are no messages: nodes that compute different ones would hand
//!   leadership to and fro.
//!
//! All of this decides only when votes are requested, never what is safe: terms, votes and logs are Raft's,
//! and a wrong suspicion costs one election.
//!
//! CockroachDB's store liveness and TiKV's hibernated regions share the idea of one sign of life between
//! two nodes for all their groups; the code and the order of candidates are our own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::limits::SHARD_COUNT_MAX;
use crate::placement::usual_turn;
use crate::{GroupId, NodeId};
use umbel_step::Outbox;
use umbel_step::planted::{self, Planted};

mod peer;
mod rest;
mod vacancy;

#[cfg(test)]
mod liveness_test;

use peer::Peer;
use rest::GroupRest;
use vacancy::Vacancy;

/// Failed attempts in a row to reach a node after which it is suspected. A single one may be a broken
/// connection that is being re-established.
const UNREACHABLE_MIN: u32 = 2;

/// Milliseconds for which the home must have been alive, and the leader must have led, before leadership
/// goes home: a node that comes and goes causes no second election.
pub const STEADY_MS: u64 = 10_000;

/// Least milliseconds between two hand-overs by this node: each makes callers wait for an election.
pub const HAND_OVER_PAUSE_MS: u64 = 500;

/// Timing of the failure detector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Milliseconds between two beats of a pair of nodes.
    pub beat_ms: u64,
    /// Milliseconds without a beat after which a node is suspected.
    pub suspect_ms: u64,
}

/// A group that the sender of a beat leads, with the term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Led {
    /// The group.
    pub group: GroupId,
    /// The term in which the leader was elected.
    pub term: u64,
}

/// Identifies one version of a process's list of [`Led`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LedVersion {
    /// Drawn when the process starts: a restarted process leads nothing.
    pub incarnation: u64,
    /// Rises with each change of the list.
    pub number: u64,
}

/// The message that two nodes exchange; request and response have the same form.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beat {
    /// The version of the sender's current list.
    pub version: LedVersion,
    /// The sender's current list; None if the receiver is known to have it.
    pub leads: Option<Vec<Led>>,
    /// The version of the receiver's list that the sender has.
    pub has: Option<LedVersion>,
}

/// A group's replica on this node, as Raft sees it now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStanding {
    /// The group.
    pub group: GroupId,
    /// The term that the replica is in.
    pub term: u64,
    /// The node that the replica takes for the leader of that term.
    pub leader: Option<NodeId>,
    /// Whether this node leads the group and is not handing leadership over.
    pub is_leader: bool,
    /// The last entry that the replica knows to be committed.
    pub committed_index: u64,
    /// Whether the replica may lead: its log has every entry that it once acknowledged.
    pub may_lead: bool,
    /// Whether the replica may stand: it is a voter, or was one before a change of voters that it does not
    /// know to be committed.
    pub is_voter: bool,
    /// The voters by the newest list in the log, which elections use. Two sets during a change of voters,
    /// each of which needs a majority.
    pub voters: Vec<BTreeSet<NodeId>>,
    /// The node that should lead, by the shard map. If it is None or no voter, as while the map is behind
    /// the log, the group's number determines the home.
    pub home: Option<NodeId>,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A node's beat arrived, as a request or as a response.
    Received {
        /// The node that sent it.
        node: NodeId,
        /// The time, in milliseconds of this node's own clock.
        now_ms: u64,
        /// The beat.
        beat: Beat,
        /// Whether it answers a beat of this node. If not, it came over a link that the other node opened.
        is_answer: bool,
    },
    /// A node refused a beat of this one, as it does while it starts or has no time. That tells that the link to
    /// it works, not that it takes part.
    Refused {
        /// The node.
        node: NodeId,
    },
    /// A node could not be reached: nothing listens at its address, or the path to it is closed.
    Unreachable {
        /// The node.
        node: NodeId,
    },
    /// Time has passed. Given once every [`Timing::beat_ms`].
    Tick {
        /// The time, in milliseconds of this node's own clock.
        now_ms: u64,
        /// The other nodes of the cluster.
        peers: &'a BTreeSet<NodeId>,
        /// All replicas of this node.
        groups: &'a [GroupStanding],
    },
}

/// What the caller must do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LivenessOrder {
    /// The node is suspected from now on: calls that wait for it may give up.
    Suspect(NodeId),
    /// The node is alive, for the first time or again, or its process was restarted.
    Trust(NodeId),
    /// Tell operators that the node is heard and out of reach.
    OutOfReach {
        /// The node.
        node: NodeId,
        /// For how long it has been heard and has answered none of this node's beats.
        unanswered_ms: u64,
    },
    /// The node, of which operators were told that it is out of reach, answers again.
    InReach(NodeId),
    /// Run a pre-vote among the group's voters, and stand for election if a majority would vote for this
    /// replica.
    Stand(GroupId),
    /// Send the group's followers the commit index and nothing else: they may have missed it.
    Remind(GroupId),
    /// Hand leadership of the group to its home, if the home's log is as long.
    HandOver {
        /// The group.
        group: GroupId,
        /// Its home.
        to: NodeId,
    },
}

/// The failure detector of a node.
///
/// ```
/// use std::collections::BTreeSet;
/// use umbel_engine::liveness::{Beat, Input, LedVersion, Liveness, LivenessOrder, Timing};
/// use umbel_engine::NodeId;
/// use umbel_step::Outbox;
///
/// let timing = Timing { beat_ms: 100, suspect_ms: 500 };
/// let (mut liveness, mut outbox) = (Liveness::new(NodeId(1), 7, timing), Outbox::new());
/// let peers = BTreeSet::from([NodeId(2)]);
/// let beat = Beat { version: LedVersion { incarnation: 8, number: 1 }, leads: None, has: None };
/// liveness.step(Input::Tick { now_ms: 0, peers: &peers, groups: &[] }, &mut outbox);
/// let (node, is_answer) = (NodeId(2), false);
/// liveness.step(Input::Received { node, now_ms: 10, beat, is_answer }, &mut outbox);
/// assert_eq!(outbox.take(), [LivenessOrder::Trust(NodeId(2))]);
/// for now_ms in (100..=500).step_by(100) {
///     liveness.step(Input::Tick { now_ms, peers: &peers, groups: &[] }, &mut outbox);
/// }
/// assert!(outbox.take().is_empty());
/// liveness.step(Input::Tick { now_ms: 600, peers: &peers, groups: &[] }, &mut outbox);
/// assert_eq!(outbox.take(), [LivenessOrder::Suspect(NodeId(2))]);
/// ```
#[derive(Debug)]
pub struct Liveness {
    own: NodeId,
    timing: Timing,
    version: LedVersion,
    /// The groups that this node leads while it reaches a majority of the voters.
    led: Vec<Led>,
    /// Since when this node leads each of them.
    led_since_ms: BTreeMap<GroupId, u64>,
    peers: BTreeMap<NodeId, Peer>,
    vacancies: BTreeMap<GroupId, Vacancy>,
    /// How long each group that this node leads has been idle.
    rests: BTreeMap<GroupId, GroupRest>,
    ticked_ms: Option<u64>,
    handed_over_ms: Option<u64>,
}

impl Liveness {
    /// A detector that knows no peer yet. No other process of this node may have had the same incarnation.
    #[must_use]
    pub const fn new(own: NodeId, incarnation: u64, timing: Timing) -> Self {
        Self {
            own,
            timing,
            version: LedVersion { incarnation, number: 0 },
            led: Vec::new(),
            led_since_ms: BTreeMap::new(),
            peers: BTreeMap::new(),
            vacancies: BTreeMap::new(),
            rests: BTreeMap::new(),
            ticked_ms: None,
            handed_over_ms: None,
        }
    }

    /// Handles an event.
    pub fn step(&mut self, input: Input<'_>, outbox: &mut Outbox<LivenessOrder>) {
        match input {
            Input::Received { node, now_ms, beat, is_answer } => {
                let Some(peer) = self.peers.get_mut(&node) else { return };
                if is_answer {
                    if peer.answered() {
                        outbox.push(LivenessOrder::InReach(node));
                    }
                } else {
                    peer.called(now_ms);
                }
                if peer.receive(now_ms, beat) {
                    // It may lack what all others have been reminded of.
                    self.rests.clear();
                    outbox.push(LivenessOrder::Trust(node));
                }
            }
            Input::Refused { node } => {
                if self.peers.get_mut(&node).is_some_and(Peer::answered) {
                    outbox.push(LivenessOrder::InReach(node));
                }
            }
            Input::Unreachable { node } => {
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.unreachable_count = peer.unreachable_count.saturating_add(1);
                }
            }
            Input::Tick { now_ms, peers, groups } => self.tick(now_ms, peers, groups, outbox),
        }
    }

    /// The beat to send to a node, as a request or as a response.
    #[must_use]
    pub fn beat_for(&self, node: NodeId) -> Beat {
        let peer = self.peers.get(&node);
        let is_known = peer.is_some_and(|peer| peer.has_of_us == Some(self.version));
        Beat {
            version: self.version,
            leads: (!is_known).then(|| self.led.clone()),
            has: peer.and_then(|peer| peer.version),
        }
    }

    /// The peers to send a beat to, as decided at the last tick. In each pair the node with the lower number
    /// sends at each tick. The other one sends once in [`Timing::suspect_ms`], to learn whether its own link
    /// works; and at each tick while its last beat is not answered, or if it has received nothing for two
    /// beat intervals.
    #[must_use]
    pub fn due(&self) -> Vec<NodeId> {
        let is_due = |(&node, peer): (&NodeId, &Peer)| {
            (peer.asked_ms.is_some() && peer.asked_ms == self.ticked_ms).then_some(node)
        };
        self.peers.iter().filter_map(is_due).collect()
    }

    /// Whether the node was alive before and is not any more.
    #[must_use]
    pub fn is_suspected(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.received_ms.is_some() && !peer.is_alive)
    }

    /// Whether a majority of each of these sets is alive, counting this node.
    #[must_use]
    pub fn has_majority(&self, voters: &[BTreeSet<NodeId>]) -> bool {
        is_majority(voters, |node| self.is_alive(node))
    }

    /// Whether a majority of each of these sets is alive and answers the beats that this node sends over its
    /// own links, counting this node.
    #[must_use]
    pub fn reaches_majority(&self, voters: &[BTreeSet<NodeId>]) -> bool {
        is_majority(voters, |node| self.is_reached(node))
    }

    /// Those of the voters whose links with this node work both ways. Leadership is given to these, because a leader
    /// that can open no links gets no votes.
    #[must_use]
    pub fn successors(&self, now_ms: u64, voters: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
        voters.into_iter().filter(|&voter| self.is_linked(voter, now_ms)).collect()
    }

    /// Whether a live node other than the candidate leads the group in this term or a later one. If so,
    /// this node must not vote for the candidate, unless that leader told it to stand.
    #[must_use]
    pub fn has_live_leader(&self, group: GroupId, term: u64, candidate: NodeId) -> bool {
        let claims = |led: &Led| led.group == group && led.term >= term;
        let is_other =
            |(&node, peer): (&NodeId, &Peer)| node != candidate && peer.leads(group, term);
        self.led.iter().any(claims) || self.peers.iter().any(is_other)
    }

    /// Whether the node is alive; this node always is.
    #[must_use]
    pub fn is_alive(&self, node: NodeId) -> bool {
        node == self.own || self.peers.get(&node).is_some_and(|peer| peer.is_alive)
    }

    /// Whether the node is alive and not out of reach; this node always is.
    fn is_reached(&self, node: NodeId) -> bool {
        let is_reached = |peer: &Peer| peer.is_alive && !peer.is_out_of_reach;
        node == self.own || self.peers.get(&node).is_some_and(is_reached)
    }

    /// Whether this node reaches another one over its own link, and that one sends beats over its own link.
    fn is_linked(&self, node: NodeId, now_ms: u64) -> bool {
        let has_called = |peer: &Peer| peer.has_called(now_ms, self.timing);
        self.is_reached(node) && self.peers.get(&node).is_some_and(has_called)
    }

    fn tick(
        &mut self,
        now_ms: u64,
        peers: &BTreeSet<NodeId>,
        groups: &[GroupStanding],
        outbox: &mut Outbox<LivenessOrder>,
    ) {
        self.follow_peers(now_ms, peers, outbox);
        self.claim(now_ms, groups);
        let here: BTreeSet<GroupId> = groups.iter().map(|standing| standing.group).collect();
        self.vacancies.retain(|group, _| here.contains(group));
        self.rests.retain(|group, _| here.contains(group));
        for standing in groups {
            self.look_at(now_ms, standing, outbox);
        }
        self.ticked_ms = Some(now_ms);
    }

    /// Suspects silent peers, notes which are out of reach, and decides which to send a beat to. Time during
    /// which this node itself was paused does not count as their silence.
    fn follow_peers(
        &mut self,
        now_ms: u64,
        peers: &BTreeSet<NodeId>,
        outbox: &mut Outbox<LivenessOrder>,
    ) {
        self.peers.retain(|node, _| peers.contains(node));
        for &node in peers {
            self.peers.entry(node).or_default();
        }
        let passed_ms = self.ticked_ms.map_or(0, |ticked_ms| now_ms.saturating_sub(ticked_ms));
        let stood_ms = passed_ms.saturating_sub(2 * self.timing.beat_ms);
        for (&node, peer) in &mut self.peers {
            let moved = |at_ms: u64| (at_ms + stood_ms).min(now_ms);
            peer.received_ms = peer.received_ms.map(moved);
            peer.called_ms = peer.called_ms.map(moved);
            peer.unanswered_ms = peer.unanswered_ms.map(moved);
            let Timing { beat_ms, suspect_ms } = self.timing;
            let patience_ms = suspect_ms + 2 * beat_ms;
            peer.is_out_of_reach = peer.is_unanswered_for(now_ms, patience_ms);
            if let Some(unanswered_ms) = peer.report(now_ms, patience_ms) {
                outbox.push(LivenessOrder::OutOfReach { node, unanswered_ms });
            }
            if self.own < node || peer.is_due(now_ms, self.timing) {
                peer.ask(now_ms);
            }
            if peer.is_alive && peer.is_gone(now_ms, self.timing.suspect_ms) {
                peer.lose();
                outbox.push(LivenessOrder::Suspect(node));
            }
        }
    }

    /// Updates the list of groups that this node leads while it reaches a majority of the voters. A leader that
    /// only hears them can do nothing for its group, and must not keep others from standing.
    fn claim(&mut self, now_ms: u64, groups: &[GroupStanding]) {
        let is_led = |standing: &&GroupStanding| {
            let voters = &standing.voters;
            let is_heard_enough =
                || planted::on(Planted::ClaimUnanswered) && self.has_majority(voters);
            standing.is_leader && (self.reaches_majority(voters) || is_heard_enough())
        };
        let led = |standing: &GroupStanding| Led { group: standing.group, term: standing.term };
        let claimed: Vec<Led> =
            groups.iter().filter(is_led).map(led).take(SHARD_COUNT_MAX as usize + 1).collect();
        if claimed != self.led || self.version.number == 0 {
            self.version.number += 1;
            self.led = claimed;
        }
        let since =
            |led: &Led| (led.group, self.led_since_ms.get(&led.group).copied().unwrap_or(now_ms));
        self.led_since_ms = self.led.iter().map(since).collect();
    }

    /// Decides about one group.
    fn look_at(
        &mut self,
        now_ms: u64,
        standing: &GroupStanding,
        outbox: &mut Outbox<LivenessOrder>,
    ) {
        let group = standing.group;
        if standing.is_leader {
            self.vacancies.remove(&group);
            let rest = self.rests.entry(group).or_insert_with(|| GroupRest::new(standing));
            if rest.is_reminder_due(standing) {
                outbox.push(LivenessOrder::Remind(group));
            }
            self.send_home(now_ms, standing, outbox);
            return;
        }
        self.rests.remove(&group);
        let is_led = self.peers.values().any(|peer| peer.leads(group, standing.term));
        if is_led || !standing.is_voter || !standing.may_lead {
            self.vacancies.remove(&group);
            return;
        }
        let turn = self.turn(standing);
        let is_leader_gone = standing.leader.is_some_and(|leader| self.is_suspected(leader));
        let vacancy =
            self.vacancies.entry(group).or_insert_with(|| Vacancy::new(now_ms, standing.term));
        vacancy.note_term(now_ms, standing.term);
        // If the leader of the term is this node, which does not lead (it did before a restart), no other
        // node's claim can be on its way.
        let is_known_vacant = is_leader_gone || standing.leader == Some(self.own);
        if vacancy.is_due(now_ms, is_known_vacant, turn, self.timing)
            && self.has_majority(&standing.voters)
        {
            let vacancy = self.vacancies.get_mut(&group).expect("it was looked at just now");
            vacancy.asked(now_ms);
            outbox.push(LivenessOrder::Stand(group));
        }
    }

    /// The number of live voters that stand before this node.
    fn turn(&self, standing: &GroupStanding) -> u64 {
        let order = voters_from_home(standing);
        let before = order.iter().take_while(|&&node| node != self.own);
        before.filter(|&&node| self.is_alive(node)).count() as u64
    }

    /// Hands leadership over to the group's home, if both have been stable for `STEADY_MS` and each one's link
    /// to the other works: a home that can open no links gets no votes.
    fn send_home(
        &mut self,
        now_ms: u64,
        standing: &GroupStanding,
        outbox: &mut Outbox<LivenessOrder>,
    ) {
        let order = voters_from_home(standing);
        let Some(&home) = order.first().filter(|&&home| home != self.own) else { return };
        let is_long = |since_ms: u64| now_ms >= since_ms + STEADY_MS;
        let is_steadily_alive = |peer: &Peer| peer.alive_since_ms.is_some_and(is_long);
        let is_home =
            self.is_linked(home, now_ms) && self.peers.get(&home).is_some_and(is_steadily_alive);
        let is_steady = self.led_since_ms.get(&standing.group).is_some_and(|&at| is_long(at));
        let is_paused = self.handed_over_ms.is_some_and(|at| now_ms < at + HAND_OVER_PAUSE_MS);
        if standing.voters.len() == 1 && is_home && is_steady && !is_paused {
            self.handed_over_ms = Some(now_ms);
            outbox.push(LivenessOrder::HandOver { group: standing.group, to: home });
        }
    }
}

/// Whether the nodes for which `has` holds are a majority of each of these sets: of the voters of a Raft
/// group, which are two sets while they change.
///
/// ```
/// use std::collections::BTreeSet;
/// use umbel_engine::NodeId;
/// use umbel_engine::liveness::is_majority;
///
/// let voters = [BTreeSet::from([1, 2, 3, 4].map(NodeId))];
/// assert!(is_majority(&voters, |node| node != NodeId(2)));
/// assert!(!is_majority(&voters, |node| node < NodeId(3)), "two of four");
/// ```
#[must_use]
pub fn is_majority(voters: &[BTreeSet<NodeId>], has: impl Fn(NodeId) -> bool) -> bool {
    voters.iter().all(|set| 2 * set.iter().filter(|&&node| has(node)).count() > set.len())
}

/// All voters of a group by number, starting at its home. The voters after the home start at a different one
/// for each group of the same home, so that its groups are spread if it fails.
fn voters_from_home(standing: &GroupStanding) -> Vec<NodeId> {
    let mut order: Vec<NodeId> = standing.voters.iter().flatten().copied().collect();
    order.sort_unstable();
    order.dedup();
    let home = standing.home.and_then(|home| order.binary_search(&home).ok());
    if let Some(turn) = home.or_else(|| usual_turn(standing.group, order.len())) {
        let round = standing.group.number() as usize / order.len();
        order.rotate_left(turn);
        let others = &mut order[1..];
        if let Some(turn) = round.checked_rem(others.len()) {
            others.rotate_left(turn);
        }
    }
    order
}
