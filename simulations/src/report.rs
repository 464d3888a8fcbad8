//! The report of a run, as data.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::counters::{self, Counters};
use crate::history::{Call, Outcome};
use crate::plan::Plan;
use crate::trace::{self, TraceDigest};
use crate::violation::Violation;

/// The report of one run.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunReport {
    /// The plan's seed.
    pub(crate) seed: u64,
    /// The plan's profile.
    pub(crate) profile: String,
    /// The planted bug that was switched on.
    pub(crate) planted: Option<String>,
    /// Simulated milliseconds, with and without faults.
    pub(crate) simulated_ms: u64,
    /// Number of client calls by outcome: `done`, `not_applied`, `unknown`, `reused`.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Number of items in checked answers.
    pub(crate) items_checked: u64,
    /// Counters of faults, states and checks.
    pub(crate) counters: Counters,
    /// Digest of the trace; equal for two equal runs.
    pub(crate) trace: TraceDigest,
    /// Violations, in the order in which they were found.
    pub(crate) violations: Vec<Breach>,
}

/// A violation of an invariant, as reports store it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Breach {
    /// Name of the invariant.
    pub(crate) invariant: String,
    /// When it was found, in simulated microseconds since the start.
    pub(crate) at_us: u64,
    /// What was expected and what was seen.
    pub(crate) what: String,
}

impl From<Violation> for Breach {
    fn from(violation: Violation) -> Self {
        let Violation { invariant, at_us, what } = violation;
        Self { invariant: invariant.to_owned(), at_us, what }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, at_us, what } = self;
        write!(f, "{invariant} at {}.{:06} s: {what}", at_us / 1_000_000, at_us % 1_000_000)
    }
}

impl RunReport {
    /// Whether this invariant was violated.
    pub(crate) fn violates(&self, invariant: &str) -> bool {
        self.violations.iter().any(|breach| breach.invariant == invariant)
    }
}

/// The report of a run that has ended.
pub(crate) fn report(
    plan: &Plan,
    simulated_ms: u64,
    calls: &[Call],
    violations: Vec<Violation>,
) -> RunReport {
    let mut ends = BTreeMap::new();
    let mut items_checked = 0;
    for call in calls {
        let end = match &call.outcome {
            Outcome::Done(answers) => {
                items_checked += answers.len() as u64;
                "done"
            }
            Outcome::NotApplied(_) => "not_applied",
            Outcome::Unknown(_) => "unknown",
            Outcome::Reused(_) => "reused",
        };
        *ends.entry(end.to_owned()).or_default() += 1;
    }
    RunReport {
        seed: plan.seed,
        profile: plan.profile.clone(),
        planted: plan.planted.clone(),
        simulated_ms,
        calls: ends,
        items_checked,
        counters: counters::take(),
        trace: trace::finish(),
        violations: violations.into_iter().map(Into::into).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RunReport {
        let violation =
            Violation { invariant: "one_new_per_item", at_us: 1_000_002, what: "two".into() };
        RunReport {
            seed: u64::MAX,
            profile: "mixed".into(),
            planted: Some("local_read".into()),
            simulated_ms: 62_000,
            calls: BTreeMap::from([("done".into(), 3), ("unknown".into(), 1)]),
            items_checked: 12,
            violations: vec![violation.into()],
            ..RunReport::default()
        }
    }

    #[test]
    fn survives_json() {
        let report = sample();
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<RunReport>(&json).unwrap(), report);
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let json = serde_json::to_string(&sample()).unwrap().replace("items_checked", "items");
        assert!(serde_json::from_str::<RunReport>(&json).is_err());
    }

    #[test]
    fn a_breach_reads_as_its_violation_does() {
        let violation =
            Violation { invariant: "no_panic", at_us: 2_000_345, what: "it did".into() };
        let text = violation.to_string();
        assert_eq!(Breach::from(violation).to_string(), text);
        assert_eq!(text, "no_panic at 2.000345 s: it did");
        assert!(sample().violates("one_new_per_item"));
        assert!(!sample().violates("no_panic"));
    }
}
