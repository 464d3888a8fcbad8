//! Plans from seeds: swarm testing, in which every seed leaves out some features and favours others
//! (Groce et al., ISSTA 2012, DOI 10.1145/2338965.2336763).

use umbel_node::ports::Rare;

use self::dice::{Dice, Stream};
use super::{PLAN_FORMAT, Plan, WorldShape};
use crate::profile::Profile;

mod dice;
mod faults;
mod filters;
mod ops;
mod recipes;

impl Plan {
    /// The plan of a seed: the same for the same arguments, always. World, filters and operations do not
    /// depend on the profile.
    pub(crate) fn draw(seed: u64, profile: Profile, run_ms: u64) -> Self {
        let world = draw_world(&mut Dice::new(seed, Stream::World));
        let filters = filters::draw(&mut Dice::new(seed, Stream::Filters));
        let ops = ops::draw(&mut Dice::new(seed, Stream::Ops), world, &filters, run_ms);
        let faults = faults::draw(&mut Dice::new(seed, Stream::Faults), world, profile, run_ms);
        Self {
            plan: PLAN_FORMAT,
            seed,
            profile: profile.name().to_owned(),
            run_ms,
            planted: None,
            provoked: draw_provoked(&mut Dice::new(seed, Stream::Provoked), profile),
            world,
            filters,
            ops,
            faults,
            note: String::new(),
            expect: None,
        }
    }
}

fn draw_world(dice: &mut Dice) -> WorldShape {
    let nodes = if dice.one_in(4) { dice.count(6, 7) } else { dice.count(3, 5) };
    let shards = if dice.one_in(4) { dice.count(5, 8) } else { dice.count(1, 4) };
    let replicas = match dice.count(0, 9) {
        0 => 1,
        1..=3 if nodes >= 5 => 5,
        _ => 3,
    };
    WorldShape { nodes, shards, replicas, clients: dice.count(1, 16) }
}

fn draw_provoked(dice: &mut Dice, profile: Profile) -> Vec<String> {
    let has_recoveries = matches!(profile, Profile::Disk | Profile::Crash);
    let mut provoked = Vec::new();
    for (rare, name) in Rare::ALL {
        let is_of_storage = matches!(rare, Rare::SmallSegments | Rare::SnapshotsOften);
        if dice.one_in(if has_recoveries && is_of_storage { 2 } else { 4 }) {
            provoked.push((*name).to_owned());
        }
    }
    provoked
}

#[cfg(test)]
#[path = "draw/draw_test.rs"]
mod draw_test;
