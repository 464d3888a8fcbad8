//! Curves over sizes, for the eye: `cargo bench --bench curves [-- NAME]`.
//!
//! Batches of the blocked kind, decoding, and merging, from a filter in the first-level cache to
//! one beyond all caches. The tables have the figures that are claimed; this shows where a change
//! of the code bends a curve, with the confidence intervals and comparisons of criterion.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use umbel_bits::{BitReader, BitWriter, RiceCode, decode_positions, encode_positions};
use umbel_filter::{Blocked, Contains, HashRange, Insert, ItemHash, Merge};
use umbel_kernel_benchmark::keys::{fill_inserted, fill_queries, mix};

/// Sizes, and the rate of all filters.
const ITEMS: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
const RATE: f64 = 0.01;

/// Keys of a measured batch, and gaps of a measured list.
const BATCH_KEYS: u64 = 4_096;

/// Mean gaps of the lists that are decoded.
const MEAN_GAPS: [u64; 5] = [6, 48, 384, 6_144, 98_304];

criterion_group!(curves, batches, merges, decodes);
criterion_main!(curves);

fn filled(items: u64) -> Blocked {
    let mut filter = Blocked::for_rate(HashRange::WHOLE, items, RATE).expect("memory for it");
    let (mut keys, mut outcomes) = (Vec::new(), Vec::new());
    fill_inserted(0..items, &mut keys);
    filter.insert_batch(&keys, &mut outcomes).expect("the range is the whole hash space");
    filter
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("blocked");
    group.throughput(Throughput::Elements(BATCH_KEYS));
    for items in ITEMS {
        let mut filter = filled(items);
        let (mut outcomes, mut present) = (Vec::new(), Vec::new());
        let mut first = 0;
        let mut queries = |keys: &mut Vec<ItemHash>| {
            // Others each time, or a large filter's lines would come from the cache.
            first += BATCH_KEYS;
            fill_queries(first..first + BATCH_KEYS, items, keys);
        };
        let mut keys = Vec::new();
        group.bench_function(BenchmarkId::new("contains_batch", items), |bencher| {
            bencher.iter_batched_ref(
                || {
                    queries(&mut keys);
                    keys.clone()
                },
                |keys| filter.contains_batch(black_box(keys), &mut present),
                criterion::BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("insert_batch", items), |bencher| {
            bencher.iter_batched_ref(
                || {
                    // Only keys that are there: the filter stays as full as it is.
                    first += BATCH_KEYS;
                    (first..first + BATCH_KEYS)
                        .map(|index| umbel_kernel_benchmark::keys::Key::of(mix(index) % items))
                        .collect::<Vec<ItemHash>>()
                },
                |keys| filter.insert_batch(black_box(keys), &mut outcomes).expect("whole space"),
                criterion::BatchSize::LargeInput,
            );
        });
    }
}

fn merges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge");
    for items in ITEMS {
        let (mut ours, theirs) = (filled(items), filled(items));
        group.throughput(Throughput::Bytes(8 * ours.words().len() as u64));
        group.bench_function(BenchmarkId::from_parameter(items), |bencher| {
            bencher.iter(|| black_box(&mut ours).merge(black_box(&theirs)).expect("one shape"));
        });
    }
}

fn decodes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode_positions");
    group.throughput(Throughput::Elements(BATCH_KEYS));
    for mean_gap in MEAN_GAPS {
        let width = mean_gap * BATCH_KEYS;
        let mut positions: Vec<u64> = (0..BATCH_KEYS).map(|index| mix(index) % width).collect();
        positions.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let code = RiceCode::for_mean_gap(mean_gap as f64);
        let mut writer = BitWriter::new();
        encode_positions(code, positions.iter().copied(), &mut writer);
        let bytes = writer.finish();
        let mut found = Vec::new();
        group.bench_function(BenchmarkId::from_parameter(mean_gap), |bencher| {
            bencher.iter(|| {
                found.clear();
                let mut reader = BitReader::new(black_box(&bytes));
                decode_positions(&mut reader, code, BATCH_KEYS, width, &mut found)
            });
        });
    }
}
