//! Replicated filters of a plan, and the operations on them.

use super::dice::Dice;
use crate::plan::{Ack, FilterKind, FilterPlan, Op, OpPlan, WorldShape};

/// Kinds that can be replicated.
const KINDS: [FilterKind; 2] = [FilterKind::Blocked, FilterKind::SingleShot];

/// The same in worlds where no wall clock is far off.
const TIMED_KINDS: [FilterKind; 3] =
    [FilterKind::Blocked, FilterKind::SingleShot, FilterKind::Window];

/// False positive rates in millionths. They are low, so that a bit that no insert set is noticed.
const RATES_PPM: [u32; 3] = [100, 1_000, 10_000];

/// Acknowledgement levels of inserts; half of them are local.
const ACKS: [Ack; 4] = [Ack::Local, Ack::Local, Ack::OnePartner, Ack::Majority];

/// Most items of a call.
const CALL_ITEMS_MAX: u32 = 64;

/// Fewest and most distinct items that are inserted in the same second.
const WINDOW: (u32, u32) = (32, 1_000);

/// The parameters in which plans differ.
struct CopyHabits {
    /// The filters' names, and whether each is cleared, dropped and recreated.
    filters: Vec<(String, bool)>,
    /// Relative frequencies of inserts and queries.
    insert_weight: u32,
    contains_weight: u32,
    /// Mean simulated milliseconds between two calls of a client.
    gap_mean_ms: u64,
    /// Distinct items of one second, and by how many they move on per second, so that not all items from
    /// before a clear are inserted again.
    window: u32,
    window_step: u32,
}

/// Between `least` and `most` replicated filters, of which some may forget if `is_timed`, and the calls
/// of all clients by time, on average `calls_least` to `calls_most` a second.
pub(super) fn draw(
    dice: &mut Dice,
    (world, is_timed): (WorldShape, bool),
    (least, most): (u32, u32),
    (calls_least, calls_most): (u64, u64),
    run_ms: u64,
) -> (Vec<FilterPlan>, Vec<OpPlan>) {
    let count = dice.count(least, most);
    let filters: Vec<FilterPlan> = (0..count).map(|number| one(dice, is_timed, number)).collect();
    let calls = dice.between(calls_least, calls_most);
    let window = dice.spread_count(WINDOW.0, WINDOW.1);
    let names = filters.iter().map(|filter| filter.name.clone());
    let habits = CopyHabits {
        // Every second filter is rewritten; the others can be checked for all items that they ever got.
        filters: names.zip([false, true].into_iter().cycle()).collect(),
        insert_weight: dice.count(2, 6),
        contains_weight: dice.count(1, 4),
        gap_mean_ms: (u64::from(world.clients) * 1_000 / calls).max(1),
        window,
        window_step: if dice.one_in(4) { 0 } else { window / 4 },
    };
    let mut ops = Vec::new();
    for client in 0..world.clients {
        let mut at_ms = dice.gap(habits.gap_mean_ms);
        while at_ms < run_ms {
            let op = draw_op(dice, &habits, at_ms);
            ops.push(OpPlan { at_ms, client, via: dice.count(1, world.nodes), op });
            at_ms += dice.gap(habits.gap_mean_ms).max(1);
        }
    }
    ops.sort_by_key(|op| op.at_ms);
    (filters, ops)
}

fn one(dice: &mut Dice, is_timed: bool, number: u32) -> FilterPlan {
    FilterPlan {
        name: format!("r{number}"),
        kind: if is_timed { *dice.pick(&TIMED_KINDS) } else { *dice.pick(&KINDS) },
        capacity: dice.spread(100, 20_000),
        rate_ppm: *dice.pick(&RATES_PPM),
        public: !dice.one_in(4),
        replicated: true,
    }
}

fn draw_op(dice: &mut Dice, habits: &CopyHabits, at_ms: u64) -> Op {
    let (name, is_rewritten) = dice.pick(&habits.filters);
    let filter = name.clone();
    if *is_rewritten && dice.one_in(20) {
        return match dice.count(0, 9) {
            0 => Op::Drop { filter },
            1..=3 => Op::Create { filter },
            _ => Op::Clear { filter },
        };
    }
    if dice.one_in(30) {
        return Op::Flush { filter };
    }
    let second = u32::try_from(at_ms / 1_000).expect("minutes");
    let first = second * habits.window_step;
    let weights = habits.insert_weight + habits.contains_weight;
    if dice.count(0, weights - 1) < habits.insert_weight {
        let items = draw_items(dice, first, first + habits.window);
        return Op::InsertCopy { filter, items, ack: *dice.pick(&ACKS) };
    }
    // Half of the queries also cover items of earlier seconds, and some that are not inserted yet.
    let (from, to) = if dice.one_in(2) {
        (first, first + habits.window)
    } else {
        (0, first + 2 * habits.window)
    };
    Op::ContainsCopy { filter, items: draw_items(dice, from, to), majority: dice.one_in(2) }
}

/// Items of one call, each once.
fn draw_items(dice: &mut Dice, from: u32, to: u32) -> Vec<u32> {
    let mut items = Vec::new();
    for _ in 0..dice.spread_count(1, CALL_ITEMS_MAX) {
        let item = dice.count(from, to - 1);
        if !items.contains(&item) {
            items.push(item);
        }
    }
    items
}
