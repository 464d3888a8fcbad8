//! The inputs that each corpus begins with, and a test that holds the files to them.
//!
//! `UMBEL_WRITE_SEEDS=1 cargo test --manifest-path fuzz/Cargo.toml` writes the files anew.

use std::iter::Copied;
use std::num::NonZeroU64;
use std::slice::Iter;

use crate::exchange::recorded;
use crate::{saved, sessions, sketches, sliced_files, static_files};
use umbel_bits::{AnsGapCode, BitWriter, GolombCode, RiceCode, encode_indexes, encode_positions};
use umbel_codec::{FrameKey, frames};
use umbel_filter::{HashFunction, HashRange, SingleShot, SingleShotShape};
use umbel_reconcile_engine::SymbolKind;

/// One seed: the target, the name of the file behind `seed-`, the bytes.
pub type Seed = (&'static str, &'static str, Vec<u8>);

/// The golden frames: one a kind and an encoding.
macro_rules! golden_frames {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!(
            "../../crates/umbel-codec/testdata/frames/v1/", $name, ".bin"
        )).as_slice())),*]
    };
}

const GOLDEN_FRAMES: [(&str, &[u8]); 23] = golden_frames![
    "aging",
    "blocked_ans_gaps",
    "blocked_ans_holes",
    "blocked_gaps",
    "blocked_holes",
    "blocked_probes",
    "blocked_raw",
    "classic",
    "counting_gaps",
    "counting_raw",
    "cuckoo",
    "partitioned",
    "quotient",
    "redisbloom_link",
    "scalable_ans_level",
    "scalable_level",
    "single_shot",
    "single_shot_ans",
    "single_shot_ans_part",
    "single_shot_part",
    "stable_gaps",
    "stable_raw",
    "window",
];

/// Files of Redis, and one by hand with filters of RedisBloom's.
const REDIS_FILES: [(&str, &[u8]); 3] = [
    ("every-type", include_bytes!("../../crates/umbel-rdb/testdata/redis-7.0-lfu.rdb")),
    ("idle-time", include_bytes!("../../crates/umbel-rdb/testdata/redis-7.0-lru.rdb")),
    ("filters", include_bytes!("../../crates/umbel-rdb/testdata/redisbloom.rdb")),
];

/// Every seed of every target.
#[must_use]
pub fn all() -> Vec<Seed> {
    let sparse: Vec<u64> = (0..20).map(|at| at * at * 37).collect();
    let huge = [3, 1 << 40, (1 << 62) + 5, u64::MAX - 1];
    let golden = GOLDEN_FRAMES.map(|(name, bytes)| ("frame_decode", name, bytes.to_vec()));
    let made = vec![
        ("frame_decode", "empty", frame(1 << 20, HashFunction::Xxh3Seeded, vec![])),
        ("frame_decode", "full", frame(16, HashFunction::Xxh3Seeded, (0..16).collect())),
        ("frame_decode", "sparse", frame(1 << 14, HashFunction::SipHash13Keyed, sparse.clone())),
        ("rice_decode", "positions", rice(5, &sparse, encode_positions)),
        ("rice_decode", "indexes", rice(5, &sparse, encode_indexes)),
        ("rice_decode", "escaped", rice(2, &huge, encode_indexes)),
        ("rice_decode", "wide", rice(60, &huge, encode_positions)),
        ("ans_decode", "positions", ans(5, 192, &sparse, AnsGapCode::encode_positions)),
        ("ans_decode", "indexes", ans(5, 240, &sparse, AnsGapCode::encode_indexes)),
        ("ans_decode", "escaped", ans(0, 128, &sparse, AnsGapCode::encode_indexes)),
        ("ans_decode", "wide", ans(60, 200, &huge, AnsGapCode::encode_positions)),
        ("ans_decode", "empty", ans(0, 128, &[], AnsGapCode::encode_positions)),
        ("golomb_decode", "five", golomb(5, &[0, 2, 3, 4, 7, 159, 160])),
        ("golomb_decode", "unary", golomb(1, &[0, 1, 31, 32])),
        ("golomb_decode", "huge", golomb(u64::MAX, &huge)),
        // Plans by number: 210 has mode Filter, level Fingerprint and 6 refinement bits.
        ("exchange_frames", "wide", recorded(0)),
        ("exchange_frames", "refined", recorded(210)),
        ("exchange_frames", "one-pass-places", recorded(16 + 8)),
        ("exchange_frames", "bytes", recorded(1 + 8 + 16)),
        ("exchange_frames", "approximate", recorded(2)),
    ];
    let sketches = sketches::decode_seeds().into_iter();
    let sketches = sketches.map(|(name, bytes)| ("sketch_decode", name, bytes));
    let files =
        [("hashed", SymbolKind::Hashed), ("ids", SymbolKind::Id64), ("keyed", SymbolKind::Keyed)];
    let files = files.into_iter().zip(0u8..).map(|((name, kind), number)| {
        let bytes = sketches::file(kind, 3..25, 140);
        ("sketch_file", name, [vec![number, 50], bytes].concat())
    });
    // Choices by number: see the bits in `sessions`.
    let sessions = [
        ("sets-initiator-hashed", 0b0011_0000),
        ("sets-responder-ids", 0b0011_0101),
        ("sets-initiator-keyed-coded", 0b1100_1000),
        ("sets-responder-hashed-plan", 0b1001_0001),
        ("bits-initiator-mirror", 0b0000_0110),
        ("bits-responder-union", 0b0000_1011),
        ("bits-initiator-union-search", 0b0001_1010),
        ("bits-responder-many", 0b0011_1011),
    ];
    let sessions = sessions
        .into_iter()
        .map(|(name, choice)| ("session_frames", name, sessions::recorded(choice)));
    let saved = saved::seeds().into_iter().map(|(name, bytes)| ("saved_filter", name, bytes));
    let statics =
        static_files::seeds().into_iter().map(|(name, bytes)| ("static_file", name, bytes));
    let sliced =
        sliced_files::seeds().into_iter().map(|(name, bytes)| ("sliced_file", name, bytes));
    let commands = [
        ("pipeline", "BF.ADD k a\r\n*3\r\n$9\r\nBF.EXISTS\r\n$1\r\nk\r\n$1\r\na\r\nPING\r\n"),
        (
            "options",
            "BF.RESERVE k 0.01 100 EXPANSION 2\r\nBF.INSERT k CAP 7 ERR .1 NOC ITEMS a \"b\\x00\"\r\n",
        ),
        (
            "hello",
            "HELLO 3 AUTH a b SETNAME c\r\nCLIENT SETINFO LIB-NAME x\r\nCOMMAND DOCS bf.add\r\n",
        ),
        (
            "named",
            "UMBEL.REQUEST 7:1 BELOW 1 BF.MADD k a b\r\nUMBEL.CREATE k LIKE o\r\nSCAN 0 MATCH [^a]*\r\n",
        ),
    ];
    let commands = commands
        .map(|(name, text)| ("resp_commands", name, [&[1, 3][..], text.as_bytes()].concat()));
    let databases = REDIS_FILES.map(|(name, bytes)| ("rdb_file", name, bytes.to_vec()));
    golden
        .into_iter()
        .chain(commands)
        .chain(databases)
        .chain(made)
        .chain(saved)
        .chain(statics)
        .chain(sliced)
        .chain(sketches)
        .chain(files)
        .chain(sessions)
        .collect()
}

