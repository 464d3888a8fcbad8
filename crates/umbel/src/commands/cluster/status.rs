//! The state of a cluster, for people and programs.

use super::cube::{CubeView, exchange_facts, exchange_json};
use super::look::{Look, harmless};
use super::moves;
use super::notes;
use super::ranges::picture;
use crate::printer::{Rows, facts_for, numbers};
use serde_json::{Value, json};
use umbel_client::StatusResponse;
use umbel_client::proto::{NodeStatus, ShardStatus};

/// The status, as a JSON object.
pub(super) fn json(status: &StatusResponse) -> Value {
    let node = |node: &NodeStatus| {
        json!({
            "node": node.node,
            "address": node.address,
            "state": node.state,
            "replicas": node.replica_count,
            "leads": node.leader_count,
            "reachable": node.is_reachable,
            "meta": node.meta_role,
            "zone": node.zone,
            "clock_ahead_ms": node.clock_ahead_ms,
            "disk_short": node.is_disk_short,
        })
    };
    let shard = |shard: &ShardStatus| {
        json!({
            "shard": shard.shard,
            "range": [hash(shard.range_start), hash(shard.range_last)],
            "leader": shard.leader,
            "replicas": shard.replicas,
            "target": shard.target,
            "applied_index": shard.applied_index,
            "memory_bytes": shard.memory_bytes,
        })
    };
    let notes = notes::of(status);
    json!({
        "cluster": status.cluster_id,
        "version": status.version,
        "epoch": status.epoch,
        "node": status.node,
        "meta_leader": status.meta_leader,
        "filters": status.filter_count,
        "replicas_wanted": status.replica_count,
        "shards_wanted": status.shards_wanted,
        "shards_needed": status.shards_needed,
        "auto_split": status.auto_split,
        "cluster_version": status.cluster_version,
        "splitting": status.splitting,
        "merging": status.merging,
        "merging_into": status.merging_into,
        "notes": notes::texts(&notes),
        "nodes": status.nodes.iter().map(node).collect::<Vec<_>>(),
        "shards": status.shards.iter().map(shard).collect::<Vec<_>>(),
        "exchange": status.exchange.as_ref().map(exchange_json),
        "moves": moves::json(status),
        "cube": CubeView::of(status).map(|cube| cube.json()),
    })
}

/// How many shards there are, who splits them, and how many there would be if they were split by themselves.
fn shard_count(status: &StatusResponse) -> String {
    let (count, wanted) = (status.shards.len(), status.shards_wanted);
    let is_less = u32::try_from(count).is_ok_and(|count| count < wanted);
    match (status.auto_split, is_less) {
        (true, true) => format!("{count}, split by themselves until there are {wanted}"),
        (true, false) => format!("{count}, split by themselves when more are needed"),
        (false, true) => format!(
            "{count}, split by hand; by themselves they would become {wanted} (umbel cluster split --auto on)"
        ),
        (false, false) => format!("{count}, split by hand"),
    }
}

/// The status, as tables and pictures for people, or as lines that begin with the kind of what they
/// describe.
pub(super) fn text(status: &StatusResponse, look: Look) -> String {
    let people = look.is_for_people;
    let mut known = vec![
        ("cluster", status.cluster_id.clone()),
        ("version", status.version.clone()),
        ("cluster version", status.cluster_version.to_string()),
        ("epoch", status.epoch.to_string()),
        ("meta leader", number(status.meta_leader)),
        ("filters", status.filter_count.to_string()),
        ("replicas wanted", status.replica_count.to_string()),
        ("shards", shard_count(status)),
    ];
    known.extend(notes::of(status));
    let mut text = facts_for(people, &known);
    if let Some(shard) = status.splitting {
        text += &facts_for(people, &[("being split off", format!("shard {shard}"))]);
    }
    if let (Some(shard), Some(into)) = (status.merging, status.merging_into) {
        let fact = format!("shard {shard} into shard {into}");
        text += &facts_for(people, &[("being merged", fact)]);
    }
    if people {
        text += &format!("\n{}", picture(status, look));
    }
    for rows in [node_rows(status, people), shard_rows(status)] {
        if people {
            text.push('\n');
        }
        text += &rows.text_for(people);
    }
    let moves = moves::text(status, look);
    if people && !moves.is_empty() {
        text.push('\n');
    }
    text += &moves;
    text += &exchange_text(status, people);
    text
}

