//! How far estimates are from the truth, in their own standard errors: items of a filter, of two together and in common.
//!
//! Two filters of one shape, planned for so many items at 1 %, each with as many, half of which they have in
//! common. Ends with 1 if an estimate is more than four standard errors away.
//!
//! Then how long the pass over a window takes when a slice ends, which the first call of the new slice waits for.
//!
//! `cargo run --release -p umbel-filter --example estimates`

use std::process::ExitCode;
use std::time::Instant;

use umbel_filter::sizing::{Estimate, intersection_estimate, item_count_estimate, union_estimate};
use umbel_filter::words::count_ones;
use umbel_filter::{
    Blocked, Classic, HashRange, Insert, ItemHash, ItemHasher, Merge, Sighting, Window,
};

/// Items of each filter.
const ITEM_COUNTS: [u64; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

const RATE: f64 = 0.01;

const BATCH_LEN: usize = 4096;

/// Most standard errors that an estimate may be away.
const FAR: f64 = 4.0;

/// Slices of the window.
const SLICES: u64 = 24;

fn main() -> ExitCode {
    println!("{:>8} {:>11} {:>24} {:>24} {:>24}", "kind", "items", "each", "together", "in common");
    let mut is_near = true;
    for count in ITEM_COUNTS {
        let whole = HashRange::WHOLE;
        let blocked = Blocked::for_rate(whole, count, RATE).expect("a filter");
        let (m, k) = (blocked.block_shape().position_count(), blocked.block_shape().probe_count());
        is_near &= show("blocked", count, filled(&blocked, count, Blocked::words), (m, k));
        let classic = Classic::for_rate(whole, count, RATE).expect("a filter");
        let (m, k) = (classic.block_shape().position_count(), classic.block_shape().probe_count());
        is_near &= show("classic", count, filled(&classic, count, Classic::words), (m, k));
    }
    for count in [1_000_000, 10_000_000] {
        end_a_slice(count);
    }
    if is_near { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn items(numbers: std::ops::Range<u64>) -> Vec<ItemHash> {
    let hasher = ItemHasher::Xxh3 { seed: 7 };
    numbers.map(|number| hasher.hash(&number.to_le_bytes())).collect()
}

fn insert(filter: &mut impl Insert, numbers: std::ops::Range<u64>) {
    let mut outcomes = Vec::new();
    for first in numbers.clone().step_by(BATCH_LEN) {
        let batch = items(first..(first + BATCH_LEN as u64).min(numbers.end));
        filter.insert_batch(&batch, &mut outcomes).expect("the whole range");
    }
}

/// The ones of one filter, of the other, and of both together.
fn filled<F: Insert + Merge + Clone>(empty: &F, count: u64, words: fn(&F) -> &[u64]) -> [u64; 3] {
    let (mut one, mut other) = (empty.clone(), empty.clone());
    insert(&mut one, 0..count);
    insert(&mut other, count / 2..count / 2 + count);
    let ones = [&one, &other].map(|filter| count_ones(words(filter)));
    one.merge(&other).expect("one shape");
    [ones[0], ones[1], count_ones(words(&one))]
}

/// Prints the estimates; whether they are near the truth.
fn show(kind: &str, count: u64, [one, other, or]: [u64; 3], (m, k): (u64, u32)) -> bool {
    let each = item_count_estimate(m, k, one).expect("not full");
    let union = union_estimate(m, k, or).expect("not full");
    let common = intersection_estimate(m, k, one, other, or).expect("not full");
    let truth = count as f64;
    let estimates = [(each, truth), (union, 1.5 * truth), (common, 0.5 * truth)];
    let off = |(estimate, truth): (Estimate, f64)| {
        (estimate.item_count - truth) / estimate.standard_error
    };
    let [each, union, common] = estimates
        .map(|estimates| format!("{:.0} ({:+.2} errors)", estimates.0.item_count, off(estimates)));
    println!("{kind:>8} {count:>11} {each:>24} {union:>24} {common:>24}");
    estimates.into_iter().all(|estimates| off(estimates).abs() <= FAR)
}

/// Measures the end of the oldest slice of a window that is as full as planned.
fn end_a_slice(count: u64) {
    let mut window = Window::for_rate(HashRange::WHOLE, count, RATE).expect("a window");
    let mut outcomes = Vec::new();
    let each = count / (SLICES + 1);
    for slice in 0..=SLICES {
        window.advance(0, slice);
        let items = items(slice * each..(slice + 1) * each);
        let inserted = window.insert_batch_at(&items, slice, Sighting::First, &mut outcomes);
        inserted.expect("as many as planned");
    }
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
    let began = Instant::now();
    window.advance(1, SLICES + 1);
    let took = began.elapsed();
    println!("a slice of {each} of {count} items ends in {took:.1?}");
}
