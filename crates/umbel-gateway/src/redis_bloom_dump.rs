//! RedisBloom's dumps: converts between the pieces that its servers exchange and the frames of an
//! export.
//!
//! ```text
//! dump      (1, header) (i₁, bytes) (i₂, bytes) …      iₙ = 1 + bytes of all pieces up to this one
//! export    header  frame  frame  frame …  end         the same lines, and the settings that the header stands for
//! ```
//!
//! A piece never spans two links. Incoming pieces have whatever size the sender chose; frames are as
//! large as those of an export. Only incomplete frames or pieces are kept in memory.

use bytes::Bytes;
use thiserror::Error;
use umbel_codec::{
    Crc32c, FrameError, FrameMergeError, FrameView, RedisBloomPart, redis_bloom_frame,
};
use umbel_coordinator::transfers::exported_chain;
use umbel_filter::{RedisBloomHeader, RedisBloomHeaderError};
use umbel_node::limits::EXPORT_FRAME_PAYLOAD_BYTES_MAX;

/// Bytes of a link in one frame: whole lines.
const PART_BYTES: usize = EXPORT_FRAME_PAYLOAD_BYTES_MAX;

/// Bytes of a line.
const LINE_BYTES: usize = 64;

/// Bytes of a word.
const WORD_BYTES: usize = 8;

/// Why a piece was refused. None of it was used; start again with the header.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum DumpPieceError {
    /// The first piece is not the header of a supported filter.
    #[error(transparent)]
    Header(#[from] RedisBloomHeaderError),
    /// The iterator must be greater than the number of the piece's bytes, and is not.
    #[error("iterator {iterator} of a piece of {byte_count} bytes")]
    Iterator {
        /// The iterator that came with the piece.
        iterator: i64,
        /// Bytes of the piece.
        byte_count: usize,
    },
    /// The piece begins after the last byte of the last link.
    #[error("the piece begins at byte {start}, but the filter has {data_bytes}")]
    NoLink {
        /// Offset at which the piece begins.
        start: u64,
        /// Bytes of all links.
        data_bytes: u64,
    },
    /// The piece ends after the end of the link in which it begins.
    #[error("the piece has {byte_count} bytes, but its link has {left} left")]
    TooLarge {
        /// Bytes of the piece.
        byte_count: usize,
        /// Bytes of the link from the piece's first byte on.
        left: u64,
    },
    /// An earlier piece is missing, or this one is a repetition.
    #[error("the piece begins at byte {start}, expected {expected}")]
    Order {
        /// Offset at which the piece begins.
        start: u64,
        /// Offset at which the next piece must begin.
        expected: u64,
    },
    /// The frame cannot be made: a bug.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Reads the pieces of a dump in order, and makes frames from them.
///
/// ```
/// use umbel_filter::{RedisBloomHeader, RedisBloomShape};
/// use umbel_gateway::redis_bloom_dump::{DumpReader, DumpWriter};
///
/// let header = RedisBloomHeader::new(RedisBloomShape::for_rate(10, 0.01)?, 1)?;
/// let mut reader = DumpReader::new(&header.to_bytes())?;
/// let mut bytes = [0; 16];
/// bytes[3] = 7;
/// let frames = reader.push(17, &bytes)?;
/// assert!(reader.is_complete());
///
/// let mut writer = DumpWriter::default();
/// writer.push(&frames[0])?;
/// assert_eq!(writer.header(), Some(&header));
/// assert_eq!(writer.next_piece(1 << 20), Some((17, bytes.to_vec())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DumpReader {
    header: RedisBloomHeader,
    /// Bytes received.
    taken: u64,
    /// Begin and end of the last piece.
    last: Option<(u64, u64)>,
    /// The current link, the number of its bytes that are in frames, and the bytes received after
    /// those.
    link: usize,
    framed: u64,
    rest: Vec<u8>,
    frame_count: u64,
    checksum: Crc32c,
}

impl DumpReader {
    /// Starts with the first piece, whose iterator is 1.
    ///
    /// # Errors
    /// If it is not the header of a supported filter.
    pub fn new(header: &[u8]) -> Result<Self, DumpPieceError> {
        RedisBloomHeader::parse(header).map(Self::of).map_err(DumpPieceError::Header)
    }

    /// Starts with a header.
    #[must_use]
    pub fn of(header: RedisBloomHeader) -> Self {
        Self {
            header,
            taken: 0,
            last: None,
            link: 0,
            framed: 0,
            rest: Vec::new(),
            frame_count: 0,
            checksum: Crc32c::default(),
        }
    }

