//! Rot in the memory of shard replicas after all faults, which only a comparison of replicas detects.

use std::rc::Rc;

use umbel_engine::meta::FilterState;
use umbel_engine::placement::ShardRecord;
use umbel_engine::{FilterId, NodeId, ShardId};
use umbel_node::Node;

use super::wait_for_none;
use crate::counters;
use crate::oracle::reference;
use crate::watch;
use crate::world::World;

/// Within this time after they rot, replicas are equal again.
const MENDED_MAX_US: u64 = 90_000_000;

/// Fewest replicas with which the others can correct a rotten one.
const REPLICAS_MIN: usize = 3;

/// A replica that rots.
struct Rotten {
    shard: ShardId,
    host: String,
    node: Rc<Node>,
}

/// Clears bits in one replica of each shard, the leader's or a follower's, and waits until all replicas
/// match the log again.
///
/// # Errors
/// If a host's task panicked.
pub(super) fn rot(world: &mut World) -> Result<(), String> {
    let every = usize::try_from(world.plan.world.rot_every).unwrap_or(usize::MAX);
    if every == 0 || world.is_violated() {
        return Ok(());
    }
    let filters = partitioned_filters();
    let rotten: Vec<Rotten> = members()
        .into_iter()
        .filter_map(|(shard, members)| {
            let (host, node) = chosen(world, shard, &members)?;
            Some(Rotten { shard, host, node })
        })
        .collect();
    let mut lost_count = 0;
    for Rotten { shard, host, node } in &rotten {
        watch::with(|checks| {
            let group = checks.reference.meta().shard(*shard).map(ShardRecord::group);
            group.into_iter().for_each(|group| checks.reference.excuse(host, group));
        });
        lost_count +=
            filters.iter().map(|&filter| node.rot_slice(*shard, filter, every, true)).sum::<u64>();
    }
    if lost_count > 0 && difference(world).is_some() {
        counters::state("replicas_lost_bits");
    }
    if let Some(what) = wait_for_none(world, MENDED_MAX_US, difference)? {
        let what = format!("a long time after replicas lost {lost_count} bits {what}");
        watch::violated(reference::NAME, what);
    }
    watch::with(|checks| checks.reference.excuse_nobody());
    Ok(())
}

/// Partitioned filters that are live.
fn partitioned_filters() -> Vec<FilterId> {
    watch::with(|checks| {
        let live = checks
            .reference
            .meta()
            .filters()
            .filter(|(_, record)| record.state == FilterState::Live && !record.is_replicated());
        live.map(|(filter, _)| filter).collect()
    })
}

/// Shards with the nodes that have a replica.
fn members() -> Vec<(ShardId, Vec<NodeId>)> {
    watch::with(|checks| {
        let shards = (0..).map(ShardId).zip(checks.reference.meta().shards());
        shards.map(|(shard, (_, record))| (shard, record.members())).collect()
    })
}

/// The member whose replica rots. Its position varies from shard to shard, so that leaders are among
/// them.
fn chosen(world: &World, shard: ShardId, members: &[NodeId]) -> Option<(String, Rc<Node>)> {
    if members.len() < REPLICAS_MIN {
        return None;
    }
    let member = members[shard.0 as usize % members.len()];
    running(world).find(|(_, node)| node.id() == member)
}

fn running(world: &World) -> impl Iterator<Item = (String, Rc<Node>)> {
    world.hosts.iter().filter_map(|host| Some((host.name.clone(), host.node()?)))
}

/// Describes a replica whose state differs from what the log yields; None if there is none.
fn difference(world: &World) -> Option<String> {
    for (shard, members) in members() {
        let expected = watch::with(|checks| Some(checks.reference.shard(shard)?.digest()));
        let Some(expected) = expected else { continue };
        for (host, node) in running(world).filter(|(_, node)| members.contains(&node.id())) {
            match node.shard_digest(shard) {
                Some(digest) if digest == expected => {}
                digest => {
                    return Some(format!("{shard} on {host} has {digest:x?}, not {expected:#x}"));
                }
            }
        }
    }
    None
}
