//! Calls of clients of the Redis protocol at nearly the same moment, over different nodes, of which one wins: inserts of an
//! item that is absent, and changes of an expiry as it was seen.

use super::dice::Dice;
use crate::plan::{FilterKind, FilterPlan, Op, OpPlan, WorldShape};

/// The filter, which no other call is about: where nothing else is inserted, an item has one copy.
pub(super) const FILTER: &str = "once";

/// Number of items that the filter is planned for, and most items that are inserted.
const ITEMS_MAX: u32 = 400;

/// Its rate of false positives, in millionths. An item that is taken for another one is present although nobody has
/// inserted it.
const RATE_PPM: u32 = 1;

/// The first of its items.
const FIRST_ITEM: u32 = 2_500_000;

/// Most items of a call.
const CALL_ITEMS_MAX: u32 = 8;

/// Mean simulated milliseconds between two races.
const GAP_MEAN_MS: u64 = 1_000;

/// Fewest and most calls of a race.
pub(super) const CALLS: (u32, u32) = (3, 5);

/// Most simulated milliseconds between the first and the last call of a race: as long as a message takes.
pub(super) const APART_MAX_MS: u64 = 8;

/// The filter and the calls. The world has clients that speak the Redis protocol.
pub(super) fn draw(dice: &mut Dice, world: WorldShape, run_ms: u64) -> (FilterPlan, Vec<OpPlan>) {
    let filter = FilterPlan {
        name: FILTER.to_owned(),
        kind: *dice.pick(&[FilterKind::Cuckoo, FilterKind::Quotient]),
        capacity: u64::from(ITEMS_MAX),
        rate_ppm: RATE_PPM,
        public: dice.one_in(3),
        replicated: false,
    };
    let (mut item_count, mut turn) = (0, 0);
    let mut ops = Vec::new();
    let mut at_ms = dice.gap(GAP_MEAN_MS);
    while at_ms < run_ms && item_count + CALL_ITEMS_MAX <= ITEMS_MAX {
        let op = if dice.one_in(3) {
            turn += 1;
            Op::Expire { filter: FILTER.to_owned(), turn }
        } else {
            let count = if dice.one_in(2) { 1 } else { dice.count(2, CALL_ITEMS_MAX) };
            let first = FIRST_ITEM + item_count;
            item_count += count;
            Op::AddNew { filter: FILTER.to_owned(), items: (first..first + count).collect() }
        };
        ops.extend(at_once(dice, world, (at_ms, run_ms), CALLS, &op));
        at_ms += dice.gap(GAP_MEAN_MS).max(1);
    }
    ops.sort_by_key(|op| op.at_ms);
    (filter, ops)
}

/// As many calls, within these numbers, of one operation at nearly the same moment, over different nodes in turn.
pub(super) fn at_once(
    dice: &mut Dice,
    world: WorldShape,
    (at_ms, run_ms): (u64, u64),
    (least, most): (u32, u32),
    op: &Op,
) -> Vec<OpPlan> {
    let clients = world.clients - world.resp_from;
    let first_via = dice.count(0, world.nodes - 1);
    let count = dice.count(least, most);
    let call = |place: u32| OpPlan {
        at_ms: (at_ms + dice.between(0, APART_MAX_MS)).min(run_ms),
        client: world.resp_from + place % clients,
        via: (first_via + place) % world.nodes + 1,
        op: op.clone(),
    };
    (0..count).map(call).collect()
}
