//! A replica's log as its node reported it.

use std::collections::VecDeque;

use umbel_node::ports::observer::EntryId;

/// Names of the entries of a log, and how many of them are durable.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct LogView {
    purged: Option<EntryId>,
    /// Index of the first entry in `ids`.
    first: u64,
    ids: VecDeque<EntryId>,
    /// Entries below this index are durable.
    durable_to: u64,
}

impl LogView {
    /// The log as a start found it: all of it is durable.
    pub(super) fn opened(purged: Option<EntryId>, last: Option<EntryId>, ends: &[EntryId]) -> Self {
        let first = purged.map_or(0, |purged| purged.index + 1);
        let next = last.map_or(first, |last| last.index + 1).max(first);
        let mut ids = VecDeque::new();
        let mut ends = ends.iter().peekable();
        for index in first..next {
            while ends.next_if(|end| end.index < index).is_some() {}
            // A wrong report names no leader for its last entries: the view ends before them.
            let Some(end) = ends.peek() else { break };
            ids.push_back(EntryId { index, ..**end });
        }
        Self { purged, first, ids, durable_to: next }
    }

    /// Index behind the last entry.
    pub(super) fn next(&self) -> u64 {
        self.first + self.ids.len() as u64
    }

    /// Index behind the last entry that is durable.
    pub(super) fn durable_to(&self) -> u64 {
        self.durable_to
    }

    /// The last entry that was purged.
    pub(super) fn purged(&self) -> Option<EntryId> {
        self.purged
    }

    /// The last entry, or the last that was purged if there is none.
    pub(super) fn last(&self) -> Option<EntryId> {
        self.ids.back().copied().or(self.purged)
    }

    /// The entry at an index; also the last one that was purged.
    pub(super) fn id(&self, index: u64) -> Option<EntryId> {
        match index.checked_sub(self.first) {
            Some(place) => self.ids.get(usize::try_from(place).ok()?).copied(),
            None => self.purged.filter(|purged| purged.index == index),
        }
    }

    /// Entries that are not purged, by rising index.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = EntryId> {
        self.ids.iter().copied()
    }

    /// Adds an entry; those in its place and behind it go.
    pub(super) fn append(&mut self, entry: EntryId) {
        if entry.index < self.first || entry.index > self.next() {
            self.ids.clear();
            self.first = entry.index;
        }
        self.truncate(entry.index.checked_sub(1));
        self.ids.push_back(entry);
    }

    /// What was handed in up to an entry is durable. If the entry was taken back meanwhile, what is
    /// left of the log is older than it.
    pub(super) fn durable(&mut self, through: EntryId) {
        self.durable_to = self.durable_to.max(self.next().min(through.index + 1));
    }

    /// Drops entries behind an index, all without one.
    pub(super) fn truncate(&mut self, after: Option<u64>) {
        let to = after.map_or(0, |after| after + 1);
        let kept = usize::try_from(to.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.ids.truncate(kept);
        self.durable_to = self.durable_to.min(to);
    }

    /// Drops entries up to one; all if that one is not there.
    pub(super) fn purge(&mut self, through: EntryId) {
        if self.purged.is_some_and(|purged| purged.index >= through.index) {
            return;
        }
        if self.id(through.index) != Some(through) {
            self.ids.clear();
            self.first = through.index + 1;
        }
        while self.first <= through.index && self.ids.pop_front().is_some() {
            self.first += 1;
        }
        self.first = through.index + 1;
        self.purged = Some(through);
        self.durable_to = self.durable_to.max(self.first);
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::NodeId;

    use super::*;

    fn id(term: u64, index: u64) -> EntryId {
        EntryId { term, leader: NodeId(1), index }
    }

    #[test]
    fn ends_name_all_entries() {
        let log = LogView::opened(Some(id(1, 2)), Some(id(3, 6)), &[id(1, 4), id(3, 6)]);
        let ids: Vec<_> = log.ids().collect();
        assert_eq!(ids, [id(1, 3), id(1, 4), id(3, 5), id(3, 6)]);
        assert_eq!((log.id(2), log.id(1), log.last()), (Some(id(1, 2)), None, Some(id(3, 6))));
        assert_eq!((log.next(), log.durable_to()), (7, 7));
        let empty = LogView::opened(None, None, &[]);
        assert_eq!((empty.next(), empty.last()), (0, None));
    }

    #[test]
    fn durable_is_what_was_handed_in_before() {
        let mut log = LogView::default();
        (0..8).for_each(|index| log.append(id(1, index)));
        log.durable(id(1, 3));
        assert_eq!(log.durable_to(), 4);
        log.truncate(Some(5));
        // The call that ended with entry 7 brought 4 and 5 as well.
        log.durable(id(1, 7));
        assert_eq!((log.durable_to(), log.next()), (6, 6));
        log.append(id(2, 5));
        assert_eq!((log.durable_to(), log.last()), (5, Some(id(2, 5))));
    }

    #[test]
    fn purges_go_beyond_the_end() {
        let mut log = LogView::default();
        (0..8).for_each(|index| log.append(id(1, index)));
        log.purge(id(1, 3));
        assert_eq!((log.id(3), log.id(4), log.next()), (Some(id(1, 3)), Some(id(1, 4)), 8));
        log.purge(id(2, 20));
        assert_eq!((log.last(), log.next(), log.durable_to()), (Some(id(2, 20)), 21, 21));
        log.append(id(2, 21));
        assert_eq!((log.durable_to(), log.last()), (21, Some(id(2, 21))));
        // Of another log than what was there.
        let mut log = LogView::default();
        (0..8).for_each(|index| log.append(id(1, index)));
        log.purge(id(2, 3));
        assert_eq!((log.last(), log.next()), (Some(id(2, 3)), 4));
    }
}
