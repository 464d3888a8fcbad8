//! Detectors of several nodes, over a network that loses the messages that the test names.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const TIMING: Timing = Timing { beat_ms: 100, suspect_ms: 500 };

mod links_test;

fn nodes(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
    numbers.into_iter().map(NodeId).collect()
}

fn shard(number: u32) -> GroupId {
    GroupId::of_shard(crate::ShardId(number))
}

/// Nodes 1 to n with a detector each, over a network that loses the messages that the test names. An
/// election is won by a node that stands while a majority has no other leader.
struct World {
    now_ms: u64,
    nodes: BTreeMap<NodeId, Node>,
    cut: BTreeSet<(NodeId, NodeId)>,
    /// The first of each pair can open no link to the second; links that the second opens work both ways.
    closed: BTreeSet<(NodeId, NodeId)>,
    down: BTreeSet<NodeId>,
    /// Homes by the shard map, which all nodes know.
    homes: BTreeMap<GroupId, NodeId>,
    stand_count: u64,
    beat_count: u64,
}

struct Node {
    liveness: Liveness,
    /// The term and leader of each group, as this node knows them.
    groups: BTreeMap<GroupId, (u64, Option<NodeId>)>,
    orders: Vec<LivenessOrder>,
}

impl World {
    fn new(node_count: u64, groups: impl IntoIterator<Item = GroupId>) -> Self {
        let groups: BTreeMap<GroupId, (u64, Option<NodeId>)> =
            groups.into_iter().map(|group| (group, (1, None))).collect();
        let node = |number| {
            let liveness = Liveness::new(NodeId(number), 100 + number, TIMING);
            (NodeId(number), Node { liveness, groups: groups.clone(), orders: Vec::new() })
        };
        let nodes = (1..=node_count).map(node).collect();
        let (cut, closed, down) = Default::default();
        let (homes, stand_count, beat_count) = Default::default();
        Self { now_ms: 0, nodes, cut, closed, down, homes, stand_count, beat_count }
    }

    fn all(&self) -> BTreeSet<NodeId> {
        self.nodes.keys().copied().collect()
    }

    fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        !self.cut.contains(&(from, to)) && !self.down.contains(&from) && !self.down.contains(&to)
    }

    /// Whether a node gets an answer over a link that it opens itself.
    fn is_callable(&self, from: NodeId, to: NodeId) -> bool {
        self.is_open(from, to) && self.is_open(to, from) && !self.closed.contains(&(from, to))
    }

    /// One beat interval on all nodes that are up, in order.
    fn turn(&mut self) {
        self.now_ms += TIMING.beat_ms;
        let all = self.all();
        let up: Vec<NodeId> = all.difference(&self.down).copied().collect();
        for node in up {
            let standings = self.standings(node);
            let me = self.nodes.get_mut(&node).unwrap();
            let peers = all.iter().copied().filter(|&other| other != node).collect();
            let mut outbox = Outbox::new();
            let tick = Input::Tick { now_ms: self.now_ms, peers: &peers, groups: &standings };
            me.liveness.step(tick, &mut outbox);
            let orders = outbox.take();
            me.orders.extend(&orders);
            for other in me.liveness.due() {
                self.beat(node, other);
            }
            for order in orders {
                self.carry_out(node, order);
            }
        }
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / TIMING.beat_ms {
            self.turn();
        }
    }

    fn standings(&self, node: NodeId) -> Vec<GroupStanding> {
        let standing = |(&group, &(term, leader)): (&GroupId, &(u64, Option<NodeId>))| {
            let is_leader = leader == Some(node);
            let voters = vec![self.all()];
            GroupStanding {
                group,
                term,
                leader,
                is_leader,
                committed_index: term,
                may_lead: true,
                is_voter: true,
                voters,
                home: self.homes.get(&group).copied(),
            }
        };
        self.nodes[&node].groups.iter().map(standing).collect()
    }

    fn beat(&mut self, from: NodeId, to: NodeId) {
        self.beat_count += 1;
        if self.closed.contains(&(from, to)) {
            let me = self.nodes.get_mut(&from).unwrap();
            me.liveness.step(Input::Unreachable { node: to }, &mut Outbox::new());
            return;
        }
        if !self.is_open(from, to) {
            return;
        }
        let beat = self.nodes[&from].liveness.beat_for(to);
        let answer = self.receive(to, from, beat, false);
        if self.is_open(to, from) {
            self.receive(from, to, answer, true);
        }
    }

    fn receive(&mut self, node: NodeId, from: NodeId, beat: Beat, is_answer: bool) -> Beat {
        let (now_ms, mut outbox) = (self.now_ms, Outbox::new());
        let me = self.nodes.get_mut(&node).unwrap();
        me.liveness.step(Input::Received { node: from, now_ms, beat, is_answer }, &mut outbox);
        me.orders.extend(outbox.take());
        me.liveness.beat_for(from)
    }

    fn carry_out(&mut self, node: NodeId, order: LivenessOrder) {
        let group = match order {
            LivenessOrder::Stand(group) => group,
            LivenessOrder::HandOver { group, to } => {
                let term = self.nodes[&node].groups[&group].0;
                let votes = |voter: &NodeId| *voter == to || self.is_callable(to, *voter);
                if self.is_callable(node, to) && self.is_majority(votes) {
                    self.elected(group, term + 1, to);
                } else {
                    self.nodes.get_mut(&node).unwrap().groups.insert(group, (term, None));
                }
                return;
            }
            LivenessOrder::Suspect(_) | LivenessOrder::Trust(_) | LivenessOrder::Remind(_) => {
                return;
            }
            LivenessOrder::OutOfReach { .. } | LivenessOrder::InReach(_) => return,
        };
        self.stand_count += 1;
        let votes = |voter: &NodeId| {
            let voter = *voter;
            let reaches = voter == node || self.is_callable(node, voter);
            let other = &self.nodes[&voter];
            let term = other.groups[&group].0;
            reaches && (voter == node || !other.liveness.has_live_leader(group, term, node))
        };
        if self.is_majority(votes) {
            let term = self.nodes.values().map(|node| node.groups[&group].0).max().unwrap() + 1;
            self.elected(group, term, node);
        }
    }

    fn is_majority(&self, votes: impl Fn(&NodeId) -> bool) -> bool {
        2 * self.nodes.keys().filter(|voter| votes(voter)).count() > self.nodes.len()
    }

    /// Every node that the new leader reaches learns of its election.
    fn elected(&mut self, group: GroupId, term: u64, leader: NodeId) {
        for node in self.all() {
            let is_closed = self.closed.contains(&(leader, node));
            if node == leader || self.is_open(leader, node) && !is_closed {
                self.nodes.get_mut(&node).unwrap().groups.insert(group, (term, Some(leader)));
            }
        }
    }

    /// The leader of each group, by the highest term that a live node knows.
    fn leaders(&self) -> BTreeMap<GroupId, NodeId> {
        let live = self.nodes.iter().filter(|(node, _)| !self.down.contains(node));
        let mut newest: BTreeMap<GroupId, (u64, Option<NodeId>)> = BTreeMap::new();
        for (&group, &known) in live.flat_map(|(_, node)| &node.groups) {
            let newest = newest.entry(group).or_default();
            *newest = known.max(*newest);
        }
        newest.into_iter().filter_map(|(group, (_, leader))| Some((group, leader?))).collect()
    }

    /// How often a leader gave leadership away.
    fn hand_over_count(&self) -> usize {
        let orders = self.nodes.values().flat_map(|node| &node.orders);
        orders.filter(|order| matches!(order, LivenessOrder::HandOver { .. })).count()
    }

    /// The node can open no links from now on.
    fn close_links_of(&mut self, node: NodeId) {
        let others = self.all().into_iter().filter(|&other| other != node);
        self.closed = others.map(|other| (node, other)).collect();
    }

    fn stop(&mut self, node: u64) {
        self.down.insert(NodeId(node));
    }

    /// Restarts the process of a node: it leads nothing.
    fn restart(&mut self, number: u64, incarnation: u64) {
        let node = NodeId(number);
        self.down.remove(&node);
        self.nodes.get_mut(&node).unwrap().liveness = Liveness::new(node, incarnation, TIMING);
        for (_, leader) in self.nodes.get_mut(&node).unwrap().groups.values_mut() {
            *leader = leader.filter(|&leader| leader != node);
        }
    }
}

#[test]
fn groups_of_a_new_cluster_are_led_where_they_are_at_home() {
    let mut world = World::new(3, (0..6).map(shard));
    world.run(1_500);
    let expected: BTreeMap<GroupId, NodeId> =
        (0..6).map(|number| (shard(number), NodeId(u64::from(number + 1) % 3 + 1))).collect();
    assert_eq!(world.leaders(), expected);
    assert_eq!(world.stand_count, 6, "each group has one election");
}

