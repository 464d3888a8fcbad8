//! Segments: entries on disk, of a worker in its folder, of a job in one process on scratch disk. Runs of many chunks are
//! merged into one segment, partitioned by cell.
//!
//! ```text
//! segment:  | cell 0: entry entry | cell 1: entry | ... | table: first entry of each cell u32, and their number |
//! entry:    hi u64, lo u64, record id u64 (with a worker's own numbers of chunks), little-endian = 24 bytes;
//!           if the job keeps the best of equal entries, rank u64 = 32 bytes
//! ```
//!
//! Entries are read cell by cell, with one read per segment and cell. So segments should be few: ten thousand small files
//! share them. Tables are kept in memory if they fit.

use super::run_builder::{CellEntries, Run, entry_bytes};
use crate::error::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use umbel_dedup_engine::limits::{CELL_ENTRIES_MAX, RECORD_ID_CHUNK_BITS};
use umbel_dedup_engine::{Entry, JobShape, Rank, RecordId};
use umbel_filter::{CellCount, ItemHash};

/// Bytes of memory that an entry takes at its worker while its cell is exchanged, without its rank.
const EXCHANGED_ENTRY_BYTES: u64 = 48;

/// The layout of all segments of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentLayout {
    cells: CellCount,
    is_ranked: bool,
}

impl SegmentLayout {
    /// The layout of a job with this shape.
    pub(crate) fn of(shape: &JobShape) -> Self {
        Self::new(shape.cells(), shape.ranks_entries())
    }

    /// The layout for so many cells, with or without ranks.
    pub(crate) const fn new(cells: CellCount, is_ranked: bool) -> Self {
        Self { cells, is_ranked }
    }

    /// The cells by which entries are partitioned.
    pub(crate) const fn cells(self) -> CellCount {
        self.cells
    }

    /// Whether entries have ranks.
    pub(crate) const fn is_ranked(self) -> bool {
        self.is_ranked
    }

    fn run_entry_bytes(self) -> usize {
        entry_bytes(self.is_ranked)
    }

    /// Bytes of an entry in a segment, which has a whole record id instead of a number in the run.
    pub(crate) fn entry_bytes(self) -> usize {
        self.run_entry_bytes() + 4
    }

    fn exchanged_entry_bytes(self) -> u64 {
        EXCHANGED_ENTRY_BYTES + if self.is_ranked { 8 } else { 0 }
    }
}

/// A file that segments are appended to, from many threads, and read from.
pub(crate) trait SegmentFile {
    /// Appends bytes and returns their offset.
    fn append(&self, bytes: &[u8]) -> Result<u64>;

    /// Fills the buffer from an offset. Fails if the file ends before the buffer is full.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Its name in messages.
    fn name(&self) -> String;
}

/// The position of a segment in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Segment {
    offset: u64,
    entries: u32,
}

impl Segment {
    fn table(self, layout: SegmentLayout) -> u64 {
        self.offset + u64::from(self.entries) * layout.entry_bytes() as u64
    }

    /// The offset after its last byte.
    pub(crate) fn end(self, layout: SegmentLayout) -> u64 {
        self.table(layout) + 4 * (u64::from(layout.cells.get()) + 1)
    }
}

/// Runs of whole chunks, or of a part of one, to be written as a segment.
#[derive(Default)]
pub(crate) struct GatheredRuns {
    runs: Vec<(u32, Run)>,
    bytes: usize,
}

impl GatheredRuns {
    /// Adds a run of a chunk.
    pub(crate) fn push(&mut self, chunk: u32, run: Run) {
        self.bytes += run.bytes.len();
        self.runs.push((chunk, run));
    }

    /// Moves all runs of `others` to these.
    pub(crate) fn append(&mut self, others: &mut Self) {
        self.runs.append(&mut others.runs);
        self.bytes += std::mem::take(&mut others.bytes);
    }

