//! Reads an object in parts, and fetches parts ahead of the reader.
//!
//! ```text
//! | kept | being read | coming | coming |        span       |
//!          ^ offset                     ^ next part, twice as long up to the largest
//! ```
//!
//! The first part is short and is fetched alone, because many readers read only the start of an object; a
//! reader that goes on gets the next parts over several connections at a time. Parts of more than the shortest
//! length, and all parts fetched ahead, count against a budget of the process; when that is used up, a reader
//! goes on with one short part at a time.

use crate::error::ObjectError;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use umbel_records::RemoteReader;

/// Length of a reader's first part, and the only length that needs no budget: 256 KiB, in which a record or a
/// page of Parquet mostly fits.
const PART_BYTES_MIN: u64 = 256 << 10;

/// The longest part: 4 MiB, so that the time to the first byte is short compared with the transfer.
const PART_BYTES_MAX: u64 = 4 << 20;

/// If at most so much of the span is left behind a part, the part includes it: 64 KiB.
const REST_BYTES: u64 = 64 << 10;

/// Parts that are fetched ahead of one reader: at 20 to 50 ms to the first byte and 80 MB/s a connection,
/// they deliver as much as one core can hash.
const PARTS_AHEAD_MAX: usize = 3;

/// Bytes in front of the current offset that are kept: page headers of Parquet are read again with the page.
const KEPT_BYTES: u64 = 4 << 10;

/// The budget is the process's memory divided by this: half of what is left besides entries and threads.
const BUDGET_SHARE: u64 = 16;

/// Bytes that the parts of all readers of a process may hold beyond their shortest parts.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// The budget of a process that may use so much memory.
    pub(crate) fn of(memory_bytes: u64) -> Self {
        Self { left: AtomicU64::new(memory_bytes / BUDGET_SHARE) }
    }

    fn take(self: &Arc<Self>, bytes: u64) -> Option<Permit> {
        let subtract = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        taken.ok().map(|_| Permit { budget: Arc::clone(self), bytes })
    }
}

/// The source of the parts.
pub(crate) trait PartSource: fmt::Debug + Send + Sync {
    /// Fetches the bytes from `start` to `end`; may return an error early once `stop` is set.
    fn fetch(&self, span: (u64, u64), stop: &AtomicBool) -> Result<Vec<u8>, ObjectError>;

    /// Called when a read at `offset` failed.
    fn has_failed(&self, offset: u64, error: &ObjectError);
}

/// A share of the budget, returned on drop.
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
    /// `None` for a shortest part.
    _permit: Option<Permit>,
}

/// Reads an object mostly forward, for one caller.
pub(crate) struct ObjectReader {
    source: Arc<dyn PartSource>,
    /// Length of the object.
    bytes: u64,
    budget: Arc<Budget>,
    /// Nothing beyond this offset is fetched ahead.
    span_end: u64,
    /// In order, without gaps.
    parts: VecDeque<Part>,
    /// Length of the next part.
    next_bytes: u64,
    /// Set when the reader is dropped: no fetch needs to go on.
    is_left: Arc<AtomicBool>,
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectReader").field("source", &self.source).finish_non_exhaustive()
    }
}

impl ObjectReader {
    /// A reader of an object of `bytes` bytes, of which the caller expects to read those before `span_end`.
    pub(crate) fn new(
        source: Arc<dyn PartSource>,
        bytes: u64,
        span_end: u64,
        budget: Arc<Budget>,
    ) -> Self {
        Self {
            source,
            bytes,
            budget,
            span_end: span_end.min(bytes),
            parts: VecDeque::new(),
            next_bytes: PART_BYTES_MIN,
            is_left: Arc::default(),
        }
    }

    /// The end of the last part; `offset` if there are no parts.
    fn parts_end(&self, offset: u64) -> u64 {
        self.parts.back().map_or(offset, |part| part.end)
    }

