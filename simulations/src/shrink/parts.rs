//! The parts of a plan that can be removed or made smaller.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Trials;
use crate::plan::identity::IdentityPlan;
use crate::plan::quota::HoldingPlan;
use crate::plan::{Fault, Op, Plan, Who};

/// Tries to shrink every kind of part once, beginning with those whose removal simplifies the plan most.
pub(super) fn shrink_once(trials: &mut Trials<'_>) {
    trials.change(drop_cluster);
    trials.thin_list(|plan| Some(&mut plan.faults));
    trials.thin_list(|plan| Some(&mut plan.ops));
    trials.thin_list(|plan| Some(&mut plan.jobs));
    trials.change(|plan| {
        plan.sets = None;
        plan.scenarios.clear();
    });
    trials.thin_list(|plan| Some(&mut plan.sets.as_mut()?.growth));
    trials.thin_list(|plan| Some(&mut plan.scenarios));
    trials.thin_list(|plan| Some(&mut plan.access.as_mut()?.asks));
    trials.thin_list(|plan| Some(&mut plan.access.as_mut()?.changes));
    shrink_holding(trials);
    shrink_identities(trials);
    trials.thin(|plan| clients(plan).len(), remove_clients);
    trials.thin(item_count, remove_items);
    shrink_copies(trials);
    trials.thin_list(|plan| Some(&mut plan.provoked));
    trials.thin(|plan| plan.filters.len(), remove_filters);
    shrink_world(trials);
    shrink_lengths(trials);
    shrink_run(trials);
}

/// Shrinks quotas: all at once, then the holders' calls, then the changes of quotas.
fn shrink_holding(trials: &mut Trials<'_>) {
    trials.change(|plan| plan.access.iter_mut().for_each(|access| access.holding = None));
    trials.thin_list(|plan| Some(&mut holding(plan)?.calls));
    trials.thin_list(|plan| Some(&mut holding(plan)?.limits));
}

fn holding(plan: &mut Plan) -> Option<&mut HoldingPlan> {
    plan.access.as_mut()?.holding.as_mut()
}

/// Shrinks certificates: all at once, then the calls with wrong ones, then those that lapse.
fn shrink_identities(trials: &mut Trials<'_>) {
    trials.change(|plan| plan.access.iter_mut().for_each(|access| access.identities = None));
    trials.thin_list(|plan| Some(&mut identities(plan)?.impostors));
    trials.thin_list(|plan| Some(&mut identities(plan)?.lapses));
}

fn identities(plan: &mut Plan) -> Option<&mut IdentityPlan> {
    plan.access.as_mut()?.identities.as_mut()
}

/// The clients that make calls, in the order of their numbers.
fn clients(plan: &Plan) -> Vec<u32> {
    let clients: BTreeSet<u32> = plan.ops.iter().map(|op| op.client).collect();
    clients.into_iter().collect()
}

fn remove_clients(plan: &mut Plan, chunk: Range<usize>) {
    let gone = clients(plan)[chunk].to_vec();
    plan.ops.retain(|op| !gone.contains(&op.client));
}

/// The number of items of all operations.
fn item_count(plan: &Plan) -> usize {
    plan.ops.iter().filter_map(|op| op.op.items()).map(<[u32]>::len).sum()
}

/// Removes items, numbered through all operations, and the operations that have none left.
fn remove_items(plan: &mut Plan, chunk: Range<usize>) {
    let mut number = 0;
    plan.ops.retain_mut(|op| {
        let Some(items) = op.op.items_mut() else {
            return true;
        };
        items.retain(|_| {
            number += 1;
            !chunk.contains(&(number - 1))
        });
        !items.is_empty()
    });
}

fn remove_filters(plan: &mut Plan, chunk: Range<usize>) {
    let gone: Vec<String> = plan.filters.drain(chunk).map(|filter| filter.name).collect();
    plan.ops
        .retain(|op| op.op.filter_names().all(|(_, name)| !gone.iter().any(|gone| gone == name)));
}

fn copies_mut(op: &mut Op) -> Option<&mut u32> {
    if let Op::Insert { copies, .. } = op { Some(copies) } else { None }
}

/// Reduces the copies of inserts: all to one, else each to one, else each by one at a time.
fn shrink_copies(trials: &mut Trials<'_>) {
    trials.change(|plan| {
        plan.ops.iter_mut().filter_map(|op| copies_mut(&mut op.op)).for_each(|copies| *copies = 1);
    });
    for index in 0..trials.best.ops.len() {
        let set = |plan: &mut Plan, to: fn(u32) -> u32| {
            if let Some(copies) = copies_mut(&mut plan.ops[index].op) {
                *copies = to(*copies);
            }
        };
        if !trials.change(|plan| set(plan, |_| 1)) {
            while trials.change(|plan| set(plan, |copies| copies.saturating_sub(1))) {}
        }
    }
}