    /// Bytes of their entries.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the runs as a segment, which is durable after a sync; `None` if there are none.
    pub(crate) fn write(
        &mut self,
        data: &impl SegmentFile,
        layout: SegmentLayout,
    ) -> Result<Option<Segment>> {
        let runs = std::mem::take(&mut self.runs);
        self.bytes = 0;
        let cell_of = |entry: &[u8]| layout.cells.cell_of(word(entry, 0)) as usize;
        let mut next = vec![0u32; layout.cells.get() as usize + 1];
        for (_, run) in &runs {
            for entry in run.bytes.chunks_exact(layout.run_entry_bytes()) {
                next[cell_of(entry) + 1] += 1;
            }
        }
        for cell in 1..next.len() {
            next[cell] += next[cell - 1];
        }
        let entries = next[next.len() - 1];
        if entries == 0 {
            return Ok(None);
        }
        let entry_bytes = layout.entry_bytes();
        let (table, length) = (entries as usize * entry_bytes, 4 * next.len());
        let mut bytes = Vec::with_capacity(table + length);
        bytes.resize(table, 0);
        bytes.extend(next.iter().flat_map(|first| first.to_le_bytes()));
        for (chunk, run) in runs {
            for entry in run.bytes.chunks_exact(layout.run_entry_bytes()) {
                let (hash, rest) = entry.split_at(16);
                let (number, rank) = rest.split_at(4);
                let number = u32::from_le_bytes(number.try_into().expect("4 bytes"));
                let record_id = RecordId::new(chunk, run.first_item + u64::from(number));
                let slot = &mut next[cell_of(entry)];
                let to = &mut bytes[*slot as usize * entry_bytes..][..entry_bytes];
                *slot += 1;
                to[..16].copy_from_slice(hash);
                to[16..24].copy_from_slice(&record_id.to_bits().to_le_bytes());
                to[24..].copy_from_slice(rank);
            }
        }
        Ok(Some(Segment { offset: data.append(&bytes)?, entries }))
    }
}

fn word(entry: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"))
}

/// What a reader may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellLimits {
    /// Bytes of memory for the tables of all segments; if they take more, they are read cell by cell, too.
    pub(crate) table_bytes: u64,
    /// Entries of one cell.
    pub(crate) entries: u64,
}

impl CellLimits {
    /// Those of a worker with this much memory: tables may take a sixteenth of it, the entries of one cell a half.
    pub(crate) fn of(memory_bytes: u64, layout: SegmentLayout) -> Self {
        let entries = memory_bytes / 2 / layout.exchanged_entry_bytes();
        Self { table_bytes: memory_bytes / 16, entries: entries.min(CELL_ENTRIES_MAX as u64) }
    }
}

/// Reads entries cell by cell.
pub(crate) struct CellReader<F> {
    data: Arc<F>,
    segments: Vec<Segment>,
    layout: SegmentLayout,
    /// The tables of all segments, one after the other, if they fit into memory.
    tables: Option<Vec<u32>>,
    /// Number in the job of the first chunk.
    chunk_base: u32,
    cell_entries_max: u64,
}

impl<F: SegmentFile> CellReader<F> {
    /// A reader of these segments.
    ///
    /// # Errors
    ///
    /// If a table cannot be read.
    pub(crate) fn new(
        data: Arc<F>,
        segments: Vec<Segment>,
        layout: SegmentLayout,
        chunk_base: u32,
        limits: CellLimits,
    ) -> Result<Self> {
        let row = layout.cells.get() as usize + 1;
        let mut reader = Self {
            data,
            segments,
            layout,
            tables: None,
            chunk_base,
            cell_entries_max: limits.entries,
        };
        if (reader.segments.len() * row * 4) as u64 <= limits.table_bytes {
            let mut tables = Vec::with_capacity(reader.segments.len() * row);
            let mut bytes = vec![0; 4 * row];
            for segment in &reader.segments {
                reader.data.read(segment.table(layout), &mut bytes)?;
                tables.extend(
                    bytes.as_chunks::<4>().0.iter().map(|first| u32::from_le_bytes(*first)),
                );
            }
            reader.tables = Some(tables);
        }
        Ok(reader)
    }

    /// All entries in a cell, in no particular order, with their ranks if they have any.
    ///
    /// # Errors
    ///
    /// If they do not fit into memory, or scratch cannot be read.
    pub(crate) fn entries(&self, cell: u32) -> Result<CellEntries> {
        let cells = self.layout.cells.get();
        if cell >= cells {
            bail!("there is no cell {cell}, only {cells}");
        }
        let spans: Vec<(u64, u32)> =
            (0..self.segments.len()).map(|row| self.span(row, cell)).collect::<Result<_>>()?;
        let count: u64 = spans.iter().map(|(_, entries)| u64::from(*entries)).sum();
        // More than that is refused by whoever compares them, whatever the memory is.
        if count > self.cell_entries_max && self.cell_entries_max < CELL_ENTRIES_MAX as u64 {
            let needed = (count * self.layout.exchanged_entry_bytes() * 2).div_ceil(1 << 20);
            bail!(
                "one of {cells} hash ranges holds {count} records, as the input has far more than its sizes and \
                 beginnings suggested, or one of them very often: --memory {needed}M or more would do"
            );
        }
        let count = usize::try_from(count).context("entries of a cell")?;
        let mut found = CellEntries { entries: Vec::with_capacity(count), ranks: Vec::new() };
        let entry_bytes = self.layout.entry_bytes();
        let mut buffer = Vec::new();
        for (offset, count) in spans.into_iter().filter(|(_, count)| *count > 0) {
            buffer.resize(count as usize * entry_bytes, 0);
            self.data.read(offset, &mut buffer)?;
            for entry in buffer.chunks_exact(entry_bytes) {
                found.entries.push(self.entry(entry)?);
                found.ranks.extend(self.layout.is_ranked.then(|| Rank(word(entry, 24))));
            }
        }
        Ok(found)
    }

