//! Time of every sketch on one core: encode an item, decode a difference, cover a block.
//!
//! Symbols come from a fixed generator; each figure is the minimum of several runs.
//!
//! `cargo run --release -p umbel-sketch --example sketch_speed`

use std::hash::Hasher;
use std::hint::black_box;
use std::time::Instant;

use siphasher::sip::SipHasher24;
use umbel_sketch::{
    BLOCK_WORDS, BlockCode, CodedSymbol, Estimator, Field, RibltDecoder, RibltEncoder,
    decode_syndromes, toggle_buckets, toggle_symbols, toggle_syndromes,
};

fn main() {
    measure_toggles();
    measure_buckets();
    measure_riblt();
    measure_estimator();
    measure_blocks();
}

/// Nanoseconds of the fastest of several runs.
#[expect(clippy::disallowed_methods, reason = "this is what measures")]
fn least(runs: u32, mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let begin = Instant::now();
        run();
        begin.elapsed().as_secs_f64() * 1e9
    };
    (0..runs).map(time).fold(f64::INFINITY, f64::min)
}

/// Numbers of a fixed generator (SplitMix64).
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |index: u64| {
        let z = (seed << 32).wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

fn measure_toggles() {
    const COUNT: usize = 1 << 18;
    println!("PinSketch encode           one sketch   one by one  2^12 buckets   (M symbols/s)");
    for (bits, capacity) in [(64, 16), (48, 16), (64, 31), (32, 31), (32, 128)] {
        let field = Field::new(bits).expect("a field");
        let symbols: Vec<u64> = numbers(1).take(COUNT).collect();
        let mut syndromes = vec![0; capacity];
        let batch = least(15, || toggle_symbols(field, &mut syndromes, black_box(&symbols)));
        let single = least(15, || {
            for &symbol in black_box(&symbols) {
                toggle_syndromes(field, &mut syndromes, symbol);
            }
        });
        let of_buckets: Vec<(u32, u64)> =
            symbols.iter().map(|&symbol| ((symbol >> 52) as u32, symbol)).collect();
        let mut table = vec![0; capacity << 12];
        let buckets =
            least(15, || toggle_buckets(field, &mut table, capacity, black_box(&of_buckets)));
        let rate = |time: f64| COUNT as f64 * 1e3 / time;
        println!(
            "b = {bits:2}, {capacity:3} syndromes {:13.1} {:12.1} {:13.1}",
            rate(batch),
            rate(single),
            rate(buckets)
        );
    }
}

fn measure_buckets() {
    println!("\nPinSketch decode     symbols  syndromes   µs/symbol   µs if overfull");
    for (bits, count, capacity) in [
        (64, 1, 16),
        (64, 5, 16),
        (64, 15, 16),
        (48, 15, 16),
        (27, 20, 28),
        (40, 20, 28),
        (57, 20, 28),
        (64, 20, 28),
        (57, 35, 36),
        (57, 127, 128),
    ] {
        let field = Field::new(bits).expect("a field");
        let sketches = |symbol_count: usize| -> Vec<Vec<u64>> {
            let sketch = |seed| {
                let symbols: Vec<u64> = numbers(seed).take(symbol_count).collect();
                let mut syndromes = vec![0; capacity];
                toggle_symbols(field, &mut syndromes, &symbols);
                syndromes
            };
            (0..100).map(sketch).collect()
        };
        let decode_all = |sketches: &[Vec<u64>], decodes: bool| {
            least(7, || {
                for (seed, sketch) in (0..).zip(black_box(sketches)) {
                    let seed = 0x9e37_79b9_7f4a_7c15 * (2 * seed + 1);
                    assert_eq!(decode_syndromes(field, sketch, seed).is_some(), decodes);
                }
            }) / 1e5
        };
        let fitting = decode_all(&sketches(count), true) / count as f64;
        let overfull = decode_all(&sketches(2 * capacity), false);
        println!("b = {bits:2} {count:22} {capacity:10} {fitting:11.3} {overfull:16.3}");
    }
}

fn check_hash(symbol: u64) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(1, 2);
    hasher.write(&symbol.to_le_bytes());
    hasher.finish()
}

