//! The interface of a worker's data to the driver of a job over many machines, on files and threads.
//!
//! Order of calls: [`read`](FileWorkshop::read); per attempt [`sealed`](FileWorkshop::sealed), then for each cell
//! [`ranked_entries`](FileWorkshop::ranked_entries) and [`record_drops`](FileWorkshop::record_drops) with
//! [`seal`](FileWorkshop::seal) now and then; [`gather`](FileWorkshop::gather), [`claims`](FileWorkshop::claims),
//! [`learn`](FileWorkshop::learn) and [`seal_groups`](FileWorkshop::seal_groups) if groups are counted;
//! [`write`](FileWorkshop::write), [`commit`](FileWorkshop::commit), [`add`](FileWorkshop::add),
//! [`end`](FileWorkshop::end). Call those that are documented as slow on threads that may block; `end` waits for them.

use super::super::compare::{self, Suspects};
use super::super::hash_runs::CellEntries;
use super::super::object_inputs::ObjectStores;
use super::super::observer::{Observer, Unit};
use super::super::progress::Bar;
use super::super::spec::JobSpec;
use super::super::spill::{GroupWriter, GroupedBytes, ScratchFile, buffer_bytes};
use super::super::turns::{lock, run_tasks};
use super::bench::{Bench, DecidedCells, Membership};
use super::claims::ClaimFile;
use super::ended::EndRecord;
use super::folder::{JOURNAL, JobFolder};
use super::journal_records::{JournalRecord, WorkerJournal};
use super::times::Part;
use super::weights::FileWeights;
use super::{conclusion, drop_file, filters, group_file, reading, writing};
use crate::error::{Context, Result, chain_text};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use umbel_dedup_engine::job::{
    CellSet, Counts, Forecast, JobResult, ReadOrder, WriteOrder, Written,
};
use umbel_dedup_engine::{
    Claim, Drops, Entry, ExchangeReport, Group, Item, Rank, RecordId, RecordPart, RecordRange,
    Suspect, WorkerId,
};
use umbel_files::Roots;
use umbel_filter::{HashRange, ItemHash};

/// Items that are read again may take the memory divided by this before they go to disk.
const GATHERED_MEMORY_SHARE: u64 = 8;

/// A worker's data on files and threads.
pub struct FileWorkshop {
    bench: Bench,
    /// The records whose items must be compared; `None` if there are none so far.
    suspects: Mutex<Option<Suspects>>,
    fetched: Mutex<Option<GroupedBytes>>,
    /// This worker's claims, once they were gathered.
    claims: Mutex<Option<ClaimFile>>,
    /// How much of each file was repeated, as far as it is known yet.
    weights: Mutex<FileWeights>,
    /// The job's summary in one line.
    summary: Mutex<Vec<u8>>,
    /// Whether the folder is removed at the end of the process instead of at the end of the job, and an end
    /// record remains.
    removes_last: bool,
    /// Whether the folder must be removed.
    is_done_with: AtomicBool,
}

impl FileWorkshop {
    /// Opens the folder of a worker's job, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// If another process uses the folder, if it belongs to another job, if the input has changed since the job began, or
    /// if the folder is damaged.
    pub fn open(
        spec: JobSpec,
        member: Membership,
        folder: &Path,
        observer: Arc<dyn Observer>,
    ) -> Result<Self> {
        Ok(Self {
            bench: Bench::open(spec, member, folder, observer)?,
            suspects: Mutex::default(),
            fetched: Mutex::default(),
            claims: Mutex::default(),
            weights: Mutex::default(),
            summary: Mutex::default(),
            removes_last: false,
            is_done_with: AtomicBool::new(false),
        })
    }

    /// Keeps the folder until [`FileWorkshop::remove_done`], which leaves an end record: if the process is
    /// killed after the end of the job, the next process finds the record and does not begin a new job.
    pub fn removing_last(self) -> Self {
        Self { removes_last: true, ..self }
    }

