//! What a reader needs of a slice that changes while it is read: the positions that changed, with what they held.
//!
//! ```text
//! slice      │ read already │ not read yet               │
//!            │ (nothing is  │ positions that changed: as │      the reader takes piece after piece,
//!            │   kept)      │ they were, in the log      │      and what lies behind it is given back
//! ```
//!
//! *Law.* The pieces are those of a copy that was made when the reader began.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_filter::{AnyFilter, ItemHash};
use umbel_step::planted::{self, Planted};

use super::changed_positions::{PositionKind, WordAt, arrays, for_each_changed};
use super::kept_positions::KeptPositions;
use crate::limits::UNDO_LOG_BYTES_MAX;

/// Words of a part of a copied rest: 1 MiB, so that its memory is given back as it is read.
const PART_WORDS: usize = 1 << 17;

/// Words of a cache line.
const LINE_WORDS: u32 = 8;

/// The log of one reader, which the slice has too as long as the reader is there.
#[derive(Debug)]
pub(super) struct UndoLog {
    inner: Mutex<Inner>,
    /// Number of arrays that the reader reads. Levels and links that are opened later are none.
    array_count: usize,
    /// What the positions are.
    kind: PositionKind,
    /// Most bytes that what is kept takes.
    bytes_max: usize,
}

#[derive(Debug)]
struct Inner {
    /// The first word that was not read yet.
    next: WordAt,
    /// What positions held that were not read yet.
    kept: KeptPositions,
    rest: Unread,
}

/// Where the reader finds what it has not read yet.
#[derive(Debug)]
enum Unread {
    /// In the slice, which keeps what changes.
    InSlice,
    /// In the positions as they were when the log ended, with what was kept until then.
    Shared(Arc<AnyFilter>),
    /// In a copy, part by part.
    Copied(VecDeque<Part>),
}

/// A part of an array.
#[derive(Debug)]
struct Part {
    array: usize,
    /// Its words' places in the array.
    words: Range<usize>,
    content: Vec<u64>,
}

impl Inner {
    /// Words of an array as they were when the reader began.
    fn former(&self, filter: &AnyFilter, array: usize, words: Range<usize>) -> Option<Vec<u64>> {
        let first = WordAt::new(array, words.start);
        let mut former = arrays(filter).get(array)?.get(words)?.to_vec();
        self.kept.restore(first, &mut former);
        Some(former)
    }

    /// Copies what was not read yet. The log is empty afterwards.
    fn copy_rest(&mut self, filter: &AnyFilter, array_count: usize) {
        let mut parts = VecDeque::new();
        let next = self.next;
        for (array, whole) in arrays(filter).iter().enumerate().take(array_count) {
            let read = match array.cmp(&(next.array as usize)) {
                std::cmp::Ordering::Less => whole.len(),
                std::cmp::Ordering::Equal => next.word as usize,
                std::cmp::Ordering::Greater => 0,
            };
            for start in (read..whole.len()).step_by(PART_WORDS) {
                let words = start..whole.len().min(start + PART_WORDS);
                let content = self.former(filter, array, words.clone()).unwrap_or_default();
                parts.push_back(Part { array, words, content });
            }
        }
        self.kept.clear();
        self.rest = Unread::Copied(parts);
    }
}

/// Words of an array that parts have, all of them.
fn words_of(parts: &VecDeque<Part>, array: usize, words: &Range<usize>) -> Option<Vec<u64>> {
    let mut piece = Vec::with_capacity(words.len());
    for part in parts.iter().filter(|part| part.array == array) {
        let from = part.words.start.max(words.start + piece.len());
        let to = part.words.end.min(words.end);
        if from == words.start + piece.len() && from < to {
            let within = from - part.words.start..to - part.words.start;
            piece.extend_from_slice(part.content.get(within)?);
        }
    }
    (piece.len() == words.len()).then_some(piece)
}

