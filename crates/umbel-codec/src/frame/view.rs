//! A frame where it lies: parsed and checked without allocation, then merged or unfolded.

use umbel_filter::words::count_ones;
use umbel_filter::{
    AnyFilter, BlockProbe, BlockShape, Blocked, HashRange, Kind, ScalableShape, Shape,
    ShapeMismatch, SingleShotShape, StoredSingleShot,
};

use super::content::{
    Codes, Content, bit_at, counter_at, counter_count, counters, or_word, set_run,
};
use super::encoding::Encoding;
use super::gap_code::GapCode;
use super::header::{Body, Header, check_single_shot_count};
use super::level::{
    FrameLevel, LEVEL_BYTES, PACING_BYTES, SLICES_BYTES, pacing_from_bytes, pacing_to_bytes,
    slices_from_bytes, slices_to_bytes,
};
use super::link::{FrameLink, LINK_BYTES, link_from_bytes, link_to_bytes};
use super::receiver::{FilterMut, Receiver};
use super::seal::seal;
use super::{CHECKED_HEADER_BYTES, FRAME_HEADER_BYTES, FrameKey};
use crate::checksum::crc32c;
use crate::error::{FrameError, FrameMergeError, PayloadError};
use crate::limits::{FRAME_FILTER_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX};

/// A frame in the bytes that it came in: its header is valid, its checksum right and the fixed part
/// of its payload valid. The codes are checked where they are used.
///
/// ```
/// use umbel_codec::{FrameKey, FrameView, frames};
/// use umbel_filter::{Blocked, HashFunction, HashRange, Insert, ItemHash};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
/// let mut theirs = Blocked::new(HashRange::WHOLE, 16, 6)?;
/// theirs.insert(ItemHash::new(1, 2))?;
///
/// let mut ours = Blocked::new(HashRange::WHOLE, 16, 6)?;
/// for frame in frames(&theirs, key, 1 << 20) {
///     let frame = frame?;
///     let (view, consumed_bytes) = FrameView::parse(&frame)?;
///     assert_eq!(consumed_bytes, frame.len());
///     assert_eq!(view.merge_into(&mut ours, key)?, 6);
/// }
/// assert_eq!(ours, theirs);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FrameView<'a> {
    pub(super) header: Header,
    pub(super) fixed: Fixed,
    pub(super) codes: Codes<'a>,
}

/// What a payload begins with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Fixed {
    Nothing,
    Level(FrameLevel, ScalableShape),
    Link(FrameLink),
    /// The oldest and the newest slice of a window.
    Slices(u64, u64),
    /// What a filter that forgets by what comes has counted.
    Counts([u64; 2]),
    /// Number of the part's first position, and the shape from the filter's start to the part's end.
    Part {
        first: u64,
        shape: SingleShotShape,
    },
}

