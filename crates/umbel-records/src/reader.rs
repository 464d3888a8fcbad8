//! Reads blocks of whole records from a file or a span of one.
//!
//! ```text
//! buffer  | delivered block | partial record | room |
//!         0            block_end          filled    buffer.len()
//! ```
//!
//! Each call moves the partial record to the front, fills the room, and ends the block behind the last
//! `\n`. Without one, the buffer doubles, up to the longest accepted record. The first and last record
//! of a span are those of [`ByteSpan`]: a record belongs to the span that it starts in. In a table, the
//! block ends where the cutter determines, not behind the last `\n`.

use memchr::{memchr, memrchr};

use crate::digest::RunningDigest;
use crate::error::ReadError;
use crate::limits::{FIRST_READ_BYTES, KEPT_BLOCKS};
use crate::source::Source;
use crate::table::TableCutter;
use crate::{BlockRecords, ByteSpan, Compression, ContentDigest, ReadLimits, Stored};

/// Reads a file, or a span of a plain file, as blocks of whole records with their exact bytes.
///
/// ```
/// use std::io::Write;
/// use std::sync::Arc;
/// use umbel_records::{ByteSpan, Compression, ReadLimits, RecordReader, records};
///
/// let mut file = tempfile::tempfile()?;
/// file.write_all(b"one\ntwo\nthree")?;
/// let span = ByteSpan { start: 2, end: 9 }; // "two" and "three" start in it
/// let mut reader =
///     RecordReader::open(Arc::new(file), Compression::Plain, Some(span), ReadLimits::default())?;
/// let mut seen = Vec::new();
/// while let Some(block) = reader.next_block()? {
///     seen.extend(records(block).map(<[u8]>::to_vec));
/// }
/// assert_eq!(seen, [&b"two\n"[..], b"three"]);
/// assert_eq!(reader.digest().bytes, 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RecordReader {
    source: Source,
    stored_start: u64,
    block_bytes: usize,
    record_bytes_max: usize,
    /// The byte that ends a record; not used for tables.
    record_end: u8,
    span: ByteSpan,
    stage: Stage,
    buffer: Vec<u8>,
    /// The block delivered last is `buffer[..block_end]`.
    block_end: usize,
    /// Content in the buffer ends here.
    filled: usize,
    /// The record ends before this offset in the buffer were found already.
    searched: usize,
    /// Offset of `buffer[0]` in the content of the file.
    content_offset: u64,
    digest: RunningDigest,
    /// Finds the records of a table; `None` for lines.
    cutter: Option<Box<TableCutter>>,
}

#[derive(Debug)]
enum Stage {
    /// Before the span's first record: the record that started before the span is skipped.
    Skipping,
    /// Inside the span.
    Reading,
    /// The source has ended; the rest of the buffer must still be delivered.
    Ended,
    /// The source has failed; the whole records in the buffer must still be delivered, then the error.
    Failed(ReadError),
    /// Everything was delivered.
    Done,
}

impl RecordReader {
    /// A reader of `file`, or of the records that start in `span` of it (plain files only; `None` means
    /// all). Several readers may share the file. Nothing is read yet.
    ///
    /// # Errors
    /// [`ReadError::SpanOfCompressed`] for a span of a compressed file; [`ReadError::Io`] if a decoder
    /// cannot allocate memory.
    pub fn open(
        file: impl Into<Stored>,
        compression: Compression,
        span: Option<ByteSpan>,
        limits: ReadLimits,
    ) -> Result<Self, ReadError> {
        if span.is_some() && compression != Compression::Plain {
            return Err(ReadError::SpanOfCompressed { compression });
        }
        let span = span.unwrap_or(ByteSpan::ALL);
        let stage = match span {
            ByteSpan { start, end } if start >= end => Stage::Done,
            ByteSpan { start: 0, .. } => Stage::Reading,
            _ => Stage::Skipping,
        };
        // The byte before the span shows whether a record starts at the span's start.
        let stored_start = span.start.saturating_sub(1);
        let record_bytes_max = limits.record_bytes_max.max(1);
        Ok(Self {
            source: Source::new(
                &file.into(),
                compression,
                ByteSpan { start: stored_start, end: span.end },
            )?,
            stored_start,
            block_bytes: limits.block_bytes.clamp(1, record_bytes_max),
            record_bytes_max,
            record_end: b'\n',
            span,
            stage,
            buffer: Vec::new(),
            block_end: 0,
            filled: 0,
            searched: 0,
            content_offset: stored_start,
            digest: RunningDigest::new(),
            cutter: None,
        })
    }

    /// The same for records that end with this byte instead of `\n`. Must be called before the first
    /// block is read. Has no effect on tables.
    #[must_use]
    pub fn ending(self, record_end: u8) -> Self {
        Self { record_end, ..self }
    }

