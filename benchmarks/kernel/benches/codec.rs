//! Codes for gaps: length beside the entropy, and time, over mean gaps from 2 to 2^30.
//!
//! `cargo bench --bench codec` measures every code of `umbel-bits` in the form of whole lists:
//! sorted positions to bits, and back with all checks. The Markdown table has all codes; the file,
//! `target/bench/codec.csv`, has the best one for each mean gap (see `choose`).

use std::fmt::Write;
use std::hint::black_box;

use umbel_bits::{
    AnsGapCode, BitReader, BitWriter, GolombCode, RiceCode, decode_positions, encode_positions,
    gap_entropy_bits,
};
use umbel_kernel_benchmark::clock::now;
use umbel_kernel_benchmark::keys::mix;
use umbel_kernel_benchmark::limit::nanoseconds;
use umbel_kernel_benchmark::table::save;

/// From one position in three to one in a thousand million.
const MEAN_GAPS: [f64; 15] = [
    2.0,
    3.0,
    4.0,
    6.0,
    8.0,
    16.0,
    24.0,
    64.0,
    256.0,
    1_000.0,
    4_096.0,
    65_536.0,
    1_048_576.0,
    16_777_216.0,
    1_073_741_824.0,
];

const GAP_COUNT: u64 = 1_000_000;

/// The least of so many runs counts: such a loop waits for nothing but the processor, so whatever
/// is above the least is somebody else's work.
const RUN_COUNT: u32 = 41;

const FILE: &str = "codec.csv";
const CSV_HEADER: &str =
    "mean_gap,bits_per_item,entropy_bits,encode_nanoseconds,decode_nanoseconds";

/// Appends sorted positions as bytes.
type Encode = Box<dyn Fn(&[u64], &mut Vec<u8>)>;
/// Reads so many positions below a width.
type Decode = Box<dyn Fn(&[u8], u64, u64, &mut Vec<u64>)>;

/// A code for a mean gap, as a pair of functions over whole lists.
struct Code {
    name: &'static str,
    encode: Encode,
    decode: Decode,
}

/// What a code took.
#[derive(Clone, Copy)]
struct Measured {
    name: &'static str,
    bits_per_item: f64,
    encode_nanoseconds: f64,
    decode_nanoseconds: f64,
}

