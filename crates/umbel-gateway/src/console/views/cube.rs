//! The hypercube: which nodes exchange with each other, how far each is behind, and how the sweeps go.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use tokio::time::timeout;
use umbel_coordinator::Coordinator;
use umbel_coordinator::catalogue::FilterInfo;
use umbel_engine::NodeId;
use umbel_engine::meta::{FilterRecord, FilterState, MetaState};
use umbel_node::calls::{CopyReport, SweepCounts};
use umbel_replicated_engine::hypercube::{Cube, CubeRank};

use super::cluster::{NodeStandings, standings};
use super::filters::{ASKED_AT_ONCE_MAX, ROWS_MAX, info};
use crate::caller::Caller;
use crate::console::json::{self, Value};
use crate::errors::Result;
use crate::limits::{STATUS_CALLS_MAX, STATUS_TIMEOUT};

/// Takes a sample of the filters that the caller may read, at most `ROWS_MAX`.
///
/// # Errors
/// If this node belongs to no cluster.
pub(super) async fn sample(coordinator: &Coordinator, caller: &Caller) -> Result<Value> {
    let may_read = caller.readable();
    let (nodes, mut wanted) = coordinator.read_meta(|state: &MetaState| {
        let is_wanted = |record: &FilterRecord| {
            record.is_replicated()
                && record.state == FilterState::Live
                && may_read(record.name.as_str())
        };
        let found = state.filters().filter(|(_, record)| is_wanted(record));
        (state.live_nodes(), found.map(|(_, record)| record.clone()).collect::<Vec<_>>())
    })?;
    wanted.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let count = wanted.len();
    wanted.truncate(ROWS_MAX);
    let infos = stream::iter(wanted)
        .map(async |record| info(coordinator, caller, &record).await)
        .buffered(ASKED_AT_ONCE_MAX)
        .filter_map(std::future::ready)
        .collect::<Vec<_>>();
    let answering = stream::iter(nodes.clone())
        .map(async |node| {
            timeout(STATUS_TIMEOUT, coordinator.is_reachable(node)).await.unwrap_or(false)
        })
        .buffered(STATUS_CALLS_MAX)
        .collect::<Vec<_>>();
    let (infos, answering, standings) = tokio::join!(infos, answering, standings(coordinator));
    let members: Vec<_> = nodes.into_iter().zip(answering).collect();
    let standings = standings?;
    let step_count = Cube::new(members.len()).map_or(0, |cube| cube.steps().count());
    Ok(json::object([
        ("filter_count", (count as u64).into()),
        ("own_sweeps", sweeps(&coordinator.copies().exchange()?.sweeps)),
        ("step_count", step_count.into()),
        ("nodes", nodes_shown(&members, &infos, &standings)),
        ("edges", edges(&members, &infos)),
        ("filters", json::list(infos.iter().map(filter))),
    ]))
}

/// The reports of all nodes about their copies.
fn reports(infos: &[FilterInfo]) -> impl Iterator<Item = (NodeId, &CopyReport)> {
    let copies = infos.iter().filter_map(|info| info.copies.as_ref());
    copies
        .flat_map(|copies| &copies.all)
        .filter_map(|(node, report)| Some((*node, report.as_ref()?)))
}

fn nodes_shown(
    members: &[(NodeId, bool)],
    infos: &[FilterInfo],
    standings: &NodeStandings,
) -> Value {
    // Nodes of earlier builds, which do not report their standing, report their sweeps with their copies.
    let mut swept: BTreeMap<NodeId, SweepCounts> =
        reports(infos).map(|(node, report)| (node, report.sweeps)).collect();
    swept.extend(standings.iter().map(|(node, standing)| (*node, standing.sweeps)));
    let step = |node| standings.get(node).and_then(|standing| standing.step.as_deref());
    json::list((0_u32..).zip(members).map(|(rank, (node, answers))| {
        json::object([
            ("node", node.0.into()),
            ("rank", rank.into()),
            ("answers", (*answers).into()),
            ("sweeps", swept.get(node).map(sweeps).into()),
            ("step", step(node).into()),
        ])
    }))
}

