//! The log ids of a group's entries, without the entries.

use std::collections::BTreeMap;

use umbel_engine::NodeId;

use crate::types::LogId;

/// Log ids of consecutive entries; consecutive entries of one leader take memory only once.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Chain {
    purged: Option<LogId>,
    /// Index of the first entry; equal to `next` if there are none.
    first: u64,
    /// Index after the last entry.
    next: u64,
    /// The first entry of each run of entries of one leader, by index.
    runs: BTreeMap<u64, LogId>,
}

impl Chain {
    pub(super) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    /// Index of the first entry; equal to [`next`](Self::next) if there are none.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Index after the last entry.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Log id of the last entry or, if there are none, of the last purged one.
    pub(super) fn last(&self) -> Option<LogId> {
        if self.is_empty() { self.purged } else { self.log_id(self.next - 1) }
    }

    /// Log id of an entry; None if there is no such entry.
    pub(super) fn log_id(&self, index: u64) -> Option<LogId> {
        if !(self.first..self.next).contains(&index) {
            return None;
        }
        let (_, run) = self.runs.range(..=index).next_back()?;
        Some(LogId { leader_id: run.leader_id, index })
    }

    /// The last of the entries that `node` proposed as leader.
    pub(super) fn last_proposed_by(&self, node: NodeId) -> Option<LogId> {
        let mut end = self.next;
        for (&start, run) in self.runs.iter().rev() {
            if run.leader_id.node_id == node {
                return self.log_id(end.checked_sub(1)?);
            }
            end = start;
        }
        None
    }

    /// The last log id of each leader's run between two indexes, both included.
    ///
    /// openraft's documentation asks for the first log ids; its code and its test suite use the last
    /// ones.
    pub(super) fn key_log_ids(&self, from: u64, through: u64) -> Vec<LogId> {
        if from > through {
            return Vec::new();
        }
        let ends = self.runs.range(from.saturating_add(1)..).map_while(|(start, _)| {
            let end = start - 1;
            (end < through).then_some(end)
        });
        ends.chain([through]).filter_map(|index| self.log_id(index)).collect()
    }

    /// Appends an entry. If it exists already, it and all later entries are replaced.
    pub(super) fn push(&mut self, id: LogId) {
        if self.is_empty() || id.index > self.next || id.index < self.first {
            // There is a gap before the entry: the entries before it were in segments that have been
            // removed, so they were purged or replaced.
            self.runs.clear();
            self.first = id.index;
        } else if id.index < self.next {
            self.cut(id.index);
        }
        self.next = id.index.saturating_add(1);
        let same = self.runs.last_key_value().is_some_and(|(_, run)| run.leader_id == id.leader_id);
        if !same {
            self.runs.insert(id.index, id);
        }
    }

    /// Drops the entries after `after`.
    pub(super) fn truncate(&mut self, after: Option<LogId>) {
        self.cut(after.map_or(0, |id| id.index.saturating_add(1)));
    }

    /// Drops the entries from an index on.
    fn cut(&mut self, from: u64) {
        if from < self.next {
            self.next = from.max(self.first);
            self.runs.split_off(&self.next);
        }
    }

    /// Drops the entries up to `through`, if there are any.
    pub(super) fn purge(&mut self, through: LogId) {
        if self.purged.is_some_and(|purged| purged.index >= through.index) {
            return;
        }
        self.purged = Some(through);
        let first = through.index.saturating_add(1);
        if first >= self.next {
            self.runs.clear();
            (self.first, self.next) = (first, first);
        } else if let Some(id) = self.log_id(first) {
            self.runs = self.runs.split_off(&first);
            self.runs.insert(first, id);
            self.first = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use openraft::vote::leader_id_adv::LeaderId;
    use proptest::prelude::*;

    use super::*;

    /// Two nodes lead the terms in turn.
    fn id(term: u64, index: u64) -> LogId {
        LogId { leader_id: LeaderId { term, node_id: NodeId(term % 2) }, index }
    }

    #[test]
    fn key_log_ids_mark_the_leaders() {
        let mut chain = Chain::default();
        for (term, index) in [(2, 2), (2, 3), (5, 4), (5, 5)] {
            chain.push(id(term, index));
        }
        assert_eq!(chain.key_log_ids(2, 5), [id(2, 3), id(5, 5)]);
        assert_eq!(chain.key_log_ids(2, 3), [id(2, 3)]);
        assert_eq!(chain.key_log_ids(3, 4), [id(2, 3), id(5, 4)]);
        assert_eq!(chain.key_log_ids(5, 5), [id(5, 5)]);
        assert_eq!(chain.key_log_ids(5, 4), []);
    }

    proptest! {
        /// The naive model keeps every log id.
        #[test]
        fn as_a_map_of_log_ids(steps in proptest::collection::vec((0u8..6, 0u64..12), 0..60)) {
            let (mut chain, mut twin) = (Chain::default(), BTreeMap::new());
            let mut term = 1;
            for (step, number) in steps {
                match step {
                    0..3 => {
                        let next = id(term, chain.last().map_or(0, |last| last.index + 1));
                        chain.push(next);
                        twin.insert(next.index, next);
                    }
                    3 => term += 1,
                    4 => {
                        let after = id(1, chain.first() + number);
                        chain.truncate(Some(after));
                        twin.split_off(&(after.index + 1));
                    }
                    _ => {
                        let through = id(term, chain.first() + number);
                        chain.purge(through);
                        twin = twin.split_off(&(through.index + 1));
                    }
                }
                let ids: Vec<_> = (chain.first()..chain.next()).map(|i| chain.log_id(i)).collect();
                prop_assert_eq!(ids, twin.values().copied().map(Some).collect::<Vec<_>>());
                let last = twin.values().next_back().copied().or(chain.purged());
                prop_assert_eq!(chain.last(), last);
                for node in (0..3).map(NodeId) {
                    let proposed = |id: &&LogId| id.leader_id.node_id == node;
                    let last = twin.values().rfind(proposed).copied();
                    prop_assert_eq!(chain.last_proposed_by(node), last);
                }
                if let Some((through, from)) = last.map(|last| (last.index, chain.first())) {
                    let mut ends: Vec<LogId> = Vec::new();
                    for id in twin.values() {
                        ends.pop_if(|end| end.leader_id == id.leader_id);
                        ends.push(*id);
                    }
                    prop_assert_eq!(chain.key_log_ids(from, through), ends);
                }
            }
        }
    }
}
