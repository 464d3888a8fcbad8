//! The shrinker, on plans whose minimal failing core is known.

use super::*;
use crate::plan::plan_test::{filter, insert, plan_of};
use crate::plan::{Fault, FaultPlan, Op, OpPlan, Who};
use crate::profile::Profile;

/// An isolation of node 2 that ends after two seconds.
fn isolate(at_ms: u64) -> FaultPlan {
    FaultPlan { at_ms, for_ms: 2_000, fault: Fault::Isolate { who: Who::Node(2) } }
}

fn crash(at_ms: u64) -> FaultPlan {
    FaultPlan { at_ms, for_ms: 500, fault: Fault::Crash { who: Who::Leader(0) } }
}

/// Five nodes, three filters, 200 inserts of 8 clients, 100 isolations and one crash.
fn padded() -> Plan {
    let mut plan = plan_of(5, 3);
    plan.filters.push(filter("f1"));
    plan.filters.push(filter("f2"));
    plan.provoked = vec!["small_pieces".to_owned(), "old_map".to_owned()];
    plan.ops = (0..200).map(|n| insert(u64::from(n) * 150, n % 8, n % 50)).collect();
    for op in plan.ops.iter_mut().step_by(7) {
        op.via = 5;
        op.op = Op::Insert {
            filter: "f1".to_owned(),
            items: (100..110).collect::<Vec<u32>>(),
            copies: 3,
        };
    }
    plan.faults = (0..100).map(|n| isolate(n * 250)).collect();
    plan.faults.insert(41, crash(10_100));
    plan.check().unwrap();
    plan
}

/// Whether a crash is followed by two inserts of one item by different clients.
fn fails_by_crash(plan: &Plan) -> bool {
    let is_crash = |fault: &&FaultPlan| matches!(fault.fault, Fault::Crash { .. });
    let Some(crash) = plan.faults.iter().find(is_crash) else {
        return false;
    };
    let later: Vec<&OpPlan> = plan.ops.iter().filter(|op| op.at_ms > crash.at_ms).collect();
    later.iter().any(|one| {
        later.iter().any(|other| {
            let items = |op: &OpPlan| op.op.items().unwrap_or_default().to_vec();
            let is_shared = items(one).iter().any(|item| items(other).contains(item));
            one.client != other.client
                && one.op.filter_names().eq(other.op.filter_names())
                && is_shared
        })
    })
}

/// Shrinks a plan and checks the shrinker's guarantees on every call of `fails`.
fn shrink_watched(plan: &Plan, budget: u32, fails: impl Fn(&Plan) -> bool) -> Shrunk {
    let is_within_budget = plan.excess_damage().is_none();
    let mut run_count = 0;
    let shrunk = shrink(plan, budget, &mut |smaller| {
        run_count += 1;
        smaller.check().unwrap();
        assert!(!is_within_budget || smaller.excess_damage().is_none());
        fails(smaller)
    });
    assert_eq!(shrunk.run_count, run_count);
    assert!(run_count <= budget);
    assert!(fails(&shrunk.plan) || shrunk.plan == *plan);
    shrunk
}

#[test]
fn a_padded_plan_returns_to_its_core() {
    let shrunk = shrink_watched(&padded(), 1_000, fails_by_crash);
    let plan = &shrunk.plan;
    assert!(shrunk.is_minimal);
    assert_eq!(plan.faults, [FaultPlan { for_ms: 0, ..crash(10_100) }]);
    assert_eq!(plan.ops.len(), 2);
    let PlanSize { fault_count, op_count, item_count, client_count, filter_count } = shrunk.after;
    assert_eq!((fault_count, op_count, item_count), (1, 2, 2));
    assert_eq!((client_count, filter_count), (2, 1));
    assert_eq!((shrunk.before.fault_count, shrunk.before.op_count), (101, 200));
    assert_eq!(plan.provoked, Vec::<String>::new());
    assert_eq!((plan.world.clients, plan.world.shards), (2, 1));
    assert_eq!((plan.world.nodes, plan.world.replicas), (3, 3));
    assert_eq!(plan.run_ms, plan.ops[1].at_ms + 1);
    assert_eq!(plan.seed, padded().seed);
}

