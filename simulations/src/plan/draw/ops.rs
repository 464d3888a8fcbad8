//! Draws the clients' operations: many small calls on few items, so that calls race for the same items.

use super::dice::Dice;
use crate::plan::{FilterKind, FilterPlan, Op, OpPlan, PLAN_LIMITS, WorldShape};

/// Number of items of a filter that are used most.
const HOT_ITEMS: u32 = 8;

/// Most distinct items that are inserted into a filter.
const ITEM_SPACE_MAX: u64 = 2_000;

/// Most items of a call.
const CALL_ITEMS_MAX: u32 = 64;

/// The first of the items that a single burst inserts, into any filter.
const FRESH_ITEM: u32 = 1_000_000;

/// The parameters in which plans differ.
struct OpHabits {
    /// Relative frequencies of the verbs.
    insert_weight: u32,
    contains_weight: u32,
    any_weight: u32,
    remove_weight: u32,
    /// Mean simulated milliseconds between two calls of a client.
    gap_mean_ms: u64,
    /// Mean simulated milliseconds between two bursts; None without bursts. In a burst, all clients
    /// insert one item at the same time, each through a random node.
    burst_gap_mean_ms: Option<u64>,
    /// Index of the only filter that is cleared, dropped and recreated.
    rewritten: Option<usize>,
    /// Whether that filter is only cleared, so that what a clear leaves behind cannot be mistaken for the
    /// content of a recreated filter.
    only_clears: bool,
    /// Indexes of the target and the source of merges.
    merged: Option<(usize, usize)>,
    /// Number of distinct items that are inserted, by filter.
    item_spaces: Vec<u32>,
}

/// The calls of all clients, by time.
pub(super) fn draw(
    dice: &mut Dice,
    world: WorldShape,
    filters: &[FilterPlan],
    run_ms: u64,
) -> Vec<OpPlan> {
    let habits = draw_habits(dice, world, filters);
    let mut ops = Vec::new();
    for client in 0..world.clients {
        let mut at_ms = dice.gap(habits.gap_mean_ms);
        while at_ms < run_ms {
            let op = draw_op(dice, &habits, filters);
            ops.push(OpPlan { at_ms, client, via: dice.count(1, world.nodes), op });
            at_ms += dice.gap(habits.gap_mean_ms);
        }
    }
    if let Some(mean_ms) = habits.burst_gap_mean_ms {
        let mut at_ms = dice.gap(mean_ms);
        let mut fresh = FRESH_ITEM;
        while at_ms < run_ms {
            let index = draw_index(dice, filters);
            let item = if dice.one_in(2) { fresh } else { dice.count(0, HOT_ITEMS - 1) };
            fresh += 1;
            for client in 0..world.clients {
                let filter = filters[index].name.clone();
                let op = Op::Insert { filter, items: vec![item], copies: 1 };
                ops.push(OpPlan { at_ms, client, via: dice.count(1, world.nodes), op });
            }
            at_ms += dice.gap(mean_ms).max(1);
        }
    }
    ops.sort_by_key(|op| op.at_ms);
    ops.truncate(*PLAN_LIMITS.ops.end());
    ops
}

/// Snapshots and temporary renames, in every second plan, most of them of a filter that keeps its items.
/// They are drawn from a separate stream, so that plans without them stay what they were.
pub(super) fn draw_snapshots(
    dice: &mut Dice,
    world: WorldShape,
    filters: &[FilterPlan],
    others: &[OpPlan],
    run_ms: u64,
) -> Vec<OpPlan> {
    if filters.is_empty() || dice.one_in(2) {
        return Vec::new();
    }
    let keeps = |filter: &FilterPlan| !filter.kind.forgets() && !filter.kind.removes();
    let lasting = filters.iter().position(keeps);
    let (mean_ms, renames) = (dice.between(200, 1_500), dice.one_in(2));
    let mut ops = Vec::new();
    let mut at_ms = dice.gap(mean_ms);
    while at_ms < run_ms {
        let any = draw_index(dice, filters);
        let index = if dice.one_in(4) { any } else { lasting.unwrap_or(any) };
        let (client, via) = (dice.count(0, world.clients - 1), dice.count(1, world.nodes));
        let filter = filters[index].name.clone();
        // While a filter is renamed, its own name is free, so filters that are recreated are not renamed.
        let creates =
            |plan: &OpPlan| matches!(&plan.op, Op::Create { filter: own } if *own == filter);
        let op = if renames && dice.one_in(8) && !others.iter().any(creates) {
            Op::Rename { filter }
        } else {
            Op::Snapshot { filter }
        };
        ops.push(OpPlan { at_ms, client, via, op });
        at_ms += dice.gap(mean_ms).max(1);
    }
    ops
}

