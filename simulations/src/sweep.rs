//! Runs many seeds and sums up their results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::child::{Ended, Failure};
use crate::counters::Counters;
use crate::exit::Exit;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::promises::EXCEEDED;
use crate::show::counters_text;
use crate::table::{Table, count, grouped, per};
use crate::trace::TraceDigest;

/// Number of kinds of failures after which a sweep stops.
pub(crate) const MAX_KIND_COUNT: usize = 5;

/// Number of failures of one kind whose plans are kept.
const KEPT_PER_KIND: usize = 3;

/// Number of seeds from which on a fault or state that never occurred fails a sweep: with fewer it may
/// be chance.
pub(crate) const ENOUGH_SEEDS: u64 = 200;

/// Promises that every run with nodes checks, whatever its plan draws.
const OF_NODES: [&str; 4] = ["heals_and_agrees", "heals_and_serves", "raft", "replicas_agree"];

/// Promises that every run with sessions of set reconciliation alone checks.
const OF_SESSIONS: [&str; 2] = ["sessions_end", "sets_end_equal"];

/// Promises that enough runs over all profiles check, whatever their plans draw.
const OF_ALL: [&str; 5] = [
    "acked_is_contained",
    "answers_linearize",
    "attempted_bounds_bits",
    "every_call_returns",
    "one_new_per_item",
];

/// One of this many seeds is run twice, to compare its traces.
const RERUN_EVERY: u64 = 100;

/// The seeds from `first` up to, but not including, `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SeedRange {
    /// The first seed.
    pub(crate) first: u64,
    /// One more than the last.
    pub(crate) end: u64,
}

/// A text is no range of seeds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SeedRangeError {
    /// Its form is wrong.
    #[error("expected seeds as A..B, two numbers, got {0:?}")]
    Form(String),
    /// There is no seed in it.
    #[error("a seed range of nothing: from {first} up to, and without, {end}")]
    Nothing {
        /// Its start.
        first: u64,
        /// Its end.
        end: u64,
    },
}

impl FromStr for SeedRange {
    type Err = SeedRangeError;

    fn from_str(text: &str) -> Result<Self, SeedRangeError> {
        let wrong = || SeedRangeError::Form(text.to_owned());
        let (first, end) = text.split_once("..").ok_or_else(wrong)?;
        let first = first.trim().parse().map_err(|_| wrong())?;
        let end = end.trim().parse().map_err(|_| wrong())?;
        if first < end {
            Ok(Self { first, end })
        } else {
            Err(SeedRangeError::Nothing { first, end })
        }
    }
}

/// The profile of a seed: with one profile always that one, with several in rotation.
pub(crate) fn profile_of(seed: u64, profiles: &[Profile]) -> Profile {
    let turn = usize::try_from(seed % profiles.len() as u64).unwrap_or(0);
    profiles[turn]
}

