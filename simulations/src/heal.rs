//! The phase after the faults: all nodes come back, serve requests, and agree.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use umbel_engine::GroupId;
use umbel_node::ports::observer::GroupReport;
use umbel_ports::Rare;

use crate::counters;
use crate::history::Outcome;
use crate::host::Condition;
use crate::now::now_us;
use crate::plan::{FilterPlan, Op, OpPlan, Plan};
use crate::trace;
use crate::watch;
use crate::workload::Clients;
use crate::world::World;

pub(crate) mod access;
mod copies;
pub(crate) mod jobs;
mod quotas;
mod resp;
mod shards;
mod zones;

/// Maximum time after the end of all faults until every shard serves requests.
const SERVE_MAX_US: u64 = 30_000_000;

/// Maximum time after that until all replicas are equal and every node is back: lost nodes are removed,
/// join again and get replicas.
const SYNC_MAX_US: u64 = 120_000_000;

/// The same for runs in which nothing failed and only an operator gave commands, unless moves are slowed: no
/// node has to wait out a timeout.
const SYNC_CALM_MAX_US: u64 = 20_000_000;

/// Number of writes, and of reads, that every shard must serve.
const ROUNDS: u32 = 10;

/// Items per shard in each round: enough that a shard is left out only with probability 3 in 10^4.
const ITEMS_PER_SHARD: u32 = 8;

/// Items per batch when everything is read back.
const READ_BACK_ITEMS: usize = 500;

/// First number of the items of these rounds, which no plan uses.
const FIRST_ITEM: u32 = 20_000_000;

/// Lets the world heal and checks that it does.
///
/// # Errors
/// If a host's task panicked.
pub(crate) fn heal(world: &mut World, work: &Rc<Cell<bool>>) -> Result<(), String> {
    let healed_us = now_us();
    trace::line(healed_us, "world", "heal", format_args!(""));
    crate::faults::count_effects(world);
    for host in world.hosts.clone() {
        if matches!(*host.condition.borrow(), Condition::Down) {
            world.start(host.number);
        }
    }
    let name = steady_filter(world);
    let last = Rc::new(std::cell::RefCell::new(String::new()));
    let shards = shard_count(world);
    let renamed = renamed_filters(&world.plan);
    let is_renamed = name.as_ref().is_some_and(|name| renamed.contains(name));
    let serving = serve(Rc::clone(&world.clients), (name, is_renamed), shards, Rc::clone(&last));
    let served = world.spawn(serving);
    let within = run_until(world, healed_us + SERVE_MAX_US, |_| served.get())?;
    counters::checked("heals_and_serves", 1);
    if !within {
        let what = format!(
            "a shard does not serve {} s after the last fault: {}; {}",
            SERVE_MAX_US / 1_000_000,
            last.borrow(),
            conditions(world)
        );
        watch::violated("heals_and_serves", what);
    }
    if world.is_violated() {
        return Ok(());
    }
    let is_in_sync = |world: &mut World| work.get() && out_of_sync(world).is_none();
    let is_calm = !world.provokes(Rare::SlowMoves)
        && world.plan.faults.iter().all(|fault| fault.fault.is_order());
    let sync_max_us = if is_calm { SYNC_CALM_MAX_US } else { SYNC_MAX_US };
    counters::checked("heals_and_agrees", 1);
    if !run_until(world, healed_us + sync_max_us, is_in_sync)? && !world.is_violated() {
        let why = out_of_sync(world).unwrap_or_else(|| "a call has not ended".to_owned());
        let seconds = sync_max_us / 1_000_000;
        let what = format!("{seconds} s after the last fault {why}; {}", conditions(world));
        watch::violated("heals_and_agrees", what);
    }
    if world.is_violated() {
        return Ok(());
    }
    if let Some(what) = resp::unanswered(&world.plan, &world.clients.calls()) {
        watch::violated("heals_and_serves", what);
    }
    zones::heal(world)?;
    if world.is_violated() {
        return Ok(());
    }
    copies::heal(world)?;
    shards::rot(world)?;
    if world.is_violated() {
        return Ok(());
    }
    let read = world.spawn(read_back(Rc::clone(&world.clients), Rc::clone(&world.plan), renamed));
    if !run_until(world, now_us() + SERVE_MAX_US, |_| read.get())? && !world.is_violated() {
        watch::violated("heals_and_serves", "items cannot be read back".to_owned());
    }
    if !world.is_violated() {
        access::heal(world)?;
    }
    if world.is_violated() { Ok(()) } else { quotas::heal(world) }
}

