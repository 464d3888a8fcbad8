//! Zones: no shard has two replicas in one of them while another one, with a node that may have replicas, has
//! none.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::NodeId;
use umbel_engine::meta::next_move;

use super::{out_of_sync, wait_for_none};
use crate::counters;
use crate::watch;
use crate::world::World;

/// Name of the invariant.
const NAME: &str = "zones_apart";

/// Maximum time after all replicas are equal until they are in different zones: they move one by one, each
/// in a second or two, and there may be more than ten to move.
const APART_MAX_US: u64 = 120_000_000;

/// Waits until the cluster moves no replica any more, and checks where they are.
///
/// # Errors
/// If a host's task panicked.
pub(super) fn heal(world: &mut World) -> Result<(), String> {
    if world.plan.zones.is_empty() {
        return Ok(());
    }
    if let Some(what) = wait_for_none(world, APART_MAX_US, unsettled)? {
        let seconds = APART_MAX_US / 1_000_000;
        watch::violated(NAME, format!("{seconds} s after all replicas were equal {what}"));
    }
    let shards = watch::with(|checks| checks.reference.meta().shard_count());
    counters::checked(NAME, u64::from(shards));
    Ok(())
}

/// What is not in its place, or still moves; None if nothing is.
fn unsettled(world: &World) -> Option<String> {
    if let Some(what) = out_of_sync(world) {
        return Some(what);
    }
    let running = world.hosts.iter().filter_map(|host| host.node_id.get().map(|id| (id, host)));
    let zones: BTreeMap<NodeId, Option<u32>> =
        running.map(|(id, host)| (NodeId(id), host.zone.get())).collect();
    watch::with(|checks| {
        let meta = checks.reference.meta();
        let alive: BTreeSet<NodeId> = zones.keys().copied().collect();
        if let Some((_, moving)) = meta.shards().find(|(_, record)| record.target.is_some()) {
            return Some(format!("replicas of {} still move", moving.shard));
        }
        if let Some(due) = next_move(meta, &alive) {
            return Some(format!("there is still to come {due:?}"));
        }
        let available: Vec<NodeId> = meta.available_nodes().intersection(&alive).copied().collect();
        let mut shards = meta.shards();
        shards.find_map(|(_, record)| {
            let what = crowded(&record.replicas, &available, &zones)?;
            Some(format!("{} has {what}", record.shard))
        })
    })
}

/// Two of these nodes in one zone, and an available node in a zone without any; None if there are none such.
fn crowded(
    replicas: &[NodeId],
    available: &[NodeId],
    zones: &BTreeMap<NodeId, Option<u32>>,
) -> Option<String> {
    let zone = |node: NodeId| zones.get(&node).copied().flatten();
    let is_together = |one: NodeId, other: NodeId| {
        one == other || zone(one).is_some() && zone(one) == zone(other)
    };
    let mut pairs =
        replicas.iter().flat_map(|&one| replicas.iter().map(move |&other| (one, other)));
    let (one, other) = pairs.find(|&(a, b)| a < b && is_together(a, b))?;
    let is_free = |node: &&NodeId| !replicas.iter().any(|&replica| is_together(replica, **node));
    let free = available.iter().find(is_free)?;
    Some(format!("replicas on {one} and {other}, of one zone, and none in that of {free}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(replicas: &[u64], available: &[u64], zones: &[(u64, Option<u32>)]) -> Option<String> {
        let nodes = |numbers: &[u64]| numbers.iter().copied().map(NodeId).collect::<Vec<_>>();
        let zones: BTreeMap<NodeId, Option<u32>> =
            zones.iter().map(|&(node, zone)| (NodeId(node), zone)).collect();
        crowded(&nodes(replicas), &nodes(available), &zones)
    }

    #[test]
    fn two_replicas_in_a_zone_are_found_where_another_has_room() {
        let zones = [(1, Some(1)), (2, Some(1)), (3, Some(2)), (4, Some(3))];
        let what = found(&[1, 2, 3], &[1, 2, 3, 4], &zones).unwrap();
        assert_eq!(what, "replicas on node 1 and node 2, of one zone, and none in that of node 4");
        assert_eq!(found(&[1, 3, 4], &[1, 2, 3, 4], &zones), None);
        // Node 4 may have no replica, so that there is no better place.
        assert_eq!(found(&[1, 2, 3], &[1, 2, 3], &zones), None);
    }

    #[test]
    fn a_node_without_a_zone_is_a_zone_of_its_own() {
        let zones = [(1, Some(1)), (2, Some(1)), (3, None), (4, None)];
        assert!(found(&[1, 2], &[1, 2, 3], &zones).is_some());
        assert_eq!(found(&[3, 4], &[1, 2, 3, 4], &zones), None);
        assert_eq!(found(&[1, 2, 3], &[1, 2, 3], &zones), None);
    }
}
