//! Decodes any bytes as a filter frame of any kind. Accepted frames must encode to the same bytes,
//! and merge into a filter of their shape without panic.
//!
//! Input: the frame. It is decoded twice: as it is, and with payload length and checksum put right,
//! because no fuzzer guesses a checksum and the payload's decoder lies behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_codec::{
    FRAME_HEADER_BYTES, FilterAssembler, FrameError, FrameMergeError, FrameView, crc32c,
};
use umbel_filter::{AnyFilter, Blocked, Describe, HashRange, Kind, Scalable, Shape};

/// Most memory that a frame's filter may take here: enough for every encoding to have its say.
const FILTER_BYTES_MAX: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    if let Some(forged) = forged(bytes) {
        decode(&forged);
    }
});

fn decode(bytes: &[u8]) {
    let total_bytes = FrameView::total_bytes(bytes);
    match FrameView::parse(bytes) {
        Ok((view, consumed_bytes)) => {
            assert_eq!(total_bytes, Ok(Some(consumed_bytes)));
            if let Ok(again) = view.encode(FILTER_BYTES_MAX) {
                assert_eq!(again, &bytes[..consumed_bytes]);
            }
            merge(&view);
            assemble(&view);
            load(&view);
        }
        // The stream's reader must come to the same end as the decoder.
        Err(FrameError::Truncated { needed, available }) => {
            assert!(available == bytes.len() && needed > available);
            assert!(total_bytes == Ok(None) || total_bytes == Ok(Some(needed)));
        }
        Err(_) => {}
    }
}

/// Into a filter of its own, into the same again, and into one over the whole hash space.
fn merge(view: &FrameView<'_>) {
    let key = view.key();
    let Ok(mut filter) = view.to_filter(key, FILTER_BYTES_MAX) else { return };
    match view.merge_into(&mut filter, key) {
        Ok(new_count) => assert_eq!(new_count, 0),
        Err(FrameMergeError::NotEmpty { .. }) => assert!(!view.kind().merges_by_or()),
        Err(_) => assert_eq!(view.kind(), Kind::Scalable),
    }
    if let Shape::Blocks(shape) = view.shape()
        && let Ok(whole) = shape.with_range(HashRange::WHOLE)
        && shape.kind() == Kind::Blocked
        && whole.memory_bytes() <= FILTER_BYTES_MAX
    {
        let mut whole = Blocked::with_shape(whole).expect("small");
        let new_count = view.merge_into(&mut whole, key).expect("a part of the whole");
        let AnyFilter::Blocked(part) = filter else { panic!("a blocked frame, another filter") };
        assert_eq!(whole.merge_part(&part), Ok(0));
        assert_eq!(new_count, umbel_filter::words::count_ones(part.words()));
    }
}

/// As a stream of one frame, which is a whole filter unless it is a part of one.
fn assemble(view: &FrameView<'_>) {
    let assembler = FilterAssembler::new(view.shape(), view.key(), FILTER_BYTES_MAX);
    let Ok(mut assembler) = assembler else { return };
    if assembler.push(view).is_ok() {
        let filter = assembler.finish();
        assert!(view.kind() == Kind::Scalable || filter.is_ok());
    }
}

/// Into an empty scalable filter, of which it may be the first frame.
fn load(view: &FrameView<'_>) {
    let Shape::Scalable(shape) = view.shape() else { return };
    match shape.level(0) {
        Ok((_, level)) if level.memory_bytes() <= FILTER_BYTES_MAX => {}
        _ => return,
    }
    let (capacity, rate) = (shape.first_capacity(), shape.false_positive_rate());
    let mut filter = Scalable::new(shape.range(), capacity, rate).expect("a small filter");
    let before = filter.clone();
    match view.merge_into(&mut filter, view.key()) {
        Ok(new_count) => assert_eq!(new_count, filter.describe().one_count),
        Err(_) => assert!(filter == before, "a frame that was refused changed the filter"),
    }
}

/// The frame with a payload length and a checksum that fit what is there.
fn forged(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut forged = bytes.to_vec();
    let (header, payload) = forged.split_first_chunk_mut::<FRAME_HEADER_BYTES>()?;
    let (checked, checksum) = header.split_last_chunk_mut::<4>()?;
    let payload_bytes = u32::try_from(payload.len()).ok()?;
    checked.last_chunk_mut::<4>()?.copy_from_slice(&payload_bytes.to_le_bytes());
    checksum.copy_from_slice(&crc32c(&[checked, payload]).to_le_bytes());
    Some(forged)
}
