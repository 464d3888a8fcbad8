//! Deletions by clients of the Redis protocol at nearly the same moment, over different nodes: of a filter, which is created
//! again each time, and of copies of items.

use super::dice::Dice;
use super::races::{APART_MAX_MS, CALLS, at_once};
use crate::plan::{FilterKind, FilterPlan, Op, OpPlan, WorldShape};

/// The filter that is deleted as a whole, which no other call is about.
pub(super) const TAKEN: &str = "taken";

/// The filter whose items are deleted, which no other call is about: where nothing else is added, an item has as many copies
/// as calls have left it.
pub(super) const COUNTED: &str = "counted";

/// Number of items that it is planned for, and most items that are added.
const ITEMS_MAX: u32 = 400;

/// Its rate of false positives, in millionths. An item that is taken for another one has its copies.
const RATE_PPM: u32 = 1;

/// The first of its items.
const FIRST_ITEM: u32 = 2_600_000;

/// Most items of a call.
const CALL_ITEMS_MAX: u32 = 8;

/// Most copies of an item: of more, a quotient filter lets none go.
const COPIES_MAX: u32 = 3;

/// Mean simulated milliseconds between the calls about a filter, or about some items, and those about the next.
const GAP_MEAN_MS: u64 = 1_000;

/// Fewest and most simulated milliseconds from calls to those that follow when they are usually over.
const AFTER_MS: (u64, u64) = (100, 400);

/// A filter that is deleted again and again, and the calls. The world has clients that speak the Redis protocol.
pub(super) fn draw_taken(
    dice: &mut Dice,
    world: WorldShape,
    run_ms: u64,
) -> (FilterPlan, Vec<OpPlan>) {
    let filter = FilterPlan {
        name: TAKEN.to_owned(),
        kind: FilterKind::Blocked,
        capacity: u64::from(ITEMS_MAX),
        rate_ppm: 10_000,
        public: false,
        replicated: false,
    };
    let mut ops = Vec::new();
    let mut at_ms = dice.gap(GAP_MEAN_MS);
    while at_ms < run_ms {
        let take = Op::Take { filter: TAKEN.to_owned() };
        ops.extend(at_once(dice, world, (at_ms, run_ms), CALLS, &take));
        at_ms += draw_pause(dice);
        let create = Op::Create { filter: TAKEN.to_owned() };
        ops.extend(at_once(dice, world, (at_ms, run_ms), (1, 1), &create));
        at_ms += dice.gap(GAP_MEAN_MS).max(1);
    }
    ops.sort_by_key(|op| op.at_ms);
    (filter, ops)
}

/// A filter that tells copies, and calls that add copies of items and delete some, all or more of them. The world has clients
/// that speak the Redis protocol.
pub(super) fn draw_counted(
    dice: &mut Dice,
    world: WorldShape,
    run_ms: u64,
) -> (FilterPlan, Vec<OpPlan>) {
    let filter = FilterPlan {
        name: COUNTED.to_owned(),
        kind: *dice.pick(&[FilterKind::Cuckoo, FilterKind::Quotient]),
        capacity: u64::from(ITEMS_MAX),
        rate_ppm: RATE_PPM,
        public: false,
        replicated: false,
    };
    let mut item_count = 0;
    let mut ops = Vec::new();
    let mut at_ms = dice.gap(GAP_MEAN_MS);
    while at_ms < run_ms && item_count + CALL_ITEMS_MAX <= ITEMS_MAX {
        let count = if dice.one_in(2) { 1 } else { dice.count(2, CALL_ITEMS_MAX) };
        let first = FIRST_ITEM + item_count;
        item_count += count;
        let (filter, items) = (|| COUNTED.to_owned(), || (first..first + count).collect());
        let add = Op::AddOne { filter: filter(), items: items() };
        ops.extend(at_once(dice, world, (at_ms, run_ms), (1, COPIES_MAX), &add));
        at_ms += draw_pause(dice);
        let delete = Op::DeleteOne { filter: filter(), items: items() };
        ops.extend(at_once(dice, world, (at_ms, run_ms), (0, COPIES_MAX + 1), &delete));
        at_ms += draw_pause(dice);
        let ask = Op::Contains { filter: filter(), items: items(), any: dice.one_in(2) };
        ops.extend(at_once(dice, world, (at_ms, run_ms), (1, 2), &ask));
        at_ms += dice.gap(GAP_MEAN_MS).max(1);
    }
    ops.sort_by_key(|op| op.at_ms);
    (filter, ops)
}

/// The time from calls to the next ones: of four, one is so short that both are under way together.
fn draw_pause(dice: &mut Dice) -> u64 {
    if dice.one_in(4) {
        dice.between(0, APART_MAX_MS)
    } else {
        dice.between(AFTER_MS.0, AFTER_MS.1)
    }
}