    /// Removes the folder if the job has ended and cannot be resumed; leaves an end record if the job has
    /// succeeded.
    pub fn remove_done(&self) {
        if self.is_done_with.load(Ordering::Relaxed) {
            self.remove_folder();
        }
    }

    fn remove_folder(&self) {
        let (has_ended, stands) = {
            let journal_state = lock(&self.bench.journal_state);
            (journal_state.ended, journal_state.ended && journal_state.committing)
        };
        let folder = &self.bench.folder;
        // Without its outputs, an end record would be of no use: a new job would not be rejected.
        let record = (stands && self.removes_last).then(|| self.end_record().ok()).flatten();
        let removed = match record {
            Some(record) => folder.leave(&record),
            None => folder.remove(has_ended),
        };
        if let Err(error) = removed {
            self.bench.observer.warn(&chain_text(&error));
        }
    }

    fn end_record(&self) -> Result<Vec<u8>> {
        let bad = self.bad_count();
        let journal_state = lock(&self.bench.journal_state);
        let outputs = journal_state.outputs.iter().map(|output| output.path.clone());
        EndRecord::new(&self.bench, bad, outputs)?.encode()
    }

    /// Removes the folder of any job, and its outputs under temporary names.
    ///
    /// # Errors
    ///
    /// If a process uses the folder, or it cannot be removed.
    pub fn discard(folder: &Path, roots: &Roots) -> Result<()> {
        let folder = JobFolder::take(folder)?;
        // If the journal cannot be read, the temporary names of the outputs are unknown.
        if let Ok((_, mut journal_state)) = WorkerJournal::open(&folder.file(JOURNAL)) {
            writing::forget(&mut journal_state, &ObjectStores::new(0), Some(roots));
        }
        folder.remove(false)
    }

    /// Bad records that this worker has skipped, once its outputs are written; at the coordinator, those of
    /// all workers once the summary is written.
    pub fn bad_count(&self) -> u64 {
        let journal_state = lock(&self.bench.journal_state);
        if let Some(bad) = journal_state.concluded_bad {
            return bad;
        }
        let detail =
            journal_state.written.as_ref().map(|written| &written.detail[..]).unwrap_or_default();
        let part: Part = serde_json::from_slice(detail).unwrap_or_default();
        part.bad_by_cause.values().sum()
    }

    /// Whether the end of the job is durable here.
    pub fn has_ended(&self) -> bool {
        lock(&self.bench.journal_state).ended
    }

    /// Runs slow work, which [`FileWorkshop::end`] waits for.
    fn busy<T>(&self, work: impl FnOnce(&Bench) -> Result<T>) -> Result<T> {
        let _busy = self.bench.busy.read().unwrap_or_else(PoisonError::into_inner);
        self.bench.check_wanted()?;
        work(&self.bench)
    }

    /// The journal records of the job's state machines, oldest first.
    pub fn job_records(&self) -> Vec<Vec<u8>> {
        lock(&self.bench.journal_state).job_records.clone()
    }

    /// Appends a journal record of the job's state machines, durably, after all records before it.
    ///
    /// # Errors
    ///
    /// If it cannot be made durable.
    pub fn append_job_record(&self, record: &[u8]) -> Result<()> {
        lock(&self.bench.journal).append_job_record(record)
    }

    /// Appends the last such record: after it nothing else in the folder is needed.
    ///
    /// # Errors
    ///
    /// As [`FileWorkshop::append_job_record`].
    pub fn append_end_record(&self, record: &[u8]) -> Result<()> {
        lock(&self.bench.journal).append_end_record(record)?;
        lock(&self.bench.journal_state).ended = true;
        Ok(())
    }

    /// The worker's estimate of its input.
    pub fn forecast(&self) -> Forecast {
        self.bench.forecast
    }

    /// Reads the input, except for chunks that were read before. Slow.
    ///
    /// # Errors
    ///
    /// The first bad record that may not be skipped, a full disk, an input that has changed.
    pub fn read(&self, order: ReadOrder) -> Result<Counts> {
        self.busy(|bench| reading::read(bench, order))
    }

