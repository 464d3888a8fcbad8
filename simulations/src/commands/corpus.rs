//! `corpus`: plans that once failed and must hold for ever.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use super::print;
use super::sweep::jobs_of;
use crate::child::{Ended, Order};
use crate::exit::Exit;
use crate::limits::Limits;
use crate::plan::Plan;
use crate::table::{Table, count};
use crate::{failure, pool};

#[derive(clap::Args)]
pub(super) struct CorpusArgs {
    /// Folder of plan files
    #[arg(default_value = "simulations/corpus")]
    folder: PathBuf,
    /// Runs at once [default: one a processor]
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u64).range(1..=4096))]
    jobs: Option<u64>,
}

/// Carries the command out.
pub(super) fn run(args: &CorpusArgs, limits: Limits) -> anyhow::Result<Exit> {
    let mut plans = Vec::new();
    for path in plan_files(&args.folder)? {
        let plan = Plan::read(&path)?;
        if let Some(bug) = &plan.planted {
            anyhow::bail!("{}: a plan of the corpus has no planted bug, got {bug}", path.display());
        }
        plans.push((path, plan));
    }
    let runs = run_all(&plans, jobs_of(args.jobs), limits)?;

    let mut table = Table::new(&["plan", "seed", "profile", "verdict"]);
    let mut exit = Exit::Held;
    let mut failures = Vec::new();
    for ((path, plan), ended) in plans.iter().zip(runs) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        exit = exit.max(ended.exit());
        let failure = ended.failure();
        let verdict = failure.as_ref().map_or_else(|| "held".to_owned(), |f| f.kind.clone());
        table.row([name, plan.seed.to_string(), plan.profile.clone(), verdict]);
        if let Some(failure) = failure {
            let command = failure::replay_line(path, limits);
            failures.push(format!("{}\n  replay: {command}", failure.what));
        }
    }
    print(&format!("{table}{}", failures.join("\n")))?;
    print(&format!("{}, {}", count(plans.len() as u64, "plan"), {
        count(failures.len() as u64, "failure")
    }))?;
    Ok(exit)
}

/// Runs plans side by side; the results are in the order of the plans.
fn run_all(plans: &[(PathBuf, Plan)], jobs: usize, limits: Limits) -> anyhow::Result<Vec<Ended>> {
    let upcoming = AtomicUsize::new(0);
    let runs = Mutex::new(Vec::new());
    let next = || Some(upcoming.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < plans.len());
    pool::work(jobs, &next, &|at| {
        let ended = Order::quiet(plans[at].1.clone(), limits).run();
        runs.lock().unwrap_or_else(PoisonError::into_inner).push((at, ended));
    });
    let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_by_key(|(at, _)| *at);
    Ok(runs.into_iter().map(|(_, ended)| ended).collect::<Result<_, _>>()?)
}

/// The plan files of a folder, by name. A folder without any is an error: it would prove nothing.
fn plan_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("no folder of plans: {}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
    anyhow::ensure!(!paths.is_empty(), "no plan file (*.json) in {}", folder.display());
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_files_are_those_that_end_in_json_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.json", "a.json", "readme.md"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let files = plan_files(folder.path()).unwrap();
        let names: Vec<_> = files.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["a.json", "b.json"]);
    }

    #[test]
    fn a_folder_without_plans_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = plan_files(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("no plan file"), "{error}");
        let error = plan_files(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.starts_with("no folder of plans"), "{error}");
    }
}