/// The promises that enough seeds of these profiles must check.
fn demanded(profiles: &[Profile]) -> impl Iterator<Item = &'static str> + use<> {
    let is_in = |is_of_sessions: bool| {
        profiles.iter().any(|profile| (*profile == Profile::Reconcile) == is_of_sessions)
    };
    let is_all = profiles.len() >= Profile::in_turn().len();
    let lists: [(&[&'static str], bool); 3] =
        [(&OF_NODES, is_in(false)), (&OF_SESSIONS, is_in(true)), (&OF_ALL, is_all)];
    lists.into_iter().filter(|(_, is_used)| *is_used).flat_map(|(names, _)| names.iter().copied())
}

/// Whether this seed of a sweep is run twice.
pub(crate) const fn is_rerun(seed: u64, first_seed: u64) -> bool {
    seed.wrapping_sub(first_seed).is_multiple_of(RERUN_EVERY)
}

/// The results of a sweep, which are also its JSON report.
#[derive(Default, Debug, Serialize)]
pub(crate) struct SweepResults {
    /// Profiles of its seeds.
    pub(crate) profiles: Vec<String>,
    /// The bug that was on.
    pub(crate) planted: Option<String>,
    /// Its first seed.
    pub(crate) first_seed: u64,
    /// Finished runs, without repeated runs of a seed.
    pub(crate) seed_count: u64,
    /// Simulated milliseconds of these.
    pub(crate) simulated_ms: u64,
    /// Real milliseconds of the sweep.
    pub(crate) wall_ms: u64,
    /// Milliseconds of processor time of the runs.
    pub(crate) cpu_ms: u64,
    /// Calls of clients by outcome.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Items in answers that were checked.
    pub(crate) items_checked: u64,
    /// Faults, states, checks.
    pub(crate) counters: Counters,
    /// Seeds that were run twice.
    pub(crate) rerun_count: u64,
    /// Seeds whose two runs differed.
    pub(crate) different_seeds: BTreeSet<u64>,
    /// Failed runs, by seed.
    pub(crate) failures: BTreeMap<u64, Failed>,
    /// Faults that should have had an effect and had none.
    pub(crate) faults_without_effect: Vec<String>,
    /// States that should have been reached and were not.
    pub(crate) states_never_reached: Vec<String>,
    /// Promises that nothing was checked of: with few seeds it may be chance.
    pub(crate) never_checked: BTreeSet<String>,
    /// Those of them that any sweep of so many seeds checks.
    pub(crate) checks_missing: Vec<String>,
}

/// A run that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Failed {
    /// Its profile.
    pub(crate) profile: String,
    /// The invariant that was violated, or `exceeded`.
    pub(crate) kind: String,
    /// What was seen.
    pub(crate) what: String,
    /// The file of its plan, if it is kept: of each kind only the first few are.
    pub(crate) plan_file: Option<PathBuf>,
}

impl SweepResults {
    /// Adds a run.
    pub(crate) fn add(&mut self, ended: &Ended) {
        let report = &ended.report;
        self.seed_count += 1;
        self.simulated_ms += report.simulated_ms;
        self.cpu_ms += ended.cpu_us.div_ceil(1_000);
        self.items_checked += report.items_checked;
        for (end, number) in &report.calls {
            *self.calls.entry(end.clone()).or_default() += number;
        }
        self.counters.add(&report.counters);
    }

    /// Adds a failed run. Returns whether its plan is to be kept in `file`.
    pub(crate) fn fail(&mut self, plan: &Plan, failure: &Failure, file: PathBuf) -> bool {
        let of_kind = self.failures.values().filter(|failed| failed.kind == failure.kind).count();
        let is_kept = of_kind < KEPT_PER_KIND;
        let failed = Failed {
            profile: plan.profile.clone(),
            kind: failure.kind.clone(),
            what: failure.what.clone(),
            plan_file: is_kept.then_some(file),
        };
        self.failures.insert(plan.seed, failed);
        is_kept
    }

    /// Adds the traces of two runs of one seed.
    pub(crate) fn compare(&mut self, seed: u64, first: TraceDigest, second: TraceDigest) {
        self.rerun_count += 1;
        if first != second {
            self.different_seeds.insert(seed);
        }
    }

    /// Failures by their kind.
    pub(crate) fn kinds(&self) -> BTreeMap<&str, u64> {
        let mut kinds = BTreeMap::new();
        for failed in self.failures.values() {
            *kinds.entry(failed.kind.as_str()).or_default() += 1;
        }
        kinds
    }

    /// Records what should have occurred and did not, after all runs. The faults and promises are those of
    /// the profiles; states are required only if every profile was used. A run that fails is not checked to its end.
    pub(crate) fn note_what_is_missing(&mut self, profiles: &[Profile]) {
        if self.planted.is_some() || !self.failures.is_empty() {
            return;
        }
        self.never_checked = self.counters.never_checked().into_iter().collect();
        if self.seed_count < ENOUGH_SEEDS {
            return;
        }
        let is_missing =
            |name: &&str| self.counters.checked.get(*name).is_none_or(|&count| count == 0);
        self.checks_missing = demanded(profiles).filter(is_missing).map(str::to_owned).collect();
        self.never_checked.extend(self.checks_missing.iter().cloned());
        let enabled = profiles.iter().flat_map(|profile| profile.classes());
        let mut idle: BTreeSet<String> = enabled
            .filter(|&&class| {
                self.counters.faults.get(class).is_none_or(|counts| counts.effect == 0)
            })
            .map(|&class| class.to_owned())
            .collect();
        idle.extend(self.counters.classes_without_effect());
        self.faults_without_effect = idle.into_iter().collect();
        if profiles.len() >= Profile::in_turn().len() {
            self.states_never_reached = self.counters.states_never_reached();
        }
    }

    /// What the sweep ends with.
    pub(crate) fn exit(&self) -> Exit {
        let has_violation = self.failures.values().any(|failed| failed.kind != EXCEEDED);
        if !self.different_seeds.is_empty() {
            Exit::NotDeterministic
        } else if has_violation {
            Exit::Violated
        } else if !self.failures.is_empty() {
            Exit::Exceeded
        } else if !self.faults_without_effect.is_empty()
            || !self.states_never_reached.is_empty()
            || !self.checks_missing.is_empty()
        {
            Exit::WithoutEffect
        } else {
            Exit::Held
        }
    }

    /// The progress of the sweep, in one line.
    pub(crate) fn progress(&self) -> String {
        format!(
            "{}, {} simulated hours, {} simulated s for each second of processor time, {}",
            count(self.seed_count, "seed"),
            per(self.simulated_ms, 3_600_000),
            per(self.simulated_ms, self.cpu_ms),
            count(self.failures.len() as u64, "failure"),
        )
    }

    /// All results as tables.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new(&["sweep", ""]);
        table.row(["seeds".into(), grouped(self.seed_count)]);
        table.row(["simulated hours".into(), per(self.simulated_ms, 3_600_000)]);
        table.row(["simulated s a second".into(), per(self.simulated_ms, self.wall_ms)]);
        table.row(["simulated s a core second".into(), per(self.simulated_ms, self.cpu_ms)]);
        for (end, number) in &self.calls {
            table.row([format!("calls {end}"), grouped(*number)]);
        }
        table.row(["items checked".into(), grouped(self.items_checked)]);
        table.row(["seeds run twice".into(), grouped(self.rerun_count)]);
        table.row(["of these different".into(), grouped(self.different_seeds.len() as u64)]);
        table.row(["failures".into(), grouped(self.failures.len() as u64)]);
        for (kind, number) in self.kinds() {
            table.row([format!("  {kind}"), grouped(number)]);
        }
        let mut text = format!("{table}{}\n", counters_text(&self.counters));
        for seed in &self.different_seeds {
            text += &format!("not deterministic: seed {seed} made two different runs\n");
        }
        for class in &self.faults_without_effect {
            text += &format!("without effect: the fault {class}\n");
        }
        for state in &self.states_never_reached {
            text += &format!("never reached: the state {state}\n");
        }
        for name in &self.never_checked {
            text += &format!("never checked: {name}\n");
        }
        text
    }
}

#[cfg(test)]
#[path = "sweep_test.rs"]
mod tests;
