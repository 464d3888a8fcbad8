//! Encoders and decoders of the payloads of group counting. All numbers are 64-bit LEB128 in the shortest form.
//!
//! ```text
//! range    start, end − start
//! claims   each: 1 + 2·gap + (1 if dropped > 1), then if dropped > 1: dropped − 2;
//!          gap = item − least possible item; before the first claim in a later chunk: 0, then chunk − previous chunk − 1
//! sizes    each: size − 2; if records have parts then zigzag(record − previous record), and part − 1
//! ```
//!
//! In every payload the first claim is relative to the start of the range and the first size to record 0, so that every
//! payload can be decoded by itself.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::super::entry::RecordId;
use super::super::error::ExchangeFrameError;
use super::super::frame::Frame;
use super::{Claim, GroupSize, RecordPart, RecordRange};
use crate::FrameResult;
use crate::limits::{FRAME_PAYLOAD_BYTES_CUT, RECORD_ID_CHUNK_BITS, RECORD_ID_ITEM_BITS};
use umbel_bits::{LEB128_BYTES_MAX, Leb128, put_leb128};

/// Encodes a range.
pub(super) fn encode_range(range: RecordRange) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_leb128(&mut bytes, range.start.to_bits());
    put_leb128(&mut bytes, range.end.to_bits() - range.start.to_bits());
    bytes
}

/// Decodes a range, which may be empty or of any chunks.
pub(super) fn decode_range(frame: &Frame<'_>) -> FrameResult<RecordRange> {
    let mut rest = frame.payload;
    let (start, length) = (take(&mut rest)?, take(&mut rest)?);
    check_end(rest)?;
    let end = start.checked_add(length).ok_or(ExchangeFrameError::Header { field: "range" })?;
    Ok(RecordRange { start: RecordId::from_bits(start), end: RecordId::from_bits(end) })
}

/// The payloads of claims, at least one, each with its number of claims.
pub(super) fn encode_claims(range: RecordRange, claims: &[Claim]) -> Vec<(Vec<u8>, u32)> {
    let mut next = range.start;
    cut(claims, |claim, is_first, bytes| {
        let (chunk, item) = (claim.kept.chunk(), claim.kept.item());
        if is_first {
            next = range.start;
        }
        let mut gap = item.wrapping_sub(next.item());
        if chunk != next.chunk() {
            put_leb128(bytes, 0);
            put_leb128(bytes, u64::from(chunk - next.chunk() - 1));
            gap = item;
        }
        put_leb128(bytes, 1 + 2 * gap + u64::from(claim.dropped > 1));
        if claim.dropped > 1 {
            put_leb128(bytes, claim.dropped - 2);
        }
        next = RecordId::from_bits(claim.kept.to_bits() + 1);
    })
}

/// Decodes the claims of a frame, and checks that they are ascending and within the range.
pub(super) fn decode_claims(frame: &Frame<'_>, range: RecordRange) -> FrameResult<Vec<Claim>> {
    let malformed = ExchangeFrameError::Header { field: "claims" };
    let mut rest = frame.payload;
    let mut claims = with_room(frame, rest)?;
    let (mut chunk, mut item) = (u64::from(range.start.chunk()), range.start.item());
    for _ in 0..frame.count {
        let mut token = take(&mut rest)?;
        if token == 0 {
            let step = take(&mut rest)?;
            chunk =
                chunk.checked_add(step).and_then(|c| c.checked_add(1)).ok_or(malformed.clone())?;
            item = 0;
            token = take(&mut rest)?;
        }
        let code = token.checked_sub(1).ok_or(malformed.clone())?;
        let found = item.checked_add(code / 2).ok_or(malformed.clone())?;
        if chunk >> RECORD_ID_CHUNK_BITS != 0 || found >> RECORD_ID_ITEM_BITS != 0 {
            return Err(malformed);
        }
        let dropped = match code % 2 {
            0 => 1,
            _ => take(&mut rest)?.checked_add(2).ok_or(malformed.clone())?,
        };
        let kept = RecordId::from_bits((chunk << RECORD_ID_ITEM_BITS) | found);
        if !range.contains(kept) {
            return Err(malformed);
        }
        claims.push(Claim { kept, dropped });
        item = found + 1;
    }
    check_end(rest)?;
    Ok(claims)
}

