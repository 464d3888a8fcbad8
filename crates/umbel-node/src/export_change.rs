//! Differences between exported frames and those of an earlier export.
//!
//! Frames of arrays are always cut at the same blocks, and most of them contain plain words. So a
//! change of the filter changes pieces of frames and leaves the other pieces in place. The exporting
//! node keeps no state for that: the caller, which has the earlier frames, sends digests of their
//! pieces.
//!
//! ```text
//! frame          │ piece 0 │ piece 1 │ … │ last piece │      4,096 bytes each, the last perhaps fewer
//! change         byte_count, a bit a piece (1: the other side has it), the other pieces
//! ```
//!
//! The first piece contains the frame's checksum, so it is never a kept piece if anything changed.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// Bytes of a piece: so few that a new item costs little, so many that the digests are 0.2 % of a
/// filter.
const PIECE_BYTES: usize = 4096;

/// First bytes of an export file.
pub const EXPORT_FILE_MAGIC: [u8; 8] = *b"UMBLEXP1";

/// Bytes of a piece's digest: a changed piece has the same digest by chance with probability 2^-64.
pub const DIGEST_BYTES: usize = 8;

/// The first bytes of a piece's BLAKE3 hash.
fn digest_of(piece: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&blake3::hash(piece).as_bytes()[..DIGEST_BYTES]);
    digest
}

/// The concatenated digests of a frame's pieces.
///
/// ```
/// use umbel_node::export_change::{DIGEST_BYTES, piece_digests};
///
/// // Two pieces of 4,096 bytes and one of a byte.
/// let digests = piece_digests(&[7; 8_193]);
/// assert_eq!(digests.len(), 3 * DIGEST_BYTES);
/// assert_eq!(digests[..8], digests[8..16]);
/// ```
#[must_use]
pub fn piece_digests(frame: &[u8]) -> Vec<u8> {
    frame.chunks(PIECE_BYTES).flat_map(digest_of).collect()
}

/// Digests of the frames of a shard that the caller has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FrameDigests {
    /// Number of pieces of each frame, in the order of the frames.
    pub piece_counts: Vec<u32>,
    /// The concatenated digests of all their pieces; missing ones at the end belong to unknown pieces.
    pub digests: Bytes,
}

/// A frame as sent to a caller that may have an earlier one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ExportedFrame {
    /// The bytes of the frame.
    Whole(Bytes),
    /// The difference from the known frame at the same position.
    Change(FrameChange),
}

/// A frame without its known pieces.
///
/// ```
/// use umbel_node::export_change::FrameChange;
///
/// // Of two pieces the first is known, and the second is of two bytes.
/// let (kept, others) = (vec![0b01].into(), b"cd".to_vec().into());
/// let change = FrameChange { byte_count: 4_098, kept, others };
/// let frame = change.put_together(&[b'a'; 5_000])?;
/// assert_eq!((frame.len(), &frame[4_095..]), (4_098, &b"acd"[..]));
/// assert!(change.put_together(b"").is_err());
/// # Ok::<(), umbel_node::export_change::FrameChangeError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FrameChange {
    /// Length of the frame in bytes.
    pub byte_count: u32,
    /// Which pieces are known: bit i mod 8 of byte i / 8.
    pub kept: Bytes,
    /// The bytes of the other pieces.
    pub others: Bytes,
}

/// A change belongs to another earlier frame. Nothing was produced; request the whole frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameChangeError {
    /// The earlier frame lacks a kept piece.
    #[error("the earlier frame lacks piece {at}")]
    NotKnown {
        /// The number of the piece.
        at: usize,
    },
    /// The bytes of the other pieces are incomplete.
    #[error("piece {at} did not come")]
    Missing {
        /// The number of the first missing piece.
        at: usize,
    },
    /// There are bytes after the last piece.
    #[error("{byte_count} bytes came behind the last piece")]
    TooMany {
        /// The number of extra bytes.
        byte_count: usize,
    },
}

