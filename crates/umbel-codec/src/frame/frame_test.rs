//! Frames: identity, the golden frame of version 1, and everything that must be refused.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use umbel_filter::{HashRangeError, ItemHash, ItemHasher, ShapeError};

use super::*;
use umbel_bits::CodeError;
use umbel_filter::Insert;

/// The first frame ever written; releases must read and write it for ever. To look at it:
/// `xxd crates/umbel-codec/testdata/frames/v1/single_shot.bin`.
const GOLDEN: &[u8] = include_bytes!("../../testdata/frames/v1/single_shot.bin");

const GOLDEN_KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };

/// What the golden frame holds: the numbers 0 to 99 as decimal items, as far as they fall into the
/// second quarter of the hash space, at 1,600 positions over the whole of it.
fn golden_filter() -> SingleShot {
    let range = HashRange::new(1 << 62, 1 << 63).unwrap();
    let mut filter = SingleShot::new(SingleShotShape::new(range, 1_600).unwrap());
    let hasher = ItemHasher::Xxh3 { seed: GOLDEN_KEY.key_id };
    for item in 0..100 {
        let hash = hasher.hash(item.to_string().as_bytes());
        if range.contains(hash.hi()) {
            filter.insert(hash).unwrap();
        }
    }
    filter
}

fn filters() -> impl Strategy<Value = SingleShot> {
    let shape =
        (any::<u64>(), 0..64u32, 0..=60u32, 0..7u64).prop_map(|(start, shift, bits, odd)| {
            let end = u128::from(start) + u128::from(u64::MAX >> shift) + 1;
            let range = HashRange::new(start, end.min(1 << 64)).unwrap();
            SingleShotShape::new(range, ((1u64 << bits) + odd).min(1 << 60)).unwrap()
        });
    (shape, btree_set(any::<u64>(), 0..50)).prop_map(|(shape, picks)| {
        let mut filter = SingleShot::new(shape);
        for pick in picks {
            let offset = u64::try_from(u128::from(pick) % shape.range().width()).unwrap();
            filter.insert(ItemHash::new(shape.range().start() + offset, 0)).unwrap();
        }
        filter
    })
}

fn keys() -> impl Strategy<Value = FrameKey> {
    (1..=2u8, any::<u64>())
        .prop_map(|(id, key_id)| FrameKey { function: HashFunction::from_id(id).unwrap(), key_id })
}