/// The payloads of sizes, each with its number of sizes. All sizes are at least 2.
pub(super) fn encode_sizes(sizes: &[GroupSize]) -> Vec<(Vec<u8>, u32)> {
    let mut before = 0;
    cut(sizes, |group, is_first, bytes| {
        put_leb128(bytes, group.size - 2);
        let Some(RecordPart { record, part }) = group.part else { return };
        if is_first {
            before = 0;
        }
        put_leb128(bytes, zigzag(record.wrapping_sub(before)));
        put_leb128(bytes, part - 1);
        before = record;
    })
}

/// Decodes the sizes of a frame.
pub(super) fn decode_sizes(frame: &Frame<'_>, names_parts: bool) -> FrameResult<Vec<GroupSize>> {
    let malformed = ExchangeFrameError::Header { field: "sizes" };
    let mut rest = frame.payload;
    let mut sizes = with_room(frame, rest)?;
    let mut record = 0u64;
    for _ in 0..frame.count {
        let size = take(&mut rest)?.checked_add(2).ok_or(malformed.clone())?;
        let mut part = None;
        if names_parts {
            record = record.wrapping_add(unzigzag(take(&mut rest)?));
            let number = take(&mut rest)?.checked_add(1).ok_or(malformed.clone())?;
            part = Some(RecordPart { record, part: number });
        }
        sizes.push(GroupSize { size, part });
    }
    check_end(rest)?;
    Ok(sizes)
}

/// Maps differences modulo 2^64 of small magnitude to small numbers: 0, -1, 1, -2 to 0, 1, 2, 3.
const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ 0u64.wrapping_sub(difference >> 63)
}

const fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ 0u64.wrapping_sub(code & 1)
}

/// The payloads of a stream, each with its number of elements; a new payload begins when the last one has
/// reached its limit. The second argument of `write` tells whether the element is the first of its payload.
fn cut<T>(things: &[T], mut write: impl FnMut(&T, bool, &mut Vec<u8>)) -> Vec<(Vec<u8>, u32)> {
    let mut payloads = Vec::new();
    let (mut bytes, mut count) = (Vec::new(), 0);
    for thing in things {
        if bytes.len() >= FRAME_PAYLOAD_BYTES_CUT {
            payloads.push((std::mem::take(&mut bytes), std::mem::take(&mut count)));
        }
        write(thing, count == 0, &mut bytes);
        count += 1;
    }
    payloads.push((bytes, count));
    payloads
}

/// An empty vector with the capacity that the header announces. Fails if the payload cannot contain so many
/// elements, each of which takes at least one byte.
fn with_room<T>(frame: &Frame<'_>, payload: &[u8]) -> FrameResult<Vec<T>> {
    let max = payload.len() as u64;
    if u64::from(frame.count) > max {
        return Err(ExchangeFrameError::TooLarge { field: "count", got: frame.count.into(), max });
    }
    Ok(Vec::with_capacity(frame.count as usize))
}

fn take(rest: &mut &[u8]) -> FrameResult<u64> {
    let number = Leb128::shortest(LEB128_BYTES_MAX).take(rest).ok().flatten();
    number.ok_or(ExchangeFrameError::Header { field: "payload" })
}

