//! Calls of clients that speak the Redis protocol.

use super::dice::Dice;
use crate::plan::{FilterPlan, Op, OpPlan, WorldShape};

/// Most such clients of a plan.
const CLIENTS_MAX: u32 = 4;

/// Fewest and most mean simulated milliseconds between two calls of such a client.
const GAP_MEAN_MS: (u64, u64) = (60, 400);

/// Number of items that other clients use most, which these use, too.
const HOT_ITEMS: u32 = 16;

/// The first of the items that only these clients insert: a request whose items are all present leaves no
/// record.
const FIRST_ITEM: u32 = 2_000_000;

/// Most of these items a filter.
const OWN_ITEMS_MAX: u64 = 400;

/// Divides the capacity of a filter: these clients insert at most this share of it as own items; the others fill the
/// rest.
const CAPACITY_SHARE: u64 = 4;

/// Most items of a call.
const CALL_ITEMS_MAX: u32 = 12;

/// The world with some more clients, which speak the Redis protocol, and their calls. Without a filter that
/// always exists under its name there are none, because commands of this protocol create missing filters.
pub(super) fn draw(
    dice: &mut Dice,
    world: WorldShape,
    filters: &[FilterPlan],
    others: &[OpPlan],
    run_ms: u64,
) -> (WorldShape, Vec<OpPlan>) {
    let is_passing =
        |name: &str| others.iter().any(|plan| plan.op.passing_name().is_some_and(|n| n == name));
    let is_lasting = |filter: &&FilterPlan| !filter.replicated && !is_passing(&filter.name);
    let lasting: Vec<&FilterPlan> = filters.iter().filter(is_lasting).collect();
    if lasting.is_empty() {
        return (world, Vec::new());
    }
    let resp_from = world.clients;
    let clients = resp_from + dice.count(1, CLIENTS_MAX);
    let gap_mean_ms = dice.between(GAP_MEAN_MS.0, GAP_MEAN_MS.1);
    let mut ops = Vec::new();
    for client in resp_from..clients {
        let mut at_ms = dice.gap(gap_mean_ms);
        while at_ms < run_ms {
            let filter = *dice.pick(&lasting);
            let op = draw_op(dice, filter);
            ops.push(OpPlan { at_ms, client, via: dice.count(1, world.nodes), op });
            at_ms += dice.gap(gap_mean_ms).max(1);
        }
    }
    ops.sort_by_key(|op| op.at_ms);
    (WorldShape { clients, resp_from, ..world }, ops)
}

fn draw_op(dice: &mut Dice, own: &FilterPlan) -> Op {
    let filter = own.name.clone();
    // The items of a filter that forgets are new again after a while, and a filter of them stays small.
    let own_count =
        if own.kind.forgets() { 0 } else { (own.capacity / CAPACITY_SHARE).min(OWN_ITEMS_MAX) };
    let items = draw_items(dice, u32::try_from(own_count).expect("a few hundred"));
    match dice.count(0, 7) {
        0 | 1 => Op::Contains { filter, items, any: false },
        2 => Op::Contains { filter, items, any: true },
        3 | 4 => Op::Insert { filter, items, copies: dice.count(2, 3) },
        _ => Op::Insert { filter, items, copies: 1 },
    }
}

/// The distinct items of one call, hot ones and own ones of the given number.
fn draw_items(dice: &mut Dice, own_count: u32) -> Vec<u32> {
    let count = if dice.one_in(2) { 1 } else { dice.count(2, CALL_ITEMS_MAX) };
    let mut items: Vec<u32> = Vec::new();
    for _ in 0..count {
        let item = match own_count {
            0 => dice.count(0, HOT_ITEMS - 1),
            _ if dice.one_in(3) => dice.count(0, HOT_ITEMS - 1),
            _ => FIRST_ITEM + dice.count(0, own_count - 1),
        };
        if !items.contains(&item) {
            items.push(item);
        }
    }
    items
}