impl FrameChange {
    /// Restores the frame from the earlier one whose digests were sent. Allocates memory for existing
    /// bytes, not for the announced length.
    ///
    /// # Errors
    /// If the change was made for another frame.
    pub fn put_together(&self, earlier: &[u8]) -> Result<Vec<u8>, FrameChangeError> {
        let byte_count = usize::try_from(self.byte_count).unwrap_or(usize::MAX);
        let mut others = &self.others[..];
        let mut frame = Vec::new();
        while frame.len() < byte_count {
            let (start, at) = (frame.len(), frame.len() / PIECE_BYTES);
            let length = PIECE_BYTES.min(byte_count - start);
            let is_kept = self.kept.get(at / 8).is_some_and(|bits| bits >> (at % 8) & 1 == 1);
            let piece = if is_kept {
                earlier.get(start..start + length).ok_or(FrameChangeError::NotKnown { at })
            } else {
                others.split_off(..length).ok_or(FrameChangeError::Missing { at })
            };
            frame.extend_from_slice(piece?);
        }
        match others.len() {
            0 => Ok(frame),
            byte_count => Err(FrameChangeError::TooMany { byte_count }),
        }
    }
}

impl ExportedFrame {
    /// The bytes of the frame that are sent.
    pub const fn sent(&self) -> &Bytes {
        match self {
            Self::Whole(frame) => frame,
            Self::Change(change) => &change.others,
        }
    }
}

/// The caller's digests of the frames to come, in order.
#[derive(Debug, Default)]
pub struct Known {
    piece_counts: std::vec::IntoIter<u32>,
    digests: Bytes,
}

impl Known {
    /// Of a receiver that has the frames with these digests.
    pub fn new(known: FrameDigests) -> Self {
        let FrameDigests { piece_counts, digests } = known;
        Self { piece_counts: piece_counts.into_iter(), digests }
    }

    /// The next frame, without the known pieces.
    pub fn leave_out(&mut self, frame: Bytes) -> ExportedFrame {
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
        let digests: Vec<Vec<u8>> = frames.iter().map(|frame| piece_digests(frame)).collect();
        let count = |digests: &Vec<u8>| u32::try_from(digests.len() / DIGEST_BYTES).unwrap();
        let piece_counts = digests.iter().map(count).collect();
        FrameDigests { piece_counts, digests: digests.concat().into() }
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
        assert_eq!(change.put_together(&base), Ok(changed));
        // The third frame is unknown.
        assert_eq!(known.leave_out(base.clone()), ExportedFrame::Whole(base));
    }

    #[test]
    fn what_is_of_another_frame_is_refused() {
        let base = vec![1; 2 * PIECE_BYTES + 5];
        let others = [vec![2; PIECE_BYTES], vec![3; 2]].concat();
        let byte_count = u32::try_from(2 * PIECE_BYTES + 2).unwrap();
        let change = |kept: u8, others: &[u8]| FrameChange {
            byte_count,
            kept: vec![kept].into(),
            others: others.to_vec().into(),
        };
        let expected = [vec![2; PIECE_BYTES], vec![1; PIECE_BYTES], vec![3; 2]].concat();
        assert_eq!(change(0b010, &others).put_together(&base), Ok(expected));
        for (kept, others, error) in [
            (0b010, &others[1..], FrameChangeError::Missing { at: 2 }),
            (0b110, &others[..], FrameChangeError::TooMany { byte_count: 2 }),
            (0b000, &others[..], FrameChangeError::Missing { at: 1 }),
        ] {
            assert_eq!(change(kept, others).put_together(&base), Err(error));
        }
        let lacking = change(0b010, &others).put_together(&base[..PIECE_BYTES]);
        assert_eq!(lacking, Err(FrameChangeError::NotKnown { at: 1 }));
        // A length that no message can have causes no large allocation.
        let absurd = FrameChange { byte_count: u32::MAX, ..change(0, &[]) };
        assert_eq!(absurd.put_together(&base), Err(FrameChangeError::Missing { at: 0 }));
    }

    proptest! {
        /// Whatever the earlier frame was, the result is the new frame.
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
                    prop_assert_eq!(change.put_together(&base), Ok(frame));
                }
            }
        }
    }
}
