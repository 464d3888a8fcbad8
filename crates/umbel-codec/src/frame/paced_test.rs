//! Frames of filters that forget by what comes: what must be refused, and what is loaded once.

use umbel_filter::{AGING_BLOCK_BITS, Aging, BlockShape, HashRange, Kind, LINE_BITS, ShapeError};

use super::content::Content;
use super::frame_test::{assert_refused, sealed, shortened};
use super::header::Body;
use super::level::pacing_to_bytes;
use super::*;
use crate::error::{FrameMergeError, PayloadError};

/// A pace that the kind has not is no filter, and counts of any size do no harm.
#[test]
fn filters_that_forget_begin_with_a_valid_pace() {
    let shape = BlockShape::new(Kind::Aging, HashRange::WHOLE, 2, AGING_BLOCK_BITS, 7).unwrap();
    let frame = |pace, counts| {
        let prefix = pacing_to_bytes(pace, counts);
        let content = Content::Bits(&[1; 32]);
        sealed(Body::Blocks(shape), Encoding::Raw, 0, 32, &prefix, content)
    };
    let none = ShapeError::Pace { kind: Kind::Aging, pace: 0 };
    assert_refused(&frame(0, [0, 0]), PayloadError::Pace(none));
    let valid = frame(300, [u64::MAX, 7]);
    let (view, _) = FrameView::parse(&valid).unwrap();
    assert_eq!(view.shape(), shape.with_pace(300).unwrap().into());
    assert_eq!(view.encode(1 << 20), Ok(valid.clone()));
    let mut filter = Aging::with_shape(shape.with_pace(300).unwrap()).unwrap();
    assert_eq!(view.merge_into(&mut filter, view.key()), Ok(32));
    assert_eq!(filter.counts(), [u64::MAX, 7]);
    let before = filter.clone();
    let again = view.merge_into(&mut filter, view.key());
    assert_eq!(again, Err(FrameMergeError::NotEmpty { position_count: 32 }));
    assert_eq!(filter, before);
    let mut faster = Aging::with_shape(shape.with_pace(301).unwrap()).unwrap();
    let refused = view.merge_into(&mut faster, view.key());
    assert!(matches!(refused, Err(FrameMergeError::Shape(_))), "{refused:?}");
    // A stable filter has one count, and cells as a counting one has.
    let shape = BlockShape::new(Kind::Stable, HashRange::WHOLE, 1, LINE_BITS, 7).unwrap();
    let frame = |pace, counts| {
        let content = Content::Counters(&[0x30; 32]);
        sealed(Body::Blocks(shape), Encoding::Raw, 0, 32, &pacing_to_bytes(pace, counts), content)
    };
    let error = PayloadError::Counts { counts: [5, 7] };
    assert_refused(&frame(16 * 90 + 3, [5, 7]), error);
    let none = ShapeError::Pace { kind: Kind::Stable, pace: 15 };
    assert_refused(&frame(15, [5, 0]), PayloadError::Pace(none));
    let stable = frame(16 * 90 + 3, [5, 0]);
    assert_eq!(FrameView::parse(&stable).unwrap().0.encode(1 << 20), Ok(stable.clone()));
    let short = PayloadError::Length { expected: 24, actual: 23 };
    assert_refused(&shortened(&valid, 23), short);
}
