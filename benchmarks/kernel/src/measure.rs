//! One round of one structure: every operation it has, and once the checks of its answers.

use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

use crate::clock::{chunks, now, sum_on, time_chunks, time_chunks_on};
use crate::keys::{CHUNK_KEYS, fill_fresh, fill_inserted, fill_queries};
use crate::limit::nanoseconds;
use crate::structure::{Case, Structure};

/// Keys of a batch: what a caller gathers who answers requests, and enough to hide the first
/// accesses, which nobody prefetched.
pub const BATCH_KEYS: usize = 1_024;

/// Least time that an operation is measured in a round; small cases are repeated.
const ROUND_TIME_MIN: Duration = Duration::from_millis(50);

/// Most queries of a pass: they are random, so more of them say nothing new.
const QUERIES_MAX: u64 = 20_000_000;

/// Fresh keys that are asked for: 4,000 false positives at 0.1 %, known to 3 % (two sigma).
const FRESH_KEYS: u64 = 4_000_000;

/// Threads of the two-thread rows, and of checks.
pub const THREADS_MAX: u64 = 2;

/// One measured time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// What was done.
    pub operation: &'static str,
    /// Threads that did it.
    pub threads: u64,
    /// Wall time an operation, of all threads together.
    pub nanoseconds: f64,
}

/// What a structure is, beside fast.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Facts {
    /// Inserted keys that it denies: must be 0.
    pub false_negatives: u64,
    /// Share of fresh keys that it takes for inserted.
    pub measured_rate: f64,
    /// Bits of memory an item.
    pub bits_per_item: f64,
}

/// A structure without its type.
#[derive(Clone, Copy)]
pub struct Contestant {
    /// Its name in the tables.
    pub name: &'static str,
    /// Whether it is made for such a rate.
    pub suits: fn(Case) -> bool,
    /// One round; with checks if told so.
    pub round: fn(Case, bool) -> (Vec<Sample>, Option<Facts>),
}

impl Contestant {
    /// A structure as a contestant.
    #[must_use]
    pub fn of<S: Structure>() -> Self {
        Self { name: S::NAME, suits: S::suits, round: round::<S> }
    }
}

fn round<S: Structure>(case: Case, is_checked: bool) -> (Vec<Sample>, Option<Facts>) {
    let mut samples = Vec::new();
    let mut push = |operation, threads, nanoseconds| {
        samples.push(Sample { operation, threads, nanoseconds });
    };
    if S::HAS_BATCHES && !S::IS_STATIC {
        push("insert_batch", 1, insert::<S>(case, insert_batch_pass).0);
    }
    if S::IS_SHARED {
        push("insert", THREADS_MAX, insert::<S>(case, insert_shared_pass).0);
        if S::HAS_BATCHES {
            push("insert_batch", THREADS_MAX, insert::<S>(case, insert_batch_shared_pass).0);
        }
    }
    // At last, because it leaves what is asked below.
    let pass = if S::IS_STATIC { build_pass } else { insert_pass };
    let (insert_nanoseconds, filled) = insert::<S>(case, pass);
    push("insert", 1, insert_nanoseconds);
    for threads in 1..=THREADS_MAX {
        push("contains", threads, contains(&filled, case, threads, contains_pass));
        if S::HAS_BATCHES {
            push("contains_batch", threads, contains(&filled, case, threads, contains_batch_pass));
        }
    }
    (samples, is_checked.then(|| facts(&filled, case)))
}

/// Makes an empty structure and fills it; returns the time of filling.
type InsertPass<S> = fn(Case) -> (Duration, S);

fn insert<S>(case: Case, pass: InsertPass<S>) -> (f64, S) {
    let (mut time, mut filled) = pass(case);
    let mut pass_count = 1;
    while time < ROUND_TIME_MIN {
        // Freed first: at the largest sizes there is no room for two.
        drop(filled);
        let (pass_time, next) = pass(case);
        time += pass_time;
        filled = next;
        pass_count += 1;
    }
    (nanoseconds(time, case.items * pass_count), filled)
}

fn insert_pass<S: Structure>(case: Case) -> (Duration, S) {
    let mut filter = S::create(case);
    let time = time_chunks(case.items, fill_inserted, |keys: &[S::Key]| {
        let filter = black_box(&mut filter);
        black_box(keys.iter().map(|&key| u64::from(filter.insert(key))).sum::<u64>());
    });
    (time, filter)
}

fn insert_batch_pass<S: Structure>(case: Case) -> (Duration, S) {
    let (mut filter, mut outcomes) = (S::create(case), Vec::new());
    let time = time_chunks(case.items, fill_inserted, |keys: &[S::Key]| {
        for batch in keys.chunks(BATCH_KEYS) {
            black_box(&mut filter).insert_batch(batch, &mut outcomes);
            black_box(&outcomes);
        }
    });
    (time, filter)
}

