//! Replicas that rot, and are compared and repaired while they are written to.

use std::collections::{BTreeMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::Kind;

use super::shard_test::{FIRST, filter_of, insert_of, item, list, state};
use super::*;
use crate::ids::{FilterId, NodeId};
use umbel_step::Outbox;

/// Replicas with the same log, and a twin that never rots.
struct World {
    replicas: BTreeMap<NodeId, ShardState>,
    twin: ShardState,
    index: u64,
}

impl World {
    fn new(replica_count: u64) -> Self {
        let replicas = (1..=replica_count).map(|node| (NodeId(node), state())).collect();
        Self { replicas, twin: state(), index: 100 }
    }

    fn apply(&mut self, command: &ShardCommand) -> ShardReply {
        self.index += 1;
        for replica in self.replicas.values_mut() {
            replica.apply_at(self.index, command);
        }
        // The twin is not repaired exactly: repairs only add to it.
        self.twin.apply(command)
    }

    fn insert(&mut self, filter: FilterId, numbers: &[u64]) {
        self.insert_within(filter, numbers, 0);
    }

    /// Inserts into a slice that may take `growth_bytes` beyond its initial size.
    fn insert_within(&mut self, filter: FilterId, numbers: &[u64], growth_bytes: u64) {
        let hashes = list(numbers);
        let count = u32::try_from(hashes.len()).unwrap();
        let proposed = Bitmap::from_ones(count, 0..numbers.len());
        let (generation, request) = (FIRST, None);
        let part = InsertPart { filter, generation, request, proposed, hashes, growth_bytes };
        let command = insert_of(&self.twin, part);
        self.apply(&command);
    }

    fn remove(&mut self, filter: FilterId, numbers: &[u64]) {
        let hashes = list(numbers);
        let part = RemovePart { filter, generation: FIRST, request: None, hashes };
        self.apply(&ShardCommand::Remove(part));
    }

    fn answer(&self, replica: NodeId, question: &ReplicaQuestion) -> ReplicaAnswer {
        let state = &self.replicas[&replica];
        match question {
            ReplicaQuestion::Root { seed } => {
                let piece = state.scrubbed(*seed).unwrap();
                ReplicaAnswer::Root {
                    root: piece.root(),
                    answers: piece.answers,
                    block_count: piece.block_count,
                    block_words: piece.block_words,
                }
            }
            ReplicaQuestion::Digests { seed } => {
                ReplicaAnswer::Digests(state.scrubbed(*seed).unwrap().clone())
            }
            ReplicaQuestion::Blocks { filter, generation, blocks } => {
                let read = state.read_blocks(self.index, *filter, *generation, blocks);
                ReplicaAnswer::Blocks(read.unwrap())
            }
        }
    }

    /// Compares a slice's replicas, with writes wherever the scrubber waits.
    fn scrub(
        &mut self,
        filter: FilterId,
        away: &[NodeId],
        mut write: impl FnMut(&mut Self, bool),
    ) -> Result<SliceScrubbed, String> {
        let voters: Vec<NodeId> = self.replicas.keys().copied().collect();
        let mut scrubber = Scrubber::new(filter, FIRST, voters, 5);
        let (mut out, mut orders) = (Outbox::new(), VecDeque::new());
        let mut is_held = false;
        scrubber.step(ScrubInput::Start, &mut out);
        loop {
            orders.extend(out.take());
            let order = orders.pop_front().expect("it goes on until it ends");
            let input = match order {
                ScrubOutput::Propose(command) => {
                    write(self, is_held);
                    let reply = self.apply(&command);
                    assert_eq!(reply, ShardReply::Done(Ok(())));
                    ScrubInput::Applied(Ok(()))
                }
                ScrubOutput::Ask { replica, .. } if away.contains(&replica) => {
                    ScrubInput::Answered { replica, answer: Err("it is away".to_owned()) }
                }
                ScrubOutput::Ask { replica, question } => {
                    let answer = self.answer(replica, &question);
                    ScrubInput::Answered { replica, answer: Ok(answer) }
                }
                ScrubOutput::Hold => {
                    write(self, is_held);
                    is_held = true;
                    ScrubInput::Held
                }
                ScrubOutput::Release => {
                    is_held = false;
                    continue;
                }
                ScrubOutput::Finish(result) => return result,
            };
            scrubber.step(input, &mut out);
        }
    }

    fn are_equal(&self) -> bool {
        self.replicas.values().all(|replica| replica.digest() == self.twin.digest())
    }
}

#[test]
fn a_rotten_replica_is_found_and_mended_whatever_the_kind() {
    for kind in Kind::ALL {
        for (every, rotten) in [(3, 1), (401, 2), (7, 3)] {
            let mut world = World::new(3);
            let filter = filter_of(kind, 0);
            world.insert(filter, &(0..50).collect::<Vec<_>>());
            let equal = world.scrub(filter, &[], |_, _| {}).unwrap();
            assert_eq!((equal.compared.len(), equal.differing.len()), (3, 0), "{kind}");
            let flipped =
                world.replicas.get_mut(&NodeId(rotten)).unwrap().rot(filter, every, false);
            assert!(flipped > 0 || every > 50, "{kind}");
            let report = world.scrub(filter, &[], |_, _| {}).unwrap();
            let all = report.differing.values().map(|bits| bits.lost + bits.surplus);
            assert_eq!(all.sum::<u64>(), flipped, "{kind} {every} {report:?}");
            assert!(report.differing.keys().all(|&node| node == NodeId(rotten)));
            assert_eq!((report.left_blocks, report.union_blocks), (0, 0), "{kind}");
            assert!(world.are_equal(), "{kind} {every}");
        }
    }
}

#[test]
fn a_replica_that_is_away_is_named_and_the_others_are_mended() {
    let mut world = World::new(3);
    let filter = filter_of(Kind::Blocked, 0);
    world.insert(filter, &(0..50).collect::<Vec<_>>());
    world.replicas.get_mut(&NodeId(1)).unwrap().rot(filter, 50, false);
    let report = world.scrub(filter, &[NodeId(2)], |_, _| {}).unwrap();
    assert_eq!(report.away.keys().collect::<Vec<_>>(), [&NodeId(2)]);
    // Two of three differ: there is no majority, but no bit is missing any more.
    assert!(report.union_blocks > 0 && report.left_blocks == 0, "{report:?}");
    let present = world.replicas[&NodeId(1)].contains(filter, FIRST, &list(&[1, 2, 3])).unwrap();
    assert_eq!(present.count_ones(), 3);
    let report = world.scrub(filter, &[], |_, _| {}).unwrap();
    assert_eq!(report.left_blocks, 0);
    assert!(world.are_equal());
    // The leader itself must answer.
    assert!(world.scrub(filter, &[NodeId(1)], |_, _| {}).is_err());
}

#[test]
fn counters_of_a_rotten_replica_follow_the_majority() {
    for kind in [Kind::Blocked, Kind::Scalable] {
        let mut world = World::new(3);
        let filter = filter_of(kind, 0);
        world.insert(filter, &(0..18).collect::<Vec<_>>());
        world.replicas.get_mut(&NodeId(3)).unwrap().rot(filter, 2, false);
        // Items that it has lost are new again, but only there.
        world.insert(filter, &(0..18).collect::<Vec<_>>());
        assert!(!world.are_equal(), "{kind}");
        let report = world.scrub(filter, &[], |_, _| {}).unwrap();
        assert_eq!(report.left_blocks, 0, "{kind} {report:?}");
        assert!(world.are_equal(), "{kind}");
    }
}

/// Replicas that have grown are compared in the grown slice's words, and a rotten one is repaired.
#[test]
fn a_slice_that_has_grown_is_mended() {
    let mut world = World::new(3);
    let filter = filter_of(Kind::Quotient, 0);
    let planned_bytes = world.twin.summary(filter).unwrap().memory_bytes;
    world.insert_within(filter, &(0..20_000).collect::<Vec<_>>(), u64::MAX);
    assert!(world.twin.summary(filter).unwrap().memory_bytes > planned_bytes);
    world.replicas.get_mut(&NodeId(2)).unwrap().rot(filter, 5_000, false);
    assert!(!world.are_equal());
    let report = world.scrub(filter, &[], |_, _| {}).unwrap();
    assert!(report.left_blocks == 0 && world.are_equal(), "{report:?}");
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let mut world = World::new(1);
    for kind in Kind::ALL {
        let filter = filter_of(kind, 0);
        world.insert(filter, &[1, 2, 3]);
        let digest = world.twin.digest();
        let block_count = 1_000_000;
        for blocks in [
            vec![(0, vec![1])],
            vec![(block_count, vec![1])],
            vec![(1, vec![]), (0, vec![])],
            vec![(0, vec![u64::MAX, 1])],
        ] {
            let repair = RepairPart {
                filter,
                generation: FIRST,
                read_at: u64::MAX - 1,
                blocks,
                counters: vec![world.twin.summary(filter).unwrap().new_count, 0, u64::MAX],
            };
            world.apply(&ShardCommand::Repair(repair));
            // On the twin repairs only add; on the replica they are exact.
            for state in [&world.twin, &world.replicas[&NodeId(1)]] {
                assert_eq!(state.digest(), digest, "{kind}");
            }
        }
        let mut state = world.twin.clone();
        assert!(state.read_blocks(1, filter, FIRST, &[2, 1]).is_err());
        let many: Vec<u32> = (0..140_000).collect();
        assert!(state.read_blocks(1, filter, FIRST, &many).is_err());
        assert_eq!(state.read_blocks(1, filter, FIRST, &[9_999]).unwrap().contents, [[]]);
        assert_eq!(state.rot(FilterId(7), 1, true), 0);
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is inserted while replicas are compared, nothing that a healthy majority holds is lost.
    /// Once writes stop, the replicas become equal.
    #[test]
    fn what_is_written_meanwhile_is_never_lost(
        kind in kinds(),
        first in vec(0_u64..60, 1..40),
        meanwhile in vec(vec(0_u64..60, 1..6), 1..12),
        obeys in any::<bool>(),
        (rotten, every) in (1_u64..=3, 1_usize..300),
    ) {
        let mut world = World::new(3);
        let filter = filter_of(kind, 0);
        world.insert(filter, &first);
        world.replicas.get_mut(&NodeId(rotten)).unwrap().rot(filter, every, false);
        let mut batches = meanwhile.iter();
        let report = world.scrub(filter, &[], |world, is_held| {
            if is_held && obeys {
                return;
            }
            if let Some(batch) = batches.next() {
                world.insert(filter, batch);
                if kind.removes() {
                    world.remove(filter, &batch[..1]);
                }
            }
        });
        prop_assert!(report.is_ok());
        if !kind.removes() {
            // Not for kinds whose counters may be decremented below what the rotten replica has.
            let inserted: Vec<u64> = first.iter().chain(meanwhile.iter().flatten()).copied().collect();
            let applied: Vec<_> = inserted.iter().map(|&number| item(number)).collect();
            let held = HashList::from_hashes(&applied);
            let expected = world.twin.contains(filter, FIRST, &held).unwrap();
            for (node, replica) in &world.replicas {
                if *node != NodeId(rotten) {
                    let found = replica.contains(filter, FIRST, &held).unwrap();
                    let lost = expected.iter_ones().filter(|&at| !found.get(at)).count();
                    prop_assert_eq!(lost, 0, "{} lost items", node);
                }
            }
        }
        world.scrub(filter, &[], |_, _| {}).unwrap();
        // Levels that only a rotten replica has opened are not repaired.
        let counts: Vec<u32> = world
            .replicas
            .values()
            .map(|replica| replica.slices.get(&filter).unwrap().block_count())
            .collect();
        if counts.iter().all(|count| *count == counts[0]) {
            prop_assert!(world.are_equal(), "{} stays different", kind);
        }
    }
}
