//! Bits an item and nanoseconds an operation of the stored single-shot filter.
//!
//! Items are splitmix64 numbers; for each number of items and each rate a filter with m = n/p
//! positions. A row says:
//!
//! * bits an item in memory, beside its parts and floors: the Rice code of uniform gaps, their
//!   entropy, and log2(1/p);
//! * nanoseconds a position to build from sorted positions and to read all again;
//! * nanoseconds a query of the sealed filter, of items that are in it and others, one by one and
//!   in batches, and one by one with a full delta;
//! * nanoseconds an insert, one by one and in batches, of as many items as fill the delta four
//!   times, with all folding.
//!
//! `cargo run --release -p umbel-filter --example stored_speed [ITEM_COUNT_MAX]`

use std::hint::black_box;
use std::time::Instant;

use umbel_bits::{RiceCode, gap_entropy_bits};
use umbel_filter::{Contains, HashRange, Insert, ItemHash, SingleShotShape, StoredSingleShot};

const QUERY_COUNT: u64 = 200_000;
const SLICE_LEN: usize = 10 * BATCH_LEN;
const BATCH_LEN: usize = 1024;
const ROUND_COUNT: u32 = 9;

fn main() {
    let item_count_max =
        std::env::args().nth(1).map_or(100_000_000, |max| max.parse().expect("a number of items"));
    println!("                  ┌──── bits an item ────┐ ┌─────────────── ns ───────────────");
    println!(
        "{:>9} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "items",
        "1/p",
        "memory",
        "Rice",
        "entr.",
        "log2",
        "build",
        "read",
        "hit",
        "miss",
        "hits",
        "misses",
        "+delta",
        "insert",
        "batch"
    );
    for item_count in [1_000_000, 10_000_000, 100_000_000] {
        if item_count <= item_count_max {
            let mut his: Vec<u64> = (0..item_count).map(mix).collect();
            his.sort_unstable();
            [100, 1_000, 1_000_000]
                .into_iter()
                .for_each(|inverse_rate| measure(&his, inverse_rate));
        }
    }
}

fn measure(his: &[u64], inverse_rate: u64) {
    let item_count = his.len() as u64;
    let shape = SingleShotShape::new(HashRange::WHOLE, item_count * inverse_rate);
    let shape = shape.expect("far below 2^60");
    let mut positions: Vec<u64> = his.iter().map(|&hi| shape.position(hi)).collect();
    positions.dedup();
    let build = || StoredSingleShot::from_positions(shape, positions.iter().copied());
    let mut filter = build().expect("sorted positions");
    let build_ns = least_ns(item_count, || {
        black_box(build().is_ok());
    });
    let read_ns = least_ns(item_count, || {
        black_box(filter.positions().fold(0, u64::wrapping_add));
    });
    drop(positions);

    let bits = 8.0 * filter.memory_bytes() as f64 / item_count as f64;
    let mean_gap = inverse_rate as f64 - 1.0;
    print!(
        "{item_count:>9} {inverse_rate:>7} {bits:>6.2} {:>6.2} {:>6.2} {:>6.2} {build_ns:>6.1} {read_ns:>6.1}",
        RiceCode::for_mean_gap(mean_gap).expected_bits(mean_gap),
        gap_entropy_bits(mean_gap),
        (inverse_rate as f64).log2(),
    );

    let hits: Vec<ItemHash> = (0..QUERY_COUNT).map(|index| hash(mix(index) % item_count)).collect();
    let misses: Vec<ItemHash> = (0..QUERY_COUNT).map(|index| hash(index << 40 | 1 << 39)).collect();
    for queries in [&hits, &misses] {
        print!(" {:>6.1}", one_by_one_ns(&filter, queries));
    }
    for queries in [&hits, &misses] {
        print!(" {:>6.1}", batch_ns(&filter, queries));
    }

    let delta_len = (item_count / 32).max(4096);
    let mut new = (item_count..).map(hash);
    for hash in new.by_ref().take(usize::try_from(delta_len - 1).expect("few")) {
        filter.insert(hash).expect("all hashes are in range");
    }
    print!(" {:>6.1}", one_by_one_ns(&filter, &misses));
    filter.seal();
    let inserts: Vec<ItemHash> = new.by_ref().take(4 * delta_len as usize).collect();
    print!(
        " {:>6.1}",
        ns(inserts.len() as u64, || {
            for &hash in &inserts {
                black_box(filter.insert(hash).expect("all hashes are in range"));
            }
        })
    );
    filter.seal();
    let inserts: Vec<ItemHash> = new.take(4 * delta_len as usize).collect();
    let mut outcomes = Vec::new();
    println!(
        " {:>6.1}",
        ns(inserts.len() as u64, || {
            for batch in inserts.chunks(BATCH_LEN) {
                filter.insert_batch(batch, &mut outcomes).expect("all hashes are in range");
            }
        })
    );
}

fn one_by_one_ns(filter: &StoredSingleShot, queries: &[ItemHash]) -> f64 {
    slice_ns(queries, |slice| {
        black_box(slice.iter().filter(|&&hash| filter.contains(hash)).count());
    })
}

fn batch_ns(filter: &StoredSingleShot, queries: &[ItemHash]) -> f64 {
    let mut present = Vec::new();
    slice_ns(queries, |slice| {
        for batch in slice.chunks(BATCH_LEN) {
            filter.contains_batch(batch, &mut present);
            black_box(&present);
        }
    })
}

/// Nanoseconds a query in the best slice: slices are so short that some run undisturbed, and so
/// many that a large filter is not in cache when they come again.
fn slice_ns(queries: &[ItemHash], mut run: impl FnMut(&[ItemHash])) -> f64 {
    let mut slice_ns = |slice: &[ItemHash]| ns(slice.len() as u64, || run(slice));
    (0..ROUND_COUNT)
        .flat_map(|_| queries.chunks_exact(SLICE_LEN))
        .map(&mut slice_ns)
        .fold(f64::INFINITY, f64::min)
}

/// The item with this number.
fn hash(number: u64) -> ItemHash {
    ItemHash::new(mix(number), number)
}

/// The splitmix64 sequence: different numbers have different images.
const fn mix(number: u64) -> u64 {
    let mut word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn least_ns(operation_count: u64, mut run: impl FnMut()) -> f64 {
    (0..ROUND_COUNT).map(|_| ns(operation_count, &mut run)).fold(f64::INFINITY, f64::min)
}

fn ns(operation_count: u64, run: impl FnOnce()) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "this program measures time")]
    let started = Instant::now();
    run();
    started.elapsed().as_secs_f64() * 1e9 / operation_count as f64
}
