//! What a failed run leaves for people: its plan in a file, and the commands to look at it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::child::Failure;
use crate::limits::Limits;
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

/// The commands that look at a failed run again, within the limits that it had.
pub(crate) fn next_steps(path: &Path, limits: Limits) -> String {
    format!(
        "  replay: {}\n  shrink: {}",
        line("replay", path, limits),
        line("shrink", path, limits)
    )
}

/// The command that makes the run of a plan again, within these limits.
pub(crate) fn replay_line(path: &Path, limits: Limits) -> String {
    line("replay", path, limits)
}

fn line(command: &str, path: &Path, limits: Limits) -> String {
    command_line(&format!("{command} {}{}", quoted(path), limits.arguments()))
}

/// A path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
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
    }

    #[test]
    fn the_next_steps_have_the_limits_of_the_run_and_quote_its_path() {
        let steps = next_steps(Path::new("a/seed-7.json"), Limits::DEFAULT);
        let lines: Vec<&str> = steps.lines().collect();
        assert!(lines[0].ends_with(" -- replay a/seed-7.json"), "{steps}");
        assert!(lines[1].ends_with(" -- shrink a/seed-7.json"), "{steps}");
        let limits = Limits { cpu_s: 5, ..Limits::DEFAULT };
        let line = replay_line(Path::new("it's a plan.json"), limits);
        assert!(line.ends_with(r" -- replay 'it'\''s a plan.json' --cpu-limit 5"), "{line}");
    }

    #[test]
    fn runs_with_and_without_a_bug_have_different_files() {
        let mut plan = Plan::draw(3, Profile::Crash, 1_000);
        assert_eq!(usual_file(&plan), Path::new("simulations-failures/seed-3-crash.json"));
        plan.planted = Some("local_read".into());
        assert_eq!(name_of(&plan), "seed-3-crash-local_read");
    }
}
