//! What is in a chunk, whatever its format: numbered places, each with an item or without one.
//!
//! ```text
//! chunk --read--> some records --hand_out--> place 0: item, place 1: bad, place 2: item ...
//! ```
//!
//! This is the seam for formats. The phases that hash (1) and compare (8) see a chunk through [`ChunkContent`] only.
//! The one exception is the fast path: where every line is its own item, [`ChunkContent::lines`] hands out the bytes.
//! The phase that writes (9) is in [`super::output`]; there, a source whose output is not bytes has its own way.
//!
//! Places count in input order from 0 within a chunk. A record takes one, or one a part where it has several items; a
//! bad record takes one, too, so that numbers do not depend on what is wrong.

use super::best::Ranker;
use super::chunks::Chunk;
use super::inputs::Source;
use super::paragraphs::Paragraphs;
use super::row_content::open_rows;
use super::scope::ScopedHasher;
use super::spec::{EmptyItems, JobSpec, MissingKey};
use super::whole_file::WholeFile;
use crate::error::{Context, Result, bail};
use umbel_dedup_engine::Rank;
use umbel_filter::ItemHash;
use umbel_records::{
    ByteSpan, ContentDigest, Format, Granularity, ItemError, ItemExtractor, Normalisers, ReadError,
    ReadLimits, RecordReader,
};

/// What stands at a place.
pub(crate) enum Found<'a> {
    /// An item to be compared, and how its record ranks; any rank unless the best stays.
    Item(&'a [u8], Rank),
    /// An item that is not at hand as a whole; never at level `bytes`.
    Hashed {
        /// Its hash.
        hash: ItemHash,
        /// Its length.
        bytes: u64,
    },
    /// Nothing to compare; it stays.
    Exempt,
    /// Nothing to compare; it goes.
    LeftOut,
    /// A record without an item.
    Bad {
        /// Where the record starts in the file's content.
        content_offset: u64,
        /// Why it has none.
        error: ItemError,
    },
}

/// A place.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    /// Its number in the chunk.
    pub(crate) place: u64,
    /// Whether it is the first of a record.
    pub(crate) starts_record: bool,
}

/// Takes what stands at a place; false ends the handing out.
pub(crate) type Take<'a> = dyn FnMut(Spot, Found<'_>) -> Result<bool> + 'a;

/// A chunk that is read for its items.
pub(crate) trait ChunkContent {
    /// Reads on a little; false at the end.
    ///
    /// # Errors
    ///
    /// If the chunk cannot be read further. All places in front of the damage were there before.
    fn read(&mut self) -> Result<bool, ReadError>;

    /// Hands out the places of what was read last, in order. Those that are not `wanted` may be passed over, but count.
    ///
    /// # Errors
    ///
    /// Those of `take`.
    fn hand_out(&mut self, wanted: &dyn Fn(u64) -> bool, take: &mut Take<'_>) -> Result<()>;

    /// What was read last and the byte that ends its records, if each of them is a place and without that byte its own
    /// item.
    fn lines(&self) -> Option<(&[u8], u8)> {
        None
    }

    /// Whether a record may take several places.
    fn has_parts(&self) -> bool {
        false
    }

    /// Where what was read last starts in the file's content; after an error, where that ends.
    fn content_offset(&self) -> u64;

    /// Stored bytes read so far, for progress.
    fn stored_bytes_read(&self) -> u64;

    /// What a second reading must see again.
    fn digest(&self) -> ContentDigest;
}

/// Reads on, and says whether there was more. Bytes that are no content of the format are the caller's to report; where
/// they are none because their source failed, that is the error.
pub(crate) fn read_on(
    content: &mut dyn ChunkContent,
    source: &Source,
) -> Result<std::result::Result<bool, ReadError>> {
    let read = content.read();
    if read.is_err()
        && let Some(failure) = source.failure()
    {
        return Err(failure);
    }
    Ok(read)
}

/// Opens a chunk for its items, and where there is a ranker for their ranks.
pub(crate) fn open_content(
    source: &Source,
    chunk: Chunk,
    spec: &JobSpec,
    hasher: ScopedHasher,
    ranker: Option<Ranker>,
) -> Result<Box<dyn ChunkContent>> {
    if let (Some(row_groups), Some(row_group)) = (&source.row_groups, chunk.row_group) {
        return open_rows(source, row_groups, row_group, spec);
    }
    if spec.granularity == Granularity::File {
        return Ok(Box::new(WholeFile::open(source, spec, hasher)?));
    }
    if let Granularity::Paragraph(field) = &spec.granularity {
        return Ok(Box::new(Paragraphs::open(source, chunk, spec, field, ranker)?));
    }
    let reader = open_records(source, chunk)?;
    let extractor = source.extractor(&spec.granularity).with_context(|| source.name.clone())?;
    let normalisers = Normalisers::new(spec.normalise.clone());
    let keeps_empty = spec.empty == EmptyItems::Keep;
    let is_lines = source.format.delimiter().is_none()
        && spec.granularity == Granularity::Line
        && normalisers.is_empty()
        && !keeps_empty
        && ranker.is_none();
    Ok(Box::new(RecordContent {
        reader,
        extractor: extractor.map(|extractor| extractor.normalised(normalisers)),
        ranker,
        is_lines,
        record_end: source.format.record_end(),
        keeps_empty,
        missing_key: spec.missing_key,
        places: 0,
    }))
}

/// What stands at the place of a record that has no item, and why it has none.
pub(crate) fn without_item<'a>(
    record: &[u8],
    rule: MissingKey,
    error: ItemError,
    content_offset: u64,
) -> Found<'a> {
    match (error, rule) {
        (ItemError::MissingKey { .. }, MissingKey::Keep) => Found::Exempt,
        (ItemError::MissingKey { .. }, MissingKey::Drop) => Found::LeftOut,
        // A blank line between JSON values, or behind the last one. A table's are no records.
        _ if record.trim_ascii().is_empty() => Found::Exempt,
        (error, _) => Found::Bad { content_offset, error },
    }
}

