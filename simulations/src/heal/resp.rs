//! Clients of the Redis protocol: where nothing fails, not all of their calls are refused.

use crate::history::{Call, Outcome, Verb};
use crate::plan::Plan;
use crate::profile::Profile;

/// What is wrong with the calls over the Redis protocol, after the last one has ended; None if nothing. Without
/// faults a full filter may refuse some of them, and a broken one all.
pub(super) fn unanswered(plan: &Plan, calls: &[Call]) -> Option<String> {
    if plan.profile != Profile::Calm.name() {
        return None;
    }
    let is_over_resp = |call: &&Call| {
        plan.world.speaks_resp(call.client)
            && call.machine.is_none()
            && matches!(call.verb, Verb::Insert | Verb::Contains | Verb::ContainsAny)
    };
    let outcomes: Vec<&Outcome> =
        calls.iter().filter(is_over_resp).map(|call| &call.outcome).collect();
    let last = outcomes.last()?;
    if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Done(_))) {
        return None;
    }
    let count = outcomes.len();
    Some(format!("none of {count} calls over the Redis protocol was answered; the last: {last:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::fixture::History;
    use crate::plan::plan_test::plan_of;

    #[test]
    fn one_call_over_the_redis_protocol_must_be_answered() {
        let mut plan = plan_of(3, 3);
        (plan.profile, plan.world.resp_from) = (Profile::Calm.name().to_owned(), 6);
        let refused = || Outcome::NotApplied("no connection".to_owned());
        let mut history = History::new();
        history.call(Verb::Insert, "f0", &[1], (1, 2), Outcome::Done(vec![true]));
        assert_eq!(unanswered(&plan, &history.calls), None);
        // A client of gRPC was answered, and the one of the Redis protocol was not.
        history.call(Verb::Contains, "f0", &[1], (3, 4), refused()).client = 6;
        assert!(unanswered(&plan, &history.calls).is_some_and(|what| what.contains("of 1 calls")));
        // Its removals go over gRPC.
        history.call(Verb::Remove, "f0", &[1], (5, 6), Outcome::Done(vec![true])).client = 6;
        assert!(unanswered(&plan, &history.calls).is_some());
        let faulty = Plan { profile: Profile::Crash.name().to_owned(), ..plan.clone() };
        assert_eq!(unanswered(&faulty, &history.calls), None);
        history.call(Verb::ContainsAny, "f0", &[1], (7, 8), Outcome::Done(vec![true])).client = 6;
        assert_eq!(unanswered(&plan, &history.calls), None);
    }
}