#[test]
fn groups_of_a_dead_leader_are_spread_within_a_suspicion_and_come_home() {
    let mut world = World::new(3, (0..12).map(shard));
    world.run(1_500);
    let before = world.leaders();
    world.stop(2);
    world.run(700);
    let after = world.leaders();
    let led_by = |leaders: &BTreeMap<GroupId, NodeId>, node| {
        leaders.values().filter(|&&leader| leader == NodeId(node)).count()
    };
    assert_eq!([1, 2, 3].map(|node| led_by(&before, node)), [4, 4, 4]);
    assert_eq!([1, 2, 3].map(|node| led_by(&after, node)), [6, 0, 6]);
    world.restart(2, 999);
    world.run(STEADY_MS + 4 * HAND_OVER_PAUSE_MS + 1_000);
    assert_eq!(world.leaders(), before);
}

#[test]
fn leaders_are_where_the_shard_map_gives_them_a_home_among_the_voters() {
    let mut world = World::new(3, (0..3).map(shard));
    let led_by = |nodes: [u64; 3]| -> BTreeMap<GroupId, NodeId> {
        (0..).map(shard).zip(nodes.map(NodeId)).collect()
    };
    // By number they would be nodes 2, 3 and 1. Node 9 is no voter.
    world.homes = BTreeMap::from([(shard(0), NodeId(3)), (shard(1), NodeId(9))]);
    world.run(1_500);
    assert_eq!((world.leaders(), world.stand_count), (led_by([3, 3, 1]), 3));
    // The map changes: a leader goes where its home is now, and stays there.
    world.homes = BTreeMap::from([(shard(0), NodeId(1)), (shard(1), NodeId(2))]);
    world.run(4 * STEADY_MS);
    assert_eq!(world.leaders(), led_by([1, 2, 1]));
    assert_eq!(world.hand_over_count(), 2);
}

#[test]
fn groups_of_one_home_are_spread_when_it_fails() {
    let mut world = World::new(3, (0..12).map(shard));
    world.homes = (0..12).map(|number| (shard(number), NodeId(2))).collect();
    world.run(1_500);
    assert_eq!(world.leaders(), world.homes);
    world.stop(2);
    world.run(700);
    let leaders = world.leaders();
    let count = |node| leaders.values().filter(|&&leader| leader == NodeId(node)).count();
    assert_eq!([1, 2, 3].map(count), [6, 0, 6]);
}

#[test]
fn a_quick_restart_of_a_leader_is_noticed_though_it_was_never_silent() {
    let mut world = World::new(3, [shard(0)]);
    world.run(1_500);
    assert_eq!(world.leaders()[&shard(0)], NodeId(2));
    world.restart(2, 999);
    world.run(1_500);
    // It takes leadership back itself, because it is first in turn.
    assert_eq!(world.leaders()[&shard(0)], NodeId(2));
    assert_eq!(world.stand_count, 2);
}

#[test]
fn a_node_that_is_cut_off_disturbs_nobody() {
    let mut world = World::new(3, (0..6).map(shard));
    world.run(1_500);
    let (before, stands) = (world.leaders(), world.stand_count);
    // Node 3 loses contact only with node 1. Node 2 receives beats from both, so it votes for neither
    // against the other.
    world.cut = BTreeSet::from([(NodeId(1), NodeId(3)), (NodeId(3), NodeId(1))]);
    world.run(20_000);
    assert_eq!(world.leaders(), before);
    assert!(world.stand_count > stands, "node 3 asks, and is refused");
    // Cut off from both, it has no majority, and does not even ask.
    world.cut.extend([(NodeId(2), NodeId(3)), (NodeId(3), NodeId(2))]);
    world.run(1_000);
    let stands = |world: &World| {
        let orders = &world.nodes[&NodeId(3)].orders;
        orders.iter().filter(|order| matches!(order, LivenessOrder::Stand(_))).count()
    };
    let before = stands(&world);
    world.run(10_000);
    assert_eq!(stands(&world), before);
}

#[test]
fn a_leader_without_a_majority_claims_nothing() {
    let mut world = World::new(5, [shard(0)]);
    world.run(1_500);
    let leader = world.leaders()[&shard(0)];
    let kept = NodeId(if leader == NodeId(5) { 4 } else { 5 });
    for other in world.all() {
        if other != kept && other != leader {
            world.cut.extend([(leader, other), (other, leader)]);
        }
    }
    // One of five still receives beats from it; the others elect another leader anyway, with or without
    // that one's vote.
    world.run(3_000);
    assert_ne!(world.leaders()[&shard(0)], leader);
}

#[test]
fn time_in_which_a_node_stood_still_is_no_silence_of_others() {
    let mut world = World::new(3, [shard(0)]);
    world.run(1_500);
    // All nodes are paused for a minute, like machines that are suspended together.
    world.now_ms += 60_000;
    let before = world.nodes[&NodeId(1)].orders.len();
    world.run(2_000);
    assert_eq!(world.nodes[&NodeId(1)].orders.len(), before);
}

