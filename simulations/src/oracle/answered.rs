//! The parts of requests that a shard has answered, which it answers again and does not apply.

use std::collections::BTreeMap;

use umbel_engine::RequestId;
use umbel_engine::shard::RequestStamp;

/// By request, the first and last hash of the ranges for which its answered parts were cut.
///
/// Where shards were split and merged, a retry is cut for another range than the part that was answered. If
/// both have the same items, the shard gives the first answer. If not, it refuses the retry. So a part that a
/// shard did not refuse was answered before if its range overlaps that of an answered part.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnsweredParts(BTreeMap<RequestId, Vec<(u64, u64)>>);

impl AnsweredParts {
    /// Whether the part of this stamp, which was not refused, was answered before. A part without one never was.
    pub(crate) fn has(&self, stamp: Option<RequestStamp>) -> bool {
        let Some(RequestStamp { id, cut: (first, last), .. }) = stamp else { return false };
        let overlaps =
            |&(other_first, other_last): &(u64, u64)| first <= other_last && other_first <= last;
        self.0.get(&id).is_some_and(|cuts| cuts.iter().any(overlaps))
    }

    /// Remembers a part that was answered. Returns whether it had been answered before.
    pub(crate) fn insert(&mut self, stamp: Option<RequestStamp>) -> bool {
        let had = self.has(stamp);
        if let Some(RequestStamp { id, cut, .. }) = stamp.filter(|_| !had) {
            self.0.entry(id).or_default().push(cut);
        }
        had
    }

    /// Takes in the parts of a shard that this one absorbs.
    pub(crate) fn extend(&mut self, other: Self) {
        for (id, cuts) in other.0 {
            let ours = self.0.entry(id).or_default();
            // The halves of a shard have all that it had answered.
            ours.extend(cuts);
            ours.sort_unstable();
            ours.dedup();
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::{OwnerId, SessionId};

    use super::*;

    fn stamp(sequence: u64, cut: (u64, u64)) -> Option<RequestStamp> {
        let id = RequestId { session: SessionId(1), sequence };
        let owner = OwnerId::default();
        Some(RequestStamp { id, acknowledged_below: 0, digest: 0, cut, owner })
    }

    #[test]
    fn a_part_with_hashes_of_an_answered_one_was_answered() {
        let mut answered = AnsweredParts::default();
        assert!(!answered.insert(stamp(1, (100, 199))));
        assert!(answered.insert(stamp(1, (100, 199))));
        for (cut, had) in
            [((0, 99), false), ((0, 100), true), ((199, 300), true), ((200, 300), false)]
        {
            assert_eq!(answered.has(stamp(1, cut)), had, "{cut:?}");
            assert!(!answered.has(stamp(2, cut)), "{cut:?}");
        }
        assert!(!answered.insert(None) && !answered.insert(None));
    }

    #[test]
    fn a_shard_has_answered_what_one_that_it_absorbs_had() {
        let [mut lower, mut upper] = [AnsweredParts::default(), AnsweredParts::default()];
        lower.insert(stamp(1, (0, 99)));
        upper.insert(stamp(1, (100, 199)));
        upper.insert(stamp(2, (100, 199)));
        lower.extend(upper);
        let had = [stamp(1, (0, 0)), stamp(1, (150, 150)), stamp(2, (150, 150)), stamp(2, (0, 0))];
        assert_eq!(had.map(|stamp| lower.has(stamp)), [true, true, true, false]);
    }
}
