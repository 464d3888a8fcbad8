//! Requests during splits and merges. Each is sent several times at once, so that one node may divide it by
//! the shards before, and another by those after.

use super::dice::Dice;
use crate::plan::{Fault, FaultPlan, FilterPlan, Op, OpPlan, WorldShape};

/// How long after the order of a split or a merge requests are sent, and the mean time between two of them, in
/// simulated milliseconds. From the entry that decides a split to the one that carries it out takes some
/// fifteen.
const ONE_SPLIT_MS: (u64, u64) = (250, 2);

/// The same where the cluster then splits its shards by itself, one after the other.
const ALL_SPLITS_MS: (u64, u64) = (2_000, 4);

/// Items of a request per shard, so that most requests have items in both halves of the split shard.
const ITEMS_PER_SHARD: u32 = 3;

/// Most items of a request.
const ITEMS_MAX: u32 = 24;

/// Copies of each request, each sent to another node.
const COPIES: u32 = 3;

/// The client that sends them. Even clients keep their session; for a new one, a node would ask the
/// majority and so learn of the split.
const CLIENT: u32 = 0;

/// The first of their items, which no other operation inserts: a request whose items are all present
/// leaves no record.
pub(super) const FIRST_ITEM: u32 = 3_000_000;

/// Requests from the order of each split and merge on, within the capacity of the filter that they insert into: the
/// largest one, preferably of a kind that keeps its items.
pub(super) fn draw(
    dice: &mut Dice,
    world: WorldShape,
    filters: &[FilterPlan],
    faults: &[FaultPlan],
    run_ms: u64,
) -> Vec<OpPlan> {
    let keeps = |filter: &FilterPlan| !filter.kind.forgets() && !filter.kind.removes();
    let partitioned = filters.iter().filter(|filter| !filter.replicated);
    let found = partitioned.max_by_key(|filter| (keeps(filter), filter.capacity));
    let Some(filter) = found else { return Vec::new() };
    let (for_ms, gap_mean_ms) = if world.cores > 0 { ALL_SPLITS_MS } else { ONE_SPLIT_MS };
    let item_count = (ITEMS_PER_SHARD * world.shards).clamp(2 * ITEMS_PER_SHARD, ITEMS_MAX);
    let most = usize::try_from(filter.capacity / u64::from(item_count)).unwrap_or(usize::MAX);
    let mut ops = Vec::new();
    let mut first = FIRST_ITEM;
    let is_recut = |plan: &&FaultPlan| matches!(plan.fault, Fault::SplitShard | Fault::MergeShard);
    for recut in faults.iter().filter(is_recut) {
        let mut at_ms = recut.at_ms;
        while at_ms < run_ms.min(recut.at_ms + for_ms) {
            let (filter, items) = (filter.name.clone(), (first..first + item_count).collect());
            let op = Op::Insert { filter, items, copies: COPIES };
            ops.push(OpPlan { at_ms, client: CLIENT, via: dice.count(1, world.nodes), op });
            first += item_count;
            at_ms += dice.gap(gap_mean_ms).max(1);
        }
    }
    ops.truncate(most);
    ops
}
