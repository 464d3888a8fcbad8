//! What an operator should know of the size of a cluster, in words.

use std::collections::BTreeSet;

use umbel_client::StatusResponse;
use umbel_client::proto::NodeStatus;

/// What it is about, and a text with what to do.
pub(super) type Note = (&'static str, String);

/// What status says: what the cluster lacks, and what it has too many of.
pub(super) fn of(status: &StatusResponse) -> Vec<Note> {
    lacks(status, 0).into_iter().chain(spare_shards(status)).collect()
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
    use umbel_client::proto::ShardStatus;

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
    fn a_drained_node_takes_its_zone_with_it() {
        let status = status(&[("live", "a"), ("live", "b"), ("live", "c"), ("live", "b")]);
        assert_eq!(lacks(&status, 2), NONE);
        assert_eq!(texts(&lacks(&status, 3)), [TWO_ZONES]);
    }
}
