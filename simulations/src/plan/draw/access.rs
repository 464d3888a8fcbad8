//! Principals that are added, changed and revoked, and their calls, many of which are denied.

use super::dice::Dice;
use crate::plan::access::{
    ACCESS_FILTERS, AccessCall, AccessCallPlan, AccessPlan, Change, ChangePlan, ClusterRight,
    FilterRight, GrantPlan, access_filter,
};
use crate::plan::{PLAN_LIMITS, WorldShape};

const RIGHTS: [FilterRight; 5] = [
    FilterRight::Read,
    FilterRight::Insert,
    FilterRight::Remove,
    FilterRight::Manage,
    FilterRight::Export,
];

/// Mean simulated milliseconds between two calls.
const ASK_GAP_MEAN_MS: u64 = 40;

/// Mean simulated milliseconds between two changes.
const CHANGE_GAP_MEAN_MS: u64 = 900;

/// Number of distinct items in calls.
const ITEM_SPACE: u32 = 1_000;

/// The changes and calls of a run.
pub(super) fn draw(dice: &mut Dice, world: WorldShape, run_ms: u64) -> AccessPlan {
    let principals = dice.count(2, 5);
    let mut secrets = vec![0; principals as usize];
    let mut changes = Vec::new();
    for principal in 0..principals {
        let change = draw_put(dice, 0, run_ms);
        changes.push(ChangePlan { at_ms: 0, principal, change });
    }
    let mut at_ms = dice.gap(CHANGE_GAP_MEAN_MS);
    while at_ms < run_ms {
        let principal = dice.count(0, principals - 1);
        let change = if dice.one_in(2) {
            Change::Revoke
        } else {
            // A principal that is replaced keeps its token with a chance of one third.
            let secret = &mut secrets[principal as usize];
            *secret += u32::from(!dice.one_in(3));
            draw_put(dice, *secret, run_ms)
        };
        changes.push(ChangePlan { at_ms, principal, change });
        at_ms += dice.gap(CHANGE_GAP_MEAN_MS).max(1);
    }
    changes.truncate(*PLAN_LIMITS.access_changes.end());
    let mut asks = Vec::new();
    let mut at_ms = dice.gap(ASK_GAP_MEAN_MS);
    while at_ms < run_ms && asks.len() < *PLAN_LIMITS.access_asks.end() {
        let principal = dice.count(0, principals - 1);
        let put = |plan: &&ChangePlan| plan.principal == principal && plan.at_ms <= at_ms;
        let newest = changes.iter().rev().filter(put).find_map(|plan| match plan.change {
            Change::Put { secret, .. } => Some(secret),
            Change::Revoke => None,
        });
        let newest = newest.unwrap_or(0);
        let secret = match dice.count(0, 9) {
            0 => None,
            // An outdated secret, or one that is not in use yet.
            1 => Some(newest.saturating_sub(1)),
            2 => Some(newest + 1),
            _ => Some(newest),
        };
        let ask = draw_ask(dice);
        asks.push(AccessCallPlan {
            at_ms,
            principal,
            secret,
            via: dice.count(1, world.nodes),
            ask,
        });
        at_ms += dice.gap(ASK_GAP_MEAN_MS);
    }
    AccessPlan { changes, asks, holding: None, identities: None }
}

fn draw_put(dice: &mut Dice, secret: u32, run_ms: u64) -> Change {
    let mut grants = Vec::new();
    for _ in 0..dice.count(1, 3) {
        let pattern = match dice.count(0, 5) {
            0 => "*".to_owned(),
            1 => "a*".to_owned(),
            2 => format!("{}*", access_filter(dice.count(0, ACCESS_FILTERS))),
            _ => access_filter(dice.count(0, ACCESS_FILTERS)),
        };
        let count = dice.count(1, 3);
        grants.push(GrantPlan { pattern, rights: dice.pick_distinct(&RIGHTS, count) });
    }
    let mut cluster = Vec::new();
    for right in [ClusterRight::Metrics, ClusterRight::Jobs] {
        if dice.one_in(4) {
            cluster.push(right);
        }
    }
    let for_ms = if dice.one_in(4) { dice.between(200, run_ms.max(201)) } else { 0 };
    Change::Put { secret, grants, cluster, for_ms }
}

fn draw_ask(dice: &mut Dice) -> AccessCall {
    // One of these filters does not exist.
    let filter = dice.count(0, ACCESS_FILTERS);
    let source = dice.count(0, ACCESS_FILTERS);
    let item = dice.count(0, ITEM_SPACE - 1);
    match dice.count(0, 27) {
        0..=4 => AccessCall::Contains { filter, item },
        5 | 6 => AccessCall::Info { filter },
        7..=11 => AccessCall::Insert { filter, item },
        12 => AccessCall::Remove { filter, item },
        13 => AccessCall::Flush { filter },
        14 | 15 => AccessCall::Create { filter },
        16 | 17 => AccessCall::Clear { filter },
        18 => AccessCall::Drop { filter },
        19 | 20 => AccessCall::Merge { filter, source },
        21 => AccessCall::List,
        22 => AccessCall::Status,
        23 => AccessCall::Jobs,
        24 => AccessCall::Principals,
        25 => AccessCall::Escalate,
        _ => AccessCall::Steal { item },
    }
}
