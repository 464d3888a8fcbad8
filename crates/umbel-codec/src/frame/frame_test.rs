//! Single frames: what must be refused, and every encoding with codes that nobody would choose.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_bits::{AnsGapCode, CodeError, RiceCode};
use umbel_filter::sizing::SizingError;
use umbel_filter::{
    BlockProbe, BlockShape, Blocked, Classic, Counting, HashRange, HashRangeError, Insert,
    ItemHash, Kind, LINE_BITS, Shape, ShapeError, ShapeMismatch, SingleShot, SingleShotShape,
    SparseBlocked,
};

use super::content::{Content, counters};
use super::gap_code::GapCode;
use super::header::{Body, Header};
use super::seal::seal;
use super::*;
use crate::checksum::crc32c;
use crate::error::{FrameError, FrameMergeError, HeaderError, KeyMismatch, PayloadError};
use crate::limits::{FRAME_FILTER_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX};

/// The first frame ever written; releases must read and write it for ever. To look at it:
/// `xxd crates/umbel-codec/testdata/frames/v1/single_shot.bin`. It has 1,600 positions over the
/// whole hash space and covers the second quarter.
const GOLDEN: &[u8] = include_bytes!("../../testdata/frames/v1/single_shot.bin");

const KEY: FrameKey = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };

/// A frame with other bytes at `at`, and a length and a checksum that fit.
fn forged(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = crc32c(&[&frame[..CHECKED_HEADER_BYTES], &frame[FRAME_HEADER_BYTES..]]);
    frame[CHECKED_HEADER_BYTES..FRAME_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// The frame without the end of its payload.
pub(super) fn shortened(frame: &[u8], payload_bytes: u32) -> Vec<u8> {
    let frame = &frame[..FRAME_HEADER_BYTES + payload_bytes as usize];
    forged(frame, 52, &payload_bytes.to_le_bytes())
}

pub(super) fn assert_refused(frame: &[u8], expected: impl Into<FrameError>) {
    assert_eq!(FrameView::parse(frame).map(|_| ()), Err(expected.into()));
}

/// What is wrong with the codes, behind a header that is right.
fn codes_error(frame: &[u8]) -> Option<PayloadError> {
    FrameView::parse(frame).unwrap().0.check_codes().err()
}

fn block_shape(kind: Kind, block_count: u64) -> BlockShape {
    BlockShape::new(kind, HashRange::WHOLE, block_count, LINE_BITS, 6).unwrap()
}

/// The ratio of all ANS lists.
const RATIO: u8 = 200;

/// The frame of these codes.
pub(super) fn sealed(
    body: Body,
    encoding: Encoding,
    low_bits: u32,
    count: u64,
    prefix: &[u8],
    content: Content<'_>,
) -> Vec<u8> {
    let code = if encoding.is_ans() {
        GapCode::Ans(AnsGapCode::new(low_bits, RATIO).unwrap())
    } else {
        GapCode::Rice(RiceCode::new(low_bits).unwrap())
    };
    let header = Header::new(KEY, body, encoding.base(), code, count);
    seal(header, code, prefix, content, FRAME_PAYLOAD_BYTES_MAX as u64).unwrap()
}

/// The frame of an array in a way that nobody chose for it.
fn array_frame(shape: BlockShape, encoding: Encoding, low_bits: u32, words: &[u64]) -> Vec<u8> {
    let content = Content::array(shape.kind(), words);
    let ones: u64 = match shape.kind() {
        Kind::Counting => counters(words).count() as u64,
        _ => words.iter().map(|word| u64::from(word.count_ones())).sum(),
    };
    let is_of_holes = encoding.base() == Encoding::Holes;
    let count = if is_of_holes { shape.position_count() - ones } else { ones };
    sealed(Body::Blocks(shape), encoding, low_bits, count, &[], content)
}

#[test]
fn every_flipped_bit_is_refused() {
    for bit in 0..8 * GOLDEN.len() {
        let mut frame = GOLDEN.to_vec();
        frame[bit / 8] ^= 1 << (bit % 8);
        assert!(FrameView::parse(&frame).is_err(), "bit {bit}");
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
        assert_eq!(FrameView::total_bytes(&GOLDEN[..available]), Ok(expected));
    }
    let error = HeaderError::Magic { actual: *b"UMX\0" };
    assert_eq!(FrameView::total_bytes(b"UMX"), Err(error.into()));
}

#[test]
fn foreign_headers_are_named() {
    assert_refused(&forged(GOLDEN, 0, b"PK"), HeaderError::Magic { actual: *b"PKBL" });
    assert_refused(&forged(GOLDEN, 4, &[2]), HeaderError::Version { actual: 2 });
    assert_refused(&forged(GOLDEN, 5, &[99]), HeaderError::Kind { actual: 99 });
    assert_refused(&forged(GOLDEN, 7, &[4]), HeaderError::HashFunction { actual: 4 });
    let error = HeaderError::Code(CodeError::LowBits { low_bits: 64 });
    assert_refused(&forged(GOLDEN, 48, &[64]), error);
    for (at, field) in [(49, "probe count"), (50, "block lines")] {
        assert_refused(&forged(GOLDEN, at, &[1]), HeaderError::Unused { field, actual: 1 });
    }
    let shape = block_shape(Kind::Blocked, 1);
    let raw = array_frame(shape, Encoding::Raw, 0, &[0; 8]);
    let error = HeaderError::Unused { field: "low bits", actual: 3 };
    assert_refused(&forged(&raw, 48, &[3]), error);
}

#[test]
fn every_kind_has_its_encodings() {
    for kind in Kind::ALL {
        for encoding in 0..=9 {
            let known = match kind {
                Kind::SingleShot => [1, 5, 6, 8].contains(&encoding),
                Kind::Blocked => [1, 2, 3, 4, 6, 7].contains(&encoding),
                Kind::Counting | Kind::Stable => [1, 4].contains(&encoding),
                Kind::Window | Kind::Cuckoo | Kind::Quotient => encoding == 4,
                _ => [1, 3, 4, 6, 7].contains(&encoding),
            };
            let frame = forged(GOLDEN, 5, &[kind.id(), encoding]);
            let error = HeaderError::Encoding { kind, actual: encoding };
            let refused = FrameView::parse(&frame).map(|_| ()) == Err(error.into());
            assert_eq!(refused, !known, "{kind} {encoding}");
        }
    }
}

#[test]
fn headers_beyond_the_limits_are_named() {
    // The range's last hash below its start.
    let empty = HashRangeError::Empty { start: 1 << 62, end: 1 };
    assert_refused(&forged(GOLDEN, 24, &0u64.to_le_bytes()), HeaderError::Range(empty));
    let none = ShapeError::PositionCount { position_count: 0 };
    assert_refused(&forged(GOLDEN, 32, &0u64.to_le_bytes()), HeaderError::Shape(none));
    // A quarter of 1,600 positions lies in the range.
    let error = FrameError::TooManyPositions { count: 401, count_max: 400 };
    assert_refused(&forged(GOLDEN, 40, &401u64.to_le_bytes()), error);
    let payload_bytes = u32::try_from(FRAME_PAYLOAD_BYTES_MAX).unwrap() + 1;
    let error = FrameError::PayloadTooLarge { payload_bytes: payload_bytes.into() };
    assert_refused(&forged(GOLDEN, 52, &payload_bytes.to_le_bytes()), error);

    let frame = array_frame(block_shape(Kind::Blocked, 2), Encoding::Gaps, 3, &[1; 16]);
    let error = FrameError::TooManyPositions { count: 1_025, count_max: 1_024 };
    assert_refused(&forged(&frame, 40, &1_025u64.to_le_bytes()), error);
    let none = ShapeError::BlockCount { block_count: 0 };
    assert_refused(&forged(&frame, 32, &0u64.to_le_bytes()), HeaderError::Shape(none));
    let none = ShapeError::ProbeCount { probe_count: 17, probe_count_max: 16 };
    assert_refused(&forged(&frame, 49, &[17]), HeaderError::Shape(none));
    let none = ShapeError::BlockBits { block_bits: 1_024, step: 512, block_bits_max: 512 };
    assert_refused(&forged(&frame, 50, &[2, 0]), HeaderError::Shape(none));
}

/// With a valid checksum the payload still has to be what the header says.
#[test]
fn payloads_that_contradict_their_header_are_named() {
    for count in [0u64, 24, 26, 399] {
        let error = codes_error(&forged(GOLDEN, 40, &count.to_le_bytes()));
        assert!(matches!(error, Some(PayloadError::Code(_))), "{count}: {error:?}");
    }
    // A range that ends before the last position.
    let last = (1u64 << 63) - 1 - (1 << 60);
    let error = codes_error(&forged(GOLDEN, 24, &last.to_le_bytes()));
    let beyond = matches!(error, Some(PayloadError::Code(CodeError::BeyondEnd { .. })));
    assert!(beyond, "{error:?}");

    for kind in [Kind::Blocked, Kind::Counting] {
        let shape = block_shape(kind, 1);
        let word_count = usize::try_from(shape.memory_bytes() / 8).unwrap();
        let raw = array_frame(shape, Encoding::Raw, 0, &vec![0x0103; word_count]);
        assert_eq!(codes_error(&raw), None);
        let ones = if kind == Kind::Blocked { 24 } else { 64 };
        let error = PayloadError::Count { expected: 5, actual: ones };
        assert_eq!(codes_error(&forged(&raw, 40, &5u64.to_le_bytes())), Some(error));
        let payload_bytes = u32::try_from(8 * word_count).unwrap() - 1;
        let (expected, actual) = (8 * word_count as u64, payload_bytes.into());
        let error = PayloadError::Length { expected, actual };
        assert_eq!(codes_error(&shortened(&raw, payload_bytes)), Some(error));
    }
}

#[test]
fn probes_out_of_order_are_named() {
    let probe = |block, seed| BlockProbe { block, seed };
    let frame = |probes: &[BlockProbe]| {
        let body = Body::Blocks(block_shape(Kind::Blocked, 9));
        let content = Content::Probes { probes, first: 0 };
        sealed(body, Encoding::Probes, 1, probes.len() as u64, &[], content)
    };
    assert_eq!(codes_error(&frame(&[probe(3, 1), probe(3, 2), probe(8, 0)])), None);
    let (previous, same) = (probe(3, 2), probe(3, 2));
    let error = PayloadError::ProbeOrder { previous, probe: same };
    assert_eq!(codes_error(&frame(&[previous, same])), Some(error));
    let error = CodeError::BeyondEnd { from: 0, gap: 9, end: 9 };
    assert_eq!(codes_error(&frame(&[probe(9, 0)])), Some(error.into()));
}

#[test]
fn parts_and_levels_begin_with_valid_numbers() {
    let shape = SingleShotShape::new(HashRange::new(100, 200).unwrap(), 1_000).unwrap();
    let empty = Content::Positions { positions: &[], first: 0 };
    let part = |prefix: &[u8]| sealed(Body::SingleShot(shape), Encoding::Part, 0, 0, prefix, empty);
    assert!(FrameView::parse(&part(&99u64.to_le_bytes())).is_ok());
    let error = PayloadError::Origin { origin: 100, start: 100 };
    assert_refused(&part(&100u64.to_le_bytes()), error);
    assert_refused(&part(&[0; 7]), PayloadError::Length { expected: 8, actual: 7 });

    let level = |level: FrameLevel| {
        let body = Body::Level(block_shape(Kind::Blocked, 2));
        sealed(body, Encoding::Gaps, 0, 0, &level.to_bytes(), Content::Bits(&[]))
    };
    let valid = FrameLevel {
        level: 0,
        level_count: 1,
        false_positive_rate: 0.01,
        first_capacity: 10,
        item_count: 0,
    };
    assert_eq!(FrameView::parse(&level(valid)).unwrap().0.level(), Some(valid));
    for (number, level_count) in [(1, 1), (0, 0), (3, 65)] {
        let error = PayloadError::Level { level: number, level_count };
        assert_refused(&level(FrameLevel { level: number, level_count, ..valid }), error);
    }
    let error = PayloadError::Scalable(SizingError::NoItems);
    assert_refused(&level(FrameLevel { first_capacity: 0, ..valid }), error);
    let nan = level(FrameLevel { false_positive_rate: f64::NAN, ..valid });
    assert!(matches!(
        FrameView::parse(&nan),
        Err(FrameError::Payload(PayloadError::Scalable(SizingError::Rate { .. })))
    ));
}

/// The ratio stands behind the fixed part of the payload.
#[test]
fn ratios_are_checked() {
    let range = HashRange::new(100, 1 << 63).unwrap();
    let shape = SingleShotShape::new(range, 1_000).unwrap();
    let content = Content::Positions { positions: &[40, 50], first: 30 };
    let origin = 99u64.to_le_bytes();
    let part = sealed(Body::SingleShot(shape), Encoding::AnsPart, 3, 2, &origin, content);
    let array = array_frame(block_shape(Kind::Blocked, 2), Encoding::AnsHoles, 3, &[!1; 16]);
    for (frame, fixed_bytes) in [(part, 8), (array, 0)] {
        assert_eq!(codes_error(&frame), None);
        let at = FRAME_HEADER_BYTES + fixed_bytes;
        assert_eq!(frame[at], RATIO);
        for ratio in [0, 127, 241, 255] {
            let error = PayloadError::Code(CodeError::AnsRatio { ratio });
            assert_refused(&forged(&frame, at, &[ratio]), error);
        }
        // Other tables lead elsewhere: to another end, or to other positions.
        let other = forged(&frame, at, &[RATIO + 1]);
        if let Ok(again) = FrameView::parse(&other).unwrap().0.encode(1 << 20) {
            assert_eq!(again, other);
        }
        let payload_bytes = u32::try_from(fixed_bytes).unwrap();
        let actual = payload_bytes.into();
        let error = PayloadError::Length { expected: actual + 1, actual };
        assert_refused(&shortened(&frame, payload_bytes), error);
        // A list needs 40 bits for its states, and 4 for each gap.
        let error = codes_error(&forged(&frame, 40, &400u64.to_le_bytes()));
        assert!(matches!(error, Some(PayloadError::Code(CodeError::TooManyCodes { .. }))));
    }
}

#[test]
fn other_keys_and_shapes_are_refused() {
    let (view, _) = FrameView::parse(GOLDEN).unwrap();
    let Shape::SingleShot(shape) = view.shape() else { panic!("{}", view.shape()) };
    let mut filter = SingleShot::new(shape);
    for expected in
        [FrameKey { key_id: 8, ..KEY }, FrameKey { function: HashFunction::SipHash13Keyed, ..KEY }]
    {
        let error = KeyMismatch { expected, actual: KEY };
        assert_eq!(view.merge_into(&mut filter, expected), Err(error.into()));
        assert_eq!(view.to_filter(expected, 1 << 20), Err(error.into()));
    }
    let theirs = shape.into();
    let mut other = SingleShot::new(SingleShotShape::new(shape.range(), 1_601).unwrap());
    let ours = other.shape().into();
    let error = ShapeMismatch { ours, theirs };
    assert_eq!(view.merge_into(&mut other, KEY), Err(error.into()));
    let mut blocked = Blocked::with_shape(block_shape(Kind::Blocked, 2)).unwrap();
    let error = ShapeMismatch { ours: blocked.block_shape().into(), theirs };
    assert_eq!(view.merge_into(&mut blocked, KEY), Err(error.into()));

    let words = [1u64; 16];
    let frame = array_frame(block_shape(Kind::Blocked, 2), Encoding::Gaps, 3, &words);
    let (view, _) = FrameView::parse(&frame).unwrap();
    assert_eq!(view.merge_into(&mut blocked, KEY), Ok(16));
    let half = blocked.block_shape().with_range(HashRange::new(0, 1 << 63).unwrap()).unwrap();
    let classic = Classic::with_shape(block_shape(Kind::Classic, 2)).unwrap();
    assert!(view.merge_into(&mut Blocked::with_shape(half).unwrap(), KEY).is_err());
    assert!(view.merge_into(&mut classic.clone(), KEY).is_err());
    assert!(view.merge_into(&mut Blocked::new(HashRange::WHOLE, 2, 5).unwrap(), KEY).is_err());
}

/// Half a payload that is valid changes nothing.
#[test]
fn a_damaged_end_leaves_the_filter_alone() {
    let shape = block_shape(Kind::Blocked, 2);
    let frame = array_frame(shape, Encoding::Gaps, 3, &[1; 16]);
    let payload_bytes = u32::try_from(frame.len() - FRAME_HEADER_BYTES).unwrap() - 1;
    let damaged = shortened(&frame, payload_bytes);
    let (view, _) = FrameView::parse(&damaged).unwrap();
    let mut filter = Blocked::with_shape(shape).unwrap();
    let outcome = view.merge_into(&mut filter, KEY);
    assert!(matches!(outcome, Err(FrameMergeError::Frame(_))), "{outcome:?}");
    assert_eq!(filter, Blocked::with_shape(shape).unwrap());
}

/// 61 bytes can announce any filter; it is made only if the receiver allows it.
#[test]
fn large_filters_are_not_unfolded() {
    let shape = block_shape(Kind::Blocked, 1 << 30);
    let filter = SparseBlocked::new(shape).unwrap();
    let frame = frames(&filter, KEY, 100).next().unwrap().unwrap();
    assert_eq!(frame.len(), FRAME_HEADER_BYTES);
    let (view, _) = FrameView::parse(&frame).unwrap();
    for (limit, filter_bytes_max) in [(1 << 20, 1 << 20), (u64::MAX, FRAME_FILTER_BYTES_MAX)] {
        let error = FrameError::FilterTooLarge { filter_bytes: 1 << 36, filter_bytes_max };
        assert_eq!(view.to_filter(KEY, limit), Err(error.into()));
    }
}

#[test]
fn counters_are_loaded_once() {
    let mut filter = Counting::with_shape(block_shape(Kind::Counting, 4)).unwrap();
    filter.insert(ItemHash::new(1 << 63, 5)).unwrap();
    let frame = frames(&filter, KEY, 1 << 20).next().unwrap().unwrap();
    let (view, _) = FrameView::parse(&frame).unwrap();
    let mut loaded = Counting::with_shape(filter.block_shape()).unwrap();
    assert_eq!(view.merge_into(&mut loaded, KEY), Ok(6));
    let error = FrameMergeError::NotEmpty { position_count: 6 };
    assert_eq!(view.merge_into(&mut loaded, KEY), Err(error));
    assert_eq!(loaded, filter);
}

#[test]
fn a_block_that_does_not_fit_is_named() {
    let filter = Blocked::with_shape(block_shape(Kind::Blocked, 2)).unwrap();
    let error = FrameError::BlockTooLarge { block_bytes: 64, payload_bytes_max: 63 };
    let outcome: Vec<_> = frames(&filter, KEY, 63).collect();
    assert_eq!(outcome, [Err(error)]);
    // Two insertions into one block: 66 bits.
    let hashes = [ItemHash::new(0, 1 << 32), ItemHash::new(0, 2 << 32)];
    let filter = SparseBlocked::from_hashes(block_shape(Kind::Blocked, 1), &hashes).unwrap();
    let outcome: Vec<_> = frames(&filter, KEY, 8).collect();
    let error = FrameError::BlockTooLarge { block_bytes: 9, payload_bytes_max: 8 };
    assert_eq!(outcome, [Err(error)]);
    assert!(frames(&filter, KEY, 9).all(|frame| frame.is_ok()));
}

#[test]
fn errors_name_their_numbers() {
    let error = FrameError::Truncated { needed: 60, available: 3 };
    assert_eq!(error.to_string(), "frame ends too early: 60 bytes needed, 3 available");
    let expected = FrameKey { function: HashFunction::SipHash13Keyed, key_id: 1 };
    assert_eq!(
        KeyMismatch { expected, actual: KEY }.to_string(),
        "frame is hashed by xxh3-128 under key 0x7, expected siphash-1-3-128 under key 0x1"
    );
}

/// Words of any fill, with runs.
fn words(len: usize) -> impl Strategy<Value = Vec<u64>> {
    let word = prop_oneof![
        Just(0),
        Just(u64::MAX),
        any::<u64>(),
        (any::<u64>(), any::<u64>()).prop_map(|(a, b)| a & b),
        (any::<u64>(), any::<u64>()).prop_map(|(a, b)| a | b),
        (0..64u32).prop_map(|bit| 1 << bit),
    ];
    vec(word, len)
}

proptest! {
    /// All encodings of an array say the same, whatever the code.
    #[test]
    fn encodings_agree(words in words(64), low_bits in 0..64u32, kind in 2..=5u8) {
        let kind = Kind::from_id(kind).unwrap();
        let shape = block_shape(kind, if kind == Kind::Counting { 2 } else { 8 });
        for encoding in Encoding::ALL {
            if !encoding.is_of(kind) || encoding == Encoding::Probes {
                continue;
            }
            let low_bits = if encoding == Encoding::Raw { 0 } else { low_bits };
            let frame = array_frame(shape, encoding, low_bits, &words);
            let (view, consumed_bytes) = FrameView::parse(&frame).unwrap();
            prop_assert_eq!(consumed_bytes, frame.len());
            prop_assert_eq!(&view.encode(1 << 20).unwrap(), &frame);
            let filter = view.to_filter(KEY, 1 << 20).unwrap();
            let again = frames(&filter, KEY, 1 << 20).next().unwrap().unwrap();
            let twin = array_frame(shape, Encoding::Raw, 0, &words);
            let cheapest = FrameView::parse(&again).unwrap().0.to_filter(KEY, 1 << 20).unwrap();
            let raw = FrameView::parse(&twin).unwrap().0.to_filter(KEY, 1 << 20).unwrap();
            prop_assert_eq!(&cheapest, &raw);
            prop_assert_eq!(&filter, &raw);
            prop_assert!(again.len() <= twin.len());
        }
    }

    /// Any header fields and payload under a right checksum: what is accepted encodes to the same.
    #[test]
    fn encoding_inverts_decoding(at in 4..70usize, patch in vec(any::<u8>(), 1..12), of in 0..7u8) {
        let shape = block_shape(Kind::Blocked, 2);
        let frame = match of {
            0 => GOLDEN.to_vec(),
            1 => array_frame(shape, Encoding::Gaps, 3, &[5; 16]),
            2 => array_frame(shape, Encoding::Holes, 0, &[!5; 16]),
            3 => array_frame(block_shape(Kind::Counting, 1), Encoding::Gaps, 1, &[0x302; 32]),
            4 => array_frame(shape, Encoding::AnsGaps, 2, &[5; 16]),
            5 => array_frame(shape, Encoding::AnsHoles, 4, &[!5; 16]),
            _ => array_frame(shape, Encoding::Raw, 0, &[0x5555; 16]),
        };
        let patch = &patch[..patch.len().min(frame.len().saturating_sub(at))];
        let at = if patch.is_empty() { 0 } else { at };
        let bytes = forged(&frame, at, patch);
        if let Ok((view, consumed_bytes)) = FrameView::parse(&bytes)
            && let Ok(again) = view.encode(1 << 24)
        {
            prop_assert_eq!(&again, &bytes[..consumed_bytes]);
        }
    }

    #[test]
    fn any_bytes_are_refused_without_panic(bytes in vec(any::<u8>(), 0..200), kind in 1..=6u8) {
        let behind_magic = [FRAME_MAGIC.as_slice(), &[1, kind, 1, 1], &bytes].concat();
        prop_assert!(FrameView::parse(&bytes).is_err());
        prop_assert!(FrameView::parse(&behind_magic).is_err());
    }
}
