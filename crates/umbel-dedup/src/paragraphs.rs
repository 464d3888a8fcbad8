//! Granularity `paragraph`: every piece of a text field is an item, and what stays of the record is its other pieces.
//!
//! ```text
//! {"text":"a\nb\n\nc"}     pieces  a\n  b\n  \n  c      places 0 1 2 3, parts 1 2 3 4 of the record
//! ```
//!
//! A piece ends with its `\n`, which is no part of the item but goes with the piece. A record without pieces, or without
//! the field, takes one place all the same.

use super::best::Ranker;
use super::chunk_facts::ChunkFacts;
use super::chunks::Chunk;
use super::content::{ChunkContent, Found, Spot, Take, open_records, without_item};
use super::inputs::Source;
use super::spec::{EmptyItems, JobSpec, MissingKey};
use crate::error::{Context, Result, bail};
use umbel_dedup_engine::Rank;
use umbel_records::{ContentDigest, Normalisers, ReadError, RecordReader, TextField, line_item};

/// Records that are read for the pieces of one field.
pub(crate) struct Paragraphs {
    reader: RecordReader,
    /// None for a table without a header, which has no records either.
    field: Option<TextField>,
    ranker: Option<Ranker>,
    rules: PieceRules,
    missing_key: MissingKey,
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
            rules: PieceRules::of(spec),
            missing_key: spec.missing_key,
            places: 0,
        })
    }
}

/// The pieces of a text, each with its `\n`.
pub(crate) fn pieces_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

/// What is compared of pieces.
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

    /// Hands out the pieces of a text, or one place if it has none, from this place on; false once `take` wants no
    /// more.
    pub(crate) fn hand_out(
        &mut self,
        text: &[u8],
        rank: Rank,
        places: &mut u64,
        wanted: &dyn Fn(u64) -> bool,
        take: &mut Take<'_>,
    ) -> Result<bool> {
        let first = *places;
        if text.is_empty() {
            *places += 1;
            return Ok(
                !wanted(first) || take(Spot { place: first, starts_record: true }, Found::Exempt)?
            );
        }
        for piece in pieces_of(text) {
            let place = *places;
            *places += 1;
            if !wanted(place) {
                continue;
            }
            let piece = line_item(piece);
            let item = self.normalisers.apply(piece);
            let is_exempt =
                (piece.len() as u64) < self.bytes_min || self.keeps_empty && item.is_empty();
            let found = if is_exempt { Found::Exempt } else { Found::Item(item, rank) };
            if !take(Spot { place, starts_record: place == first }, found)? {
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
                    let (rank, places) = (rank.unwrap_or_default(), &mut self.places);
                    if self.rules.hand_out(text, rank, places, wanted, take)? {
                        continue;
                    }
                    return Ok(());
                }
                Err(error) => without_item(record, self.missing_key, error, content_offset),
            };
            let place = self.places;
            self.places += 1;
            if wanted(place) && !take(Spot { place, starts_record: true }, lone)? {
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

/// Whether what stands at a place stays. A place that was not there at the first reading does not; the digest tells.
fn stays(facts: &ChunkFacts, place: u64) -> bool {
    place < facts.places && !facts.dropped.get(place)
}

/// Picks the pieces of texts that stay, text by text.
#[derive(Default)]
pub(crate) struct PiecePicker {
    place: u64,
    text: Vec<u8>,
}

impl PiecePicker {
    /// What stays of the next text; `None` if that is all of it.
    pub(crate) fn pick(&mut self, text: &[u8], facts: &ChunkFacts) -> Option<&[u8]> {
        if text.is_empty() {
            self.place += 1;
            return None;
        }
        self.text.clear();
        for piece in pieces_of(text) {
            if stays(facts, self.place) {
                self.text.extend_from_slice(piece);
            }
            self.place += 1;
        }
        (self.text.len() < text.len()).then_some(self.text.as_slice())
    }

    /// Whether the next record stays, which has no text.
    fn pass(&mut self, facts: &ChunkFacts) -> bool {
        self.place += 1;
        stays(facts, self.place - 1)
    }
}

/// Rebuilds records of the pieces that stay.
pub(crate) struct PieceCopier {
    field: Option<TextField>,
    picker: PiecePicker,
}

impl PieceCopier {
    /// A copier of a chunk's records, from its first on.
    pub(crate) fn new(source: &Source, field: &str) -> Result<Self> {
        let field = source.text_field(field).with_context(|| source.name.clone())?;
        Ok(Self { field, picker: PiecePicker::default() })
    }

    /// Appends what stays of the next record to `kept`.
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
