//! What changed of exported frames since somebody exported them before.
//!
//! Frames of arrays are cut at the same blocks each time, and most of them hold their words as they are: what
//! changed in a filter changes pieces of frames, and leaves the others where they were. Nothing is kept for that:
//! whoever has the earlier frames names their pieces by digests.
//!
//! ```text
//! frame          │ piece 0 │ piece 1 │ … │ last piece │      4,096 bytes each, the last perhaps fewer
//! change         byte_count, a bit a piece (1: the other side has it), the other pieces
//! ```
//!
//! The first piece holds the frame's checksum, so it is one of the others whenever anything changed.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// Bytes of a piece: so few that an item that is new costs little, so many that their digests are 0.2 % of a filter.
pub(crate) const PIECE_BYTES: usize = 4096;

/// Bytes of a piece's digest: a piece that changed has the same by chance with 2^-64.
pub(crate) const DIGEST_BYTES: usize = 8;

/// The first bytes of a piece's BLAKE3 hash.
fn digest_of(piece: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&blake3::hash(piece).as_bytes()[..DIGEST_BYTES]);
    digest
}

/// What somebody has of a shard's frames.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FrameDigests {
    /// Of how many pieces each frame is, in the order of frames.
    pub(crate) piece_counts: Vec<u32>,
    /// The digests of all their pieces, one after the other; those that are missing are of pieces that
    /// are not known.
    pub(crate) digests: Bytes,
}

/// A frame as it is sent to somebody who may have an earlier one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ExportedFrame {
    /// Its bytes.
    Whole(Bytes),
    /// How it differs from the one that is known at its place.
    Change(FrameChange),
}

/// A frame without what is known of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FrameChange {
    /// Bytes of the frame.
    pub(crate) byte_count: u32,
    /// Which pieces are known: bit i mod 8 of byte i / 8.
    pub(crate) kept: Bytes,
    /// The others.
    pub(crate) others: Bytes,
}

impl ExportedFrame {
    /// The bytes of the frame that travel.
    pub(crate) const fn sent(&self) -> &Bytes {
        match self {
            Self::Whole(frame) => frame,
            Self::Change(change) => &change.others,
        }
    }
}

/// What whoever asked has of the frames that are to come, in their order.
#[derive(Debug, Default)]
pub(crate) struct Known {
    piece_counts: std::vec::IntoIter<u32>,
    digests: Bytes,
}

impl Known {
    pub(crate) fn new(known: FrameDigests) -> Self {
        let FrameDigests { piece_counts, digests } = known;
        Self { piece_counts: piece_counts.into_iter(), digests }
    }

    /// The next frame, without the pieces that are known.
    pub(crate) fn leave_out(&mut self, frame: Bytes) -> ExportedFrame {
        let Some(piece_count) = self.piece_counts.next() else {
            return ExportedFrame::Whole(frame);
        };
        let known_bytes = (piece_count as usize).saturating_mul(DIGEST_BYTES);
        let known = self.digests.split_to(known_bytes.min(self.digests.len()));
        let pieces = frame.chunks(PIECE_BYTES);
        let mut kept = vec![0_u8; pieces.len().div_ceil(8)];
        let mut others = BytesMut::new();
        let (mut known, mut is_any_known) = (known.chunks_exact(DIGEST_BYTES), false);
        for (at, piece) in pieces.enumerate() {
            if known.next() == Some(&digest_of(piece)[..]) {
                kept[at / 8] |= 1 << (at % 8);
                is_any_known = true;
            } else {
                others.extend_from_slice(piece);
            }
        }
        match u32::try_from(frame.len()) {
            Ok(byte_count) if is_any_known => ExportedFrame::Change(FrameChange {
                byte_count,
                kept: kept.into(),
                others: others.freeze(),
            }),
            _ => ExportedFrame::Whole(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digests(frames: &[&[u8]]) -> FrameDigests {
        let piece_counts =
            frames.iter().map(|frame| u32::try_from(frame.len().div_ceil(PIECE_BYTES)).unwrap());
        let digests = frames.iter().flat_map(|frame| frame.chunks(PIECE_BYTES)).map(digest_of);
        FrameDigests {
            piece_counts: piece_counts.collect(),
            digests: digests.flatten().collect::<Vec<u8>>().into(),
        }
    }

    /// As the other side does it.
    fn put_together(base: &[u8], change: &FrameChange) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut others = &change.others[..];
        let byte_count = change.byte_count as usize;
        for at in 0..byte_count.div_ceil(PIECE_BYTES) {
            let start = at * PIECE_BYTES;
            let length = PIECE_BYTES.min(byte_count - start);
            if change.kept[at / 8] >> (at % 8) & 1 == 1 {
                frame.extend_from_slice(&base[start..start + length]);
            } else {
                let (piece, rest) = others.split_at(length);
                frame.extend_from_slice(piece);
                others = rest;
            }
        }
        assert!(others.is_empty());
        frame
    }

    #[test]
    fn one_byte_costs_one_piece() {
        let base = Bytes::from(vec![7; 10 * PIECE_BYTES + 3]);
        let mut changed = base.to_vec();
        changed[5 * PIECE_BYTES] = 8;
        let mut known = Known::new(digests(&[&base, &base]));
        let ExportedFrame::Change(same) = known.leave_out(base.clone()) else { panic!() };
        assert!(same.others.is_empty() && same.kept[..] == [255, 0b111]);
        let ExportedFrame::Change(change) = known.leave_out(changed.clone().into()) else {
            panic!()
        };
        assert_eq!(
            (change.others.len(), &change.kept[..]),
            (PIECE_BYTES, &[0b1101_1111, 0b111][..])
        );
        assert_eq!(put_together(&base, &change), changed);
        // Nothing is known of a third one.
        assert_eq!(known.leave_out(base.clone()), ExportedFrame::Whole(base));
    }

    proptest! {
        /// Whatever was there before, what comes out is the frame.
        #[test]
        fn a_change_makes_the_frame(
            base in prop::collection::vec(0_u8..2, 0..4 * PIECE_BYTES),
            cut in 0..4 * PIECE_BYTES,
            flips in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            more in prop::collection::vec(0_u8..2, 0..PIECE_BYTES),
        ) {
            let mut frame = base.clone();
            frame.truncate(cut);
            frame.extend(more);
            if !frame.is_empty() {
                flips.iter().for_each(|flip| *flip.get_mut(&mut frame) ^= 1);
            }
            let mut known = Known::new(digests(&[&base]));
            match known.leave_out(frame.clone().into()) {
                ExportedFrame::Whole(whole) => prop_assert_eq!(whole, frame),
                ExportedFrame::Change(change) => {
                    prop_assert!(change.others.len() < frame.len());
                    prop_assert_eq!(put_together(&base, &change), frame);
                }
            }
        }
    }
}
