//! Nanoseconds per Rice code, encoding and decoding.
//!
//! A million geometric gaps of the mean that suits each parameter, from a fixed generator; the
//! least of 21 runs. Prints one line per parameter B.
//!
//! `cargo run --release -p umbel-bits --example rice_speed`

use std::hint::black_box;
use std::time::{Duration, Instant};

use umbel_bits::{BitReader, BitWriter, RiceCode, decode_positions, encode_positions};

const GAP_COUNT: u64 = 1_000_000;
const RUN_COUNT: u32 = 21;

fn main() {
    println!(
        "{:>3} {:>10} {:>10} {:>10} {:>12}",
        "B", "bits/code", "encode ns", "decode ns", "one by one"
    );
    for low_bits in [0, 2, 4, 8, 11, 16, 34] {
        let code = RiceCode::new(low_bits).expect("at most 63");
        measure(code);
    }
}

fn measure(code: RiceCode) {
    let gaps = gaps(1.5 * 2f64.powi(code.low_bits().cast_signed()));
    let positions: Vec<u64> = gaps
        .iter()
        .scan(0, |position, gap| {
            *position += gap;
            Some(*position)
        })
        .collect();
    let width = positions.last().expect("a million positions") + 1;

    let mut bytes = Vec::new();
    let mut bit_len = 0;
    let encode = least(|| {
        let mut writer = BitWriter::with_buffer(std::mem::take(&mut bytes));
        encode_positions(code, positions.iter().copied(), &mut writer);
        bit_len = writer.bit_len();
        bytes = writer.finish();
        black_box(&bytes);
        bytes.clear();
    });

    let mut writer = BitWriter::new();
    encode_positions(code, positions.iter().copied(), &mut writer);
    let bytes = writer.finish();
    let mut found = Vec::new();
    let decode = least(|| {
        found.clear();
        let mut reader = BitReader::new(black_box(&bytes));
        decode_positions(&mut reader, code, GAP_COUNT, width, &mut found).expect("own codes");
        black_box(&found);
    });
    assert_eq!(found, positions);

    // As an engine reads them that does more than collect: code by code.
    let one_by_one = least(|| {
        let mut reader = BitReader::new(black_box(&bytes));
        let mut sum = 0u64;
        for _ in 0..GAP_COUNT {
            sum += code.read(&mut reader).expect("own codes");
        }
        black_box(sum);
    });

    let per_code = |time: Duration| time.as_secs_f64() * 1e9 / GAP_COUNT as f64;
    println!(
        "{:>3} {:>10.3} {:>10.2} {:>10.2} {:>12.2}",
        code.low_bits(),
        bit_len as f64 / GAP_COUNT as f64,
        per_code(encode),
        per_code(decode),
        per_code(one_by_one)
    );
}

/// Geometric gaps by inversion of a splitmix64 sequence.
fn gaps(mean: f64) -> Vec<u64> {
    let ln_q = -mean.recip().ln_1p();
    let uniform = |index: u64| {
        let mut word = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) as f64 + 0.5) / 2f64.powi(64)
    };
    #[expect(clippy::cast_possible_truncation, reason = "far below 2^64")]
    (1..=GAP_COUNT).map(|index| (uniform(index).ln() / ln_q).floor() as u64).collect()
}

fn least(mut run: impl FnMut()) -> Duration {
    let time = |_| {
        #[expect(clippy::disallowed_methods, reason = "this program measures time")]
        let started = Instant::now();
        run();
        started.elapsed()
    };
    (0..RUN_COUNT).map(time).min().expect("more than one run")
}
