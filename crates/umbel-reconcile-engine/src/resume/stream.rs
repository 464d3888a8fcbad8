//! The bytes of one direction: their number, their hash, and their end.

use std::collections::VecDeque;

use umbel_filter::ItemHasher;

use super::{ResumeError, ResumeVerdict};
use crate::error::SessionFrameError;
use crate::limits::RESUME_TAIL_BYTES_MAX;
use crate::wire::{Reader, put_varint};

/// Bytes that are hashed at once, together with the hash of all bytes before them. This bounds the state of
/// an unfinished hash.
const BLOCK_BYTES: usize = 4 << 10;

/// Detects that two streams differ, but not forgery: a session succeeds only by its own keyed digests.
const HASHER: ItemHasher = ItemHasher::Xxh3 { seed: 0x7265_7375_6d65_0001 };

/// How many bytes a side has of the other's stream, and their hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamMark {
    /// Number of bytes.
    pub bytes: u64,
    /// Hash of all of them; 0 if there are none.
    pub hash: u128,
}

impl StreamMark {
    /// The mark of a stream that has not begun.
    pub const START: Self = Self { bytes: 0, hash: 0 };
}

/// Computes [`StreamMark`]s of a stream that arrives in pieces, split anywhere.
///
/// ```
/// use umbel_reconcile_engine::StreamHash;
///
/// let (mut whole, mut pieces) = (StreamHash::default(), StreamHash::default());
/// whole.update(b"one and two");
/// pieces.update(b"one");
/// pieces.update(b" and two");
/// assert_eq!(whole.mark(), pieces.mark());
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StreamHash {
    bytes: u64,
    /// Hash of all complete blocks.
    chain: u128,
    /// Bytes after the last complete block.
    block: Vec<u8>,
}

impl StreamHash {
    /// Appends the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = BLOCK_BYTES - self.block.len();
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.block.extend_from_slice(now);
            rest = later;
            if self.block.len() == BLOCK_BYTES {
                self.chain = self.with_block();
                self.block.clear();
            }
        }
    }

    /// Count and hash of all bytes so far.
    #[must_use]
    pub fn mark(&self) -> StreamMark {
        match self.bytes {
            0 => StreamMark::START,
            bytes => StreamMark { bytes, hash: self.with_block() },
        }
    }

    pub(super) const fn mark_bytes(&self) -> u64 {
        self.bytes
    }

    fn with_block(&self) -> u128 {
        let mut hash = HASHER.running();
        hash.update(&self.chain.to_le_bytes());
        hash.update(&self.block);
        let hash = hash.finish();
        u128::from(hash.hi()) << 64 | u128::from(hash.lo())
    }
}

/// The end of what a side sent: what it can still send when its set has changed and its session cannot be
/// replayed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StreamEnd {
    /// Hash of everything before the end.
    before: StreamHash,
    end: VecDeque<u8>,
}

impl StreamEnd {
    /// Appends the next sent bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.end.extend(bytes);
        let excess = self.end.len().saturating_sub(RESUME_TAIL_BYTES_MAX);
        if excess > 0 {
            let gone: Vec<u8> = self.end.drain(..excess).collect();
            self.before.update(&gone);
        }
    }

    /// The bytes that the other side lacks.
    ///
    /// # Errors
    /// [`ResumeVerdict::Changed`] if what it has is not of this stream, [`ResumeVerdict::Lost`] if it lacks
    /// more than is kept, or has more than was sent.
    pub fn behind(&self, theirs: StreamMark) -> Result<Vec<u8>, ResumeVerdict> {
        let known = theirs.bytes.checked_sub(self.before.bytes).ok_or(ResumeVerdict::Lost)?;
        let known = usize::try_from(known).map_err(|_| ResumeVerdict::Lost)?;
        if known > self.end.len() {
            return Err(ResumeVerdict::Lost);
        }
        let end: Vec<u8> = self.end.iter().copied().collect();
        let (has, lacks) = end.split_at(known);
        let mut hash = self.before.clone();
        hash.update(has);
        if hash.mark() == theirs { Ok(lacks.to_vec()) } else { Err(ResumeVerdict::Changed) }
    }

    /// The stored form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, self.before.bytes);
        bytes.extend_from_slice(&self.before.chain.to_le_bytes());
        put_varint(&mut bytes, self.before.block.len() as u64);
        bytes.extend_from_slice(&self.before.block);
        bytes.extend(&self.end);
        bytes
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ResumeError> {
        let mut reader = Reader::new(bytes);
        let read = |reader: &mut Reader<'_>| -> Result<Self, SessionFrameError> {
            let bytes = reader.varint("bytes")?;
            let chain = reader.u128("chain")?;
            let length = reader.varint_at_most("block length", BLOCK_BYTES as u64 - 1)?;
            let length = usize::try_from(length).unwrap_or(BLOCK_BYTES);
            let block = reader.bytes("block", length)?.to_vec();
            let is_whole = bytes % BLOCK_BYTES as u64 == block.len() as u64;
            let field = SessionFrameError::Field { field: "block length", got: block.len() as u64 };
            let end = reader.rest();
            if !is_whole || end.len() > RESUME_TAIL_BYTES_MAX {
                return Err(field);
            }
            let before = StreamHash { bytes, chain, block };
            Ok(Self { before, end: end.iter().copied().collect() })
        };
        read(&mut reader).map_err(|error| match error {
            SessionFrameError::Truncated { field } | SessionFrameError::Field { field, .. } => {
                ResumeError::Stored { field }
            }
            other => other.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn marks_do_not_depend_on_the_cuts(
            pieces in vec(vec(any::<u8>(), 0..3_000), 0..8), cut in 1..5_000usize,
        ) {
            let whole = pieces.concat();
            let (mut by_pieces, mut by_cuts) = (StreamHash::default(), StreamHash::default());
            pieces.iter().for_each(|piece| by_pieces.update(piece));
            whole.chunks(cut).for_each(|piece| by_cuts.update(piece));
            prop_assert_eq!(by_pieces.mark(), by_cuts.mark());
            prop_assert_eq!(by_pieces, by_cuts);
        }

        #[test]
        fn another_byte_is_another_mark(
            mut bytes in vec(any::<u8>(), 1..9_000), at: prop::sample::Index, flip in 1..=255u8,
        ) {
            let mut hash = StreamHash::default();
            hash.update(&bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let mut other = StreamHash::default();
            other.update(&bytes);
            prop_assert_ne!(hash.mark(), other.mark());
        }

        #[test]
        fn an_end_says_what_is_lacking(length in 0..200_000usize, has in 0..200_001usize) {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut end = StreamEnd::default();
            bytes.chunks(7_000).for_each(|piece| end.push(piece));
            let end = StreamEnd::from_bytes(&end.to_bytes()).unwrap();
            let mut hash = StreamHash::default();
            hash.update(&bytes[..has.min(length)]);
            let mark = StreamMark { bytes: has as u64, ..hash.mark() };
            let expected = if has > length || length - has > RESUME_TAIL_BYTES_MAX {
                Err(ResumeVerdict::Lost)
            } else {
                Ok(bytes[has..].to_vec())
            };
            prop_assert_eq!(end.behind(mark), expected);
            let other = StreamMark { hash: mark.hash ^ 1, ..mark };
            prop_assert!(end.behind(other).is_err());
        }

        #[test]
        fn stored_bytes_may_be_anything(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(end) = StreamEnd::from_bytes(&bytes) {
                prop_assert_eq!(end.to_bytes(), bytes);
            }
        }
    }
}
