//! One run of a plan, from its first step to its verdict.

use std::rc::Rc;

use crate::faults::Nemesis;
use crate::history::{Call, facts};
use crate::invariants::{
    check_copies, check_expiries, check_failover, check_history, drained_gets_none, epoch_rises,
};
use crate::now::{now_us, set_now_us};
use crate::plan::Plan;
use crate::profile::Profile;
use crate::reconcile::Sessions;
use crate::report::{RunReport, report};
use crate::violation::Violation;
use crate::watch::{self, Checks};
use crate::world::World;
use crate::{access, counters, heal, trace};

/// States that many runs together must reach: a state that never occurs is not tested.
const STATES: [&str; 22] = [
    "absent_lost_race",
    "damage_found",
    "expiry_lost_race",
    "filter_expired",
    "joint_configuration",
    "log_purged",
    "log_truncated",
    "node_replaced",
    "resp_answered",
    "resp_any_replica",
    "resp_broken_off",
    "resp_copy_deleted",
    "resp_expiry_set",
    "resp_named_retried",
    "resp_new_added",
    "resp_taken",
    "resp_time_set",
    "snapshot_built",
    "snapshot_loaded",
    "split_at_quota",
    "storage_failed",
    "take_lost_race",
];

/// Promises that are checked where something happens, and that many runs with nodes together must check. Those on
/// complete histories and on jobs count themselves.
const CHECKS: [&str; 7] = [
    "generation_is_checked",
    "heals_and_agrees",
    "heals_and_serves",
    "identity_holds",
    "misses_are_few",
    "ranges_tile",
    "shape_is_checked",
];

/// Runs a plan to its end. This process must not have run another one before.
pub(crate) fn run(plan: &Plan) -> RunReport {
    watch::begin();
    counters::announce_states(&STATES);
    set_now_us(0);
    if plan.world.nodes > 0 {
        counters::announce_checks(&CHECKS);
    }
    let mut world = World::build(plan);
    let mut sessions = Sessions::new(plan);
    let verdict = live(&mut world, &mut sessions);
    let simulated_ms = now_us() / 1000;
    let mut checks = watch::end();
    let mut violations = std::mem::take(&mut checks.violations);
    if let Err(what) = verdict
        && violations.is_empty()
    {
        let violation = Violation { invariant: "no_panic", at_us: now_us(), what };
        violation.trace();
        violations.push(violation);
    }
    let calls = world.clients.calls().clone();
    if !world.hosts.is_empty() {
        check_cluster(plan, &calls, &checks, &mut violations);
    }
    let mut report = report(plan, simulated_ms, &calls, violations);
    sessions.add_to(&mut report);
    report
}

/// Counts what was checked of the nodes while they ran and, unless that found violations, checks the history
/// of their clients.
fn check_cluster(plan: &Plan, calls: &[Call], checks: &Checks, violations: &mut Vec<Violation>) {
    counters::checked("raft", checks.raft.checked_count());
    let compared = checks.reference.compared();
    counters::checked("replicas_agree", compared.entries + compared.states + compared.snapshots);
    counters::checked(epoch_rises::NAME, checks.placements.count());
    counters::checked(drained_gets_none::NAME, checks.placements.count());
    if !violations.is_empty() {
        return;
    }
    let facts = facts(plan);
    let mut checked = check_history(calls, &facts, &checks.reference);
    checked.push(check_expiries(calls, &facts, &checks.reference, &checks.generations));
    if plan.filters.iter().any(|filter| filter.replicated) {
        checked.extend(check_copies(calls, &checks.generations));
    }
    if plan.profile == Profile::Failover.name() {
        checked.push(check_failover(calls, &facts, checks.leaders_reach.closed_us()));
    }
    for (invariant, count, found) in checked {
        counters::checked(invariant, count);
        found.iter().for_each(Violation::trace);
        violations.extend(found);
    }
}

/// Setup, faults, healing. An error if a task panicked or the run exceeded its time.
fn live(world: &mut World, sessions: &mut Sessions) -> Result<(), String> {
    if !world.set_up()? {
        return Ok(());
    }
    let began_us = now_us();
    trace::line(began_us, "world", "begin", format_args!("{}", world.plan.seed));
    let running = Rc::clone(&world.clients).run(world.plan.ops.clone());
    let work = world.spawn(running);
    let looking_after = Rc::clone(&world.users).run(world.plan.jobs.clone());
    let jobs = world.spawn(looking_after);
    if let (Some(clerk), Some(plan)) = (world.clerk.clone(), world.plan.access.clone()) {
        let net = world.clients_net.clone();
        world.asking = world.spawn(access::run(clerk, net, world.founders.clone(), plan));
    }
    sessions.begin(world);
    let mut nemesis = Nemesis::new(&world.plan, began_us);
    while now_us() < began_us + world.plan.run_ms * 1000 || sessions.is_busy() {
        nemesis.step(world);
        sessions.step(world);
        world.lapse(began_us);
        world.step()?;
        if world.is_violated() {
            return Ok(());
        }
    }
    nemesis.end_all(world);
    world.begin_healing();
    if !world.hosts.is_empty() {
        heal::heal(world, &work)?;
    }
    if !world.is_violated() {
        heal::jobs::heal(world, &jobs)?;
    }
    if world.is_violated() { Ok(()) } else { sessions.heal(world) }
}
