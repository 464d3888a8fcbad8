//! `replay`: the run of a plan file.

use std::path::PathBuf;

use super::print;
use super::run::{TraceArgs, run_and_show};
use crate::child::Ended;
use crate::exit::Exit;
use crate::limits::Limits;
use crate::plan::Plan;

#[derive(clap::Args)]
pub(super) struct ReplayArgs {
    /// The plan, as `run` and `sweep` leave it behind
    pub(super) plan: PathBuf,
    #[command(flatten)]
    pub(super) trace: TraceArgs,
}

/// Carries the command out.
pub(super) fn run(args: &ReplayArgs, limits: Limits) -> anyhow::Result<Exit> {
    let plan = Plan::read(&args.plan)?;
    let expected = plan.expect.clone();
    if !plan.note.is_empty() {
        print(&plan.note)?;
    }
    let (ended, exit) = run_and_show(plan, &args.trace, limits)?;
    if let Some(expected) = expected {
        print(&against(&expected, &ended))?;
    }
    Ok(exit)
}

/// How a run compares with what its plan says it violated.
fn against(expected: &str, ended: &Ended) -> String {
    match ended.failure() {
        _ if ended.failed_as(expected) => format!("{expected} was violated again"),
        Some(failure) => format!("{expected} was not violated again, but {} was", failure.kind),
        None => format!("{expected}, which the plan expects to be violated, held"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Breach, RunReport};

    #[test]
    fn a_replay_says_whether_it_fails_as_before() {
        let mut ended = Ended {
            report: RunReport::default(),
            cpu_us: 0,
            exceeded: None,
            messages: String::new(),
        };
        assert!(against("no_panic", &ended).ends_with("held"));
        let breach = Breach { invariant: "no_panic".into(), at_us: 0, what: "it did".into() };
        ended.report.violations.push(breach);
        assert_eq!(against("no_panic", &ended), "no_panic was violated again");
        let other = against("bits_only_rise", &ended);
        assert_eq!(other, "bits_only_rise was not violated again, but no_panic was");
    }
}
