//! Checks that every job ends after the faults: with the right result, or because its user cancelled it.

use std::cell::Cell;
use std::rc::Rc;

use super::{run_until, wait_for_none};
use crate::counters;
use crate::invariants::checked::Checked;
use crate::invariants::dedup_matches_reference::{self, JobFacts};
use crate::jobs::Output;
use crate::now::now_us;
use crate::watch;
use crate::world::World;

/// After everything else has healed, jobs end within this time: failed ones are resumed, and the retry
/// pauses that their workers built up during the faults are over.
const JOBS_MAX_US: u64 = 120_000_000;

/// After that, all their scratch data is removed within this time.
const CLEAN_MAX_US: u64 = 10_000_000;

/// Waits for the jobs to end and checks their results.
///
/// # Errors
/// If a host's task panicked.
pub(crate) fn heal(world: &mut World, jobs: &Rc<Cell<bool>>) -> Result<(), String> {
    if world.plan.jobs.is_empty() {
        return Ok(());
    }
    let job_count = world.plan.jobs.len() as u64;
    counters::checked("jobs_end", job_count);
    if !run_until(world, now_us() + JOBS_MAX_US, |_| jobs.get())? {
        if !world.is_violated() {
            let seconds = JOBS_MAX_US / 1_000_000;
            let open: Vec<String> = world
                .users
                .known()
                .iter()
                .filter(|known| !known.is_over())
                .map(|known| format!("{:?}: {:?}", known.job, known.row))
                .collect();
            let what = format!("jobs have not ended within {seconds} s: {}", open.join("; "));
            watch::violated("jobs_end", what);
        }
        return Ok(());
    }
    let lingering = |world: &World| {
        world.hosts.iter().find_map(|host| {
            let job = host.jobs.with_scratch().into_iter().next()?;
            Some(format!("{} still has scratch of {job}, which has ended", host.name))
        })
    };
    counters::checked("jobs_leave_nothing", job_count);
    if let Some(what) = wait_for_none(world, CLEAN_MAX_US, lingering)? {
        watch::violated("jobs_leave_nothing", what);
    }
    check(world);
    Ok(())
}

fn check(world: &World) {
    let mut checked = Checked::new(dedup_matches_reference::NAME);
    for (index, (plan, known)) in world.plan.jobs.iter().zip(world.users.known()).enumerate() {
        let (Some(job), Some(row)) = (known.job, known.row) else {
            if let Some(why) = known.refusal {
                watch::violated("jobs_end", format!("job {index} was refused: {why}"));
            }
            continue;
        };
        counters::state(match row.state.as_str() {
            "done" if row.run > 1 => "job_resumed",
            "done" => "job_done",
            _ => "job_ended_without_result",
        });
        // A job without any record fails with that cause, as it does on one machine.
        let has_records = plan.records.iter().any(|&count| count > 0);
        let is_rightly_refused = !has_records && row.cause.starts_with("nothing to do");
        if row.state == "failed" && !is_rightly_refused {
            watch::violated("jobs_end", format!("job {index} failed for good: {}", row.cause));
        }
        let of_node = |node: &u64| {
            let host = world.hosts.iter().find(|host| host.node_id.get() == Some(*node))?;
            Some((host.number, host.jobs.committed(job)))
        };
        let (machines, committed): (Vec<u32>, Vec<Option<Output>>) =
            row.workers.iter().filter_map(of_node).unzip();
        let state = row.state.as_str();
        let added = world.jobs.added(job);
        let facts = JobFacts { index, plan, state, machines, committed, added };
        dedup_matches_reference::check(&mut checked, now_us(), &facts);
    }
    counters::checked(dedup_matches_reference::NAME, checked.count);
    watch::with(|checks| checks.add(checked.violations));
}
