//! A filter whose time passes again and again: what clients of the Redis protocol add to it and ask it for before, around and
//! after that, over different nodes.

use super::dice::Dice;
use super::races::{APART_MAX_MS, at_once};
use crate::plan::{FilterKind, FilterPlan, Op, OpPlan, WorldShape};

/// The filter, which no other call is about.
pub(super) const EXPIRING: &str = "expiring";

/// Number of items that it is planned for, and most items that are added.
const ITEMS_MAX: u32 = 400;

/// Its rate of false positives, in millionths: hardly any item that is gone is taken for one that is there.
const RATE_PPM: u32 = 1;

/// The first of its items.
const FIRST_ITEM: u32 = 2_700_000;

/// Most items of a call that adds some.
const CALL_ITEMS_MAX: u32 = 3;

/// How often items are added for each time that is set.
const ADDITIONS: u32 = 4;

/// Mean simulated milliseconds between the last calls about one time and the first about the next.
const GAP_MEAN_MS: u64 = 500;

/// Fewest and most simulated milliseconds from calls to those that follow.
const PAUSE_MS: (u64, u64) = (1, 60);

/// Fewest and most simulated milliseconds until the time that is set.
const IN_MS: (u64, u64) = (200, 1_500);

/// The controller of the catalogue's leader looks that often for filters whose time has passed.
const LOOK_MS: u64 = 250;

/// The filter and the calls. The world has clients that speak the Redis protocol.
pub(super) fn draw(dice: &mut Dice, world: WorldShape, run_ms: u64) -> (FilterPlan, Vec<OpPlan>) {
    let filter = FilterPlan {
        name: EXPIRING.to_owned(),
        kind: FilterKind::Classic,
        capacity: u64::from(ITEMS_MAX),
        rate_ppm: RATE_PPM,
        public: false,
        replicated: false,
    };
    let name = || EXPIRING.to_owned();
    let mut item_count = 0;
    let mut ops = Vec::new();
    let mut at_ms = dice.gap(GAP_MEAN_MS);
    while at_ms < run_ms && item_count + ADDITIONS * CALL_ITEMS_MAX <= ITEMS_MAX {
        let set_ms = at_ms + dice.between(PAUSE_MS.0, PAUSE_MS.1);
        let in_ms = dice.between(IN_MS.0, IN_MS.1);
        let due_ms = set_ms + in_ms;
        let set = Op::ExpireIn { filter: name(), in_ms };
        ops.extend(at_once(dice, world, (set_ms, run_ms), (1, 2), &set));
        let first = FIRST_ITEM + item_count;
        let additions_ms = [
            at_ms,
            dice.between(set_ms, due_ms),
            due_ms + dice.between(0, APART_MAX_MS),
            due_ms + dice.between(APART_MAX_MS, LOOK_MS),
        ];
        for add_ms in additions_ms {
            let new = FIRST_ITEM + item_count;
            item_count += dice.count(1, CALL_ITEMS_MAX);
            let end = FIRST_ITEM + item_count;
            let add = Op::AddVia { filter: name(), items: (new..end).collect() };
            ops.extend(at_once(dice, world, (add_ms, run_ms), (1, 2), &add));
            let ask_ms = add_ms + dice.between(PAUSE_MS.0, PAUSE_MS.1);
            let ask = Op::AskVia { filter: name(), items: (first..end).collect() };
            ops.extend(at_once(dice, world, (ask_ms, run_ms), (1, 3), &ask));
        }
        // When the controller has looked, too.
        let last_ms = due_ms + LOOK_MS + dice.between(PAUSE_MS.1, LOOK_MS);
        let items = (first..FIRST_ITEM + item_count).collect();
        let ask = Op::AskVia { filter: name(), items };
        ops.extend(at_once(dice, world, (last_ms, run_ms), (1, 3), &ask));
        at_ms = last_ms + dice.gap(GAP_MEAN_MS).max(1);
    }
    ops.sort_by_key(|op| op.at_ms);
    (filter, ops)
}