/// Current number of shards.
fn shard_count(world: &World) -> u32 {
    let split = watch::with(|checks| checks.reference.meta().shard_count());
    world.plan.world.shards.max(split)
}

/// Advances the world until a condition holds, an invariant is violated, or it is too late; returns
/// whether the condition holds.
fn run_until(
    world: &mut World,
    deadline_us: u64,
    mut holds: impl FnMut(&mut World) -> bool,
) -> Result<bool, String> {
    loop {
        if holds(world) {
            return Ok(true);
        }
        if now_us() >= deadline_us || world.is_violated() {
            return Ok(false);
        }
        // Several ticks at once, because the check costs more than a tick.
        for _ in 0..20 {
            world.step()?;
        }
        for host in world.hosts.clone() {
            // A node that has just finished stopping.
            if matches!(*host.condition.borrow(), Condition::Down) {
                world.start(host.number);
            }
        }
    }
}

/// Advances the world until nothing is wrong, an invariant is violated, or `patience_us` are over; returns what is
/// wrong then, unless an invariant is violated.
fn wait_for_none(
    world: &mut World,
    patience_us: u64,
    wrong: impl Fn(&World) -> Option<String>,
) -> Result<Option<String>, String> {
    let is_right = |world: &mut World| wrong(world).is_none();
    let is_over = run_until(world, now_us() + patience_us, is_right)? || world.is_violated();
    Ok(if is_over { None } else { wrong(world) })
}

/// A filter that is never dropped, cleared or full, and does not expire.
fn steady_filter(world: &World) -> Option<String> {
    let is_steady = |name: &str| {
        !world.plan.ops.iter().any(|op| match &op.op {
            Op::Clear { filter }
            | Op::Create { filter }
            | Op::Drop { filter }
            | Op::Take { filter }
            | Op::ExpireIn { filter, .. } => filter == name,
            _ => false,
        })
    };
    // A full table rejects items, and in a cuckoo filter items that are inserted repeatedly fill their
    // buckets early.
    let is_open = |filter: &&FilterPlan| !filter.replicated && !filter.kind.can_be_full();
    let partitioned = world.plan.filters.iter().filter(is_open);
    let names = partitioned.map(|filter| filter.name.clone());
    names.into_iter().find(|name| is_steady(name))
}

/// Filters that are renamed for a while.
fn renamed_filters(plan: &Plan) -> BTreeSet<String> {
    let renamed = plan.ops.iter().filter_map(|op| match &op.op {
        Op::Rename { filter } => Some(filter.clone()),
        _ => None,
    });
    renamed.collect()
}

