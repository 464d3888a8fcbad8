//! Whole cubes of sweepers whose messages are delivered in any order, with sets of numbers in place
//! of filters.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A message in transit.
struct Message {
    from: usize,
    to: usize,
    sweep: u64,
    step: Step,
    /// For an answer, the sweep of the answering node and the items that it had. None for a
    /// question.
    answer: Option<(u64, BTreeSet<u32>)>,
}

/// Nodes 1 to P; each starts with its own index as its item.
struct World {
    members: Members,
    sweepers: Vec<Sweeper>,
    has: Vec<BTreeSet<u32>>,
    messages: Vec<Message>,
    answer_count: u64,
    /// For each node, the last sweep that it ended, and whether it was whole.
    done: BTreeMap<usize, (u64, bool)>,
    /// State of a SplitMix64 generator.
    dice: u64,
}

impl World {
    fn new(node_count: usize, seed: u64) -> Self {
        let nodes = (1..=node_count as u64).map(NodeId).collect();
        let members = Members::new(Epoch(1), nodes).unwrap();
        let sweepers =
            members.nodes().iter().map(|&node| Sweeper::new(node, members.clone())).collect();
        let has = (0..node_count as u32).map(|item| BTreeSet::from([item])).collect();
        let (messages, done) = (Vec::new(), BTreeMap::new());
        Self { members, sweepers, has, messages, answer_count: 0, done, dice: seed }
    }

    fn place_of(&self, node: NodeId) -> usize {
        self.members.rank_of(node).unwrap().0 as usize
    }

    fn give(&mut self, place: usize, input: SweepInput) {
        let mut outbox = Outbox::new();
        self.sweepers[place].step(input, &mut outbox).unwrap();
        for output in outbox.take() {
            match output {
                SweepOutput::Begun { .. } => {}
                SweepOutput::Ask { to, sweep, step } => {
                    let to = self.place_of(to);
                    self.messages.push(Message { from: place, to, sweep, step, answer: None });
                }
                SweepOutput::Answer { to, sweep, step, ours } => {
                    let (to, answer) = (self.place_of(to), Some((ours, self.has[place].clone())));
                    self.messages.push(Message { from: place, to, sweep, step, answer });
                    self.answer_count += 1;
                }
                SweepOutput::Done { sweep, is_whole } => {
                    self.done.insert(place, (sweep, is_whole));
                }
            }
        }
    }

    /// Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195.
    fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.dice ^ self.dice >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Delivers one of the messages, in random order; false if there is none.
    fn deliver(&mut self) -> bool {
        if self.messages.is_empty() {
            return false;
        }
        let chosen = self.roll() as usize % self.messages.len();
        let Message { from, to, sweep, step, answer } = self.messages.swap_remove(chosen);
        let rank = CubeRank(from as u32);
        let from = self.members.nodes()[from];
        let epoch = self.members.epoch();
        let input = match answer {
            None => SweepInput::Asked { from, rank, epoch, sweep, step },
            Some((theirs, has)) => {
                self.has[to].extend(has);
                SweepInput::Answered { from, sweep, step, theirs }
            }
        };
        self.give(to, input);
        true
    }

    fn run_until_quiet(&mut self) {
        while self.deliver() {}
    }

    fn is_equal(&self) -> bool {
        self.has.iter().all(|has| has == &self.has[0])
    }

    fn all_ended(&self) -> bool {
        self.sweepers.iter().all(|sweeper| sweeper.step.is_none())
    }
}

#[test]
fn one_sweep_begun_by_all_spreads_everything_in_the_fewest_messages() {
    for node_count in (1..=64).chain([1024]) {
        let mut world = World::new(node_count, node_count as u64);
        for place in 0..node_count {
            world.give(place, SweepInput::Begin);
        }
        world.run_until_quiet();
        assert!(world.all_ended() && world.is_equal(), "{node_count} nodes");
        assert_eq!(world.has[0].len(), node_count);
        assert_eq!(world.answer_count, world.members.cube().message_count());
        assert!(world.done.values().all(|done| *done == (1, true)));
    }
}

#[test]
fn one_that_begins_brings_all_along() {
    for node_count in 1..=40 {
        for first in [0, node_count / 2, node_count - 1] {
            let mut world = World::new(node_count, 5);
            world.give(first, SweepInput::Begin);
            world.run_until_quiet();
            assert!(world.all_ended() && world.is_equal(), "{first} of {node_count}");
            assert_eq!(world.answer_count, world.members.cube().message_count());
        }
    }
}

#[test]
fn whoever_does_not_answer_is_left_out_and_has_everything_later() {
    for node_count in 2..=20 {
        let mut world = World::new(node_count, 9);
        let gone = node_count / 2;
        for place in (0..node_count).filter(|&place| place != gone) {
            world.give(place, SweepInput::Begin);
        }
        let gone_node = world.members.nodes()[gone];
        loop {
            world.messages.retain(|message| message.to != gone);
            let waits = |sweeper: &Sweeper| sweeper.waits_for().is_some_and(|w| w.1 == gone_node);
            if let Some(place) = world.sweepers.iter().position(waits) {
                world.give(place, SweepInput::Unreachable { node: gone_node });
            } else if !world.deliver() {
                break;
            }
        }
        assert!(world.all_ended());
        assert!(world.done.values().any(|(_, is_whole)| !is_whole));
        // It does not know the others' sweep: its own is answered, and the next one is whole.
        world.give(gone, SweepInput::Begin);
        world.run_until_quiet();
        world.give(gone, SweepInput::Begin);
        world.run_until_quiet();
        assert!(world.all_ended() && world.is_equal(), "{node_count} nodes");
    }
}

