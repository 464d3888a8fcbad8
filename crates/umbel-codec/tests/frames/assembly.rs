//! Streams of frames: whole filters, and streams that are none.

use proptest::prelude::*;
use umbel_codec::{AssembleError, FilterAssembler, FrameKey, FrameMergeError, KeyMismatch, crc32c};
use umbel_filter::{
    AnyFilter, Blocked, Describe, FilterJoinError, HashRange, Kind, Scalable, SingleShot,
    SingleShotShape, StoredSingleShot,
};

use crate::filters::{KEY, MEMORY, all_filters, all_frames, emptied, items, payload_bytes, view};

fn assemble(filter: &AnyFilter, frames: &[Vec<u8>]) -> Result<AnyFilter, AssembleError> {
    let mut assembler = FilterAssembler::new(filter.shape(), KEY, MEMORY)?;
    for frame in frames {
        assembler.push(&view(frame))?;
    }
    assembler.finish()
}

proptest! {
    #[test]
    fn frames_in_order_are_the_filter(recipe in all_filters(), payload_bytes_max in payload_bytes()) {
        let filter = recipe.filter();
        let frames = all_frames(&filter, payload_bytes_max);
        prop_assert_eq!(assemble(&filter, &frames), Ok(filter));
    }

    /// A part of a filter is a filter, wherever its borders lie: its frames give it again, in an assembler and one by
    /// one.
    #[test]
    fn frames_of_a_part_are_the_part(
        recipe in all_filters(), payload_bytes_max in payload_bytes(), ends: [u64; 2],
    ) {
        let filter = recipe.filter();
        let range = filter.shape().range();
        let [one, other] = ends.map(|end| u128::from(end) % range.width());
        let start = range.start() + u64::try_from(one.min(other)).unwrap();
        let end = u128::from(range.start()) + one.max(other) + 1;
        let part = filter.part(HashRange::new(start, end).unwrap());
        if filter.kind().is_whole() {
            prop_assert!(part.is_err());
            return Ok(());
        }
        let part = part.unwrap();
        let frames = all_frames(&part, payload_bytes_max);
        prop_assert_eq!(assemble(&part, &frames), Ok(part.clone()));
        let mut loaded = emptied(&part);
        for frame in &frames {
            prop_assert!(view(frame).merge_into(&mut loaded, KEY).is_ok());
        }
        prop_assert_eq!(loaded, part);
    }

    /// Two parts that have gone on, each with items of its own, and are joined: a filter whose frames give it again.
    #[test]
    fn frames_of_a_join_are_the_join(
        recipe in all_filters(), payload_bytes_max in payload_bytes(), at: u64, seed: u64, counts in [0..60u64, 0..60],
    ) {
        let filter = recipe.filter();
        let range = filter.shape().range();
        prop_assume!(range.width() > 1 && !filter.kind().is_whole());
        let border = range.start() + 1 + u64::try_from(u128::from(at) % (range.width() - 1)).unwrap();
        let halves = [(range.start(), border.into()), (border, range.end())];
        let [lower, upper] = [0, 1].map(|half| {
            let (start, end) = halves[half];
            let range = HashRange::new(start, end).unwrap();
            let mut part = filter.part(range).unwrap();
            for item in items(range, seed, counts[half]) {
                // A table may be full before.
                let _ = umbel_filter::Insert::insert(&mut part, item);
            }
            part
        });
        let joined = match lower.join(&upper) {
            Ok(joined) => joined,
            Err(error) => {
                prop_assert!(matches!(error, FilterJoinError::Full { .. }), "{}", error);
                return Ok(());
            }
        };
        let frames = all_frames(&joined, payload_bytes_max);
        prop_assert_eq!(assemble(&joined, &frames), Ok(joined.clone()));
        let mut loaded = emptied(&joined);
        for frame in &frames {
            prop_assert!(view(frame).merge_into(&mut loaded, KEY).is_ok());
        }
        prop_assert_eq!(loaded, joined);
    }

    /// One frame less, one twice, two in each other's place: never a filter.
    #[test]
    fn other_streams_are_refused(
        recipe in all_filters(), payload_bytes_max in payload_bytes(), pick: prop::sample::Index,
    ) {
        let filter = recipe.filter();
        let frames = all_frames(&filter, payload_bytes_max);
        let at = pick.index(frames.len());
        let mut fewer = frames.clone();
        fewer.remove(at);
        prop_assert!(assemble(&filter, &fewer).is_err());
        let mut more = frames.clone();
        more.insert(at, frames[at].clone());
        prop_assert!(assemble(&filter, &more).is_err());
        if frames.len() > 1 {
            let mut swapped = frames.clone();
            swapped.swap(at, (at + 1) % frames.len());
            prop_assert!(assemble(&filter, &swapped).is_err());
        }
    }

    /// A refused frame changed nothing: the right one can follow.
    #[test]
    fn the_right_frame_may_follow_a_wrong_one(
        recipe in all_filters(), payload_bytes_max in payload_bytes(),
    ) {
        let filter = recipe.filter();
        let frames = all_frames(&filter, payload_bytes_max);
        let mut assembler = FilterAssembler::new(filter.shape(), KEY, MEMORY).unwrap();
        for (at, frame) in frames.iter().enumerate() {
            for (other_at, other) in frames.iter().enumerate() {
                prop_assert!(other_at == at || assembler.push(&view(other)).is_err());
            }
            prop_assert_eq!(assembler.push(&view(frame)), Ok(()));
        }
        prop_assert_eq!(assembler.finish(), Ok(filter));
    }
}

