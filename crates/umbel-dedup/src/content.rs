//! The content of a chunk of any format, as numbered positions, each with an item or without one.
//!
//! ```text
//! chunk --read--> some records --hand_out--> 0: item, 1: bad, 2: item ...
//! ```
//!
//! To support a format, implement [`ChunkContent`]: the phases that hash (1) and compare (8) read chunks through it. If
//! every line is an item, the fast path [`ChunkContent::lines`] returns whole blocks instead. The phase that writes (9) is
//! in [`super::output`], with its own code for sources whose output is not bytes.
//!
//! Numbers ascend in input order from 0 within a chunk; they are the item numbers of record ids. A record has one number,
//! or one per part. A bad record has one, too, so that numbers do not depend on what is bad.

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
    ByteSpan, ContentDigest, Format, Granularity, ItemExtractor, Normalisers, ReadError,
    ReadLimits, RecordItemError, RecordReader, is_blank_line,
};

/// What is at a position.
pub(crate) enum Found<'a> {
    /// An item to compare, and its record's rank, which is used if the job keeps the best.
    Item(&'a [u8], Rank),
    /// An item of which only the hash is known; never at exactness `bytes`.
    Hashed {
        /// Its hash.
        hash: ItemHash,
        /// Its length.
        bytes: u64,
    },
    /// Nothing to compare; the record is kept.
    Exempt,
    /// Nothing to compare; the record is dropped.
    LeftOut,
    /// A record without an item.
    Bad {
        /// Where the record starts in the file's content.
        content_offset: u64,
        /// Why it has none.
        error: RecordItemError,
    },
}

/// A position in a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    /// Its number in the chunk.
    pub(crate) number: u64,
    /// Whether it is the first of a record.
    pub(crate) starts_record: bool,
}

/// Called with what is at a position; returning false ends [`ChunkContent::hand_out`].
pub(crate) type Take<'a> = dyn FnMut(Position, Found<'_>) -> Result<bool> + 'a;

/// Reads a chunk for its items.
pub(crate) trait ChunkContent {
    /// Reads the next records; false at the end.
    ///
    /// # Errors
    ///
    /// If the chunk cannot be read further. All records before the damage were returned by earlier calls.
    fn read(&mut self) -> Result<bool, ReadError>;

    /// Calls `take` for the positions of the records that were read last, in order. Those whose number is not `wanted` may
    /// be skipped, but have numbers.
    ///
    /// # Errors
    ///
    /// Those of `take`.
    fn hand_out(&mut self, wanted: &dyn Fn(u64) -> bool, take: &mut Take<'_>) -> Result<()>;

    /// The block that was read last, and the byte that ends its records, if each record without that byte is an item.
    fn lines(&self) -> Option<(&[u8], u8)> {
        None
    }

    /// Whether a record may have several numbers.
    fn has_parts(&self) -> bool {
        false
    }

    /// The offset in the file's content at which the records that were read last start; after an error, the offset at which
    /// they end.
    fn content_offset(&self) -> u64;

    /// Stored bytes read so far, for progress.
    fn stored_bytes_read(&self) -> u64;

    /// The digest of the content, by which a second reading detects changes.
    fn digest(&self) -> ContentDigest;
}

/// Reads the next records; false at the end. The inner error is malformed content, which the caller reports as a bad
/// record; if it has its cause in a failure of the source, that failure is the outer error.
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

/// Opens a chunk for its items, and, with a ranker, for their ranks.
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
        format: source.format,
        keeps_empty,
        missing_key: spec.missing_key,
        id_count: 0,
    }))
}

/// What is at the position of a record of this format without an item, given the error.
pub(crate) fn without_item<'a>(
    record: &[u8],
    format: Format,
    rule: MissingKey,
    error: RecordItemError,
    content_offset: u64,
) -> Found<'a> {
    match (error, rule) {
        (RecordItemError::MissingKey { .. }, MissingKey::Keep) => Found::Exempt,
        (RecordItemError::MissingKey { .. }, MissingKey::Drop) => Found::LeftOut,
        // A blank line between or after JSON values. In a table a line without any byte is no record, and one of blanks
        // is a record with a field.
        _ if format == Format::JsonLines && is_blank_line(record) => Found::Exempt,
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

/// Records that are byte ranges, one number each.
struct RecordContent {
    reader: RecordReader,
    /// `None` for a table without a header, which has no records.
    extractor: Option<ItemExtractor>,
    ranker: Option<Ranker>,
    is_lines: bool,
    format: Format,
    keeps_empty: bool,
    missing_key: MissingKey,
    id_count: u64,
}

impl ChunkContent for RecordContent {
    fn read(&mut self) -> Result<bool, ReadError> {
        Ok(self.reader.next_block()?.is_some())
    }

    fn hand_out(&mut self, wanted: &dyn Fn(u64) -> bool, take: &mut Take<'_>) -> Result<()> {
        let block_offset = self.reader.block_offset();
        for (at, record) in self.reader.block_records() {
            let number = self.id_count;
            self.id_count += 1;
            if !wanted(number) {
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
                    let content_offset = block_offset + at as u64;
                    without_item(record, self.format, self.missing_key, error, content_offset)
                }
            };
            if !take(Position { number, starts_record: true }, found)? {
                break;
            }
        }
        Ok(())
    }

    fn lines(&self) -> Option<(&[u8], u8)> {
        self.is_lines.then(|| (self.reader.block(), self.format.record_end()))
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