    fn entry(&self, stored: &[u8]) -> Result<Entry> {
        let own = RecordId::from_bits(word(stored, 16));
        let chunk = own.chunk().saturating_add(self.chunk_base);
        if chunk >= 1 << RECORD_ID_CHUNK_BITS {
            bail!("{}: damaged: there is no chunk {chunk}", self.data.name());
        }
        let record_id = RecordId::new(chunk, own.item());
        Ok(Entry { hash: ItemHash::new(word(stored, 0), word(stored, 8)), record_id })
    }

    /// Where a segment's entries of a cell begin, and how many there are.
    fn span(&self, row: usize, cell: u32) -> Result<(u64, u32)> {
        let segment = self.segments[row];
        let (first, next) = match &self.tables {
            Some(tables) => {
                let at = row * (self.layout.cells.get() as usize + 1) + cell as usize;
                (tables[at], tables[at + 1])
            }
            None => {
                let mut bytes = [0; 8];
                self.data.read(segment.table(self.layout) + 4 * u64::from(cell), &mut bytes)?;
                let [first, next] = [0, 4]
                    .map(|at| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")));
                (first, next)
            }
        };
        if first > next || next > segment.entries {
            bail!(
                "{}: damaged: cell {cell} is {first} to {next} of {}",
                self.data.name(),
                segment.entries
            );
        }
        Ok((segment.offset + u64::from(first) * self.layout.entry_bytes() as u64, next - first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::run_builder::RunBuilder;
    use super::super::spill::ScratchFile;
    use super::*;
    use umbel_dedup_engine::Keep;
    use umbel_filter::ItemHasher;

    fn entries_come_back(is_ranked: bool) {
        let data = Arc::new(ScratchFile::new(&std::env::temp_dir()));
        let cells = CellCount::new(5).unwrap();
        let layout = SegmentLayout { cells, is_ranked };
        let limits = |memory_bytes| CellLimits::of(memory_bytes, layout);
        let mut expected = vec![Vec::new(); 5];
        let mut segments = Vec::new();
        let mut gathered = GatheredRuns::default();
        let mut builder = RunBuilder::new(cells, Keep::First, true, is_ranked);
        for (chunk, length) in [(0, 300), (1, 2), (2, 1), (3, 40)] {
            for item in 0..length {
                let number = u64::from(chunk) * 1000 + item;
                let hash = ItemHasher::Xxh3 { seed: 1 }.hash(&number.to_le_bytes());
                let rank = Rank(if is_ranked { hash.lo() / 3 } else { 0 });
                builder.push(hash, item, rank);
                let record_id = RecordId::new(chunk + 70, item);
                expected[cells.cell_of(hash.hi()) as usize].push((Entry { hash, record_id }, rank));
            }
            gathered.push(chunk, builder.take().unwrap());
            if chunk % 2 == 1 {
                segments.extend(gathered.write(&*data, layout).unwrap());
            }
        }
        assert!(gathered.write(&*data, layout).unwrap().is_none());
        assert_eq!(segments.last().unwrap().end(layout), data.bytes());
        for holds_tables in [true, false] {
            let mut reader =
                CellReader::new(Arc::clone(&data), segments.clone(), layout, 70, limits(1 << 20))
                    .unwrap();
            assert!(reader.tables.is_some());
            if !holds_tables {
                reader.tables = None;
            }
            for (cell, expected) in (0..5).zip(&mut expected) {
                let CellEntries { entries, mut ranks } = reader.entries(cell).unwrap();
                assert_eq!(ranks.len(), if is_ranked { entries.len() } else { 0 });
                ranks.resize(entries.len(), Rank(0));
                let mut found: Vec<_> = entries.into_iter().zip(ranks).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(&found, expected);
            }
        }
        let reader = CellReader::new(data, segments, layout, 70, limits(1000)).unwrap();
        let error = reader.entries(0).unwrap_err().to_string();
        assert!(error.contains("--memory 1M or more"), "{error}");
    }

    #[test]
    fn entries_come_back_cell_by_cell_with_the_job_s_chunk_numbers() {
        [false, true].into_iter().for_each(entries_come_back);
    }
}
