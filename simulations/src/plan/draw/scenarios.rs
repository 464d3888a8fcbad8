//! Draws sets and the sessions that reconcile them.

use umbel_reconcile_engine::limits::RESUME_WINDOW_BYTES;

use super::dice::Dice;
use crate::plan::scenario::{
    After, Growth, ItemKind, Kept, Lie, Scenario, SetsPlan, Stranger, Trouble, Way,
};

/// Most items that all hosts share, and most that one host has alone.
const ITEMS_MAX: [u32; 2] = [3_000, 3_000];

/// Most sessions of a plan.
const SCENARIOS_MAX: u64 = 24;

/// Most bytes that a session sends before its fault.
const AFTER_BYTES_MAX: u64 = 2 * RESUME_WINDOW_BYTES;

/// Simulated milliseconds of the fault phase per session.
const MS_PER_SCENARIO: u64 = 1_200;

/// Two or three hosts and their sets.
pub(super) fn draw_sets(dice: &mut Dice, run_ms: u64) -> SetsPlan {
    let items = *dice.pick(&[
        ItemKind::Ids,
        ItemKind::Ids,
        ItemKind::Hashes,
        ItemKind::Lines,
        ItemKind::Lines,
        ItemKind::Records,
    ]);
    let shared = some_items(dice, ITEMS_MAX[0]);
    let hosts = dice.count(2, 3);
    let own = (0..hosts).map(|_| some_items(dice, ITEMS_MAX[1])).collect();
    let mut growth: Vec<Growth> = (0..dice.count(0, 12))
        .map(|_| Growth {
            at_ms: dice.between(0, run_ms),
            host: dice.count(1, hosts),
            count: dice.spread_count(1, 200),
        })
        .collect();
    growth.sort_by_key(|growth| growth.at_ms);
    SetsPlan { items, shared, own, latency_ms: dice.spread_count(1, 60), growth }
}

fn some_items(dice: &mut Dice, most: u32) -> u32 {
    match dice.count(0, 5) {
        0 => 0,
        1 | 2 => dice.count(1, 14),
        // Some sets that need more than the send window of a resumable session.
        3 => dice.count(most / 2, most),
        _ => dice.spread_count(1, most),
    }
}

/// Sessions among `hosts` hosts. One plan in five repeats a single session, which crashes one step later
/// each time.
pub(super) fn draw(dice: &mut Dice, hosts: u32, run_ms: u64) -> Vec<Scenario> {
    let count = (run_ms / MS_PER_SCENARIO).clamp(2, SCENARIOS_MAX);
    let steps = dice.one_in(5).then(|| (draw_scenario(dice, hosts, 0), dice.one_in(2)));
    let mut scenarios: Vec<Scenario> = (0..count)
        .map(|number| {
            let at_ms = dice.between(run_ms * number / count, run_ms * (number + 1) / count);
            let Some((scenario, first)) = steps else { return draw_scenario(dice, hosts, at_ms) };
            let after = After::Inputs(u32::try_from(number).unwrap_or(0));
            let trouble = Trouble::Crash { first, after, for_ms: dice.between(10, 400) };
            Scenario { at_ms, bytes_max: None, trouble, ..scenario }
        })
        .collect();
    scenarios.sort_by_key(|scenario| scenario.at_ms);
    scenarios
}

fn draw_scenario(dice: &mut Dice, hosts: u32, at_ms: u64) -> Scenario {
    let initiator = dice.count(1, hosts);
    let other = dice.count(1, hosts - 1);
    let kept = *dice.pick(&[Kept::Neither, Kept::Neither, Kept::Neither, Kept::First, Kept::Both]);
    Scenario {
        at_ms,
        initiator,
        responder: if other < initiator { other } else { other + 1 },
        // A session between equal sets shows little, so many sessions only compare and leave the sets
        // different.
        way: *dice.pick(&[Way::Compare, Way::Compare, Way::Pull, Way::Push, Way::Both]),
        fast: dice.one_in(3),
        contents: dice.one_in(2),
        told: dice.one_in(2),
        expected: dice.one_in(4).then(|| dice.spread(1, 2_000)),
        bytes_max: dice.one_in(5).then(|| dice.spread(100, 100_000)),
        short: dice.one_in(2),
        // A resumable session begins with a scan, not with a stored sketch.
        resume: !dice.one_in(5) && kept == Kept::Neither,
        kept,
        chunk_bytes: if dice.one_in(4) { 8_192 } else { dice.spread_count(64, 8_192) },
        trouble: draw_trouble(dice),
    }
}

fn draw_trouble(dice: &mut Dice) -> Trouble {
    let first = dice.one_in(2);
    let after = if dice.one_in(2) {
        // Up to more than the send window of a resumable session.
        After::Bytes(dice.spread(1, AFTER_BYTES_MAX))
    } else {
        After::Inputs(dice.count(0, 14))
    };
    match dice.count(0, 17) {
        0 | 1 => Trouble::Reset { first, after },
        2 => Trouble::Cut { first, after, one_way: dice.one_in(2), for_ms: dice.spread(50, 4_000) },
        3 => Trouble::Hold { first, after, for_ms: dice.spread(50, 4_000) },
        4 | 5 => Trouble::Crash { first, after, for_ms: dice.spread(10, 2_000) },
        6 => Trouble::Loss { first, per_mille: dice.count(5, 300) },
        7..=10 => {
            // At least half of the lies have valid checksums: those that a checksum reveals test less.
            let how = if dice.one_in(2) { Lie::PLAUSIBLE.as_slice() } else { Lie::ALL.as_slice() };
            Trouble::Lie { first, frame: dice.count(0, 7), how: *dice.pick(how) }
        }
        11 if dice.one_in(2) => Trouble::Stranger {
            what: *dice.pick(&[Stranger::Domain, Stranger::Dataset, Stranger::Kind]),
        },
        _ => Trouble::Nothing,
    }
}
