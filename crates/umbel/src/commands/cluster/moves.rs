//! Replicas that move or would move, and why.

use serde_json::{Value, json};
use umbel_client::StatusResponse;
use umbel_client::proto::ShardMove;

use super::look::{Look, harmless};
use super::notes;
use crate::printer::{Rows, facts_for, numbers};

/// Bytes that a move transfers: the shard's filters, once per target node.
fn sent_bytes(status: &StatusResponse, moved: &ShardMove) -> u64 {
    let shard = status.shards.iter().find(|shard| shard.shard == moved.shard);
    shard.map_or(0, |shard| shard.memory_bytes).saturating_mul(moved.to.len() as u64)
}

/// The cause of a move, in words for people.
fn cause_text(moved: &ShardMove) -> String {
    let known = match moved.cause.as_str() {
        // Nodes are compared by weight, for which small shards count, too: the source may have fewer bytes.
        "balance" if moved.from_bytes > moved.to_bytes => {
            let (from, to) = (numbers(&moved.from), numbers(&moved.to));
            let (more, less) = (moved.from_bytes, moved.to_bytes);
            return format!("{more} bytes on node {from}, {less} on node {to}");
        }
        "node_leaves" => "its node leaves",
        "too_few" => "too few replicas",
        "zones" => "two in one zone",
        "balance" => "shares become even",
        "ordered" => "by hand",
        // A cause that only a newer release knows.
        other => return harmless(other),
    };
    known.to_owned()
}

fn when(moved: &ShardMove) -> &'static str {
    if moved.is_begun { "now" } else { "later" }
}

/// What is printed once the cluster has recorded a move that was ordered by hand.
pub(super) fn ordered_text(shard: u32, from: u64, to: u64) -> String {
    format!(
        "the replica of shard {shard} on node {from} moves to node {to} in the background: `umbel cluster status` lists \
         the move until it is done\n"
    )
}

/// The moves, as a JSON array.
pub(super) fn json(status: &StatusResponse) -> Value {
    let moved = |moved: &ShardMove| {
        json!({
            "shard": moved.shard,
            "from": moved.from,
            "to": moved.to,
            "cause": moved.cause,
            "begun": moved.is_begun,
            "bytes": sent_bytes(status, moved),
            "from_bytes": moved.from_bytes,
            "to_bytes": moved.to_bytes,
        })
    };
    status.moves.iter().map(moved).collect()
}

/// The moves, as a table for people or as lines that begin with `move`; empty if there are none.
pub(super) fn text(status: &StatusResponse, look: Look) -> String {
    if status.moves.is_empty() {
        return String::new();
    }
    let people = look.is_for_people;
    let mut rows = Rows::new(&["", "shard", "from", "to", "when", "why", "bytes"], &[1, 6]);
    for moved in &status.moves {
        rows.push(vec![
            "move".to_owned(),
            moved.shard.to_string(),
            numbers(&moved.from),
            numbers(&moved.to),
            when(moved).to_owned(),
            if people { cause_text(moved) } else { moved.cause.clone() },
            sent_bytes(status, moved).to_string(),
        ]);
    }
    rows.text_for(people)
}

/// What draining a node would move, as a JSON object.
pub(super) fn drain_json(node: u64, status: &StatusResponse) -> Value {
    let notes = notes::lacks(status, node);
    let notes = notes::texts(&notes);
    json!({ "node": node, "moves": json(status), "bytes": all_bytes(status), "notes": notes })
}

/// The same as text.
pub(super) fn drain_text(node: u64, status: &StatusResponse, look: Look) -> String {
    let mut known = vec![
        ("node", node.to_string()),
        ("moves", status.moves.len().to_string()),
        ("bytes", all_bytes(status).to_string()),
    ];
    known.extend(notes::lacks(status, node));
    facts_for(look.is_for_people, &known) + &text(status, look)
}

fn all_bytes(status: &StatusResponse) -> u64 {
    let bytes = status.moves.iter().map(|moved| sent_bytes(status, moved));
    bytes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use umbel_client::proto::{NodeStatus, ShardStatus};

    use super::*;

    const LINES: Look = Look { is_for_people: false, has_colours: false, columns: 80 };

    fn status() -> StatusResponse {
        let shard = |shard, memory_bytes| ShardStatus { shard, memory_bytes, ..Default::default() };
        let moved = |shard, from: &[u64], to: &[u64], cause: &str, is_begun| ShardMove {
            shard,
            from: from.to_vec(),
            to: to.to_vec(),
            cause: cause.to_owned(),
            is_begun,
            ..ShardMove::default()
        };
        StatusResponse {
            shards: vec![shard(0, 100), shard(1, 1000)],
            moves: vec![
                moved(1, &[2], &[4], "node_leaves", true),
                moved(0, &[], &[3, 4], "too_few", false),
            ],
            ..StatusResponse::default()
        }
    }

    #[test]
    fn a_move_says_where_when_why_and_what_it_sends() {
        let lines = text(&status(), LINES);
        let first = "move\t1\t2\t4\tnow\tnode_leaves\t1000\n";
        let second = "move\t0\t-\t3,4\tlater\ttoo_few\t200\n";
        assert_eq!(lines, format!("{first}{second}"));
        assert_eq!(text(&StatusResponse::default(), LINES), "");
        let because = |cause: &str, from_bytes| {
            let (from, to, cause) = (vec![3], vec![1], cause.to_owned());
            cause_text(&ShardMove {
                from,
                to,
                cause,
                from_bytes,
                to_bytes: 20,
                ..ShardMove::default()
            })
        };
        assert_eq!(because("zones", 0), "two in one zone");
        assert_eq!(because("a\x1b[2J", 0), "a?[2J");
        assert_eq!(because("balance", 0), "shares become even");
        assert_eq!(because("balance", 90), "90 bytes on node 3, 20 on node 1");
        assert_eq!(because("balance", 20), "shares become even");
        assert_eq!(because("balance", 19), "shares become even");
        let json = drain_json(2, &status());
        assert_eq!((&json["bytes"], &json["moves"][1]["to"]), (&json!(1200), &json!([3, 4])));
        assert!(drain_text(2, &status(), LINES).ends_with(&lines));
    }

    #[test]
    fn an_order_says_what_goes_on_and_how_to_watch_it() {
        let text = ordered_text(3, 1, 4);
        assert!(
            text.starts_with("the replica of shard 3 on node 1 moves to node 4 in the background")
        );
        assert!(text.contains("`umbel cluster status`") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn a_drain_says_what_it_leaves_too_few_of() {
        let node = |node| NodeStatus { node, state: "live".to_owned(), ..NodeStatus::default() };
        let nodes = vec![node(1), node(2), node(3)];
        let status = StatusResponse { nodes, replica_count: 3, ..StatusResponse::default() };
        let text = "2 nodes can have replicas of a shard, 3 are wanted: add a node";
        let facts = format!("node\t2\nmoves\t0\nbytes\t0\ntoo few nodes\t{text}\n");
        assert_eq!(drain_text(2, &status, LINES), facts);
        assert_eq!(drain_json(2, &status)["notes"], json!([text]));
    }
}
