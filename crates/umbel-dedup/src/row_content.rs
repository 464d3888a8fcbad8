//! Reads row groups of Parquet for the items and ranks of their rows.

use super::best::BestField;
use super::content::{ChunkContent, Found, Position, Take};
use super::inputs::Source;
use super::paragraphs::PieceRules;
use super::row_groups::RowGroups;
use super::spec::{EmptyItems, JobSpec};
use crate::error::Result;
use umbel_dedup_engine::Rank;
use umbel_records::{ContentDigest, Granularity, Normalisers, ReadError, RowGroupItems};

/// Most bytes of items that are read at once, unless one item is longer.
const BATCH_BYTES: usize = 64 << 10;

/// Opens a row group for its items.
pub(crate) fn open_rows(
    source: &Source,
    row_groups: &RowGroups,
    row_group: usize,
    spec: &JobSpec,
) -> Result<Box<dyn ChunkContent>> {
    let file = row_groups.open(source)?;
    let offset = file.row_group_offset(row_group);
    let rows = RowGroupItems::open(&file, row_group, &row_groups.selection);
    let (rows, failed) = match rows {
        Ok(rows) => (Some(rows.normalised(&Normalisers::new(spec.normalise.clone()))), None),
        // A damaged row group is a bad record, and not an error of the job.
        Err(error) => (None, Some(error.into())),
    };
    let has_pieces = matches!(spec.granularity, Granularity::Paragraph(_));
    let keeps_empty = spec.empty == EmptyItems::Keep;
    Ok(Box::new(RowContent {
        rows,
        failed,
        best: spec.best.clone(),
        pieces: has_pieces.then(|| PieceRules::of(spec)),
        keeps: keeps_empty.then(|| row_groups.selection.emptiness()),
        offset,
        items: Vec::new(),
        ends: Vec::new(),
        ranks: Vec::new(),
        id_count: 0,
        digest: ContentDigest::default(),
    }))
}

/// The rows of a row group: each has one number, or one per piece of its text.
struct RowContent {
    /// `None` if they could not be opened.
    rows: Option<RowGroupItems>,
    /// The error behind the rows that were read last.
    failed: Option<ReadError>,
    /// The ranker of rows, if the job keeps the best.
    best: Option<BestField>,
    /// Set if items are texts, of which every piece is compared.
    pieces: Option<PieceRules>,
    /// Which items are exempt: not compared, and kept.
    keeps: Option<fn(&[u8]) -> bool>,
    /// Offset of the row group in the file.
    offset: u64,
    /// The items that were read last, concatenated, and the end offset of each.
    items: Vec<u8>,
    ends: Vec<usize>,
    /// Their ranks; empty unless the job keeps the best.
    ranks: Vec<Rank>,
    /// The next number in the chunk.
    id_count: u64,
    digest: ContentDigest,
}

impl RowContent {
    /// Takes the digest, after the last read.
    fn finish(&mut self) -> Result<(), ReadError> {
        if let Some(rows) = &self.rows {
            self.digest = rows.digest()?;
        }
        Ok(())
    }
}

impl ChunkContent for RowContent {
    fn read(&mut self) -> Result<bool, ReadError> {
        self.items.clear();
        self.ends.clear();
        self.ranks.clear();
        while let (Some(rows), None) = (&mut self.rows, &self.failed)
            && self.items.len() < BATCH_BYTES
        {
            match rows.next_item() {
                Ok(Some(item)) => {
                    self.items.extend_from_slice(item);
                    self.ends.push(self.items.len());
                    self.ranks.extend(self.best.as_ref().map(|best| best.rank(rows.score())));
                }
                Ok(None) => break,
                Err(error) => self.failed = Some(error.into()),
            }
        }
        if !self.ends.is_empty() {
            return Ok(true);
        }
        self.finish()?;
        self.failed.take().map_or(Ok(false), Err)
    }

    fn hand_out(&mut self, wanted: &dyn Fn(u64) -> bool, take: &mut Take<'_>) -> Result<()> {
        let mut start = 0;
        for (row, &end) in self.ends.iter().enumerate() {
            let item = &self.items[start..end];
            start = end;
            let rank = self.ranks.get(row).copied().unwrap_or_default();
            if let Some(pieces) = &mut self.pieces {
                if pieces.hand_out(item, rank, &mut self.id_count, wanted, take)? {
                    continue;
                }
                break;
            }
            let number = self.id_count;
            self.id_count += 1;
            let is_exempt = self.keeps.is_some_and(|is_empty| is_empty(item));
            let found = if is_exempt { Found::Exempt } else { Found::Item(item, rank) };
            if wanted(number) && !take(Position { number, starts_record: true }, found)? {
                break;
            }
        }
        Ok(())
    }

    fn has_parts(&self) -> bool {
        self.pieces.is_some()
    }

    fn content_offset(&self) -> u64 {
        self.offset
    }

    fn stored_bytes_read(&self) -> u64 {
        self.rows.as_ref().map_or(0, RowGroupItems::stored_bytes_read)
    }

    fn digest(&self) -> ContentDigest {
        self.digest
    }
}
