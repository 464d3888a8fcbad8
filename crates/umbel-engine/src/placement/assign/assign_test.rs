//! Laws of placement, compared with an exhaustive search.

use proptest::prelude::*;

use super::*;
use crate::placement::{ShardMap, ShardRecord, Zone};

fn cluster(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
    numbers.into_iter().map(NodeId).collect()
}

/// Number of replicas in `after` on nodes that did not have them in `before`.
fn moved(before: &[Vec<NodeId>], after: &[Vec<NodeId>]) -> usize {
    let pairs = before.iter().zip(after);
    pairs.map(|(old, new)| new.iter().filter(|node| !old.contains(node)).count()).sum()
}

/// Slow twin of the feasibility rule: tries all choices to find room for the shards.
fn fits(rooms: &mut [usize], shards_left: usize, replica_count: usize) -> bool {
    fn choose(rooms: &mut [usize], from: usize, want: usize, next: (usize, usize)) -> bool {
        if want == 0 {
            return fits(rooms, next.0, next.1);
        }
        (from..rooms.len()).any(|i| {
            rooms[i] > 0 && {
                rooms[i] -= 1;
                let found = choose(rooms, i + 1, want - 1, next);
                rooms[i] += 1;
                found
            }
        })
    }
    shards_left == 0 || choose(rooms, 0, replica_count, (shards_left - 1, replica_count))
}

#[test]
fn assignment_is_frozen() {
    // Logs of formed clusters depend on it.
    let shards = assign(6, 2, &cluster(1..=4));
    let numbers: Vec<Vec<u64>> =
        shards.iter().map(|replicas| replicas.iter().map(|node| node.0).collect()).collect();
    assert_eq!(numbers, [[1, 4], [1, 4], [1, 3], [2, 3], [2, 4], [2, 3]].map(Vec::from));
}

#[test]
fn mix_is_splitmix64() {
    // First outputs of the reference generator seeded with 0 and 1.
    assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    assert_eq!(mix(1), 0x910a_2dec_8902_5cc1);
}

#[test]
fn no_nodes_no_replicas() {
    assert_eq!(assign(2, 3, &BTreeSet::new()), [vec![], vec![]]);
    assert_eq!(assign(0, 3, &cluster(1..=2)), Vec::<Vec<NodeId>>::new());
}

#[test]
fn a_new_node_moves_little() {
    // Its share must move. Nodes that are full pass some replicas on, on average less than half as
    // many again; assigning from scratch would move (N - R)/N of all.
    let (mut total, mut share) = (0, 0);
    for (replica_count, node_count) in (1..=5).flat_map(|r| (5..16).map(move |n| (r, n))) {
        let before = assign(128, replica_count, &cluster(1..=node_count));
        let after = assign(128, replica_count, &cluster(1..=node_count + 1));
        total += moved(&before, &after);
        share += 128 * replica_count as usize / (node_count as usize + 1);
    }
    assert!(total <= share * 3 / 2, "{total} moved, {share} had to");
}

proptest! {
    #[test]
    fn shards_have_different_nodes_and_nodes_equal_loads(
        shard_count in 1_u32..200,
        replica_count in 1_u32..=9,
        numbers in prop::collection::btree_set(1_u64..10_000, 1..20),
    ) {
        let nodes = cluster(numbers);
        let shards = assign(shard_count, replica_count, &nodes);
        prop_assert_eq!(shards.len(), shard_count as usize);
        let wanted = nodes.len().min(replica_count as usize);
        for replicas in &shards {
            prop_assert_eq!(replicas.len(), wanted);
            prop_assert!(replicas.is_sorted_by(|a, b| a < b));
        }
        let cap = (shard_count as usize * wanted).div_ceil(nodes.len());
        for node in nodes {
            prop_assert!(shards.iter().filter(|replicas| replicas.contains(&node)).count() <= cap);
        }
    }

    #[test]
    fn taking_leaves_room_for_the_rest(
        left in prop::collection::vec(0_usize..4, 1..5),
        shards_left in 1_usize..4,
        replica_count in 1_usize..4,
        shard: u32,
    ) {
        prop_assume!(fits(&mut left.clone(), shards_left, replica_count));
        let mut rooms: Vec<_> =
            (1..).zip(&left).map(|(node, &left)| Room { node: NodeId(node), left }).collect();
        let replicas = take(&mut rooms, ShardId(shard % 1024), shards_left, replica_count);
        prop_assert_eq!(replicas.len(), replica_count);
        let mut left: Vec<_> = rooms.iter().map(|room| room.left).collect();
        prop_assert!(fits(&mut left, shards_left - 1, replica_count));
    }

    #[test]
    fn a_replacement_is_the_least_loaded_of_the_zone_that_is_used_least(
        founders in prop::collection::vec(prop::collection::btree_set(1_u64..8, 1..4), 1..10),
        available in prop::collection::btree_set(1_u64..10, 0..8),
        zones in prop::collection::vec(0_u8..4, 9),
    ) {
        let mut placed = Zones::default();
        for (node, zone) in (1..).map(NodeId).zip(zones) {
            placed.set(node, (zone > 0).then(|| Zone::new(format!("z{zone}")).unwrap()));
        }
        let zones = placed;
        let founded = |nodes| ShardRecord::founded(cluster(nodes).into_iter().collect());
        let map = ShardMap::new(founders.into_iter().map(founded).collect());
        let available = cluster(available);
        let taken = map.shards[0].replicas.clone();
        let load = |node: NodeId| map.shards_of(node).count() as u64;
        let chosen = choose_replacement(load, &available, &zones, ShardId(0), &taken);
        let free: Vec<_> = available.iter().copied().filter(|node| !taken.contains(node)).collect();
        prop_assert_eq!(chosen.is_some(), !free.is_empty());
        if let Some(chosen) = chosen {
            prop_assert!(free.contains(&chosen));
            let cost = |node: NodeId| (zones.shared(node, &taken), load(node));
            prop_assert_eq!(Some(cost(chosen)), free.iter().map(|&node| cost(node)).min());
        }
    }
}
