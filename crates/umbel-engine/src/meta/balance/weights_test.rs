//! Balancing shards of different sizes.

use proptest::prelude::*;

use super::super::weights::REPLICA_BYTES_MIN;
use super::tests::formed;
use super::*;
use crate::placement::Zone;

/// Most moves that a plan may take, far beyond what any of these clusters needs.
const MOVES_MAX: usize = 10_000;

const MIB: u64 = 1 << 20;

/// The weights of all nodes that may have replicas.
fn spread(state: &MetaState, weights: &Weights) -> Vec<u64> {
    let loads = weights.loads(state.shard_map());
    let weight = |node| loads.get(&node).map_or(0, |load| load.weight);
    state.available_nodes().into_iter().map(weight).collect()
}

/// Number of pairs of replicas of one shard in one zone, twice.
fn shared(state: &MetaState) -> usize {
    let of_shard = |record: &ShardRecord| -> usize {
        let zones = state.zones();
        record.replicas.iter().map(|&node| zones.shared(node, &record.replicas)).sum()
    };
    state.shard_map().shards.iter().map(of_shard).sum()
}

/// Carries out the next move. False if there is none.
fn step(state: &mut MetaState, weights: &Weights) -> bool {
    let all = state.available_nodes();
    let Some(command) = next_move_by(state, &all, weights) else { return false };
    let MetaCommand::MoveReplica { shard, .. } = command else { unreachable!() };
    state.apply(100, &command);
    let replicas = state.shard_map().get(shard).unwrap().wanted().to_vec();
    state.apply(101, &MetaCommand::ReplicasChanged { shard, replicas });
    true
}

fn unevenness(spread: &[u64]) -> u128 {
    spread.iter().map(|&weight| u128::from(weight).pow(2)).sum()
}

#[test]
fn a_node_with_large_shards_has_fewer_of_them() {
    let mut state = formed(3, 64, 1);
    let large = |record: &ShardRecord| record.replicas == [NodeId(1)];
    let bytes =
        state.shard_map().shards.iter().map(|one| if large(one) { 1024 } else { 256 } * MIB);
    let weights = Weights::new(bytes.collect());
    let before = spread(&state, &weights);
    assert_eq!(state.shard_map().replica_counts()[&NodeId(1)], 22);
    assert!(before[0] > 2 * before[1], "{before:?}");
    let heaviest = before[0] / 22;
    while step(&mut state, &weights) {}
    let after = spread(&state, &weights);
    let (least, most) = (after.iter().min().unwrap(), after.iter().max().unwrap());
    assert!(most - least < 4 * heaviest, "{after:?}");
    let counts = state.shard_map().replica_counts();
    assert!(counts[&NodeId(1)] < 17 && counts[&NodeId(2)] > 22, "{counts:?}");
}

#[test]
fn replicas_that_grow_a_little_stay() {
    let mut state = formed(5, 64, 3);
    let bytes = |grown| (0_u64..64).map(|shard| (1000 + 10 * (shard * grown % 7)) * MIB).collect();
    while step(&mut state, &Weights::new(bytes(0))) {}
    for grown in 1..7 {
        assert!(!step(&mut state, &Weights::new(bytes(grown))), "by {grown}");
    }
}

/// `BF.RESERVE` of the largest filter of kind `redisbloom`, and `DEL`, in a cluster that has no other filter.
#[test]
fn one_filter_that_comes_and_goes_moves_hardly_anything() {
    let mut state = formed(5, 64, 3);
    let empty = Weights::new(vec![0; 64]);
    assert!(!step(&mut state, &empty));
    for shard in [0, 21, 42, 63] {
        let mut bytes = vec![0; 64];
        bytes[shard] = 256 * MIB;
        let weights = Weights::new(bytes);
        let mut move_count = 0;
        while step(&mut state, &weights) {
            move_count += 1;
        }
        assert!(move_count <= 3, "{move_count} moves when it is in shard {shard}");
        assert!(!step(&mut state, &empty), "back from shard {shard}");
    }
}