#[test]
fn errors_name_both_borders() {
    let filter = AnyFilter::from(Blocked::new(HashRange::WHOLE, 4, 6).unwrap());
    let frames = all_frames(&filter, 64);
    assert_eq!(frames.len(), 4);
    let mut assembler = FilterAssembler::new(filter.shape(), KEY, MEMORY).unwrap();
    let gap = AssembleError::Border { expected: 0, actual: 1 << 62 };
    assert_eq!(assembler.push(&view(&frames[1])), Err(gap));
    assembler.push(&view(&frames[0])).unwrap();
    let overlap = AssembleError::Border { expected: 1 << 62, actual: 0 };
    assert_eq!(assembler.push(&view(&frames[0])), Err(overlap));
    let incomplete =
        AssembleError::Incomplete { covered_to: 1 << 62, end: 1 << 64, level_count: 0 };
    assert_eq!(assembler.finish(), Err(incomplete));
}

#[test]
fn levels_that_are_missing_are_named() {
    let mut filter = Scalable::new(HashRange::WHOLE, 10, 0.01).unwrap();
    for item in items(HashRange::WHOLE, 1, 100) {
        umbel_filter::Insert::insert(&mut filter, item).unwrap();
    }
    let level_count = u32::try_from(filter.levels().len()).unwrap();
    assert!(level_count > 2);
    let filter = AnyFilter::from(filter);
    let frames = all_frames(&filter, 1 << 20);
    let mut assembler = FilterAssembler::new(filter.shape(), KEY, MEMORY).unwrap();
    let error = AssembleError::Level {
        expected: 0,
        expected_count: level_count,
        actual: 1,
        actual_count: level_count,
    };
    assert_eq!(assembler.push(&view(&frames[1])), Err(error));
    assembler.push(&view(&frames[0])).unwrap();
    let end = 1 << 64;
    let missing = AssembleError::Incomplete { covered_to: end, end, level_count: level_count - 1 };
    assert_eq!(assembler.finish(), Err(missing));
}