#[test]
fn a_node_that_cannot_be_reached_twice_is_suspected_before_it_is_silent_for_long() {
    let mut liveness = Liveness::new(NodeId(1), 1, TIMING);
    let (mut outbox, peers) = (Outbox::new(), nodes([2]));
    let beat = Beat { version: LedVersion::default(), leads: Some(vec![]), has: None };
    let received = |now_ms| {
        let beat = beat.clone();
        Input::Received { node: NodeId(2), now_ms, beat, is_answer: true }
    };
    liveness.step(Input::Tick { now_ms: 0, peers: &peers, groups: &[] }, &mut outbox);
    liveness.step(received(0), &mut outbox);
    assert_eq!(outbox.take(), [LivenessOrder::Trust(NodeId(2))]);
    liveness.step(Input::Unreachable { node: NodeId(2) }, &mut outbox);
    liveness.step(Input::Tick { now_ms: 100, peers: &peers, groups: &[] }, &mut outbox);
    assert!(outbox.take().is_empty(), "a connection may break");
    liveness.step(Input::Unreachable { node: NodeId(2) }, &mut outbox);
    liveness.step(Input::Tick { now_ms: 200, peers: &peers, groups: &[] }, &mut outbox);
    assert_eq!(outbox.take(), [LivenessOrder::Suspect(NodeId(2))]);
    assert!(liveness.is_suspected(NodeId(2)));
    liveness.step(received(250), &mut outbox);
    assert_eq!(outbox.take(), [LivenessOrder::Trust(NodeId(2))]);
    assert!(!liveness.is_suspected(NodeId(2)));
}

#[test]
fn lists_travel_when_they_have_changed_alone_and_older_ones_are_passed_over() {
    let mut world = World::new(2, [shard(0)]);
    world.run(1_500);
    let [one, two] =
        [1, 2].map(|number| world.nodes[&NodeId(number)].liveness.beat_for(NodeId(3 - number)));
    assert_eq!((one.leads, two.leads), (None, None));
    assert_eq!(one.has, Some(two.version));
    let node = world.nodes.get_mut(&NodeId(1)).unwrap();
    assert!(node.liveness.has_live_leader(shard(0), 2, NodeId(1)));
    let stale = LedVersion { number: two.version.number - 1, ..two.version };
    let beat = Beat { version: stale, leads: Some(vec![]), has: None };
    let (from, is_answer) = (NodeId(2), true);
    let received = Input::Received { node: from, now_ms: 1_500, beat, is_answer };
    node.liveness.step(received, &mut Outbox::new());
    assert!(node.liveness.has_live_leader(shard(0), 2, NodeId(1)));
    // The peer now reports that it has no list of this node, so the list is sent again.
    assert!(node.liveness.beat_for(NodeId(2)).leads.is_some());
}

#[test]
fn a_beat_that_claims_more_than_a_cluster_has_is_no_claim() {
    let mut world = World::new(2, [shard(0)]);
    world.run(200);
    let leads =
        (0..=SHARD_COUNT_MAX + 1).map(|n| Led { group: shard(n), term: u64::MAX }).collect();
    let version = LedVersion { incarnation: 5, number: 9 };
    world.receive(NodeId(1), NodeId(2), Beat { version, leads: Some(leads), has: None }, true);
    assert!(!world.nodes[&NodeId(1)].liveness.has_live_leader(shard(5), 1, NodeId(1)));
}

#[test]
fn followers_of_a_quiet_group_are_reminded_ever_more_seldom_and_anew_when_a_node_is_back() {
    let mut world = World::new(3, [shard(0)]);
    world.run(1_500);
    let leader = world.leaders()[&shard(0)];
    let count = |world: &World| {
        let orders = &world.nodes[&leader].orders;
        orders.iter().filter(|order| matches!(order, LivenessOrder::Remind(_))).count()
    };
    let before = count(&world);
    world.run(120_000);
    // 2 s, 4 s, 8 s, 16 s, then every 32 s.
    let hours = count(&world) - before;
    assert!((5..=8).contains(&hours), "{hours}");
    world.restart(if leader == NodeId(3) { 1 } else { 3 }, 999);
    let before = count(&world);
    world.run(2_000);
    assert_eq!(count(&world) - before, 2);
}

/// Without a majority no replica stands, however the others come and go.
#[test]
fn a_minority_waits() {
    let mut world = World::new(5, [shard(0)]);
    world.run(1_500);
    let leader = world.leaders()[&shard(0)];
    world.stop(leader.0);
    for other in world.all().into_iter().filter(|&other| other != leader).take(2) {
        world.stop(other.0);
    }
    let stands = world.stand_count;
    world.run(30_000);
    assert_eq!(world.stand_count, stands);
}
