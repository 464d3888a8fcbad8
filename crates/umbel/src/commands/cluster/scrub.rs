//! `umbel cluster scrub`: copies of replicated filters compared bit by bit.

use super::show::{Rows, print};
use crate::exit::Exit;
use anyhow::Result;
use serde_json::{Value, json};
use umbel_client::Client;
use umbel_client::proto::ScrubPair;
use umbel_client::proto::scrub_report::Part;

/// Compares the copies of a filter, or of all replicated ones, and prints each pair of nodes.
///
/// # Errors
///
/// As the call of the cluster.
pub(super) async fn scrub(client: &Client, filter: Option<&str>, as_json: bool) -> Result<Exit> {
    let mut reports = client.scrub(filter).await?;
    let mut pairs = Vec::new();
    while let Some(report) = reports.next().await? {
        if let Some(Part::Pair(pair)) = report.part {
            pairs.push(pair);
        }
    }
    pairs.sort_by(|one, other| key(one).cmp(&key(other)));
    let values: Value = pairs.iter().map(json_of).collect();
    print(as_json, &json!({ "pairs": values }), || rows(&pairs).text())?;
    Ok(exit(&pairs))
}

fn key(pair: &ScrubPair) -> (&str, u64, u64) {
    (&pair.filter, pair.node, pair.partner)
}

/// Whether every pair was compared, and no copy had lost anything.
fn exit(pairs: &[ScrubPair]) -> Exit {
    let is_well = |pair: &ScrubPair| lost_bits(pair) == 0 && pair.failure.is_empty();
    if pairs.iter().all(is_well) { Exit::Done } else { Exit::Failed }
}

const fn lost_bits(pair: &ScrubPair) -> u64 {
    pair.node_lost_bits + pair.partner_lost_bits
}

/// What became of a pair, in words.
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
            assert_eq!(exit(&[equal.clone(), bad]), Exit::Failed);
        }
    }
}