#[test]
fn memory_is_limited() {
    for kind in [Kind::Blocked, Kind::Counting] {
        let shape = umbel_filter::BlockShape::new(kind, HashRange::WHOLE, 1_000, 512, 6).unwrap();
        let (filter_bytes, filter_bytes_max) = (shape.memory_bytes(), shape.memory_bytes() - 1);
        let error = AssembleError::TooLarge { filter_bytes, filter_bytes_max };
        let refused = FilterAssembler::new(shape.into(), KEY, filter_bytes_max);
        assert_eq!(refused.map(|_| ()), Err(error));
        assert!(FilterAssembler::new(shape.into(), KEY, filter_bytes).is_ok());
    }
    let mut filter = Scalable::new(HashRange::WHOLE, 10, 0.01).unwrap();
    for item in items(HashRange::WHOLE, 1, 100) {
        umbel_filter::Insert::insert(&mut filter, item).unwrap();
    }
    let filter = AnyFilter::from(filter);
    let frames = all_frames(&filter, 1 << 20);
    let mut assembler = FilterAssembler::new(filter.shape(), KEY, 100).unwrap();
    let refused = frames.iter().map(|frame| assembler.push(&view(frame))).find(Result::is_err);
    assert!(matches!(refused, Some(Err(AssembleError::TooLarge { .. }))), "{refused:?}");
}

#[test]
fn frames_of_another_key_are_refused() {
    let filter = AnyFilter::from(Blocked::new(HashRange::WHOLE, 4, 6).unwrap());
    let frames = all_frames(&filter, 1 << 20);
    let expected = FrameKey { key_id: 8, ..KEY };
    let mut assembler = FilterAssembler::new(filter.shape(), expected, MEMORY).unwrap();
    let error = FrameMergeError::Key(KeyMismatch { expected, actual: KEY });
    assert_eq!(assembler.push(&view(&frames[0])), Err(error.into()));
}

/// A sender may cut a single-shot filter inside a position: both frames have it, the filter once.
#[test]
fn a_position_in_two_frames_is_one() {
    let over = |end: u128| SingleShotShape::new(HashRange::new(0, end).unwrap(), 256).unwrap();
    let filter = AnyFilter::from(
        StoredSingleShot::from_positions(over(1 << 64), (0..200u32).map(u64::from)).unwrap(),
    );
    let mut frames = all_frames(&filter, 9);
    // The first frame goes on into the second one's first position, up to a hash inside it.
    let border = view(&frames[1]).range().start() + 5;
    let first = over(border.into());
    let first = SingleShot::from_positions(first, (0..first.width()).collect()).unwrap();
    frames[0] = umbel_codec::frames(&first, KEY, 1 << 20).next().unwrap().unwrap();
    let second = &mut frames[1];
    second[16..24].copy_from_slice(&border.to_le_bytes());
    let checksum = crc32c(&[&second[..56], &second[60..]]);
    second[56..60].copy_from_slice(&checksum.to_le_bytes());

    let counts: u64 = frames.iter().map(|frame| view(frame).count()).sum();
    assert_eq!(counts, 201);
    assert_eq!(assemble(&filter, &frames), Ok(filter));
}

/// Memory that rots does not keep a window from being copied; what is in no slice any more is left out.
#[test]
fn a_window_whose_bits_have_changed_is_still_copied() {
    let shape = umbel_filter::BlockShape::new(Kind::Window, HashRange::WHOLE, 2, 512, 9).unwrap();
    let mut window = umbel_filter::Window::with_shape(shape).unwrap();
    window.advance(100, 104);
    for item in items(HashRange::WHOLE, 1, 600) {
        umbel_filter::Insert::insert(&mut window, item).unwrap();
    }
    window.rewrite(|words| words.iter_mut().for_each(|word| *word ^= 1 << (*word % 61)));
    let item_count = window.item_count();
    let filter = AnyFilter::from(window);
    let mut assembler = FilterAssembler::new(filter.shape(), KEY, MEMORY).unwrap();
    for frame in all_frames(&filter, 1 << 12) {
        assert_eq!(view(&frame).encode(MEMORY).as_ref(), Ok(&frame));
        assembler.push(&view(&frame)).unwrap();
    }
    let AnyFilter::Window(copy) = assembler.finish().unwrap() else { panic!() };
    assert!(copy.item_count() <= item_count && copy.item_count() > item_count / 3);
    assert_eq!((copy.oldest(), copy.newest()), (100, 104));
}
