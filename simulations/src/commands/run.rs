//! `run`: one world.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rand::TryRng as _;
use rand::rngs::SysRng;
use umbel_step::planted::Planted;

use super::{print, write_report};
use crate::child::{Ended, Order};
use crate::exit::Exit;
use crate::limits::Limits;
use crate::plan::{PLAN_LIMITS, Plan};
use crate::profile::Profile;
use crate::trace::Level;
use crate::{bugs, clock, failure, show};

#[derive(clap::Args)]
pub(super) struct RunArgs {
    /// Number that decides all of the run; drawn and printed if it is left out
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Mix of faults [default: mixed, or the bug's own with --planted]
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<Profile>,
    /// Simulated milliseconds with faults; a while without them follows
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(PLAN_LIMITS.run_ms))]
    pub(super) ms: u64,
    #[command(flatten)]
    pub(super) trace: TraceArgs,
    /// Bug that is switched on
    #[arg(long, value_name = "NAME", value_parser = bugs::named)]
    pub(super) planted: Option<Planted>,
    /// File for all numbers of the run, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// File for the plan of a failed run [default: simulations-failures/seed-N-PROFILE.json]
    #[arg(long, value_name = "FILE")]
    pub(super) plan_file: Option<PathBuf>,
}

/// What is written down of a run.
#[derive(clap::Args)]
pub(super) struct TraceArgs {
    /// What is written to the trace file: nothing, the events of the simulation, or all that any
    /// part logs
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t)]
    pub(super) trace: Level,
    /// The trace file [default: simulations-failures/seed-N-PROFILE.trace]
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub(super) trace_file: Option<PathBuf>,
}

/// Carries the command out.
pub(super) fn run(args: &RunArgs, limits: Limits) -> anyhow::Result<Exit> {
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    let plan = plan_of(seed, args)?;
    let (ended, exit) = run_and_show(plan.clone(), &args.trace, limits)?;
    if let Some(path) = &args.report {
        write_report(&ended.report, path)?;
    }
    if let Some(failure) = ended.failure() {
        let path = args.plan_file.clone().unwrap_or_else(|| failure::usual_file(&plan));
        failure::keep(&plan, &failure, &path)?;
        print(&format!("plan: {}\n{}", path.display(), failure::next_steps(&path, limits)))?;
    }
    Ok(exit)
}

fn plan_of(seed: u64, args: &RunArgs) -> anyhow::Result<Plan> {
    let profile = match (args.profile, args.planted) {
        (Some(profile), _) => profile,
        (None, Some(bug)) => bugs::profile_of(bug)?,
        (None, None) => Profile::Mixed,
    };
    print(&format!("{profile}: {}", profile.about()))?;
    let mut plan = Plan::draw(seed, profile, args.ms);
    if let Some(bug) = args.planted {
        bugs::plant_in(&mut plan, bug);
    }
    Ok(plan)
}

/// Makes one run and prints all that it recorded.
pub(super) fn run_and_show(
    plan: Plan,
    trace: &TraceArgs,
    limits: Limits,
) -> anyhow::Result<(Ended, Exit)> {
    print(&show::plan_line(&plan))?;
    let usual = Path::new(failure::FOLDER).join(format!("{}.trace", failure::name_of(&plan)));
    let trace_file = match trace.trace {
        Level::Off => None,
        Level::Event | Level::Full => Some(trace.trace_file.clone().unwrap_or(usual)),
    };
    if let Some(folder) = trace_file.as_deref().and_then(Path::parent) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("no folder for the trace: {}", folder.display()))?;
    }
    let from_us = clock::wall_us();
    let order = Order { plan, level: trace.trace, trace_file, limits };
    let ended = order.run()?;
    let wall_us = clock::wall_us() - from_us;
    if !ended.messages.is_empty() {
        eprintln!("{}", ended.messages.trim_end());
    }
    print(&show::run_text(&ended, wall_us))?;
    if let Some(line) = show::budget_line(&order.plan) {
        print(&line)?;
    }
    if let Some(path) = &order.trace_file {
        print(&format!("trace file: {}", path.display()))?;
    }
    let exit = ended.exit();
    Ok((ended, exit))
}

/// A seed that nobody chose. Short enough to be read aloud, and exact in any JSON.
pub(super) fn fresh_seed() -> anyhow::Result<u64> {
    let drawn = SysRng.try_next_u32().context("the system gave no random number for a seed")?;
    Ok(u64::from(drawn))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(profile: Option<Profile>, planted: Option<Planted>) -> RunArgs {
        let trace = TraceArgs { trace: Level::Off, trace_file: None };
        RunArgs { seed: None, profile, ms: 1_000, trace, planted, report: None, plan_file: None }
    }

    #[test]
    fn a_bug_brings_its_profile_unless_another_is_named() {
        let bug = Planted::ALL[0];
        let own = plan_of(1, &args(None, Some(bug))).unwrap();
        assert_eq!(
            (own.profile.as_str(), own.planted.as_deref()),
            (bug.profile(), Some(bug.name()))
        );
        assert_eq!(plan_of(1, &args(Some(Profile::Calm), Some(bug))).unwrap().profile, "calm");
        let plain = plan_of(1, &args(None, None)).unwrap();
        assert_eq!((plain.profile.as_str(), plain.planted), ("mixed", None));
    }
}
