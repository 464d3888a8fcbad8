//! The workshop of a worker: what a job over many machines asks of it, on files and threads.
//!
//! Whoever drives it calls what takes long (reading, fetching, gathering, writing, the commit and what follows it) on
//! threads that may block; [`FileWorkshop::end`] waits for that.

use super::super::compare::{self, Suspects};
use super::super::hash_runs::CellEntries;
use super::super::object_inputs::ObjectStores;
use super::super::observer::{Observer, Unit};
use super::super::progress::Bar;
use super::super::spec::JobSpec;
use super::super::spill::{GroupWriter, GroupedBytes, ScratchFile, buffer_bytes};
use super::super::turns::{lock, run_tasks};
use super::bench::{Bench, Membership, Settling};
use super::claims::ClaimFile;
use super::ended::EndNote;
use super::folder::{JOURNAL, JobFolder};
use super::notes::{Note, Notebook};
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
    Claim, Drops, Entry, ExchangeReport, Group, Item, Place, PlaceRange, Rank, RecordPart, Suspect,
    WorkerId,
};
use umbel_files::Roots;
use umbel_filter::{HashRange, ItemHash};

/// Bytes of items that are gathered for all cells together before they go to disk, as a share of the memory.
const GATHERED_MEMORY_SHARE: u64 = 8;

/// A worker's data on files and threads.
pub struct FileWorkshop {
    bench: Bench,
    /// Which records' items are to be compared; none yet where it is empty.
    suspects: Mutex<Option<Suspects>>,
    fetched: Mutex<Option<GroupedBytes>>,
    /// What was dropped, by the records that were kept.
    claims: Mutex<Option<ClaimFile>>,
    /// How much of each file was repeated, as far as groups were counted.
    weights: Mutex<FileWeights>,
    /// What the job came to, in one line.
    summary: Mutex<Vec<u8>>,
    /// Whether the folder is removed at the end of the process, not at that of the job, and but for a note of the end.
    removes_last: bool,
    /// Whether it is to be.
    is_done_with: AtomicBool,
}

impl FileWorkshop {
    /// Opens the folder of a worker's job, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// If another process works in it, if it belongs to another job, if the input has changed since the job began, or
    /// if it is damaged.
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

    /// The same, whose folder stays until [`FileWorkshop::remove_done`], and a note of the end behind that: a process
    /// that is killed behind the end of the job finds it, and does not take the command for that of a new job.
    pub fn removing_last(self) -> Self {
        Self { removes_last: true, ..self }
    }

    /// Removes the folder if the job has ended, and cannot be taken up again; but for a note if it has ended well.
    pub fn remove_done(&self) {
        if self.is_done_with.load(Ordering::Relaxed) {
            self.remove_folder();
        }
    }

    fn remove_folder(&self) {
        let (has_ended, stands) = {
            let told = lock(&self.bench.told);
            (told.ended, told.ended && told.committing)
        };
        let folder = &self.bench.folder;
        // Outputs that somebody has taken away already stand in nobody's way.
        let note = (stands && self.removes_last).then(|| self.end_note().ok()).flatten();
        let removed = match note {
            Some(note) => folder.leave(&note),
            None => folder.remove(has_ended),
        };
        if let Err(error) = removed {
            self.bench.observer.warn(&chain_text(&error));
        }
    }

    fn end_note(&self) -> Result<Vec<u8>> {
        let bad = self.bad_count();
        let told = lock(&self.bench.told);
        let outputs = told.outputs.iter().map(|output| output.path.clone());
        EndNote::new(&self.bench, bad, outputs)?.encode()
    }

    /// Removes a job's folder and what was written aside, whatever the job was.
    ///
    /// # Errors
    ///
    /// If a process works on it; if it cannot be removed.
    pub fn discard(folder: &Path, roots: &Roots) -> Result<()> {
        let folder = JobFolder::take(folder)?;
        // A journal that cannot be read tells of nothing that could be removed.
        if let Ok((_, mut told)) = Notebook::open(&folder.file(JOURNAL)) {
            writing::forget(&mut told, &ObjectStores::new(0), Some(roots));
        }
        folder.remove(false)
    }

