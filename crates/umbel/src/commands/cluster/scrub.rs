//! `umbel cluster scrub`: compares copies and replicas bit by bit.

use crate::exit::Exit;
use crate::printer::{Rows, print};
use crate::stderr::eprint_line;
use anyhow::Result;
use serde_json::{Value, json};
use umbel_client::Client;
use umbel_client::proto::scrub_report::Part;
use umbel_client::proto::{ScrubPair, ScrubReplica, ScrubShard};

/// Scrubs a filter, or all of them, and prints a result for each pair of nodes and each shard.
///
/// # Errors
///
/// If the call to the cluster fails, or its result cannot be printed.
pub(super) async fn scrub(client: &Client, filter: Option<&str>, as_json: bool) -> Result<Exit> {
    let mut reports = client.scrub(filter).await?;
    let (mut pairs, mut shards) = (Vec::new(), Vec::new());
    while let Some(report) = reports.next().await? {
        match report.part {
            Some(Part::Pair(pair)) => pairs.push(pair),
            Some(Part::Shard(shard)) => shards.push(shard),
            Some(Part::Done(_)) | None => {}
        }
    }
    pairs.sort_by(|one, other| key(one).cmp(&key(other)));
    shards.sort_by(|one, other| (&one.filter, one.shard).cmp(&(&other.filter, other.shard)));
    let of_pairs: Value = pairs.iter().map(json_of).collect();
    let of_shards: Value = shards.iter().map(json_of_shard).collect();
    print(as_json, &json!({ "pairs": of_pairs, "shards": of_shards }), || {
        let tables = [(!pairs.is_empty(), rows(&pairs)), (!shards.is_empty(), shard_rows(&shards))];
        let tables: Vec<String> = tables
            .into_iter()
            .filter(|(is_full, _)| *is_full)
            .map(|(_, rows)| rows.text())
            .collect();
        tables.join("\n")
    })?;
    if pairs.iter().any(|pair| !pair.failure.is_empty()) || shards.iter().any(lacks_a_replica) {
        eprint_line(NOT_COMPARED);
    }
    Ok(if shards.iter().all(is_well) { exit(&pairs) } else { Exit::No })
}

/// What to do if something was left out.
const NOT_COMPARED: &str = "not everything was compared, and the results say why: `umbel cluster status` names nodes \
                            that do not answer; run it again once that is mended";

/// Whether a shard, or one of its replicas, was not compared.
fn lacks_a_replica(shard: &ScrubShard) -> bool {
    let mut replicas = shard.replicas.iter();
    !shard.failure.is_empty() || replicas.any(|replica| !replica.failure.is_empty())
}

/// Whether all replicas of a shard were compared and none differed.
fn is_well(shard: &ScrubShard) -> bool {
    let is_replica_well = |replica: &ScrubReplica| {
        replica.failure.is_empty() && replica.lost_bits + replica.surplus_bits == 0
    };
    shard.failure.is_empty()
        && shard.left_blocks == 0
        && !shard.answers_differ
        && shard.replicas.iter().all(is_replica_well)
}

/// The result for a shard, in words.
fn outcome_of_shard(shard: &ScrubShard) -> String {
    if !shard.failure.is_empty() {
        return format!("failed: {}", shard.failure);
    }
    let mut parts = Vec::new();
    for replica in &shard.replicas {
        let ScrubReplica { node, lost_bits, surplus_bits, failure } = replica;
        if lost_bits + surplus_bits > 0 {
            parts.push(format!("node {node}: {lost_bits} bits lost, {surplus_bits} surplus"));
        }
        if !failure.is_empty() {
            parts.push(format!("node {node} not compared: {failure}"));
        }
    }
    if shard.union_blocks > 0 {
        parts.push(format!("{} blocks without a majority", shard.union_blocks));
    }
    if shard.left_blocks > 0 {
        parts.push(format!("{} blocks still differ", shard.left_blocks));
    }
    if shard.answers_differ {
        parts.push("remembered answers differ".to_owned());
    }
    if parts.is_empty() { "equal".to_owned() } else { parts.join("; ") }
}

fn shard_rows(shards: &[ScrubShard]) -> Rows {
    let mut rows = Rows::new(&["filter", "shard", "nodes", "result"], &[1]);
    for shard in shards {
        let nodes: Vec<String> =
            shard.replicas.iter().map(|replica| replica.node.to_string()).collect();
        let (number, outcome) = (shard.shard.to_string(), outcome_of_shard(shard));
        rows.push(vec![shard.filter.clone(), number, nodes.join(" "), outcome]);
    }
    rows
}

fn json_of_shard(shard: &ScrubShard) -> Value {
    let replica = |replica: &ScrubReplica| {
        json!({
            "node": replica.node,
            "lost_bits": replica.lost_bits,
            "surplus_bits": replica.surplus_bits,
            "failure": (!replica.failure.is_empty()).then_some(&replica.failure),
        })
    };
    json!({
        "filter": shard.filter,
        "shard": shard.shard,
        "replicas": shard.replicas.iter().map(replica).collect::<Value>(),
        "union_blocks": shard.union_blocks,
        "left_blocks": shard.left_blocks,
        "answers_differ": shard.answers_differ,
        "failure": (!shard.failure.is_empty()).then_some(&shard.failure),
    })
}

