//! What is specific to replicated filters: a copy on each node, exchanges, and nodes that have not
//! confirmed a change.

use crate::exit::Exit;
use crate::printer::{Rows, facts, numbers, print};
use crate::stderr::eprint_line;
use anyhow::Result;
use serde_json::{Value, json};
use umbel_client::Client;
use umbel_client::proto::{CopyInfo, CopyLag, DistinctEstimates, NodeDistinct, PairOverlap};

/// Makes the copies exchange their contents, and prints which nodes hold all of them.
///
/// # Errors
///
/// If the call to the cluster fails, or standard output cannot be written.
pub(super) async fn flush(client: &Client, name: &str, json: bool) -> Result<Exit> {
    let flushed = client.flush(name).await?;
    let value = json!({ "nodes": flushed.nodes, "missing_nodes": flushed.missing_nodes });
    print(json, &value, || {
        facts(&[
            ("hold everything", numbers(&flushed.nodes)),
            ("missing", numbers(&flushed.missing_nodes)),
        ])
    })?;
    if flushed.is_complete() {
        return Ok(Exit::Done);
    }
    eprint_line(format_args!(
        "{}: no answer; what was acknowledged there may be on no other node, and what the others \
         have may be missing there",
        named(&flushed.missing_nodes)
    ));
    Ok(Exit::Failed)
}

/// Warns of nodes that did not confirm a change in time; `meaning` states how each of them behaves
/// meanwhile.
pub(super) fn report_unconfirmed(nodes: &[u64], meaning: &str) {
    if let Some(text) = unconfirmed_text(nodes, meaning) {
        eprint_line(text);
    }
}

fn unconfirmed_text(nodes: &[u64], meaning: &str) -> Option<String> {
    let message = || format!("warning: not confirmed in time by {}: {meaning}", named(nodes));
    (!nodes.is_empty()).then(message)
}

/// `node 3` or `nodes 3,4`.
fn named(nodes: &[u64]) -> String {
    format!("node{} {}", if nodes.len() == 1 { "" } else { "s" }, numbers(nodes))
}

/// The columns of the table of copies.
const COPY_COLUMNS: [&str; 12] = [
    "",
    "node",
    "generation",
    "items",
    "new",
    "lag",
    "sweeps",
    "broken",
    "sent",
    "received",
    "ms to converge",
    "settled",
];

/// The copies: a table with a heading for people; for programs tab-separated lines, behind one that names their fields,
/// as all lines before them have names.
pub(super) fn copies_text(copies: &[CopyInfo], people: bool) -> String {
    let rows = copy_rows(copies).text_for(people);
    if people { rows } else { format!("copies\t{}\n{rows}", COPY_COLUMNS[1..].join("\t")) }
}