    /// Bad records that this worker has left out, once its outputs are written; at the coordinator those of all, once
    /// the summary is.
    pub fn bad_count(&self) -> u64 {
        let told = lock(&self.bench.told);
        if let Some(bad) = told.concluded_bad {
            return bad;
        }
        let detail = told.written.as_ref().map(|written| &written.detail[..]).unwrap_or_default();
        let part: Part = serde_json::from_slice(detail).unwrap_or_default();
        part.bad_by_cause.values().sum()
    }

    /// Whether the end of the job is known, durably.
    pub fn has_ended(&self) -> bool {
        lock(&self.bench.told).ended
    }

    /// Does what takes long, which [`FileWorkshop::end`] waits for.
    fn busy<T>(&self, work: impl FnOnce(&Bench) -> Result<T>) -> Result<T> {
        let _busy = self.bench.busy.read().unwrap_or_else(PoisonError::into_inner);
        self.bench.check_wanted()?;
        work(&self.bench)
    }

    /// What was marked before, oldest first.
    pub fn marks(&self) -> Vec<Vec<u8>> {
        lock(&self.bench.told).marks.clone()
    }

    /// Adds a mark, durably, behind everything that returned before.
    ///
    /// # Errors
    ///
    /// If it cannot be made durable.
    pub fn mark(&self, mark: &[u8]) -> Result<()> {
        lock(&self.bench.notebook).mark(mark)
    }

    /// The same, of a mark behind which nothing else in the folder is needed.
    ///
    /// # Errors
    ///
    /// As for [`FileWorkshop::mark`].
    pub fn mark_end(&self, mark: &[u8]) -> Result<()> {
        lock(&self.bench.notebook).mark_end(mark)?;
        lock(&self.bench.told).ended = true;
        Ok(())
    }

    /// What the worker expects of its input.
    pub fn forecast(&self) -> Forecast {
        self.bench.forecast
    }

    /// Reads what was not read before. Takes long.
    ///
    /// # Errors
    ///
    /// The first bad record that may not be left out, a full disk, an input that has changed.
    pub fn read(&self, order: ReadOrder) -> Result<Counts> {
        self.busy(|bench| reading::read(bench, order))
    }

    /// The worker's entries in the sample of every owner, one list an owner.
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