#[test]
fn one_fault_and_two_operations_suffice() {
    let plan = padded();
    let wanted_fault = plan.faults[77].clone();
    let wanted_ops = [plan.ops[14].clone(), plan.ops[150].clone()];
    let fails = |plan: &Plan| {
        plan.faults.contains(&wanted_fault) && wanted_ops.iter().all(|op| plan.ops.contains(op))
    };
    let shrunk = shrink_watched(&plan, 1_000, fails);
    assert!(shrunk.is_minimal);
    assert_eq!(shrunk.plan.faults, [wanted_fault]);
    assert_eq!(shrunk.plan.ops, wanted_ops);
    assert_eq!(shrunk.plan.world.clients, 7, "clients keep the numbers that matter");
    assert_eq!(shrunk.plan.world.nodes, 5, "nodes too");
}

#[test]
fn shrinking_twice_changes_nothing() {
    for seed in 0..6 {
        let plan = Plan::draw(seed, Profile::Mixed, 10_000);
        let item_of = |plan: &Plan| plan.ops.iter().filter_map(|op| op.op.items()).count();
        let least = item_of(&plan).min(5);
        let fails = |smaller: &Plan| {
            item_of(smaller) >= least && smaller.faults.iter().any(|fault| fault.for_ms > 20)
        };
        let once = shrink_watched(&plan, u32::MAX, fails);
        assert!(once.is_minimal);
        assert_eq!(once.after.op_count, least);
        let twice = shrink_watched(&once.plan, u32::MAX, fails);
        assert_eq!(twice.plan, once.plan);
    }
}

#[test]
fn the_budget_holds() {
    for budget in [0, 1, 2, 3, 10, 40] {
        let shrunk = shrink_watched(&padded(), budget, fails_by_crash);
        assert!(!shrunk.is_minimal);
        assert_eq!(shrunk.run_count, budget);
        assert_eq!(shrunk.plan == padded(), budget < 3, "{budget}");
    }
}

#[test]
fn what_never_fails_stays() {
    let shrunk = shrink_watched(&padded(), u32::MAX, |_| false);
    assert_eq!(shrunk.plan, padded());
    assert!(shrunk.is_minimal);
    assert_eq!(shrunk.before, shrunk.after);
}

#[test]
fn what_always_fails_vanishes() {
    let shrunk = shrink_watched(&padded(), 1_000, |_| true);
    let mut least = plan_of(3, 3);
    least.filters.clear();
    (least.run_ms, least.world.shards, least.world.clients) = (1, 1, 1);
    assert_eq!(shrunk.plan, least);
    assert_eq!(
        shrunk.to_string(),
        format!(
            "0 of 101 faults, 0 of 200 operations, 0 of 461 items, 0 of 8 clients, 0 of 3 filters \
             after {} runs",
            shrunk.run_count
        )
    );
}

#[test]
fn joins_that_replacements_need_stay() {
    let mut plan = plan_of(3, 3);
    let fault = |at_ms, fault| FaultPlan { at_ms, for_ms: 0, fault };
    plan.faults = vec![
        fault(1, Fault::Join { via: Who::MetaLeader }),
        fault(2, Fault::Join { via: Who::MetaLeader }),
        fault(3, Fault::Replace { who: Who::Node(1) }),
    ];
    let fails =
        |plan: &Plan| plan.faults.iter().any(|fault| matches!(fault.fault, Fault::Replace { .. }));
    // The damage budget applies only because the first plan is within it.
    let shrunk = shrink_watched(&plan, 1_000, fails);
    let classes: Vec<&str> = shrunk.plan.faults.iter().map(|plan| plan.fault.class()).collect();
    assert_eq!(classes, ["join", "replace"]);
    plan.faults.drain(..2);
    plan.faults.push(fault(4, Fault::Replace { who: Who::Node(2) }));
    assert!(plan.excess_damage().is_some());
    assert_eq!(shrink_watched(&plan, 1_000, fails).plan.faults.len(), 1);
}

