//! Timed loops over chunks of keys, on one thread or two.
//!
//! Only the loop over a chunk's keys is timed; making the keys is not. On two threads both make
//! their chunks, wait for each other, and run at the same time; the chunk's time is that of the
//! slower one.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::keys::CHUNK_KEYS;

/// Turns of a waiting thread before it lets others run: the machine may have fewer free cores than
/// the benchmark has threads.
const SPINS_MAX: u32 = 10_000;

/// The one place where time is taken.
#[must_use]
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this program measures time")]
    Instant::now()
}

/// Runs `run` over the keys 0 to `key_count`, chunk by chunk, and returns the time spent in it.
pub fn time_chunks<K>(
    key_count: u64,
    fill: impl Fn(Range<u64>, &mut Vec<K>),
    mut run: impl FnMut(&[K]),
) -> Duration {
    let mut chunk = Vec::new();
    chunks(0..key_count)
        .map(|indexes| {
            fill(indexes, &mut chunk);
            let started = now();
            run(&chunk);
            started.elapsed()
        })
        .sum()
}

/// The same on `thread_count` threads, each with an equal part of the keys and a `run` of its own.
/// Returns the wall time while all of them ran.
pub fn time_chunks_on<K: Send, R: FnMut(&[K])>(
    thread_count: u64,
    key_count: u64,
    fill: impl Fn(Range<u64>, &mut Vec<K>) + Sync,
    make_run: impl Fn() -> R + Sync,
) -> Duration {
    if thread_count == 1 {
        return time_chunks(key_count, fill, make_run());
    }
    let (meeting, part) = (Meeting::new(thread_count), key_count / thread_count);
    let work = |thread: u64| {
        let mut run = make_run();
        let mut chunk = Vec::new();
        let time = |indexes| {
            fill(indexes, &mut chunk);
            meeting.wait();
            let started = now();
            run(&chunk);
            started.elapsed()
        };
        // Equal parts have equally many chunks, so that nobody waits for ever.
        chunks(thread * part..(thread + 1) * part).map(time).collect::<Vec<Duration>>()
    };
    let times: Vec<Vec<Duration>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..thread_count).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no timed loop panics")).collect()
    });
    let chunk_count = times.iter().map(Vec::len).min().unwrap_or(0);
    (0..chunk_count).filter_map(|chunk| times.iter().map(|times| times[chunk]).max()).sum()
}

/// Runs `count_part` on every thread's part of the indexes and adds up: for checks, untimed.
pub fn sum_on(
    thread_count: u64,
    key_count: u64,
    count_part: impl Fn(Range<u64>) -> u64 + Sync,
) -> u64 {
    let count_part = &count_part;
    thread::scope(|scope| {
        let border = move |thread: u64| key_count * thread / thread_count;
        let threads: Vec<_> = (0..thread_count)
            .map(|thread| scope.spawn(move || count_part(border(thread)..border(thread + 1))))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no check panics")).sum()
    })
}

/// Cuts indexes into chunks.
pub fn chunks(indexes: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = indexes.end;
    let step = usize::try_from(CHUNK_KEYS).expect("a small constant");
    indexes.step_by(step).map(move |start| start..(start + CHUNK_KEYS).min(end))
}

/// Where threads wait for each other, awake: they start within a fraction of a microsecond.
struct Meeting {
    thread_count: u64,
    arrived: AtomicU64,
}

impl Meeting {
    fn new(thread_count: u64) -> Self {
        Self { thread_count, arrived: AtomicU64::new(0) }
    }

    fn wait(&self) {
        let arrived = self.arrived.fetch_add(1, Ordering::AcqRel) + 1;
        let all = arrived.next_multiple_of(self.thread_count);
        let mut spins = 0;
        while self.arrived.load(Ordering::Acquire) < all {
            spins += 1;
            if spins < SPINS_MAX { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }
}