    /// The worker's entries in a cell, repeats included, in any order; and how each ranks, where the job keeps the best.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn ranked_entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>)> {
        let CellEntries { entries, ranks } = self.bench.read_state()?.cells.entries(cell)?;
        Ok((entries, ranks))
    }

    /// What earlier jobs have kept in a range of the hash space.
    ///
    /// # Errors
    ///
    /// If an index cannot be read or is damaged.
    pub fn references(&self, range: HashRange) -> Result<Vec<ItemHash>> {
        self.bench.references.hashes(range)
    }

    /// The cell is settled: these items are dropped. Not durable before the next [`FileWorkshop::seal`].
    ///
    /// # Errors
    ///
    /// If scratch cannot be written.
    pub fn settle(&self, cell: u32, drops: &Drops) -> Result<()> {
        let state = self.bench.read_state()?;
        for &place in &drops.places {
            self.bench.mark_dropped(&state, place)?;
        }
        let mut settling = lock(&self.bench.settling);
        // A cell that was settled before had the same drops.
        if settling.sealed.contains(cell) || settling.open.contains(&cell) {
            return Ok(());
        }
        let file = &self.bench.drops;
        let before = file.bytes();
        if let Err(error) = drop_file::append(file, cell, drops) {
            file.cut(before)?;
            return Err(error);
        }
        settling.open.push(cell);
        settling.open_reference_drops += drops.reference;
        Ok(())
    }

    /// Makes everything settled so far durable, and the figures with it.
    ///
    /// # Errors
    ///
    /// If it cannot be made durable: what is sealed is then what was before.
    pub fn seal(&self, report: &ExchangeReport) -> Result<()> {
        let mut settling = lock(&self.bench.settling);
        if settling.open.is_empty() && settling.report == *report {
            return Ok(());
        }
        self.bench.drops.sync()?;
        let (cells, drops_bytes) = (settling.open.clone(), self.bench.drops.bytes());
        let reference_drops = settling.reference_drops + settling.open_reference_drops;
        let boxed = Box::new(*report);
        self.bench.note(&Note::Sealed { cells, drops_bytes, reference_drops, report: boxed })?;
        let Settling { sealed, open, .. } = &mut *settling;
        open.drain(..).for_each(|cell| sealed.insert(cell));
        (settling.sealed_bytes, settling.report) = (drops_bytes, *report);
        (settling.reference_drops, settling.open_reference_drops) = (reference_drops, 0);
        Ok(())
    }

    /// The cells that are settled durably, and the figures of the last seal. Forgets what was settled and not sealed, and
    /// all suspects.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn sealed(&self) -> Result<(CellSet, ExchangeReport)> {
        *lock(&self.suspects) = None;
        let mut settling = lock(&self.bench.settling);
        settling.open.clear();
        settling.open_reference_drops = 0;
        self.bench.drops.cut(settling.sealed_bytes)?;
        Ok((settling.sealed.clone(), settling.report))
    }

    /// Notes records whose items are to be compared, until [`FileWorkshop::sealed`] is called for the next attempt.
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
        let mut noted = lock(&self.suspects);
        let noted = noted.get_or_insert_with(|| Suspects::new(&state.facts));
        for &suspect in suspects {
            let (_, record) = bench.own_place(&state, suspect.place)?;
            let chunk = suspect.place.chunk() - state.reading.chunk_base;
            noted.add(Suspect { place: Place::new(chunk, record), ..suspect });
        }
        Ok(())
    }

    /// Hands out what was noted, once; `None` if there is nothing. A worker that has written its outputs has no input any
    /// more, and is asked for nothing.
    pub fn take_suspects(&self) -> Option<Suspects> {
        lock(&self.suspects).take()
    }

    /// Reads the items of suspects again, to be had by [`FileWorkshop::items`]. Takes long.
    ///
    /// # Errors
    ///
    /// As for [`FileWorkshop::read`].
    pub fn fetch(&self, suspects: &Suspects) -> Result<()> {
        self.busy(|bench| {
            *lock(&self.fetched) = Some(fetch(bench, suspects)?);
            Ok(())
        })
    }

    /// The items of a cell that were fetched.
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
                let place = Place::new(item.place.chunk() + base, item.place.item());
                Item { place, ..item }
            })
            .collect())
    }

    /// Forgets all groups that were not sealed: those of another attempt are to be learned.
    ///
    /// # Errors
    ///
    /// If scratch cannot be written.
    pub fn forget_groups(&self) -> Result<()> {
        let is_counted = lock(&self.bench.told).group_bytes.is_some();
        if is_counted { Ok(()) } else { self.bench.groups.cut(0) }
    }

    /// Sorts what this worker has dropped by what was kept, to be had by [`FileWorkshop::claims`]; how many places each of
    /// its own chunks has. Takes long.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read or written.
    pub fn gather(&self) -> Result<Vec<u64>> {
        self.busy(|bench| {
            let state = bench.read_state()?;
            let (claims, weights) = ClaimFile::gather(bench, &state)?;
            (*lock(&self.claims), *lock(&self.weights)) = (Some(claims), weights);
            Ok(state.facts.iter().map(|facts| facts.places).collect())
        })
    }

    /// How many of this worker's records were dropped for each in a range, by places of the job, in rising order.
    ///
    /// # Errors
    ///
    /// If scratch cannot be read.
    pub fn claims(&self, range: PlaceRange) -> Result<Vec<Claim>> {
        let claims = lock(&self.claims);
        claims.as_ref().context("no claims were gathered")?.in_range(range)
    }

    /// Forgets the claims: nobody asks for them any more.
    pub fn forget_claims(&self) {
        *lock(&self.claims) = None;
    }

    /// Which part of a record each of these places of this worker is.
    ///
    /// # Errors
    ///
    /// If one is no such place.
    pub fn parts(&self, places: &[Place]) -> Result<Vec<RecordPart>> {
        let state = self.bench.read_state()?;
        places.iter().map(|place| self.bench.own_part(&state, *place)).collect()
    }

    /// These groups, of this worker's or of another one's records, are so large. Not durable before
    /// [`FileWorkshop::seal_groups`].
    ///
    /// # Errors
    ///
    /// If scratch cannot be written.
    pub fn learn(&self, keeper: WorkerId, groups: &[Group]) -> Result<()> {
        // What is durable was learned in an attempt before, and was the same.
        if lock(&self.bench.told).group_bytes.is_some() {
            return Ok(());
        }
        if keeper == WorkerId(self.bench.member.worker) {
            let state = self.bench.read_state()?;
            lock(&self.weights).add_groups(&self.bench, &state, groups);
        }
        group_file::append(&self.bench.groups, keeper, groups)
    }

    /// Makes all that was learned durable, and says how much of each file was repeated, where the job tells of files.
    ///
    /// # Errors
    ///
    /// If scratch cannot be written.
    pub fn seal_groups(&self) -> Result<Vec<u8>> {
        let mut told = lock(&self.bench.told);
        if told.group_bytes.is_some() {
            return Ok(told.weights.clone());
        }
        self.bench.groups.sync()?;
        let (group_bytes, weights) = (self.bench.groups.bytes(), lock(&self.weights).encode());
        self.bench.note(&Note::Counted { group_bytes, weights: weights.clone() })?;
        (told.group_bytes, told.weights) = (Some(group_bytes), weights.clone());
        Ok(weights)
    }

    /// Writes what an earlier process has not, aside. Takes long.
    ///
    /// # Errors
    ///
    /// A full disk, an input that has changed, an output that stands already.
    pub fn write(&self, order: &WriteOrder) -> Result<Written> {
        self.busy(|bench| writing::write(bench, order))
    }

    /// Puts all outputs under their names. Takes long.
    ///
    /// # Errors
    ///
    /// If one cannot be put there.
    pub fn commit(&self) -> Result<()> {
        self.busy(writing::commit)
    }

    /// Adds what stays to the filter that the job adds to. Takes long.
    ///
    /// # Errors
    ///
    /// If the filter does not answer, or an input has changed.
    pub fn add(&self) -> Result<()> {
        self.busy(filters::add)
    }

    /// At the coordinator: writes the summary of all workers, and the page that `draw` makes of it if the job has one. Takes
    /// long.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn conclude(&self, result: &JobResult, draw: impl FnOnce(&Value) -> String) -> Result<()> {
        self.busy(|bench| {
            *lock(&self.summary) = conclusion::conclude(bench, result, draw)?;
            // The exit code of a process that is started again is the same.
            let bad = result.counts.iter().map(|counts| counts.bad).sum();
            bench.note(&Note::Concluded { bad })
        })
    }

    /// What the job came to, in one line of JSON; empty before it is concluded here.
    pub fn summary(&self) -> Vec<u8> {
        lock(&self.summary).clone()
    }

    /// The job has ended: ends what is under way, and removes the scratch unless it shall be taken up again.
    pub fn end(&self, keep_scratch: bool) {
        self.bench.stop();
        if keep_scratch {
            return;
        }
        let JobSpec { stores, roots, .. } = &self.bench.spec;
        writing::forget(&mut lock(&self.bench.told), stores, roots.as_ref());
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
