//! Validates the calls of clients that speak the Redis protocol.

use std::collections::BTreeSet;

use super::Misfit;
use crate::plan::{Op, OpPlan, Plan};

impl Plan {
    /// `BF.*` treat a missing filter as an empty one, and create it, so the filters of clients that use them
    /// must exist under their names all the time.
    pub(super) fn check_resp(&self) -> Result<(), Misfit> {
        let passing = self.passing_names();
        let is_misfit = |plan: &&OpPlan| {
            let OpPlan { client, op, .. } = plan;
            self.world.speaks_resp(*client)
                && matches!(op, Op::Insert { .. } | Op::Contains { .. })
                && op.filter_names().any(|(_, name)| passing.contains(name))
        };
        let Some((index, plan)) = self.ops.iter().enumerate().find(|(_, plan)| is_misfit(plan))
        else {
            return Ok(());
        };
        let place = format!("ops[{index}].op.filter");
        let expected = "a filter that no operation creates, drops or renames";
        let name = plan.op.filter_names().next().map_or("", |(_, name)| name);
        Err(Misfit::new(place, expected, format!("{name:?}")))
    }

    /// The filters that operations create, drop or rename.
    fn passing_names(&self) -> BTreeSet<&str> {
        self.ops.iter().filter_map(|plan| plan.op.passing_name()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan_test::{insert, plan_of};

    #[test]
    fn commands_that_create_filters_get_lasting_ones() {
        let mut plan = plan_of(3, 3);
        plan.ops = vec![insert(1, 7, 1)];
        let drops = Op::Drop { filter: "f0".to_owned() };
        plan.ops.push(OpPlan { at_ms: 2, client: 0, via: 1, op: drops });
        assert_eq!(plan.check(), Ok(()));
        plan.world.resp_from = 7;
        let error = plan.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "ops[0].op.filter: expected a filter that no operation creates, drops or renames, got \"f0\""
        );
        plan.ops.pop();
        assert_eq!(plan.check(), Ok(()));
        plan.world.resp_from = 9;
        let error = plan.check().unwrap_err().to_string();
        assert_eq!(error, "world.resp_from: expected 0 to 8, got 9");
    }
}
