//! Granularity `paragraph`: every piece (line) of a text field is an item. A record is written without its dropped pieces.
//!
//! ```text
//! {"text":"a\nb\n\nc"}     pieces  a\n  b\n  \n  c      numbers 0 1 2 3 in the chunk, parts 1 2 3 4 of the record
//! ```
//!
//! A piece ends with its `\n`, which is not part of the item but is dropped with the piece. A record without
//! pieces, or without the field, also has one number.

use super::best::Ranker;
use super::chunk_facts::ChunkFacts;
use super::chunks::Chunk;
use super::content::{ChunkContent, Found, Position, Take, open_records, without_item};
use super::inputs::Source;
use super::spec::{EmptyItems, JobSpec, MissingKey};
use crate::error::{Context, Result, bail};
use umbel_dedup_engine::Rank;
use umbel_records::{
    ContentDigest, Format, Normalisers, ReadError, RecordReader, TextField, line_item,
};

/// Reads records for the pieces of one field.
pub(crate) struct Paragraphs {
    reader: RecordReader,
    /// `None` for a table without a header, which has no records.
    field: Option<TextField>,
    ranker: Option<Ranker>,
    format: Format,
    rules: PieceRules,
    missing_key: MissingKey,
    id_count: u64,
}

impl Paragraphs {
    /// Opens a chunk for the pieces of this field.
    pub(crate) fn open(
        source: &Source,
        chunk: Chunk,
        spec: &JobSpec,
        field: &str,
        ranker: Option<Ranker>,
    ) -> Result<Self> {
        Ok(Self {
            ranker,
            format: source.format,
            reader: open_records(source, chunk)?,
            field: source.text_field(field).with_context(|| source.name.clone())?,
            rules: PieceRules::of(spec),
            missing_key: spec.missing_key,
            id_count: 0,
        })
    }
}

/// The pieces of a text, each with its `\n`.
pub(crate) fn pieces_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

/// Which pieces are compared, and how.
pub(crate) struct PieceRules {
    normalisers: Normalisers,
    keeps_empty: bool,
    bytes_min: u64,
}

impl PieceRules {
    /// The rules of a job.
    pub(crate) fn of(spec: &JobSpec) -> Self {
        Self {
            normalisers: Normalisers::new(spec.normalise.clone()),
            keeps_empty: spec.empty == EmptyItems::Keep,
            bytes_min: spec.paragraph_bytes_min,
        }
    }

    /// Calls `take` for each piece of a text, or once if it has none, with numbers from `id_count` on;
    /// returns false once `take` does.
    pub(crate) fn hand_out(
        &mut self,
        text: &[u8],
        rank: Rank,
        id_count: &mut u64,
        wanted: &dyn Fn(u64) -> bool,
        take: &mut Take<'_>,
    ) -> Result<bool> {
        let first = *id_count;
        if text.is_empty() {
            *id_count += 1;
            return Ok(!wanted(first)
                || take(Position { number: first, starts_record: true }, Found::Exempt)?);
        }
        for piece in pieces_of(text) {
            let number = *id_count;
            *id_count += 1;
            if !wanted(number) {
                continue;
            }
            let piece = line_item(piece);
            let item = self.normalisers.apply(piece);
            let is_exempt =
                (piece.len() as u64) < self.bytes_min || self.keeps_empty && item.is_empty();
            let found = if is_exempt { Found::Exempt } else { Found::Item(item, rank) };
            if !take(Position { number, starts_record: number == first }, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl ChunkContent for Paragraphs {
    fn read(&mut self) -> Result<bool, ReadError> {
        Ok(self.reader.next_block()?.is_some())
    }

    fn hand_out(&mut self, wanted: &dyn Fn(u64) -> bool, take: &mut Take<'_>) -> Result<()> {
        let block_offset = self.reader.block_offset();
        for (at, record) in self.reader.block_records() {
            let Some(field) = &mut self.field else {
                bail!("the file was changed while it was read; run the job again");
            };
            let content_offset = block_offset + at as u64;
            let lone = match field.find(record) {
                Ok(text) => {
                    let rank = self.ranker.as_mut().map(|ranker| ranker.rank(record));
                    let (rank, id_count) = (rank.unwrap_or_default(), &mut self.id_count);
                    if self.rules.hand_out(text, rank, id_count, wanted, take)? {
                        continue;
                    }
                    return Ok(());
                }
                Err(error) => {
                    without_item(record, self.format, self.missing_key, error, content_offset)
                }
            };
            let number = self.id_count;
            self.id_count += 1;
            if wanted(number) && !take(Position { number, starts_record: true }, lone)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn has_parts(&self) -> bool {
        true
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

/// Whether the piece with this number is kept. A number beyond those of the first reading is not; then the
/// digest differs.
fn stays(facts: &ChunkFacts, number: u64) -> bool {
    number < facts.id_count && !facts.dropped.get(number)
}

/// Picks the kept pieces of texts, text by text.
#[derive(Default)]
pub(crate) struct PiecePicker {
    number: u64,
    text: Vec<u8>,
}

impl PiecePicker {
    /// The kept pieces of the next text; `None` if all are kept.
    pub(crate) fn pick(&mut self, text: &[u8], facts: &ChunkFacts) -> Option<&[u8]> {
        if text.is_empty() {
            self.number += 1;
            return None;
        }
        self.text.clear();
        for piece in pieces_of(text) {
            if stays(facts, self.number) {
                self.text.extend_from_slice(piece);
            }
            self.number += 1;
        }
        (self.text.len() < text.len()).then_some(self.text.as_slice())
    }

    /// Whether the next record, which has no text, is kept.
    fn pass(&mut self, facts: &ChunkFacts) -> bool {
        self.number += 1;
        stays(facts, self.number - 1)
    }
}

/// Rebuilds records from their kept pieces.
pub(crate) struct PieceCopier {
    field: Option<TextField>,
    picker: PiecePicker,
}

impl PieceCopier {
    /// A copier for the records of a chunk, from the first one on.
    pub(crate) fn new(source: &Source, field: &str) -> Result<Self> {
        let field = source.text_field(field).with_context(|| source.name.clone())?;
        Ok(Self { field, picker: PiecePicker::default() })
    }

    /// Appends the next record with its kept pieces to `kept`.
    pub(crate) fn copy(&mut self, record: &[u8], facts: &ChunkFacts, kept: &mut Vec<u8>) {
        let Some(field) = &mut self.field else { return };
        match field.find(record) {
            Ok(text) => match self.picker.pick(text, facts) {
                Some(text) => field.replace(record, text, kept),
                None => kept.extend_from_slice(record),
            },
            Err(_) if self.picker.pass(facts) => kept.extend_from_slice(record),
            Err(_) => {}
        }
    }
}