fn key(pair: &ScrubPair) -> (&str, u64, u64) {
    (&pair.filter, pair.node, pair.partner)
}

/// The exit code for pairs: done if every pair was compared and no copy had lost bits.
fn exit(pairs: &[ScrubPair]) -> Exit {
    let is_well = |pair: &ScrubPair| lost_bits(pair) == 0 && pair.failure.is_empty();
    if pairs.iter().all(is_well) { Exit::Done } else { Exit::No }
}

const fn lost_bits(pair: &ScrubPair) -> u64 {
    pair.node_lost_bits + pair.partner_lost_bits
}

/// The result for a pair, in words.
fn outcome(pair: &ScrubPair) -> String {
    if !pair.failure.is_empty() {
        return format!("failed: {}", pair.failure);
    }
    let of_nodes = [(pair.node, pair.node_lost_bits), (pair.partner, pair.partner_lost_bits)];
    let lost = of_nodes.iter().filter(|(_, count)| *count > 0);
    let mut parts: Vec<String> =
        lost.map(|(node, count)| format!("{count} bits repaired on node {node}")).collect();
    if pair.news_bits > 0 {
        parts.push(format!("news ({} bits)", pair.news_bits));
    }
    if parts.is_empty() { "equal".to_owned() } else { parts.join(", ") }
}

fn rows(pairs: &[ScrubPair]) -> Rows {
    let mut rows = Rows::new(&["filter", "node", "partner", "bytes", "result"], &[1, 2, 3]);
    for pair in pairs {
        rows.push(vec![
            pair.filter.clone(),
            pair.node.to_string(),
            pair.partner.to_string(),
            pair.bytes.to_string(),
            outcome(pair),
        ]);
    }
    rows
}

fn json_of(pair: &ScrubPair) -> Value {
    json!({
        "filter": pair.filter,
        "node": pair.node,
        "partner": pair.partner,
        "bytes": pair.bytes,
        "node_lost_bits": pair.node_lost_bits,
        "partner_lost_bits": pair.partner_lost_bits,
        "news_bits": pair.news_bits,
        "failure": (!pair.failure.is_empty()).then_some(&pair.failure),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_well_if_all_its_replicas_are() {
        let replica = |node| ScrubReplica { node, ..ScrubReplica::default() };
        let shard = |second| ScrubShard {
            replicas: vec![replica(1), second, replica(3)],
            ..ScrubShard::default()
        };
        let equal = shard(replica(2));
        assert_eq!((outcome_of_shard(&equal).as_str(), is_well(&equal)), ("equal", true));
        let rotten = shard(ScrubReplica { lost_bits: 5, surplus_bits: 2, ..replica(2) });
        assert_eq!(outcome_of_shard(&rotten), "node 2: 5 bits lost, 2 surplus");
        let away = shard(ScrubReplica { failure: "it is away".to_owned(), ..replica(2) });
        assert_eq!(outcome_of_shard(&away), "node 2 not compared: it is away");
        let left = ScrubShard { left_blocks: 3, union_blocks: 1, ..equal.clone() };
        assert_eq!(outcome_of_shard(&left), "1 blocks without a majority; 3 blocks still differ");
        let answers = ScrubShard { answers_differ: true, ..equal.clone() };
        assert_eq!(outcome_of_shard(&answers), "remembered answers differ");
        let failed = ScrubShard { failure: "no leader".to_owned(), ..equal };
        assert_eq!(outcome_of_shard(&failed), "failed: no leader");
        let were_compared = [&rotten, &left, &answers];
        assert!(!were_compared.into_iter().any(lacks_a_replica));
        assert!(lacks_a_replica(&away) && lacks_a_replica(&failed));
        for bad in [rotten, away, left, answers, failed] {
            assert!(!is_well(&bad), "{bad:?}");
        }
    }

    #[test]
    fn only_losses_and_failures_fail() {
        let equal = ScrubPair { node: 1, partner: 2, ..ScrubPair::default() };
        let news = ScrubPair { news_bits: 7, ..equal.clone() };
        let lost = ScrubPair { partner_lost_bits: 3, ..news.clone() };
        let both = ScrubPair { node_lost_bits: 4, news_bits: 0, ..lost.clone() };
        let failed = ScrubPair { failure: "it is away".to_owned(), ..equal.clone() };
        assert_eq!(outcome(&equal), "equal");
        assert_eq!(outcome(&news), "news (7 bits)");
        assert_eq!(outcome(&lost), "3 bits repaired on node 2, news (7 bits)");
        assert_eq!(outcome(&both), "4 bits repaired on node 1, 3 bits repaired on node 2");
        assert_eq!(outcome(&failed), "failed: it is away");
        assert_eq!(exit(&[]), Exit::Done);
        assert_eq!(exit(&[equal.clone(), news]), Exit::Done);
        for bad in [lost, both, failed] {
            assert_eq!(exit(&[equal.clone(), bad]), Exit::No);
        }
    }
}
