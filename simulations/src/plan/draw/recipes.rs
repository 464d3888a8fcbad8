//! How a fault of each class is drawn: its target, its severity and its length.

use super::dice::Dice;
use super::faults::Scene;
use crate::plan::{DiskPart, Fault, LossMode, WALL_CLOCK_NEAR_MS};

/// How a fault of one class is drawn.
pub(super) struct Recipe {
    /// The class.
    pub(super) class: &'static str,
    /// Draws its length in simulated milliseconds and the fault; `None` if no such fault is allowed now.
    pub(super) make: fn(&Scene, &mut Dice) -> Option<(u64, Fault)>,
}

/// Length of a cut: from less than an election takes to more.
fn cut_ms(dice: &mut Dice) -> u64 {
    dice.spread(300, 8_000)
}

/// Length of other faults.
fn length_ms(dice: &mut Dice) -> u64 {
    dice.spread(100, 15_000)
}

/// Length of an instantaneous fault.
const AT_ONCE: u64 = 0;

const MODES: [LossMode; 3] = [LossMode::All, LossMode::Prefix, LossMode::Subset];

const PARTS: [DiskPart; 3] = [DiskPart::Log, DiskPart::Snapshots, DiskPart::Identity];

/// Every class that can be drawn.
pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        class: "isolate",
        make: |scene, dice| Some((cut_ms(dice), Fault::Isolate { who: scene.who(dice) })),
    },
    Recipe {
        class: "split",
        make: |scene, dice| {
            let nodes: Vec<u32> = (1..=scene.world.nodes).collect();
            let count = dice.count(1, scene.world.nodes - 1);
            Some((cut_ms(dice), Fault::Split { left: dice.pick_distinct(&nodes, count) }))
        },
    },
    Recipe {
        class: "one_way",
        make: |scene, dice| {
            let fault = Fault::OneWay { who: scene.who(dice), outbound: dice.one_in(2) };
            Some((cut_ms(dice), fault))
        },
    },
    Recipe {
        class: "bridge",
        make: |scene, dice| Some((cut_ms(dice), Fault::Bridge { middle: scene.node(dice) })),
    },
    Recipe { class: "ring", make: |_, dice| Some((cut_ms(dice), Fault::Ring)) },
    Recipe {
        class: "latency",
        make: |scene, dice| {
            let (who, ms) = (scene.who_or_all(dice, 8), dice.spread_count(5, 500));
            Some((length_ms(dice), Fault::Latency { who, ms }))
        },
    },
    Recipe {
        class: "loss",
        make: |scene, dice| {
            let (draws, most) = if scene.is_cube { (2, 300) } else { (8, 200) };
            let (who, per_mille) = (scene.who_or_all(dice, draws), dice.spread_count(5, most));
            Some((length_ms(dice), Fault::Loss { who, per_mille }))
        },
    },
    Recipe {
        class: "reset",
        make: |scene, dice| Some((AT_ONCE, Fault::Reset { who: scene.who(dice) })),
    },
    Recipe {
        class: "hold",
        make: |scene, dice| Some((cut_ms(dice), Fault::Hold { who: scene.who(dice) })),
    },
    Recipe {
        class: "crash",
        make: |scene, dice| {
            Some((length_ms(dice), Fault::Crash { who: scene.who_or_all(dice, 8) }))
        },
    },
    Recipe {
        class: "power_loss",
        make: |scene, dice| {
            let (who, mode) = (scene.who_or_all(dice, 3), *dice.pick(&MODES));
            Some((length_ms(dice), Fault::PowerLoss { who, mode }))
        },
    },
    Recipe {
        class: "freeze",
        make: |scene, dice| Some((cut_ms(dice), Fault::Freeze { who: scene.who(dice) })),
    },
    Recipe {
        class: "stop",
        make: |scene, dice| Some((length_ms(dice), Fault::Stop { who: scene.who(dice) })),
    },
    Recipe {
        class: "rolling_restart",
        make: |_, dice| Some((dice.spread(200, 3_000), Fault::RollingRestart)),
    },
    Recipe {
        class: "crash_storm",
        make: |scene, dice| {
            let fault = Fault::CrashStorm { who: scene.who(dice), count: dice.count(2, 10) };
            Some((dice.spread(1_000, 10_000), fault))
        },
    },
    Recipe {
        class: "slow_disk",
        make: |scene, dice| {
            let (who, factor) = (scene.who_or_all(dice, 8), dice.spread_count(5, 500));
            Some((length_ms(dice), Fault::SlowDisk { who, factor }))
        },
    },
    Recipe {
        class: "stall_disk",
        make: |scene, dice| Some((length_ms(dice), Fault::StallDisk { who: scene.who(dice) })),
    },
    Recipe {
        class: "sync_fails",
        make: |scene, dice| Some((length_ms(dice), Fault::SyncFails { who: scene.victim(dice)? })),
    },
    Recipe {
        class: "read_fails",
        make: |scene, dice| Some((length_ms(dice), Fault::ReadFails { who: scene.who(dice) })),
    },
    Recipe {
        class: "write_fails",
        make: |scene, dice| Some((length_ms(dice), Fault::WriteFails { who: scene.who(dice) })),
    },
    Recipe {
        class: "disk_full",
        make: |scene, dice| {
            let free_bytes = if dice.one_in(2) { 0 } else { dice.spread(512, 65_536) };
            Some((length_ms(dice), Fault::DiskFull { who: scene.who(dice), free_bytes }))
        },
    },
    Recipe {
        class: "bit_rot",
        make: |scene, dice| {
            let who = scene.victim(dice)?;
            let (part, bits) = (*dice.pick(&PARTS), dice.count(1, 8));
            Some((length_ms(dice), Fault::BitRot { who, part, bits }))
        },
    },
    Recipe {
        class: "misdirect",
        make: |scene, dice| Some((length_ms(dice), Fault::Misdirect { who: scene.victim(dice)? })),
    },
    Recipe {
        class: "swap_disks",
        make: |scene, dice| {
            let nodes: Vec<u32> = (1..=scene.world.nodes).collect();
            let pair = scene.can_swap().then(|| dice.pick_distinct(&nodes, 2))?;
            let [one, other] = pair[..] else { return None };
            Some((dice.spread(100, 5_000), Fault::SwapDisks { one, other }))
        },
    },
    Recipe {
        class: "wipe_disk",
        make: |scene, dice| Some((length_ms(dice), Fault::WipeDisk { who: scene.victim(dice)? })),
    },
    Recipe {
        class: "clock_jump",
        make: |scene, dice| {
            let (who, ms) = (scene.who(dice), dice.spread_count(500, 30_000));
            Some((AT_ONCE, Fault::ClockJump { who, ms }))
        },
    },
    Recipe {
        class: "clock_drift",
        make: |scene, dice| {
            let (who, per_mille) = (scene.who_or_all(dice, 8), dice.count(1, 50));
            Some((length_ms(dice), Fault::ClockDrift { who, per_mille }))
        },
    },
    Recipe {
        class: "wall_clock",
        make: |scene, dice| {
            let most = if scene.is_cube { WALL_CLOCK_NEAR_MS } else { 3_600_000 };
            let ms = dice.signed(-most, most);
            Some((length_ms(dice), Fault::WallClock { who: scene.who(dice), ms }))
        },
    },
    Recipe {
        class: "join",
        make: |scene, dice| {
            scene.can_join().then(|| (AT_ONCE, Fault::Join { via: scene.who(dice) }))
        },
    },
    Recipe {
        class: "replace",
        make: |scene, dice| {
            let can_replace = scene.world.can_replace(scene.join_count);
            let who = can_replace.then(|| scene.victim(dice))??;
            Some((dice.spread(100, 5_000), Fault::Replace { who }))
        },
    },
    Recipe {
        class: "move_replica",
        make: |scene, dice| {
            scene.has_room_to_move().then(|| {
                let shard = scene.shard(dice);
                (AT_ONCE, Fault::MoveReplica { shard, who: scene.who(dice) })
            })
        },
    },
    Recipe {
        class: "hand_over",
        make: |scene, dice| Some((AT_ONCE, Fault::HandOver { who: scene.who_or_all(dice, 8) })),
    },
    Recipe {
        class: "snapshot",
        make: |scene, dice| Some((AT_ONCE, Fault::Snapshot { who: scene.who_or_all(dice, 4) })),
    },
    Recipe {
        class: "lose_tail",
        make: |scene, dice| {
            let (who, bytes) = (scene.victim(dice)?, dice.spread_count(10, 4_000));
            Some((AT_ONCE, Fault::LoseTail { who, bytes }))
        },
    },
    Recipe {
        class: "old_image",
        make: |scene, dice| Some((length_ms(dice), Fault::OldImage { who: scene.victim(dice)? })),
    },
];