/// Writes to a filter and queries it. A renamed filter may still have its other name, or get it now:
/// then it is renamed back.
async fn serve(
    clients: Rc<Clients>,
    (filter, is_renamed): (Option<String>, bool),
    shards: u32,
    last: Rc<std::cell::RefCell<String>>,
) {
    let Some(filter) = filter else { return };
    for round in 0..ROUNDS {
        let first = FIRST_ITEM + round * shards * ITEMS_PER_SHARD;
        let items: Vec<u32> = (first..first + shards * ITEMS_PER_SHARD).collect();
        let insert = Op::Insert { filter: filter.clone(), items: items.clone(), copies: 1 };
        let contains = Op::Contains { filter: filter.clone(), items, any: false };
        for op in [insert, contains] {
            loop {
                let plan = OpPlan { at_ms: 0, client: 0, via: 1, op: op.clone() };
                match Rc::clone(&clients).call(plan).await {
                    Outcome::Done(_) => break,
                    Outcome::NotApplied(text) | Outcome::Unknown(text) | Outcome::Reused(text) => {
                        last.replace(text);
                        if is_renamed {
                            clients.rename_back(0, 1, &filter).await;
                        }
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        }
    }
}

/// Queries every item that the plan names, so that the history ends with the final contents.
async fn read_back(clients: Rc<Clients>, plan: Rc<Plan>, renamed: BTreeSet<String>) {
    for filter in &renamed {
        clients.rename_back(0, 1, filter).await;
    }
    let mut named: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for op in &plan.ops {
        if let Op::Insert { filter, items, .. }
        | Op::AddNew { filter, items }
        | Op::AddOne { filter, items } = &op.op
        {
            named.entry(filter).or_default().extend(items);
        }
    }
    for (filter, items) in named {
        let items: Vec<u32> = items.into_iter().collect();
        for batch in items.chunks(READ_BACK_ITEMS) {
            let op = Op::Contains { filter: filter.to_owned(), items: batch.to_vec(), any: false };
            // A refusal because the filter was dropped is an answer, too.
            Rc::clone(&clients).call(OpPlan { at_ms: 0, client: 0, via: 1, op }).await;
        }
    }
}

/// Describes what is not in its final state yet; `None` if everything is.
fn out_of_sync(world: &World) -> Option<String> {
    // A node that is being retired runs until then; its machine gets a new node afterwards.
    if let Some(number) = world.retiring().next() {
        return Some(format!("n{number} is being retired"));
    }
    let (shards, wanted) = watch::with(|checks| {
        let meta = checks.reference.meta();
        let is_split_on = meta.auto_split() == Some(true);
        (meta.shard_count(), if is_split_on { meta.shards_wanted() } else { 0 })
    });
    if shards < wanted {
        return Some(format!("there are {shards} shards, and the cluster wants {wanted}"));
    }
    let mut groups: BTreeMap<GroupId, Vec<(u64, GroupReport)>> = BTreeMap::new();
    let mut alive = BTreeSet::new();
    for host in &world.hosts {
        let Some(node) = host.node() else { return Some(format!("{} is not up", host.name)) };
        alive.insert(node.id().0);
        for report in node.groups() {
            groups.entry(report.group).or_default().push((node.id().0, report));
        }
    }
    let shards = usize::try_from(shard_count(world)).expect("a few shards");
    if groups.len() != shards + 1 {
        return Some(format!("{} of {} groups have a replica", groups.len(), shards + 1));
    }
    groups.into_iter().find_map(|(group, reports)| {
        disagreement(&reports, &alive).map(|what| format!("{group:#}: {what}"))
    })
}

fn disagreement(reports: &[(u64, GroupReport)], alive: &BTreeSet<u64>) -> Option<String> {
    let leaders: Vec<u64> =
        reports.iter().filter(|(_, report)| report.is_leader).map(|(node, _)| *node).collect();
    let [leader] = leaders[..] else { return Some(format!("{leaders:?} lead it")) };
    let (_, led) = reports.iter().find(|(node, _)| *node == leader)?;
    let [voters] = &led.voters[..] else {
        return Some(format!("its members are changing: {:?}", led.voters));
    };
    for voter in voters {
        if !alive.contains(&voter.0) {
            return Some(format!("{voter} votes and does not run"));
        }
        let Some((_, report)) = reports.iter().find(|(node, _)| *node == voter.0) else {
            return Some(format!("{voter} votes and has no replica"));
        };
        if report.failure.is_some() {
            return Some(format!("{voter} has failed: {:?}", report.failure));
        }
        if report.leader.map(|leader| leader.0) != Some(leader) {
            return Some(format!("{voter} follows {:?}, not {leader}", report.leader));
        }
        if report.applied.map(|entry| entry.index) != led.last {
            return Some(format!("{voter} applied {:?} of {:?}", report.applied, led.last));
        }
        if report.voters != led.voters {
            return Some(format!("{voter} knows other members"));
        }
    }
    None
}

fn conditions(world: &World) -> String {
    let condition = |host: &Rc<crate::host::Host>| {
        let text = match &*host.condition.borrow() {
            Condition::Down => "down".to_owned(),
            Condition::Starting => "starting".to_owned(),
            Condition::Up(node) => format!("up as {}", node.id()),
            Condition::Failed(failure) => format!("failed: {failure:?}"),
        };
        format!("{} {text}", host.name)
    };
    world.hosts.iter().map(condition).collect::<Vec<_>>().join(", ")
}