fn frame(position_count: u64, function: HashFunction, positions: Vec<u64>) -> Vec<u8> {
    let shape = SingleShotShape::new(HashRange::WHOLE, position_count).expect("within limits");
    let filter = SingleShot::from_positions(shape, positions).expect("sorted, below the width");
    let mut frames = frames(&filter, FrameKey { function, key_id: 7 }, 1 << 20);
    frames.next().expect("one frame at least").expect("small")
}

fn rice<'a, F>(low_bits: u8, list: &'a [u64], encode: F) -> Vec<u8>
where
    F: FnOnce(RiceCode, Copied<Iter<'a, u64>>, &mut BitWriter),
{
    let count = u16::try_from(list.len()).expect("short");
    let mut input = vec![low_bits];
    input.extend(count.to_le_bytes());
    input.extend(u64::MAX.to_le_bytes());
    let mut writer = BitWriter::with_buffer(input);
    let code = RiceCode::new(low_bits.into()).expect("at most 63");
    encode(code, list.iter().copied(), &mut writer);
    writer.finish()
}

fn ans<'a, F>(low_bits: u8, ratio: u8, list: &'a [u64], encode: F) -> Vec<u8>
where
    F: FnOnce(AnsGapCode, Copied<Iter<'a, u64>>, &mut Vec<u8>),
{
    let count = u16::try_from(list.len()).expect("short");
    let mut input = vec![low_bits, ratio];
    input.extend(count.to_le_bytes());
    input.extend(u64::MAX.to_le_bytes());
    let code = AnsGapCode::new(low_bits.into(), ratio).expect("within limits");
    encode(code, list.iter().copied(), &mut input);
    input
}

fn golomb(modulus: u64, values: &[u64]) -> Vec<u8> {
    let code = GolombCode::new(NonZeroU64::new(modulus).expect("not 0"));
    let mut writer = BitWriter::with_buffer(modulus.to_le_bytes().to_vec());
    values.iter().for_each(|&value| code.write(&mut writer, value));
    writer.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_files_are_the_seeds() {
        let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for (target, name, bytes) in super::all() {
            let folder = corpora.join(target);
            let file = folder.join(format!("seed-{name}"));
            if std::env::var_os("UMBEL_WRITE_SEEDS").is_some() {
                fs::create_dir_all(&folder).unwrap();
                fs::write(&file, &bytes).unwrap();
            }
            assert_eq!(fs::read(&file).unwrap(), bytes, "{}", file.display());
        }
    }
}
