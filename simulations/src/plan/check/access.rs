//! Validates the part of a plan about principals.

use super::{Misfit, PLAN_LIMITS, Plan, in_order, in_range};
use crate::plan::access::{AccessCall, Change};
use crate::plan::identity::{IdentityPlan, Show};
use crate::plan::quota::{HoldingPlan, SLOTS};

impl Plan {
    pub(super) fn check_access(&self) -> Result<(), Misfit> {
        let Some(access) = &self.access else { return Ok(()) };
        let limits = &PLAN_LIMITS;
        in_range("number of access.changes", access.changes.len(), &limits.access_changes)?;
        in_range("number of access.asks", access.asks.len(), &limits.access_asks)?;
        in_order("access.changes", access.changes.iter().map(|plan| plan.at_ms), self.run_ms)?;
        in_order("access.asks", access.asks.iter().map(|plan| plan.at_ms), self.run_ms)?;
        let is_in_place = self.faults.iter().all(|plan| !plan.fault.class().contains("wall"));
        if !is_in_place {
            let expected = "no wall_clock with access: when rights end could not be told";
            return Err(Misfit::new("faults", expected, "wall_clock"));
        }
        for (index, plan) in access.changes.iter().enumerate() {
            let place = |field: &str| format!("access.changes[{index}].{field}");
            in_range(place("principal"), plan.principal, &limits.principal)?;
            let Change::Put { grants, for_ms, .. } = &plan.change else { continue };
            in_range(place("change.for_ms"), *for_ms, &(0..=*limits.run_ms.end()))?;
            let is_sound = !grants.is_empty()
                && grants.iter().all(|grant| {
                    !grant.rights.is_empty() && limits.name_chars.contains(&grant.pattern.len())
                });
            if !is_sound {
                let expected = "at least one grant, each with a pattern and rights";
                return Err(Misfit::new(place("change.grants"), expected, format!("{grants:?}")));
            }
        }
        for (index, plan) in access.asks.iter().enumerate() {
            let place = |field: &str| format!("access.asks[{index}].{field}");
            in_range(place("principal"), plan.principal, &limits.principal)?;
            in_range(place("via"), plan.via, &(1..=self.node_count()))?;
            let item = match plan.ask {
                AccessCall::Contains { item, .. }
                | AccessCall::Insert { item, .. }
                | AccessCall::Remove { item, .. }
                | AccessCall::Steal { item } => item,
                _ => 0,
            };
            in_range(place("ask.item"), item, &limits.item)?;
        }
        access.holding.as_ref().map_or(Ok(()), |holding| self.check_holding(holding))?;
        access.identities.as_ref().map_or(Ok(()), |identities| self.check_identities(identities))
    }

    fn check_identities(&self, plan: &IdentityPlan) -> Result<(), Misfit> {
        let limits = &PLAN_LIMITS;
        let IdentityPlan { require, life_ms, skews_ms, lapses, impostors } = plan;
        let place = |field: &str| format!("access.identities.{field}");
        in_range(place("life_ms"), *life_ms, &limits.life_ms)?;
        let founders = self.world.nodes as usize;
        in_range("number of access.identities.skews_ms", skews_ms.len(), &(founders..=founders))?;
        for (index, skew_ms) in skews_ms.iter().enumerate() {
            in_range(place(&format!("skews_ms[{index}]")), *skew_ms, &limits.skew_ms)?;
        }
        in_range("number of access.identities.lapses", lapses.len(), &limits.lapses)?;
        in_range("number of access.identities.impostors", impostors.len(), &limits.impostors)?;
        in_order(&place("lapses"), lapses.iter().map(|plan| plan.at_ms), self.run_ms)?;
        in_order(&place("impostors"), impostors.iter().map(|plan| plan.at_ms), self.run_ms)?;
        let is_new = |class: &str| matches!(class, "join" | "replace");
        if *require && self.faults.iter().any(|plan| is_new(plan.fault.class())) {
            let expected = "neither join nor replace where certificates must say which node it is";
            return Err(Misfit::new("faults", expected, "one of them"));
        }
        let founder = 1..=self.world.nodes;
        for (index, lapse) in lapses.iter().enumerate() {
            in_range(place(&format!("lapses[{index}].node")), lapse.node, &founder)?;
        }
        for (index, plan) in impostors.iter().enumerate() {
            let place = |field: &str| place(&format!("impostors[{index}].{field}"));
            in_range(place("via"), plan.via, &(1..=self.node_count()))?;
            let nodes = match plan.show {
                Show::Foreign { node } | Show::Elsewhere { node } => [node, node],
                Show::Namesake { node, says } => [node, says],
                Show::Generic { says } | Show::Client { says } => [says, says],
                Show::Dated { .. } => continue,
            };
            for node in nodes {
                in_range(place("show"), node, &founder)?;
            }
            if matches!(plan.show, Show::Namesake { node, says } if node == says) {
                return Err(Misfit::new(place("show"), "two different nodes", "one"));
            }
        }
        Ok(())
    }

    fn check_holding(&self, holding: &HoldingPlan) -> Result<(), Misfit> {
        let (limits, run_ms) = (&PLAN_LIMITS, self.run_ms);
        let HoldingPlan { holders, limits: changes, calls } = holding;
        in_range("access.holding.holders", *holders, &(1..=*limits.principal.end()))?;
        in_range("number of access.holding.limits", changes.len(), &limits.quota_limits)?;
        in_range("number of access.holding.calls", calls.len(), &limits.quota_calls)?;
        let times = |times: &mut dyn Iterator<Item = u64>, list| in_order(list, times, run_ms);
        times(&mut changes.iter().map(|plan| plan.at_ms), "access.holding.limits")?;
        times(&mut calls.iter().map(|plan| plan.at_ms), "access.holding.calls")?;
        let numbers = 0..=holders - 1;
        for (index, plan) in changes.iter().enumerate() {
            let place = format!("access.holding.limits[{index}].of");
            in_range(place, plan.of.unwrap_or(0), &numbers)?;
        }
        for (index, plan) in calls.iter().enumerate() {
            let place = |field: &str| format!("access.holding.calls[{index}].{field}");
            in_range(place("holder"), plan.holder, &numbers)?;
            in_range(place("via"), plan.via, &(1..=self.node_count()))?;
            in_range(place("call.slot"), plan.call.slot(), &(0..=SLOTS - 1))?;
        }
        Ok(())
    }
}