    /// Ensures that a part contains `offset`.
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
        // The first part, or the next one if the budget has no room to fetch it ahead.
        if offset == self.parts_end(offset) {
            let (end, permit) = self.wanted_part(offset);
            let stop = &self.is_left;
            let bytes = self.source.fetch((offset, end), stop)?;
            let state = State::Here(bytes);
            self.parts.push_back(Part { start: offset, end, state, _permit: permit });
        }
        Ok(())
    }

    /// The end of a part from `start` of about so many bytes.
    fn part_end(&self, start: u64, bytes: u64) -> u64 {
        let limit = if start < self.span_end { self.span_end } else { self.bytes };
        let end = limit.min(start + bytes);
        if limit - end <= REST_BYTES { limit } else { end }
    }

    /// The end of the next part to fetch, within the budget, and its permit.
    fn wanted_part(&mut self, start: u64) -> (u64, Option<Permit>) {
        let end = self.part_end(start, self.next_bytes);
        if self.next_bytes == PART_BYTES_MIN {
            self.next_bytes *= 2;
            return (end, None);
        }
        match self.budget.take(end - start) {
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
            let Some(permit) = self.budget.take(end - start) else { return };
            let (source, stop) = (Arc::clone(&self.source), Arc::clone(&self.is_left));
            // The thread ends with its part, which all timeouts bound, and sooner if the reader is dropped. A
            // thread scope around all readers would hold threads that are almost always idle.
            let fetching = std::thread::Builder::new()
                .name("object part".to_owned())
                .spawn(move || source.fetch((start, end), &stop));
            let Ok(fetching) = fetching else { return };
            self.next_bytes = (2 * self.next_bytes).min(PART_BYTES_MAX);
            let state = State::Coming(fetching);
            self.parts.push_back(Part { start, end, state, _permit: Some(permit) });
        }
    }

    fn read(&mut self, target: &mut [u8], offset: u64) -> Result<usize, ObjectError> {
        self.reach(offset)?;
        let at = self.parts.iter().position(|part| offset < part.end).expect("just reached");
        if let State::Coming(_) = self.parts[at].state {
            let coming = std::mem::replace(&mut self.parts[at].state, State::Here(Vec::new()));
            let State::Coming(fetching) = coming else { unreachable!("just seen") };
            match fetching.join().expect("fetching does not panic") {
                Ok(bytes) => self.parts[at].state = State::Here(bytes),
                Err(error) => {
                    // A later read of these bytes fetches them again.
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
        if offset >= self.bytes {
            return Ok(0);
        }
        self.read(target, offset).map_err(|error| {
            self.source.has_failed(offset, &error);
            io::Error::other(error)
        })
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// Bytes in memory, and the spans of them that were fetched.
    #[derive(Debug)]
    struct Known {
        bytes: Vec<u8>,
        fetched: Mutex<Vec<(u64, u64)>>,
        /// Fetching this byte fails so many times.
        failing: Mutex<(u64, u32)>,
    }

    impl PartSource for Known {
        fn fetch(&self, (start, end): (u64, u64), _: &AtomicBool) -> Fetched {
            self.fetched.lock().unwrap().push((start, end));
            let mut failing = self.failing.lock().unwrap();
            if failing.1 > 0 && (start..end).contains(&failing.0) {
                failing.1 -= 1;
                return Err(ObjectError::Changed);
            }
            let at = |offset| usize::try_from(offset).unwrap();
            Ok(self.bytes[at(start)..at(end)].to_vec())
        }

        fn has_failed(&self, _: u64, _: &ObjectError) {}
    }

    fn known(length: u64) -> Arc<Known> {
        let bytes = (0..length).map(|at| u8::try_from(at * at % 251).unwrap()).collect();
        Arc::new(Known { bytes, fetched: Mutex::default(), failing: Mutex::default() })
    }

    fn reader(source: &Arc<Known>, span_end: u64, budget_bytes: u64) -> ObjectReader {
        let budget = Arc::new(Budget { left: AtomicU64::new(budget_bytes) });
        let bytes = source.bytes.len() as u64;
        ObjectReader::new(Arc::clone(source) as _, bytes, span_end, budget)
    }

    const MIB: u64 = 1 << 20;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Reads in any order and under any budget return the object's bytes.
        #[test]
        fn reads_see_the_bytes_of_the_object(
            length in 0..6 * MIB,
            span_end in 0..7 * MIB,
            budget_bytes in 0..12 * MIB,
            jumps in proptest::collection::vec((0..6 * MIB, 0..9_u64), 1..5),
        ) {
            let source = known(length);
            let mut reader = reader(&source, span_end, budget_bytes);
            let mut target = vec![0; 300_000];
            for (start, strides) in jumps {
                let mut offset = start;
                for _ in 0..strides {
                    let count = reader.read_at(&mut target, offset).unwrap();
                    prop_assert_eq!(count == 0, offset >= length);
                    let from = usize::try_from(offset.min(length)).unwrap();
                    prop_assert!(target[..count] == source.bytes[from..from + count]);
                    // Sometimes a few bytes are read again, as page headers are.
                    offset = (offset + count as u64).saturating_sub(strides % 3 * 200);
                }
            }
            let budget = Arc::clone(&reader.budget);
            drop(reader);
            prop_assert_eq!(budget.left.load(Ordering::Relaxed), budget_bytes);
        }
    }

    fn read_all(reader: &mut ObjectReader, from: u64, to: u64) {
        let mut target = vec![0; 64 << 10];
        let mut offset = from;
        while offset < to {
            offset += reader.read_at(&mut target, offset).unwrap() as u64;
        }
    }

    fn fetched(source: &Known) -> Vec<(u64, u64)> {
        let mut fetched = source.fetched.lock().unwrap().clone();
        fetched.sort_unstable();
        fetched
    }

    #[test]
    fn parts_grow_and_nothing_is_fetched_twice() {
        let source = known(20 * MIB);
        let mut reader = reader(&source, 16 * MIB + 1000, 64 * MIB);
        read_all(&mut reader, 0, 1000);
        assert_eq!(fetched(&source), [(0, PART_BYTES_MIN)]);
        read_all(&mut reader, 1000, 16 * MIB);
        let fetched = fetched(&source);
        assert!(fetched.windows(2).all(|pair| pair[0].1 == pair[1].0), "{fetched:?}");
        assert_eq!(fetched.last().unwrap().1, 16 * MIB + 1000);
        assert!(fetched.len() < 9, "{fetched:?}");
        assert!(fetched.iter().all(|(start, end)| end - start <= PART_BYTES_MAX + REST_BYTES));
    }

    #[test]
    fn without_a_budget_there_is_one_short_part_at_a_time() {
        let source = known(3 * MIB);
        let mut reader = reader(&source, 3 * MIB, 0);
        read_all(&mut reader, 0, 3 * MIB);
        let fetched = fetched(&source);
        assert!(fetched.iter().all(|(start, end)| end - start == PART_BYTES_MIN), "{fetched:?}");
        assert!(reader.parts.len() <= 2);
    }

    #[test]
    fn a_part_that_failed_is_fetched_again_when_it_is_read_again() {
        let source = known(8 * MIB);
        *source.failing.lock().unwrap() = (2 * MIB, 1);
        let mut reader = reader(&source, 8 * MIB, 64 * MIB);
        let mut target = vec![0; 64 << 10];
        let mut failures = 0;
        let mut offset = 0;
        while offset < 8 * MIB {
            match reader.read_at(&mut target, offset) {
                Ok(count) => offset += count as u64,
                Err(_) => failures += 1,
            }
        }
        assert_eq!(failures, 1);
    }
}
