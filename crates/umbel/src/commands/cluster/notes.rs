//! What an operator should know of a cluster, in words: majorities that are away, full disks, clocks that are wrong, and its
//! size.

use std::collections::BTreeSet;

use umbel_client::StatusResponse;
use umbel_client::proto::{NodeStatus, ShardStatus};
use umbel_engine::{NodeId, clocks};

use crate::printer::numbers;

/// What it is about, and a text with what to do.
pub(super) type Note = (&'static str, String);

/// Most shards that a note lists, so that it stays a line; more are counted.
const SHARDS_LISTED_MAX: usize = 8;

/// What status says: which groups have no majority, whose disks are full, whose clocks differ, what the cluster lacks, and
/// what it has too many of.
pub(super) fn of(status: &StatusResponse) -> Vec<Note> {
    let wrong = no_majority(status).into_iter().chain(disks_short(status));
    let wrong = wrong.chain(clocks_differ(status));
    wrong.chain(lacks(status, 0)).chain(spare_shards(status)).collect()
}

/// Groups of which a majority of the nodes does not answer. A leader that is cut off from the others does not know
/// it, and is still shown as the leader.
pub(super) fn no_majority(status: &StatusResponse) -> Option<Note> {
    let answering: BTreeSet<u64> =
        status.nodes.iter().filter(|node| node.is_reachable).map(|node| node.node).collect();
    let is_lost = |nodes: &[u64]| {
        2 * nodes.iter().filter(|&node| answering.contains(node)).count() <= nodes.len()
    };
    let is_voter = |node: &&NodeStatus| node.meta_role == "voter";
    let voters: Vec<u64> = status.nodes.iter().filter(is_voter).map(|node| node.node).collect();
    let is_meta_lost = !voters.is_empty() && is_lost(&voters);
    // While replicas move, the status does not say which of both sets vote.
    let is_shard_lost = |shard: &&ShardStatus| {
        let is_target_lost = shard.target.is_empty() || is_lost(&shard.target);
        !shard.replicas.is_empty() && is_lost(&shard.replicas) && is_target_lost
    };
    let lost: Vec<&ShardStatus> = status.shards.iter().filter(is_shard_lost).collect();
    let listed = || {
        let numbers = lost.iter().take(SHARDS_LISTED_MAX).map(|shard| shard.shard.to_string());
        let numbers = numbers.collect::<Vec<_>>().join(",");
        match lost.len() {
            1 => format!("shard {numbers}"),
            count if count > SHARDS_LISTED_MAX => format!("{count} shards, such as {numbers}"),
            _ => format!("shards {numbers}"),
        }
    };
    let groups: Vec<String> =
        [is_meta_lost.then(|| "the meta group".to_owned()), (!lost.is_empty()).then(listed)]
            .into_iter()
            .flatten()
            .collect();
    let members = lost.iter().flat_map(|shard| shard.replicas.iter());
    let members = members.chain(is_meta_lost.then_some(&voters).into_iter().flatten());
    let away: BTreeSet<u64> = members.copied().filter(|node| !answering.contains(node)).collect();
    let away: Vec<u64> = away.into_iter().collect();
    (!groups.is_empty()).then(|| {
        let (groups, listed) = (groups.join(" and "), numbers(&away));
        let text = match away.as_slice() {
            [_] => format!(
                "{groups}: node {listed} does not answer, so what needs a majority fails: start it, or repair the network"
            ),
            _ => format!(
                "{groups}: nodes {listed} do not answer, so what needs a majority fails: start them, or repair the \
                 network"
            ),
        };
        ("no majority", text)
    })
}

/// Nodes that refuse inserts, for want of room.
fn disks_short(status: &StatusResponse) -> Option<Note> {
    let short = status.nodes.iter().filter(|node| node.is_disk_short);
    let short: Vec<u64> = short.map(|node| node.node).collect();
    let (listed, rest) =
        (numbers(&short), "lower disk_reserve_bytes; `umbel cluster top` shows what is left");
    let text = match short.as_slice() {
        [] => return None,
        [_] => format!(
            "node {listed} refuses inserts, its disk is nearly full: make room there, or {rest}"
        ),
        _ => format!(
            "nodes {listed} refuse inserts, their disks are nearly full: make room there, or {rest}"
        ),
    };
    Some(("disk full", text))
}

/// Nodes whose clocks are far from that of the node in the middle.
fn clocks_differ(status: &StatusResponse) -> Option<Note> {
    let clock = |node: &NodeStatus| Some((NodeId(node.node), node.clock_ahead_ms?));
    let text = clocks::clocks_differ(status.nodes.iter().filter_map(clock))?;
    Some(("clocks differ", text))
}

/// Shards that cores and filters do not need, if they are half of all at least: fewer are not worth the
/// merges.
fn spare_shards(status: &StatusResponse) -> Option<Note> {
    let (count, needed) = (status.shards.len(), status.shards_needed?);
    if needed == 0 || count < 2 * needed as usize {
        return None;
    }
    // Merges are refused while shards are split by themselves.
    let before = if status.auto_split { "`umbel cluster split --auto off`, then " } else { "" };
    let text = format!(
        "{count} shards, {needed} would do for the cores and filters: {before}`umbel cluster merge --to {needed}`"
    );
    Some(("more shards than needed", text))
}

/// What the cluster lacks for the replicas that are wanted. The node `without` counts as drained, even if
/// the node that answered does not know it yet; 0 is none.
pub(super) fn lacks(status: &StatusResponse, without: u64) -> Vec<Note> {
    let may_have = |node: &&NodeStatus| node.state == "live" && node.node != without;
    let available: Vec<&NodeStatus> = status.nodes.iter().filter(may_have).collect();
    let (count, wanted) = (available.len(), status.replica_count as usize);
    let mut notes = Vec::new();
    if count < wanted {
        let nodes = if count == 1 { "node" } else { "nodes" };
        let more = if wanted - count == 1 {
            "a node".to_owned()
        } else {
            format!("{} nodes", wanted - count)
        };
        let text = format!(
            "{count} {nodes} can have replicas of a shard, {wanted} are wanted: add {more}"
        );
        notes.push(("too few nodes", text));
    }
    // A node without a zone is a zone of its own.
    let (unnamed, named): (Vec<_>, Vec<_>) =
        available.iter().map(|node| node.zone.as_str()).partition(|zone| zone.is_empty());
    let is_named = !named.is_empty();
    let zone_count = unnamed.len() + named.into_iter().collect::<BTreeSet<_>>().len();
    let replica_count = wanted.min(count);
    if is_named && zone_count < replica_count {
        let zones = if zone_count == 1 { "zone" } else { "zones" };
        let text = format!(
            "{zone_count} {zones} for {replica_count} replicas of a shard, so that some share a zone: add a node in \
             another zone"
        );
        notes.push(("too few zones", text));
    }
    notes
}

/// The texts alone, for programs that know what they are about.
pub(super) fn texts(notes: &[Note]) -> Vec<&str> {
    notes.iter().map(|(_, text)| text.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes from 1 on, each with its state and zone, of a cluster that wants three replicas.
    fn status(nodes: &[(&str, &str)]) -> StatusResponse {
        let node = |(number, (state, zone)): (u64, &(&str, &str))| NodeStatus {
            node: number,
            state: (*state).to_owned(),
            zone: (*zone).to_owned(),
            ..NodeStatus::default()
        };
        StatusResponse {
            nodes: (1..).zip(nodes).map(node).collect(),
            replica_count: 3,
            ..StatusResponse::default()
        }
    }

    const NONE: [Note; 0] = [];
    const TWO_NODES: &str = "2 nodes can have replicas of a shard, 3 are wanted: add a node";

    const TWO_ZONES: &str =
        "2 zones for 3 replicas of a shard, so that some share a zone: add a node in another zone";

    #[test]
    fn nodes_that_are_drained_or_removed_can_have_no_replicas() {
        let live = ("live", "");
        let enough = status(&[live, live, live, ("removed", "")]);
        assert_eq!(lacks(&enough, 0), NONE);
        let wanted = [("too few nodes", TWO_NODES.to_owned())];
        assert_eq!(lacks(&enough, 2), wanted);
        assert_eq!(lacks(&status(&[live, ("draining", ""), live]), 0), wanted);
        // The node that is being drained is not counted twice.
        assert_eq!(lacks(&status(&[live, ("draining", ""), live]), 2), wanted);
        assert_eq!(
            texts(&lacks(&status(&[live]), 0)),
            ["1 node can have replicas of a shard, 3 are wanted: add 2 nodes"]
        );
    }

    #[test]
    fn zones_are_enough_if_every_replica_has_one() {
        let of = |zones: &[&str]| {
            let nodes: Vec<_> = zones.iter().map(|&zone| ("live", zone)).collect();
            lacks(&status(&nodes), 0)
        };
        assert_eq!(of(&["a", "b", "c"]), NONE);
        // Each node without a zone fails alone; if none has a zone, nobody asked for zones.
        assert_eq!(of(&["a", "", ""]), NONE);
        assert_eq!(of(&["", "", ""]), NONE);
        assert_eq!(of(&["a", "a", "b", "b"]), [("too few zones", TWO_ZONES.to_owned())]);
        // Two nodes have two replicas, in two zones.
        assert_eq!(texts(&of(&["a", "b"])), [TWO_NODES]);
    }

    #[test]
    fn groups_without_a_majority_are_named_with_the_nodes_to_start() {
        let node = |(node, is_reachable)| NodeStatus {
            node,
            is_reachable,
            meta_role: if node == 2 { "learner" } else { "voter" }.to_owned(),
            ..NodeStatus::default()
        };
        let shard = |shard, replicas: &[u64]| ShardStatus {
            shard,
            replicas: replicas.to_vec(),
            ..ShardStatus::default()
        };
        let status = |away: &[u64], shards| StatusResponse {
            nodes: (1..=4).map(|number| node((number, !away.contains(&number)))).collect(),
            shards,
            ..StatusResponse::default()
        };
        let shards = || vec![shard(0, &[1, 3, 4]), shard(1, &[2, 3, 4])];
        let said = |away: &[u64], shards| no_majority(&status(away, shards)).map(|(_, text)| text);
        assert_eq!(said(&[], shards()), None);
        assert_eq!(said(&[4], shards()), None);
        let rest = "so what needs a majority fails: start";
        assert_eq!(
            said(&[1, 4], shards()),
            Some(format!(
                "the meta group and shard 0: nodes 1,4 do not answer, {rest} them, or repair the network"
            ))
        );
        assert_eq!(
            said(&[2, 4], shards()),
            Some(format!("shard 1: nodes 2,4 do not answer, {rest} them, or repair the network"))
        );
        // Of two nodes, one is no majority.
        assert_eq!(
            said(&[2], vec![shard(7, &[1, 2])]),
            Some(format!("shard 7: node 2 does not answer, {rest} it, or repair the network"))
        );
        let many = said(&[2], (0..9).map(|number| shard(number, &[2])).collect()).unwrap();
        assert!(many.starts_with("9 shards, such as 0,1,2,3,4,5,6,7: node 2 does not"), "{many}");
    }

    #[test]
    fn half_of_the_shards_are_worth_a_merge() {
        let status = |count, shards_needed, auto_split| {
            let shards = vec![ShardStatus::default(); count];
            StatusResponse { shards, shards_needed, auto_split, ..StatusResponse::default() }
        };
        for (count, needed) in [(31, Some(16)), (16, Some(16)), (1, Some(2)), (64, None)] {
            assert_eq!(of(&status(count, needed, false)), NONE, "{count} {needed:?}");
        }
        assert_eq!(
            of(&status(32, Some(16), false)),
            [(
                "more shards than needed",
                "32 shards, 16 would do for the cores and filters: `umbel cluster merge --to 16`"
                    .to_owned()
            )]
        );
        assert_eq!(
            texts(&of(&status(64, Some(16), true))),
            [
                "64 shards, 16 would do for the cores and filters: `umbel cluster split --auto off`, then \
              `umbel cluster merge --to 16`"
            ]
        );
    }

    #[test]
    fn nodes_whose_disks_are_full_are_named() {
        let said = |full: &[u64]| {
            let node = |node| NodeStatus {
                node,
                is_disk_short: full.contains(&node),
                ..NodeStatus::default()
            };
            let status =
                StatusResponse { nodes: (1..=3).map(node).collect(), ..StatusResponse::default() };
            texts(&of(&status)).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(said(&[]).is_empty());
        let one = said(&[2]);
        assert!(one[0].starts_with("node 2 refuses inserts, its disk is nearly full: "), "{one:?}");
        assert!(said(&[1, 3])[0].starts_with("nodes 1,3 refuse inserts, "));
    }

    #[test]
    fn nodes_whose_clocks_differ_are_named() {
        let status = |clocks: &[Option<i64>]| StatusResponse {
            nodes: (1..)
                .zip(clocks)
                .map(|(node, &clock_ahead_ms)| NodeStatus {
                    node,
                    clock_ahead_ms,
                    ..NodeStatus::default()
                })
                .collect(),
            ..StatusResponse::default()
        };
        let text = "node 3 is 31 s ahead of node 1: correct the wrong clock";
        let wanted = [("clocks differ", text.to_owned())];
        assert_eq!(of(&status(&[Some(0), None, Some(31_000)])), wanted);
        assert_eq!(of(&status(&[Some(0), None, Some(30_000)])), NONE);
    }

    #[test]
    fn a_drained_node_takes_its_zone_with_it() {
        let status = status(&[("live", "a"), ("live", "b"), ("live", "c"), ("live", "b")]);
        assert_eq!(lacks(&status, 2), NONE);
        assert_eq!(texts(&lacks(&status, 3)), [TWO_ZONES]);
    }
}