    /// The worker's entries in the sample range of every owner, one list per owner.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn sample(&self) -> Result<Vec<Vec<Entry>>> {
        let state = self.bench.read_state()?;
        let shape = self.bench.job(state.reading).shape;
        let list = |owner: u32| {
            let range = shape.sample_range(owner);
            let cell = owner * shape.cells_per_owner;
            let CellEntries { mut entries, .. } = state.cells.entries(cell)?;
            entries.retain(|entry| range.contains(entry.hash.hi()));
            Ok(entries)
        };
        (0..shape.workers).map(list).collect()
    }

    /// The worker's entries in a cell, repeats included, in any order, and their ranks if the job keeps the best.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn ranked_entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>)> {
        let CellEntries { entries, ranks } = self.bench.read_state()?.cells.entries(cell)?;
        Ok((entries, ranks))
    }

    /// The references' hashes in a range of the hash space.
    ///
    /// # Errors
    ///
    /// If an index cannot be read or is damaged.
    pub fn references(&self, range: HashRange) -> Result<Vec<ItemHash>> {
        self.bench.references.hashes(range)
    }

    /// Records the drops of a decided cell. They are durable after the next [`FileWorkshop::seal`].
    ///
    /// # Errors
    ///
    /// If scratch cannot be written.
    pub fn record_drops(&self, cell: u32, drops: &Drops) -> Result<()> {
        let state = self.bench.read_state()?;
        for &record_id in &drops.record_ids {
            self.bench.mark_dropped(&state, record_id)?;
        }
        let mut decided_cells = lock(&self.bench.decided_cells);
        // If the cell was decided before, it had the same drops.
        if decided_cells.sealed.contains(cell) || decided_cells.open.contains(&cell) {
            return Ok(());
        }
        let file = &self.bench.drops;
        let before = file.bytes();
        if let Err(error) = drop_file::append(file, cell, drops) {
            file.cut(before)?;
            return Err(error);
        }
        decided_cells.open.push(cell);
        decided_cells.open_reference_drops += drops.reference;
        Ok(())
    }

    /// Makes all decided cells durable, with these counters.
    ///
    /// # Errors
    ///
    /// If they cannot be made durable; the sealed cells are then unchanged.
    pub fn seal(&self, report: &ExchangeReport) -> Result<()> {
        let mut decided_cells = lock(&self.bench.decided_cells);
        if decided_cells.open.is_empty() && decided_cells.report == *report {
            return Ok(());
        }
        self.bench.drops.sync()?;
        let (cells, drops_bytes) = (decided_cells.open.clone(), self.bench.drops.bytes());
        let reference_drops = decided_cells.reference_drops + decided_cells.open_reference_drops;
        let boxed = Box::new(*report);
        self.bench.append_record(&JournalRecord::Sealed {
            cells,
            drops_bytes,
            reference_drops,
            report: boxed,
        })?;
        let DecidedCells { sealed, open, .. } = &mut *decided_cells;
        open.drain(..).for_each(|cell| sealed.insert(cell));
        (decided_cells.sealed_bytes, decided_cells.report) = (drops_bytes, *report);
        (decided_cells.reference_drops, decided_cells.open_reference_drops) = (reference_drops, 0);
        Ok(())
    }

    /// Begins an attempt: returns the sealed cells and the counters of the last seal, and discards all
    /// suspects and the cells that are not sealed.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn sealed(&self) -> Result<(CellSet, ExchangeReport)> {
        *lock(&self.suspects) = None;
        let mut decided_cells = lock(&self.bench.decided_cells);
        decided_cells.open.clear();
        decided_cells.open_reference_drops = 0;
        self.bench.drops.cut(decided_cells.sealed_bytes)?;
        Ok((decided_cells.sealed.clone(), decided_cells.report))
    }

    /// Stores records whose items must be compared, until [`FileWorkshop::sealed`] is called for the next
    /// attempt.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn suspect(&self, suspects: &[Suspect]) -> Result<()> {
        if suspects.is_empty() {
            return Ok(());
        }
        let bench = &self.bench;
        let state = bench.read_state()?;
        let mut stored = lock(&self.suspects);
        let stored = stored.get_or_insert_with(|| Suspects::new(&state.facts));
        for &suspect in suspects {
            let (_, record) = bench.own_record(&state, suspect.record_id)?;
            let chunk = suspect.record_id.chunk() - state.reading.chunk_base;
            stored.add(Suspect { record_id: RecordId::new(chunk, record), ..suspect });
        }
        Ok(())
    }

    /// Takes the stored records; `None` if there are none. A worker that has written its outputs has no input
    /// any more, but then no items are requested from it either.
    pub fn take_suspects(&self) -> Option<Suspects> {
        lock(&self.suspects).take()
    }

    /// Reads the items of suspects again, for [`FileWorkshop::items`]. Slow.
    ///
    /// # Errors
    ///
    /// As [`FileWorkshop::read`].
    pub fn fetch(&self, suspects: &Suspects) -> Result<()> {
        self.busy(|bench| {
            *lock(&self.fetched) = Some(fetch(bench, suspects)?);
            Ok(())
        })
    }

    /// The fetched items of a cell.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn items(&self, cell: u32) -> Result<Vec<Item>> {
        let state = self.bench.read_state()?;
        let fetched = lock(&self.fetched);
        let store = fetched.as_ref().context("no items were fetched")?;
        let items = compare::decode(&store.read(cell as usize)?)?;
        let base = state.reading.chunk_base;
        Ok(items
            .into_iter()
            .map(|(_, item)| {
                let record_id = RecordId::new(item.record_id.chunk() + base, item.record_id.item());
                Item { record_id, ..item }
            })
            .collect())
    }

    /// Discards all groups that are not sealed, before another attempt counts them.
    ///
    /// # Errors
    ///
    /// If scratch cannot be written.
    pub fn forget_groups(&self) -> Result<()> {
        let is_counted = lock(&self.bench.journal_state).group_bytes.is_some();
        if is_counted { Ok(()) } else { self.bench.groups.cut(0) }
    }

    /// Sorts this worker's drops by the kept record, for [`FileWorkshop::claims`], and returns the number of record ids of
    /// each of its own chunks. Slow.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read or written.
    pub fn gather(&self) -> Result<Vec<u64>> {
        self.busy(|bench| {
            let state = bench.read_state()?;
            let (claims, weights) = ClaimFile::gather(bench, &state)?;
            (*lock(&self.claims), *lock(&self.weights)) = (Some(claims), weights);
            Ok(state.facts.iter().map(|facts| facts.id_count).collect())
        })
    }

    /// For each kept record in a range, ascending, how many of this worker's records were dropped for it.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn claims(&self, range: RecordRange) -> Result<Vec<Claim>> {
        let claims = lock(&self.claims);
        claims.as_ref().context("no claims were gathered")?.in_range(range)
    }

    /// Frees the claims, which are no longer needed.
    pub fn forget_claims(&self) {
        *lock(&self.claims) = None;
    }

    /// The record and part that each of these record ids of this worker stands for.
    ///
    /// # Errors
    ///
    /// If one is not a record of this worker.
    pub fn parts(&self, record_ids: &[RecordId]) -> Result<Vec<RecordPart>> {
        let state = self.bench.read_state()?;
        record_ids.iter().map(|record_id| self.bench.own_part(&state, *record_id)).collect()
    }

    /// Records the sizes of groups whose kept records `owner` (this worker or another) has. They are durable after
    /// [`FileWorkshop::seal_groups`].
    ///
    /// # Errors
    ///
    /// If scratch cannot be written.
    pub fn learn(&self, owner: WorkerId, groups: &[Group]) -> Result<()> {
        // An earlier attempt has made the same groups durable.
        if lock(&self.bench.journal_state).group_bytes.is_some() {
            return Ok(());
        }
        if owner == WorkerId(self.bench.member.worker) {
            let state = self.bench.read_state()?;
            lock(&self.weights).add_groups(&self.bench, &state, groups);
        }
        group_file::append(&self.bench.groups, owner, groups)
    }

    /// Makes all groups durable, and returns how much of each file was repeated, if the job reports files.
    ///
    /// # Errors
    ///
    /// If scratch cannot be written.
    pub fn seal_groups(&self) -> Result<Vec<u8>> {
        let mut journal_state = lock(&self.bench.journal_state);
        if journal_state.group_bytes.is_some() {
            return Ok(journal_state.weights.clone());
        }
        self.bench.groups.sync()?;
        let (group_bytes, weights) = (self.bench.groups.bytes(), lock(&self.weights).encode());
        self.bench
            .append_record(&JournalRecord::Counted { group_bytes, weights: weights.clone() })?;
        (journal_state.group_bytes, journal_state.weights) = (Some(group_bytes), weights.clone());
        Ok(weights)
    }

    /// Writes the outputs under temporary names, except for those that an earlier process has written. Slow.
    ///
    /// # Errors
    ///
    /// A full disk, an input that has changed, an output that exists already.
    pub fn write(&self, order: &WriteOrder) -> Result<Written> {
        self.busy(|bench| writing::write(bench, order))
    }

    /// Renames all outputs to their names. Slow.
    ///
    /// # Errors
    ///
    /// If one cannot be renamed.
    pub fn commit(&self) -> Result<()> {
        self.busy(writing::commit)
    }

    /// Adds kept items to the cluster's filter. Slow.
    ///
    /// # Errors
    ///
    /// If the filter does not answer, or an input has changed.
    pub fn add(&self) -> Result<()> {
        self.busy(filters::add)
    }

    /// At the coordinator: writes the summary of all workers and, if the job has a page, the page, which
    /// `draw` renders from the summary. Slow.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn conclude(&self, result: &JobResult, draw: impl FnOnce(&Value) -> String) -> Result<()> {
        self.busy(|bench| {
            *lock(&self.summary) = conclusion::conclude(bench, result, draw)?;
            // A restarted process must exit with the same code.
            let bad = result.counts.iter().map(|counts| counts.bad).sum();
            bench.append_record(&JournalRecord::Concluded { bad })
        })
    }

    /// The job's summary in one line of JSON; empty before [`FileWorkshop::conclude`].
    pub fn summary(&self) -> Vec<u8> {
        lock(&self.summary).clone()
    }

    /// Ends the job at this worker: stops slow work, and removes the scratch data unless the job is to be
    /// resumed.
    pub fn end(&self, keep_scratch: bool) {
        self.bench.stop();
        if keep_scratch {
            return;
        }
        let JobSpec { stores, roots, .. } = &self.bench.spec;
        writing::forget(&mut lock(&self.bench.journal_state), stores, roots.as_ref());
        self.is_done_with.store(true, Ordering::Relaxed);
        if !self.removes_last {
            self.remove_folder();
        }
    }
}

fn fetch(bench: &Bench, suspects: &Suspects) -> Result<GroupedBytes> {
    let state = bench.read_state()?;
    let job = bench.job(state.reading);
    let cells = job.cells().get() as usize;
    let scratch = Arc::new(ScratchFile::new(bench.folder.path()));
    let gathered = bench.spec.memory_bytes / GATHERED_MEMORY_SHARE;
    let store = GroupedBytes::new(cells, 0, scratch).with_buffers(buffer_bytes(
        gathered,
        bench.threads,
        cells,
    ));
    let bytes = bench.chunks.iter().map(|chunk| chunk.bytes).sum();
    let bar = Bar::new(&*bench.observer, "compare", bytes, Unit::Bytes);
    run_tasks(
        bench.threads,
        bench.chunks.len(),
        || Ok(GroupWriter::new(&store)),
        |writer, chunk| {
            compare::read_items(&job, chunk, suspects, &state.facts[chunk], writer, &bar)
        },
        GroupWriter::finish,
    )?;
    Ok(store)
}
