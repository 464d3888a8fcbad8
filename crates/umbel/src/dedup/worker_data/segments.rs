//! Entries on disk: the runs of many chunks merged into a segment that is partitioned by cell.
//!
//! ```text
//! segment:  | cell 0: entry entry | cell 1: entry | ... | table: first entry of each cell u32, and their number |
//! entry:    hi u64, lo u64, place u64 (the worker's own numbers of chunks), little-endian = 24 bytes
//! ```
//!
//! A worker reads its entries cell by cell, so a cell costs one read a segment: the fewer there are, the better, and
//! ten thousand small files must not make ten thousand of them. Tables are held in memory as far as that allows.

use super::super::hash_runs::{Run, entry_bytes};
use super::folder::DataFile;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use umbel_engine::dedup::{Entry, Place};
use umbel_engine::limits::{CELL_ENTRIES_MAX, PLACE_CHUNK_BITS};
use umbel_filter::{CellCount, ItemHash};

/// Bytes of an entry in a segment.
const SEGMENT_ENTRY_BYTES: usize = 24;

/// Bytes of memory that an entry takes at its worker while its cell is exchanged.
const EXCHANGED_ENTRY_BYTES: u64 = 48;

/// Where a segment is in the file of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Segment {
    offset: u64,
    entries: u32,
}

impl Segment {
    fn table(self) -> u64 {
        self.offset + u64::from(self.entries) * SEGMENT_ENTRY_BYTES as u64
    }

    /// The first byte behind it.
    pub(super) fn end(self, cells: CellCount) -> u64 {
        self.table() + 4 * (u64::from(cells.get()) + 1)
    }
}

/// Runs of whole chunks, or of a part of one, that are to become a segment.
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

    /// Adds all of others.
    pub(super) fn append(&mut self, others: &mut Self) {
        self.runs.append(&mut others.runs);
        self.bytes += std::mem::take(&mut others.bytes);
    }

    /// Bytes of their entries.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes them as a segment, which is not durable yet; `None` if there are none.
    pub(super) fn write(&mut self, data: &DataFile, cells: CellCount) -> Result<Option<Segment>> {
        let runs = std::mem::take(&mut self.runs);
        self.bytes = 0;
        let mut next = vec![0u32; cells.get() as usize + 1];
        for entry in runs.iter().flat_map(|(_, run)| stored(run)) {
            next[cells.cell_of(word(entry, 0)) as usize + 1] += 1;
        }
        for cell in 1..next.len() {
            next[cell] += next[cell - 1];
        }
        let entries = next[next.len() - 1];
        if entries == 0 {
            return Ok(None);
        }
        let table: Vec<u8> = next.iter().flat_map(|first| first.to_le_bytes()).collect();
        let mut bytes = vec![0; entries as usize * SEGMENT_ENTRY_BYTES];
        for (chunk, run) in runs {
            for entry in stored(&run) {
                let number = u32::from_le_bytes(entry[16..].try_into().expect("4 bytes"));
                let place = Place::new(chunk, run.first_item + u64::from(number));
                let slot = &mut next[cells.cell_of(word(entry, 0)) as usize];
                let at = *slot as usize * SEGMENT_ENTRY_BYTES;
                *slot += 1;
                bytes[at..at + 16].copy_from_slice(&entry[..16]);
                bytes[at + 16..at + 24].copy_from_slice(&place.to_bits().to_le_bytes());
            }
        }
        let offset = data.reserve((bytes.len() + table.len()) as u64);
        let segment = Segment { offset, entries };
        data.write_at(&bytes, offset)?;
        data.write_at(&table, segment.table())?;
        Ok(Some(segment))
    }
}

/// Bytes of an entry in a run; a worker's do not rank.
const ENTRY_BYTES: usize = entry_bytes(false);

type StoredEntry = [u8; ENTRY_BYTES];

fn stored(run: &Run) -> &[StoredEntry] {
    run.bytes.as_chunks::<ENTRY_BYTES>().0
}

fn word(entry: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"))
}

/// All entries of a worker, by cell.
pub(super) struct CellReader {
    data: Arc<DataFile>,
    segments: Vec<Segment>,
    cells: CellCount,
    /// Tables of all segments, one behind the other, if the memory is there.
    tables: Option<Vec<u32>>,
    /// Number in the job of the worker's first chunk.
    chunk_base: u32,
    cell_entries_max: u64,
}

impl CellReader {
    /// A reader that may hold tables of so many bytes, and entries of one cell in a memory of that size.
    pub(super) fn new(
        data: Arc<DataFile>,
        segments: Vec<Segment>,
        cells: CellCount,
        chunk_base: u32,
        memory_bytes: u64,
    ) -> Result<Self> {
        let row = cells.get() as usize + 1;
        let cell_entries_max =
            (memory_bytes / 2 / EXCHANGED_ENTRY_BYTES).min(CELL_ENTRIES_MAX as u64);
        let mut reader = Self { data, segments, cells, tables: None, chunk_base, cell_entries_max };
        if (reader.segments.len() * row * 4) as u64 <= memory_bytes / 16 {
            let mut tables = Vec::with_capacity(reader.segments.len() * row);
            let mut bytes = vec![0; 4 * row];
            for segment in &reader.segments {
                reader.data.read(segment.table(), &mut bytes)?;
                tables.extend(
                    bytes.as_chunks::<4>().0.iter().map(|first| u32::from_le_bytes(*first)),
                );
            }
            reader.tables = Some(tables);
        }
        Ok(reader)
    }

