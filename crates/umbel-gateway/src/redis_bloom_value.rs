//! RedisBloom filters as module values, as stored in Redis's files and in payloads of `DUMP`.
//!
//! ```text
//! items, links, options, growth                         numbers; options since form 2, growth since form 4
//! of each link:  capacity, rate, probes, bits an item   numbers, but doubles for rate and bits an item
//!                bits, power, array, items              numbers, but a string for the array
//! ```
//!
//! Source: `src/rebloom.c` (`BFRdbSave`, `BFRdbLoad`) of RedisBloom, which writes form 4 since version
//! 2.2. Forms 0 and 1 have no options, and hashes of 32 bits, which are not supported here. Arrays are
//! read in pieces and become the frames of an import, as those of a dump do.

use std::io::Read;

use bytes::Bytes;
use thiserror::Error;
use umbel_filter::{
    RedisBloomHeader, RedisBloomHeaderError, RedisBloomParts, RedisBloomStoredLink,
};
use umbel_rdb::{ModuleId, ModuleReader, PayloadWriter, RdbError};

use crate::redis_bloom_dump::{DumpError, DumpPieceError, DumpReader, DumpWriter};

/// The name of the module type.
pub const TYPE_NAME: &[u8; 9] = b"MBbloom--";

/// The name of the module type of RedisBloom's cuckoo filters, which are not read: their fingerprints are
/// computed from another hash than those of the kind `cuckoo`, and items cannot be recovered from them.
pub const CUCKOO_TYPE_NAME: &str = "MBbloomCF";

/// The form that is written.
const WRITTEN_FORM: u16 = 4;

/// The first form with options.
const OPTIONS_FORM: u16 = 2;

/// The first form with the growth of filters.
const GROWTH_FORM: u16 = 4;

/// The growth of filters in earlier forms.
const OLD_GROWTH: u64 = 2;

/// Bytes of an array in memory at once.
const PIECE_BYTES: usize = 1 << 20;

/// A part of an import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValuePart {
    /// The settings, as at the beginning of an export.
    Head {
        /// The encoded settings.
        settings: Bytes,
        /// Total bytes of the arrays of all links.
        byte_count: u64,
    },
    /// A frame for the first shard.
    Frame(Bytes),
    /// The value is complete.
    End {
        /// Number of frames.
        frame_count: u64,
        /// Their checksum.
        checksum: u32,
    },
}

/// The caller does not want the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unwanted;