/// The golden frame with other bytes at `at`, and a checksum that fits them.
fn forged(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = GOLDEN.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = crc32c(&[&frame[..CHECKED_HEADER_BYTES], &frame[FRAME_HEADER_BYTES..]]);
    frame[CHECKED_HEADER_BYTES..FRAME_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    frame
}

fn assert_refused(frame: &[u8], expected: FrameError) {
    assert_eq!(Frame::decode(frame), Err(expected));
}

#[test]
fn the_golden_frame_is_written() {
    assert_eq!(Frame::encode_single_shot(&golden_filter(), GOLDEN_KEY).as_deref(), Ok(GOLDEN));
}

#[test]
fn the_golden_frame_is_read() {
    let (frame, consumed_bytes) = Frame::decode(GOLDEN).unwrap();
    assert_eq!(consumed_bytes, GOLDEN.len());
    assert_eq!(frame.single_shot(), &golden_filter());
    assert_eq!(frame.key(), GOLDEN_KEY);
    assert_eq!(frame.encode().as_deref(), Ok(GOLDEN));
}

#[test]
fn every_flipped_bit_is_refused() {
    for bit in 0..8 * GOLDEN.len() {
        let mut frame = GOLDEN.to_vec();
        frame[bit / 8] ^= 1 << (bit % 8);
        assert!(Frame::decode(&frame).is_err(), "bit {bit}");
    }
}

#[test]
fn every_truncation_is_refused() {
    for available in 0..GOLDEN.len() {
        let needed = if available < FRAME_HEADER_BYTES { FRAME_HEADER_BYTES } else { GOLDEN.len() };
        assert_refused(&GOLDEN[..available], FrameError::Truncated { needed, available });
    }
}

#[test]
fn the_length_is_known_once_the_header_is_there() {
    for available in 0..=GOLDEN.len() {
        let expected = (available >= FRAME_HEADER_BYTES).then_some(GOLDEN.len());
        assert_eq!(Frame::total_bytes(&GOLDEN[..available]), Ok(expected));
    }
    let actual = *b"UMX\0";
    let error = FrameError::Magic { expected: FRAME_MAGIC, actual };
    assert_eq!(Frame::total_bytes(b"UMX"), Err(error));
}

#[test]
fn foreign_headers_are_named() {
    assert_refused(
        &forged(0, b"PK"),
        FrameError::Magic { expected: FRAME_MAGIC, actual: *b"PKBL" },
    );
    assert_refused(&forged(4, &[2]), FrameError::Version { expected: 1, actual: 2 });
    assert_refused(&forged(5, &[9]), FrameError::Kind { expected: 1, actual: 9 });
    assert_refused(&forged(6, &[0]), FrameError::Encoding { expected: 1, actual: 0 });
    assert_refused(&forged(7, &[3]), FrameError::HashFunction { actual: 3 });
    let error = FrameError::Code(CodeError::LowBits { low_bits: 64 });
    assert_refused(&forged(48, &64u32.to_le_bytes()), error);
}

#[test]
fn headers_beyond_the_limits_are_named() {
    // The range's last hash below its start.
    let empty = HashRangeError::Empty { start: 1 << 62, end: 1 };
    assert_refused(&forged(24, &0u64.to_le_bytes()), FrameError::Range(empty));
    let none = ShapeError::PositionCount { position_count: 0 };
    assert_refused(&forged(32, &0u64.to_le_bytes()), FrameError::Shape(none));
    // A quarter of 1,600 positions lies in the range.
    let error = FrameError::TooManyPositions { count: 401, count_max: 400 };
    assert_refused(&forged(40, &401u64.to_le_bytes()), error);
    let payload_bytes = u32::try_from(FRAME_PAYLOAD_BYTES_MAX).unwrap() + 1;
    let error = FrameError::PayloadTooLarge { payload_bytes: payload_bytes.into() };
    assert_refused(&forged(52, &payload_bytes.to_le_bytes()), error);
}

/// With a valid checksum the payload still has to be what the header says.
#[test]
fn payloads_that_contradict_their_header_are_named() {
    let filter = golden_filter();
    for count in [0, filter.len() - 1, filter.len() + 1, 399] {
        let outcome = Frame::decode(&forged(40, &count.to_le_bytes()));
        assert!(matches!(outcome, Err(FrameError::Code(_))), "{count}: {outcome:?}");
    }
    // A range that ends before the last position.
    let last = filter.shape().range().last() - (1 << 60);
    let outcome = Frame::decode(&forged(24, &last.to_le_bytes()));
    assert!(matches!(outcome, Err(FrameError::Code(CodeError::BeyondEnd { .. }))), "{outcome:?}");
}

#[test]
fn another_key_is_refused() {
    let (frame, _) = Frame::decode(GOLDEN).unwrap();
    for expected in [
        FrameKey { key_id: 8, ..GOLDEN_KEY },
        FrameKey { function: HashFunction::SipHash13Keyed, ..GOLDEN_KEY },
    ] {
        let error = KeyMismatch { expected, actual: GOLDEN_KEY };
        assert_eq!(frame.clone().into_single_shot(expected), Err(error));
    }
    assert_eq!(frame.into_single_shot(GOLDEN_KEY), Ok(golden_filter()));
}

#[test]
fn a_filter_with_too_many_positions_is_not_written() {
    let count = FRAME_POSITION_COUNT_MAX + 1;
    let shape = SingleShotShape::new(HashRange::WHOLE, count).unwrap();
    let error = FrameError::TooManyPositions { count, count_max: count - 1 };
    assert_eq!(check_count(count, shape), Err(error));
    assert_eq!(check_count(count - 1, shape), Ok(()));
}

#[test]
fn full_and_empty_filters_survive() {
    for count in [0, 1, 16] {
        let shape = SingleShotShape::new(HashRange::WHOLE, 16).unwrap();
        let filter = SingleShot::from_positions(shape, (0..count).collect()).unwrap();
        let bytes = Frame::encode_single_shot(&filter, GOLDEN_KEY).unwrap();
        assert_eq!(Frame::decode(&bytes).unwrap().0.single_shot(), &filter);
    }
}

#[test]
fn errors_name_their_numbers() {
    let error = FrameError::Truncated { needed: 60, available: 3 };
    assert_eq!(error.to_string(), "frame ends too early: 60 bytes needed, 3 available");
    let expected = FrameKey { function: HashFunction::SipHash13Keyed, key_id: 1 };
    assert_eq!(
        KeyMismatch { expected, actual: GOLDEN_KEY }.to_string(),
        "frame is hashed by xxh3-128 under key 0x7, expected siphash-1-3-128 under key 0x1"
    );
}

proptest! {
    #[test]
    fn decoding_inverts_encoding(
        filter in filters(), key in keys(), after in vec(any::<u8>(), 0..9),
    ) {
        let bytes = Frame::encode_single_shot(&filter, key).unwrap();
        let (frame, consumed_bytes) = Frame::decode(&[bytes.clone(), after].concat()).unwrap();
        prop_assert_eq!(consumed_bytes, bytes.len());
        prop_assert_eq!(Frame::total_bytes(&bytes), Ok(Some(bytes.len())));
        prop_assert_eq!(frame.encode(), Ok(bytes));
        prop_assert_eq!(frame.into_single_shot(key), Ok(filter));
    }

    /// Any header fields and payload under a right checksum: what is accepted encodes to the same.
    #[test]
    fn encoding_inverts_decoding(at in 5..56usize, patch in vec(any::<u8>(), 1..12)) {
        let patch = &patch[..patch.len().min(GOLDEN.len() - at)];
        let bytes = forged(at, patch);
        if let Ok((frame, consumed_bytes)) = Frame::decode(&bytes) {
            let again = frame.encode();
            prop_assert_eq!(again.as_deref(), Ok(&bytes[..consumed_bytes]));
        }
    }

    #[test]
    fn any_bytes_are_refused_without_panic(bytes in vec(any::<u8>(), 0..200)) {
        let behind_magic = [FRAME_MAGIC.as_slice(), &[1, 1, 1, 1], &bytes].concat();
        prop_assert!(Frame::decode(&bytes).is_err());
        prop_assert!(Frame::decode(&behind_magic).is_err());
    }
}