fn measure_riblt() {
    println!("\nRIBLT        symbols   coded  ns/symbol   in chunks of 1/8 more");
    for (symbol_count, coded_count) in
        [(1_000_000, 1_400), (1_000_000, 14_000), (1_000_000, 140_000), (1_000_000, 1_000_000)]
    {
        let mut empty = RibltEncoder::new();
        numbers(1).take(symbol_count).for_each(|symbol| empty.add(symbol, check_hash(symbol)));
        let encode = |first: usize| {
            let mut least_time = f64::INFINITY;
            for _ in 0..3 {
                let mut encoder = empty.clone();
                let time = least(1, || {
                    black_box(encoder.next_symbols(first));
                    while encoder.next_index() < coded_count {
                        black_box(encoder.next_symbols(encoder.next_index().div_ceil(8)));
                    }
                });
                least_time = least_time.min(time / symbol_count as f64);
            }
            least_time
        };
        let (whole, chunks) = (encode(coded_count), encode(32));
        println!("encode {symbol_count:13} {coded_count:7} {whole:10.1} {chunks:23.1}");
    }
    for difference in [100, 1_000, 10_000, 100_000, 1_000_000] {
        let mut encoder = RibltEncoder::new();
        numbers(2).take(difference).for_each(|symbol| encoder.add(symbol, check_hash(symbol)));
        let coded = encoder.next_symbols(2 * difference);
        let mut used = 0;
        let by_chunks = |chunk: usize, used: &mut usize| {
            least(if difference > 10_000 { 3 } else { 21 }, || {
                let mut decoder = RibltDecoder::new(check_hash);
                let mut chunks = coded.chunks(chunk);
                while !decoder.is_complete() {
                    let chunk: &[CodedSymbol] = chunks.next().expect("twice as many are enough");
                    decoder.push_all(black_box(chunk)).expect("own");
                }
                *used = decoder.coded_count();
            }) / difference as f64
        };
        let whole = by_chunks(2 * difference, &mut used);
        let chunks = by_chunks((difference / 8).max(1), &mut used);
        println!("decode {difference:13} {used:7} {whole:10.1} {chunks:23.1}");
    }
}

fn measure_estimator() {
    const COUNT: usize = 1 << 20;
    let hashes: Vec<u64> = numbers(3).take(COUNT).collect();
    let mut estimator = Estimator::new();
    let time = least(9, || estimator.add_all(black_box(&hashes))) / COUNT as f64;
    println!("\nestimator: {time:.1} ns an item");
}

fn measure_blocks() {
    const BLOCK_COUNT: usize = 256;
    println!("\nblock code   words   GiB/s   ns/flip   flips   µs to decode   all at once");
    let words: Vec<u64> = numbers(4).take(BLOCK_COUNT * BLOCK_WORDS).collect();
    for word_count in [1, 2, 4, 8, 32] {
        let code = BlockCode::new(word_count).expect("a code");
        let mut residues = vec![0; BLOCK_COUNT * word_count];
        let time = least(9, || code.residues_of_blocks(black_box(&words), &mut residues));
        let rate = words.len() as f64 * 8.0 * 1e9 / time / f64::from(1 << 30);
        let positions: Vec<u32> =
            numbers(5).take(code.flips_max()).map(|number| (number >> 49) as u32).collect();
        let mut difference = vec![0; word_count];
        let flip = least(99, || {
            for &position in black_box(&positions) {
                code.flip(&mut difference, position);
            }
        }) / positions.len() as f64;
        difference.fill(0);
        positions.iter().for_each(|&position| code.flip(&mut difference, position));
        let decode = least(99, || {
            assert!(code.decode(black_box(&difference), 0x1234_5678_9abc_def1).is_some());
        }) / 1e3;
        let count = positions.len();
        println!(
            "{word_count:18} {rate:7.1} {flip:9.1} {count:7} {:14.2} {decode:13.2}",
            decode / count as f64
        );
    }
}