/// Drops zones and the port of the Redis protocol, and reduces clients, shards and nodes, to no fewer nodes than the
/// faults name.
fn shrink_world(trials: &mut Trials<'_>) {
    trials.change(|plan| plan.zones.clear());
    trials.change(|plan| plan.world.resp_from = 0);
    trials.change(renumber_clients);
    trials.change(|plan| {
        plan.world.clients = clients(plan).last().map_or(1, |client| client + 1);
        // The port stays open, also if no client is left that uses it: to close it is a trial of its own.
        plan.world.resp_from = plan.world.resp_from.min(plan.world.clients);
    });
    for fewer in 1..trials.best.world.shards {
        if trials.change(|plan| plan.world.shards = fewer) {
            break;
        }
    }
    // Fewer nodes than replicas would change the damage budget and the quorums.
    let least = trials.best.world.replicas.max(last_named_node(&trials.best));
    for fewer in least..trials.best.world.nodes {
        let has_changed = trials.change(|plan| {
            plan.world.nodes = fewer;
            // The node that a client asks first hardly matters, because other nodes answer, too.
            for op in &mut plan.ops {
                op.via = (op.via - 1) % fewer + 1;
            }
        });
        if has_changed {
            break;
        }
    }
}

/// Leaves nothing but sets and their sessions, if there are sets: these need no node.
fn drop_cluster(plan: &mut Plan) {
    if plan.sets.is_none() {
        return;
    }
    plan.filters.clear();
    plan.ops.clear();
    plan.jobs.clear();
    plan.faults.clear();
    plan.access = None;
    plan.zones.clear();
    plan.provoked.clear();
    (plan.world.nodes, plan.world.resp_from) = (0, 0);
}

/// Gives the clients that make calls the first numbers. Those from `resp_from` on speak the Redis protocol, and client
/// 0 never does, so they keep it free if there are no others.
fn renumber_clients(plan: &mut Plan) {
    let clients = clients(plan);
    let place = |number: u32| {
        let before = clients.partition_point(|client| *client < number);
        u32::try_from(before).unwrap_or(u32::MAX)
    };
    let from = place(plan.world.resp_from);
    let shift = u32::from(plan.world.resp_from > 0 && from == 0);
    if plan.world.resp_from > 0 {
        plan.world.resp_from = from + shift;
    }
    for op in &mut plan.ops {
        op.client = place(op.client) + shift;
    }
    let count = u32::try_from(clients.len()).unwrap_or(u32::MAX);
    plan.world.clients = count.saturating_add(shift).max(1);
}

/// The largest number of a node that a fault names; 0 if none does.
fn last_named_node(plan: &Plan) -> u32 {
    let named = plan.faults.iter().map(|fault| match (&fault.fault, fault.fault.who()) {
        (_, Some(Who::Node(node))) => node,
        (Fault::Split { left }, _) => left.iter().max().copied().unwrap_or(0),
        (Fault::Bridge { middle }, _) => *middle,
        (Fault::SwapDisks { one, other }, _) => *one.max(other),
        _ => 0,
    });
    named.max().unwrap_or(0)
}

/// Halves the lengths of faults: of all together, then of each.
fn shrink_lengths(trials: &mut Trials<'_>) {
    let halve_all = |plan: &mut Plan| plan.faults.iter_mut().for_each(|fault| fault.for_ms /= 2);
    while trials.change(halve_all) {}
    for index in 0..trials.best.faults.len() {
        while trials.change(|plan| plan.faults[index].for_ms /= 2) {}
    }
}

/// Ends the run just after the last event, or as early as possible.
fn shrink_run(trials: &mut Trials<'_>) {
    let ends_ms = |plan: &Plan| {
        let faults = plan.faults.iter().map(|fault| fault.end_ms(plan.world.nodes));
        let sessions = plan.scenarios.iter().map(|scenario| scenario.at_ms);
        let growth = plan.sets.iter().flat_map(|sets| &sets.growth).map(|growth| growth.at_ms);
        let ops = plan.ops.iter().map(|op| op.at_ms);
        ops.chain(faults).chain(sessions).chain(growth).max().unwrap_or(0)
    };
    let least_ms = ends_ms(&trials.best) + 1;
    if least_ms < trials.best.run_ms && !trials.change(|plan| plan.run_ms = least_ms) {
        while trials.best.run_ms > least_ms
            && trials.change(|plan| plan.run_ms = plan.run_ms.midpoint(least_ms))
        {}
    }
}
