//! The workshop of a worker: [`umbel_node::jobs::Workshop`] on files and threads.

use super::super::compare::{self, Suspects};
use super::super::hash_runs::CellEntries;
use super::super::object_inputs::ObjectStores;
use super::super::progress::{Bar, Unit};
use super::super::spec::JobSpec;
use super::super::spill::{GroupWriter, GroupedBytes, ScratchFile, buffer_bytes};
use super::super::turns::{lock, run_tasks};
use super::bench::{Bench, Membership, Settling};
use super::claims::ClaimFile;
use super::ended::EndNote;
use super::folder::{JOURNAL, JobFolder};
use super::notes::{Note, Notebook};
use super::times::Part;
use super::{conclusion, drop_file, filters, group_file, reading, writing};
use crate::dedup::error::{Context, DedupError, Result, chain_text};
use crate::files::Roots;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use umbel_engine::dedup::job::{
    CellSet, Counts, Forecast, JobResult, ReadOrder, TallyOrder, WriteOrder, Written,
};
use umbel_engine::dedup::{
    Claim, Drops, Entry, ExchangeReport, Group, Item, Place, PlaceRange, Rank, RecordPart, Suspect,
    WorkerId,
};
use umbel_filter::{HashRange, ItemHash};
use umbel_node::jobs::{Workshop, WorkshopError};
use umbel_node::ports::PortFuture;

/// Bytes of items that are gathered for all cells together before they go to disk, as a share of the memory.
const GATHERED_MEMORY_SHARE: u64 = 8;

/// A worker's data on files and threads.
pub(crate) struct FileWorkshop {
    bench: Arc<Bench>,
    /// Which records' items are to be compared; none yet where it is empty.
    suspects: Mutex<Option<Suspects>>,
    fetched: Arc<Mutex<Option<GroupedBytes>>>,
    /// What was dropped, by the records that were kept.
    claims: Arc<Mutex<Option<ClaimFile>>>,
    /// What the job came to, in one line.
    summary: Arc<Mutex<Vec<u8>>>,
    /// Whether the folder is removed at the end of the process, not at that of the job, and but for a note of the end.
    removes_last: bool,
    /// Whether it is to be.
    is_done_with: AtomicBool,
}

fn explain(error: &DedupError) -> WorkshopError {
    let is_final = matches!(error.innermost(), DedupError::Input(_) | DedupError::Usage(_));
    WorkshopError { cause: chain_text(error), resumable: !is_final }
}

/// Does what takes long on a thread of its own, which [`Workshop::end`] waits for.
fn apart<'a, Outcome: Send + 'static>(
    bench: &Arc<Bench>,
    work: impl FnOnce(&Bench) -> Result<Outcome> + Send + 'static,
) -> PortFuture<'a, Result<Outcome, WorkshopError>> {
    let bench = Arc::clone(bench);
    Box::pin(async move {
        let work = tokio::task::spawn_blocking(move || {
            let _busy = bench.busy.read().unwrap_or_else(PoisonError::into_inner);
            bench.check_wanted()?;
            work(&bench)
        });
        let outcome = match work.await {
            Ok(outcome) => outcome,
            Err(stopped) => Err(DedupError::Failed(stopped.to_string()).context("a bug of umbel")),
        };
        outcome.map_err(|error| explain(&error))
    })
}

impl FileWorkshop {
    /// Opens the folder of a worker's job, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// If another process works in it, if it belongs to another job, if the input has changed since the job began, or
    /// if it is damaged.
    pub(crate) fn open(spec: JobSpec, member: Membership, folder: &Path) -> Result<Self> {
        let bench = Arc::new(Bench::open(spec, member, folder)?);
        let (fetched, claims, summary) = (Arc::default(), Arc::default(), Arc::default());
        let (removes_last, is_done_with) = (false, AtomicBool::new(false));
        let suspects = Mutex::default();
        Ok(Self { bench, suspects, fetched, claims, summary, removes_last, is_done_with })
    }

    /// The same, whose folder stays until [`FileWorkshop::remove_done`], and a note of the end behind that: a process
    /// that is killed behind the end of the job finds it, and does not take the command for that of a new job.
    pub(crate) fn removing_last(self) -> Self {
        Self { removes_last: true, ..self }
    }

