//! Stores the runs of entries until the exchange: in memory as far as they fit, the rest on scratch disk.

use super::run_builder::{CellEntries, Run, entry_bytes};
use super::segments::{CellLimits, CellReader, GatheredRuns, Segment, SegmentLayout};
use super::spill::ScratchFile;
use crate::error::Result;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_dedup_engine::limits::CELL_ENTRIES_MAX;
use umbel_dedup_engine::{Entry, Rank, RecordId};
use umbel_filter::ItemHash;

/// Share of the store's memory for the tables of what is on disk.
const TABLE_SHARE: u64 = 8;

/// Most bytes of short runs of a worker that are gathered before they are written as one segment, so that its table of
/// cells is short beside them. Those of all workers take at most [`TABLE_SHARE`] of the store's memory.
const GATHERED_BYTES: u64 = 1 << 20;

/// But these bytes each: segments would be as short as runs otherwise.
const GATHERED_BYTES_MIN: u64 = 16 << 10;

/// Bytes of runs that are kept in memory, of so many for the store.
pub(crate) const fn run_bytes_max(resident_bytes_max: u64) -> u64 {
    resident_bytes_max - resident_bytes_max / TABLE_SHARE
}

struct ResidentRun {
    worker: u16,
    chunk: u32,
    run: Run,
}

/// What one worker has on disk.
#[derive(Default)]
struct Spilled {
    /// Runs that are too short for a table of their own.
    short: GatheredRuns,
    segments: Vec<Segment>,
}

/// Takes runs from all threads.
pub(crate) struct RunStore {
    resident_bytes_max: u64,
    resident_bytes: AtomicU64,
    workers: u32,
    layout: SegmentLayout,
    scratch: Arc<ScratchFile>,
    runs: Mutex<Vec<ResidentRun>>,
    spilled: Mutex<BTreeMap<u16, Spilled>>,
}

impl RunStore {
    /// A store of the runs of so many workers that takes this much memory and writes further runs to the scratch file.
    pub(crate) fn new(
        resident_bytes_max: u64,
        workers: u32,
        layout: SegmentLayout,
        scratch: Arc<ScratchFile>,
    ) -> Self {
        Self {
            resident_bytes_max,
            resident_bytes: AtomicU64::new(0),
            workers,
            layout,
            scratch,
            runs: Mutex::default(),
            spilled: Mutex::default(),
        }
    }

    /// Each worker's share of the memory for what is on disk: for short runs on their way there, then for tables.
    fn table_bytes(&self) -> u64 {
        self.resident_bytes_max / TABLE_SHARE / u64::from(self.workers.max(1))
    }

    /// Stores a run of a worker's chunk.
    pub(crate) fn push(&self, worker: u16, chunk: u32, run: Run) -> Result<()> {
        let length = (run.bytes.len() + 4 * run.offsets.len()) as u64;
        let resident = self.resident_bytes.fetch_add(length, Ordering::Relaxed) + length;
        if resident <= run_bytes_max(self.resident_bytes_max) {
            let run = ResidentRun { worker, chunk, run };
            self.runs.lock().expect("no thread panics while it holds the lock").push(run);
            return Ok(());
        }
        self.resident_bytes.fetch_sub(length, Ordering::Relaxed);
        let mut gathered = GatheredRuns::default();
        if run.offsets.is_empty() {
            let mut spilled = self.spilled.lock().expect("no thread panics while it holds it");
            let short = &mut spilled.entry(worker).or_default().short;
            short.push(chunk, run);
            let gathered_bytes = self.table_bytes().clamp(GATHERED_BYTES_MIN, GATHERED_BYTES);
            if (short.bytes() as u64) < gathered_bytes {
                return Ok(());
            }
            gathered.append(short);
        } else {
            gathered.push(chunk, run);
        }
        let segment = gathered.write(&*self.scratch, self.layout)?;
        let mut spilled = self.spilled.lock().expect("no thread panics while it holds it");
        spilled.entry(worker).or_default().segments.extend(segment);
        Ok(())
    }

    /// Ends the input; then runs can be read cell by cell.
    ///
    /// # Errors
    ///
    /// If the scratch file cannot be written or read.
    pub(crate) fn finish(self) -> Result<HashRuns> {
        let table_bytes = self.table_bytes();
        let mut runs = self.runs.into_inner().expect("no thread panics while it holds the lock");
        runs.sort_by_key(|run| (run.worker, run.chunk, run.run.first_item));
        let starts = (0..=self.workers)
            .map(|w| runs.partition_point(|run| u32::from(run.worker) < w))
            .collect();
        let spilled = self.spilled.into_inner().expect("no thread panics while it holds it");
        let limits = CellLimits { table_bytes, entries: CELL_ENTRIES_MAX as u64 };
        let mut on_disk = BTreeMap::new();
        for (worker, Spilled { mut short, mut segments }) in spilled {
            segments.extend(short.write(&*self.scratch, self.layout)?);
            let scratch = Arc::clone(&self.scratch);
            let reader = CellReader::new(scratch, segments, self.layout, 0, limits)?;
            on_disk.insert(worker, reader);
        }
        Ok(HashRuns { runs, starts, layout: self.layout, on_disk })
    }
}

/// All runs of a job.
pub(crate) struct HashRuns {
    runs: Vec<ResidentRun>,
    /// First run of each worker, and the number of all runs.
    starts: Vec<usize>,
    layout: SegmentLayout,
    /// What did not fit into memory, by worker.
    on_disk: BTreeMap<u16, CellReader<ScratchFile>>,
}

