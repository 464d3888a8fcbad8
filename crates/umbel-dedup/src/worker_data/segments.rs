//! Segments: entries on disk. The runs of many chunks are merged into one segment, partitioned by cell.
//!
//! ```text
//! segment:  | cell 0: entry entry | cell 1: entry | ... | table: first entry of each cell u32, and their number |
//! entry:    hi u64, lo u64, record id u64 (with the worker's own numbers of chunks), little-endian = 24 bytes;
//!           if the job keeps the best of equal entries, rank u64 = 32 bytes
//! ```
//!
//! A worker reads its entries cell by cell, with one read per segment and cell. So segments should be few:
//! ten thousand small files share them. Tables are kept in memory if they fit.

use super::super::hash_runs::{CellEntries, Run, entry_bytes};
use super::folder::DataFile;
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
pub(super) struct SegmentLayout {
    cells: CellCount,
    is_ranked: bool,
}

impl SegmentLayout {
    /// The layout of a job with this shape.
    pub(super) fn of(shape: &JobShape) -> Self {
        Self { cells: shape.cells(), is_ranked: shape.ranks_entries() }
    }

    /// Bytes of an entry in a run.
    fn run_entry_bytes(self) -> usize {
        entry_bytes(self.is_ranked)
    }

    /// Bytes of an entry in a segment, which has a whole record id instead of a number in the run.
    fn entry_bytes(self) -> usize {
        self.run_entry_bytes() + 4
    }

    fn exchanged_entry_bytes(self) -> u64 {
        EXCHANGED_ENTRY_BYTES + if self.is_ranked { 8 } else { 0 }
    }
}

/// The position of a segment in the file `runs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Segment {
    offset: u64,
    entries: u32,
}

impl Segment {
    fn table(self, layout: SegmentLayout) -> u64 {
        self.offset + u64::from(self.entries) * layout.entry_bytes() as u64
    }

    /// The offset after its last byte.
    pub(super) fn end(self, layout: SegmentLayout) -> u64 {
        self.table(layout) + 4 * (u64::from(layout.cells.get()) + 1)
    }
}

/// Runs of whole chunks, or of a part of one, to be written as a segment.
#[derive(Default)]
pub(super) struct GatheredRuns {
    runs: Vec<(u32, Run)>,
    bytes: usize,
}

impl GatheredRuns {
    /// Adds a run of a chunk.
    pub(super) fn push(&mut self, chunk: u32, run: Run) {
        self.bytes += run.bytes.len();
        self.runs.push((chunk, run));
    }

    /// Moves all runs of `others` to these.
    pub(super) fn append(&mut self, others: &mut Self) {
        self.runs.append(&mut others.runs);
        self.bytes += std::mem::take(&mut others.bytes);
    }

    /// Bytes of their entries.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the runs as a segment, which is durable after a sync; `None` if there are none.
    pub(super) fn write(
        &mut self,
        data: &DataFile,
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
        let table: Vec<u8> = next.iter().flat_map(|first| first.to_le_bytes()).collect();
        let entry_bytes = layout.entry_bytes();
        let mut bytes = vec![0; entries as usize * entry_bytes];
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
        let offset = data.reserve((bytes.len() + table.len()) as u64);
        let segment = Segment { offset, entries };
        data.write_at(&bytes, offset)?;
        data.write_at(&table, segment.table(layout))?;
        Ok(Some(segment))
    }
}

fn word(entry: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"))
}

/// Reads the entries of a worker cell by cell.
pub(super) struct CellReader {
    data: Arc<DataFile>,
    segments: Vec<Segment>,
    layout: SegmentLayout,
    /// The tables of all segments, one after the other, if they fit into memory.
    tables: Option<Vec<u32>>,
    /// Number in the job of the worker's first chunk.
    chunk_base: u32,
    cell_entries_max: u64,
}

impl CellReader {
    /// A reader for a worker with this much memory: tables may take a sixteenth of it, the entries of one
    /// cell a half.
    pub(super) fn new(
        data: Arc<DataFile>,
        segments: Vec<Segment>,
        layout: SegmentLayout,
        chunk_base: u32,
        memory_bytes: u64,
    ) -> Result<Self> {
        let row = layout.cells.get() as usize + 1;
        let cell_entries_max =
            (memory_bytes / 2 / layout.exchanged_entry_bytes()).min(CELL_ENTRIES_MAX as u64);
        let mut reader =
            Self { data, segments, layout, tables: None, chunk_base, cell_entries_max };
        if (reader.segments.len() * row * 4) as u64 <= memory_bytes / 16 {
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
    pub(super) fn entries(&self, cell: u32) -> Result<CellEntries> {
        let cells = self.layout.cells.get();
        if cell >= cells {
            bail!("there is no cell {cell}, only {cells}");
        }
        let spans: Vec<(u64, u32)> =
            (0..self.segments.len()).map(|row| self.span(row, cell)).collect::<Result<_>>()?;
        let count: u64 = spans.iter().map(|(_, entries)| u64::from(*entries)).sum();
        if count > self.cell_entries_max {
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
    use super::super::super::run_builder::RunBuilder;
    use super::super::folder::JobFolder;
    use super::*;
    use umbel_dedup_engine::{Keep, Rank};
    use umbel_filter::ItemHasher;

    fn entries_come_back(is_ranked: bool) {
        let directory = tempfile::tempdir().unwrap();
        let folder = JobFolder::take(directory.path()).unwrap();
        let data = Arc::new(DataFile::open(&folder, "runs", 0).unwrap());
        let cells = CellCount::new(5).unwrap();
        let layout = SegmentLayout { cells, is_ranked };
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
                segments.extend(gathered.write(&data, layout).unwrap());
            }
        }
        assert!(gathered.write(&data, layout).unwrap().is_none());
        assert_eq!(segments.last().unwrap().end(layout), data.bytes());
        for holds_tables in [true, false] {
            let mut reader =
                CellReader::new(Arc::clone(&data), segments.clone(), layout, 70, 1 << 20).unwrap();
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
        let reader = CellReader::new(data, segments, layout, 70, 1000).unwrap();
        let error = reader.entries(0).unwrap_err().to_string();
        assert!(error.contains("--memory 1M or more"), "{error}");
    }

    #[test]
    fn entries_come_back_cell_by_cell_with_the_job_s_chunk_numbers() {
        [false, true].into_iter().for_each(entries_come_back);
    }
}
