//! Draws quotas, and calls that use them up through several nodes at the same time.

use super::dice::Dice;
use crate::plan::quota::{Hold, HoldPlan, HoldingPlan, LimitPlan, SLOTS, Size};
use crate::plan::{PLAN_LIMITS, WorldShape};

/// Mean simulated milliseconds between two calls, or bursts of them.
const CALL_GAP_MEAN_MS: u64 = 90;

/// Mean simulated milliseconds between two changes of quotas.
const LIMIT_GAP_MEAN_MS: u64 = 1_500;

/// The quotas and holders of a run.
pub(super) fn draw(dice: &mut Dice, world: WorldShape, run_ms: u64) -> HoldingPlan {
    let holders = dice.count(1, 3);
    let mut limits: Vec<LimitPlan> =
        (0..holders).map(|holder| draw_limit(dice, 0, Some(holder))).collect();
    let mut at_ms = dice.gap(LIMIT_GAP_MEAN_MS);
    while at_ms < run_ms && limits.len() < *PLAN_LIMITS.quota_limits.end() {
        let of = if dice.one_in(3) { None } else { Some(dice.count(0, holders - 1)) };
        limits.push(draw_limit(dice, at_ms, of));
        at_ms += dice.gap(LIMIT_GAP_MEAN_MS).max(1);
    }
    let mut calls = Vec::new();
    let mut at_ms = dice.gap(CALL_GAP_MEAN_MS);
    while at_ms < run_ms {
        let holder = dice.count(0, holders - 1);
        // Several calls at once, through several nodes, race for the remaining quota.
        let count = if dice.one_in(3) { dice.count(2, 4) } else { 1 };
        for _ in 0..count {
            let slot = dice.count(0, SLOTS - 1);
            let call = match dice.count(0, 9) {
                0..=5 => Hold::Make { slot, size: *dice.pick(&Size::ALL) },
                6 => Hold::Clear { slot },
                _ => Hold::Drop { slot },
            };
            calls.push(HoldPlan { at_ms, holder, via: dice.count(1, world.nodes), call });
        }
        at_ms += dice.gap(CALL_GAP_MEAN_MS);
    }
    calls.truncate(*PLAN_LIMITS.quota_calls.end());
    HoldingPlan { holders, limits, calls }
}

fn draw_limit(dice: &mut Dice, at_ms: u64, of: Option<u32>) -> LimitPlan {
    let filters = (!dice.one_in(3)).then(|| dice.count(1, 4));
    // With neither value, the quota is unlimited for a while.
    let tenths = dice.one_in(2).then(|| dice.count(1, 40));
    LimitPlan { at_ms, of, filters, tenths }
}