/// A word of a stored entry: hi, lo, number in the run, optionally the rank, all little-endian.
fn word<const ENTRY_BYTES: usize>(entry: &[u8; ENTRY_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"))
}

impl HashRuns {
    /// All entries of a worker in a cell, in no particular order.
    ///
    /// # Errors
    ///
    /// If the scratch file cannot be read.
    pub(crate) fn cell(&self, worker: u16, cell: u32) -> Result<CellEntries> {
        let mut found = match self.on_disk.get(&worker) {
            Some(reader) => reader.entries(cell)?,
            None => CellEntries::default(),
        };
        let runs =
            &self.runs[self.starts[usize::from(worker)]..self.starts[usize::from(worker) + 1]];
        if self.layout.is_ranked() {
            runs.iter()
                .for_each(|run| self.add_cell::<{ entry_bytes(true) }>(run, cell, &mut found));
        } else {
            runs.iter()
                .for_each(|run| self.add_cell::<{ entry_bytes(false) }>(run, cell, &mut found));
        }
        Ok(found)
    }

    /// Adds the entries of a run in a cell.
    fn add_cell<const ENTRY_BYTES: usize>(
        &self,
        ResidentRun { chunk, run, .. }: &ResidentRun,
        cell: u32,
        CellEntries { entries, ranks }: &mut CellEntries,
    ) {
        let (all, _) = run.bytes.as_chunks::<ENTRY_BYTES>();
        let cells = self.layout.cells();
        let stored = match run.offsets.get(cell as usize..cell as usize + 2) {
            Some(&[start, end]) => &all[start as usize..end as usize],
            _ => {
                let before =
                    |cell| all.partition_point(|entry| cells.cell_of(word(entry, 0)) < cell);
                &all[before(cell)..before(cell + 1)]
            }
        };
        entries.reserve(stored.len());
        entries.extend(stored.iter().map(|entry| {
            let number = u32::from_le_bytes(entry[16..20].try_into().expect("4 bytes"));
            let record_id = RecordId::new(*chunk, run.first_item + u64::from(number));
            Entry { hash: ItemHash::new(word(entry, 0), word(entry, 8)), record_id }
        }));
        if ENTRY_BYTES == entry_bytes(true) {
            ranks.extend(stored.iter().map(|entry| Rank(word(entry, 20))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::run_builder::RunBuilder;
    use super::*;
    use umbel_dedup_engine::Keep;
    use umbel_filter::{CellCount, ItemHasher};

    /// Runs of any length, in memory and on disk, return every entry in its cell.
    #[test]
    fn what_is_stored_comes_back_cell_by_cell() {
        let cells = CellCount::new(7).unwrap();
        let hash = |number: u64| ItemHasher::Xxh3 { seed: 1 }.hash(&number.to_le_bytes());
        for (resident_bytes_max, is_ranked) in
            [0, 2000, u64::MAX].into_iter().flat_map(|max| [(max, false), (max, true)])
        {
            let scratch = Arc::new(ScratchFile::new(&std::env::temp_dir()));
            let store =
                RunStore::new(resident_bytes_max, 1, SegmentLayout::new(cells, is_ranked), scratch);
            let mut expected = vec![Vec::new(); 7];
            let mut builder = RunBuilder::new(cells, Keep::First, true, is_ranked);
            for (chunk, length) in [(0, 100), (1, 2), (2, 1), (3, 30)] {
                for item in 0..length {
                    let hash = hash(u64::from(chunk) * 1000 + item);
                    let rank = Rank(hash.lo() / 3);
                    assert_eq!(builder.push(hash, item, rank), None);
                    let entry = Entry { hash, record_id: RecordId::new(chunk, item) };
                    expected[cells.cell_of(hash.hi()) as usize]
                        .push((entry, is_ranked.then_some(rank)));
                }
                store.push(0, chunk, builder.take().unwrap()).unwrap();
            }
            let runs = store.finish().unwrap();
            for (cell, expected) in (0..7).zip(&mut expected) {
                let CellEntries { entries, ranks } = runs.cell(0, cell).unwrap();
                assert_eq!(ranks.len(), if is_ranked { entries.len() } else { 0 });
                let ranks = ranks.into_iter().map(Some).chain(std::iter::repeat(None));
                let mut found: Vec<_> = entries.into_iter().zip(ranks).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(&found, expected);
            }
        }
    }

    /// Many small files would otherwise have a read each for every cell.
    #[test]
    fn short_runs_share_segments() {
        let cells = CellCount::new(64).unwrap();
        let scratch = Arc::new(ScratchFile::new(&std::env::temp_dir()));
        let layout = SegmentLayout::new(cells, false);
        let store = RunStore::new(0, 1, layout, Arc::clone(&scratch));
        let mut builder = RunBuilder::new(cells, Keep::First, true, false);
        for chunk in 0..3000 {
            for item in 0..20u64 {
                let number = u64::from(chunk) * 20 + item;
                let hash = ItemHasher::Xxh3 { seed: 1 }.hash(&number.to_le_bytes());
                builder.push(hash, item, Rank::default());
            }
            store.push(0, chunk, builder.take().unwrap()).unwrap();
        }
        let runs = store.finish().unwrap();
        let count: usize = (0..64).map(|cell| runs.cell(0, cell).unwrap().entries.len()).sum();
        assert_eq!(count, 60_000);
        // 41 runs of 400 bytes are the first to exceed 16 KiB, so there are 74 tables of 65 numbers.
        assert_eq!(scratch.bytes(), 60_000 * 24 + 74 * 65 * 4);
    }
}
