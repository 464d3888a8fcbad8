//! What holds for every index: a column is the classic filter of its set, whatever stands beside it; damage is an error.
//! The slow twin of an answer asks a filter a set.

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_codec::{FrameKey, crc32c};
use umbel_filter::{Classic, Contains, HashFunction, Insert, ItemHash, ItemHasher};
use umbel_static::FileError;
use umbel_static::sliced::{
    COLUMN_STEP_MAX, ColumnSize, SLICED_HEADER_BYTES, SlicedError, SlicedFile, SlicedHead,
    SlicedShape, bits_per_item, build_sliced,
};

const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 7 }.hash(&number.to_le_bytes())
}

type Sets = Vec<(String, Vec<ItemHash>)>;

/// Sets of so many items each; item i of set s is 1,000,000 s + i.
fn sets(counts: &[u64]) -> Sets {
    let items = |set: u64, count: &u64| (0..*count).map(move |item| hash(1_000_000 * set + item));
    (0..).zip(counts).map(|(set, count)| (format!("s{set}"), items(set, count).collect())).collect()
}

fn built(shape: &SlicedShape, sets: Sets) -> SlicedFile<Vec<u8>> {
    SlicedFile::parse(build_sliced(shape, sets).unwrap()).unwrap()
}

/// The filter of a set, made alone.
fn twin(file: &SlicedFile<Vec<u8>>, set: usize, hashes: &[ItemHash]) -> Classic {
    let shape = file.filter(set).unwrap().unwrap().block_shape();
    let mut twin = Classic::with_shape(shape).unwrap();
    twin.insert_batch(hashes, &mut Vec::new()).unwrap();
    twin
}