    /// The filter's header.
    #[must_use]
    pub const fn header(&self) -> &RedisBloomHeader {
        &self.header
    }

    /// The filter's settings, as at the beginning of an export.
    #[must_use]
    pub fn settings(&self) -> Bytes {
        exported_chain(self.header.shape())
    }

    /// Reads the next piece, and returns the frames that it completes. The last piece may be repeated.
    ///
    /// # Errors
    /// If it is not the next piece, or not a piece of this filter.
    pub fn push(&mut self, iterator: i64, data: &[u8]) -> Result<Vec<Bytes>, DumpPieceError> {
        let byte_count = data.len();
        let end = u64::try_from(iterator).ok().and_then(|iterator| iterator.checked_sub(1));
        let start = end.and_then(|end| end.checked_sub(byte_count as u64));
        let Some((start, end)) = start.zip(end) else {
            return Err(DumpPieceError::Iterator { iterator, byte_count });
        };
        if self.last == Some((start, end)) {
            return Ok(Vec::new());
        }
        let data_bytes = self.header.data_bytes();
        if start >= data_bytes {
            return Err(DumpPieceError::NoLink { start, data_bytes });
        }
        if start != self.taken {
            return Err(DumpPieceError::Order { start, expected: self.taken });
        }
        let left = self.link_bytes() - self.framed - self.rest.len() as u64;
        if byte_count as u64 > left {
            return Err(DumpPieceError::TooLarge { byte_count, left });
        }
        self.rest.extend_from_slice(data);
        (self.taken, self.last) = (end, Some((start, end)));
        self.frames()
    }

    /// Whether all pieces have been read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.taken == self.header.data_bytes()
    }

    /// Number of frames and their checksum, as at the end of an export.
    #[must_use]
    pub fn end(&self) -> (u64, u32) {
        (self.frame_count, self.checksum.value())
    }

    fn link_bytes(&self) -> u64 {
        self.header.links().get(self.link).map_or(0, |link| link.byte_count())
    }

    /// The complete frames of the current link.
    fn frames(&mut self) -> Result<Vec<Bytes>, DumpPieceError> {
        let mut frames = Vec::new();
        loop {
            let ends = self.framed + self.rest.len() as u64 == self.link_bytes();
            if self.rest.is_empty() || (self.rest.len() < PART_BYTES && !ends) {
                return Ok(frames);
            }
            let behind = self.rest.split_off(self.rest.len().min(PART_BYTES));
            let mut part = std::mem::replace(&mut self.rest, behind);
            let first_line = self.framed / LINE_BYTES as u64;
            self.framed += part.len() as u64;
            part.resize(part.len().next_multiple_of(LINE_BYTES), 0);
            let words = part.as_chunks::<WORD_BYTES>().0.iter();
            let words: Vec<u64> = words.map(|&bytes| u64::from_le_bytes(bytes)).collect();
            let frame =
                Bytes::from(redis_bloom_frame(&self.header, self.link, first_line, &words)?);
            self.frame_count += 1;
            self.checksum.update(&frame);
            frames.push(frame);
            if self.framed == self.link_bytes() {
                (self.link, self.framed) = (self.link + 1, 0);
            }
        }
    }
}

/// Why frames cannot become a dump. The sender sent a copy of another filter, or used another order.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The frame is not from a RedisBloom filter.
    #[error(transparent)]
    Part(#[from] FrameMergeError),
    /// The numbers in the frame do not belong to a valid filter.
    #[error(transparent)]
    Header(#[from] RedisBloomHeaderError),
    /// The frame is not the filter's next one.
    #[error(
        "a frame of link {link} from line {line} on, expected link {expected_link} from {expected_line} on"
    )]
    Order {
        /// The frame's link.
        link: u32,
        /// The frame's first line.
        line: u64,
        /// The link that is expected next.
        expected_link: usize,
        /// The line that is expected next.
        expected_line: u64,
    },
}

/// Reads the frames of an export in order, and makes the pieces of a dump from them.
#[derive(Debug, Default)]
pub struct DumpWriter {
    header: Option<RedisBloomHeader>,
    /// The link and line that are expected next.
    link: usize,
    line: u64,
    /// Bytes that were returned in pieces.
    given: u64,
    /// The bytes after those.
    ahead: Vec<u8>,
}

