//! The frames of version 1, one file a kind and an encoding: releases must read and write them for
//! ever. To look at one: `xxd crates/umbel-codec/testdata/frames/v1/blocked_gaps.bin`.
//!
//! `UMBEL_WRITE_FRAMES=1 cargo test -p umbel-codec golden` writes the files that do not exist yet; it
//! never changes one.

use std::fs;
use std::path::{Path, PathBuf};

use umbel_codec::{Encoding, frames};
use umbel_filter::{
    AGING_BLOCK_BITS, Aging, AnyFilter, BlockShape, Blocked, Describe, HashRange, Insert, ItemHash,
    ItemHasher, Kind, RedisBloom, RedisBloomShape, Scalable, SingleShotShape, SparseBlocked,
    StablePace, StoredSingleShot,
};

use crate::filters::{KEY, MEMORY, array, emptied, one_count, view};

/// The second quarter of the hash space.
fn quarter() -> HashRange {
    HashRange::new(1 << 62, 1 << 63).unwrap()
}

/// The numbers from 0 on as decimal items, as far as they fall into the range.
fn numbers(range: HashRange, end: u32) -> Vec<ItemHash> {
    let hasher = ItemHasher::Xxh3 { seed: KEY.key_id };
    let hashes = (0..end).map(|item| hasher.hash(item.to_string().as_bytes()));
    hashes.filter(|hash| range.contains(hash.hi())).collect()
}

fn with_numbers(mut filter: AnyFilter, end: u32) -> AnyFilter {
    for hash in numbers(filter.shape().range(), end) {
        filter.insert(hash).unwrap();
    }
    filter
}

fn blocks(kind: Kind, range: HashRange, block_count: u64, block_bits: u32, k: u32) -> AnyFilter {
    array(BlockShape::new(kind, range, block_count, block_bits, k).unwrap())
}

/// The same at another pace. One of 50 was that of a quarter of the space, when a pace was that of a
/// range: its generations took more than they do now.
fn at_pace(filter: &AnyFilter, pace: u64) -> AnyFilter {
    let AnyFilter::Aging(filter) = filter else { panic!("another kind") };
    let mut other = Aging::with_shape(filter.block_shape().with_pace(pace).unwrap()).unwrap();
    let (words, counts) = other.parts_mut();
    words.copy_from_slice(filter.words());
    *counts = filter.counts();
    other.into()
}

/// Every file that is written: the filter, the number of the frame, the most bytes of payload, how it is written.
fn files() -> Vec<(&'static str, AnyFilter, usize, usize, Encoding)> {
    let blocked = |block_count| blocks(Kind::Blocked, quarter(), block_count, 512, 6);
    let single_shot = SingleShotShape::new(quarter(), 1_600).unwrap();
    let single_shot = with_numbers(StoredSingleShot::new(single_shot).into(), 100);
    let scalable = Scalable::new(quarter(), 40, 0.01).unwrap();
    let classic = blocks(Kind::Classic, quarter(), 8, 1_024, 7);
    let partitioned = blocks(Kind::Partitioned, quarter(), 8, 1_024, 7);
    let counting = |block_count| blocks(Kind::Counting, quarter(), block_count, 512, 6);
    let window = blocks(Kind::Window, quarter(), 4, 512, 13);
    let cuckoo = blocks(Kind::Cuckoo, quarter(), 4, 512, 13);
    let quotient = blocks(Kind::Quotient, quarter(), 4, 256, 13);
    let aging = BlockShape::new(Kind::Aging, quarter(), 16, AGING_BLOCK_BITS, 7).unwrap();
    let aging = with_numbers(array(aging.with_pace(200).unwrap()), 300);
    let stable = |block_count| {
        let pace = StablePace { lowered_cells: 90, cell_max: 15 }.number();
        let shape = BlockShape::new(Kind::Stable, quarter(), block_count, 512, 6).unwrap();
        array(shape.with_pace(pace).unwrap())
    };
    // Lists long enough for ANS: gaps of mean 8.
    let dense = SingleShotShape::new(quarter(), 52_900).unwrap();
    let dense = with_numbers(StoredSingleShot::new(dense).into(), 6_000);
    let chain = RedisBloomShape::for_rate(100, 0.01).unwrap();
    let chain = RedisBloom::with_shape(chain).unwrap();
    let sparse = Scalable::new(HashRange::WHOLE, 1_600, 0.01).unwrap();
    let large = 1 << 20;
    vec![
        ("single_shot", single_shot.clone(), 0, large, Encoding::Gaps),
        ("single_shot_part", single_shot, 1, 16, Encoding::Part),
        ("blocked_gaps", with_numbers(blocked(64), 100), 0, large, Encoding::Gaps),
        ("blocked_holes", with_numbers(blocked(9), 2_500), 0, large, Encoding::Holes),
        ("blocked_raw", with_numbers(blocked(9), 800), 0, large, Encoding::Raw),
        ("classic", with_numbers(classic, 200), 0, large, Encoding::Gaps),
        ("partitioned", with_numbers(partitioned, 200), 0, large, Encoding::Gaps),
        ("counting_gaps", with_numbers(counting(9), 400), 0, large, Encoding::Gaps),
        ("counting_raw", with_numbers(counting(4), 3_000), 0, large, Encoding::Raw),
        ("window", with_numbers(window, 300), 0, large, Encoding::Raw),
        ("cuckoo", with_numbers(cuckoo, 300), 0, large, Encoding::Raw),
        ("quotient", with_numbers(quotient, 200), 0, large, Encoding::Raw),
        ("aging", at_pace(&aging, 50), 0, large, Encoding::Gaps),
        ("aging_share", aging, 0, large, Encoding::Gaps),
        ("stable_gaps", with_numbers(stable(64), 100), 0, large, Encoding::Gaps),
        ("stable_raw", with_numbers(stable(9), 3_000), 0, large, Encoding::Raw),
        ("scalable_share_level", with_numbers(scalable.into(), 60), 1, large, Encoding::Gaps),
        ("single_shot_ans", dense.clone(), 0, large, Encoding::AnsGaps),
        ("single_shot_ans_part", dense, 1, 400, Encoding::AnsPart),
        ("blocked_ans_gaps", with_numbers(blocked(64), 650), 0, large, Encoding::AnsGaps),
        ("blocked_ans_holes", with_numbers(blocked(64), 11_900), 0, large, Encoding::AnsHoles),
        ("redisbloom_link", with_numbers(chain.into(), 150), 1, large, Encoding::Gaps),
        ("scalable_whole_ans_level", with_numbers(sparse.into(), 800), 0, large, Encoding::AnsGaps),
    ]
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/frames/v1/{name}.bin"))
}

