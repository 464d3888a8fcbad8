//! The positions of a slice, and who reads them while they change.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use umbel_filter::{AnyFilter, ItemHash};

use super::changed_positions::PositionKind;
use super::undo_log::UndoLog;

/// A slice's filter. Others may have it too, such as a copy of the state; then it is copied before it changes.
/// Readers do without a copy: for them, inserts keep what they change.
pub(super) struct Positions {
    filter: Arc<AnyFilter>,
    /// The logs of those who read it. A log ends when this is cloned, when its filter is replaced by other content or
    /// changed in any other way than by inserts and removals, and when the log is full or its reader has all.
    readers: Mutex<Vec<Weak<UndoLog>>>,
}

impl Positions {
    pub(super) fn new(filter: AnyFilter) -> Self {
        Self { filter: Arc::new(filter), readers: Mutex::default() }
    }

    /// The filter, to be changed in any way.
    pub(super) fn change(&mut self) -> &mut AnyFilter {
        self.end_logs();
        Arc::make_mut(&mut self.filter)
    }

    /// The filter, to insert or remove these items, which belong to it, and no others. Where
    /// [`keep_for_readers`](Self::keep_for_readers) was called for them, only readers that have begun since are in need
    /// of something.
    pub(super) fn change_items(
        &mut self,
        hashes: &(impl Iterator<Item = ItemHash> + Clone),
    ) -> &mut AnyFilter {
        let readers = self.readers.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !readers.is_empty() {
            self.keep_for_readers(hashes);
        }
        Arc::make_mut(&mut self.filter)
    }

    /// Keeps what inserting or removing these items, which belong to the filter, would change, for those who read it.
    /// Nothing is wrong if they are not inserted afterwards, or if this is called again.
    pub(super) fn keep_for_readers(&self, hashes: &(impl Iterator<Item = ItemHash> + Clone)) {
        self.with_readers(|readers| {
            readers.retain(|reader| {
                let log = reader.upgrade();
                log.is_some_and(|log| log.keep(&self.filter, hashes.clone()))
            });
        });
    }

    /// Whether somebody reads it, for whom changes are kept.
    pub(super) fn has_readers(&self) -> bool {
        self.with_readers(|readers| readers.iter().any(|reader| reader.strong_count() > 0))
    }

    /// A log for a reader that begins now, of a filter whose items change positions of this kind.
    pub(super) fn begin_log(&self, kind: PositionKind) -> Arc<UndoLog> {
        let log = Arc::new(UndoLog::new(&self.filter, kind));
        self.with_readers(|readers| {
            // Nobody else forgets readers of a slice that is never written.
            readers.retain(|reader| reader.strong_count() > 0);
            readers.push(Arc::downgrade(&log));
        });
        log
    }

    /// Whether this log is kept here.
    pub(super) fn keeps(&self, log: &Arc<UndoLog>) -> bool {
        let is_same = |reader: &Weak<UndoLog>| std::ptr::eq(reader.as_ptr(), Arc::as_ptr(log));
        self.with_readers(|readers| readers.iter().any(is_same))
    }

    /// Ends all logs: their readers share the filter.
    pub(super) fn end_logs(&self) {
        self.with_readers(|readers| {
            readers.drain(..).filter_map(|reader| reader.upgrade()).for_each(|log| {
                log.end(&self.filter);
            });
        });
    }

    /// Number of readers that are not forgotten, also of those that went.
    #[cfg(test)]
    pub(super) fn reader_count(&self) -> usize {
        self.with_readers(|readers| readers.len())
    }

    fn with_readers<T>(&self, work: impl FnOnce(&mut Vec<Weak<UndoLog>>) -> T) -> T {
        // No holder of the lock panics.
        work(&mut self.readers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether somebody else has the filter too, so that it is copied before it changes.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.filter) > 1
    }

    /// The filter, which is copied if it changes while this is there.
    pub(super) fn share(&self) -> Arc<AnyFilter> {
        Arc::clone(&self.filter)
    }

    /// Puts a copy of the same content in the place of the filter, if it still is the one that was copied.
    pub(super) fn take_copy(&mut self, of: &Arc<AnyFilter>, copy: Arc<AnyFilter>) {
        if Arc::ptr_eq(&self.filter, of) {
            self.filter = copy;
        }
    }
}

impl Deref for Positions {
    type Target = AnyFilter;

    fn deref(&self) -> &AnyFilter {
        &self.filter
    }
}

/// A clone shares the filter, and so do the readers from then on: whichever of both changes copies it.
impl Clone for Positions {
    fn clone(&self) -> Self {
        self.end_logs();
        Self { filter: Arc::clone(&self.filter), readers: Mutex::default() }
    }
}

impl Drop for Positions {
    fn drop(&mut self) {
        self.end_logs();
    }
}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filter.fmt(f)
    }
}
