//! Draws plans from seeds: swarm testing, in which every seed leaves out some features and favours others
//! (Groce et al., ISSTA 2012, DOI 10.1145/2338965.2336763).

use umbel_ports::Rare;

use self::dice::{Dice, Stream};
use super::access::AccessPlan;
use super::damage::JOINS_MAX;
use super::identity::IdentityPlan;
use super::{Fault, FaultPlan, FilterPlan, OpPlan, PLAN_FORMAT, PLAN_LIMITS, Plan, WorldShape};
use crate::profile::Profile;

mod access;
mod across_splits;
mod closed_links;
mod copies;
mod deletions;
mod dice;
mod expiries;
mod faults;
mod filters;
mod identity;
mod jobs;
mod ops;
mod quota;
mod races;
mod recipes;
mod resp;
mod scenarios;

impl Plan {
    /// The plan of a seed; equal arguments always yield the same plan. Sizes, filters and operations,
    /// except those that go with splits, do not depend on the profile. The exceptions are
    /// [`Profile::Cube`], which is about replicated filters, [`Profile::Images`], which always has some
    /// of those, [`Profile::Jobs`], [`Profile::Moves`] and [`Profile::Failover`], which have worlds of
    /// their own, and [`Profile::Reconcile`], which has none of these parts.
    pub(crate) fn draw(seed: u64, profile: Profile, run_ms: u64) -> Self {
        let mut plan = match profile {
            Profile::Reconcile => Self::bare(seed, profile, run_ms, WorldShape::new(0, 1, 1, 1)),
            _ => Self::draw_cluster(seed, profile, run_ms),
        };
        let mut dice = Dice::new(seed, Stream::Scenarios);
        let has_sets = profile == Profile::Reconcile
            || profile == Profile::Mixed && dice.one_in(WORLDS_PER_SETS);
        if has_sets {
            let sets = scenarios::draw_sets(&mut dice, run_ms);
            let hosts = u32::try_from(sets.own.len()).expect("two or three");
            plan.scenarios = scenarios::draw(&mut dice, hosts, run_ms);
            plan.sets = Some(sets);
        }
        plan
    }

    /// A plan of nodes and their clients.
    fn draw_cluster(seed: u64, profile: Profile, run_ms: u64) -> Self {
        let is_cube = profile == Profile::Cube;
        let mut world_dice = Dice::new(seed, Stream::World);
        let world = match profile {
            Profile::Cube => draw_cube_world(&mut world_dice),
            Profile::Moves => draw_moving_world(&mut world_dice),
            Profile::Failover => draw_failover_world(&mut world_dice),
            _ => draw_world(&mut world_dice),
        };
        let is_failover = profile == Profile::Failover;
        let (scrub_s, rot_every) = if is_failover { (0, 0) } else { scrubs_of(seed) };
        let world = WorldShape { scrub_s, rot_every, ..world };
        let mut copies = Dice::new(seed, Stream::Copies);
        let is_jobs = profile == Profile::Jobs;
        let mut job_dice = Dice::new(seed, Stream::Jobs);
        let jobs = if is_jobs { jobs::draw(&mut job_dice, world, run_ms) } else { Vec::new() };
        let (mut filters, mut ops) = (Vec::new(), Vec::new());
        if is_jobs {
            // One filter, so that jobs are not all that the cluster has.
            filters = filters::draw(&mut Dice::new(seed, Stream::Filters));
            filters.truncate(1);
        } else if !is_cube || copies.one_in(4) {
            filters = filters::draw(&mut Dice::new(seed, Stream::Filters));
            ops = ops::draw(&mut Dice::new(seed, Stream::Ops), world, &filters, run_ms);
            let mut dice = Dice::new(seed, Stream::Snapshots);
            let more = ops::draw_snapshots(&mut dice, world, &filters, &ops, run_ms);
            // Snapshots and renames fence their filter, so that its callers wait; calls under `Failover`
            // must hardly wait.
            add(&mut ops, if is_failover { Vec::new() } else { more });
        }
        let has_copies = is_cube || profile == Profile::Images;
        if has_copies || !is_jobs && !is_failover && copies.one_in(3) {
            let (counts, calls) = if has_copies { ((1, 3), (10, 60)) } else { ((1, 2), (5, 20)) };
            let (more, calls) = copies::draw(&mut copies, (world, is_cube), counts, calls, run_ms);
            filters.extend(more);
            add(&mut ops, calls);
        }
        let access = (profile == Profile::Access).then(|| AccessPlan {
            holding: Some(quota::draw(&mut Dice::new(seed, Stream::Quotas), world, run_ms)),
            identities: draw_identities(seed, world, run_ms),
            ..access::draw(&mut Dice::new(seed, Stream::Access), world, run_ms)
        });
        let mut faults = faults::draw(&mut Dice::new(seed, Stream::Faults), world, profile, run_ms);
        closed_links::replace(&mut faults, seed, profile, run_ms);
        let world = add_splits(&mut faults, world, seed, profile, run_ms);
        let world = add_upgrade(&mut faults, world, seed, profile, run_ms);
        let mut dice = Dice::new(seed, Stream::AcrossSplits);
        add(&mut ops, across_splits::draw(&mut dice, world, &filters, &faults, run_ms));
        let world = add_resp(&mut ops, world, &filters, (seed, profile), run_ms);
        add_own(&mut filters, &mut ops, world, seed, run_ms);
        drop_joins(&mut faults, access.as_ref());
        Self {
            provoked: draw_provoked(&mut Dice::new(seed, Stream::Provoked), profile),
            zones: draw_zones(seed, world, profile),
            filters,
            ops,
            jobs,
            access,
            faults,
            ..Self::bare(seed, profile, run_ms, world)
        }
    }