fn assert_is_file(name: &str, frame: &[u8]) {
    let file = file(name);
    if std::env::var_os("UMBEL_WRITE_FRAMES").is_some() && !file.exists() {
        fs::write(&file, frame).unwrap();
    }
    assert_eq!(fs::read(&file).unwrap(), frame, "{}", file.display());
}

#[test]
fn golden_frames_are_written_and_read() {
    for (name, filter, index, payload_bytes_max, encoding) in files() {
        let frame = frames(&filter, KEY, payload_bytes_max).nth(index).unwrap().unwrap();
        assert_is_file(name, &frame);
        let view = view(&frame);
        assert_eq!((view.kind(), view.encoding(), view.key()), (filter.kind(), encoding, KEY));
        assert_eq!(view.encode(MEMORY).as_ref(), Ok(&frame), "{name}");
        let part = view.to_filter(KEY, MEMORY).unwrap();
        match filter {
            AnyFilter::Scalable(filter) => {
                assert_eq!(part, filter.levels()[index].filter().clone().into());
            }
            AnyFilter::RedisBloom(filter) => {
                let AnyFilter::Classic(lines) = part else { panic!("{name}: lines") };
                assert_eq!(lines.words(), filter.links()[index].words());
            }
            _ if matches!(encoding, Encoding::Part | Encoding::AnsPart) => {
                assert_ne!(view.range(), filter.shape().range());
                let mut merged = filter.clone();
                assert_eq!(view.merge_into(&mut merged, KEY), Ok(0));
                assert_eq!(merged, filter);
            }
            _ => {
                assert_eq!(part, filter, "{name}");
                let mut merged = emptied(&filter);
                let one_count = one_count(&filter);
                assert_eq!(view.merge_into(&mut merged, KEY), Ok(one_count));
                assert_eq!(merged, filter, "{name}");
            }
        }
    }
}

#[test]
fn golden_probes_are_written_and_read() {
    let shape = BlockShape::new(Kind::Blocked, quarter(), 64, 512, 6).unwrap();
    let batch = SparseBlocked::from_hashes(shape, &numbers(quarter(), 100)).unwrap();
    let frame = frames(&batch, KEY, 1 << 20).next().unwrap().unwrap();
    assert_is_file("blocked_probes", &frame);
    assert_eq!(view(&frame).encoding(), Encoding::Probes);
    let filter = with_numbers(array(shape), 100);
    assert_eq!(view(&frame).to_filter(KEY, MEMORY), Ok(filter));
}

/// Levels of a quarter of the space, from when a shape named the items of the range alone. Their number of blocks
/// is not what such a shape has now, so no filter takes them; but what they hold is read.
#[test]
fn golden_levels_of_former_shapes_are_read() {
    for (name, level, first_capacity, end, before) in
        [("scalable_level", 1, 10, 60, 10), ("scalable_ans_level", 0, 400, 600, 0)]
    {
        let frame = fs::read(file(name)).unwrap();
        let view = view(&frame);
        let level_head = view.level().unwrap();
        assert_eq!(
            (level_head.level, level_head.first_capacity),
            (level, first_capacity),
            "{name}"
        );
        assert_eq!(view.encode(MEMORY).as_ref(), Ok(&frame), "{name}");
        let AnyFilter::Blocked(part) = view.to_filter(KEY, MEMORY).unwrap() else { panic!() };
        let mut expected = Blocked::with_shape(part.block_shape()).unwrap();
        for &hash in &numbers(quarter(), end)[before..] {
            expected.insert(hash).unwrap();
        }
        assert_eq!(part, expected, "{name}");
    }
}
