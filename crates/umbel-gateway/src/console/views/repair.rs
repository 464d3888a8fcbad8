//! Comparison and repair: the results of the nodes' comparisons, the worst first.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use umbel_coordinator::Coordinator;
use umbel_engine::meta::MetaState;
use umbel_engine::{FilterId, NodeId};
use umbel_node::calls::{ComparedRow, Compares, ComparisonsReport};

use crate::caller::Caller;
use crate::console::json::{self, Value};
use crate::errors::Result;
use crate::limits::{STATUS_CALLS_MAX, STATUS_TIMEOUT};

/// Rows that are shown: the worst.
const ROWS_MAX: usize = 200;

/// Takes a sample of the filters that the caller may read.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn sample(coordinator: &Coordinator, caller: &Caller) -> Result<Value> {
    let may_read = caller.readable();
    let (nodes, names) = coordinator.read_meta(|state: &MetaState| {
        let all = state.filters().map(|(filter, record)| (filter, record.name.as_str()));
        let read = all.filter(|(_, name)| may_read(name));
        let names: BTreeMap<_, _> = read.map(|(filter, name)| (filter, name.to_owned())).collect();
        (state.live_nodes(), names)
    })?;
    let reader = caller.principal_name().map(|name| name.as_str().to_owned());
    let reports = stream::iter(nodes)
        .map(async |node| {
            let report =
                coordinator.reports().comparisons_of(node, reader.clone(), STATUS_TIMEOUT).await;
            (node, report)
        })
        .buffered(STATUS_CALLS_MAX)
        .collect::<Vec<_>>();
    Ok(described(reports.await, &names))
}

/// Combines the reports of all nodes.
fn described(
    reports: Vec<(NodeId, Option<ComparisonsReport>)>,
    names: &BTreeMap<FilterId, String>,
) -> Value {
    let silent = reports.iter().filter(|(_, report)| report.is_none()).map(|(node, _)| node.0);
    let silent = json::list(silent);
    let reports: Vec<_> =
        reports.into_iter().filter_map(|(node, report)| Some((node, report?))).collect();
    let sum = |of: fn(&ComparisonsReport) -> u64| {
        reports.iter().map(|(_, report)| of(report)).fold(0, u64::saturating_add)
    };
    let counts = [
        ("count", sum(|report| report.count)),
        ("bad_count", sum(|report| report.bad_count)),
        ("mended_count", sum(|report| report.mended_count)),
        ("pending_count", sum(|report| report.pending_count)),
    ];
    let counts = counts.map(|(name, count)| (name, Value::from(count)));
    let interval_s = reports.iter().filter_map(|(_, report)| report.interval_s).max();
    let rows = reports
        .into_iter()
        .flat_map(|(node, report)| report.worst.into_iter().map(move |row| (node, row)));
    // Another node may know a filter that this node does not know yet.
    let mut rows: Vec<_> =
        rows.filter_map(|(node, row)| Some((node, names.get(&row.filter)?, row))).collect();
    rows.sort_unstable_by_key(|(node, _, row)| (row.rank(), *node));
    rows.truncate(ROWS_MAX);
    let rows = json::list(rows.iter().map(|(node, name, row)| row_shown(*node, name, row)));
    let [count, bad, mended, pending] = counts;
    let interval = ("interval_s", interval_s.into());
    json::object([interval, count, bad, mended, pending, ("silent", silent), ("rows", rows)])
}

fn row_shown(node: NodeId, name: &str, row: &ComparedRow) -> Value {
    let (shard, partner) = match row.compares {
        Compares::Slice(shard) => (Some(shard.0), None),
        Compares::Copies(partner) => (None, Some(partner.0)),
    };
    let last = row.last.as_ref().map(|last| {
        json::object([
            ("at_ms", last.at_ms.into()),
            ("ending", last.ending.name().into()),
            ("lost_count", last.lost_count.into()),
            ("surplus_count", last.surplus_count.into()),
            ("why", (&*last.why).into()),
        ])
    });
    json::object([
        ("filter", name.into()),
        ("node", node.0.into()),
        ("shard", shard.into()),
        ("partner", partner.into()),
        ("last", last.into()),
    ])
}

#[cfg(test)]
mod tests {
    use umbel_engine::ShardId;
    use umbel_node::comparisons::{Comparison, Ending};

    use super::*;

    fn report(filter: u64, ending: Ending, shard: u32) -> ComparisonsReport {
        let (lost_count, surplus_count, why) = (0, 0, String::new());
        let last = Comparison { at_ms: 1, ending, lost_count, surplus_count, why };
        let compares = Compares::Slice(ShardId(shard));
        let row = ComparedRow { filter: FilterId(filter), compares, last: Some(last) };
        ComparisonsReport {
            interval_s: Some(60),
            count: 4,
            bad_count: 1,
            mended_count: 1,
            pending_count: 2,
            worst: vec![row],
        }
    }

    #[test]
    fn reports_are_added_up_and_silent_nodes_named() {
        let names = [(FilterId(1), "seen".to_owned())].into();
        let reports = vec![
            (NodeId(1), Some(report(1, Ending::Equal, 0))),
            (NodeId(2), None),
            (NodeId(3), Some(report(1, Ending::Failed, 1))),
            // About a filter that is unknown here, or that the caller may not read.
            (NodeId(4), Some(report(2, Ending::Failed, 1))),
        ];
        let shown = described(reports, &names);
        let counts = ["interval_s", "count", "bad_count", "mended_count", "pending_count"];
        assert_eq!(counts.map(|name| shown[name].as_u64().unwrap()), [60, 12, 3, 3, 6]);
        assert_eq!(shown["silent"], json::list([2]));
        let rows = shown["rows"].as_array().unwrap();
        let order: Vec<_> = rows.iter().map(|row| (&row["node"], &row["shard"])).collect();
        assert_eq!(order, [(&3.into(), &1.into()), (&1.into(), &0.into())]);
    }
}