    /// All entries in a cell, in no particular order.
    ///
    /// # Errors
    ///
    /// If they do not fit the memory, or scratch cannot be read.
    pub(super) fn entries(&self, cell: u32) -> Result<Vec<Entry>> {
        if cell >= self.cells.get() {
            bail!("there is no cell {cell}, only {}", self.cells.get());
        }
        let spans: Vec<(u64, u32)> =
            (0..self.segments.len()).map(|row| self.span(row, cell)).collect::<Result<_>>()?;
        let count: u64 = spans.iter().map(|(_, entries)| u64::from(*entries)).sum();
        if count > self.cell_entries_max {
            let needed = (count * EXCHANGED_ENTRY_BYTES * 2).div_ceil(1 << 20);
            bail!(
                "one of {} hash ranges holds {count} records, as the input has far more than its sizes and \
                 beginnings suggested, or one of them very often: --memory {needed}M or more would do",
                self.cells.get()
            );
        }
        let mut entries = Vec::with_capacity(usize::try_from(count).context("entries of a cell")?);
        let mut buffer = Vec::new();
        for (offset, count) in spans.into_iter().filter(|(_, count)| *count > 0) {
            buffer.resize(count as usize * SEGMENT_ENTRY_BYTES, 0);
            self.data.read(offset, &mut buffer)?;
            for entry in buffer.as_chunks::<SEGMENT_ENTRY_BYTES>().0 {
                entries.push(self.entry(entry)?);
            }
        }
        Ok(entries)
    }

    fn entry(&self, stored: &[u8; SEGMENT_ENTRY_BYTES]) -> Result<Entry> {
        let own = Place::from_bits(word(stored, 16));
        let chunk = own.chunk().saturating_add(self.chunk_base);
        if chunk >= 1 << PLACE_CHUNK_BITS {
            bail!("{}: damaged: there is no chunk {chunk}", self.data.name());
        }
        let place = Place::new(chunk, own.item());
        Ok(Entry { hash: ItemHash::new(word(stored, 0), word(stored, 8)), place })
    }

    /// Where a segment's entries of a cell begin, and how many there are.
    fn span(&self, row: usize, cell: u32) -> Result<(u64, u32)> {
        let segment = self.segments[row];
        let (first, next) = match &self.tables {
            Some(tables) => {
                let at = row * (self.cells.get() as usize + 1) + cell as usize;
                (tables[at], tables[at + 1])
            }
            None => {
                let mut bytes = [0; 8];
                self.data.read(segment.table() + 4 * u64::from(cell), &mut bytes)?;
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
        Ok((segment.offset + u64::from(first) * SEGMENT_ENTRY_BYTES as u64, next - first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::run_builder::RunBuilder;
    use super::super::folder::JobFolder;
    use super::*;
    use umbel_engine::dedup::{Keep, Rank};
    use umbel_filter::ItemHasher;

    #[test]
    fn entries_come_back_cell_by_cell_with_the_job_s_chunk_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let folder = JobFolder::take(directory.path()).unwrap();
        let data = Arc::new(DataFile::open(&folder, "runs", 0).unwrap());
        let cells = CellCount::new(5).unwrap();
        let mut expected = vec![Vec::new(); 5];
        let mut segments = Vec::new();
        let mut gathered = GatheredRuns::default();
        let mut builder = RunBuilder::new(cells, Keep::First, true, false);
        for (chunk, length) in [(0, 300), (1, 2), (2, 1), (3, 40)] {
            for item in 0..length {
                let number = u64::from(chunk) * 1000 + item;
                let hash = ItemHasher::Xxh3 { seed: 1 }.hash(&number.to_le_bytes());
                builder.push(hash, item, Rank::default());
                let place = Place::new(chunk + 70, item);
                expected[cells.cell_of(hash.hi()) as usize].push(Entry { hash, place });
            }
            gathered.push(chunk, builder.take().unwrap());
            if chunk % 2 == 1 {
                segments.extend(gathered.write(&data, cells).unwrap());
            }
        }
        assert!(gathered.write(&data, cells).unwrap().is_none());
        for holds_tables in [true, false] {
            let mut reader =
                CellReader::new(Arc::clone(&data), segments.clone(), cells, 70, 1 << 20).unwrap();
            assert!(reader.tables.is_some());
            if !holds_tables {
                reader.tables = None;
            }
            for (cell, expected) in (0..5).zip(&mut expected) {
                let mut entries = reader.entries(cell).unwrap();
                entries.sort_unstable();
                expected.sort_unstable();
                assert_eq!(&entries, expected);
            }
        }
        let reader = CellReader::new(data, segments, cells, 70, 1000).unwrap();
        let error = reader.entries(0).unwrap_err().to_string();
        assert!(error.contains("--memory 1M or more"), "{error}");
    }
}