/// How replicated filters are exchanged; empty for a single node without such filters.
fn exchange_text(status: &StatusResponse, people: bool) -> String {
    let (Some(exchange), Some(cube)) = (&status.exchange, CubeView::of(status)) else {
        return String::new();
    };
    if exchange.filter_count == 0 && cube.node_count() < 2 {
        return String::new();
    }
    let lines = facts_for(people, &exchange_facts(exchange));
    if !people {
        return lines + &cube.rows().lines();
    }
    match cube.drawing() {
        Some(drawing) => format!("\n{lines}\n{drawing}"),
        None if cube.node_count() < 2 => format!("\n{lines}"),
        None => format!("\n{lines}\n{}", cube.rows().text_for(people)),
    }
}

fn node_rows(status: &StatusResponse, people: bool) -> Rows {
    let has_zones = status.nodes.iter().any(|node| !node.zone.is_empty());
    let heading: &[&str] = if has_zones {
        &["", "number", "address", "state", "reachable", "replicas", "leads", "meta", "zone"]
    } else {
        &["", "number", "address", "state", "reachable", "replicas", "leads", "meta"]
    };
    let mut rows = Rows::new(heading, &[1, 5, 6]);
    for node in &status.nodes {
        let zone = if node.zone.is_empty() { "-".to_owned() } else { node.zone.clone() };
        let row = [
            "node".to_owned(),
            node.node.to_string(),
            if people { harmless(&node.address) } else { node.address.clone() },
            node.state.clone(),
            if node.is_reachable { "yes" } else { "no" }.to_owned(),
            node.replica_count.to_string(),
            node.leader_count.to_string(),
            node.meta_role.clone(),
        ];
        rows.push(row.into_iter().chain(has_zones.then_some(zone)).collect());
    }
    rows
}

fn shard_rows(status: &StatusResponse) -> Rows {
    let heading = &["", "number", "leader", "replicas", "moves to", "applied", "bytes"];
    let mut rows = Rows::new(heading, &[1, 2, 5, 6]);
    for shard in &status.shards {
        rows.push(vec![
            "shard".to_owned(),
            shard.shard.to_string(),
            number(shard.leader),
            numbers(&shard.replicas),
            numbers(&shard.target),
            shard.applied_index.to_string(),
            shard.memory_bytes.to_string(),
        ]);
    }
    rows
}

/// The number of a node, or a dash if it is unknown.
fn number(node: u64) -> String {
    if node == 0 { "-".to_owned() } else { node.to_string() }
}

/// A hash as hexadecimal text: many JSON readers cannot hold 64-bit integers.
fn hash(hi: u64) -> String {
    format!("{hi:#018x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_are_split_and_merged_are_named() {
        let look = Look { is_for_people: false, has_colours: false, columns: 80 };
        let still = StatusResponse::default();
        let named = |status: &StatusResponse| {
            let lines = text(status, look);
            lines.lines().filter(|line| line.starts_with("being ")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(named(&still), "");
        let splitting = StatusResponse { splitting: Some(4), ..still.clone() };
        assert_eq!(named(&splitting), "being split off\tshard 4");
        let merging = StatusResponse { merging: Some(4), merging_into: Some(0), ..still };
        assert_eq!(named(&merging), "being merged\tshard 4 into shard 0");
        let json = json(&merging);
        assert_eq!((&json["merging"], &json["merging_into"]), (&4.into(), &0.into()));
    }

    #[test]
    fn shards_that_are_split_by_hand_lack_none() {
        let shown = |auto_split, shards_wanted| {
            let shards = vec![ShardStatus::default(); 17];
            shard_count(&StatusResponse { shards, auto_split, shards_wanted, ..Default::default() })
        };
        assert_eq!(shown(true, 32), "17, split by themselves until there are 32");
        assert_eq!(shown(true, 17), "17, split by themselves when more are needed");
        assert_eq!(shown(false, 17), "17, split by hand");
        let by_hand =
            "17, split by hand; by themselves they would become 32 (umbel cluster split --auto on)";
        assert_eq!(shown(false, 32), by_hand);
    }

    #[test]
    fn a_cluster_with_too_few_nodes_says_so() {
        let look = Look { is_for_people: false, has_colours: false, columns: 80 };
        let one = NodeStatus { node: 1, state: "live".to_owned(), ..NodeStatus::default() };
        let status =
            StatusResponse { nodes: vec![one], replica_count: 2, ..StatusResponse::default() };
        let note = "1 node can have replicas of a shard, 2 are wanted: add a node";
        let lines = text(&status, look);
        assert!(lines.contains(&format!("\ntoo few nodes\t{note}\n")), "{lines}");
        assert_eq!(json(&status)["notes"], json!([note]));
    }
}
