//! The changes of a copy, in order, as far back as its memory reaches.
//!
//! ```text
//! sequence   100       104     107      112 = end
//!            │ a b c d │ e f g │ h i j k l │           entries
//!            │  here   │ log 3 │   here    │           the log that they came from
//!              ▲                 ▲
//!       a node that has what     the node of log 3 has what is before 104, and
//!       is before 102 gets       sent e f g itself: it gets h i j k l
//!       c d e f g h i j k l
//! ```
//!
//! Logs have numbers because a node that starts over may have lost entries that it sent; it then has
//! a new log.
//!
//! The log is bounded. A partner that is behind its start gets the whole filter instead.

use std::collections::VecDeque;

/// Consecutive entries from the same source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    /// Sequence number after the last entry.
    end: u64,
    /// Number of the log that they came from; None for local inserts.
    source: Option<u64>,
}

/// Changes of a copy with their sequence numbers. Keeps the last `entry_count_max`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DeltaLog {
    /// Sequence number of the oldest entry.
    start: u64,
    entries: VecDeque<u64>,
    /// By ascending end; together they cover all entries.
    runs: VecDeque<Run>,
    entry_count_max: usize,
}

impl DeltaLog {
    /// An empty log that continues from a sequence number.
    pub(super) const fn new(start: u64, entry_count_max: usize) -> Self {
        Self { start, entries: VecDeque::new(), runs: VecDeque::new(), entry_count_max }
    }

    /// Sequence number of the oldest entry.
    pub(super) const fn start(&self) -> u64 {
        self.start
    }

    /// Sequence number of the next entry.
    pub(super) fn end(&self) -> u64 {
        self.start + self.entries.len() as u64
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends entries, and drops the oldest ones above the limit.
    pub(super) fn append(&mut self, source: Option<u64>, entries: &[u64]) {
        if entries.is_empty() {
            return;
        }
        let end = self.end() + entries.len() as u64;
        match self.runs.back_mut() {
            Some(run) if run.source == source => run.end = end,
            _ => self.runs.push_back(Run { end, source }),
        }
        self.entries.extend(entries);
        let excess = self.entries.len().saturating_sub(self.entry_count_max);
        self.forget_below(self.start + excess as u64);
    }

    /// The entries, to be replaced in place.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.entries.iter_mut()
    }

    /// Records a change that cannot be listed, such as a merged whole filter: drops all entries, so
    /// that every partner is behind the start.
    pub(super) fn skip(&mut self) {
        self.start = self.end() + 1;
        self.entries.clear();
        self.runs.clear();
    }

    /// Drops entries below a sequence number, or all of them if it is beyond the end.
    pub(super) fn forget_below(&mut self, sequence: u64) {
        let count = sequence.min(self.end()).saturating_sub(self.start);
        let count = usize::try_from(count).expect("no more than there are");
        self.entries.drain(..count);
        self.start += count as u64;
        while self.runs.front().is_some_and(|run| run.end <= self.start) {
            self.runs.pop_front();
        }
    }

    /// The entries from a sequence number on, oldest first, except those that came from this log.
    /// None if older entries were dropped.
    pub(super) fn since(&self, sequence: u64, log: u64) -> Option<impl Iterator<Item = u64> + '_> {
        (sequence >= self.start).then(|| {
            let mut begin = self.start;
            self.runs.iter().flat_map(move |run| {
                let from = std::mem::replace(&mut begin, run.end).max(sequence);
                let is_theirs = run.source == Some(log);
                let (from, to) =
                    if is_theirs || from >= run.end { (0, 0) } else { (from, run.end) };
                let at = |sequence: u64| {
                    usize::try_from(sequence.saturating_sub(self.start)).unwrap_or(usize::MAX)
                };
                self.entries.range(at(from)..at(to)).copied()
            })
        })
    }

    /// Number of entries from a sequence number on, except those that came from this log: what its
    /// node lacks, or more if older entries were dropped.
    pub(super) fn count_since(&self, sequence: u64, log: u64) -> u64 {
        let mut begin = self.start;
        let mut count = self.start.saturating_sub(sequence);
        for run in &self.runs {
            let from = std::mem::replace(&mut begin, run.end).max(sequence);
            if run.source != Some(log) {
                count += run.end.saturating_sub(from);
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: u64 = 3;

    fn since(log: &DeltaLog, sequence: u64, other: u64) -> Option<Vec<u64>> {
        log.since(sequence, other).map(Iterator::collect)
    }

    #[test]
    fn partners_get_what_they_lack_and_did_not_send() {
        let mut log = DeltaLog::new(100, 100);
        log.append(None, &[1, 2, 3, 4]);
        log.append(Some(LOG), &[5, 6, 7]);
        log.append(None, &[8, 9]);
        assert_eq!((log.end(), log.len()), (109, 9));
        assert_eq!(since(&log, 102, 5), Some(vec![3, 4, 5, 6, 7, 8, 9]));
        assert_eq!(since(&log, 102, LOG), Some(vec![3, 4, 8, 9]));
        assert_eq!(since(&log, 107, LOG), Some(vec![8, 9]));
        assert_eq!(since(&log, 109, LOG), Some(vec![]));
        assert_eq!(since(&log, 99, LOG), None);
        assert_eq!(log.count_since(90, LOG), 16);
        log.forget_below(105);
        assert_eq!((log.start(), since(&log, 104, LOG)), (105, None));
        assert_eq!(since(&log, 105, 5), Some(vec![6, 7, 8, 9]));
    }

    #[test]
    fn what_is_no_entry_leaves_everybody_behind() {
        let mut log = DeltaLog::new(0, 100);
        log.append(None, &[1, 2]);
        log.skip();
        assert_eq!((log.start(), log.end(), since(&log, 2, LOG)), (3, 3, None));
        log.append(None, &[7]);
        assert_eq!(since(&log, 3, LOG), Some(vec![7]));
    }

    proptest! {
        /// Compared with a list of all entries ever appended.
        #[test]
        fn it_is_the_tail_of_the_whole_list(
            appends in prop::collection::vec((0_u64..3, prop::collection::vec(any::<u64>(), 0..9)), 0..40),
            entry_count_max in 0_usize..60,
            forgotten in 0_u64..80,
            asked in 0_u64..200,
        ) {
            let mut log = DeltaLog::new(0, entry_count_max);
            let mut all: Vec<(u64, u64)> = Vec::new();
            for (source, entries) in &appends {
                log.append((*source > 0).then_some(*source), entries);
                all.extend(entries.iter().map(|&entry| (*source, entry)));
                prop_assert!(log.len() <= entry_count_max);
            }
            log.forget_below(forgotten);
            prop_assert_eq!(log.end(), all.len() as u64);
            let kept = all.len() - all.len().min(entry_count_max);
            prop_assert_eq!(log.start(), (kept as u64).max(forgotten.min(all.len() as u64)));
            for other in 1..3 {
                let tail = all.iter().skip(asked as usize).filter(|(source, _)| *source != other);
                let expected: Vec<u64> = tail.map(|(_, entry)| *entry).collect();
                let found = since(&log, asked, other);
                prop_assert_eq!(found.is_some(), asked >= log.start());
                if let Some(found) = found {
                    prop_assert_eq!(log.count_since(asked, other), expected.len() as u64);
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