fn check_end(rest: &[u8]) -> FrameResult<()> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(ExchangeFrameError::TrailingBytes { extra: rest.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::frame::FrameKind;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn frame(kind: FrameKind, count: u32, payload: &[u8]) -> Frame<'_> {
        Frame { kind, flags: 1, param: 0, cell: 0, sequence: 0, count, covered: 0, payload }
    }

    const RANGE: RecordRange =
        RecordRange { start: RecordId::new(3, 5), end: RecordId::new(9, 70) };

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let record_id =
            (3u32..10, 0u64..1 << 36).prop_map(|(chunk, item)| RecordId::new(chunk, item));
        let near = (3u32..5, 0u64..40).prop_map(|(chunk, item)| RecordId::new(chunk, item));
        let dropped = prop_oneof![Just(1u64), 2u64..5, any::<u64>().prop_map(|count| count.max(1))];
        let claims = proptest::collection::btree_map(prop_oneof![near, record_id], dropped, 0..60);
        claims.prop_map(|claims: BTreeMap<RecordId, u64>| {
            let claims = claims.into_iter().filter(|(kept, _)| RANGE.contains(*kept));
            claims.map(|(kept, dropped)| Claim { kept, dropped }).collect()
        })
    }

    proptest! {
        /// decode ∘ encode = id, and nothing else decodes to the same.
        #[test]
        fn claims_come_back(claims in claims()) {
            let payloads = encode_claims(RANGE, &claims);
            let [(payload, count)] = &payloads[..] else { panic!("one payload") };
            let read = decode_claims(&frame(FrameKind::Claims, *count, payload), RANGE);
            prop_assert_eq!(read, Ok(claims));
        }

        #[test]
        fn sizes_come_back(
            sizes in proptest::collection::vec((2u64.., any::<u64>(), 1u64..), 0..40),
            names_parts in any::<bool>(),
        ) {
            let group = |(size, record, part)| {
                GroupSize { size, part: names_parts.then_some(RecordPart { record, part }) }
            };
            let sizes: Vec<GroupSize> = sizes.into_iter().map(group).collect();
            let payloads = encode_sizes(&sizes);
            let [(payload, count)] = &payloads[..] else { panic!("one payload") };
            let frame = frame(FrameKind::Sizes, *count, payload);
            prop_assert_eq!(decode_sizes(&frame, names_parts), Ok(sizes));
        }

        #[test]
        fn what_decodes_encodes_to_itself(
            payload in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..40),
            count in 0u32..20,
        ) {
            if let Ok(claims) = decode_claims(&frame(FrameKind::Claims, count, &payload), RANGE) {
                prop_assert!(claims.is_sorted_by(|a, b| a.kept < b.kept));
                prop_assert_eq!(encode_claims(RANGE, &claims), vec![(payload.clone(), count)]);
            }
            for names_parts in [false, true] {
                let frame = frame(FrameKind::Sizes, count, &payload);
                if let Ok(sizes) = decode_sizes(&frame, names_parts) {
                    prop_assert_eq!(encode_sizes(&sizes), vec![(payload.clone(), count)]);
                }
            }
            if let Ok(range) = decode_range(&frame(FrameKind::Ask, 1, &payload)) {
                prop_assert_eq!(encode_range(range), payload);
            }
        }
    }

    #[test]
    fn small_differences_are_small_codes() {
        for (difference, code) in [(0i64, 0), (-1, 1), (1, 2), (-2, 3), (i64::MIN, u64::MAX)] {
            assert_eq!(zigzag(difference.cast_unsigned()), code);
            assert_eq!(unzigzag(code), difference.cast_unsigned());
        }
    }

    #[test]
    fn long_lists_are_cut_and_every_part_is_read_by_itself() {
        let kept = |index: u64| RecordId::new(3, 5 + 100_000 * index);
        let claims: Vec<Claim> =
            (0..400_000).map(|index| Claim { kept: kept(index), dropped: 1 + index % 2 }).collect();
        let payloads = encode_claims(RANGE, &claims);
        assert!(payloads.len() > 1);
        let mut read = Vec::new();
        for (payload, count) in &payloads {
            assert!(payload.len() < super::super::PAYLOAD_BYTES_MAX);
            let frame = frame(FrameKind::Claims, *count, payload);
            read.extend(decode_claims(&frame, RANGE).unwrap());
        }
        assert!(read == claims);
    }
}
