//! Validates the part of a plan about sets and sessions.

use super::{Misfit, PLAN_LIMITS, in_order, in_range};
use crate::plan::Plan;

impl Plan {
    pub(super) fn check_scenarios(&self) -> Result<(), Misfit> {
        in_range("number of scenarios", self.scenarios.len(), &PLAN_LIMITS.scenarios)?;
        let Some(sets) = &self.sets else {
            return in_range("number of scenarios without sets", self.scenarios.len(), &(0..=0));
        };
        if self.world.nodes == 0 {
            let needy = self.filters.len()
                + self.ops.len()
                + self.jobs.len()
                + self.faults.len()
                + usize::from(self.access.is_some());
            in_range("number of parts that need a node", needy, &(0..=0))?;
        }
        in_range("number of sets.own", sets.own.len(), &PLAN_LIMITS.sets)?;
        let hosts = 1..=u32::try_from(sets.own.len()).unwrap_or(u32::MAX);
        in_range("sets.shared", sets.shared, &PLAN_LIMITS.set_items)?;
        in_range("sets.latency_ms", sets.latency_ms, &(1..=10_000))?;
        for (index, own) in sets.own.iter().enumerate() {
            in_range(format!("sets.own[{index}]"), *own, &PLAN_LIMITS.set_items)?;
        }
        in_order("sets.growth", sets.growth.iter().map(|growth| growth.at_ms), self.run_ms)?;
        for (index, growth) in sets.growth.iter().enumerate() {
            in_range(format!("sets.growth[{index}].host"), growth.host, &hosts)?;
            in_range(format!("sets.growth[{index}].count"), growth.count, &PLAN_LIMITS.set_items)?;
        }
        in_order("scenarios", self.scenarios.iter().map(|scenario| scenario.at_ms), self.run_ms)?;
        for (index, scenario) in self.scenarios.iter().enumerate() {
            let place = |field: &str| format!("scenarios[{index}].{field}");
            in_range(place("initiator"), scenario.initiator, &hosts)?;
            in_range(place("responder"), scenario.responder, &hosts)?;
            in_range(place("chunk_bytes"), scenario.chunk_bytes, &PLAN_LIMITS.chunk_bytes)?;
            if scenario.initiator == scenario.responder {
                return Err(Misfit::new(place("responder"), "another host", scenario.responder));
            }
        }
        Ok(())
    }
}