#[test]
fn sizes_rise_by_a_half_and_a_third() {
    let bits: Vec<u64> =
        (0..=COLUMN_STEP_MAX).map(|step| ColumnSize::from_step(step).unwrap().bits()).collect();
    assert_eq!(bits[..7], [512, 1024, 1536, 2048, 3072, 4096, 6144]);
    assert_eq!(*bits.last().unwrap(), 1 << 40);
    assert!(bits.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(bits[1..].windows(2).all(|pair| 2 * pair[1] <= 3 * pair[0]));
    assert_eq!(ColumnSize::from_step(COLUMN_STEP_MAX + 1), None);
}

/// Also of blocks of 2^19 bits and of 3 · 2^17, two each.
#[test]
fn columns_of_several_blocks_are_classic_filters() {
    let shape = SlicedShape::new(KEY, 1, 0.3).unwrap();
    let counts = [370_000, 280_000, 10, 370_000, 0];
    let sets = sets(&counts);
    let file = built(&shape, sets.clone());
    let bits = file.head().sets().iter().map(|set| set.size.bits()).collect::<Vec<_>>();
    assert_eq!(bits, [1 << 20, 3 << 18, 512, 1 << 20, 512]);
    for (number, (_, hashes)) in sets.iter().enumerate() {
        let twin = twin(&file, number, hashes);
        assert!(file.filter(number).unwrap().unwrap() == twin, "set {number}");
        assert!(hashes.iter().step_by(1000).all(|hash| file.sets_with(*hash).contains(&number)));
    }
    assert_eq!(file.filter(5).unwrap(), None);
}

#[test]
fn other_sets_are_named_at_the_rate() {
    for (probe_count, rate) in [(1, 0.3), (2, 0.1), (3, 0.01), (8, 0.001)] {
        let shape = SlicedShape::new(KEY, probe_count, rate).unwrap();
        // As many as just fit into 2^16 bits.
        let count = (65_536.0 / bits_per_item(probe_count, rate)) as u64;
        let file = built(&shape, sets(&[count; 3]));
        assert_eq!(file.head().sets()[0].size.bits(), 1 << 16);
        let asked: Vec<ItemHash> = (100_000_000..100_200_000).map(hash).collect();
        for found in file.counts(&asked) {
            let (found, asked) = (f64::from(found), asked.len() as f64);
            let sigma = (asked * rate * (1.0 - rate)).sqrt();
            // The share of ones varies from filter to filter, too: by 0.2 %, and the rate by k times that.
            let slack = 5.0 * sigma + 0.01 * f64::from(probe_count) * asked * rate;
            assert!((found - asked * rate).abs() < slack, "k = {probe_count}: {found}");
        }
    }
}

#[test]
fn wrong_shapes_are_refused() {
    for probe_count in [0, 9] {
        let refused = SlicedShape::new(KEY, probe_count, 0.3);
        assert_eq!(refused, Err(SlicedError::Probes { probe_count }));
    }
    for rate in [0.0, 1.0, -1.0, f64::NAN] {
        let refused = SlicedShape::new(KEY, 1, rate);
        assert!(matches!(refused, Err(SlicedError::Rate { .. })), "{rate}");
    }
    let shape = SlicedShape::new(KEY, 1, 0.3).unwrap();
    let form_bytes = 4097;
    let refused = shape.clone().with_form("x".repeat(form_bytes));
    assert_eq!(refused, Err(SlicedError::Form { form_bytes }));
    let refused = shape.set(&"x".repeat(4097), 1);
    assert_eq!(refused, Err(SlicedError::Name { name_bytes: 4097 }));
    // 2^40 bits hold 2^40 / 2.80 items.
    assert!(shape.set("x", 392_168_000_000).is_ok());
    assert!(matches!(shape.set("x", 392_169_000_000), Err(SlicedError::Items { .. })));
    // The smallest of all rates has no number of bits.
    let shape = SlicedShape::new(KEY, 1, f64::MIN_POSITIVE).unwrap();
    assert!(matches!(shape.set("x", 1), Err(SlicedError::Items { .. })));
    assert!(shape.set("x", 0).is_ok());
}

/// No set at all, one, and several groups.
fn files() -> [Vec<u8>; 3] {
    let shape = SlicedShape::new(KEY, 2, 0.1).unwrap().with_form("lines").unwrap();
    let file = |counts: &[u64]| build_sliced(&shape, sets(counts)).unwrap();
    [file(&[]), file(&[3]), file(&[3, 200, 0, 200, 7, 9, 11])]
}

/// Gives a file whose head was changed the checksum that it should have.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let head_bytes = SlicedHead::bytes_needed(&bytes, bytes.len() as u64).unwrap_or(bytes.len());
    let checksum = crc32c(&[&bytes[..12], &bytes[16..head_bytes]]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn changed(bytes: &[u8], at: usize, to: &[u8]) -> FileError {
    let mut bytes = bytes.to_vec();
    bytes[at..at + to.len()].copy_from_slice(to);
    SlicedFile::parse(sealed(bytes)).unwrap_err()
}

#[test]
fn what_decodes_encodes_to_the_same_bytes() {
    for bytes in files() {
        let file = SlicedFile::parse(&bytes).unwrap();
        let head = file.head().to_bytes();
        assert_eq!(head, bytes[..head.len()]);
        let file_bytes = bytes.len() as u64;
        let needed = SlicedHead::bytes_needed(&bytes[..SLICED_HEADER_BYTES], file_bytes);
        assert_eq!(needed, Ok(head.len()));
        assert_eq!(file.head().file_bytes(), file_bytes);
        assert_eq!(file.head().shape().form(), "lines");
    }
}

#[test]
fn a_file_that_was_cut_anywhere_is_refused() {
    for bytes in files() {
        for length in 0..bytes.len() {
            let error = SlicedFile::parse(&bytes[..length]).unwrap_err();
            let FileError::Truncated { needed, available } = error else {
                panic!("{length} bytes: {error}");
            };
            assert!(available == length as u64 && needed > available);
        }
        let longer = [&bytes[..], &[0]].concat();
        let (expected, actual) = (bytes.len() as u64, longer.len() as u64);
        let error = SlicedFile::parse(&longer).unwrap_err();
        assert_eq!(error, FileError::Length { expected, actual });
    }
}

#[test]
fn a_file_with_one_flipped_bit_is_refused() {
    let [none, one, several] = files();
    for bytes in [none, one, several[..].to_vec()] {
        for bit in (0..bytes.len() * 8).step_by(if bytes.len() > 1000 { 7 } else { 1 }) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SlicedFile::parse(&bytes).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn absurd_fields_are_refused_by_name() {
    let [_, one, _] = files();
    assert_eq!(changed(&one, 4, &[2]), FileError::Version { actual: 2 });
    assert_eq!(changed(&one, 5, &[3]), FileError::HashFunction { actual: 3 });
    let magic = FileError::Magic { expected: *b"UMBX", actual: *b"UMBS" };
    assert_eq!(changed(&one, 3, b"S"), magic);
    let field = |at: usize, to: &[u8]| match changed(&one, at, to) {
        FileError::Field { field, .. } => field,
        FileError::Truncated { .. } => "truncated",
        other => panic!("{other}"),
    };
    assert_eq!(field(6, &[9]), "number of probes or rate");
    assert_eq!(field(7, &[1]), "blank");
    assert_eq!(field(10, &[1]), "blank");
    assert_eq!(field(24, &f64::NAN.to_le_bytes()), "number of probes or rate");
    assert_eq!(field(32, &[0, 0, 0, 0, 1]), "number of sets");
    assert_eq!(field(32, &[0]), "length of the directory");
    assert_eq!(field(40, &[255; 8]), "length");
    assert_eq!(field(48, &[0, 0, 0, 0, 0, 0, 0, 1]), "truncated");
    let row = SLICED_HEADER_BYTES + "lines".len();
    assert_eq!(field(row + 8, &[62]), "step of a set");
    assert_eq!(field(row + 8, &[1]), "length of the matrix");
    assert_eq!(field(row + 9, &[3]), "length of a name");
    assert_eq!(field(row + 11, &[255]), "offset of a text's first byte that is no UTF-8");
    let damaged = |at: usize| {
        let mut bytes = one.clone();
        bytes[at] ^= 1;
        SlicedFile::parse(bytes).unwrap_err()
    };
    assert!(matches!(damaged(one.len() - 1), FileError::PageChecksum { page: 0, .. }));
    assert!(matches!(damaged(row), FileError::HeadChecksum { .. }));
    let actual = FrameKey { key_id: 8, ..KEY };
    let file = SlicedFile::parse(&one).unwrap();
    assert_eq!(file.head().check_key(KEY), Ok(()));
    let refused = file.head().check_key(actual);
    assert_eq!(refused, Err(FileError::Key { expected: KEY, actual }));
}

/// As a file of 200 KB is read: by its head, and by the pages of the rows that are wanted.
#[test]
fn pages_answer_as_the_whole_does() {
    let shape = SlicedShape::new(KEY, 3, 0.01).unwrap();
    let file = built(&shape, sets(&[500; 200]));
    let (bytes, head) = (file.as_bytes(), file.head());
    assert_eq!(head.page_range(4), None);
    let mut question = head.question();
    for number in 0..50 {
        let rows = |range: std::ops::Range<u64>, take: &mut dyn FnMut(&[u8])| {
            let mut row = Vec::new();
            for page in range.start >> 16..=(range.end - 1) >> 16 {
                let place = head.page_range(page).unwrap();
                let bytes = &bytes[place.start as usize..place.end as usize];
                head.check_page(page, bytes)?;
                let within =
                    |at: u64| (at.clamp(page << 16, (page + 1) << 16) - (page << 16)) as usize;
                row.extend(&bytes[within(range.start)..within(range.end).min(bytes.len())]);
            }
            take(&row);
            Ok::<(), FileError>(())
        };
        head.ask(&mut question, hash(7_000_000 + number), rows).unwrap();
        assert_eq!(head.found(&question), file.sets_with(hash(7_000_000 + number)));
    }
    assert_eq!((question.asked(), head.counts(&question)[7]), (50, 50));
    let error = head.check_page(0, &bytes[head.head_bytes()..][1..]).unwrap_err();
    assert!(matches!(error, FileError::Length { .. } | FileError::PageChecksum { .. }), "{error}");
}

proptest! {
    /// The law: column j is the filter of set j, and neither another set nor the order of items changes it.
    #[test]
    fn a_column_is_its_set_s_alone(
        counts in vec(0u64..150, 0..80),
        more in 0u64..150,
        probe_count in 1u32..5,
        asked in 0u64..100,
    ) {
        let shape = SlicedShape::new(KEY, probe_count, 0.05).unwrap();
        let some = sets(&counts);
        let all = sets(&[&counts[..], &[more]].concat());
        let file = built(&shape, some.clone());
        let appended = built(&shape, all);
        let mut reversed = some.clone();
        reversed.iter_mut().for_each(|(_, hashes)| hashes.reverse());
        prop_assert!(build_sliced(&shape, reversed).unwrap() == file.as_bytes());
        let mut question = file.head().question();
        let asked: Vec<ItemHash> = (0..5).map(|set| hash(1_000_000 * set + asked)).collect();
        let mut expected = vec![0; some.len()];
        for hash in &asked {
            file.ask(&mut question, *hash);
            let mut found = Vec::new();
            for (number, (_, hashes)) in some.iter().enumerate() {
                let twin = twin(&file, number, hashes);
                let column = file.filter(number).unwrap().unwrap();
                prop_assert!(column == twin);
                prop_assert!(appended.filter(number).unwrap().unwrap() == twin);
                if twin.contains(*hash) {
                    found.push(number);
                    expected[number] += 1;
                }
            }
            prop_assert_eq!(file.head().found(&question), found);
        }
        prop_assert_eq!(file.counts(&asked), expected);
    }

    /// Whatever a head says, once its checksum holds: an error, or a file that can be asked.
    #[test]
    fn no_head_makes_a_panic(
        which in 0usize..3,
        changes in vec((0usize..150, any::<u8>()), 1..6),
        asked in any::<(u64, u64)>(),
    ) {
        let mut bytes = files()[which].clone();
        for (at, to) in changes {
            let at = at % bytes.len();
            bytes[at] = to;
        }
        let bytes = sealed(bytes);
        if let Ok(file) = SlicedFile::parse(&bytes) {
            prop_assert_eq!(&file.head().to_bytes()[..], &bytes[..file.head().head_bytes()]);
            let found = file.sets_with(ItemHash::new(asked.0, asked.1));
            prop_assert!(found.iter().all(|set| *set < file.head().sets().len()));
        }
    }

    #[test]
    fn no_bytes_make_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        let framed = [b"UMBX\x01\x01", &bytes[..]].concat();
        prop_assert!(SlicedFile::parse(&bytes).is_err());
        let _ = SlicedFile::parse(&framed);
    }
}