fn insert_shared_pass<S: Structure>(case: Case) -> (Duration, S) {
    let filter = S::create(case);
    let run = || {
        |keys: &[S::Key]| {
            let filter = black_box(&filter);
            black_box(keys.iter().map(|&key| u64::from(filter.insert_shared(key))).sum::<u64>());
        }
    };
    let time = time_chunks_on(THREADS_MAX, case.items, fill_inserted, run);
    (time, filter)
}

fn insert_batch_shared_pass<S: Structure>(case: Case) -> (Duration, S) {
    let filter = S::create(case);
    let run = || {
        let mut outcomes = Vec::new();
        let filter = &filter;
        move |keys: &[S::Key]| {
            for batch in keys.chunks(BATCH_KEYS) {
                black_box(filter).insert_batch_shared(batch, &mut outcomes);
                black_box(&outcomes);
            }
        }
    };
    let time = time_chunks_on(THREADS_MAX, case.items, fill_inserted, run);
    (time, filter)
}

/// All keys at once: these have to be in memory, and are read from there.
fn build_pass<S: Structure>(case: Case) -> (Duration, S) {
    let mut keys = Vec::new();
    fill_inserted(0..case.items, &mut keys);
    let started = now();
    let filter = black_box(S::build(case, black_box(keys)));
    (started.elapsed(), filter)
}

/// Asks the filled structure so many queries on so many threads; returns the time.
type ContainsPass<S> = fn(&S, Case, u64, u64) -> Duration;

fn contains<S>(filled: &S, case: Case, threads: u64, pass: ContainsPass<S>) -> f64 {
    let queries = case.items.min(QUERIES_MAX);
    // The first pass warms caches and is not counted.
    pass(filled, case, queries.min(CHUNK_KEYS * THREADS_MAX), threads);
    let (mut time, mut pass_count) = (Duration::ZERO, 0);
    while time < ROUND_TIME_MIN {
        time += pass(filled, case, queries, threads);
        pass_count += 1;
    }
    nanoseconds(time, queries * pass_count)
}

fn contains_pass<S: Structure>(filter: &S, case: Case, queries: u64, threads: u64) -> Duration {
    let fill = |indexes, chunk: &mut Vec<S::Key>| fill_queries(indexes, case.items, chunk);
    let run = || {
        |keys: &[S::Key]| {
            let filter = black_box(filter);
            black_box(keys.iter().map(|&key| u64::from(filter.contains(key))).sum::<u64>());
        }
    };
    time_chunks_on(threads, queries, fill, run)
}

fn contains_batch_pass<S: Structure>(
    filter: &S,
    case: Case,
    queries: u64,
    threads: u64,
) -> Duration {
    let fill = |indexes, chunk: &mut Vec<S::Key>| fill_queries(indexes, case.items, chunk);
    let run = || {
        let mut present = Vec::new();
        move |keys: &[S::Key]| {
            for batch in keys.chunks(BATCH_KEYS) {
                black_box(filter).contains_batch(batch, &mut present);
                black_box(&present);
            }
        }
    };
    time_chunks_on(threads, queries, fill, run)
}

/// Asks for every inserted key and for many fresh ones.
fn facts<S: Structure>(filled: &S, case: Case) -> Facts {
    let denied = count(filled, case.items, fill_inserted, false);
    let false_positives = count(filled, FRESH_KEYS, fill_fresh, true);
    Facts {
        false_negatives: denied,
        measured_rate: false_positives as f64 / FRESH_KEYS as f64,
        bits_per_item: 8.0 * filled.memory_bytes() as f64 / case.items as f64,
    }
}

/// Number of keys that get this answer; one by one and, where there are batches, in batches too.
fn count<S: Structure>(
    filled: &S,
    key_count: u64,
    fill: impl Fn(Range<u64>, &mut Vec<S::Key>) + Sync,
    answer: bool,
) -> u64 {
    sum_on(THREADS_MAX, key_count, |indexes| {
        let (mut chunk, mut present) = (Vec::new(), Vec::new());
        let count_chunk = |indexes| {
            fill(indexes, &mut chunk);
            let single = chunk.iter().filter(|&&key| filled.contains(key) == answer).count();
            if S::HAS_BATCHES {
                filled.contains_batch(&chunk, &mut present);
                let batched = present.iter().filter(|&&is_there| is_there == answer).count();
                assert_eq!(single, batched, "{}: batches answer otherwise", S::NAME);
            }
            single as u64
        };
        chunks(indexes).map(count_chunk).sum()
    })
}
