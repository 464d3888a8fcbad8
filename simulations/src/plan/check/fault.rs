//! Validates faults.

use std::collections::BTreeSet;

use super::{Misfit, in_range};
use crate::plan::{Fault, Plan, Who};

/// Most milliseconds that a fault adds to a message.
const LATENCY_MS_MAX: u32 = 60_000;

/// Most milliseconds that a clock jumps.
const CLOCK_JUMP_MS_MAX: u32 = 600_000;

/// Most milliseconds that a wall clock is off: a day.
const WALL_CLOCK_MS_MAX: i64 = 86_400_000;

/// Most restarts of one storm.
const STORM_COUNT_MAX: u32 = 100;

/// Largest factor by which a disk is slowed down.
const SLOW_FACTOR_MAX: u32 = 10_000;

/// Most bits that one fault flips.
const ROT_BITS_MAX: u32 = 64;

/// Most bytes that a log loses at its end.
const TAIL_BYTES_MAX: u32 = 64 << 10;

/// Most thousandths by which a clock runs too fast.
const DRIFT_PER_MILLE_MAX: u32 = 500;

/// Most free bytes of a full disk.
const FREE_BYTES_MAX: u64 = 1 << 40;

/// Checks that a world can carry out this fault, which is at `place` in the plan.
pub(super) fn check(place: &str, plan: &Plan, fault: &Fault) -> Result<(), Misfit> {
    if let Some(who) = fault.who() {
        let field = if matches!(fault, Fault::Join { .. }) { "via" } else { "who" };
        check_who(&format!("{place}.{field}"), plan, fault, who)?;
    }
    let at = |field: &str| format!("{place}.{field}");
    let nodes = 1..=plan.node_count();
    match fault {
        Fault::Split { left } => check_split(&at("left"), plan, left),
        Fault::Bridge { middle } => in_range(at("middle"), *middle, &nodes),
        Fault::SwapDisks { one, other } => {
            in_range(at("one"), *one, &nodes)?;
            in_range(at("other"), *other, &nodes)?;
            if one == other {
                return Err(Misfit::new(at("other"), format!("another node than {one}"), other));
            }
            Ok(())
        }
        Fault::Latency { ms, .. } => in_range(at("ms"), *ms, &(1..=LATENCY_MS_MAX)),
        Fault::Loss { per_mille, .. } => in_range(at("per_mille"), *per_mille, &(1..=1000)),
        Fault::CrashStorm { count, .. } => in_range(at("count"), *count, &(1..=STORM_COUNT_MAX)),
        Fault::SlowDisk { factor, .. } => in_range(at("factor"), *factor, &(1..=SLOW_FACTOR_MAX)),
        Fault::DiskFull { free_bytes, .. } => {
            in_range(at("free_bytes"), *free_bytes, &(0..=FREE_BYTES_MAX))
        }
        Fault::LoseTail { bytes, .. } => in_range(at("bytes"), *bytes, &(1..=TAIL_BYTES_MAX)),
        Fault::BitRot { bits, .. } => in_range(at("bits"), *bits, &(1..=ROT_BITS_MAX)),
        Fault::ClockJump { ms, .. } => in_range(at("ms"), *ms, &(1..=CLOCK_JUMP_MS_MAX)),
        Fault::ClockDrift { per_mille, .. } => {
            in_range(at("per_mille"), *per_mille, &(1..=DRIFT_PER_MILLE_MAX))
        }
        Fault::WallClock { ms, .. } => {
            in_range(at("ms"), *ms, &(-WALL_CLOCK_MS_MAX..=WALL_CLOCK_MS_MAX))
        }
        Fault::MoveReplica { shard, .. } => {
            in_range(at("shard"), *shard, &(0..=plan.world.shards - 1))
        }
        _ => Ok(()),
    }
}

fn check_who(place: &str, plan: &Plan, fault: &Fault, who: Who) -> Result<(), Misfit> {
    match who {
        Who::Node(node) => in_range(place, node, &(1..=plan.node_count())),
        Who::Leader(shard) | Who::Follower(shard) => {
            in_range(place, shard, &(0..=plan.world.shards - 1))
        }
        Who::MetaLeader => Ok(()),
        Who::All if fault.allows_all() => Ok(()),
        Who::All => {
            let expected = format!("one node, which {:?} is about", fault.class());
            Err(Misfit::new(place, expected, "\"all\""))
        }
    }
}

fn check_split(place: &str, plan: &Plan, left: &[u32]) -> Result<(), Misfit> {
    let nodes = 1..=plan.node_count();
    left.iter().try_for_each(|node| in_range(place, *node, &nodes))?;
    let distinct: BTreeSet<&u32> = left.iter().collect();
    // The other side needs at least one founder, because joiners may not have joined.
    let has_other_side = (1..=plan.world.nodes).any(|node| !distinct.contains(&node));
    if left.is_empty() || distinct.len() != left.len() || !has_other_side {
        let expected = format!("some but not all of nodes 1 to {}, each once", plan.world.nodes);
        return Err(Misfit::new(place, expected, format!("{left:?}")));
    }
    Ok(())
}

impl Fault {
    /// Whether it may affect all nodes at once.
    pub(crate) const fn allows_all(&self) -> bool {
        matches!(
            self,
            Self::PowerLoss { .. }
                | Self::Crash { .. }
                | Self::SlowDisk { .. }
                | Self::HandOver { .. }
                | Self::Snapshot { .. }
                | Self::ClockDrift { .. }
                | Self::Latency { .. }
                | Self::Loss { .. }
        )
    }
}