#[test]
fn sessions_go_all_at_once_unless_they_matter() {
    let plan = Plan::draw(1, Profile::Reconcile, 10_000);
    let last = *plan.scenarios.last().unwrap();
    let shrunk = shrink_watched(&plan, 1_000, |plan| plan.scenarios.contains(&last)).plan;
    assert_eq!(shrunk.scenarios, [last]);
    assert!(shrunk.sets.unwrap().growth.is_empty());
    assert!(shrunk.run_ms <= last.at_ms + 1, "{}", shrunk.run_ms);
    let beside = Plan { sets: plan.sets, scenarios: plan.scenarios, ..padded() };
    let shrunk = shrink_watched(&beside, 1_000, fails_by_crash).plan;
    assert_eq!((shrunk.sets, shrunk.scenarios.len()), (None, 0));
}

#[test]
fn a_cluster_beside_sessions_goes_at_once() {
    let Plan { sets, scenarios, .. } = Plan::draw(1, Profile::Reconcile, 10_000);
    let last = *scenarios.last().unwrap();
    let mut plan = Plan { sets, scenarios, ..padded() };
    (plan.zones, plan.world.resp_from) = (vec![1, 2], 5);
    let once = shrink_watched(&plan, 1, |plan| plan.scenarios.contains(&last)).plan;
    let mut bare = plan.clone();
    (bare.filters, bare.ops, bare.faults) = (Vec::new(), Vec::new(), Vec::new());
    (bare.zones, bare.provoked) = (Vec::new(), Vec::new());
    (bare.world.nodes, bare.world.resp_from) = (0, 0);
    assert_eq!(once, bare);
    let shrunk = shrink_watched(&plan, 1_000, |plan| plan.scenarios.contains(&last)).plan;
    assert_eq!(shrunk.scenarios, [last]);
    assert_eq!((shrunk.world.nodes, shrunk.world.shards, shrunk.world.clients), (0, 1, 1));
}

#[test]
fn a_port_that_nobody_needs_is_closed() {
    let mut plan = padded();
    plan.world.resp_from = 5;
    let shape = |fails: fn(&Plan) -> bool| {
        let Plan { world, ops, .. } = shrink_watched(&plan, 1_000, fails).plan;
        (world.resp_from, world.clients, ops.len())
    };
    assert_eq!(shape(|_| true), (0, 1, 0));
    assert_eq!(shape(fails_by_crash), (0, 2, 2));
    // It may matter without a client that uses it.
    assert_eq!(shape(|plan| plan.world.resp_from > 0), (1, 1, 0));
}

#[test]
fn clients_keep_their_protocol() {
    let mut plan = padded();
    plan.world.resp_from = 5;
    let has = |plan: &Plan, speaks_resp: bool| {
        plan.ops.iter().any(|op| plan.world.speaks_resp(op.client) == speaks_resp)
    };
    let shape = |plan: &Plan| {
        let clients: BTreeSet<u32> = plan.ops.iter().map(|op| op.client).collect();
        (plan.world.resp_from, plan.world.clients, clients.into_iter().collect::<Vec<_>>())
    };
    let shrunk = shrink_watched(&plan, 1_000, |plan| has(plan, true)).plan;
    assert_eq!(shape(&shrunk), (1, 2, vec![1]));
    let shrunk = shrink_watched(&plan, 1_000, |plan| has(plan, true) && has(plan, false)).plan;
    assert_eq!(shape(&shrunk), (1, 2, vec![0, 1]));
}
