//! Turns information about filters into messages.

use std::collections::BTreeSet;

use futures_util::{Stream, StreamExt, stream};
use umbel_coordinator::catalogue::FilterInfo;
use umbel_coordinator::catalogue::overlap::Overlap;
use umbel_coordinator::replicated::scrub::ScrubbedPair;
use umbel_coordinator::replicated::{CopyExchangeReport, FlushReport};
use umbel_coordinator::scrub::{Scrubbed, ScrubbedSlice};
use umbel_coordinator::{Coordinator, ReadLevel};
use umbel_engine::placement::ShardRanges;
use umbel_engine::{NodeId, ShardId};
use umbel_filter::sizing::{self, Estimate};
use umbel_node::calls::{CopyReport, RateProbes, SliceLoad};
use umbel_proto::v1;
use umbel_replicated_engine::hypercube::{DistinctCount, DistinctEstimates};

use super::convert::{read_level_to_proto, summary};
use crate::errors::Result;

pub(super) fn info(info: &FilterInfo, may_export: bool) -> v1::InfoResponse {
    let (load, outlook) = (info.load(), info.outlook());
    let all = info.copies.iter().flat_map(|copies| &copies.all);
    v1::InfoResponse {
        filter: Some(summary(info.id, &info.record, may_export)),
        position_count: load.position_count,
        one_count: load.one_count,
        item_count: load.item_count,
        false_positive_rate_now: load.false_positive_rate,
        new_count: load.new_count,
        memory_bytes: load.memory_bytes,
        slices: info.slices.iter().map(|(shard, load)| slice(*shard, load)).collect(),
        copies: all.map(|(node, report)| copy(*node, report.as_ref())).collect(),
        distinct: info.copies.as_ref().map(|copies| distinct(&copies.distinct)),
        measured: measured(info.probes()),
        new_per_second: outlook.new_per_second,
        seconds_to_capacity: outlook.seconds_to_capacity,
        seconds_to_rate: outlook.seconds_to_rate,
        seconds_to_growth: outlook.seconds_to_growth,
        unexplained_one_count: info.unexplained_one_count(),
    }
}

fn measured(probes: RateProbes) -> Option<v1::MeasuredRate> {
    let RateProbes { probe_count, hit_count: present_count } = probes;
    let (rate_low, rate_high) = sizing::measured_rate_bounds(probe_count, present_count)?;
    Some(v1::MeasuredRate { probe_count, present_count, rate_low, rate_high })
}

fn slice(shard: ShardId, load: &SliceLoad) -> v1::SliceInfo {
    v1::SliceInfo {
        shard: shard.0,
        leader: load.leader.0,
        position_count: load.position_count,
        one_count: load.one_count,
        new_count: load.new_count,
        memory_bytes: load.memory_bytes,
    }
}

/// For each item the number of the first filter that contains it, counted from 1; 0 if none does.
pub(super) fn first_filters(firsts: &[Option<usize>], level: ReadLevel) -> v1::ContainsAnyResponse {
    let number = |first: &Option<usize>| {
        let number = first.map_or(0, |at| at + 1);
        u32::try_from(number).expect("a question names few filters")
    };
    v1::ContainsAnyResponse {
        first_filters: firsts.iter().map(number).collect(),
        level: read_level_to_proto(level).into(),
    }
}

fn copy(node: NodeId, report: Option<&CopyReport>) -> v1::CopyInfo {
    let Some(CopyReport { load, sweeps }) = report else {
        return v1::CopyInfo { node: node.0, ..Default::default() };
    };
    let lag = |&(node, change_count): &(NodeId, u64)| v1::CopyLag { node: node.0, change_count };
    v1::CopyInfo {
        node: node.0,
        is_reachable: true,
        generation: load.generation.0,
        one_count: load.one_count,
        item_count: load.item_count,
        new_count: load.new_count,
        memory_bytes: load.memory_bytes,
        log_bytes: load.log_bytes,
        is_settled: load.is_in_sync,
        lags: load.lags.iter().map(lag).collect(),
        sweep_count: sweeps.sweep_count,
        broken_sweep_count: sweeps.broken_sweep_count,
        sent_bytes: load.sent_bytes,
        received_bytes: load.received_bytes,
        convergence_ms: load.convergence_ms,
        refused_count: load.refused_count,
    }
}

fn distinct(estimates: &DistinctEstimates) -> v1::DistinctEstimates {
    let node = |(node, count): &(NodeId, DistinctCount)| v1::NodeDistinct {
        node: node.0,
        item_count: count.count,
        is_exact: count.is_exact(),
    };
    let overlaps = estimates.overlaps.iter().map(|pair| v1::PairOverlap {
        node: pair.one.0,
        other: pair.other.0,
        item_count: pair.items.count,
    });
    v1::DistinctEstimates {
        union_count: estimates.union.count,
        relative_error: estimates.union.relative_error(),
        nodes: estimates.nodes.iter().map(node).collect(),
        overlaps: overlaps.collect(),
    }
}

