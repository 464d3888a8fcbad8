//! Laws of cutting a filter into frames and merging them.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_codec::{Encoding, FRAME_HEADER_BYTES, FrameMergeError, FrameView, frames};
use umbel_filter::{
    AnyFilter, BlockShape, Blocked, Describe, HashRange, Insert, Kind, Merge, SingleShot,
    SingleShotShape, SparseBlocked, StoredSingleShot,
};

use crate::filters::{
    KEY, MEMORY, all_filters, all_frames, emptied, items, merging_filters, one_count,
    payload_bytes, ranges, single_shot_shapes, view,
};

/// Each frame begins where the one before ends.
fn assert_tiles<'a>(range: HashRange, views: impl Iterator<Item = FrameView<'a>>) {
    let mut next_start = u128::from(range.start());
    for view in views {
        if next_start == range.end() && view.level().is_some() {
            next_start = range.start().into();
        }
        assert_eq!(u128::from(view.range().start()), next_start);
        next_start = view.range().end();
    }
    assert_eq!(next_start, range.end());
}

proptest! {
    #[test]
    fn frames_tile_the_filter_and_keep_the_limit(
        recipe in all_filters(), payload_bytes_max in payload_bytes(), after in vec(any::<u8>(), 0..9),
    ) {
        let filter = recipe.filter();
        let frames = all_frames(&filter, payload_bytes_max);
        assert_tiles(filter.shape().range(), frames.iter().map(|frame| view(frame)));
        for frame in &frames {
            prop_assert!(frame.len() <= FRAME_HEADER_BYTES + payload_bytes_max);
            prop_assert_eq!(view(frame).kind(), filter.kind());
            prop_assert_eq!(&view(frame).encode(MEMORY).unwrap(), frame);
            let longer = [&frame[..], &after].concat();
            prop_assert_eq!(FrameView::parse(&longer).unwrap().1, frame.len());
            prop_assert_eq!(FrameView::total_bytes(&longer), Ok(Some(frame.len())));
        }
    }

    /// Frames merge in any order into the filter that they were made of, and count what is new.
    #[test]
    fn merging_all_frames_gives_the_filter(
        recipe in merging_filters(), payload_bytes_max in payload_bytes(), rotation in 0..9usize,
    ) {
        let filter = recipe.filter();
        let mut frames = all_frames(&filter, payload_bytes_max);
        let len = frames.len();
        frames.rotate_left(rotation % len);
        let mut merged = emptied(&filter);
        let mut new_count = 0;
        for frame in &frames {
            new_count += view(frame).merge_into(&mut merged, KEY).unwrap();
        }
        prop_assert_eq!(&merged, &filter);
        prop_assert_eq!(new_count, one_count(&filter));
        for frame in &frames {
            match view(frame).merge_into(&mut merged, KEY) {
                Ok(new_count) => prop_assert_eq!(new_count, 0),
                Err(FrameMergeError::NotEmpty { .. }) => {
                    prop_assert!(!filter.kind().merges_by_or());
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
        prop_assert_eq!(merged, filter);
    }

    /// A frame alone is a filter, whose frame is the same again.
    #[test]
    fn a_frame_is_a_filter(recipe in merging_filters(), payload_bytes_max in payload_bytes()) {
        let filter = recipe.filter();
        let mut merged = emptied(&filter);
        for frame in all_frames(&filter, payload_bytes_max) {
            let part = view(&frame).to_filter(KEY, MEMORY).unwrap();
            prop_assert_eq!(part.shape(), view(&frame).shape());
            let again = all_frames(&part, 1 << 20);
            if view(&frame).range() == part.shape().range() {
                prop_assert_eq!(&again, &[frame]);
            }
            if !filter.kind().merges_by_or() {
                continue;
            }
            for frame in again {
                view(&frame).merge_into(&mut merged, KEY).unwrap();
            }
        }
        let is_loaded = !filter.kind().merges_by_or();
        prop_assert!(is_loaded || merged == filter);
    }

    /// The frames of a part of the range go into the filter of the whole range.
    #[test]
    fn parts_merge_into_larger_filters(
        range in ranges(), blocks in 1..40u64, k in 1..=16u32, seed: u64, count in 0..500u64,
        payload_bytes_max in payload_bytes(),
    ) {
        let shape = BlockShape::new(Kind::Blocked, range, blocks, 512, k).unwrap();
        let mut part = Blocked::with_shape(shape).unwrap();
        let mut whole = Blocked::new(HashRange::WHOLE, blocks, k).unwrap();
        for item in items(range, seed, count) {
            part.insert(item).unwrap();
            whole.insert(item).unwrap();
        }
        let mut merged = Blocked::new(HashRange::WHOLE, blocks, k).unwrap();
        for frame in frames(&part, KEY, payload_bytes_max) {
            view(&frame.unwrap()).merge_into(&mut merged, KEY).unwrap();
        }
        prop_assert_eq!(merged, whole);
    }

    /// Insertions as frames of probes: the same bits as insert by insert.
    #[test]
    fn probes_are_insertions(
        range in ranges(), blocks in 1..400u64, k in 1..=16u32, seed: u64, count in 0..300u64,
        payload_bytes_max in 1_500..3_000usize,
    ) {
        let shape = BlockShape::new(Kind::Blocked, range, blocks, 512, k).unwrap();
        let hashes = items(range, seed, count);
        let batch = SparseBlocked::from_hashes(shape, &hashes).unwrap();
        let mut filter = Blocked::with_shape(shape).unwrap();
        for &hash in &hashes {
            filter.insert(hash).unwrap();
        }
        let frames: Vec<Vec<u8>> =
            frames(&batch, KEY, payload_bytes_max).map(Result::unwrap).collect();
        assert_tiles(range, frames.iter().map(|frame| view(frame)));
        let mut merged = Blocked::with_shape(shape).unwrap();
        let mut whole = Blocked::new(HashRange::WHOLE, blocks, k).unwrap();
        let (mut probe_count, mut new_count) = (0, 0);
        for frame in &frames {
            prop_assert!(frame.len() <= FRAME_HEADER_BYTES + payload_bytes_max);
            prop_assert_eq!(&view(frame).encode(MEMORY).unwrap(), frame);
            probe_count += view(frame).count();
            new_count += view(frame).merge_into(&mut merged, KEY).unwrap();
            view(frame).merge_into(&mut whole, KEY).unwrap();
        }
        prop_assert_eq!(probe_count, batch.len());
        prop_assert_eq!(new_count, filter.describe().one_count);
        prop_assert_eq!(whole.merge_part(&filter), Ok(0));
        prop_assert_eq!(whole.describe().one_count, new_count);
        prop_assert_eq!(merged, filter);
    }

    /// Single-shot filters of any m keep every position exactly, wherever they are cut.
    #[test]
    fn positions_survive_cuts(
        shape in single_shot_shapes(), seed: u64, count in 0..200u64, payload_bytes_max in 20..200usize,
    ) {
        let mut hashes = items(shape.range(), seed, count);
        hashes.sort_unstable();
        let filter = SingleShot::from_sorted_hashes(shape, &hashes).unwrap();
        let frames: Vec<Vec<u8>> =
            frames(&filter, KEY, payload_bytes_max).map(Result::unwrap).collect();
        assert_tiles(shape.range(), frames.iter().map(|frame| view(frame)));
        let mut merged = SingleShot::new(shape);
        for (index, frame) in frames.iter().enumerate() {
            prop_assert!(frame.len() <= FRAME_HEADER_BYTES + payload_bytes_max);
            prop_assert_eq!(&view(frame).encode(MEMORY).unwrap(), frame);
            // No position is lost and none is in two frames.
            prop_assert_eq!(view(frame).merge_into(&mut merged, KEY), Ok(view(frame).count()));
            let items = hashes.iter().filter(|hash| view(frame).range().contains(hash.hi()));
            let mut positions: Vec<u64> = items.map(|hash| shape.position(hash.hi())).collect();
            positions.dedup();
            let AnyFilter::SingleShot(part) = view(frame).to_filter(KEY, MEMORY).unwrap() else {
                panic!("frame {index} is {}", view(frame).shape());
            };
            prop_assert!(part.positions().eq(positions));
        }
        prop_assert_eq!(merged, filter);
    }
}

/// Long lists are ANS lists: cut into frames they fill them, and merge as others do.
#[test]
fn long_lists_survive_cuts() {
    let shape = SingleShotShape::new(HashRange::WHOLE, 1_000_003).unwrap();
    let mut hashes = items(HashRange::WHOLE, 5, 100_000);
    hashes.sort_unstable();
    let filter = SingleShot::from_sorted_hashes(shape, &hashes).unwrap();
    let mut merged = SingleShot::new(shape);
    let mut frame_count = 0;
    for frame in frames(&filter, KEY, 10_000) {
        let frame = frame.unwrap();
        let is_last = view(&frame).range().end() == shape.range().end();
        assert!((9_500..=10_060).contains(&frame.len()) || is_last, "{}", frame.len());
        let expected = if frame_count == 0 { Encoding::AnsGaps } else { Encoding::AnsPart };
        assert_eq!(view(&frame).encoding(), expected);
        assert_eq!(view(&frame).encode(MEMORY).as_ref(), Ok(&frame));
        assert_eq!(view(&frame).merge_into(&mut merged, KEY), Ok(view(&frame).count()));
        frame_count += 1;
    }
    assert_eq!(frame_count, 6);
    assert_eq!(merged, filter);
}

/// A frame costs time for its own range: inserts beyond it wait in the delta as before, which takes more memory than the
/// run into which they are folded when the whole is coded anew.
#[test]
fn a_frame_leaves_positions_beyond_its_range_as_they_are() {
    let shape = SingleShotShape::new(HashRange::WHOLE, 10_000_003).unwrap();
    let filter = |seed, count| {
        let mut hashes = items(HashRange::WHOLE, seed, count);
        hashes.sort_unstable();
        StoredSingleShot::from_sorted_hashes(shape, &hashes).unwrap()
    };
    let (mut ours, theirs) = (filter(5, 100_000), filter(6, 100_000));
    let frames: Vec<Vec<u8>> = frames(&theirs, KEY, 10_000).map(Result::unwrap).collect();
    let upper = HashRange::new(1 << 63, 1 << 64).unwrap();
    ours.insert_batch(&items(upper, 7, 1_000), &mut Vec::new()).unwrap();
    let mut expected = ours.clone();
    let (lower_count, mut new_count) = (frames.len() / 2 - 1, 0);
    for frame in &frames[..lower_count] {
        new_count += view(frame).merge_into(&mut ours, KEY).unwrap();
        let mut sealed = ours.clone();
        sealed.seal();
        // 1,000 positions of 17 bytes, where a run takes 1 to 2.
        assert!(ours.memory_bytes() > sealed.memory_bytes() + 14_000);
    }
    for frame in &frames[lower_count..] {
        new_count += view(frame).merge_into(&mut ours, KEY).unwrap();
    }
    assert_eq!(expected.merge(&theirs), Ok(new_count));
    assert_eq!(ours, expected);
}

/// A cut at any hash leaves every item on its position: with m = 3 also where counting begins behind the first
/// hash of a position.
#[test]
fn positions_do_not_depend_on_the_start() {
    let shape =
        |start: u64| SingleShotShape::new(HashRange::new(start, 1 << 64).unwrap(), 3).unwrap();
    let (start, border) = (u64::MAX / 3 + 5, 2 * (u64::MAX / 3) + 1);
    assert_eq!(shape(0).position(start), 1);
    assert_eq!(shape(0).position(border), 2);
    let from = shape(start);
    assert_eq!((from.first_position(), from.position(start), from.position(border)), (1, 0, 1));
}