/// Every code of the library, with its best parameter for the mean gap.
fn codes(mean_gap: f64) -> [Code; 3] {
    let rice = RiceCode::for_mean_gap(mean_gap);
    let golomb = GolombCode::optimal(1.0 / (mean_gap + 1.0)).expect("a probability");
    let ans = AnsGapCode::for_mean_gap(mean_gap);
    [
        Code {
            name: "rice",
            encode: Box::new(move |positions, out| {
                let mut writer = BitWriter::with_buffer(std::mem::take(out));
                encode_positions(rice, positions.iter().copied(), &mut writer);
                *out = writer.finish();
            }),
            decode: Box::new(move |bytes, count, width, out| {
                let mut reader = BitReader::new(bytes);
                decode_positions(&mut reader, rice, count, width, out).expect("own codes");
            }),
        },
        Code {
            name: "golomb",
            encode: Box::new(move |positions, out| encode_golomb(golomb, positions, out)),
            decode: Box::new(move |bytes, count, width, out| {
                decode_golomb(golomb, bytes, count, width, out);
            }),
        },
        Code {
            name: "ans",
            encode: Box::new(move |positions, out| {
                ans.encode_positions(positions.iter().copied(), out);
            }),
            decode: Box::new(move |bytes, count, width, out| {
                ans.decode_positions(bytes, count, width, out).expect("own codes");
            }),
        },
    ]
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The code that a sender of a long list takes: the shortest.
fn choose(measured: &[Measured]) -> Measured {
    let by_length = |a: &&Measured, b: &&Measured| a.bits_per_item.total_cmp(&b.bits_per_item);
    *measured.iter().min_by(by_length).expect("several codes")
}

fn main() {
    let mut csv = format!("{CSV_HEADER}\n");
    let mut table = String::from(
        "| mean gap | code | bits | entropy | excess | encode ns | decode ns | chosen |\n\
         |--:|---|--:|--:|--:|--:|--:|---|\n",
    );
    for mean_gap in MEAN_GAPS {
        let entropy = gap_entropy_bits(mean_gap);
        let measured = measure(mean_gap);
        let chosen = choose(&measured);
        for code in measured {
            let Measured { name, bits_per_item, encode_nanoseconds, decode_nanoseconds } = code;
            let mark = if name == chosen.name { "●" } else { "" };
            writeln!(
                table,
                "| {mean_gap} | {name} | {bits_per_item:.3} | {entropy:.3} | {:.3} | \
                 {encode_nanoseconds:.2} | {decode_nanoseconds:.2} | {mark} |",
                bits_per_item - entropy
            )
            .expect("a string takes everything");
        }
        let Measured { bits_per_item, encode_nanoseconds, decode_nanoseconds, .. } = chosen;
        writeln!(
            csv,
            "{mean_gap},{bits_per_item:.4},{entropy:.4},{encode_nanoseconds:.3},\
             {decode_nanoseconds:.3}"
        )
        .expect("a string takes everything");
    }
    println!("{table}");
    save(FILE, &csv).expect("target/bench can be written");
}

/// Runs of all codes in turn, on the same gaps; checks that what is decoded is what was encoded.
fn measure(mean_gap: f64) -> Vec<Measured> {
    let positions = positions(mean_gap);
    let width = positions.last().expect("many positions") + 1;
    let codes = codes(mean_gap);
    let mut times = vec![(Vec::new(), Vec::new(), 0); codes.len()];
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    for _ in 0..RUN_COUNT {
        for (code, (encode, decode, byte_count)) in codes.iter().zip(&mut times) {
            bytes.clear();
            let started = now();
            (code.encode)(black_box(&positions), &mut bytes);
            black_box(&bytes);
            encode.push(nanoseconds(started.elapsed(), GAP_COUNT));
            *byte_count = bytes.len();

            found.clear();
            let started = now();
            (code.decode)(black_box(&bytes), GAP_COUNT, width, &mut found);
            black_box(&found);
            decode.push(nanoseconds(started.elapsed(), GAP_COUNT));
            assert!(found == positions, "{} does not give back mean gap {mean_gap}", code.name);
        }
    }
    let measured =
        |(code, (encode, decode, byte_count)): (&Code, (Vec<f64>, Vec<f64>, usize))| Measured {
            name: code.name,
            bits_per_item: 8.0 * byte_count as f64 / GAP_COUNT as f64,
            encode_nanoseconds: least(&encode),
            decode_nanoseconds: least(&decode),
        };
    codes.iter().zip(times).map(measured).collect()
}

fn encode_golomb(code: GolombCode, positions: &[u64], out: &mut Vec<u8>) {
    let mut writer = BitWriter::with_buffer(std::mem::take(out));
    let mut previous = 0;
    for &position in positions {
        code.write(&mut writer, position - previous);
        previous = position;
    }
    *out = writer.finish();
}

/// With the checks that the library's lists make: sums within 64 bits, positions below the width.
fn decode_golomb(code: GolombCode, bytes: &[u8], count: u64, width: u64, out: &mut Vec<u64>) {
    out.reserve(usize::try_from(count).expect("a list in memory"));
    let mut reader = BitReader::new(bytes);
    let mut previous = 0u64;
    for _ in 0..count {
        let gap = code.read(&mut reader).expect("own codes");
        previous = previous.checked_add(gap).filter(|&it| it < width).expect("own codes");
        out.push(previous);
    }
}

/// Positions whose gaps are geometric with this mean, by inversion of a fixed sequence.
fn positions(mean_gap: f64) -> Vec<u64> {
    let ln_q = -mean_gap.recip().ln_1p();
    let mut position = 0;
    let next = |index| {
        let uniform = (mix(index) as f64 + 0.5) / 2f64.powi(64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^40")]
        let gap = (uniform.ln() / ln_q).floor() as u64;
        position += gap;
        position
    };
    (0..GAP_COUNT).map(next).collect()
}
