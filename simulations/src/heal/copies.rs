//! Copies of replicated filters, compared at the end of a run.

use std::rc::Rc;

use super::{FIRST_ITEM, run_until, wait_for_none};
use crate::counters;
use crate::history::{Call, Outcome};
use crate::invariants::copies_converge::{self, Wanted};
use crate::invariants::copies_forget::forgets;
use crate::now::now_us;
use crate::oracle::generations::{GenerationLife, Generations, NamedLife};
use crate::plan::{Ack, Op, OpPlan};
use crate::watch;
use crate::workload::Clients;
use crate::world::World;
use crate::world::copies::{copies_of, look};

/// After the end of all faults, the copies of a filter serve calls within this time, and a flush succeeds
/// within the same time.
const SERVE_MAX_US: u64 = 60_000_000;

/// Without a flush, copies are equal within this time: a node begins a sweep after 30 s without one.
const QUIET_MAX_US: u64 = 90_000_000;

/// How many writes, and as many reads, copies must serve.
const ROUNDS: u32 = 3;

/// Items of each write or read.
const ROUND_ITEMS: u32 = 8;

/// Lets replicated filters heal and checks that they do.
///
/// # Errors
/// If a host's task panicked.
pub(super) fn heal(world: &mut World) -> Result<(), String> {
    let names: Vec<String> = watch::with(|checks| {
        let lives =
            |lives: &[GenerationLife]| lives.last().is_some_and(|life| life.to_us == u64::MAX);
        let all = checks.generations.all().filter(|(_, all)| lives(all));
        all.map(|(name, _)| name.to_owned()).collect()
    });
    let uses_flush = world.plan.seed.is_multiple_of(2);
    let nodes = world.plan.world.nodes;
    for name in &names {
        serve(world, name, inserts_and_questions(name, nodes))?;
    }
    if uses_flush {
        // A flush covers the nodes that are members when it is requested: a host that comes back with a
        // new node id may be admitted while the flush is in progress.
        if let Some(what) = wait_for_none(world, QUIET_MAX_US, without_copy)? {
            watch::violated(copies_converge::NAME, format!("after a long time {what}"));
        }
        let via = 2 * ROUNDS % nodes + 1;
        for name in &names {
            serve(world, name, vec![(via, Op::Flush { filter: name.clone() })])?;
        }
    }
    if world.is_violated() {
        return Ok(());
    }
    // After a flush, copies must be equal at once; otherwise they have some time. Copies that forget by
    // time have it, too, because they are equal only once all of them have reached the same slice.
    let is_timed = watch::with(|checks| {
        let mut lives = checks.generations.all().filter_map(|(_, lives)| lives.last());
        lives.any(|life| forgets(&life.settings))
    });
    let patience_us = if uses_flush && !is_timed { 0 } else { QUIET_MAX_US };
    if let Some(what) = wait_for_none(world, patience_us, difference)? {
        let after = if uses_flush { "after a flush" } else { "after a long time" };
        watch::violated(copies_converge::NAME, format!("{after} {what}"));
    }
    rot(world)?;
    // A flush of one filter does not cover another one whose drop a node has not learned of.
    if let Some(what) = wait_for_none(world, QUIET_MAX_US, lingering)? {
        watch::violated(copies_converge::NAME, format!("after a long time {what}"));
    }
    look(&world.hosts, &world.clients.calls());
    Ok(())
}

/// Clears bits of copies that their versions cover, which only a comparison of copies detects.
///
/// # Errors
/// If a host's task panicked.
fn rot(world: &mut World) -> Result<(), String> {
    let every = usize::try_from(world.plan.world.rot_every).unwrap_or(usize::MAX);
    if every == 0 || world.is_violated() {
        return Ok(());
    }
    let filters: Vec<_> = watch::with(|checks| {
        let all = checks.generations.all().filter_map(|(_, all)| all.last());
        all.filter(|life| life.to_us == u64::MAX).map(|life| life.filter).collect()
    });
    let nodes =
        world.hosts.iter().filter(|host| host.number % 2 == 1).filter_map(|host| host.node());
    let lost_count: u64 = nodes
        .flat_map(|node| filters.iter().map(move |&filter| node.rot_copy(filter, every)))
        .sum();
    if lost_count > 0 && difference(world).is_some() {
        counters::state("copies_lost_bits");
    }
    if let Some(what) = wait_for_none(world, QUIET_MAX_US, difference)? {
        let what = format!("a long time after copies lost {lost_count} bits {what}");
        watch::violated(copies_converge::NAME, what);
    }
    Ok(())
}