/// A table with one row per copy.
fn copy_rows(copies: &[CopyInfo]) -> Rows {
    let mut rows = Rows::new(&COPY_COLUMNS, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for copy in copies {
        let mut row = vec!["copy".to_owned(), copy.node.to_string()];
        if copy.is_reachable {
            row.extend([
                copy.generation.to_string(),
                copy.item_count.map_or("full".to_owned(), |count| format!("{count:.0}")),
                copy.new_count.to_string(),
                lag(copy).map_or("-".to_owned(), |lag| lag.to_string()),
                copy.sweep_count.to_string(),
                copy.broken_sweep_count.to_string(),
                copy.sent_bytes.to_string(),
                copy.received_bytes.to_string(),
                copy.convergence_ms.map_or("-".to_owned(), |ms| ms.to_string()),
                if copy.is_settled { "yes" } else { "no" }.to_owned(),
            ]);
        } else {
            row.resize(COPY_COLUMNS.len() - 1, "-".to_owned());
            row.push("unreachable".to_owned());
        }
        rows.push(row);
    }
    rows
}

/// The most changes that any partner may lack; None without partners.
fn lag(copy: &CopyInfo) -> Option<u64> {
    copy.lags.iter().map(|lag| lag.change_count).max()
}

/// A copy as a JSON object.
pub(super) fn copy_json(copy: &CopyInfo) -> Value {
    if !copy.is_reachable {
        return json!({ "node": copy.node, "reachable": false });
    }
    let partner = |lag: &CopyLag| json!({ "node": lag.node, "changes": lag.change_count });
    json!({
        "node": copy.node,
        "reachable": true,
        "generation": copy.generation,
        "ones": copy.one_count,
        "items_estimated": copy.item_count,
        "new": copy.new_count,
        "memory_bytes": copy.memory_bytes,
        "log_bytes": copy.log_bytes,
        "settled": copy.is_settled,
        "lag": lag(copy),
        "lags": copy.lags.iter().map(partner).collect::<Vec<_>>(),
        "sweeps": copy.sweep_count,
        "broken_sweeps": copy.broken_sweep_count,
        "sent_bytes": copy.sent_bytes,
        "received_bytes": copy.received_bytes,
        "convergence_ms": copy.convergence_ms,
        "refused": copy.refused_count,
    })
}

/// Estimates of distinct items: a row for all nodes together, one per node, and one per pair of nodes.
pub(super) fn distinct_rows(distinct: &DistinctEstimates) -> Rows {
    let mut rows = Rows::new(&["", "inserted on", "items", "error"], &[2]);
    let mut push = |nodes: String, count: f64, error: String| {
        rows.push(vec!["distinct".to_owned(), nodes, format!("{count:.0}"), error]);
    };
    let error = || format!("±{:.1} %", 100.0 * distinct.relative_error);
    push("any".to_owned(), distinct.union_count, error());
    for NodeDistinct { node, item_count, is_exact } in &distinct.nodes {
        let error = if *is_exact { "exact".to_owned() } else { error() };
        push(node.to_string(), *item_count, error);
    }
    for PairOverlap { node, other, item_count } in &distinct.overlaps {
        push(format!("{node} and {other}"), *item_count, "estimate".to_owned());
    }
    rows
}

/// The same as a JSON object.
pub(super) fn distinct_json(distinct: &DistinctEstimates) -> Value {
    let node = |node: &NodeDistinct| json!({ "node": node.node, "items": node.item_count, "exact": node.is_exact });
    let overlap =
        |pair: &PairOverlap| json!({ "nodes": [pair.node, pair.other], "items": pair.item_count });
    json!({
        "union": distinct.union_count,
        "relative_error": distinct.relative_error,
        "nodes": distinct.nodes.iter().map(node).collect::<Vec<_>>(),
        "overlaps": distinct.overlaps.iter().map(overlap).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies() -> Vec<CopyInfo> {
        let lags = [(2, 5), (3, 9)].map(|(node, change_count)| CopyLag { node, change_count });
        let whole = CopyInfo {
            node: 1,
            is_reachable: true,
            generation: 2,
            item_count: Some(99.6),
            new_count: 40,
            is_settled: true,
            lags: lags.to_vec(),
            sweep_count: 12,
            broken_sweep_count: 1,
            sent_bytes: 300,
            received_bytes: 500,
            convergence_ms: Some(250),
            ..CopyInfo::default()
        };
        let alone = CopyInfo { node: 2, is_reachable: true, ..CopyInfo::default() };
        vec![whole, alone, CopyInfo { node: 3, ..CopyInfo::default() }]
    }

    #[test]
    fn a_copy_is_a_row() {
        assert_eq!(
            copies_text(&copies(), false),
            "copies\tnode\tgeneration\titems\tnew\tlag\tsweeps\tbroken\tsent\treceived\tms to converge\tsettled\n\
             copy\t1\t2\t100\t40\t9\t12\t1\t300\t500\t250\tyes\n\
             copy\t2\t0\tfull\t0\t-\t0\t0\t0\t0\t-\tno\n\
             copy\t3\t-\t-\t-\t-\t-\t-\t-\t-\t-\tunreachable\n"
        );
        let table = copies_text(&copies(), true);
        assert!(!table.contains("copies") && table.contains("ms to converge"), "{table}");
        let [whole, alone, lost] = &copies()[..] else { panic!() };
        assert_eq!((&copy_json(whole)["lag"], &copy_json(alone)["lag"]), (&json!(9), &json!(null)));
        assert_eq!(copy_json(lost), json!({ "node": 3, "reachable": false }));
    }

    #[test]
    fn distinct_items_say_how_sure_they_are() {
        let distinct = DistinctEstimates {
            union_count: 12_000.4,
            relative_error: 0.0156,
            nodes: vec![
                NodeDistinct { node: 1, item_count: 500.0, is_exact: true },
                NodeDistinct { node: 2, item_count: 11_700.0, is_exact: false },
            ],
            overlaps: vec![PairOverlap { node: 1, other: 2, item_count: 200.0 }],
        };
        assert_eq!(
            distinct_rows(&distinct).lines(),
            "distinct\tany\t12000\t±1.6 %\n\
             distinct\t1\t500\texact\n\
             distinct\t2\t11700\t±1.6 %\n\
             distinct\t1 and 2\t200\testimate\n"
        );
        assert_eq!(distinct_json(&distinct)["overlaps"][0]["nodes"], json!([1, 2]));
    }

    #[test]
    fn nodes_that_did_not_confirm_are_named() {
        assert_eq!(unconfirmed_text(&[], "each empties its copy"), None);
        assert_eq!(
            unconfirmed_text(&[3], "each empties its copy").unwrap(),
            "warning: not confirmed in time by node 3: each empties its copy"
        );
        assert!(unconfirmed_text(&[3, 4], "").unwrap().contains("by nodes 3,4:"));
    }
}