    /// A plan of a world in which nothing happens.
    pub(crate) fn bare(seed: u64, profile: Profile, run_ms: u64, world: WorldShape) -> Self {
        Self {
            plan: PLAN_FORMAT,
            seed,
            profile: profile.name().to_owned(),
            run_ms,
            planted: None,
            provoked: Vec::new(),
            world,
            zones: Vec::new(),
            filters: Vec::new(),
            ops: Vec::new(),
            jobs: Vec::new(),
            sets: None,
            scenarios: Vec::new(),
            access: None,
            faults: Vec::new(),
            note: String::new(),
            expect: None,
        }
    }
}

/// Of so many worlds of [`Profile::Mixed`] one has sets that sessions reconcile, beside its nodes.
const WORLDS_PER_SETS: u32 = 8;

/// Adds calls in the order of time, and drops the last ones beyond the limit of a plan.
fn add(ops: &mut Vec<OpPlan>, more: Vec<OpPlan>) {
    ops.extend(more);
    ops.sort_by_key(|op| op.at_ms);
    ops.truncate(*PLAN_LIMITS.ops.end());
}

/// Drops joins and replacements if nodes need certificates: a joining node has none that names it, because
/// enrolment is not simulated.
fn drop_joins(faults: &mut Vec<FaultPlan>, access: Option<&AccessPlan>) {
    let identities = access.and_then(|access| access.identities.as_ref());
    if identities.is_some_and(|identities| identities.require) {
        faults.retain(|plan| !matches!(plan.fault.class(), "join" | "replace"));
    }
}

/// Clients of the Redis protocol, in half of the plans of profiles in which calls may wait, if a filter always exists.
/// They come after all other clients and calls, so that those stay what they were.
fn add_resp(
    ops: &mut Vec<OpPlan>,
    world: WorldShape,
    filters: &[FilterPlan],
    (seed, profile): (u64, Profile),
    run_ms: u64,
) -> WorldShape {
    let mut dice = Dice::new(seed, Stream::Resp);
    if matches!(profile, Profile::Failover | Profile::Jobs) || dice.one_in(2) {
        return world;
    }
    let (world, calls) = resp::draw(&mut dice, world, filters, ops, run_ms);
    add(ops, calls);
    world
}

/// Draws a filter and the calls about it.
type DrawOwn = fn(&mut Dice, WorldShape, u64) -> (FilterPlan, Vec<OpPlan>);

/// What clients of the Redis protocol do with a filter of their own. Each is in half of the plans that have such clients, and
/// has a stream of its own, so that one more changes none of the others.
const OWN: [(Stream, DrawOwn); 4] = [
    (Stream::Races, races::draw),
    (Stream::Taken, deletions::draw_taken),
    (Stream::Counted, deletions::draw_counted),
    (Stream::Expiring, expiries::draw),
];

