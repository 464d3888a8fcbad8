//! Stores the runs of entries until the exchange: in memory as far as they fit, the rest on scratch disk.

use super::spill::ScratchFile;
use crate::error::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_dedup_engine::{Entry, Rank, RecordId};
use umbel_filter::{CellCount, ItemHash};

/// Bytes of an entry in a run, with and without a rank.
pub(crate) const fn entry_bytes(is_ranked: bool) -> usize {
    if is_ranked { 28 } else { 20 }
}

/// Entries, and their ranks if they have any.
#[derive(Default, PartialEq, Debug)]
pub(crate) struct CellEntries {
    pub(crate) entries: Vec<Entry>,
    pub(crate) ranks: Vec<Rank>,
}

/// Entries of one chunk, partitioned by cell.
pub(crate) struct Run {
    /// Number in the chunk of the run's item 0.
    pub(crate) first_item: u64,
    /// Index of the first entry of each cell, and the number of all entries; empty if the run is shorter than
    /// that table.
    pub(crate) offsets: Vec<u32>,
    /// The entries.
    pub(crate) bytes: Vec<u8>,
}

enum Body {
    Memory(Vec<u8>),
    Disk(u64),
}

struct StoredRun {
    worker: u16,
    chunk: u32,
    first_item: u64,
    offsets: Vec<u32>,
    /// Bytes of all entries.
    length: usize,
    body: Body,
}

/// Takes runs from all threads.
pub(crate) struct RunStore {
    resident_bytes_max: u64,
    resident_bytes: AtomicU64,
    scratch: Arc<ScratchFile>,
    runs: Mutex<Vec<StoredRun>>,
}

impl RunStore {
    /// A store that takes this much memory and writes further runs to the scratch file.
    pub(crate) fn new(resident_bytes_max: u64, scratch: Arc<ScratchFile>) -> Self {
        let runs = Mutex::new(Vec::new());
        Self { resident_bytes_max, resident_bytes: AtomicU64::new(0), scratch, runs }
    }

    /// Stores a run of a worker's chunk.
    pub(crate) fn push(&self, worker: u16, chunk: u32, run: Run) -> Result<()> {
        let Run { first_item, offsets, bytes } = run;
        // The table of offsets remains in memory, and is counted with the run.
        let length = (bytes.len() + 4 * offsets.len()) as u64;
        let run_bytes = bytes.len();
        let resident = self.resident_bytes.fetch_add(length, Ordering::Relaxed) + length;
        let body = if resident <= self.resident_bytes_max {
            Body::Memory(bytes)
        } else {
            self.resident_bytes.fetch_sub(length, Ordering::Relaxed);
            Body::Disk(self.scratch.append(&bytes)?)
        };
        let run = StoredRun { worker, chunk, first_item, offsets, length: run_bytes, body };
        self.runs.lock().expect("no thread panics while it holds the lock").push(run);
        Ok(())
    }

    /// Ends the input; then runs can be read cell by cell.
    pub(crate) fn finish(self, workers: u32, cells: CellCount, is_ranked: bool) -> HashRuns {
        let mut runs = self.runs.into_inner().expect("no thread panics while it holds the lock");
        runs.sort_by_key(|run| (run.worker, run.chunk, run.first_item));
        let starts =
            (0..=workers).map(|w| runs.partition_point(|run| u32::from(run.worker) < w)).collect();
        HashRuns { runs, starts, cells, is_ranked, scratch: self.scratch }
    }
}

/// All runs of a job.
pub(crate) struct HashRuns {
    runs: Vec<StoredRun>,
    /// First run of each worker, and the number of all runs.
    starts: Vec<usize>,
    cells: CellCount,
    is_ranked: bool,
    scratch: Arc<ScratchFile>,
}