/// Two nodes with 64 replicas each of equal weight, after so many of the first one were moved to the second.
fn uneven(moved: usize) -> MetaState {
    let mut state = formed(2, 128, 1);
    let of_first = state.shard_map().shards.iter().filter(|one| one.replicas == [NodeId(1)]);
    for shard in of_first.map(|one| one.shard).take(moved).collect::<Vec<_>>() {
        let (from, to) = (NodeId(1), NodeId(2));
        state.apply(50, &MetaCommand::MoveReplica { shard, from, to });
        state.apply(51, &MetaCommand::ReplicasChanged { shard, replicas: vec![to] });
    }
    state
}

#[test]
fn nothing_moves_for_less_than_a_tenth_of_the_mean() {
    let weights = Weights::new(vec![0; 128]);
    assert_eq!(spread(&uneven(0), &weights), [64 * REPLICA_BYTES_MIN; 2]);
    // They differ by six and by eight replicas, and a tenth of the mean is between.
    assert!(!step(&mut uneven(3), &weights));
    assert!(step(&mut uneven(4), &weights));
}

#[test]
fn nodes_that_cannot_be_reached_count_in_the_mean() {
    let mut state = uneven(4);
    for node in [3, 4] {
        let address = format!("n{node}:1");
        state.apply(60 + node, &MetaCommand::AddNode { address, nonce: node });
    }
    let weights = Weights::new(vec![0; 128]);
    // The mean is 32, so that a difference of four is enough, not of seven as if there were two nodes.
    let alive = BTreeSet::from([NodeId(1), NodeId(2)]);
    let mut move_count = 0;
    while let Some(MetaCommand::MoveReplica { shard, from, to }) =
        next_move_by(&state, &alive, &weights)
    {
        assert_eq!((from, to), (NodeId(2), NodeId(1)));
        state.apply(70, &MetaCommand::MoveReplica { shard, from, to });
        state.apply(71, &MetaCommand::ReplicasChanged { shard, replicas: vec![to] });
        move_count += 1;
    }
    // 60 and 68 become 63 and 65.
    assert_eq!(move_count, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_plan_ends_even_and_on_the_way_nothing_gets_worse(
        bytes in prop::collection::vec(prop_oneof![0..128 * MIB, 1024 * MIB..16_384 * MIB], 8..40),
        founders in 1_u64..5,
        joined in 0_u64..4,
        replica_count in 1_u32..4,
        has_zones in any::<bool>(),
        zones in prop::collection::vec(0_u32..4, 8),
    ) {
        // As many as were formed: otherwise shards of too few replicas would keep everything where it is.
        let replica_count = replica_count.min(u32::try_from(founders).unwrap());
        let mut state = formed(founders, u32::try_from(bytes.len()).unwrap(), replica_count);
        for node in 0..joined {
            let address = format!("j{node}:1");
            state.apply(50 + node, &MetaCommand::AddNode { address, nonce: 50 + node });
        }
        for (node, zone) in state.available_nodes().into_iter().zip(zones) {
            let zone = (has_zones && zone > 0).then(|| Zone::new(format!("z{zone}")).unwrap());
            state.apply(90, &MetaCommand::NoteZone { node, zone });
        }
        let weights = Weights::new(bytes);
        let mut before = (shared(&state), unevenness(&spread(&state, &weights)));
        let mut move_count = 0;
        while step(&mut state, &weights) {
            let after = (shared(&state), unevenness(&spread(&state, &weights)));
            prop_assert!(after < before, "zones first, then weights: {after:?} after {before:?}");
            before = after;
            move_count += 1;
            prop_assert!(move_count < MOVES_MAX);
        }
        prop_assert!(has_no_pending_change(&state));
        // Zones may keep nodes unequal.
        if !has_zones {
            let after = spread(&state, &weights);
            let (least, most) = (after.iter().min().unwrap(), after.iter().max().unwrap());
            let shards = state.shard_map().shards.iter();
            let heaviest = shards.map(|record| weights.weight(record.shard)).max().unwrap();
            let mean = after.iter().sum::<u64>() / after.len() as u64;
            let allowed = (4 * heaviest).max(mean.div_ceil(10));
            prop_assert!(most - least < allowed, "{after:?}, {heaviest}");
            // Where no shard is more than a twentieth of what a node has.
            prop_assert!(heaviest * 20 > mean || most - least <= mean / 5, "{after:?}");
        }
    }
}