impl UndoLog {
    /// A log for a reader that begins with the filter as it is now, whose items change positions of this kind.
    pub(super) fn new(filter: &AnyFilter, kind: PositionKind) -> Self {
        let arrays = arrays(filter);
        let bytes = arrays.iter().map(|words| size_of_val(*words)).sum::<usize>();
        // A log of a third of the slice and a copy of the rest are hardly less than a copy of all.
        let bytes_max = UNDO_LOG_BYTES_MAX.min(bytes / 3);
        let (next, kept) = (WordAt { array: 0, word: 0 }, KeptPositions::new(kind, &arrays));
        let inner = Mutex::new(Inner { next, kept, rest: Unread::InSlice });
        Self { inner, array_count: arrays.len(), kind, bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No holder of the lock panics, and the log is consistent after every statement.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what inserting or removing these items will change, or, if there is no room for it, copies what was
    /// not read yet. Returns whether the log goes on.
    pub(super) fn keep(&self, filter: &AnyFilter, hashes: impl Iterator<Item = ItemHash>) -> bool {
        let mut inner = self.lock();
        if !matches!(inner.rest, Unread::InSlice) || inner.next.array as usize >= self.array_count {
            return false;
        }
        let Inner { next, kept, .. } = &mut *inner;
        for hash in hashes {
            let mut lost = None;
            for_each_changed(filter, hash, |at| {
                let word = at.word(self.kind);
                // The bug takes a line: a single bit of an item that comes later changes no answer, as a rule.
                let line = WordAt { word: word.word / LINE_WORDS, ..word };
                if planted::on(Planted::FormerWordLost) && *lost.get_or_insert(line) == line {
                    return;
                }
                if word >= *next && (word.array as usize) < self.array_count {
                    kept.keep(at);
                }
            });
            if kept.bytes() > self.bytes_max {
                // Nothing has changed yet, so what these items change is in the filter, too.
                inner.copy_rest(filter, self.array_count);
                return false;
            }
        }
        true
    }

    /// The reader has all that it reads, so that nothing is kept any more.
    pub(super) fn finish(&self) {
        let mut inner = self.lock();
        inner.next = WordAt::new(self.array_count, 0);
        inner.kept.clear();
    }

    /// Ends the log: the reader reads the rest in these positions, which must not change any more.
    pub(super) fn end(&self, filter: &Arc<AnyFilter>) {
        let mut inner = self.lock();
        if matches!(inner.rest, Unread::InSlice) {
            inner.rest = Unread::Shared(Arc::clone(filter));
        }
    }

    /// Whether the log ended, so that the reader needs the slice no longer.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.lock().rest, Unread::InSlice)
    }

    /// The words of the next piece as they were when the reader began, from the slice's positions or, if the log
    /// has ended, from the rest. None if there is neither, or the piece was read already.
    pub(super) fn read(
        &self,
        array: usize,
        words: Range<usize>,
        filter: Option<&AnyFilter>,
    ) -> Option<Vec<u64>> {
        let mut inner = self.lock();
        if WordAt::new(array, words.start) < inner.next {
            return None;
        }
        let end = WordAt::new(array, words.end);
        let piece = match &inner.rest {
            Unread::InSlice => inner.former(filter?, array, words)?,
            Unread::Shared(filter) => inner.former(filter, array, words)?,
            Unread::Copied(parts) => words_of(parts, array, &words)?,
        };
        inner.next = end;
        inner.kept.release_before(end);
        if let Unread::Copied(parts) = &mut inner.rest {
            parts.retain(|part| WordAt::new(part.array, part.words.end) > end);
        }
        Some(piece)
    }

    /// Number of positions that are kept.
    #[cfg(test)]
    pub(super) fn kept_count(&self) -> usize {
        self.lock().kept.len()
    }

    /// Bytes of what is kept.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.lock().kept.bytes()
    }

    /// Bytes of the copied rest.
    #[cfg(test)]
    pub(super) fn copied_bytes(&self) -> usize {
        match &self.lock().rest {
            Unread::Copied(parts) => parts.iter().map(|part| 8 * part.content.len()).sum(),
            Unread::InSlice | Unread::Shared(_) => 0,
        }
    }

    #[cfg(test)]
    pub(super) const fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}