impl<'a> FrameView<'a> {
    /// The frame at the beginning of `bytes`, and the number of bytes that it takes; more may
    /// follow. Allocates nothing.
    ///
    /// # Errors
    /// If the bytes end before the frame does, or are no frame that this release reads.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), FrameError> {
        let truncated = |needed| FrameError::Truncated { needed, available: bytes.len() };
        let Some(header) = Header::peek(bytes)? else {
            return Err(truncated(FRAME_HEADER_BYTES));
        };
        let total_bytes = FRAME_HEADER_BYTES + header.payload_bytes;
        let (Some(checked), Some(payload)) =
            (bytes.get(..CHECKED_HEADER_BYTES), bytes.get(FRAME_HEADER_BYTES..total_bytes))
        else {
            return Err(truncated(total_bytes));
        };
        let actual = crc32c(&[checked, payload]);
        if actual != header.checksum {
            return Err(FrameError::Checksum { expected: header.checksum, actual });
        }
        Ok((Self::open(header, payload)?, total_bytes))
    }

    /// Length in bytes of the frame at the beginning of `bytes`, or None if more bytes are needed
    /// to tell. For streams: read so many bytes, then [`parse`](Self::parse).
    ///
    /// # Errors
    /// If the bytes so far begin no frame that this release reads.
    pub fn total_bytes(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let header = Header::peek(bytes)?;
        Ok(header.map(|header| FRAME_HEADER_BYTES + header.payload_bytes))
    }

    /// Takes the fixed part off a payload.
    fn open(mut header: Header, payload: &'a [u8]) -> Result<Self, FrameError> {
        let Header { encoding, low_bits, count, .. } = header;
        let (fixed, bytes, end) = match (header.body, encoding.base()) {
            (Body::SingleShot(part), Encoding::Part) => {
                let (origin, bytes) = split_fixed::<8>(payload)?;
                let origin = u64::from_le_bytes(*origin);
                let (first, shape) = locate(part, origin)?;
                let width = shape.width() - first;
                check_single_shot_count(count, width)?;
                (Fixed::Part { first, shape }, bytes, width)
            }
            (Body::SingleShot(shape), _) => (Fixed::Nothing, payload, shape.width()),
            (Body::Level(shape), _) => {
                let (level, bytes) = split_fixed::<LEVEL_BYTES>(payload)?;
                let (level, scalable) = FrameLevel::parse(*level, shape.range())?;
                (Fixed::Level(level, scalable), bytes, shape.position_count())
            }
            (Body::Link(shape), _) => {
                let (link, bytes) = split_fixed::<LINK_BYTES>(payload)?;
                (Fixed::Link(link_from_bytes(*link)?), bytes, shape.position_count())
            }
            (Body::Blocks(shape), _) if shape.kind() == Kind::Window => {
                let (slices, bytes) = split_fixed::<SLICES_BYTES>(payload)?;
                let (oldest, newest) = slices_from_bytes(*slices);
                (Fixed::Slices(oldest, newest), bytes, shape.memory_bytes() * 8)
            }
            (Body::Blocks(shape), _) if shape.kind().has_pace() => {
                let (pacing, bytes) = split_fixed::<PACING_BYTES>(payload)?;
                let (pace, counts) = pacing_from_bytes(*pacing);
                let shape = shape.with_pace(pace).map_err(PayloadError::Pace)?;
                if shape.kind() == Kind::Stable && counts[1] != 0 {
                    return Err(PayloadError::Counts { counts }.into());
                }
                header.body = Body::Blocks(shape);
                (Fixed::Counts(counts), bytes, shape.position_count())
            }
            (Body::Blocks(shape), _) if matches!(shape.kind(), Kind::Cuckoo | Kind::Quotient) => {
                (Fixed::Nothing, payload, shape.memory_bytes() * 8)
            }
            (Body::Blocks(shape), Encoding::Probes) => (Fixed::Nothing, payload, shape.map().len()),
            (Body::Blocks(shape), _) => (Fixed::Nothing, payload, shape.position_count()),
        };
        let (code, bytes) = GapCode::split(encoding.is_ans(), low_bits, payload, bytes)?;
        Ok(Self { header, fixed, codes: Codes { bytes, code, count, end } })
    }

    /// The filter's kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.header.body.kind()
    }

    /// What the filter's items were hashed with.
    #[must_use]
    pub const fn key(&self) -> FrameKey {
        self.header.key
    }

    /// How the payload is written.
    #[must_use]
    pub const fn encoding(&self) -> Encoding {
        self.header.encoding
    }

    /// Number of codes in the payload; of positions that are set, if there are no codes.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.header.count
    }

    /// The hash range whose items the frame holds.
    #[must_use]
    pub const fn range(&self) -> HashRange {
        self.header.body.range()
    }

    /// Which level of a scalable filter, or link of RedisBloom's, the frame belongs to, or None for another kind.
    #[must_use]
    pub const fn level(&self) -> Option<FrameLevel> {
        match self.fixed {
            Fixed::Level(level, _) => Some(level),
            Fixed::Link(link) => Some(link.level()),
            _ => None,
        }
    }

    /// Shape of the frame's filter over the frame's hash range; a part of a single-shot filter has
    /// one from the filter's start to the part's end.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match (self.fixed, self.header.body) {
            (Fixed::Level(_, shape), _) => shape.into(),
            (Fixed::Link(link), _) => Shape::RedisBloom(link.shape),
            (Fixed::Part { shape, .. }, _) | (_, Body::SingleShot(shape)) => shape.into(),
            (_, Body::Blocks(shape) | Body::Level(shape) | Body::Link(shape)) => shape.into(),
        }
    }

    /// ORs the frame into a filter over the frame's hash range or a larger one, and returns how
    /// many positions it newly set. Frames of filters that count or forget are *loaded*: their blocks
    /// must be empty; those of scalable filters too, level by level
    /// ([`Scalable::level_to_load`](umbel_filter::Scalable::level_to_load)).
    ///
    /// Reads the payload twice, first to check it from end to end. Allocates nothing, but for
    /// single-shot filters, whose positions are a list, and the words of tables of fingerprints.
    ///
    /// # Errors
    /// If the frame's key is not `key`, the filter is of another shape, the level is not the next one, or
    /// the payload is not valid. Nothing was changed.
    pub fn merge_into<'f>(
        &self,
        filter: impl Into<FilterMut<'f>>,
        key: FrameKey,
    ) -> Result<u64, FrameMergeError> {
        let FilterMut(mut receiver) = filter.into();
        self.check_key(key)?;
        match (self.shape(), self.header.body) {
            (Shape::SingleShot(shape), _) => self.merge_positions(&mut receiver, shape),
            (_, Body::Blocks(shape)) => self.merge_blocks(&mut receiver, shape),
            (theirs, Body::Level(shape)) => match receiver {
                Receiver::Scalable(filter) => self.load_level(filter, shape),
                receiver => Err(ShapeMismatch { ours: receiver.shape(), theirs }.into()),
            },
            (theirs, Body::Link(shape)) => match receiver {
                Receiver::RedisBloom(filter) => self.load_link(filter, shape),
                receiver => Err(ShapeMismatch { ours: receiver.shape(), theirs }.into()),
            },
            (theirs, _) => Err(ShapeMismatch { ours: receiver.shape(), theirs }.into()),
        }
    }

    /// The frame's filter alone, over the range of [`shape`](Self::shape), as an array of its own;
    /// a frame of a scalable filter gives the slice of its level as a blocked filter, one of RedisBloom's the lines of
    /// its link as a classic one, which answers nothing.
    ///
    /// # Errors
    /// If the frame's key is not `key`, the payload is not valid, or the filter takes more than
    /// `filter_bytes_max` bytes of memory, or more than [`FRAME_FILTER_BYTES_MAX`].
    pub fn to_filter(
        &self,
        key: FrameKey,
        filter_bytes_max: u64,
    ) -> Result<AnyFilter, FrameMergeError> {
        let mut filter = match (self.shape(), self.header.body) {
            (_, Body::Blocks(shape) | Body::Level(shape) | Body::Link(shape)) => {
                check_filter_bytes(shape.memory_bytes(), filter_bytes_max)?;
                AnyFilter::with_block_shape(shape).map_err(FrameError::from)?
            }
            (Shape::SingleShot(shape), _) | (_, Body::SingleShot(shape)) => {
                check_list_bytes::<u64>(self.header.count, filter_bytes_max)?;
                StoredSingleShot::new(shape).into()
            }
        };
        match (&mut filter, self.header.body) {
            (AnyFilter::Blocked(filter), Body::Level(shape)) => {
                self.check_key(key)?;
                self.merge_blocks(&mut Receiver::Blocked(filter), shape)?;
            }
            (AnyFilter::Classic(filter), Body::Link(shape)) => {
                self.check_key(key)?;
                self.merge_blocks(&mut Receiver::Array(shape, filter.words_mut()), shape)?;
            }
            (filter, _) => {
                self.merge_into(filter, key)?;
            }
        }
        Ok(filter)
    }

    /// Merges a frame of a level, under a key that was checked, into the level's filter.
    pub(super) fn merge_level_into(&self, filter: &mut Blocked) -> Result<u64, FrameMergeError> {
        let (Body::Blocks(shape) | Body::Level(shape)) = self.header.body else {
            let (ours, theirs) = (filter.block_shape().into(), self.shape());
            return Err(ShapeMismatch { ours, theirs }.into());
        };
        self.merge_blocks(&mut Receiver::Blocked(filter), shape)
    }

    pub(super) fn merge_blocks(
        &self,
        receiver: &mut Receiver<'_>,
        part: BlockShape,
    ) -> Result<u64, FrameMergeError> {
        match (&mut *receiver, self.fixed) {
            (Receiver::Window(window), Fixed::Slices(oldest, newest)) => {
                let load = |words: &[u64]| window.load_part(part, (oldest, newest), words);
                return self.load_table(part, load);
            }
            (Receiver::Cuckoo(filter), _) => {
                return self.load_table(part, |words| filter.load_part(part, words));
            }
            (Receiver::Quotient(filter), _) => {
                return self.load_table(part, |words| filter.load_part(part, words));
            }
            _ => {}
        }
        let words = receiver.words_of(part)?;
        self.check_codes().map_err(FrameError::from)?;
        if part.kind() == Kind::Counting || part.kind().has_pace() {
            let position_count = if part.kind().has_counters() {
                counters(words).count() as u64
            } else {
                count_ones(words)
            };
            if position_count > 0 {
                return Err(FrameMergeError::NotEmpty { position_count });
            }
        }
        if self.header.encoding != Encoding::Probes {
            let new_count = self.or_into(part.kind(), words);
            if let (Receiver::Paced(_, _, ours), Fixed::Counts(theirs)) = (receiver, self.fixed) {
                // All frames of a filter say the same, and one that comes again says nothing new.
                ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = theirs.max(*ours));
            }
            return Ok(new_count);
        }
        let Receiver::Blocked(filter) = receiver else {
            return Err(ShapeMismatch { ours: receiver.shape(), theirs: part.into() }.into());
        };
        let mut new_count = 0;
        let insert = |probe| {
            let one = filter.insert_probes(part, std::iter::once(probe));
            new_count += one.expect("the part was located in the filter before");
        };
        self.codes.each_probe(insert).expect("checked before");
        Ok(new_count)
    }

    fn merge_positions(
        &self,
        receiver: &mut Receiver<'_>,
        shape: SingleShotShape,
    ) -> Result<u64, FrameMergeError> {
        receiver.check_positions(shape)?;
        self.check_codes().map_err(FrameError::from)?;
        Ok(receiver.merge_positions(self.positions()))
    }

    /// Checks the codes from end to end.
    pub(super) fn check_codes(&self) -> Result<(), PayloadError> {
        if let Body::Blocks(part) = self.header.body
            && part.kind().has_fingerprints()
        {
            return self.table_words(part).map(drop);
        }
        let counts_counters = self.kind().has_counters();
        match self.header.encoding.base() {
            Encoding::Raw => {
                let ones = if counts_counters { counter_count } else { u64::count_ones };
                let words = if counts_counters { self.codes.end / 16 } else { self.codes.end / 64 };
                self.codes.check_words(words, ones)
            }
            Encoding::Probes => self.codes.each_probe(|_| ()),
            Encoding::Gaps if counts_counters => self.codes.each_counter(|_, _| ()),
            _ => self.codes.each_index(|_| ()),
        }
    }

    /// ORs an array's codes, which were checked, into the words of its blocks.
    fn or_into(&self, kind: Kind, words: &mut [u64]) -> u64 {
        let mut new_count = 0;
        let outcome = match self.header.encoding.base() {
            Encoding::Raw if kind.has_counters() => {
                words.iter_mut().zip(self.codes.each_word()).for_each(|(ours, theirs)| {
                    new_count += u64::from(counter_count(theirs));
                    *ours = theirs;
                });
                Ok(())
            }
            Encoding::Raw => {
                words.iter_mut().zip(self.codes.each_word()).for_each(|(ours, theirs)| {
                    new_count += u64::from((theirs & !*ours).count_ones());
                    *ours |= theirs;
                });
                Ok(())
            }
            Encoding::Holes => {
                let mut from = 0;
                let outcome = self.codes.each_index(|zero| {
                    new_count += set_run(words, from, zero);
                    from = zero + 1;
                });
                new_count += set_run(words, from, self.codes.end);
                outcome
            }
            _ if kind.has_counters() => self.codes.each_counter(|position, value| {
                let (word, mask) = counter_at(position, value);
                or_word(words, word, mask);
                new_count += 1;
            }),
            _ => self.codes.each_index(|position| {
                let (word, mask) = bit_at(position);
                new_count += or_word(words, word, mask);
            }),
        };
        outcome.expect("checked before");
        new_count
    }

    /// The positions of a single-shot frame whose codes were checked, counted from the filter's
    /// start.
    pub(super) fn positions(&self) -> impl ExactSizeIterator<Item = u64> {
        let first = self.first();
        self.codes.clone().indexes().map(move |index| first + index)
    }

    /// Number of a single-shot frame's first position.
    pub(super) const fn first(&self) -> u64 {
        match self.fixed {
            Fixed::Part { first, .. } => first,
            _ => 0,
        }
    }

    /// Decodes the frame and encodes it again in the way that it was written: the bytes that it was
    /// parsed from, or the decoder or the encoder has a bug.
    ///
    /// # Errors
    /// If the payload is not valid, or its filter takes more than `filter_bytes_max` bytes of
    /// memory, or more than [`FRAME_FILTER_BYTES_MAX`].
    pub fn encode(&self, filter_bytes_max: u64) -> Result<Vec<u8>, FrameError> {
        self.check_codes()?;
        match self.header.body {
            Body::SingleShot(_) => {
                check_list_bytes::<u64>(self.header.count, filter_bytes_max)?;
                let positions: Vec<u64> = self.positions().collect();
                let origin = match self.fixed {
                    Fixed::Part { shape, .. } => Some(shape.range().start().to_le_bytes()),
                    _ => None,
                };
                let prefix = origin.as_ref().map_or(&[][..], |bytes| bytes);
                let first = self.first();
                self.seal(prefix, Content::Positions { positions: &positions, first })
            }
            Body::Blocks(_) if self.header.encoding == Encoding::Probes => {
                check_list_bytes::<BlockProbe>(self.header.count, filter_bytes_max)?;
                let mut probes = Vec::new();
                self.codes.each_probe(|probe| probes.push(probe))?;
                self.seal(&[], Content::Probes { probes: &probes, first: 0 })
            }
            Body::Blocks(shape) | Body::Level(shape) | Body::Link(shape) => {
                check_filter_bytes(shape.memory_bytes(), filter_bytes_max)?;
                let word_count = usize::try_from(shape.memory_bytes() / 8).unwrap_or(0);
                let mut words = vec![0; word_count];
                self.or_into(shape.kind(), &mut words);
                let content = Content::array(shape.kind(), &words);
                match self.fixed {
                    Fixed::Level(level, _) => self.seal(&level.to_bytes(), content),
                    Fixed::Link(link) => self.seal(&link_to_bytes(link), content),
                    Fixed::Slices(oldest, newest) => {
                        self.seal(&slices_to_bytes((oldest, newest)), content)
                    }
                    Fixed::Counts(counts) => {
                        self.seal(&pacing_to_bytes(shape.pace(), counts), content)
                    }
                    _ => self.seal(&[], content),
                }
            }
        }
    }

    fn seal(&self, prefix: &[u8], content: Content<'_>) -> Result<Vec<u8>, FrameError> {
        seal(self.header, self.codes.code, prefix, content, FRAME_PAYLOAD_BYTES_MAX as u64)
    }
}

