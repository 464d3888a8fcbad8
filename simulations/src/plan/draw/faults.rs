//! Draws which faults happen and when, within the damage budget.

use std::collections::BTreeMap;

use super::dice::Dice;
use super::recipes::{RECIPES, Recipe};
use crate::plan::damage::{DAMAGE_GAP_MS, JOINS_MAX};
use crate::plan::{Fault, FaultPlan, LossMode, PLAN_LIMITS, Who, WorldShape};
use crate::profile::Profile;

/// Fewest and most simulated milliseconds from one fault to the next.
const GAP_MS: (u64, u64) = (100, 3_000);

/// Fewest and most simulated milliseconds for which a cluster of [`Profile::Failover`] is whole, at first
/// and between two faults, so that the node that failed has caught up.
const WHOLE_MS: (u64, u64) = (3_000, 5_000);

/// Fewest and most simulated milliseconds for which one of its nodes is away.
const AWAY_MS: (u64, u64) = (1_000, 4_000);

/// Most faults that are active at the same time.
const AT_ONCE_MAX: u32 = 4;

/// The state of the draw that later faults depend on.
pub(super) struct Scene {
    /// The world.
    pub(super) world: WorldShape,
    /// Whether it is about replicated filters: losses are heavier, and fewer faults aim at leaders.
    pub(super) is_cube: bool,
    /// The nodes that may suffer lasting damage.
    victims: Vec<u32>,
    /// When the next fault begins, in simulated milliseconds.
    now_ms: u64,
    /// The time from which on a victim may be damaged again, in simulated milliseconds.
    whole_from_ms: BTreeMap<u32, u64>,
    /// The end of the lasting damage so far, in simulated milliseconds.
    damage_until_ms: u64,
    /// The end of the last disk swap, in simulated milliseconds.
    swap_until_ms: u64,
    /// Joins so far.
    pub(super) join_count: u32,
}

impl Scene {
    fn new(dice: &mut Dice, world: WorldShape, is_cube: bool) -> Self {
        let nodes: Vec<u32> = (1..=world.nodes).collect();
        Self {
            world,
            is_cube,
            victims: dice.pick_distinct(&nodes, world.victim_count_max()),
            now_ms: 0,
            whole_from_ms: BTreeMap::new(),
            damage_until_ms: 0,
            swap_until_ms: 0,
            join_count: 0,
        }
    }

    /// Any node, by number or by role.
    pub(super) fn who(&self, dice: &mut Dice) -> Who {
        if self.is_cube && !dice.one_in(4) {
            return Who::Node(self.node(dice));
        }
        match dice.count(0, 7) {
            0 | 1 => Who::Node(self.node(dice)),
            2..=4 => Who::Leader(self.shard(dice)),
            5 | 6 => Who::Follower(self.shard(dice)),
            _ => Who::MetaLeader,
        }
    }

    /// Any node, or, with a chance of 1 in `draws`, all.
    pub(super) fn who_or_all(&self, dice: &mut Dice, draws: u32) -> Who {
        if dice.one_in(draws) { Who::All } else { self.who(dice) }
    }

    /// The number of a founder.
    pub(super) fn node(&self, dice: &mut Dice) -> u32 {
        dice.count(1, self.world.nodes)
    }

    /// The number of a shard.
    pub(super) fn shard(&self, dice: &mut Dice) -> u32 {
        dice.count(0, self.world.shards - 1)
    }

    /// A node that may be damaged now, if there is one.
    pub(super) fn victim(&self, dice: &mut Dice) -> Option<Who> {
        let is_whole = |node: &&u32| {
            self.whole_from_ms.get(*node).is_none_or(|from_ms| *from_ms <= self.now_ms)
        };
        let whole: Vec<u32> = self.victims.iter().filter(is_whole).copied().collect();
        let is_allowed = !whole.is_empty() && self.swap_until_ms <= self.now_ms;
        is_allowed.then(|| Who::Node(*dice.pick(&whole)))
    }

    /// Whether disks may be swapped now.
    pub(super) const fn can_swap(&self) -> bool {
        self.damage_until_ms <= self.now_ms && self.swap_until_ms <= self.now_ms
    }

    /// Whether one more node may join.
    pub(super) fn can_join(&self) -> bool {
        self.join_count < JOINS_MAX
            && self.world.nodes + self.join_count < *PLAN_LIMITS.nodes_and_joins.end()
    }

