//! Nodes whose own links do not work: they are heard, and reach nobody.

use super::*;

#[test]
fn a_leader_that_hears_all_others_and_can_call_none_is_replaced_until_it_can() {
    for number in 1..=3 {
        let (mut world, home) = (World::new(3, [shard(0)]), NodeId(number));
        world.homes = BTreeMap::from([(shard(0), home)]);
        world.run(1_500);
        assert_eq!(world.leaders(), world.homes);
        world.close_links_of(home);
        world.run(3_000);
        let next = world.leaders();
        assert_ne!(next, world.homes, "{home} reaches nobody");
        // Its process is replaced as well, and has never sent a beat that arrived: leadership is not given to it,
        // because it would get no votes.
        world.run(2 * STEADY_MS);
        world.restart(number, 999);
        world.run(4 * STEADY_MS);
        assert_eq!((world.leaders(), world.hand_over_count()), (next, 0));
        world.closed.clear();
        world.run(2 * STEADY_MS);
        assert_eq!((world.leaders(), world.hand_over_count()), (world.homes, 1));
    }
}

#[test]
fn a_leader_that_reaches_a_majority_stays_and_gives_nothing_to_a_home_out_of_its_reach() {
    for number in 1..=3 {
        let (mut world, home) = (World::new(3, [shard(0)]), NodeId(number));
        world.homes = BTreeMap::from([(shard(0), home)]);
        world.run(1_500);
        world.stop(number);
        world.run(1_500);
        let next = world.leaders();
        assert_ne!(next, world.homes);
        world.closed = BTreeSet::from([(next[&shard(0)], home)]);
        world.restart(number, 999);
        let stands = world.stand_count;
        world.run(4 * STEADY_MS);
        assert_eq!((world.leaders(), world.hand_over_count()), (next, 0));
        assert_eq!(world.stand_count, stands, "all hear the leader's claim");
    }
}

#[test]
fn a_node_that_calls_and_never_answers_is_heard_and_not_reached() {
    let (mut liveness, peers) = (Liveness::new(NodeId(2), 1, TIMING), nodes([1]));
    let voters = [nodes([1, 2])];
    let mut turn = |now_ms, is_answer| {
        let mut outbox = Outbox::new();
        liveness.step(Input::Tick { now_ms, peers: &peers, groups: &[] }, &mut outbox);
        let beat = Beat { version: LedVersion::default(), leads: None, has: None };
        let received = Input::Received { node: NodeId(1), now_ms, beat, is_answer };
        liveness.step(received, &mut outbox);
        assert!(liveness.has_majority(&voters), "{now_ms}");
        (liveness.reaches_majority(&voters), liveness.due())
    };
    let asked = vec![NodeId(1)];
    for now_ms in [0, 100, 200, 300] {
        assert_eq!(turn(now_ms, false), (true, asked.clone()));
    }
    // A minute in which this node itself stood still is not counted.
    for now_ms in [60_300, 60_400, 60_500] {
        assert_eq!(turn(now_ms, false), (true, asked.clone()));
    }
    assert_eq!(turn(60_600, false), (false, asked.clone()));
    assert_eq!(turn(60_700, true), (true, asked));
    // Its link works, so it is left to the other node to send, for as long as a node may be silent.
    assert_eq!(turn(60_800, false), (true, vec![]));
}

/// What operators are told of node 1, and when, while it sends a beat in each interval, or is silent.
fn told(
    liveness: &mut Liveness,
    (from_ms, to_ms): (u64, u64),
    (is_heard, is_answer): (bool, bool),
) -> Vec<(u64, LivenessOrder)> {
    let (mut told, node) = (Vec::new(), NodeId(1));
    for now_ms in (from_ms..to_ms).step_by(100) {
        let mut outbox = Outbox::new();
        liveness.step(Input::Tick { now_ms, peers: &nodes([1]), groups: &[] }, &mut outbox);
        if is_heard {
            let beat = Beat { version: LedVersion::default(), leads: None, has: None };
            liveness.step(Input::Received { node, now_ms, beat, is_answer }, &mut outbox);
        }
        let is_of_reach = |order: &LivenessOrder| {
            matches!(order, LivenessOrder::OutOfReach { .. } | LivenessOrder::InReach(_))
        };
        let orders = outbox.take().into_iter().filter(is_of_reach);
        told.extend(orders.map(|order| (now_ms, order)));
    }
    told
}