/// Inserts into a filter and as many queries, each sent to the next node.
fn inserts_and_questions(filter: &str, nodes: u32) -> Vec<(u32, Op)> {
    let filter = filter.to_owned();
    let ops = (0..ROUNDS).flat_map(|round| {
        let first = FIRST_ITEM + round * ROUND_ITEMS;
        let items: Vec<u32> = (first..first + ROUND_ITEMS).collect();
        let ack = [Ack::Majority, Ack::OnePartner, Ack::Local][round as usize % 3];
        [
            Op::InsertCopy { filter: filter.clone(), items: items.clone(), ack },
            Op::ContainsCopy { filter: filter.clone(), items, majority: true },
        ]
    });
    (1..=nodes).cycle().zip(ops).collect()
}

/// Makes calls on a replicated filter, each until it is done, and checks that they end within their time.
///
/// # Errors
/// If a host's task panicked.
fn serve(world: &mut World, filter: &str, ops: Vec<(u32, Op)>) -> Result<(), String> {
    if world.is_violated() {
        return Ok(());
    }
    let last = Rc::new(std::cell::RefCell::new(String::new()));
    let calls = call_until_done(Rc::clone(&world.clients), ops, Rc::clone(&last));
    let served = world.spawn(calls);
    if !run_until(world, now_us() + SERVE_MAX_US, |_| served.get())? && !world.is_violated() {
        let seconds = SERVE_MAX_US / 1_000_000;
        let what = format!("copies of {filter} do not serve within {seconds} s: {}", last.borrow());
        watch::violated("heals_and_serves", what);
    }
    Ok(())
}

/// Makes each call at the node of its number, and repeats it until it is done. `last` gets the last
/// failure.
async fn call_until_done(
    clients: Rc<Clients>,
    ops: Vec<(u32, Op)>,
    last: Rc<std::cell::RefCell<String>>,
) {
    for (via, op) in ops {
        loop {
            let plan = OpPlan { at_ms: 0, client: 0, via, op: op.clone() };
            match Rc::clone(&clients).call(plan).await {
                Outcome::Done(bits) if !matches!(op, Op::Flush { .. }) || bits == [true] => break,
                Outcome::Done(_) => last.replace("a flush misses a node".to_owned()),
                Outcome::NotApplied(text) | Outcome::Unknown(text) | Outcome::Reused(text) => {
                    last.replace(format!("{op:?}: {text}"))
                }
            };
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

/// Describes a live filter of which some running node has no copy; None if there is none.
fn without_copy(world: &World) -> Option<String> {
    let nodes = world.hosts.iter().filter(|host| host.is_up()).count();
    watch::with(|checks| {
        checks.generations.all().find_map(|(name, lives)| {
            let last = lives.last().filter(|life| life.to_us == u64::MAX)?;
            let copies = copies_of(&world.hosts, last).len();
            (copies != nodes).then(|| format!("{copies} of {nodes} nodes have a copy of {name}"))
        })
    })
}

/// Describes a copy of a dropped filter that still exists; None if all are gone.
fn lingering(world: &World) -> Option<String> {
    watch::with(|checks| {
        checks.generations.all().find_map(|(_, lives)| {
            let last = lives.last()?;
            let is_gone =
                |life: &&GenerationLife| life.filter != last.filter || last.to_us != u64::MAX;
            let dropped = lives.iter().filter(is_gone);
            let copy = dropped.flat_map(|life| copies_of(&world.hosts, life)).next()?;
            Some(format!("{} still has {}, which was dropped", copy.host, copy.filter))
        })
    })
}

/// Describes how copies of a live filter differ from each other or from what is expected; None if they do
/// not.
fn difference(world: &World) -> Option<String> {
    let calls = world.clients.calls();
    let losses_max = (world.plan.world.nodes as usize).div_ceil(2) - 1;
    watch::with(|checks| {
        let generations = &checks.generations;
        generations.all().find_map(|(name, lives)| {
            let last = lives.last()?;
            if last.to_us != u64::MAX {
                return None;
            }
            let of = NamedLife { name, place: lives.len() - 1, life: last };
            of_filter(world, generations, &calls, of, losses_max)
        })
    })
}

fn of_filter(
    world: &World,
    generations: &Generations,
    calls: &[Call],
    of: NamedLife<'_>,
    losses_max: usize,
) -> Option<String> {
    let copies = copies_of(&world.hosts, of.life);
    let nodes = world.hosts.iter().filter(|host| host.is_up()).count();
    if copies.len() != nodes {
        return Some(format!("{} of {nodes} nodes have a copy of {}", copies.len(), of.name));
    }
    let wanted = Wanted::new(generations, calls, of, losses_max);
    let count = wanted.item_count().max(1) * copies.len();
    counters::checked(copies_converge::NAME, count as u64);
    wanted.difference(&copies)
}