fn sweeps(counts: &SweepCounts) -> Value {
    json::object([
        ("sweep", counts.sweep.into()),
        ("is_running", counts.is_running.into()),
        ("sweep_count", counts.sweep_count.into()),
        ("broken_sweep_count", counts.broken_sweep_count.into()),
        ("last_sweep_ms", counts.last_sweep_ms.into()),
    ])
}

/// Pairs of nodes that exchange, each once and ordered by rank, with the step in which they are first paired in
/// a sweep, and with what each lacks of the other's changes over all filters.
fn edges(members: &[(NodeId, bool)], infos: &[FilterInfo]) -> Value {
    let Ok(cube) = Cube::new(members.len()) else { return Value::Array(Vec::new()) };
    let mut lags = BTreeMap::<(NodeId, NodeId), u64>::new();
    for (node, report) in reports(infos) {
        for &(partner, change_count) in &report.load.lags {
            let sum = lags.entry((node, partner)).or_default();
            *sum = sum.saturating_add(change_count);
        }
    }
    let mut edges_by_pair = BTreeMap::new();
    for (rank, &(node, _)) in (0_u32..).zip(members) {
        for step in cube.steps() {
            let Some(pairing) = cube.pairing(CubeRank(rank), step) else { continue };
            let partner = usize::try_from(pairing.partner.0).ok().and_then(|at| members.get(at));
            let Some(&(partner, _)) = partner.filter(|_| rank < pairing.partner.0) else {
                continue;
            };
            edges_by_pair.entry((rank, pairing.partner.0)).or_insert_with(|| {
                json::object([
                    ("node", node.0.into()),
                    ("partner", partner.0.into()),
                    ("step", step.to_string().into()),
                    ("partner_lacks", lags.get(&(node, partner)).copied().into()),
                    ("node_lacks", lags.get(&(partner, node)).copied().into()),
                ])
            });
        }
    }
    Value::Array(edges_by_pair.into_values().collect())
}

fn filter(info: &FilterInfo) -> Value {
    let all = info.copies.as_ref().map_or(&[][..], |copies| &copies.all);
    let loads = || all.iter().filter_map(|(_, report)| report.as_ref()).map(|report| &report.load);
    let lag_max = loads().flat_map(|load| &load.lags).map(|(_, change_count)| *change_count).max();
    let sum =
        |of: fn(&umbel_node::calls::CopyLoad) -> u64| loads().map(of).fold(0, u64::saturating_add);
    json::object([
        ("name", info.record.name.as_str().into()),
        ("copy_count", (all.len() as u64).into()),
        ("settled_count", (loads().filter(|load| load.is_in_sync).count() as u64).into()),
        ("lag_max", lag_max.into()),
        ("convergence_ms", loads().filter_map(|load| load.convergence_ms).max().into()),
        ("sent_bytes", sum(|load| load.sent_bytes).into()),
        ("received_bytes", sum(|load| load.received_bytes).into()),
        ("refused_count", sum(|load| load.refused_count).into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_partners_is_shown_once() {
        let members: Vec<_> = (1..=5).map(|node| (NodeId(10 * node), true)).collect();
        let shown = edges(&members, &[]);
        let pairs: Vec<_> = shown.as_array().unwrap().iter().collect();
        // Four nodes form a square; the fifth exchanges with one of them, by hand-in and take-over.
        assert_eq!(pairs.len(), 5, "{shown}");
        let has = |node: u64, partner: u64, step: &str| {
            let is_it = |pair: &&&Value| {
                pair["node"] == node && pair["partner"] == partner && pair["step"] == step
            };
            pairs.iter().filter(is_it).count() == 1
        };
        assert!(has(10, 50, "hand-in") && has(30, 40, "dimension 0"), "{shown}");
        assert_eq!(edges(&[], &[]).to_string(), "[]");
    }
}
