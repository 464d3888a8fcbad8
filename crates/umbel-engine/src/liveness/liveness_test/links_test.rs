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
