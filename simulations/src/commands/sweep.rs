//! `sweep`: many seeds.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use umbel_step::planted::Planted;

use super::run::fresh_seed;
use super::{print, write_report};
use crate::child::{Ended, Order};
use crate::exit::Exit;
use crate::limits::Limits;
use crate::plan::{PLAN_LIMITS, Plan};
use crate::profile::Profile;
use crate::sweep::{MAX_KIND_COUNT, SeedRange, SweepResults, is_rerun, profile_of};
use crate::{bugs, clock, failure, pool};

/// Real time between two lines that say how far a sweep is.
const PROGRESS_US: u64 = 10_000_000;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("extent").required(true).args(["seeds", "minutes"]))]
pub(super) struct SweepArgs {
    /// Seeds from A up to, and without, B
    #[arg(long, value_name = "A..B")]
    seeds: Option<SeedRange>,
    /// Real minutes in which fresh seeds are begun
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    minutes: Option<u64>,
    /// First of the fresh seeds; drawn and printed if it is left out
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    first: Option<u64>,
    /// Runs at once [default: one a processor]
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u64).range(1..=4096))]
    jobs: Option<u64>,
    /// Mix of faults [default: all but failover in turn, or the bug's own with --planted]
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// Simulated milliseconds with faults in each run
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(PLAN_LIMITS.run_ms))]
    ms: u64,
    /// File for all numbers of the sweep, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Bug that is switched on
    #[arg(long, value_name = "NAME", value_parser = bugs::named)]
    pub(super) planted: Option<Planted>,
}

/// A sweep that is under way.
struct Sweep {
    profiles: Vec<Profile>,
    planted: Option<Planted>,
    ms: u64,
    limits: Limits,
    first_seed: u64,
    /// Seeds end before this one.
    end_seed: u64,
    from_us: u64,
    /// No seed is begun after this moment of real time.
    until_us: u64,
    upcoming: AtomicU64,
    is_over: AtomicBool,
    state: Mutex<State>,
}

struct State {
    results: SweepResults,
    reported_us: u64,
    /// Why no further run could be made.
    error: Option<anyhow::Error>,
}

/// Carries the command out.
pub(super) fn run(args: &SweepArgs, limits: Limits) -> anyhow::Result<Exit> {
    let sweep = Sweep::new(args, limits)?;
    let jobs = jobs_of(args.jobs);
    print(&format!("seeds from {}, {jobs} at once", sweep.first_seed))?;
    pool::work(jobs, &|| sweep.next(), &|seed| sweep.work_on(seed));
    let profiles = sweep.profiles.clone();
    let wall_ms = (clock::wall_us() - sweep.from_us) / 1_000;
    let State { mut results, error, .. } =
        sweep.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = error {
        return Err(error);
    }
    results.wall_ms = wall_ms;
    results.note_what_is_missing(&profiles);
    print(&results.text())?;
    for (seed, failed) in &results.failures {
        if let Some(path) = &failed.plan_file {
            let steps = failure::next_steps(path, limits);
            print(&format!("seed {seed}, profile {}: {}\n{steps}", failed.profile, failed.what))?;
        }
    }
    if let Some(path) = &args.report {
        write_report(&results, path)?;
    }
    Ok(results.exit())
}

/// How many runs are made at once.
pub(super) fn jobs_of(asked: Option<u64>) -> usize {
    let asked = asked.and_then(|jobs| usize::try_from(jobs).ok());
    asked.unwrap_or_else(pool::processor_count)
}

impl Sweep {
    fn new(args: &SweepArgs, limits: Limits) -> anyhow::Result<Self> {
        let profiles = match (args.profile, args.planted) {
            (Some(profile), _) => vec![profile],
            (None, Some(bug)) => vec![bugs::profile_of(bug)?],
            (None, None) => Profile::in_turn().to_vec(),
        };
        let from_us = clock::wall_us();
        let (first_seed, end_seed) = match args.seeds {
            Some(SeedRange { first, end }) => (first, end),
            None => (args.first.map_or_else(fresh_seed, Ok)?, u64::MAX),
        };
        let minutes = args.minutes.unwrap_or(u64::MAX);
        let results = SweepResults {
            profiles: profiles.iter().map(|profile| profile.name().to_owned()).collect(),
            planted: args.planted.map(|bug| bug.name().to_owned()),
            first_seed,
            ..SweepResults::default()
        };
        Ok(Self {
            profiles,
            planted: args.planted,
            ms: args.ms,
            limits,
            first_seed,
            end_seed,
            from_us,
            until_us: from_us.saturating_add(minutes.saturating_mul(60_000_000)),
            upcoming: AtomicU64::new(first_seed),
            is_over: AtomicBool::new(false),
            state: Mutex::new(State { results, reported_us: from_us, error: None }),
        })
    }

    fn next(&self) -> Option<u64> {
        if self.is_over.load(Ordering::Relaxed) || clock::wall_us() >= self.until_us {
            return None;
        }
        let seed = self.upcoming.fetch_add(1, Ordering::Relaxed);
        (seed < self.end_seed).then_some(seed)
    }

    fn work_on(&self, seed: u64) {
        if let Err(error) = self.run_seed(seed) {
            self.is_over.store(true, Ordering::Relaxed);
            self.state().error.get_or_insert(error);
        }
    }

    fn run_seed(&self, seed: u64) -> anyhow::Result<()> {
        let mut plan = Plan::draw(seed, profile_of(seed, &self.profiles), self.ms);
        if let Some(bug) = self.planted {
            bugs::plant_in(&mut plan, bug);
        }
        let order = Order::quiet(plan, self.limits);
        let ended = order.run()?;
        let again = if is_rerun(seed, self.first_seed) { Some(order.run()?) } else { None };
        self.note(&order.plan, &ended, again.as_ref())
    }

    fn note(&self, plan: &Plan, ended: &Ended, again: Option<&Ended>) -> anyhow::Result<()> {
        let mut state = self.state();
        state.results.add(ended);
        if let Some(again) = again {
            // A limit ends a run where the machine is slow, which is no difference of the run.
            if ended.exceeded.is_none() && again.exceeded.is_none() {
                state.results.compare(plan.seed, ended.report.trace, again.report.trace);
            }
        }
        if let Some(failure) = ended.failure() {
            let path = failure::usual_file(plan);
            print(&format!("seed {}, profile {}: {}", plan.seed, plan.profile, failure.what))?;
            if state.results.fail(plan, &failure, path.clone()) {
                failure::keep(plan, &failure, &path)?;
            }
            if state.results.kinds().len() >= MAX_KIND_COUNT
                && !self.is_over.load(Ordering::Relaxed)
            {
                self.is_over.store(true, Ordering::Relaxed);
                print(&format!("{MAX_KIND_COUNT} different failures: no further seed is begun"))?;
            }
        }
        let now_us = clock::wall_us();
        if now_us >= state.reported_us + PROGRESS_US {
            state.reported_us = now_us;
            print(&state.results.progress())?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
