//! What a failed run leaves for people: its plan in a file, and the commands to look at it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::child::Failure;
use crate::plan::Plan;
use crate::rebuild::command_line;

/// Folder for plans of failed runs, below the one that a command is started in.
pub(crate) const FOLDER: &str = "simulations-failures";

/// Where the plan of a failed run goes unless it is told.
pub(crate) fn usual_file(plan: &Plan) -> PathBuf {
    Path::new(FOLDER).join(format!("{}.json", name_of(plan)))
}

/// A file name for what belongs to a run, without its ending.
pub(crate) fn name_of(plan: &Plan) -> String {
    let Plan { seed, profile, .. } = plan;
    match &plan.planted {
        Some(bug) => format!("seed-{seed}-{profile}-{bug}"),
        None => format!("seed-{seed}-{profile}"),
    }
}

/// Writes the plan of a failed run, with what it violated.
pub(crate) fn keep(plan: &Plan, failure: &Failure, path: &Path) -> anyhow::Result<()> {
    let kept = Plan { expect: Some(failure.kind.clone()), ..plan.clone() };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("no folder for failures: {}", folder.display()))?;
    }
    kept.write(path)?;
    Ok(())
}

/// The commands that look at a failed run again.
pub(crate) fn next_steps(path: &Path) -> String {
    let path = path.display();
    format!(
        "  replay: {}\n  shrink: {}",
        command_line(&format!("replay {path}")),
        command_line(&format!("shrink {path}"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn a_kept_plan_expects_what_was_violated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/seed.json");
        let plan = Plan::draw(3, Profile::Crash, 1_000);
        let failure = Failure { kind: "no_panic".into(), what: "panicked".into() };
        keep(&plan, &failure, &path).unwrap();
        let read = Plan::read(&path).unwrap();
        assert_eq!(read.expect.as_deref(), Some("no_panic"));
        assert_eq!(Plan { expect: None, ..read }, plan);
        assert!(next_steps(&path).contains("seed.json"));
    }

    #[test]
    fn runs_with_and_without_a_bug_have_different_files() {
        let mut plan = Plan::draw(3, Profile::Crash, 1_000);
        assert_eq!(usual_file(&plan), Path::new("simulations-failures/seed-3-crash.json"));
        plan.planted = Some("local_read".into());
        assert_eq!(name_of(&plan), "seed-3-crash-local_read");
    }
}