    /// Removes the folder if the job has ended, and cannot be taken up again; but for a note if it has ended well.
    pub(crate) fn remove_done(&self) {
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
            crate::say::say_line(chain_text(&error));
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
    pub(crate) fn discard(folder: &Path, roots: &Roots) -> Result<()> {
        let folder = JobFolder::take(folder)?;
        // A journal that cannot be read tells of nothing that could be removed.
        if let Ok((_, mut told)) = Notebook::open(&folder.file(JOURNAL)) {
            writing::forget(&mut told, &ObjectStores::new(0), Some(roots));
        }
        folder.remove(false)
    }

    /// Bad records that this worker has left out, once its outputs are written; at the coordinator those of all, once
    /// the summary is.
    pub(crate) fn bad_count(&self) -> u64 {
        let told = lock(&self.bench.told);
        if let Some(bad) = told.concluded_bad {
            return bad;
        }
        let detail = told.written.as_ref().map(|written| &written.detail[..]).unwrap_or_default();
        let part: Part = serde_json::from_slice(detail).unwrap_or_default();
        part.bad_by_cause.values().sum()
    }

    /// Whether the end of the job is known, durably.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.bench.told).ended
    }

    fn settle_cell(&self, cell: u32, drops: &Drops) -> Result<()> {
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

    fn seal_cells(&self, report: &ExchangeReport) -> Result<()> {
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

    fn sealed_cells(&self) -> Result<(CellSet, ExchangeReport)> {
        let mut settling = lock(&self.bench.settling);
        settling.open.clear();
        settling.open_reference_drops = 0;
        self.bench.drops.cut(settling.sealed_bytes)?;
        Ok((settling.sealed.clone(), settling.report))
    }

    fn read_sample(&self) -> Result<Vec<Vec<Entry>>> {
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

    fn seal_counted(&self) -> Result<()> {
        let mut told = lock(&self.bench.told);
        if told.group_bytes.is_some() {
            return Ok(());
        }
        self.bench.groups.sync()?;
        let group_bytes = self.bench.groups.bytes();
        self.bench.note(&Note::Counted { group_bytes })?;
        told.group_bytes = Some(group_bytes);
        Ok(())
    }

    fn learn_groups(&self, keeper: WorkerId, groups: &[Group]) -> Result<()> {
        // What is durable was learned in an attempt before, and was the same.
        if lock(&self.bench.told).group_bytes.is_some() {
            return Ok(());
        }
        group_file::append(&self.bench.groups, keeper, groups)
    }

    fn read_claims(&self, range: PlaceRange) -> Result<Vec<Claim>> {
        let claims = lock(&self.claims);
        claims.as_ref().context("no claims were gathered")?.in_range(range)
    }

    fn read_items(&self, cell: u32) -> Result<Vec<Item>> {
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
}

impl FileWorkshop {
    fn add_suspects(&self, suspects: &[Suspect]) -> Result<()> {
        if suspects.is_empty() {
            return Ok(());
        }
        let bench = &self.bench;
        let state = bench.read_state()?;
        let mut noted = lock(&self.suspects);
        let noted = noted.get_or_insert_with(|| Suspects::new(&state.facts));
        for &suspect in suspects {
            let (chunk, record) = bench.own_place(&state, suspect.place)?;
            let chunk = u32::try_from(chunk).expect("chunk numbers have 24 bits");
            noted.add(Suspect { place: Place::new(chunk, record), ..suspect });
        }
        Ok(())
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
    let bar = Bar::new("compare", bytes, Unit::Bytes, bench.spec.quiet);
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

impl Workshop for FileWorkshop {
    fn marks(&self) -> Result<Vec<Vec<u8>>, WorkshopError> {
        Ok(lock(&self.bench.told).marks.clone())
    }

    fn mark(&self, mark: &[u8]) -> Result<(), WorkshopError> {
        lock(&self.bench.notebook).mark(mark).map_err(|error| explain(&error))
    }

    fn mark_end(&self, mark: &[u8]) -> Result<(), WorkshopError> {
        lock(&self.bench.notebook).mark_end(mark).map_err(|error| explain(&error))?;
        lock(&self.bench.told).ended = true;
        Ok(())
    }

    fn forecast(&self) -> Result<Forecast, WorkshopError> {
        Ok(self.bench.forecast)
    }

    fn read(&self, order: ReadOrder) -> PortFuture<'_, Result<Counts, WorkshopError>> {
        apart(&self.bench, move |bench| reading::read(bench, order))
    }

    fn sample(&self) -> Result<Vec<Vec<Entry>>, WorkshopError> {
        self.read_sample().map_err(|error| explain(&error))
    }

    fn entries(&self, cell: u32) -> Result<Vec<Entry>, WorkshopError> {
        self.ranked_entries(cell).map(|(entries, _)| entries)
    }

    fn ranked_entries(&self, cell: u32) -> Result<(Vec<Entry>, Vec<Rank>), WorkshopError> {
        let state = self.bench.read_state();
        let found = state.and_then(|state| state.cells.entries(cell));
        let CellEntries { entries, ranks } = found.map_err(|error| explain(&error))?;
        Ok((entries, ranks))
    }

    fn references(&self, range: HashRange) -> Result<Vec<ItemHash>, WorkshopError> {
        self.bench.references.hashes(range).map_err(|error| explain(&error))
    }

    fn settle(&self, cell: u32, drops: Drops) -> Result<(), WorkshopError> {
        self.settle_cell(cell, &drops).map_err(|error| explain(&error))
    }

    fn seal(&self, report: &ExchangeReport) -> Result<(), WorkshopError> {
        self.seal_cells(report).map_err(|error| explain(&error))
    }

    fn sealed(&self) -> Result<(CellSet, ExchangeReport), WorkshopError> {
        *lock(&self.suspects) = None;
        self.sealed_cells().map_err(|error| explain(&error))
    }

    fn suspect(&self, _: u32, suspects: &[Suspect]) -> Result<(), WorkshopError> {
        self.add_suspects(suspects).map_err(|error| explain(&error))
    }

    fn fetch(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        // A worker that has written its outputs has no input any more, and is asked for nothing.
        let Some(suspects) = lock(&self.suspects).take() else {
            return Box::pin(async { Ok(()) });
        };
        let fetched = Arc::clone(&self.fetched);
        apart(&self.bench, move |bench| {
            let store = fetch(bench, &suspects)?;
            *lock(&fetched) = Some(store);
            Ok(())
        })
    }

    fn items(&self, cell: u32) -> Result<Vec<Item>, WorkshopError> {
        self.read_items(cell).map_err(|error| explain(&error))
    }

    fn gather(&self, _: TallyOrder) -> PortFuture<'_, Result<Vec<u64>, WorkshopError>> {
        // At once: what an attempt before has left running must not forget what this one learns.
        let is_counted = lock(&self.bench.told).group_bytes.is_some();
        let begun = if is_counted { Ok(()) } else { self.bench.groups.cut(0) };
        let gathered = Arc::clone(&self.claims);
        apart(&self.bench, move |bench| {
            begun?;
            let state = bench.read_state()?;
            let claims = ClaimFile::gather(bench, &state)?;
            *lock(&gathered) = Some(claims);
            Ok(state.facts.iter().map(|facts| facts.places).collect())
        })
    }

    fn claims(&self, range: PlaceRange) -> Result<Vec<Claim>, WorkshopError> {
        self.read_claims(range).map_err(|error| explain(&error))
    }

    fn parts(&self, places: &[Place]) -> Result<Vec<RecordPart>, WorkshopError> {
        let state = self.bench.read_state().map_err(|error| explain(&error))?;
        let part = |place: &Place| self.bench.own_part(&state, *place);
        places.iter().map(part).collect::<Result<_>>().map_err(|error| explain(&error))
    }

    fn learn(&self, keeper: WorkerId, groups: Vec<Group>) -> Result<(), WorkshopError> {
        self.learn_groups(keeper, &groups).map_err(|error| explain(&error))
    }

    fn seal_groups(&self) -> Result<(), WorkshopError> {
        self.seal_counted().map_err(|error| explain(&error))
    }

    fn write(&self, order: WriteOrder) -> PortFuture<'_, Result<Written, WorkshopError>> {
        // Nobody asks for claims any more.
        *lock(&self.claims) = None;
        apart(&self.bench, move |bench| writing::write(bench, &order))
    }

    fn commit(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        apart(&self.bench, writing::commit)
    }

    fn add(&self) -> PortFuture<'_, Result<(), WorkshopError>> {
        apart(&self.bench, filters::add)
    }

    fn conclude(&self, result: &JobResult) -> PortFuture<'_, Result<(), WorkshopError>> {
        let (result, summary) = (result.clone(), Arc::clone(&self.summary));
        apart(&self.bench, move |bench| {
            *lock(&summary) = conclusion::conclude(bench, &result)?;
            // The exit code of a process that is started again is the same.
            bench
                .note(&Note::Concluded { bad: result.counts.iter().map(|counts| counts.bad).sum() })
        })
    }

    fn summary(&self) -> Vec<u8> {
        lock(&self.summary).clone()
    }

    fn end(&self, keep_scratch: bool) {
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
