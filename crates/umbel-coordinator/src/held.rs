//! What this node holds of the largest filters, for metrics of single filters.

use std::collections::BTreeMap;

use umbel_engine::meta::{FilterRecord, FilterState, MetaState};
use umbel_engine::shard::SliceShape;
use umbel_engine::{FilterId, ShardId};
use umbel_ports::Purpose;

use super::Coordinator;
use super::catalogue::outlook::{Outlook, Room, new_per_second, seconds_to_growth};
use umbel_node::Local;
use umbel_node::calls::RateProbes;
use umbel_node::metrics;

/// What this node holds of a filter: the slices of the shards that it leads, or its copy.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HeldPart {
    /// Bits, or counters.
    pub positions: u64,
    /// Those of them that are set.
    pub ones: u64,
    /// Estimated number of different items; None if the filter is too full for an estimate.
    pub items: Option<f64>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The false-positive rate, the mean over its slices on this node.
    pub rate_now: f64,
    /// Random items that were looked up for this sample.
    pub probes: RateProbes,
    /// Set positions that chance does not explain; None for kinds that cannot determine it.
    pub unexplained_ones: Option<u64>,
    /// Forecasts for this part of the filter.
    pub outlook: Outlook,
}

/// A filter of which this node holds a part.
#[derive(Clone, PartialEq, Debug)]
pub struct HeldFilter {
    /// Its name.
    pub name: String,
    /// `partitioned` or `replicated`.
    pub distribution: &'static str,
    /// Items that the whole filter is planned for.
    pub capacity: u64,
    /// The planned false-positive rate.
    pub rate_planned: f64,
    /// The part on this node.
    pub held: HeldPart,
}

impl Coordinator {
    /// Samples what this node holds of the `count_max` filters with the most memory, and measures how much
    /// of the quotas is used. A sample counts bits: it takes a while for large filters.
    pub async fn held_filters(&self, count_max: usize) -> Vec<HeldFilter> {
        match self.local() {
            Ok(local) => sampled(local, count_max).await,
            Err(_) => Vec::new(),
        }
    }
}

async fn sampled(local: &Local, count_max: usize) -> Vec<HeldFilter> {
    let wanted = local.read_meta(|state: &MetaState| {
        let (filters, memory) = state.quota_shares();
        metrics::quota_used(filters, memory);
        largest(state, count_max)
    });
    let mut filters = Vec::new();
    for (id, record) in wanted {
        let held = if record.is_replicated() {
            copy(local, id).await
        } else {
            slices(local, id, &record).await
        };
        let Some(held) = held else { continue };
        filters.push(HeldFilter {
            name: record.name.as_str().to_owned(),
            distribution: if record.is_replicated() { "replicated" } else { "partitioned" },
            capacity: record.settings.capacity,
            rate_planned: record.settings.false_positive_rate,
            held,
        });
    }
    filters
}

fn largest(state: &MetaState, count_max: usize) -> Vec<(FilterId, FilterRecord)> {
    let live = state.filters().filter(|(_, record)| record.state == FilterState::Live);
    let by_size: BTreeMap<_, _> =
        live.map(|(id, record)| ((record.settings.memory_bytes, id), record)).collect();
    let first = by_size.into_iter().rev().take(count_max);
    first.map(|((_, id), record)| (id, record.clone())).collect()
}

/// The shard of a filter that lies in one shard as a whole; None for other filters.
fn home(shape: &SliceShape, state: &MetaState) -> Option<ShardId> {
    state.shard_map().shard_of(shape.place()?)
}

/// The slices of a filter in the shards that this node leads; None if it has none.
async fn slices(local: &Local, id: FilterId, record: &FilterRecord) -> Option<HeldPart> {
    let mut sum = HeldPart { items: Some(0.0), unexplained_ones: Some(0), ..HeldPart::default() };
    let (shard_count, home) =
        local.read_meta(|state| (state.shard_count(), home(&record.settings.shape, state)));
    let loads = local.led_slices((id, record.generation), home).await;
    for load in &loads {
        sum.positions += load.position_count;
        sum.ones += load.one_count;
        sum.items = sum.items.zip(load.item_count).map(|(sum, items)| sum + items);
        sum.memory_bytes += load.memory_bytes;
        sum.rate_now += load.false_positive_rate;
        sum.probes.probe_count += load.probes.probe_count;
        sum.probes.hit_count += load.probes.hit_count;
        let both = sum.unexplained_ones.zip(load.unexplained_one_count);
        sum.unexplained_ones = both.map(|(sum, ones)| sum.saturating_add(ones));
    }
    let count = u32::try_from(loads.len()).unwrap_or(u32::MAX);
    sum.rate_now /= f64::from(count.max(1));
    let settings = &record.settings;
    let room = Room::of(&settings.shape, settings.capacity, settings.false_positive_rate);
    let here = room.share(count, if home.is_some() { 1 } else { shard_count });
    let rate = new_per_second(loads.iter());
    let seconds_to_growth = seconds_to_growth(loads.iter(), rate);
    sum.outlook = Outlook { seconds_to_growth, ..here.outlook(sum.items, rate) };
    (count > 0).then_some(sum)
}

/// This node's copy of a replicated filter, if it has one.
async fn copy(local: &Local, id: FilterId) -> Option<HeldPart> {
    let probe_seed = Some(local.seed().number(Purpose::RateProbes));
    let load = local.copies().get(id)?.load(probe_seed).await;
    Some(HeldPart {
        positions: load.position_count,
        ones: load.one_count,
        items: load.item_count,
        memory_bytes: load.memory_bytes,
        rate_now: load.false_positive_rate,
        probes: load.probes,
        unexplained_ones: None,
        // This node does not know what clients insert through others; sums over nodes show when the
        // filter is full.
        outlook: Outlook { new_per_second: load.new_per_second, ..Outlook::default() },
    })
}