    /// A reader of the records of a table, with `delimiter` between fields. The header is delivered
    /// with the first block, but is not one of its [records](Self::block_records). Nothing is read yet.
    ///
    /// # Errors
    /// [`ReadError::Io`] if a decoder cannot allocate memory.
    pub fn open_table(
        file: impl Into<Stored>,
        compression: Compression,
        delimiter: u8,
        limits: ReadLimits,
    ) -> Result<Self, ReadError> {
        Self::with_cutter(file, compression, TableCutter::new(delimiter, true), limits)
    }

    /// The same for a table without a header: its first row is a record like any other.
    ///
    /// # Errors
    /// As [`open_table`](Self::open_table).
    pub fn open_headless_table(
        file: impl Into<Stored>,
        compression: Compression,
        delimiter: u8,
        limits: ReadLimits,
    ) -> Result<Self, ReadError> {
        Self::with_cutter(file, compression, TableCutter::new(delimiter, false), limits)
    }

    fn with_cutter(
        file: impl Into<Stored>,
        compression: Compression,
        cutter: TableCutter,
        limits: ReadLimits,
    ) -> Result<Self, ReadError> {
        let reader = Self::open(file, compression, None, limits)?;
        Ok(Self { cutter: Some(Box::new(cutter)), ..reader })
    }

    /// The next block of whole records, or `None` at the end of the input. Every record ends with `\n`,
    /// or [the byte chosen](Self::ending), except possibly the last one of the file. A block has as
    /// many records as fit into [`ReadLimits::block_bytes`], or one longer record.
    ///
    /// # Errors
    /// Any [`ReadError`] but [`SpanOfCompressed`](ReadError::SpanOfCompressed). The whole records
    /// before the damage were delivered by earlier calls, a partial one is not; later calls return
    /// `None`.
    pub fn next_block(&mut self) -> Result<Option<&[u8]>, ReadError> {
        self.drop_delivered();
        self.block_end = match self.advance() {
            Ok(block_end) => block_end,
            Err(error) => {
                self.stage = Stage::Done;
                return Err(error);
            }
        };
        if self.block_end == 0 {
            self.buffer = Vec::new();
            self.filled = 0;
            self.searched = 0;
            return Ok(None);
        }
        let block = &self.buffer[..self.block_end];
        self.digest.update(block);
        Ok(Some(block))
    }

    /// Whether it reads a table.
    pub fn is_table(&self) -> bool {
        self.cutter.is_some()
    }

    /// The block delivered last; empty before the first one and after the last one.
    pub fn block(&self) -> &[u8] {
        &self.buffer[..self.block_end]
    }