#[test]
fn operators_are_told_once_that_a_node_is_out_of_reach_and_once_that_it_answers() {
    let (mut liveness, node) = (Liveness::new(NodeId(2), 1, TIMING), NodeId(1));
    let out_of_reach = LivenessOrder::OutOfReach { node, unanswered_ms: 800 };
    assert_eq!(told(&mut liveness, (0, 10_000), (true, false)), [(800, out_of_reach)]);
    // It dies, and is back: what was told is still so.
    assert!(told(&mut liveness, (10_000, 20_000), (false, false)).is_empty());
    assert!(told(&mut liveness, (20_000, 30_000), (true, false)).is_empty());
    let in_reach = LivenessOrder::InReach(node);
    assert_eq!(told(&mut liveness, (30_000, 30_100), (true, true)), [(30_000, in_reach)]);
    // Nobody is told of the links to a dead node; when it is back, they have time to be opened.
    assert!(told(&mut liveness, (30_100, 40_000), (false, false)).is_empty());
    assert!(told(&mut liveness, (40_000, 40_700), (true, false)).is_empty());
    assert!(told(&mut liveness, (40_700, 41_000), (true, true)).is_empty());
}

/// The orders of node 1 about node 2, which has answered once, and then sends a beat over its own link at every third
/// tick until `dead_ms`, while nothing that node 1 sends arrives: `fails` says after which ticks an attempt has failed.
fn orders_about(
    liveness: &mut Liveness,
    (dead_ms, to_ms): (u64, u64),
    fails: impl Fn(u64) -> bool,
) -> Vec<(u64, LivenessOrder)> {
    let (mut orders, node) = (Vec::new(), NodeId(2));
    for tick in 0..to_ms / TIMING.beat_ms {
        let (now_ms, mut outbox) = (tick * TIMING.beat_ms, Outbox::new());
        liveness.step(Input::Tick { now_ms, peers: &nodes([2]), groups: &[] }, &mut outbox);
        assert_eq!(liveness.due(), [node]);
        if fails(tick) {
            liveness.step(Input::Unreachable { node }, &mut outbox);
        }
        if tick.is_multiple_of(3) && now_ms < dead_ms {
            let beat = Beat { version: LedVersion::default(), leads: None, has: None };
            let is_answer = tick == 0;
            liveness.step(Input::Received { node, now_ms, beat, is_answer }, &mut outbox);
        }
        orders.extend(outbox.take().into_iter().map(|order| (now_ms, order)));
    }
    orders
}

/// The node with the lower number sends at each tick, and the other one seldom.
#[test]
fn a_node_that_refuses_and_is_heard_is_suspected_once_and_when_it_falls_silent() {
    let (mut liveness, node) = (Liveness::new(NodeId(1), 1, TIMING), NodeId(2));
    let out_of_reach = LivenessOrder::OutOfReach { node, unanswered_ms: 800 };
    let expected = [
        (0, LivenessOrder::Trust(node)),
        // Before it is heard, it may have ended.
        (300, LivenessOrder::Suspect(node)),
        (300, LivenessOrder::Trust(node)),
        (1_100, out_of_reach),
        // The last beat came at 9,900 ms.
        (10_500, LivenessOrder::Suspect(node)),
    ];
    assert_eq!(orders_about(&mut liveness, (10_000, 12_000), |tick| tick > 0), expected);
    // Once it answers, failed attempts count again.
    let (now_ms, mut outbox) = (12_000, Outbox::new());
    let beat = Beat { version: LedVersion::default(), leads: None, has: None };
    liveness.step(Input::Received { node, now_ms, beat, is_answer: true }, &mut outbox);
    for now_ms in [12_100, 12_200, 12_300] {
        liveness.step(Input::Tick { now_ms, peers: &nodes([2]), groups: &[] }, &mut outbox);
        liveness.step(Input::Unreachable { node }, &mut outbox);
    }
    let (answers, trusted) = (LivenessOrder::InReach(node), LivenessOrder::Trust(node));
    assert_eq!(outbox.take(), [answers, trusted, LivenessOrder::Suspect(node)]);
}