/// Opens a chunk for its records.
pub(crate) fn open_records(source: &Source, chunk: Chunk) -> Result<RecordReader> {
    open_limited(source, chunk.span, ReadLimits::default())
}

/// Opens a span of a source for its records, or all of a source that has no spans.
pub(crate) fn open_limited(
    source: &Source,
    span: Option<ByteSpan>,
    limits: ReadLimits,
) -> Result<RecordReader> {
    let file = source.open()?;
    let reader = match source.format {
        Format::Table { delimiter, has_header: true } => {
            RecordReader::open_table(file, source.compression, delimiter, limits)
        }
        Format::Table { delimiter, has_header: false } => {
            RecordReader::open_headless_table(file, source.compression, delimiter, limits)
        }
        format => RecordReader::open(file, source.compression, span, limits)
            .map(|reader| reader.ending(format.record_end())),
    };
    reader.with_context(|| source.name.clone())
}

/// Records that are byte ranges, one place each.
struct RecordContent {
    reader: RecordReader,
    /// None for a table without a header, which has no records either.
    extractor: Option<ItemExtractor>,
    ranker: Option<Ranker>,
    is_lines: bool,
    record_end: u8,
    keeps_empty: bool,
    missing_key: MissingKey,
    places: u64,
}

impl ChunkContent for RecordContent {
    fn read(&mut self) -> Result<bool, ReadError> {
        Ok(self.reader.next_block()?.is_some())
    }

    fn hand_out(&mut self, wanted: &dyn Fn(u64) -> bool, take: &mut Take<'_>) -> Result<()> {
        let block_offset = self.reader.block_offset();
        for (at, record) in self.reader.block_records() {
            let place = self.places;
            self.places += 1;
            if !wanted(place) {
                continue;
            }
            let Some(extractor) = &mut self.extractor else {
                bail!("the file was changed while it was read; run the job again");
            };
            let is_empty = extractor.emptiness();
            let found = match extractor.item(record) {
                Ok(item) if self.keeps_empty && is_empty(item) => Found::Exempt,
                Ok(item) => {
                    let rank = self.ranker.as_mut().map(|ranker| ranker.rank(record));
                    Found::Item(item, rank.unwrap_or_default())
                }
                Err(error) => {
                    without_item(record, self.missing_key, error, block_offset + at as u64)
                }
            };
            if !take(Spot { place, starts_record: true }, found)? {
                break;
            }
        }
        Ok(())
    }

    fn lines(&self) -> Option<(&[u8], u8)> {
        self.is_lines.then(|| (self.reader.block(), self.record_end))
    }

    fn content_offset(&self) -> u64 {
        self.reader.block_offset()
    }

    fn stored_bytes_read(&self) -> u64 {
        self.reader.stored_bytes_read()
    }

    fn digest(&self) -> ContentDigest {
        self.reader.digest()
    }
}
