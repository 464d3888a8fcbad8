//! The last results of comparisons between replicas, kept for reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use umbel_engine::FilterId;
use umbel_engine::shard::SliceScrubbed;
use umbel_ports::locked;

use crate::cube::CopyComparison;

/// Result of a comparison, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// Differences remain.
    Left,
    /// Nothing was compared.
    Failed,
    /// Some replicas were left out.
    Partial,
    /// Lost bits were restored.
    Mended,
    /// There were no differences.
    Equal,
}

impl Ending {
    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "differ",
            Self::Failed => "failed",
            Self::Partial => "partial",
            Self::Mended => "mended",
            Self::Equal => "equal",
        }
    }
}

/// A completed comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// Time by the node's clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its result.
    pub ending: Ending,
    /// Bits that some replica had lost.
    pub lost_count: u64,
    /// Bits that some replica had, but the majority had not.
    pub surplus_count: u64,
    /// Why something was left out; empty if nothing was.
    pub why: String,
}

impl Comparison {
    /// The result for the replicas of a slice.
    pub(crate) fn of_slice<E: ToString>(at_ms: u64, outcome: &Result<SliceScrubbed, E>) -> Self {
        let report = match outcome {
            Ok(report) => report,
            Err(error) => return Self::failed(at_ms, error.to_string()),
        };
        let sum = |of: fn(&umbel_engine::shard::ReplicaBits) -> u64| {
            report.differing.values().map(of).fold(0, u64::saturating_add)
        };
        let away = report.away.iter().map(|(node, why)| format!("{node}: {why}"));
        let ending = match report {
            _ if report.left_blocks > 0 || report.answers_differ => Ending::Left,
            _ if !report.away.is_empty() => Ending::Partial,
            _ if !report.differing.is_empty() => Ending::Mended,
            _ => Ending::Equal,
        };
        let (lost_count, surplus_count) = (sum(|bits| bits.lost), sum(|bits| bits.surplus));
        let why = away.collect::<Vec<_>>().join("; ");
        Self { at_ms, ending, lost_count, surplus_count, why }
    }

    /// The result for two copies.
    pub(crate) fn of_copies<E: ToString>(at_ms: u64, outcome: &Result<CopyComparison, E>) -> Self {
        let compared = match outcome {
            Ok(compared) => compared,
            Err(error) => return Self::failed(at_ms, error.to_string()),
        };
        let lost_count = compared.ours.lost_count.saturating_add(compared.theirs.lost_count);
        let ending = if lost_count > 0 { Ending::Mended } else { Ending::Equal };
        Self { at_ms, ending, lost_count, surplus_count: 0, why: String::new() }
    }

    const fn failed(at_ms: u64, why: String) -> Self {
        Self { at_ms, ending: Ending::Failed, lost_count: 0, surplus_count: 0, why }
    }
}

/// The last comparison for each key, and when each filter was last found equal, or made equal.
pub(crate) struct LastComparisons<K>(Mutex<Kept<K>>);

struct Kept<K> {
    last: BTreeMap<K, Comparison>,
    verified: BTreeMap<FilterId, Instant>,
}

impl<K> Default for LastComparisons<K> {
    fn default() -> Self {
        Self(Mutex::new(Kept { last: BTreeMap::new(), verified: BTreeMap::new() }))
    }
}

impl<K: Ord> LastComparisons<K> {
    /// Replaces the last comparison of a key.
    pub(crate) fn note(&self, key: K, comparison: Comparison) {
        locked(&self.0).last.insert(key, comparison);
    }

    /// Notes that a filter was found equal, or made equal.
    pub(crate) fn verified(&self, filter: FilterId) {
        locked(&self.0).verified.insert(filter, Instant::now());
    }

    /// The longest time since one of these filters was verified, or was named here first; None if there are none.
    /// Forgets whatever is about others, by the filter of each key.
    pub(crate) fn age(
        &self,
        filters: &BTreeSet<FilterId>,
        filter_of: impl Fn(&K) -> FilterId,
    ) -> Option<Duration> {
        let mut kept = locked(&self.0);
        let Kept { last, verified } = &mut *kept;
        last.retain(|key, _| filters.contains(&filter_of(key)));
        verified.retain(|filter, _| filters.contains(filter));
        let now = Instant::now();
        filters.iter().map(|&filter| verified.entry(filter).or_insert(now).elapsed()).max()
    }

    /// The last comparison of each of the keys.
    pub(crate) fn of(&self, keys: impl IntoIterator<Item = K>) -> Vec<(K, Option<Comparison>)> {
        let kept = locked(&self.0);
        let found = keys.into_iter().map(|key| {
            let comparison = kept.last.get(&key).cloned();
            (key, comparison)
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::NodeId;
    use umbel_engine::shard::ReplicaBits;

    use super::*;

    #[test]
    fn the_worst_ending_of_a_comparison_is_reported() {
        let mut report = SliceScrubbed::default();
        let ending =
            |report: &SliceScrubbed| Comparison::of_slice::<String>(7, &Ok(report.clone())).ending;
        assert_eq!(ending(&report), Ending::Equal);
        report.differing.insert(NodeId(1), ReplicaBits { lost: 3, surplus: 1 });
        report.differing.insert(NodeId(2), ReplicaBits { lost: 2, surplus: 0 });
        assert_eq!(ending(&report), Ending::Mended);
        report.away.insert(NodeId(3), "silent".to_owned());
        let comparison = Comparison::of_slice::<String>(7, &Ok(report.clone()));
        assert_eq!(
            (comparison.ending, comparison.lost_count, comparison.surplus_count),
            (Ending::Partial, 5, 1)
        );
        assert!(comparison.why.contains("silent"), "{}", comparison.why);
        report.left_blocks = 1;
        assert_eq!(ending(&report), Ending::Left);
        let failed = Comparison::of_slice(7, &Err("no leader".to_owned()));
        assert_eq!((failed.ending, &*failed.why), (Ending::Failed, "no leader"));
    }

    #[test]
    fn the_last_one_is_kept_of_what_is_there() {
        let last = LastComparisons::default();
        let failed = |at_ms| Comparison::of_copies(at_ms, &Err("away".to_owned()));
        for (key, at_ms) in [(1, 5), (2, 6), (1, 7)] {
            last.note(key, failed(at_ms));
        }
        assert_eq!(last.of([1, 3]), [(1, Some(failed(7))), (3, None)]);
        assert!(last.age(&[FilterId(1)].into(), |&key| FilterId(key)).is_some());
        assert_eq!(last.of([2]), [(2, None)]);
        assert_eq!(last.of([1]), [(1, Some(failed(7)))]);
        assert_eq!(last.age(&BTreeSet::new(), |&key| FilterId(key)), None);
        assert_eq!(last.of([1]), [(1, None)]);
    }
}