/// A word of a stored entry: hi, lo, number in the run, optionally the rank, all little-endian.
fn word<const ENTRY_BYTES: usize>(entry: &[u8; ENTRY_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"))
}

impl HashRuns {
    /// All entries of a worker in a cell, in input order.
    pub(crate) fn cell(&self, worker: u16, cell: u32) -> Result<CellEntries> {
        if self.is_ranked {
            self.read_cell::<{ entry_bytes(true) }>(worker, cell)
        } else {
            self.read_cell::<{ entry_bytes(false) }>(worker, cell)
        }
    }

    fn read_cell<const ENTRY_BYTES: usize>(&self, worker: u16, cell: u32) -> Result<CellEntries> {
        let worker = usize::from(worker);
        let runs = &self.runs[self.starts[worker]..self.starts[worker + 1]];
        let CellEntries { mut entries, mut ranks } = CellEntries::default();
        let mut buffer = Vec::new();
        for run in runs {
            let stored = self.stored::<ENTRY_BYTES>(run, cell, &mut buffer)?;
            entries.reserve(stored.len());
            entries.extend(stored.iter().map(|entry| {
                let number = u32::from_le_bytes(entry[16..20].try_into().expect("4 bytes"));
                let record_id = RecordId::new(run.chunk, run.first_item + u64::from(number));
                Entry { hash: ItemHash::new(word(entry, 0), word(entry, 8)), record_id }
            }));
            if ENTRY_BYTES == entry_bytes(true) {
                ranks.extend(stored.iter().map(|entry| Rank(word(entry, 20))));
            }
        }
        Ok(CellEntries { entries, ranks })
    }

    /// The entries of a run in a cell.
    fn stored<'a, const ENTRY_BYTES: usize>(
        &self,
        run: &'a StoredRun,
        cell: u32,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [[u8; ENTRY_BYTES]]> {
        let part = match run.offsets.get(cell as usize..cell as usize + 2) {
            Some(&[start, end]) => start as usize * ENTRY_BYTES..end as usize * ENTRY_BYTES,
            _ => 0..run.length,
        };
        let bytes = match &run.body {
            Body::Memory(bytes) => &bytes[part],
            Body::Disk(offset) => {
                buffer.resize(part.len(), 0);
                self.scratch.read(*offset + part.start as u64, buffer)?;
                &buffer[..]
            }
        };
        let (stored, _) = bytes.as_chunks::<ENTRY_BYTES>();
        if !run.offsets.is_empty() {
            return Ok(stored);
        }
        let before =
            |cell| stored.partition_point(|entry| self.cells.cell_of(word(entry, 0)) < cell);
        Ok(&stored[before(cell)..before(cell + 1)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::run_builder::RunBuilder;
    use super::*;
    use umbel_dedup_engine::Keep;
    use umbel_filter::ItemHasher;

    /// Runs of any length, in memory and on disk, return every entry in its cell.
    #[test]
    fn what_is_stored_comes_back_cell_by_cell() {
        let cells = CellCount::new(7).unwrap();
        let hash = |number: u64| ItemHasher::Xxh3 { seed: 1 }.hash(&number.to_le_bytes());
        for (resident_bytes_max, is_ranked) in
            [0, 2000, u64::MAX].into_iter().flat_map(|max| [(max, false), (max, true)])
        {
            let scratch = Arc::new(ScratchFile::new(&std::env::temp_dir()));
            let store = RunStore::new(resident_bytes_max, scratch);
            let mut expected: Vec<CellEntries> = (0..7).map(|_| CellEntries::default()).collect();
            let mut builder = RunBuilder::new(cells, Keep::First, true, is_ranked);
            for (chunk, length) in [(0, 100), (1, 2), (2, 1), (3, 30)] {
                for item in 0..length {
                    let hash = hash(u64::from(chunk) * 1000 + item);
                    let rank = Rank(hash.lo() / 3);
                    assert_eq!(builder.push(hash, item, rank), None);
                    let entry = Entry { hash, record_id: RecordId::new(chunk, item) };
                    let expected = &mut expected[cells.cell_of(hash.hi()) as usize];
                    expected.entries.push(entry);
                    expected.ranks.extend(is_ranked.then_some(rank));
                }
                store.push(0, chunk, builder.take().unwrap()).unwrap();
            }
            let runs = store.finish(1, cells, is_ranked);
            for (cell, expected) in (0..7).zip(&expected) {
                assert_eq!(&runs.cell(0, cell).unwrap(), expected);
            }
        }
    }
}
