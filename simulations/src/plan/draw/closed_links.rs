//! Draws links that are closed one way. They take the place of some other faults, with the same node, time and
//! length, so that all other draws stay what they were.

use super::dice::{Dice, Stream};
use crate::plan::{Fault, FaultPlan, Who};
use crate::profile::Profile;

/// Of so many faults that may be replaced, one is.
const FAULTS_PER_CLOSING: u32 = 4;

/// Of so many closings in [`Profile::Failover`], leaders hand over amid one.
const CLOSINGS_PER_HAND_OVER: u32 = 2;

/// Replaces some faults: in [`Profile::Failover`] any, in other profiles that have closed links cuts of one node.
pub(super) fn replace(faults: &mut Vec<FaultPlan>, seed: u64, profile: Profile, run_ms: u64) {
    if !profile.classes().contains(&"close_links") {
        return;
    }
    let mut dice = Dice::new(seed, Stream::ClosedLinks);
    for plan in faults.iter_mut() {
        let is_cut = matches!(plan.fault, Fault::Isolate { .. } | Fault::OneWay { .. });
        let Some(who) = plan.fault.who() else { continue };
        if (is_cut || profile == Profile::Failover) && dice.one_in(FAULTS_PER_CLOSING) {
            // A node that can open none has more to fear: it hears all others, and can do nothing.
            let outbound = !dice.one_in(4);
            plan.fault = Fault::CloseLinks { who, outbound, silent: dice.one_in(2) };
        }
    }
    if profile == Profile::Failover {
        hand_over_amid(faults, &mut dice, run_ms);
    }
}

/// Has all nodes hand over what they lead in the middle of some closings: the next leaders must be able to call others.
fn hand_over_amid(faults: &mut Vec<FaultPlan>, dice: &mut Dice, run_ms: u64) {
    let mut orders = Vec::new();
    for plan in faults.iter() {
        let at_ms = plan.at_ms + plan.for_ms / 2;
        let is_closing = matches!(plan.fault, Fault::CloseLinks { .. });
        if is_closing && dice.one_in(CLOSINGS_PER_HAND_OVER) && at_ms < run_ms {
            orders.push(FaultPlan { at_ms, for_ms: 0, fault: Fault::HandOver { who: Who::All } });
        }
    }
    faults.extend(orders);
    faults.sort_by_key(|plan| plan.at_ms);
}