/// The filters that clients of the Redis protocol have for themselves, and their calls about them.
fn add_own(
    filters: &mut Vec<FilterPlan>,
    ops: &mut Vec<OpPlan>,
    world: WorldShape,
    seed: u64,
    run_ms: u64,
) {
    if world.resp_from == 0 {
        return;
    }
    for (stream, draw) in OWN {
        let mut dice = Dice::new(seed, stream);
        if dice.one_in(2) {
            continue;
        }
        let (filter, calls) = draw(&mut dice, world, run_ms);
        filters.push(filter);
        add(ops, calls);
    }
}

/// Most splits of one plan; with them a world of one shard ends up with four.
const SPLITS_MAX: u32 = 3;

/// Adds splits in profiles that have them, and drops the last faults beyond the limit of a plan. In every
/// second world with splits, the cluster makes all splits after the first by itself.
fn add_splits(
    faults: &mut Vec<FaultPlan>,
    world: WorldShape,
    seed: u64,
    profile: Profile,
    run_ms: u64,
) -> WorldShape {
    if !profile.classes().contains(&"split_shard") {
        return world;
    }
    let mut dice = Dice::new(seed, Stream::Splits);
    let splits = draw_splits(&mut dice, run_ms);
    // Two shards for each node, which has so many replicas of them.
    let cores =
        if !splits.is_empty() && dice.one_in(2) { world.replicas.min(world.nodes) } else { 0 };
    // A cluster that splits its shards by itself would split them again at once.
    let merges = match cores {
        0 => draw_merges(&mut Dice::new(seed, Stream::Merges), &splits, run_ms),
        _ => Vec::new(),
    };
    faults.truncate(PLAN_LIMITS.faults.end() - splits.len() - merges.len());
    faults.extend(splits);
    faults.extend(merges);
    faults.sort_by_key(|plan| plan.at_ms);
    WorldShape { cores, ..world }
}

/// Fewest and most simulated milliseconds between the stops of two nodes that are upgraded.
const UPGRADE_GAP_MS: (u64, u64) = (400, 1_500);

/// In every third world of profiles that have upgrades, nodes run the earlier release at first.
fn add_upgrade(
    faults: &mut Vec<FaultPlan>,
    world: WorldShape,
    seed: u64,
    profile: Profile,
    run_ms: u64,
) -> WorldShape {
    let mut dice = Dice::new(seed, Stream::Upgrades);
    if !profile.classes().contains(&"upgrade") || !dice.one_in(3) {
        return world;
    }
    let at_ms = dice.between(0, run_ms / 2);
    let for_ms = dice.between(UPGRADE_GAP_MS.0, UPGRADE_GAP_MS.1);
    faults.truncate(PLAN_LIMITS.faults.end() - 1);
    faults.push(FaultPlan { at_ms, for_ms, fault: Fault::Upgrade });
    faults.sort_by_key(|plan| plan.at_ms);
    WorldShape { earlier_release: true, ..world }
}

/// Some splits in every third plan, in its first three quarters.
fn draw_splits(dice: &mut Dice, run_ms: u64) -> Vec<FaultPlan> {
    let count = if dice.one_in(3) { dice.count(1, SPLITS_MAX) } else { 0 };
    let split = |_| FaultPlan {
        at_ms: dice.between(0, run_ms * 3 / 4),
        for_ms: 0,
        fault: Fault::SplitShard,
    };
    (0..count).map(split).collect()
}

/// Merges after the first split, as many as splits at most. A split that comes after a merge makes another
/// group of a number that there was before.
fn draw_merges(dice: &mut Dice, splits: &[FaultPlan], run_ms: u64) -> Vec<FaultPlan> {
    let Some(first_ms) = splits.iter().map(|split| split.at_ms).min() else { return Vec::new() };
    let most = u32::try_from(splits.len()).expect("a few splits");
    let count = dice.count(1, most);
    let merge = |_| FaultPlan {
        at_ms: dice.between(first_ms, first_ms.max(run_ms * 7 / 8)),
        for_ms: 0,
        fault: Fault::MergeShard,
    };
    (0..count).map(merge).collect()
}

