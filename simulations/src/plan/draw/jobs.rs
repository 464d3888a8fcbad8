//! Draws the jobs of a plan.

use super::dice::Dice;
use crate::plan::{JobFilter, JobKeep, JobLevel, JobPlan, WorldShape};

/// Most records of a machine. The machines of a job read for about a tenth of a second.
const RECORDS_MAX: u32 = 400;

/// Most cells per owner.
const CELLS_MAX: u32 = 16;

const LEVELS: [JobLevel; 4] =
    [JobLevel::Fingerprint, JobLevel::Fingerprint, JobLevel::Bytes, JobLevel::Approximate];

const KEEPS: [JobKeep; 3] = [JobKeep::First, JobKeep::Last, JobKeep::Best];

const FILTERS: [JobFilter; 4] =
    [JobFilter::SingleShot, JobFilter::SingleShot, JobFilter::Wide, JobFilter::Auto];

/// Some jobs, by time.
pub(super) fn draw(dice: &mut Dice, world: WorldShape, run_ms: u64) -> Vec<JobPlan> {
    let count = dice.count(1, 4);
    let mut jobs: Vec<JobPlan> = (0..count).map(|_| one(dice, world, run_ms)).collect();
    jobs.sort_by_key(|job| job.at_ms);
    jobs
}

fn one(dice: &mut Dice, world: WorldShape, run_ms: u64) -> JobPlan {
    let at_ms = dice.between(0, run_ms / 2);
    // Some machines have no records, some have many.
    let records = |dice: &mut Dice| match dice.count(0, 4) {
        0 => 0,
        1 => dice.spread_count(1, RECORDS_MAX),
        _ => dice.count(1, RECORDS_MAX / 4),
    };
    let level = *dice.pick(&LEVELS);
    let report = dice.one_in(2);
    JobPlan {
        at_ms,
        records: (0..world.nodes).map(|_| records(dice)).collect(),
        distinct: dice.spread_count(1, 4 * RECORDS_MAX),
        level,
        keep: *dice.pick(&KEEPS),
        known: dice.one_in(3) && level != JobLevel::Bytes,
        report,
        sizes: report && dice.one_in(2),
        filter: *dice.pick(&FILTERS),
        // Not drawn, so that the rest of a seed's plan stays what it was.
        grid: at_ms.is_multiple_of(3),
        cells: dice.spread_count(1, CELLS_MAX),
        cancel_at_ms: dice.one_in(8).then(|| dice.between(at_ms, run_ms)),
        asks: dice.one_in(3),
    }
}
