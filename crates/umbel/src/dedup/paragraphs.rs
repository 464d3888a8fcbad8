//! Granularity `paragraph`: every piece of a text field is an item, and what stays of the record is its other pieces.
//!
//! ```text
//! {"text":"a\nb\n\nc"}     pieces  a\n  b\n  \n  c      places 0 1 2 3, parts 1 2 3 4 of the record
//! ```
//!
//! A piece ends with its `\n`, which is no part of the item but goes with the piece. A record without pieces, or without
//! the field, takes one place all the same.

use super::best::Ranker;
use super::chunks::Chunk;
use super::content::{ChunkContent, Found, Spot, Take, missing, open_records};
use super::inputs::Source;
use super::job::{EmptyItems, JobSpec, MissingKey};
use super::local_pass::ChunkFacts;
use anyhow::{Context, Result, bail};
use umbel_records::{
    ContentDigest, ItemError, Normalisers, ReadError, RecordReader, TextField, line_item,
};

/// Records that are read for the pieces of one field.
pub(crate) struct Paragraphs {
    reader: RecordReader,
    /// None for a table without a header, which has no records either.
    field: Option<TextField>,
    ranker: Option<Ranker>,
    normalisers: Normalisers,
    keeps_empty: bool,
    missing_key: MissingKey,
    bytes_min: u64,
    places: u64,
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
            reader: open_records(source, chunk)?,
            field: source.text_field(field).with_context(|| source.name.clone())?,
            normalisers: Normalisers::new(spec.normalise.clone()),
            keeps_empty: spec.empty == EmptyItems::Keep,
            missing_key: spec.missing_key,
            bytes_min: spec.paragraph_bytes_min,
            places: 0,
        })
    }
}

/// The pieces of a text, each with its `\n`.
fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
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
            let first = self.places;
            let lone = match field.find(record) {
                Ok([]) => Found::Exempt,
                Ok(text) => {
                    let rank = self.ranker.as_mut().map(|ranker| ranker.rank(record));
                    let rank = rank.unwrap_or_default();
                    for piece in pieces(text) {
                        let place = self.places;
                        self.places += 1;
                        if !wanted(place) {
                            continue;
                        }
                        let piece = line_item(piece);
                        let item = self.normalisers.apply(piece);
                        let is_exempt = (piece.len() as u64) < self.bytes_min
                            || self.keeps_empty && item.is_empty();
                        let found = if is_exempt { Found::Exempt } else { Found::Item(item, rank) };
                        if !take(Spot { place, starts_record: place == first }, found)? {
                            return Ok(());
                        }
                    }
                    continue;
                }
                Err(error @ ItemError::MissingKey { .. }) => {
                    missing(self.missing_key, error, content_offset)
                }
                Err(error) => Found::Bad { content_offset, error },
            };
            self.places += 1;
            if wanted(first) && !take(Spot { place: first, starts_record: true }, lone)? {
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

/// Rebuilds records of the pieces that stay.
pub(crate) struct PieceCopier {
    field: Option<TextField>,
    place: u64,
    text: Vec<u8>,
}

impl PieceCopier {
    /// A copier of a chunk's records, from its first on.
    pub(crate) fn new(source: &Source, field: &str) -> Result<Self> {
        let field = source.text_field(field).with_context(|| source.name.clone())?;
        Ok(Self { field, place: 0, text: Vec::new() })
    }

    /// Appends what stays of the next record to `kept`.
    pub(crate) fn copy(&mut self, record: &[u8], facts: &ChunkFacts, kept: &mut Vec<u8>) {
        // A record that was not there at the first reading; the digest tells.
        let stays = |place| place < facts.places && !facts.dropped.get(place);
        let Some(field) = &mut self.field else { return };
        self.text.clear();
        let first = self.place;
        let text_bytes = match field.find(record) {
            Ok(text) if !text.is_empty() => {
                for piece in pieces(text) {
                    if stays(self.place) {
                        self.text.extend_from_slice(piece);
                    }
                    self.place += 1;
                }
                text.len()
            }
            _ => {
                self.place += 1;
                if stays(first) {
                    kept.extend_from_slice(record);
                }
                return;
            }
        };
        if self.text.len() == text_bytes {
            kept.extend_from_slice(record);
        } else {
            field.replace(record, &self.text, kept);
        }
    }
}