    /// The records of the block delivered last, in order.
    pub fn block_records(&self) -> BlockRecords<'_> {
        let block = self.block();
        match &self.cutter {
            None => BlockRecords::ending(block, self.record_end),
            Some(cutter) => BlockRecords::spans(block, cutter.spans()),
        }
    }

    /// Length and CRC-32C of all content delivered so far: equal for a second reading if and only if
    /// (except for one change in 2^32) it saw the same content.
    pub fn digest(&self) -> ContentDigest {
        self.digest.value()
    }

    /// The offset in the content of the file, in bytes, at which the block delivered last starts; after
    /// an error, the offset at which the delivered content ends.
    pub fn block_offset(&self) -> u64 {
        self.content_offset
    }

    /// Bytes of the stored file read or decoded so far, from the start of the file or span, for
    /// progress bars. May exceed the length of a span by what was read to finish its last record.
    pub fn stored_bytes_read(&self) -> u64 {
        self.source.stored_offset() - self.stored_start
    }

    /// Moves the undelivered bytes to the front.
    fn drop_delivered(&mut self) {
        self.buffer.copy_within(self.block_end..self.filled, 0);
        self.filled -= self.block_end;
        self.searched = self.searched.saturating_sub(self.block_end);
        self.content_offset += self.block_end as u64;
        self.block_end = 0;
        if let Some(cutter) = &mut self.cutter {
            cutter.drop_cut();
        }
        let kept_bytes = self.block_bytes.saturating_mul(KEPT_BLOCKS);
        if self.buffer.len() > kept_bytes && self.filled <= self.block_bytes {
            self.buffer.truncate(self.block_bytes);
            self.buffer.shrink_to_fit();
        }
    }

    /// Reads until a block is complete, and returns its end; 0 at the end of the input.
    fn advance(&mut self) -> Result<usize, ReadError> {
        if matches!(self.stage, Stage::Skipping) {
            self.skip();
        }
        let mut target_bytes = self.block_bytes;
        loop {
            self.fill(target_bytes);
            let cut = if self.cutter.is_some() { self.cut_table()? } else { self.cut()? };
            if let Some(block_end) = cut {
                return Ok(block_end);
            }
            if self.filled >= target_bytes {
                // One byte more than the longest record shows that a record is too long.
                let bytes_max = self.record_bytes_max.saturating_add(1);
                target_bytes = self.filled.saturating_mul(2).min(bytes_max);
            }
        }
    }

    /// Reads until the buffer holds `target_bytes`, the end of the span is reached or the source
    /// ends; behind the end of the span, reads once.
    fn fill(&mut self, target_bytes: usize) {
        while self.filled < target_bytes && matches!(self.stage, Stage::Skipping | Stage::Reading) {
            if self.filled == self.buffer.len() {
                let grown = (2 * self.filled).max(FIRST_READ_BYTES).min(target_bytes);
                // `reserve_exact`, because this loop does the doubling, and the limit must hold.
                self.buffer.reserve_exact(grown - self.filled);
                self.buffer.resize(grown, 0);
            }
            let room = self.buffer.len().min(target_bytes);
            let (count, error) = self.source.read(&mut self.buffer[self.filled..room]);
            self.filled += count;
            match error {
                Some(error) => self.stage = Stage::Failed(error),
                None if count == 0 => self.stage = Stage::Ended,
                None => {}
            }
            if self.content_offset + self.filled as u64 >= self.span.end {
                break;
            }
        }
    }

    /// Skips the record that started before the span.
    fn skip(&mut self) {
        loop {
            self.fill(self.block_bytes);
            // A record starts behind a '\n', so the last '\n' that matters is the second-to-last byte
            // of the span.
            let last_bytes = (self.span.end - 1).saturating_sub(self.content_offset);
            let seen = self.filled.min(usize::try_from(last_bytes).unwrap_or(usize::MAX));
            let found = memchr(self.record_end, &self.buffer[..seen]);
            self.block_end = found.map_or(self.filled, |at| at + 1);
            self.drop_delivered();
            if found.is_some() {
                if matches!(self.stage, Stage::Skipping) {
                    self.stage = Stage::Reading;
                }
                return;
            }
            if !matches!(self.stage, Stage::Skipping) {
                return;
            }
            if self.content_offset >= self.span.end - 1 {
                self.stage = Stage::Done;
                return;
            }
        }
    }

    /// The end of the block in the buffer, `None` if more must be read, 0 at the end of the input.
    fn cut(&mut self) -> Result<Option<usize>, ReadError> {
        if matches!(self.stage, Stage::Done) {
            return Ok(Some(0));
        }
        self.check_length()?;
        // The first '\n' at or behind the last byte of the span ends the last record that starts in the
        // span.
        let last_bytes = (self.span.end - 1).saturating_sub(self.content_offset);
        let from = usize::try_from(last_bytes).unwrap_or(usize::MAX).max(self.searched);
        if from < self.filled
            && let Some(at) = memchr(self.record_end, &self.buffer[from..self.filled])
        {
            self.stage = Stage::Done;
            self.filled = from + at + 1;
            return Ok(Some(self.filled));
        }
        let found = memrchr(self.record_end, &self.buffer[self.searched..self.filled])
            .map(|at| self.searched + at + 1);
        self.searched = self.filled;
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Ended => Ok(Some(self.filled)),
            Stage::Failed(error) if found.is_none() => Err(error),
            stage => {
                self.stage = stage;
                Ok(found)
            }
        }
    }

    /// As [`cut`](Self::cut), for tables.
    fn cut_table(&mut self) -> Result<Option<usize>, ReadError> {
        let Some(cutter) = &mut self.cutter else { return self.cut() };
        if matches!(self.stage, Stage::Done) {
            return Ok(Some(0));
        }
        let buffer = &self.buffer[..self.filled];
        cutter.search(buffer, self.searched);
        self.searched = self.filled;
        if cutter.first_end().unwrap_or(self.filled) > self.record_bytes_max {
            return Err(self.too_long());
        }
        let mut stage = std::mem::replace(&mut self.stage, Stage::Done);
        if matches!(stage, Stage::Ended) {
            let content_offset = self.content_offset + cutter.cut_end() as u64;
            if cutter.finish(buffer) {
                return Ok(Some(self.filled));
            }
            stage = Stage::Failed(ReadError::UnclosedQuote { content_offset });
        }
        match (cutter.cut_end(), stage) {
            (0, Stage::Failed(error)) => Err(error),
            (cut_end, stage) => {
                self.stage = stage;
                Ok(Some(cut_end).filter(|end| *end > 0))
            }
        }
    }

    fn too_long(&self) -> ReadError {
        let (content_offset, limit) = (self.content_offset, self.record_bytes_max);
        ReadError::RecordTooLong { content_offset, limit }
    }

    /// Rejects a first record above the limit. Only a buffer that has grown beyond the limit can
    /// contain one.
    fn check_length(&self) -> Result<(), ReadError> {
        if self.filled <= self.record_bytes_max {
            return Ok(());
        }
        match memchr(self.record_end, &self.buffer[..self.record_bytes_max]) {
            Some(_) => Ok(()),
            None => Err(self.too_long()),
        }
    }
}

#[cfg(test)]
pub(crate) mod packed_test;
#[cfg(test)]
mod reader_test;