#[test]
fn a_node_that_waits_for_another_is_not_bothered_by_a_third() {
    let mut world = World::new(4, 1);
    world.give(0, SweepInput::Begin);
    let before = world.sweepers[0].clone();
    assert_eq!(before.waits_for(), Some((Step::Across(0), NodeId(2))));
    world.give(0, SweepInput::Unreachable { node: NodeId(3) });
    world.give(0, SweepInput::Begin);
    assert_eq!(world.sweepers[0], before);
}

#[test]
fn a_new_list_of_nodes_ends_the_sweep() {
    let mut world = World::new(4, 1);
    world.give(0, SweepInput::Begin);
    let members = Members::new(Epoch(2), vec![NodeId(1), NodeId(5)]).unwrap();
    world.give(0, SweepInput::Changed(members.clone()));
    assert_eq!(world.done[&0], (1, false));
    assert_eq!((world.sweepers[0].members(), world.sweepers[0].waits_for()), (&members, None));
    // Belongs to the old list.
    let mut outbox = Outbox::new();
    let old = SweepInput::Asked {
        from: NodeId(2),
        rank: CubeRank(1),
        epoch: Epoch(1),
        sweep: 1,
        step: Step::Across(0),
    };
    let error = world.sweepers[0].step(old, &mut outbox).unwrap_err();
    assert_eq!(error.to_string(), "node 2 exchanges in epoch 1, expected epoch 2");
    assert!(outbox.take().is_empty());
}

#[test]
fn messages_that_do_not_fit_change_nothing() {
    let world = World::new(6, 1);
    let mut sweeper = world.sweepers[0].clone();
    let fits = (NodeId(2), CubeRank(1), Epoch(1), 1, Step::Across(0));
    let refused = [
        (fits.0, fits.1, Epoch(2), fits.3, fits.4),
        (NodeId(9), fits.1, fits.2, fits.3, fits.4),
        (fits.0, CubeRank(2), fits.2, fits.3, fits.4),
        (fits.0, fits.1, fits.2, fits.3, Step::Across(1)),
        (fits.0, fits.1, fits.2, fits.3, Step::HandIn),
        (fits.0, fits.1, fits.2, fits.3, Step::Across(u32::MAX)),
        (fits.0, fits.1, fits.2, u64::MAX, fits.4),
        // It receives something from its corner only at the end.
        (NodeId(5), CubeRank(4), fits.2, fits.3, Step::HandIn),
    ];
    let mut outbox = Outbox::new();
    for (from, rank, epoch, sweep, step) in refused {
        let input = SweepInput::Asked { from, rank, epoch, sweep, step };
        sweeper.step(input.clone(), &mut outbox).expect_err(&format!("{input:?}"));
    }
    assert_eq!(sweeper, world.sweepers[0]);
    assert!(outbox.take().is_empty());
}

proptest! {
    /// Sweeps that begin anywhere, lost messages, partners that are given up, nodes that forget
    /// their sweep number. When all that ends, one sweep with a number that no node has ended makes
    /// all nodes equal, and the node that begins reaches such a number within as many sweeps as the
    /// cube has steps.
    #[test]
    fn after_any_trouble_a_few_sweeps_spread_everything(
        node_count in 1_usize..18,
        seed in any::<u64>(),
        acts in prop::collection::vec((0_u8..8, any::<prop::sample::Index>()), 0..60),
    ) {
        let mut world = World::new(node_count, seed);
        let mut item = node_count as u32;
        for (act, index) in acts {
            let place = index.index(node_count);
            match act {
                0 => world.give(place, SweepInput::Begin),
                1 if !world.messages.is_empty() => {
                    let lost = index.index(world.messages.len());
                    world.messages.swap_remove(lost);
                }
                2 => {
                    if let Some((_, node)) = world.sweepers[place].waits_for() {
                        world.give(place, SweepInput::Unreachable { node });
                    }
                }
                3 => {
                    let node = world.members.nodes()[place];
                    world.sweepers[place] = Sweeper::new(node, world.members.clone());
                }
                4 => {
                    world.has[place].insert(item);
                    item += 1;
                }
                _ => {
                    world.deliver();
                }
            }
        }
        // Nodes that wait for lost messages give up.
        world.run_until_quiet();
        while let Some((place, (_, node))) =
            world.sweepers.iter().enumerate().find_map(|(at, s)| Some((at, s.waits_for()?)))
        {
            world.give(place, SweepInput::Unreachable { node });
            world.run_until_quiet();
        }
        // The first sweeps may be begun by a node that has forgotten how far the others are.
        for _ in 0..=world.members.cube().steps().count() {
            world.give(seed as usize % node_count, SweepInput::Begin);
            world.run_until_quiet();
            prop_assert!(world.all_ended());
        }
        prop_assert!(world.is_equal());
    }
}
