//! Validates the calls of clients that speak the Redis protocol.

use std::collections::BTreeSet;

use super::Misfit;
use crate::plan::{FilterPlan, Op, OpPlan, Plan};

impl Plan {
    /// `BF.*`, `CF.ADD` and `CF.ADDNX` create a missing filter, and questions treat it as an empty one, so the filters of
    /// clients that use them must exist under their names all the time.
    pub(super) fn check_resp(&self) -> Result<(), Misfit> {
        self.check_races()?;
        let passing = self.passing_names();
        let is_misfit = |plan: &&OpPlan| {
            let OpPlan { client, op, .. } = plan;
            self.world.speaks_resp(*client)
                && needs_filter(op)
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

    /// Calls that only clients of the Redis protocol make.
    fn check_races(&self) -> Result<(), Misfit> {
        for (index, OpPlan { client, op, .. }) in self.ops.iter().enumerate() {
            let (Op::AddNew { filter, .. }
            | Op::Expire { filter, .. }
            | Op::Take { filter }
            | Op::AddOne { filter, .. }
            | Op::DeleteOne { filter, .. }
            | Op::ExpireIn { filter, .. }
            | Op::AddVia { filter, .. }
            | Op::AskVia { filter, .. }) = op
            else {
                continue;
            };
            if !self.world.speaks_resp(*client) {
                let expected = "a client that speaks the Redis protocol";
                return Err(Misfit::new(format!("ops[{index}].client"), expected, client));
            }
            let is_fit = |own: &FilterPlan| own.name == *filter && own.kind.tells_copies();
            if needs_table(op) && !self.filters.iter().any(is_fit) {
                let place = format!("ops[{index}].op.filter");
                return Err(Misfit::new(
                    place,
                    "a cuckoo or quotient filter",
                    format!("{filter:?}"),
                ));
            }
        }
        Ok(())
    }

    /// The filters that operations create, drop or rename.
    fn passing_names(&self) -> BTreeSet<&str> {
        self.ops.iter().filter_map(|plan| plan.op.passing_name()).collect()
    }
}

/// Whether it is about a filter that tells copies.
const fn needs_table(op: &Op) -> bool {
    matches!(op, Op::AddNew { .. } | Op::AddOne { .. } | Op::DeleteOne { .. })
}

/// Whether clients of the Redis protocol use that protocol for it, by a command that is about a filter that exists.
const fn needs_filter(op: &Op) -> bool {
    matches!(
        op,
        Op::Insert { .. }
            | Op::Contains { .. }
            | Op::AddNew { .. }
            | Op::Expire { .. }
            | Op::AddOne { .. }
            | Op::DeleteOne { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::FilterKind;
    use crate::plan::plan_test::{insert, plan_of};

    #[test]
    fn what_is_added_if_absent_goes_over_the_redis_protocol_to_a_table() {
        let mut plan = plan_of(3, 3);
        let filter = || "f0".to_owned();
        let ops = [
            Op::AddNew { filter: filter(), items: vec![1] },
            Op::Expire { filter: filter(), turn: 1 },
            Op::AddOne { filter: filter(), items: vec![1] },
            Op::DeleteOne { filter: filter(), items: vec![1] },
        ];
        plan.ops = ops.map(|op| OpPlan { at_ms: 1, client: 7, via: 1, op }).to_vec();
        let error = plan.check().unwrap_err().to_string();
        let expected = "ops[0].client: expected a client that speaks the Redis protocol, got 7";
        assert_eq!(error, expected);
        plan.world.resp_from = 7;
        let error = plan.check().unwrap_err().to_string();
        let expected = "ops[0].op.filter: expected a cuckoo or quotient filter, got \"f0\"";
        assert_eq!(error, expected);
        plan.filters[0].kind = FilterKind::Quotient;
        assert_eq!(plan.check(), Ok(()));
        plan.ops.push(OpPlan { at_ms: 2, client: 0, via: 1, op: Op::Rename { filter: filter() } });
        assert!(plan.check().unwrap_err().to_string().starts_with("ops[0].op.filter"));
    }

    #[test]
    fn a_filter_that_is_taken_is_used_by_no_command_that_would_create_it() {
        let mut plan = plan_of(3, 3);
        let filter = || "f0".to_owned();
        plan.world.resp_from = 7;
        let ops = [Op::Take { filter: filter() }, Op::Create { filter: filter() }];
        plan.ops = ops.map(|op| OpPlan { at_ms: 1, client: 7, via: 1, op }).to_vec();
        assert_eq!(plan.check(), Ok(()));
        plan.ops.push(insert(2, 7, 1));
        assert!(plan.check().unwrap_err().to_string().starts_with("ops[2].op.filter"));
        plan.ops.pop();
        plan.ops[0].client = 0;
        let error = plan.check().unwrap_err().to_string();
        let expected = "ops[0].client: expected a client that speaks the Redis protocol, got 0";
        assert_eq!(error, expected);
    }

    #[test]
    fn a_filter_that_expires_is_created_by_commands_that_expect_it() {
        let mut plan = plan_of(3, 3);
        let filter = || "f0".to_owned();
        plan.world.resp_from = 7;
        let ops = [
            Op::AddVia { filter: filter(), items: vec![1] },
            Op::ExpireIn { filter: filter(), in_ms: 200 },
            Op::AskVia { filter: filter(), items: vec![1] },
        ];
        plan.ops = ops.map(|op| OpPlan { at_ms: 1, client: 7, via: 1, op }).to_vec();
        assert_eq!(plan.check(), Ok(()));
        plan.ops.push(insert(2, 7, 1));
        assert!(plan.check().unwrap_err().to_string().starts_with("ops[3].op.filter"));
        plan.ops.pop();
        plan.ops[1].op = Op::ExpireIn { filter: filter(), in_ms: 0 };
        let error = plan.check().unwrap_err().to_string();
        assert_eq!(error, "ops[1].op.in_ms: expected 1 to 600000, got 0");
    }

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