    /// Whether there may be a node without a replica of some shard.
    pub(super) const fn has_room_to_move(&self) -> bool {
        self.world.nodes > self.world.replicas || self.join_count > 0
    }

    fn record(&mut self, plan: &FaultPlan) {
        let end_ms = plan.end_ms(self.world.nodes);
        match plan.fault {
            Fault::Join { .. } => self.join_count += 1,
            Fault::SwapDisks { .. } => self.swap_until_ms = end_ms,
            _ => {}
        }
        if plan.fault.is_lasting()
            && let Some(Who::Node(node)) = plan.fault.who()
        {
            self.whole_from_ms.insert(node, end_ms.max(plan.at_ms + DAMAGE_GAP_MS));
            self.damage_until_ms = self.damage_until_ms.max(end_ms);
        }
    }
}

/// Faults of a profile, by time. Each class is included with a chance of one half, and at least one is.
pub(super) fn draw(
    dice: &mut Dice,
    world: WorldShape,
    profile: Profile,
    run_ms: u64,
) -> Vec<FaultPlan> {
    if profile == Profile::Failover {
        return draw_failovers(dice, world, run_ms);
    }
    let of_profile: Vec<&Recipe> =
        RECIPES.iter().filter(|recipe| profile.classes().contains(&recipe.class)).collect();
    let mut drawn = of_profile.clone();
    drawn.retain(|_| dice.one_in(2));
    let is_cube = profile == Profile::Cube;
    let faults = schedule(dice, (world, is_cube), &drawn, run_ms);
    // No class was drawn, or none that can occur in this world.
    if faults.is_empty() { schedule(dice, (world, is_cube), &of_profile, run_ms) } else { faults }
}

/// Failures and planned stops of one node at a time, which comes back each time.
fn draw_failovers(dice: &mut Dice, world: WorldShape, run_ms: u64) -> Vec<FaultPlan> {
    let scene = Scene::new(dice, world, false);
    let mut faults = Vec::new();
    let mut at_ms = dice.between(WHOLE_MS.0, WHOLE_MS.1);
    while at_ms < run_ms && faults.len() < *PLAN_LIMITS.faults.end() {
        let who = scene.who(dice);
        let fault = match dice.count(0, 4) {
            0 => Fault::Crash { who },
            1 => Fault::PowerLoss { who, mode: LossMode::All },
            2 => Fault::Freeze { who },
            3 => Fault::Stop { who },
            _ => Fault::Isolate { who },
        };
        let for_ms = dice.between(AWAY_MS.0, AWAY_MS.1);
        faults.push(FaultPlan { at_ms, for_ms, fault });
        at_ms += for_ms + dice.between(WHOLE_MS.0, WHOLE_MS.1);
    }
    faults
}

fn schedule(
    dice: &mut Dice,
    (world, is_cube): (WorldShape, bool),
    recipes: &[&Recipe],
    run_ms: u64,
) -> Vec<FaultPlan> {
    let mut scene = Scene::new(dice, world, is_cube);
    let at_once = u64::from(dice.count(1, AT_ONCE_MAX));
    let mut faults = Vec::new();
    let mut ends_ms: Vec<u64> = Vec::new();
    while !recipes.is_empty() && faults.len() < *PLAN_LIMITS.faults.end() {
        scene.now_ms += dice.spread(GAP_MS.0, GAP_MS.1);
        ends_ms.retain(|end_ms| *end_ms > scene.now_ms);
        if ends_ms.len() as u64 >= at_once {
            let end_ms = ends_ms.iter().min().copied().unwrap_or(scene.now_ms);
            // Without this pause, runs with one fault at a time would always have one.
            scene.now_ms = end_ms + dice.spread(GAP_MS.0, GAP_MS.1);
            ends_ms.retain(|end_ms| *end_ms > scene.now_ms);
        }
        if scene.now_ms >= run_ms {
            break;
        }
        if let Some((for_ms, fault)) = (dice.pick(recipes).make)(&scene, dice) {
            let plan = FaultPlan { at_ms: scene.now_ms, for_ms, fault };
            scene.record(&plan);
            ends_ms.push(plan.end_ms(world.nodes));
            faults.push(plan);
        }
    }
    faults
}
