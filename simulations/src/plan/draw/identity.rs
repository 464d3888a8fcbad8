//! Certificates that lapse, and callers that present wrong ones.

use super::dice::Dice;
use crate::plan::identity::{IdentityPlan, ImpostorPlan, LapsePlan, Show};
use crate::plan::{PLAN_LIMITS, WorldShape};

/// Mean simulated milliseconds between two calls with a wrong certificate.
const CALL_GAP_MEAN_MS: u64 = 150;

/// Shortest and longest lifetime of certificates, in simulated milliseconds. Many expire within a run,
/// but not those of nodes that can reach another one in the last third.
const LIFE_MS: (u64, u64) = (4_000, 12_000);

/// Most milliseconds by which a wall clock is off. The last third of the shortest lifetime is longer.
const SKEW_MS: i64 = 1_000;

/// How far the start of a certificate's validity may be from the call that presents it, in milliseconds.
const AROUND_MS: i64 = 2_000;

/// The certificates of a run.
pub(super) fn draw(dice: &mut Dice, world: WorldShape, run_ms: u64) -> IdentityPlan {
    let require = dice.one_in(2);
    let life_ms = dice.between(LIFE_MS.0, LIFE_MS.1);
    let skew = |_| if dice.one_in(2) { 0 } else { dice.signed(-SKEW_MS, SKEW_MS) };
    let skews_ms = (0..world.nodes).map(skew).collect();
    let nodes: Vec<u32> = (1..=world.nodes).collect();
    let lapse_count = dice.count(0, 2);
    let mut lapses: Vec<LapsePlan> = dice
        .pick_distinct(&nodes, lapse_count)
        .into_iter()
        .map(|node| LapsePlan { at_ms: dice.between(0, run_ms - 1), node })
        .collect();
    lapses.sort_by_key(|lapse| lapse.at_ms);
    let mut impostors = Vec::new();
    let mut at_ms = dice.gap(CALL_GAP_MEAN_MS);
    while at_ms < run_ms && impostors.len() < *PLAN_LIMITS.impostors.end() {
        let via = dice.count(1, world.nodes);
        impostors.push(ImpostorPlan { at_ms, via, show: draw_show(dice, world) });
        at_ms += dice.gap(CALL_GAP_MEAN_MS);
    }
    IdentityPlan { require, life_ms, skews_ms, lapses, impostors }
}

fn draw_show(dice: &mut Dice, world: WorldShape) -> Show {
    let node = dice.count(1, world.nodes);
    let says = dice.count(1, world.nodes);
    match dice.count(0, 7) {
        0 => Show::Foreign { node },
        // Worlds with principals have at least two nodes.
        1 | 2 if says != node => Show::Namesake { node, says },
        1..=3 => Show::Elsewhere { node },
        4 => Show::Generic { says },
        5 => Show::Client { says },
        _ => {
            let from_ms = dice.signed(-AROUND_MS, AROUND_MS);
            Show::Dated { from_ms, to_ms: from_ms + dice.signed(1, 2 * AROUND_MS) }
        }
    }
}
