//! Parts of an object that are fetched before they are asked for.
//!
//! ```text
//! | kept | being read | coming | coming |        span       |
//!          ^ offset                     ^ next part, twice as long up to the largest
//! ```
//!
//! The first part is short and comes alone, for many readers look at beginnings only; whoever reads on gets the next
//! ones by several connections at a time. Parts beyond the shortest length, and all that come ahead, count against a
//! budget of the process; where that is used up, a reader goes on with one short part at a time.

use super::error::ObjectError;
use super::object::Object;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use umbel_records::RemoteReader;

/// The first part of a reader, and the only length that needs no budget: 256 KiB, which a record or a page of Parquet
/// mostly fits.
const PART_BYTES_MIN: u64 = 256 << 10;

/// The longest part: 4 MiB, so that the time to the first byte is short against the rest.
const PART_BYTES_MAX: u64 = 4 << 20;

/// A rest of the span that a part takes along instead of leaving it to one of its own: 64 KiB.
const REST_BYTES: u64 = 64 << 10;

/// Parts that come ahead of one reader: at 20 to 50 ms to the first byte and 80 MB/s a connection, as much as a core can
/// hash.
const PARTS_AHEAD_MAX: usize = 3;

/// Bytes in front of the place being read that stay at hand: page headers of Parquet are read with what is behind them.
const KEPT_BYTES: u64 = 4 << 10;

/// Share of a process's memory that is the budget: half of what is left beside entries and threads.
const BUDGET_SHARE: u64 = 16;

/// Bytes of parts that all readers of a process may hold beyond their shortest ones.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// That of a process with so much memory.
    pub(super) fn of(memory_bytes: u64) -> Self {
        Self { left: AtomicU64::new(memory_bytes / BUDGET_SHARE) }
    }

    fn take(self: &Arc<Self>, bytes: u64) -> Option<Permit> {
        let subtract = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        taken.ok().map(|_| Permit { budget: Arc::clone(self), bytes })
    }
}

/// A share of the budget, given back when it is dropped.
struct Permit {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

type Fetched = Result<Vec<u8>, ObjectError>;

enum State {
    Coming(JoinHandle<Fetched>),
    Here(Vec<u8>),
}

struct Part {
    start: u64,
    end: u64,
    state: State,
    /// `None` for a short one.
    _permit: Option<Permit>,
}

/// Reads an object mostly forward, for one user.
pub(super) struct ObjectReader {
    object: Arc<Object>,
    /// Nothing is fetched ahead beyond this.
    span_end: u64,
    /// Without gaps, in order.
    parts: VecDeque<Part>,
    /// Length of the next part.
    next_bytes: u64,
    /// Nobody waits for the parts any more.
    is_left: Arc<AtomicBool>,
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectReader").field("object", &self.object).finish_non_exhaustive()
    }
}

impl ObjectReader {
    pub(super) fn new(object: Object, span_end: u64) -> Self {
        Self {
            object: Arc::new(object),
            span_end,
            parts: VecDeque::new(),
            next_bytes: PART_BYTES_MIN,
            is_left: Arc::default(),
        }
    }

    /// Where the parts at hand end.
    fn parts_end(&self, offset: u64) -> u64 {
        self.parts.back().map_or(offset, |part| part.end)
    }

    /// Makes `offset` lie in a part.
    fn reach(&mut self, offset: u64) -> Result<(), ObjectError> {
        while self.parts.len() > 1 && self.parts[0].end + KEPT_BYTES <= offset {
            self.parts.pop_front();
        }
        let is_near = self.parts.front().is_some_and(|first| first.start <= offset)
            && offset <= self.parts_end(offset);
        if !is_near {
            self.parts.clear();
            self.next_bytes = PART_BYTES_MIN;
        }
        if !self.parts.is_empty() {
            self.fetch_ahead(offset);
        }
        // The first part, or one for which the budget has no room.
        if offset == self.parts_end(offset) {
            let (end, permit) = self.wanted_part(offset);
            let stop = &self.is_left;
            let bytes = self.object.store.fetch(&self.object, (offset, end), stop)?;
            let state = State::Here(bytes);
            self.parts.push_back(Part { start: offset, end, state, _permit: permit });
        }
        Ok(())
    }

    /// Where a part from `start` on of about so many bytes ends.
    fn part_end(&self, start: u64, bytes: u64) -> u64 {
        let limit = if start < self.span_end { self.span_end } else { self.object.bytes };
        let end = limit.min(start + bytes);
        if limit - end <= REST_BYTES { limit } else { end }
    }

    /// Where the part ends that is wanted now, within what the budget allows.
    fn wanted_part(&mut self, start: u64) -> (u64, Option<Permit>) {
        let end = self.part_end(start, self.next_bytes);
        if self.next_bytes == PART_BYTES_MIN {
            self.next_bytes *= 2;
            return (end, None);
        }
        match self.object.store.budget.take(end - start) {
            Some(permit) => {
                self.next_bytes = (2 * self.next_bytes).min(PART_BYTES_MAX);
                (end, Some(permit))
            }
            None => (self.part_end(start, PART_BYTES_MIN), None),
        }
    }

    fn fetch_ahead(&mut self, offset: u64) {
        let ahead = |part: &&Part| part.start > offset;
        while self.parts.iter().filter(ahead).count() < PARTS_AHEAD_MAX {
            let start = self.parts_end(offset);
            if start >= self.span_end {
                return;
            }
            let end = self.part_end(start, self.next_bytes);
            let Some(permit) = self.object.store.budget.take(end - start) else { return };
            let (object, stop) = (Arc::clone(&self.object), Arc::clone(&self.is_left));
            // It ends with its part, which all timeouts bound, and sooner if the reader has gone: a scope around all
            // readers would hold threads that hardly ever have anything to do.
            let fetching = std::thread::Builder::new()
                .name("object part".to_owned())
                .spawn(move || object.store.fetch(&object, (start, end), &stop));
            let Ok(fetching) = fetching else { return };
            self.next_bytes = (2 * self.next_bytes).min(PART_BYTES_MAX);
            let state = State::Coming(fetching);
            self.parts.push_back(Part { start, end, state, _permit: Some(permit) });
        }
    }
}

impl ObjectReader {
    fn read(&mut self, target: &mut [u8], offset: u64) -> Result<usize, ObjectError> {
        self.reach(offset)?;
        let at = self.parts.iter().position(|part| offset < part.end).expect("just reached");
        if let State::Coming(_) = self.parts[at].state {
            let coming = std::mem::replace(&mut self.parts[at].state, State::Here(Vec::new()));
            let State::Coming(fetching) = coming else { unreachable!("just seen") };
            match fetching.join().expect("fetching does not panic") {
                Ok(bytes) => self.parts[at].state = State::Here(bytes),
                Err(error) => {
                    // What is asked for again is fetched again.
                    self.parts.truncate(at);
                    return Err(error);
                }
            }
        }
        let Part { start, state: State::Here(bytes), .. } = &self.parts[at] else {
            unreachable!("just taken")
        };
        let from = usize::try_from(offset - start).expect("inside of a part");
        let count = target.len().min(bytes.len() - from);
        target[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }
}

impl RemoteReader for ObjectReader {
    fn read_at(&mut self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.object.bytes {
            return Ok(0);
        }
        self.read(target, offset).map_err(|error| {
            self.object.has_failed(offset, &error);
            io::Error::other(error)
        })
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}