impl DumpWriter {
    /// Reads a frame.
    ///
    /// # Errors
    /// If it is not a RedisBloom frame, or not the next one.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), DumpError> {
        let part = FrameView::parse(frame)?.0.to_redis_bloom_part()?;
        let RedisBloomPart { shape, item_count, link, first_line, words } = part;
        let header = match &self.header {
            Some(header) => header,
            None => self.header.insert(RedisBloomHeader::new(shape, item_count)?),
        };
        let is_next = link as usize == self.link && first_line == self.line;
        let is_alike = (header.shape(), header.item_count()) == (shape, item_count);
        let Some(link_shape) = header.links().get(self.link).filter(|_| is_next && is_alike) else {
            let (expected_link, expected_line) = (self.link, self.line);
            return Err(DumpError::Order { link, line: first_line, expected_link, expected_line });
        };
        let left = link_shape.byte_count() - self.line * LINE_BYTES as u64;
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        self.ahead.extend(bytes.take(usize::try_from(left).unwrap_or(usize::MAX)));
        self.line += (words.len() * WORD_BYTES / LINE_BYTES) as u64;
        if self.line * LINE_BYTES as u64 >= link_shape.byte_count() {
            (self.link, self.line) = (self.link + 1, 0);
        }
        Ok(())
    }

    /// The filter's header, once the first frame was read: the first piece of its dump, whose iterator
    /// is 1.
    #[must_use]
    pub const fn header(&self) -> Option<&RedisBloomHeader> {
        self.header.as_ref()
    }

    /// Bytes that were returned in pieces.
    #[must_use]
    pub const fn given_bytes(&self) -> u64 {
        self.given
    }

    /// Whether all frames have been read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.header.as_ref().is_some_and(|header| self.link == header.links().len())
    }

    /// The next piece of at most `byte_count_max` bytes, and its iterator; None if more frames are
    /// needed first, or none is left.
    pub fn next_piece(&mut self, byte_count_max: usize) -> Option<(i64, Vec<u8>)> {
        let mut end = 0_u64;
        let ends = self.header.as_ref()?.links().iter().map(|link| {
            end += link.byte_count();
            end
        });
        let link_end = { ends }.find(|&end| end > self.given)?;
        let left = usize::try_from(link_end - self.given).unwrap_or(usize::MAX);
        let byte_count = left.min(byte_count_max);
        if byte_count == 0 || self.ahead.len() < byte_count {
            return None;
        }
        let behind = self.ahead.split_off(byte_count);
        let piece = std::mem::replace(&mut self.ahead, behind);
        self.given += byte_count as u64;
        // A filter has at most 256 MiB.
        Some((i64::try_from(self.given + 1).unwrap_or(i64::MAX), piece))
    }

    /// Skips up to `byte_count` bytes that were read but not returned yet; returns how many were
    /// skipped.
    pub fn skip(&mut self, byte_count: u64) -> u64 {
        let count = usize::try_from(byte_count).unwrap_or(usize::MAX).min(self.ahead.len());
        self.ahead.drain(..count);
        self.given += count as u64;
        count as u64
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use umbel_codec::{REDIS_BLOOM_KEY, frames};
    use umbel_filter::{Insert, ItemHasher, RedisBloom, RedisBloomShape};

    use super::*;

    /// Filters with links of 16, 32, 72 and 160 bytes, and one of some megabytes.
    pub(crate) fn filters() -> Vec<RedisBloom> {
        let with = |shape: RedisBloomShape, count: u32| {
            let mut filter = RedisBloom::with_shape(shape).unwrap();
            for number in 0..count {
                filter.insert(ItemHasher::RedisBloom.hash(&number.to_le_bytes())).unwrap();
            }
            filter
        };
        vec![
            with(RedisBloomShape::for_rate(10, 0.01).unwrap(), 100),
            with(RedisBloomShape::for_rate(10, 0.01).unwrap(), 0),
            with(RedisBloomShape::new(2_000_000, 0.001, 2).unwrap().fixed(), 1_000),
        ]
    }

    fn dump(filter: &RedisBloom, frame_bytes: usize, piece_bytes: usize) -> Vec<(i64, Vec<u8>)> {
        let mut writer = DumpWriter::default();
        let mut pieces = Vec::new();
        for frame in frames(filter, REDIS_BLOOM_KEY, frame_bytes) {
            writer.push(&frame.unwrap()).unwrap();
            pieces.extend(std::iter::from_fn(|| writer.next_piece(piece_bytes)));
        }
        assert!(writer.is_complete() && writer.next_piece(piece_bytes).is_none());
        let header = writer.header().unwrap().to_bytes();
        [vec![(1, header)], pieces].concat()
    }

    #[test]
    fn a_dump_is_the_arrays_and_comes_back() {
        for filter in filters() {
            let arrays: Vec<u8> = filter
                .links()
                .iter()
                .flat_map(|link| {
                    let bytes = link.words().iter().flat_map(|word| word.to_le_bytes());
                    bytes.take(usize::try_from(link.shape().byte_count()).unwrap())
                })
                .collect();
            for (frame_bytes, piece_bytes) in [(1 << 20, 1 << 24), (128, 24), (1 << 16, 100_000)] {
                let small = filter.memory_bytes() < 10_000;
                if !small && piece_bytes == 24 {
                    continue;
                }
                let pieces = dump(&filter, frame_bytes, piece_bytes);
                let data: Vec<u8> =
                    pieces[1..].iter().flat_map(|(_, piece)| piece.clone()).collect();
                assert!(data == arrays);
                assert_eq!(pieces.last().unwrap().0, i64::try_from(data.len()).unwrap() + 1);

                let mut reader = DumpReader::new(&pieces[0].1).unwrap();
                let mut back = RedisBloom::with_shape(reader.header().shape()).unwrap();
                for (iterator, piece) in &pieces[1..] {
                    assert!(!reader.is_complete());
                    for frame in reader.push(*iterator, piece).unwrap() {
                        let view = FrameView::parse(&frame).unwrap().0;
                        view.merge_into(&mut back, REDIS_BLOOM_KEY).unwrap();
                    }
                    assert_eq!(reader.push(*iterator, piece), Ok(Vec::new()), "it came again");
                }
                assert!(reader.is_complete() && back == filter);
            }
        }
    }

    #[test]
    fn pieces_that_do_not_fit_are_refused_as_redis_bloom_refuses_them() {
        let pieces = dump(&filters()[0], 1 << 20, 1 << 20);
        let sizes: Vec<usize> = pieces.iter().map(|(_, piece)| piece.len()).collect();
        assert_eq!(sizes, [232, 16, 32, 72, 160]);
        let mut reader = DumpReader::new(&pieces[0].1).unwrap();
        for (iterator, byte_count) in [(0, 0), (-1, 0), (i64::MIN, 8), (8, 8), (5, 16)] {
            let refused = reader.push(iterator, &vec![0; byte_count]);
            assert_eq!(refused, Err(DumpPieceError::Iterator { iterator, byte_count }));
        }
        let beyond = Err(DumpPieceError::NoLink { start: 280, data_bytes: 280 });
        assert_eq!(reader.push(289, &[0; 8]), beyond);
        let large = Err(DumpPieceError::TooLarge { byte_count: 24, left: 16 });
        assert_eq!(reader.push(25, &[0; 24]), large);
        let early = Err(DumpPieceError::Order { start: 16, expected: 0 });
        assert_eq!(reader.push(49, &[0; 32]), early);
        assert_eq!(reader.push(17, &[0; 16]).map(|frames| frames.len()), Ok(1));
        assert!(matches!(DumpReader::new(&pieces[0].1[1..]), Err(DumpPieceError::Header(_))));
    }

    #[test]
    fn frames_in_another_order_are_no_dump() {
        let filter = &filters()[0];
        let all: Vec<Vec<u8>> = frames(filter, REDIS_BLOOM_KEY, 128).map(Result::unwrap).collect();
        let mut writer = DumpWriter::default();
        assert!(matches!(writer.push(&all[1]), Err(DumpError::Order { .. })));
        writer.push(&all[0]).unwrap();
        assert!(matches!(writer.push(&all[0]), Err(DumpError::Order { .. })));
        assert!(matches!(writer.push(&all[0][1..]), Err(DumpError::Frame(_))));
        let blocked = umbel_filter::Blocked::new(umbel_filter::HashRange::WHOLE, 4, 6).unwrap();
        let other = frames(&blocked, REDIS_BLOOM_KEY, 1 << 20).next().unwrap().unwrap();
        assert!(matches!(writer.push(&other), Err(DumpError::Part(_))));
        assert_eq!(writer.skip(5), 5);
        assert_eq!(writer.next_piece(100).unwrap().0, 17);
    }
}