fn draw_habits(dice: &mut Dice, world: WorldShape, filters: &[FilterPlan]) -> OpHabits {
    let clients = u64::from(world.clients);
    // All clients together make 10 to 100 calls a second.
    let gap_mean_ms = dice.spread((10 * clients).max(40), (100 * clients).min(400));
    let merged = filters.split_first().and_then(|(first, rest)| {
        let target = rest.iter().position(|other| other.merges_with(first))?;
        Some((target + 1, 0))
    });
    // The first filter is not rewritten, so that the strongest checks apply to it.
    let rewritten = match merged {
        _ if filters.len() < 2 || !dice.one_in(3) => None,
        Some((target, _)) => Some(target),
        None => Some(filters.len() - 1),
    };
    OpHabits {
        insert_weight: dice.count(2, 6),
        contains_weight: dice.count(2, 6),
        any_weight: dice.count(0, 3),
        remove_weight: dice.count(0, 2),
        gap_mean_ms,
        burst_gap_mean_ms: (!dice.one_in(4)).then(|| dice.between(1_000, 5_000)),
        rewritten,
        only_clears: dice.one_in(2),
        merged,
        item_spaces: filters.iter().map(|filter| item_space(dice, filter)).collect(),
    }
}

fn item_space(dice: &mut Dice, filter: &FilterPlan) -> u32 {
    // Only kinds that grow, or that keep the latest items, keep their false positive rate beyond their
    // capacity.
    let is_open =
        matches!(filter.kind, FilterKind::Scalable | FilterKind::Aging | FilterKind::Stable);
    let times = if is_open { 4 } else { 1 };
    let most = (filter.capacity * times).min(ITEM_SPACE_MAX);
    u32::try_from(dice.spread(u64::from(2 * HOT_ITEMS), most)).expect("a small number")
}

fn draw_index(dice: &mut Dice, filters: &[FilterPlan]) -> usize {
    let last = filters.len() as u64 - 1;
    usize::try_from(dice.between(0, last)).expect("an index of the list")
}

fn draw_op(dice: &mut Dice, habits: &OpHabits, filters: &[FilterPlan]) -> Op {
    let index = draw_index(dice, filters);
    let FilterPlan { name, kind, .. } = &filters[index];
    let filter = name.clone();
    if habits.rewritten == Some(index) && dice.one_in(15) {
        // Twice as many creations as drops, because a dropped filter answers no calls.
        return match dice.count(0, 4) {
            _ if habits.only_clears => Op::Clear { filter },
            0 | 1 => Op::Clear { filter },
            2 => Op::Drop { filter },
            _ => Op::Create { filter },
        };
    }
    if *kind == FilterKind::ManualWindow && dice.one_in(12) {
        return Op::Rotate { filter };
    }
    if let Some((target, source)) = habits.merged
        && target == index
        && dice.one_in(30)
    {
        let name = |index: usize| filters[index].name.clone();
        let third = (0..filters.len()).find(|&other| {
            other != target && other != source && filters[other].merges_with(&filters[target])
        });
        return match third {
            Some(third) if dice.one_in(2) => {
                Op::Intersect { filter, sources: vec![name(source), name(third)] }
            }
            _ => Op::Merge { filter, source: name(source) },
        };
    }
    let OpHabits { insert_weight, contains_weight, any_weight, .. } = *habits;
    let remove_weight = if kind.removes() { habits.remove_weight } else { 0 };
    let weights = insert_weight + contains_weight + any_weight + remove_weight;
    let space = habits.item_spaces[index];
    let drawn = dice.count(0, weights - 1);
    if drawn < insert_weight {
        let copies = if dice.one_in(10) { dice.count(2, 3) } else { 1 };
        Op::Insert { filter, items: draw_items(dice, space), copies }
    } else if drawn < insert_weight + remove_weight {
        Op::Remove { filter, items: draw_items(dice, space) }
    } else {
        // Some queries include items that are never inserted.
        let space = if dice.one_in(4) { 2 * space } else { space };
        let any = drawn >= insert_weight + remove_weight + contains_weight;
        Op::Contains { filter, items: draw_items(dice, space), any }
    }
}

/// The distinct items of one call. In half of the calls the first ones are hot.
fn draw_items(dice: &mut Dice, space: u32) -> Vec<u32> {
    let count = if dice.one_in(2) { 1 } else { dice.spread_count(1, CALL_ITEMS_MAX) };
    let is_hot = dice.one_in(2);
    let mut items: Vec<u32> = Vec::new();
    for place in 0..count {
        let below = if is_hot && place < HOT_ITEMS / 2 { HOT_ITEMS } else { space };
        let item = dice.count(0, below - 1);
        if !items.contains(&item) {
            items.push(item);
        }
    }
    items
}