pub(super) fn flushed(flushed: &FlushReport) -> v1::FlushResponse {
    v1::FlushResponse { nodes: numbers(&flushed.nodes), missing_nodes: numbers(&flushed.missing) }
}

pub(super) fn numbers(nodes: &[NodeId]) -> Vec<u64> {
    nodes.iter().map(|node| node.0).collect()
}

pub(super) fn exchange(report: CopyExchangeReport) -> v1::ExchangeStatus {
    let CopyExchangeReport { copy_count, sweeps, sent_bytes, received_bytes, refused_count } =
        report;
    v1::ExchangeStatus {
        filter_count: u32::try_from(copy_count).unwrap_or(u32::MAX),
        sweep: sweeps.sweep,
        is_running: sweeps.is_running,
        sweep_count: sweeps.sweep_count,
        broken_sweep_count: sweeps.broken_sweep_count,
        last_sweep_ms: sweeps.last_sweep_ms,
        sent_bytes,
        received_bytes,
        refused_count,
    }
}

/// The reports as they arrive, then a message with their counts.
pub(super) fn scrub(
    reports: impl Stream<Item = Scrubbed> + Send + 'static,
) -> impl Stream<Item = v1::ScrubReport> + Send + 'static {
    use v1::scrub_report::Part;
    let state = (Some(Box::pin(reports)), v1::ScrubDone::default());
    stream::unfold(state, |(reports, mut done)| async move {
        let mut reports = reports?;
        let (part, reports) = match reports.next().await {
            Some(Scrubbed::Pair(pair)) => {
                done.pair_count += 1;
                (Part::Pair(scrubbed(pair)), Some(reports))
            }
            Some(Scrubbed::Slice(slice)) => {
                done.shard_count += 1;
                (Part::Shard(scrubbed_slice(slice)), Some(reports))
            }
            None => (Part::Done(done), None),
        };
        Some((v1::ScrubReport { part: Some(part) }, (reports, done)))
    })
}

fn scrubbed_slice(slice: ScrubbedSlice) -> v1::ScrubShard {
    let ScrubbedSlice { filter, shard, compared } = slice;
    let head = v1::ScrubShard { filter, shard: shard.0, ..Default::default() };
    let report = match compared {
        Ok(report) => report,
        Err(failure) => return v1::ScrubShard { failure, ..head },
    };
    let nodes: BTreeSet<NodeId> =
        report.compared.iter().chain(report.away.keys()).copied().collect();
    let replica = |node: NodeId| {
        let bits = report.differing.get(&node).copied().unwrap_or_default();
        v1::ScrubReplica {
            node: node.0,
            lost_bits: bits.lost,
            surplus_bits: bits.surplus,
            failure: report.away.get(&node).cloned().unwrap_or_default(),
        }
    };
    v1::ScrubShard {
        replicas: nodes.into_iter().map(replica).collect(),
        union_blocks: report.union_blocks,
        left_blocks: report.left_blocks,
        answers_differ: report.answers_differ,
        ..head
    }
}

fn scrubbed(pair: ScrubbedPair) -> v1::ScrubPair {
    let ScrubbedPair { filter, node, partner, compared } = pair;
    let head = v1::ScrubPair { filter, node: node.0, partner: partner.0, ..Default::default() };
    match compared {
        Ok(compared) => v1::ScrubPair {
            node_lost_bits: compared.ours.lost_count,
            partner_lost_bits: compared.theirs.lost_count,
            news_bits: compared.ours.news_count + compared.theirs.news_count,
            bytes: compared.byte_count,
            ..head
        },
        Err(failure) => v1::ScrubPair { failure, ..head },
    }
}
/// Estimates of what two filters have in common.
pub(super) fn overlap(overlap: &Overlap) -> v1::OverlapResponse {
    let estimate = |estimate: Option<Estimate>| {
        estimate.map(|Estimate { item_count, standard_error }| v1::Estimate {
            item_count,
            standard_error,
        })
    };
    v1::OverlapResponse {
        ours: estimate(overlap.ours),
        theirs: estimate(overlap.theirs),
        either: estimate(overlap.either),
        both: estimate(overlap.both),
    }
}

/// The shard map as this node knows it.
pub(super) fn shard_map(coordinator: &Coordinator) -> Result<v1::ShardMapResponse> {
    let mut map = coordinator.read_meta(|state| {
        let ranges = state.shard_map().ranges();
        let in_order = ranges.into_iter().flat_map(ShardRanges::in_order);
        let shards = in_order.map(|(shard, range)| v1::ShardRoute {
            shard: shard.0,
            range_last: range.last(),
            leader: 0,
        });
        let nodes = state.nodes().filter_map(|(node, record)| {
            Some(v1::NodeRoute { node: node.0, address: record.address()?.to_owned() })
        });
        let (shards, nodes) = (shards.collect(), nodes.collect());
        v1::ShardMapResponse { epoch: state.epoch().0, shards, nodes }
    })?;
    // Behind that read, because it reads the catalogue, too.
    for route in &mut map.shards {
        let leader = coordinator.shard_leader_hint(ShardId(route.shard));
        route.leader = leader.map_or(0, |node| node.0);
    }
    Ok(map)
}
