//! Files that were cut, damaged, made up or written by others: each is an error that says what is wrong.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_codec::{FrameKey, crc32c};
use umbel_filter::{HashFunction, ItemHash, ItemHasher};
use umbel_static::{
    FileError, Head, STATIC_HEADER_BYTES, StaticFile, StaticShape, build_exact, build_filter,
    build_map,
};

const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes())
}

/// One file of each role, and one that is empty.
fn files() -> [Vec<u8>; 4] {
    let hashes = |numbers: std::ops::Range<u64>| numbers.map(hash).collect::<Vec<_>>();
    [
        build_filter(hashes(0..40), 9, KEY).unwrap(),
        build_map((0..40).map(|number| (hash(number), number)).collect(), 6, 3, KEY).unwrap(),
        build_exact(hashes(0..10), hashes(10..200), KEY).unwrap(),
        build_filter(Vec::new(), 8, KEY).unwrap(),
    ]
}

/// Gives a file whose head was changed the checksum that it should have.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let head_bytes = Head::bytes_needed(&bytes).unwrap().min(bytes.len());
    let checksum = crc32c(&[&bytes[..12], &bytes[16..head_bytes]]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn changed(mut bytes: Vec<u8>, at: usize, to: &[u8]) -> FileError {
    bytes[at..at + to.len()].copy_from_slice(to);
    StaticFile::parse(sealed(bytes)).unwrap_err()
}

#[test]
fn what_decodes_encodes_to_the_same_bytes() {
    for bytes in files() {
        let file = StaticFile::parse(&bytes).unwrap();
        let head = file.head().to_bytes();
        assert_eq!(head, bytes[..head.len()]);
        assert_eq!(Head::bytes_needed(&bytes[..STATIC_HEADER_BYTES]), Ok(head.len()));
        assert_eq!(file.as_bytes(), bytes);
    }
}

#[test]
fn a_file_that_was_cut_anywhere_is_refused() {
    for bytes in files() {
        for length in 0..bytes.len() {
            let error = StaticFile::parse(&bytes[..length]).unwrap_err();
            let FileError::Truncated { needed, available } = error else {
                panic!("{length} bytes: {error}");
            };
            assert!(available == length as u64 && needed > available);
        }
        let longer = [&bytes[..], &[0]].concat();
        let (expected, actual) = (bytes.len() as u64, longer.len() as u64);
        let error = StaticFile::parse(&longer).unwrap_err();
        assert_eq!(error, FileError::Length { expected, actual });
    }
}

#[test]
fn a_file_with_one_flipped_bit_is_refused() {
    for bytes in files() {
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(StaticFile::parse(&bytes).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn what_newer_releases_write_is_named() {
    let [filter, ..] = files();
    assert_eq!(changed_unsealed(&filter, 4, &[2]), FileError::Version { actual: 2 });
    assert_eq!(changed_unsealed(&filter, 5, &[4]), FileError::Role { actual: 4 });
    assert_eq!(changed_unsealed(&filter, 8, &[3]), FileError::HashFunction { actual: 3 });
    let mut other = filter;
    other[..4].copy_from_slice(b"UMBF");
    let error = StaticFile::parse(&other).unwrap_err().to_string();
    let said =
        "not a static file: begins with `UMBF` (a saved filter), expected `UMBS` (a static file)";
    assert_eq!(error, said);
}

#[test]
fn absurd_fields_are_refused_before_anything_is_allocated() {
    let [filter, map, exact, _] = files();
    let field = |error: FileError| match error {
        FileError::Field { field, .. } => field,
        other => panic!("{other}"),
    };
    let row = STATIC_HEADER_BYTES;
    assert_eq!(field(changed_unsealed(&filter, 9, &[13])), "number of chunk bits");
    assert_eq!(field(changed_unsealed(&filter, 10, &[255, 255])), "length of the text");
    for (bytes, bits) in [(&filter, [1, 8]), (&filter, [0, 57]), (&map, [50, 7]), (&exact, [2, 4])]
    {
        assert_eq!(field(changed(bytes.clone(), 6, &bits)), "number of bits");
    }
    assert_eq!(field(changed(filter.clone(), row, &[0; 8])), "offset of a chunk");
    assert_eq!(field(changed(filter.clone(), 56, &[255; 8])), "length of the file");
    assert_eq!(field(changed(filter.clone(), 24, &[41])), "number of keys");
    assert_eq!(field(changed(filter.clone(), 32, &[1])), "number of keys");
    assert_eq!(field(changed(filter.clone(), row + 16, &[255; 4])), "number of segments");
    assert_eq!(field(changed(filter.clone(), row + 12, &[255; 4])), "number of keys of a table");
    assert_eq!(field(changed(filter.clone(), row + 23, &[1])), "number of keys of a table");
    // A second table of a filter.
    let table = [1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 2, 0];
    assert_eq!(field(changed(filter, row + 24, &table)), "number of keys of a table");
}

/// Fields that are looked at before the checksum, because they say how far it reaches.
fn changed_unsealed(bytes: &[u8], at: usize, to: &[u8]) -> FileError {
    let mut bytes = bytes.to_vec();
    bytes[at..at + to.len()].copy_from_slice(to);
    StaticFile::parse(bytes).unwrap_err()
}

#[test]
fn a_text_that_is_no_utf8_is_refused() {
    let shape = StaticShape::filter(8, KEY).unwrap().with_form("äöü").unwrap();
    let chunk = shape.filter_chunk(&[], 0).unwrap();
    let mut head = umbel_static::HeadBuilder::new(shape, 0);
    head.push(&chunk);
    let bytes = head.finish().to_bytes();
    assert_eq!(StaticFile::parse(&bytes).unwrap().head().shape().form(), "äöü");
    let field = "offset of the text's first byte that is no UTF-8";
    assert_eq!(changed(bytes, 64 + 3, b"x"), FileError::Field { field, actual: 2 });
}

#[test]
fn another_key_is_named() {
    let [filter, ..] = files();
    let file = StaticFile::parse(&filter).unwrap();
    assert_eq!(file.head().check_key(KEY), Ok(()));
    let actual = FrameKey { key_id: 8, ..KEY };
    let error = file.head().check_key(actual).unwrap_err();
    assert_eq!(error, FileError::Key { expected: KEY, actual });
    let said = "built by xxh3-128 under seed or key 0x7, asked by xxh3-128 under 0x8";
    assert_eq!(error.to_string(), said);
}

#[test]
fn a_chunk_is_checked_by_itself() {
    let [filter, ..] = files();
    let head = Head::parse(&filter, filter.len() as u64).unwrap();
    assert_eq!(head.chunk_range(0), Some(head.head_bytes() as u64..filter.len() as u64));
    let cells = &filter[head.head_bytes()..];
    assert!(head.chunk(0, cells).unwrap().contains(hash(3)));
    let mut damaged = cells.to_vec();
    damaged[5] ^= 1;
    let error = head.chunk(0, &damaged).unwrap_err();
    assert!(matches!(error, FileError::ChunkChecksum { chunk: 0, .. }), "{error}");
    assert!(matches!(head.chunk(0, &cells[1..]), Err(FileError::Truncated { .. })));
    assert!(matches!(head.chunk(1, cells), Err(FileError::Field { .. })));
    assert_eq!(head.chunk_range(1), None);
}

proptest! {
    /// Whatever a head says, once its checksum holds: an error, or a file that can be asked.
    #[test]
    fn no_head_makes_a_panic(
        which in 0usize..4,
        changes in vec((0usize..STATIC_HEADER_BYTES + 36, any::<u8>()), 1..6),
        asked in any::<(u64, u64)>(),
    ) {
        let mut bytes = files()[which].clone();
        for (at, to) in changes {
            bytes[at] = to;
        }
        if Head::bytes_needed(&bytes).is_ok() {
            let bytes = sealed(bytes);
            if let Ok(file) = StaticFile::parse(&bytes) {
                prop_assert_eq!(&file.head().to_bytes()[..], &bytes[..file.head().head_bytes()]);
                let hash = ItemHash::new(asked.0, asked.1);
                prop_assert_eq!(file.contains(hash), file.value(hash).is_some());
            }
        }
    }

    #[test]
    fn no_bytes_make_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        let framed = [b"UMBS\x01", &bytes[..]].concat();
        prop_assert!(StaticFile::parse(&bytes).is_err());
        let _ = StaticFile::parse(&framed);
    }
}