/// Fewest and most zones of a world that has some: with two, replicas of a shard must share one; with three,
/// most shards can have one in each.
const ZONES: (u32, u32) = (2, 3);

/// The zones of the founders and of those that may join, in every third world of profiles in which replicas
/// move.
fn draw_zones(seed: u64, world: WorldShape, profile: Profile) -> Vec<u32> {
    let mut dice = Dice::new(seed, Stream::Zones);
    let is_zoned = matches!(profile, Profile::Churn | Profile::Moves | Profile::Mixed);
    if !is_zoned || !dice.one_in(3) {
        return Vec::new();
    }
    let zones = dice.count(ZONES.0, ZONES.1);
    (0..world.nodes + JOINS_MAX).map(|_| dice.count(1, zones)).collect()
}

/// Certificates, in every second world.
fn draw_identities(seed: u64, world: WorldShape, run_ms: u64) -> Option<IdentityPlan> {
    let mut dice = Dice::new(seed, Stream::Identities);
    dice.one_in(2).then(|| identity::draw(&mut dice, world, run_ms))
}

fn draw_world(dice: &mut Dice) -> WorldShape {
    let nodes = if dice.one_in(4) { dice.count(6, 7) } else { dice.count(3, 5) };
    let shards = if dice.one_in(4) { dice.count(5, 8) } else { dice.count(1, 4) };
    let replicas = match dice.count(0, 9) {
        0 => 1,
        1..=3 if nodes >= 5 => 5,
        _ => 3,
    };
    WorldShape::new(nodes, shards, replicas, dice.count(1, 16))
}

/// Node counts of worlds that are about replicated filters: powers of two, which form a full hypercube,
/// and others, in which some nodes fold onto others.
const CUBE_NODES: [u32; 11] = [2, 3, 3, 4, 5, 5, 6, 7, 8, 8, 13];

/// Many nodes, and one shard that has little to do.
fn draw_cube_world(dice: &mut Dice) -> WorldShape {
    let nodes = *dice.pick(&CUBE_NODES);
    let replicas = if nodes >= 5 && dice.one_in(2) { 5 } else { 3 };
    WorldShape::new(nodes, 1, replicas, dice.count(1, 8))
}

/// The world's `scrub_s` and `rot_every`: how often copies and replicas are compared, and which bits they
/// lose in the end. Computed from the seed without a draw, so that no other draw is shifted.
const fn scrubs_of(seed: u64) -> (u32, u32) {
    match seed % 8 {
        5 => (5, 0),
        6 => (20, 0),
        7 => (5, 13),
        _ => (0, 0),
    }
}

/// Few nodes, so that replicas return to nodes that had them, and mostly one replica per shard.
fn draw_moving_world(dice: &mut Dice) -> WorldShape {
    let replicas = if dice.one_in(4) { 3 } else { 1 };
    let nodes = if replicas == 3 { dice.count(4, 5) } else { dice.count(2, 3) };
    let shards = dice.count(1, 3);
    WorldShape::new(nodes, shards, replicas, dice.count(1, 8))
}

/// Three replicas of each shard, so that one node may fail.
fn draw_failover_world(dice: &mut Dice) -> WorldShape {
    WorldShape::new(dice.count(3, 5), dice.count(1, 8), 3, dice.count(2, 8))
}

fn draw_provoked(dice: &mut Dice, profile: Profile) -> Vec<String> {
    let has_recoveries =
        matches!(profile, Profile::Disk | Profile::Crash | Profile::Cube | Profile::Jobs);
    // In other profiles replicas seldom move, or shards may be too large for that rate.
    let has_moves = matches!(profile, Profile::Churn | Profile::Moves | Profile::Mixed);
    let mut provoked = Vec::new();
    for (rare, name) in Rare::ALL {
        let is_of_storage = matches!(rare, Rare::SmallSegments | Rare::SnapshotsOften);
        let is_drawn = dice.one_in(if has_recoveries && is_of_storage { 2 } else { 4 });
        if is_drawn && (has_moves || *rare != Rare::SlowMoves) {
            provoked.push((*name).to_owned());
        }
    }
    provoked
}

#[cfg(test)]
#[path = "draw/draw_test.rs"]
mod draw_test;
