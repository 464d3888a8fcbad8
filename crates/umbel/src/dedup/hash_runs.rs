//! Where the runs of entries are until the exchange: in memory as far as they fit, the rest on scratch disk.

use super::spill::ScratchFile;
use anyhow::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_engine::dedup::{Entry, Place};
use umbel_filter::ItemHash;

/// Bytes of an entry in a run.
pub(crate) const ENTRY_BYTES: usize = 20;

/// Entries of one chunk, partitioned by cell.
pub(crate) struct Run {
    /// Number in the chunk of the run's item 0.
    pub(crate) first_item: u64,
    /// First entry of each cell, and the number of all entries.
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
    /// A store that holds this much in memory and puts the rest into the scratch file.
    pub(crate) fn new(resident_bytes_max: u64, scratch: Arc<ScratchFile>) -> Self {
        let runs = Mutex::new(Vec::new());
        Self { resident_bytes_max, resident_bytes: AtomicU64::new(0), scratch, runs }
    }

    /// Stores a run of a worker's chunk.
    pub(crate) fn push(&self, worker: u16, chunk: u32, run: Run) -> Result<()> {
        let Run { first_item, offsets, bytes } = run;
        let length = bytes.len() as u64;
        let resident = self.resident_bytes.fetch_add(length, Ordering::Relaxed) + length;
        let body = if resident <= self.resident_bytes_max {
            Body::Memory(bytes)
        } else {
            self.resident_bytes.fetch_sub(length, Ordering::Relaxed);
            Body::Disk(self.scratch.append(&bytes)?)
        };
        let run = StoredRun { worker, chunk, first_item, offsets, body };
        self.runs.lock().expect("no thread panics while it holds the lock").push(run);
        Ok(())
    }

    /// No more runs come: they can be read, cell by cell.
    pub(crate) fn finish(self, workers: u32) -> HashRuns {
        let mut runs = self.runs.into_inner().expect("no thread panics while it holds the lock");
        runs.sort_by_key(|run| (run.worker, run.chunk, run.first_item));
        let starts =
            (0..=workers).map(|w| runs.partition_point(|run| u32::from(run.worker) < w)).collect();
        HashRuns { runs, starts, scratch: self.scratch }
    }
}

/// All runs of a job.
pub(crate) struct HashRuns {
    runs: Vec<StoredRun>,
    /// First run of each worker, and the number of all runs.
    starts: Vec<usize>,
    scratch: Arc<ScratchFile>,
}

impl HashRuns {
    /// All entries of a worker in a cell, in input order.
    pub(crate) fn cell(&self, worker: u16, cell: u32) -> Result<Vec<Entry>> {
        let worker = usize::from(worker);
        let runs = &self.runs[self.starts[worker]..self.starts[worker + 1]];
        let part = |run: &StoredRun| {
            let cell = cell as usize;
            run.offsets[cell] as usize * ENTRY_BYTES..run.offsets[cell + 1] as usize * ENTRY_BYTES
        };
        let bytes: usize = runs.iter().map(|run| part(run).len()).sum();
        let mut entries = Vec::with_capacity(bytes / ENTRY_BYTES);
        let mut buffer = Vec::new();
        for run in runs {
            let part = part(run);
            let bytes = match &run.body {
                Body::Memory(bytes) => &bytes[part],
                Body::Disk(offset) => {
                    buffer.resize(part.len(), 0);
                    self.scratch.read(*offset + part.start as u64, &mut buffer)?;
                    &buffer[..]
                }
            };
            let (whole, _) = bytes.as_chunks::<ENTRY_BYTES>();
            entries.extend(whole.iter().map(|entry| {
                let word =
                    |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
                let number = u32::from_le_bytes(entry[16..].try_into().expect("4 bytes"));
                let place = Place::new(run.chunk, run.first_item + u64::from(number));
                Entry { hash: ItemHash::new(word(0), word(8)), place }
            }));
        }
        Ok(entries)
    }
}
