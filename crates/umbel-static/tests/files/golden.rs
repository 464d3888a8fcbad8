//! Files that must stay readable, and be built, byte for byte, in every release.

use std::path::Path;

use umbel_codec::FrameKey;
use umbel_filter::{HashFunction, ItemHash, ItemHasher};
use umbel_static::sliced::{SlicedFile, SlicedShape, build_sliced};
use umbel_static::{StaticFile, build_exact, build_filter, build_map};

const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };

fn hash(number: u32) -> ItemHash {
    ItemHasher::Xxh3 { seed: 0 }.hash(number.to_string().as_bytes())
}

fn hashes(numbers: std::ops::Range<u32>) -> Vec<ItemHash> {
    numbers.map(hash).collect()
}

#[test]
fn files_are_those_of_the_first_release() {
    let pairs = (0..100).map(|number| (hash(number), u64::from(number * number))).collect();
    let files = [
        ("filter.umbs", build_filter(hashes(0..100), 8, KEY).unwrap()),
        ("map.umbs", build_map(pairs, 14, 5, KEY).unwrap()),
        ("exact.umbs", build_exact(hashes(0..20), hashes(20..2000), KEY).unwrap()),
        ("empty.umbs", build_filter(Vec::new(), 8, KEY).unwrap()),
    ];
    for (name, bytes) in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name}");
        StaticFile::parse(bytes).unwrap();
    }
}

#[test]
fn an_index_is_that_of_the_first_release() {
    let shape = SlicedShape::new(KEY, 3, 0.01).unwrap().with_form("lines").unwrap();
    let sets = [("one", 0..20), ("two", 10..100), ("three", 0..0), ("four", 30..31)];
    let sets = sets.map(|(name, numbers)| (name.to_owned(), hashes(numbers)));
    let bytes = build_sliced(&shape, sets).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/sliced.umbx");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(SlicedFile::parse(bytes).unwrap().sets_with(hash(30)), [1, 3]);
}
