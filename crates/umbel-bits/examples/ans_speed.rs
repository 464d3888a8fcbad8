//! Size and nanoseconds a gap of the ANS gap code, beside the Rice code's in the same run.
//!
//! A hundred thousand geometric gaps of each mean, from a fixed generator; the least of 201 runs. The last
//! line is the cost of the tables: a list of one gap, encoded and decoded.
//!
//! `cargo run --release -p umbel-bits --example ans_speed`

use std::hint::black_box;
use std::time::{Duration, Instant};

use umbel_bits::{
    AnsGapCode, AnsReader, BitReader, BitWriter, RiceCode, decode_positions, encode_positions,
    gap_entropy_bits,
};

const GAP_COUNT: u64 = 100_000;
const RUN_COUNT: u32 = 201;

const HEADER: &str = "\
                        ------------------ ANS -------------------  ----------- Rice -----------
  mean gap    entropy   bits/gap   excess encode decode one by one  bits/gap excess encode decode";

fn main() {
    println!("{HEADER}");
    for mean in [2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 24.0, 64.0, 256.0, 1000.0] {
        measure(mean);
    }
    for exponent in [12, 16, 20, 24, 30] {
        measure(2f64.powi(exponent));
    }
    measure_tables();
}

fn measure(mean: f64) {
    let positions: Vec<u64> = gaps(mean)
        .into_iter()
        .scan(0, |position, gap| {
            *position += gap;
            Some(*position)
        })
        .collect();
    let width = positions.last().expect("many positions") + 1;
    let code = AnsGapCode::for_mean_gap(mean);
    let mut found = Vec::new();

    let mut bytes = Vec::new();
    let encode = least(|| {
        bytes.clear();
        code.encode_positions(black_box(&positions).iter().copied(), &mut bytes);
    });
    let decode = least(|| {
        found.clear();
        code.decode_positions(black_box(&bytes), GAP_COUNT, width, &mut found).expect("own");
    });
    assert_eq!(found, positions);
    // As an engine reads them that does more than collect.
    let one_by_one = least(|| {
        let reader = AnsReader::positions(black_box(&bytes), code, GAP_COUNT, width);
        let sum = reader.expect("own").try_fold(0u64, |sum, value| Ok(sum ^ value?));
        black_box(sum.map_err(|error: umbel_bits::CodeError| error).expect("own"));
    });

    let rice = RiceCode::for_mean_gap(mean);
    let mut rice_bytes = Vec::new();
    let rice_encode = least(|| {
        rice_bytes.clear();
        let mut writer = BitWriter::with_buffer(std::mem::take(&mut rice_bytes));
        encode_positions(rice, black_box(&positions).iter().copied(), &mut writer);
        rice_bytes = writer.finish();
    });
    let rice_decode = least(|| {
        found.clear();
        let mut reader = BitReader::new(black_box(&rice_bytes));
        decode_positions(&mut reader, rice, GAP_COUNT, width, &mut found).expect("own");
    });
    assert_eq!(found, positions);

    let per_gap = |time: Duration| time.as_secs_f64() * 1e9 / GAP_COUNT as f64;
    let bits = |bytes: &[u8]| 8.0 * bytes.len() as f64 / GAP_COUNT as f64;
    let entropy = gap_entropy_bits(mean);
    println!(
        "{mean:>10} {entropy:>10.4} {:>10.4} {:>8.4} {:>6.2} {:>6.2} {:>10.2} {:>9.4} {:>6.4} {:>6.2} {:>6.2}",
        bits(&bytes),
        bits(&bytes) - entropy,
        per_gap(encode),
        per_gap(decode),
        per_gap(one_by_one),
        bits(&rice_bytes),
        bits(&rice_bytes) - entropy,
        per_gap(rice_encode),
        per_gap(rice_decode),
    );
}

fn measure_tables() {
    let code = AnsGapCode::for_mean_gap(1000.0);
    let mut bytes = Vec::new();
    let (mut encode, mut decode) = (Duration::MAX, Duration::MAX);
    for _ in 0..1000 {
        encode = encode.min(least(|| {
            bytes.clear();
            code.encode_positions(black_box([1000]).into_iter(), &mut bytes);
        }));
        decode = decode.min(least(|| {
            black_box(AnsReader::positions(black_box(&bytes), code, 1, 2000)).expect("own");
        }));
    }
    println!("a list of one gap: encode {encode:?}, decode {decode:?}");
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
