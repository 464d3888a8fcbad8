//! `meta`: whether a seed makes the same run each time. While it does not, no other result counts.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::print;
use crate::child::{ChildError, Ended, Order};
use crate::exit::Exit;
use crate::failure;
use crate::limits::Limits;
use crate::meta::{Comparison, compare};
use crate::plan::{PLAN_LIMITS, Plan};
use crate::profile::Profile;
use crate::table::{count, grouped};
use crate::trace::Level;

#[derive(clap::Args)]
pub(super) struct MetaArgs {
    /// The seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Number of seeds, counted from 1
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Mix of faults
    #[arg(long, value_name = "NAME", default_value = "mixed")]
    profile: Profile,
    /// Simulated milliseconds with faults in each run
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(PLAN_LIMITS.run_ms))]
    ms: u64,
}

/// Carries the command out.
pub(super) fn run(args: &MetaArgs, limits: Limits) -> anyhow::Result<Exit> {
    let seeds = match args.seed {
        Some(seed) => seed..=seed,
        None => 1..=args.seeds,
    };
    std::fs::create_dir_all(failure::FOLDER)
        .with_context(|| format!("no folder for traces: {}", failure::FOLDER))?;
    let mut exit = Exit::Held;
    for seed in seeds {
        exit = exit.max(run_twice(&Plan::draw(seed, args.profile, args.ms), limits)?);
    }
    Ok(exit)
}

/// Runs a plan twice, side by side, and compares. Traces that differ are left for a closer look.
fn run_twice(plan: &Plan, limits: Limits) -> anyhow::Result<Exit> {
    let seed = plan.seed;
    let [first, second] = ["1", "2"].map(|number| trace_file(plan, number));
    let order = |path: &Path| {
        let trace_file = Some(path.to_owned());
        Order { plan: plan.clone(), level: Level::Full, trace_file, limits }
    };
    let (one, other) = at_once(&order(&first), &order(&second))?;
    let exceeded = one.exceeded.as_ref().or(other.exceeded.as_ref());
    if let Some(what) = exceeded {
        print(&format!("seed {seed}: the run {what}"))?;
        return Ok(Exit::Exceeded);
    }
    let read = |path: &Path| {
        let file = File::open(path).with_context(|| format!("no trace: {}", path.display()))?;
        anyhow::Ok(BufReader::with_capacity(1 << 20, file))
    };
    let comparison = compare(read(&first)?, read(&second)?)?;
    print(&verdict(seed, &comparison, one.report == other.report))?;
    if comparison.difference.is_some() {
        print(&format!("  traces: {} {}", first.display(), second.display()))?;
        return Ok(Exit::NotDeterministic);
    }
    for path in [first, second] {
        std::fs::remove_file(path)?;
    }
    Ok(if one.report == other.report { Exit::Held } else { Exit::NotDeterministic })
}

fn at_once(first: &Order, second: &Order) -> Result<(Ended, Ended), ChildError> {
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| second.run());
        let one = first.run();
        (one, other.join())
    });
    match other {
        Ok(other) => Ok((one?, other?)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn verdict(seed: u64, comparison: &Comparison, are_reports_equal: bool) -> String {
    let Comparison { line_count, byte_count, difference } = comparison;
    let size = format!("{}, {} bytes", count(*line_count, "line"), grouped(*byte_count));
    match difference {
        Some(difference) => format!(
            "seed {seed}: not deterministic, different from line {}, after {size}\n{difference}",
            grouped(difference.line)
        ),
        None if are_reports_equal => format!("seed {seed}: twice the same, {size}"),
        None => format!("seed {seed}: not deterministic, equal traces but different reports"),
    }
}

fn trace_file(plan: &Plan, number: &str) -> PathBuf {
    Path::new(failure::FOLDER).join(format!("{}.meta-{number}.trace", failure::name_of(plan)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_distinguishes_equal_runs_from_different_ones() {
        let same = compare("a\nb\n".as_bytes(), "a\nb\n".as_bytes()).unwrap();
        assert_eq!(verdict(7, &same, true), "seed 7: twice the same, 2 lines, 4 bytes");
        assert!(verdict(7, &same, false).contains("different reports"));
        let other = compare("a\nb\n".as_bytes(), "a\nc\n".as_bytes()).unwrap();
        let text = verdict(7, &other, true);
        let expected = "seed 7: not deterministic, different from line 2, after 1 line, 2 bytes\n";
        assert!(text.starts_with(expected) && text.ends_with("  1 b\n  2 c"), "{text}");
    }
}
