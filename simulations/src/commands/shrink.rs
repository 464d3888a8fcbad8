//! `shrink`: a smaller plan that fails in the same way.

use std::path::{Path, PathBuf};

use super::print;
use crate::child::{ChildError, Order};
use crate::exit::Exit;
use crate::limits::Limits;
use crate::plan::Plan;
use crate::shrink::shrink;
use crate::table::count;
use crate::{clock, failure, show};

#[derive(clap::Args)]
pub(super) struct ShrinkArgs {
    /// The plan, as `run` and `sweep` leave it behind
    pub(super) plan: PathBuf,
    /// File for the smaller plan [default: PLAN with the ending .small.json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Runs that are tried at most
    #[arg(long, value_name = "N", default_value_t = 400)]
    runs: u32,
    /// Real minutes that it may take
    #[arg(long, value_name = "M", default_value_t = 10)]
    minutes: u64,
}

/// Carries the command out. It ends as the smaller plan does, which fails.
pub(super) fn run(args: &ShrinkArgs, limits: Limits) -> anyhow::Result<Exit> {
    let plan = Plan::read(&args.plan)?;
    let ended = Order::quiet(plan.clone(), limits).run()?;
    let Some(failure) = ended.failure() else {
        anyhow::bail!("{}: no promise is broken, so nothing can shrink", args.plan.display());
    };
    let kind = match &plan.expect {
        Some(expected) if ended.failed_as(expected) => expected.clone(),
        _ => failure.kind,
    };
    print(&format!("before: {}", show::plan_line(&plan)))?;
    print(&format!("while {kind} is violated, {} at most", count(args.runs.into(), "run")))?;

    let until_us = clock::wall_us().saturating_add(args.minutes.saturating_mul(60_000_000));
    let mut error: Option<ChildError> = None;
    let shrunk = shrink(&plan, args.runs, &mut |smaller| {
        if error.is_some() || clock::wall_us() >= until_us {
            return false;
        }
        match Order::quiet(smaller.clone(), limits).run() {
            Ok(ended) => ended.failed_as(&kind),
            Err(failed) => {
                error = Some(failed);
                false
            }
        }
    });
    if let Some(error) = error {
        return Err(error.into());
    }

    let smaller = Plan { expect: Some(kind), ..shrunk.plan };
    let output = args.output.clone().unwrap_or_else(|| small_file(&args.plan));
    smaller.write(&output)?;
    print(&format!("after:  {}", show::plan_line(&smaller)))?;
    let command = failure::replay_line(&output, limits);
    let rest = if shrunk.is_minimal && clock::wall_us() < until_us {
        "nothing more can go"
    } else {
        "more runs or minutes may shrink it further"
    };
    print(&format!(
        "plan: {}, after {}; {rest}\n  replay: {command}",
        output.display(),
        count(shrunk.run_count.into(), "run"),
    ))?;
    Ok(Exit::Held)
}

/// Where a smaller plan goes unless it is told.
fn small_file(plan: &Path) -> PathBuf {
    plan.with_extension("small.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_plan_lies_beside_its_plan() {
        let small = small_file(Path::new("failures/seed-7-crash.json"));
        assert_eq!(small, Path::new("failures/seed-7-crash.small.json"));
    }
}