/// Why a value is not a supported filter. The parts that were passed on have no end, so no filter is
/// made from them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The bytes are damaged, or in another order.
    #[error(transparent)]
    Rdb(#[from] RdbError),
    /// The value belongs to another module.
    #[error("a value of type {0}, expected MBbloom--")]
    Type(String),
    /// The form is too old or too new.
    #[error("form {0} of MBbloom--, expected {OPTIONS_FORM} to {WRITTEN_FORM}")]
    Form(u16),
    /// The numbers do not belong to a supported filter.
    #[error(transparent)]
    Header(#[from] RedisBloomHeaderError),
    /// A number is out of the range of its field.
    #[error("link {link}: {what} is {value}")]
    Number {
        /// The number of the link.
        link: usize,
        /// The name of the field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The frame cannot be made: a bug.
    #[error(transparent)]
    Piece(#[from] DumpPieceError),
    /// The caller does not want the rest.
    #[error("nobody takes it any more")]
    Unwanted,
}

/// Reads a value, and passes on the parts of an import.
///
/// # Errors
/// If it is not a supported filter, or the caller does not want the rest.
pub fn read_value<R: Read>(
    id: ModuleId,
    module: &mut ModuleReader<'_, R>,
    mut take: impl FnMut(ValuePart) -> Result<(), Unwanted>,
) -> Result<(), ValueError> {
    if id.name().as_bytes() != TYPE_NAME {
        return Err(ValueError::Type(id.name()));
    }
    let form = id.version();
    if !(OPTIONS_FORM..=WRITTEN_FORM).contains(&form) {
        return Err(ValueError::Form(form));
    }
    let mut hand_on = |part| take(part).map_err(|Unwanted| ValueError::Unwanted);
    let item_count = module.unsigned()?;
    let link_count = module.unsigned()?;
    let options = module.unsigned()?;
    let expansion = if form >= GROWTH_FORM { module.unsigned()? } else { OLD_GROWTH };
    let mut stored = read_link(module, 0)?;
    let header = RedisBloomHeader::from_parts(RedisBloomParts {
        item_count,
        link_count,
        options,
        expansion,
        first_capacity: stored.capacity,
        first_rate: stored.rate,
    })?;
    let mut reader = DumpReader::of(header.clone());
    let (settings, byte_count) = (reader.settings(), header.data_bytes());
    hand_on(ValuePart::Head { settings, byte_count })?;
    for link in 0..header.links().len() {
        if link > 0 {
            stored = read_link(module, link)?;
        }
        read_array(module, &header, (link, stored), &mut reader, &mut hand_on)?;
        let items = module.unsigned()?;
        if items != header.item_count_of(link) {
            return Err(ValueError::Number { link, what: "the number of items", value: items });
        }
    }
    let (frame_count, checksum) = reader.end();
    hand_on(ValuePart::End { frame_count, checksum })
}

/// Reads the array of a link, once the numbers before it were verified.
fn read_array<R: Read>(
    module: &mut ModuleReader<'_, R>,
    header: &RedisBloomHeader,
    (link, stored): (usize, RedisBloomStoredLink),
    reader: &mut DumpReader,
    hand_on: &mut impl FnMut(ValuePart) -> Result<(), ValueError>,
) -> Result<(), ValueError> {
    let mut array = module.string()?;
    let (byte_count, item_count) = (array.left(), header.item_count_of(link));
    let stored = RedisBloomStoredLink { byte_count, item_count, ..stored };
    header.check_link(link, &stored)?;
    let before: u64 = header.links().iter().take(link).map(|link| link.byte_count()).sum();
    let count_of = |left: u64| usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
    let mut piece = vec![0; count_of(array.left())];
    while array.left() > 0 {
        let count = count_of(array.left());
        let piece = piece.get_mut(..count).unwrap_or_default();
        array.fill(piece)?;
        let end = before + stored.byte_count - array.left();
        // A filter has at most 256 MiB.
        let iterator = i64::try_from(end + 1).unwrap_or(i64::MAX);
        for frame in reader.push(iterator, piece)? {
            hand_on(ValuePart::Frame(frame))?;
        }
    }
    Ok(array.end()?)
}

/// Reads the numbers before the array of a link; the length of the array and the item count come later.
fn read_link<R: Read>(
    module: &mut ModuleReader<'_, R>,
    link: usize,
) -> Result<RedisBloomStoredLink, ValueError> {
    let (capacity, rate) = (module.unsigned()?, module.double()?);
    let (probes, bits_per_item) = (module.unsigned()?, module.double()?);
    let (bit_count, power) = (module.unsigned()?, module.unsigned()?);
    let wrong = |what, value| ValueError::Number { link, what, value };
    Ok(RedisBloomStoredLink {
        byte_count: 0,
        bit_count,
        item_count: 0,
        rate,
        bits_per_item,
        probe_count: u32::try_from(probes).map_err(|_| wrong("the number of probes", probes))?,
        capacity,
        power: u8::try_from(power).map_err(|_| wrong("the power of two", power))?,
    })
}

/// Why frames could not become a payload.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BloomValueError {
    /// The frames are not from a RedisBloom filter.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The filter is larger than a payload may be. Copy it in pieces.
    #[error("the filter has {byte_count} bytes, and a payload {max} at most")]
    TooLarge {
        /// Bytes of the filter's arrays.
        byte_count: u64,
        /// The limit.
        max: u64,
    },
    /// Frames are missing.
    #[error("frames are missing")]
    Missing,
}

/// Makes a payload of `DUMP` from the frames of an export, in order.
#[derive(Debug)]
pub struct PayloadOfFrames {
    writer: DumpWriter,
    payload: PayloadWriter,
    byte_count_max: u64,
    /// The current link, and the number of missing bytes of its array.
    link: usize,
    left: u64,
    has_head: bool,
}

impl PayloadOfFrames {
    /// Creates one for a filter of at most `byte_count_max` bytes.
    #[must_use]
    pub fn new(byte_count_max: u64) -> Self {
        Self {
            writer: DumpWriter::default(),
            payload: PayloadWriter::new(ModuleId::new(TYPE_NAME, WRITTEN_FORM)),
            byte_count_max,
            link: 0,
            left: 0,
            has_head: false,
        }
    }

    /// Reads the next frame.
    ///
    /// # Errors
    /// If it is not the filter's next frame, or the filter is too large.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), BloomValueError> {
        self.writer.push(frame)?;
        self.write_head()?;
        while let Some((_, piece)) = self.writer.next_piece(PIECE_BYTES) {
            if self.left == 0 {
                self.begin_link();
            }
            self.payload.bytes(&piece);
            self.left = self.left.saturating_sub(piece.len() as u64);
            if self.left == 0 {
                self.end_link();
            }
        }
        Ok(())
    }

    /// Returns the payload.
    ///
    /// # Errors
    /// If frames are missing.
    pub fn finish(self) -> Result<Vec<u8>, BloomValueError> {
        if self.writer.is_complete() && self.left == 0 {
            Ok(self.payload.finish())
        } else {
            Err(BloomValueError::Missing)
        }
    }

    fn write_head(&mut self) -> Result<(), BloomValueError> {
        let Some(header) = self.writer.header().filter(|_| !self.has_head) else { return Ok(()) };
        let (byte_count, max) = (header.data_bytes(), self.byte_count_max);
        if byte_count > max {
            return Err(BloomValueError::TooLarge { byte_count, max });
        }
        self.payload.unsigned(header.item_count());
        self.payload.unsigned(header.links().len() as u64);
        self.payload.unsigned(header.options().into());
        self.payload.unsigned(header.shape().expansion().into());
        self.has_head = true;
        Ok(())
    }

    fn begin_link(&mut self) {
        let Some(link) = self.writer.header().and_then(|header| header.stored_link(self.link))
        else {
            return;
        };
        self.payload.unsigned(link.capacity);
        self.payload.double(link.rate);
        self.payload.unsigned(link.probe_count.into());
        self.payload.double(link.bits_per_item);
        self.payload.unsigned(link.bit_count);
        self.payload.unsigned(link.power.into());
        self.payload.string(link.byte_count);
        self.left = link.byte_count;
    }

    fn end_link(&mut self) {
        let items = self.writer.header().map_or(0, |header| header.item_count_of(self.link));
        self.payload.unsigned(items);
        self.link += 1;
    }
}

#[cfg(test)]
#[path = "redis_bloom_value_test.rs"]
mod redis_bloom_value_test;
