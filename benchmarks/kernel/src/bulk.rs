//! Loops over whole filters: OR, counting ones, and copying, per line of 64 bytes.

use std::hint::black_box;

use umbel_filter::{Blocked, HashRange, words};

use crate::clock::now;
use crate::keys::mix;
use crate::limit::{LINE_BYTES, Lines, nanoseconds};
use crate::measure::Sample;
use crate::structure::Case;
use crate::table::{LIMIT, Row, median};

/// Items of the filters that are merged and counted, in quick runs too: smaller ones stay in cache.
pub const BULK_ITEMS: u64 = 100_000_000;

/// Rounds, of which the median counts.
const ROUND_COUNT: u64 = 7;

/// Measures copying, merging and counting a filter of [`BULK_ITEMS`] items at this rate.
#[must_use]
pub fn rows(rate: f64) -> Vec<Row> {
    let case = Case { items: BULK_ITEMS, rate };
    let mut ours = random_filter(case, 0);
    let theirs = random_filter(case, 1);
    let line_count = (ours.words().len() as u64).div_ceil(LINE_BYTES / 8);
    let (mut target, mut source) = (Lines::new(line_count), Lines::new(line_count));

    let time = |run: &mut dyn FnMut()| {
        let started = now();
        run();
        nanoseconds(started.elapsed(), line_count)
    };
    let (mut copies, mut merges, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUND_COUNT {
        copies.push(time(&mut || {
            target.copy_from(black_box(&mut source));
            black_box(&target);
        }));
        merges.push(time(&mut || {
            black_box(words::or(black_box(ours.words_mut()), black_box(theirs.words())));
        }));
        counts.push(time(&mut || {
            black_box(words::count_ones(black_box(ours.words())));
        }));
    }
    let row = |structure, operation, values| {
        let sample = Sample { operation, threads: 1, nanoseconds: median(values) };
        Row::new(structure, case, sample, None)
    };
    vec![
        row(LIMIT, "memcpy", copies),
        row("umbel-bits", "or_merge", merges),
        row("umbel-bits", "popcount", counts),
    ]
}

/// A filter with half of its bits set at random, as a full one has.
fn random_filter(case: Case, salt: u64) -> Blocked {
    let mut filter = Blocked::for_rate(HashRange::WHOLE, case.items, case.rate)
        .expect("memory for a filter of the benchmark");
    let salt = mix(salt);
    filter.words_mut().iter_mut().zip(0u64..).for_each(|(word, index)| *word = mix(index ^ salt));
    filter
}