/// A silent address is given up after a second, and attempts fail at once in the pause after that.
#[test]
fn a_node_whose_address_is_silent_and_that_is_heard_is_not_suspected() {
    let (mut liveness, node) = (Liveness::new(NodeId(1), 1, TIMING), NodeId(2));
    let out_of_reach = LivenessOrder::OutOfReach { node, unanswered_ms: 800 };
    let expected = [(0, LivenessOrder::Trust(node)), (900, out_of_reach)];
    let fails = |tick: u64| tick > 0 && matches!(tick % 11, 9 | 10);
    assert_eq!(orders_about(&mut liveness, (20_000, 20_000), fails), expected);
}

#[test]
fn leadership_is_given_to_voters_that_answer_and_call() {
    let mut world = World::new(4, [shard(0)]);
    world.run(1_500);
    let successors = |world: &World, voters: &[u64]| {
        let voters = voters.iter().copied().map(NodeId);
        world.nodes[&NodeId(2)].liveness.successors(world.now_ms, voters)
    };
    let is_suspected =
        |world: &World, node| world.nodes[&NodeId(2)].liveness.is_suspected(NodeId(node));
    assert_eq!(successors(&world, &[1, 2, 3, 4]), [1, 3, 4].map(NodeId));
    // Node 1 can call nobody, and node 2 cannot call node 3.
    world.close_links_of(NodeId(1));
    world.closed.insert((NodeId(2), NodeId(3)));
    world.run(3_000);
    assert_eq!(successors(&world, &[1, 2, 3, 4]), [NodeId(4)]);
    assert!(successors(&world, &[1, 2, 3]).is_empty());
    assert!(!is_suspected(&world, 1) && !is_suspected(&world, 3), "both are heard");
    world.stop(4);
    world.run(3_000);
    assert!(successors(&world, &[1, 2, 4]).is_empty());
    assert!(is_suspected(&world, 4) && !is_suspected(&world, 1));
}

#[test]
fn time_in_which_this_node_stood_still_tells_nothing_of_the_links_of_others() {
    let (mut liveness, node) = (Liveness::new(NodeId(1), 1, TIMING), NodeId(2));
    let mut turn = |now_ms, is_called: bool| {
        let mut outbox = Outbox::new();
        liveness.step(Input::Tick { now_ms, peers: &nodes([2]), groups: &[] }, &mut outbox);
        let successors = liveness.successors(now_ms, [node]);
        let answers = [Some(true), is_called.then_some(false)];
        for is_answer in answers.into_iter().flatten() {
            let beat = Beat { version: LedVersion::default(), leads: None, has: None };
            liveness.step(Input::Received { node, now_ms, beat, is_answer }, &mut outbox);
        }
        successors
    };
    assert!(turn(0, true).is_empty(), "it was not heard yet");
    assert_eq!(turn(100, true), [node]);
    // A minute later, at the first tick after the pause.
    assert_eq!(turn(60_100, false), [node]);
    for now_ms in (60_200..=60_900).step_by(100) {
        assert_eq!(turn(now_ms, false), [node], "{now_ms}");
    }
    assert!(turn(61_000, false).is_empty(), "it has answered all this time, and did not call");
}

/// What an idle cluster costs: fewer beats than if both nodes of each pair sent at each interval.
#[test]
fn idle_nodes_send_one_beat_a_pair_and_interval_and_one_more_a_suspicion() {
    let mut world = World::new(3, (0..64).map(shard));
    world.run(2 * STEADY_MS);
    let before = world.beat_count;
    world.run(10_000);
    let (intervals, suspicions) = (10_000 / TIMING.beat_ms, 10_000 / TIMING.suspect_ms);
    assert_eq!(world.beat_count - before, 3 * (intervals + suspicions));
}