/// The first bytes of a payload, of which it must have so many.
fn split_fixed<const N: usize>(payload: &[u8]) -> Result<(&[u8; N], &[u8]), PayloadError> {
    let (expected, actual) = (N as u64, payload.len() as u64);
    payload.split_first_chunk().ok_or(PayloadError::Length { expected, actual })
}

/// Number of the part's first position in a filter that begins at `origin`, and the filter's shape
/// as far as the part's end.
fn locate(part: SingleShotShape, origin: u64) -> Result<(u64, SingleShotShape), PayloadError> {
    let start = part.range().start();
    if origin >= start {
        return Err(PayloadError::Origin { origin, start });
    }
    let range = HashRange::new(origin, part.range().end()).expect("it begins before the part");
    let shape = SingleShotShape::new(range, part.position_count()).expect("a shape's count is one");
    Ok((shape.position(start), shape))
}

pub(super) fn check_list_bytes<T>(count: u64, limit: u64) -> Result<(), FrameError> {
    check_filter_bytes(count.saturating_mul(size_of::<T>() as u64), limit)
}

const fn check_filter_bytes(filter_bytes: u64, limit: u64) -> Result<(), FrameError> {
    let filter_bytes_max =
        if limit < FRAME_FILTER_BYTES_MAX { limit } else { FRAME_FILTER_BYTES_MAX };
    if filter_bytes > filter_bytes_max {
        return Err(FrameError::FilterTooLarge { filter_bytes, filter_bytes_max });
    }
    Ok(())
}
