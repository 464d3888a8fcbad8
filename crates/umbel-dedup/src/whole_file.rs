//! Granularity `file`: a file is one record, and its whole content the item.
//!
//! The content is hashed as it is read, whatever its size. If it is to be compared byte by byte or normalised, it is kept in
//! memory, up to the length of the longest accepted record.

use super::content::{ChunkContent, Found, Position, Take};
use super::inputs::Source;
use super::scope::ScopedHasher;
use super::spec::{EmptyItems, JobSpec};
use crate::error::{Context, Result};
use umbel_dedup_engine::{Exactness, Rank};
use umbel_filter::ItemHash;
use umbel_records::{ContentDigest, ContentReader, Normalisers, RECORD_BYTES_MAX, ReadError};

/// A file that is read for its one item.
pub(crate) struct WholeFile {
    reader: ContentReader,
    hasher: ScopedHasher,
    /// The content, if it is kept in memory.
    held: Option<Vec<u8>>,
    normalisers: Normalisers,
    keeps_empty: bool,
    hash: Option<ItemHash>,
}

impl WholeFile {
    /// Opens a file.
    pub(crate) fn open(source: &Source, spec: &JobSpec, hasher: ScopedHasher) -> Result<Self> {
        let normalisers = Normalisers::new(spec.normalise.clone());
        let is_held = !normalisers.is_empty() || spec.exactness == Exactness::Bytes;
        Ok(Self {
            reader: open_whole(source)?,
            hasher,
            held: is_held.then(Vec::new),
            normalisers,
            keeps_empty: spec.empty == EmptyItems::Keep,
            hash: None,
        })
    }
}

/// Opens a source for its content.
pub(crate) fn open_whole(source: &Source) -> Result<ContentReader> {
    let reader = ContentReader::open(source.open()?, source.compression);
    reader.with_context(|| source.name.clone())
}

impl ChunkContent for WholeFile {
    fn read(&mut self) -> Result<bool, ReadError> {
        if self.hash.is_some() {
            return Ok(false);
        }
        let mut running = self.hasher.running();
        while let Some(block) = self.reader.next_block()? {
            match &mut self.held {
                None => running.update(block),
                Some(held) if held.len() + block.len() > RECORD_BYTES_MAX => {
                    return Err(ReadError::RecordTooLong {
                        content_offset: 0,
                        limit: RECORD_BYTES_MAX,
                    });
                }
                Some(held) => held.extend_from_slice(block),
            }
        }
        self.hash = Some(running.finish());
        Ok(true)
    }

    fn hand_out(&mut self, wanted: &dyn Fn(u64) -> bool, take: &mut Take<'_>) -> Result<()> {
        if !wanted(0) {
            return Ok(());
        }
        let found = match (&self.held, self.hash) {
            (Some(held), _) => match self.normalisers.apply(held) {
                [] if self.keeps_empty => Found::Exempt,
                item => Found::Item(item, Rank::default()),
            },
            (None, _) if self.keeps_empty && self.reader.digest().bytes == 0 => Found::Exempt,
            (None, Some(hash)) => Found::Hashed { hash, bytes: self.reader.digest().bytes },
            (None, None) => return Ok(()), // Nothing was read.
        };
        take(Position { number: 0, starts_record: true }, found).map(drop)
    }

    fn content_offset(&self) -> u64 {
        0
    }

    fn stored_bytes_read(&self) -> u64 {
        self.reader.stored_bytes_read()
    }

    fn digest(&self) -> ContentDigest {
        self.reader.digest()
    }
}
