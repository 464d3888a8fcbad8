//! The state of a worker's data: its input, the folder of its job, and what is durable there.
//!
//! [`Bench::open`] opens or creates the folder, checks that it belongs to this job and that the input is unchanged, and
//! restores from the journal what earlier processes have done.

use super::super::addresses::is_object;
use super::super::chunk_facts::ChunkFacts;
use super::super::chunks::{Chunk, cut};
use super::super::context::Job;
use super::super::destinations::make_directory;
use super::super::drops::SharedBits;
use super::super::inputs::{Source, identity};
use super::super::memory::threads_for;
use super::super::observer::Observer;
use super::super::online::Online;
use super::super::outputs::try_objects;
use super::super::outputs::{check_against_inputs, check_named, remove_leftovers_beside};
use super::super::plan;
use super::super::record_starts::RecordStarts;
use super::super::references::References;
use super::super::sources::open_sources_but;
use super::super::spec::{JobSpec, OutputTarget};
use super::super::turns::lock;
use super::drop_file;
use super::folder::{Blob, DataFile, JOURNAL, JobFolder};
use super::journal_records::{
    JournalRecord, JournalState, JournaledBadRecord, JournaledChunk, JournaledOpening,
    JournaledReading, LAYOUT_VERSION, ReadChunks, WorkerJournal,
};
use super::same_job::{check_same_input, check_same_job, check_same_references, journaled_inputs};
use super::times::PartTimes;
use crate::clock::{ProcessorTime, Stopwatch};
use crate::error::{Context, Result, bail, refuse};
use crate::segments::{CellLimits, CellReader, Segment, SegmentLayout};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use umbel_dedup_engine::job::{CellSet, Forecast};
use umbel_dedup_engine::{ExchangeReport, JobShape, RecordId, RecordPart};
use umbel_files::{folder_of, is_device};
use umbel_records::ContentDigest;

/// Identifies a worker and its job.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Number of the worker.
    pub worker: u16,
    /// Number of the job.
    pub job: u64,
    /// Digest of the options that all workers must agree on.
    pub spec_digest: [u8; 16],
}

/// The state of a worker's data.
pub(super) struct Bench {
    pub(super) spec: JobSpec,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) member: Membership,
    pub(super) sources: Vec<Source>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) references: References,
    pub(super) forecast: Forecast,
    pub(super) threads: usize,
    pub(super) folder: JobFolder,
    pub(super) journal: Mutex<WorkerJournal>,
    pub(super) runs: Arc<DataFile>,
    pub(super) drops: DataFile,
    pub(super) groups: DataFile,
    /// Kept items that filters of a cluster contain.
    pub(super) asked: DataFile,
    /// The state from the journal; the chunks that were read are taken out once.
    pub(super) journal_state: Mutex<JournalState>,
    /// Set once the whole input was read.
    pub(super) read: Mutex<Option<Arc<ReadState>>>,
    pub(super) decided_cells: Mutex<DecidedCells>,
    pub(super) times: Mutex<PartTimes>,
    /// Locked while outputs are written or committed: a restarted coordinator may order this a second time.
    pub(super) outputs: Mutex<()>,
    /// Read-locked during long work, so that [`Bench::stop`] can wait for its end.
    pub(super) busy: RwLock<()>,
    /// Whether long work must stop.
    pub(super) is_over: AtomicBool,
    pub(super) clocks: (Stopwatch, ProcessorTime),
}

/// What is known once the whole input was read.
pub(super) struct ReadState {
    pub(super) facts: Vec<ChunkFacts>,
    pub(super) cells: CellReader<DataFile>,
    pub(super) reading: JournaledReading,
    /// Pairs of dropped and kept records from the first reading, if the job reports them.
    pub(super) pairs: Vec<Blob>,
}

/// Chunks that earlier processes have read.
#[derive(Default)]
pub(super) struct Restored {
    /// Facts of all chunks; default values for those that were not read.
    pub(super) facts: Vec<ChunkFacts>,
    pub(super) segments: Vec<Segment>,
    pub(super) pairs: Vec<Blob>,
    pub(super) unread: Vec<bool>,
}

/// The decided cells: those that are sealed (durable), and those decided since the last seal.
pub(super) struct DecidedCells {
    pub(super) sealed: CellSet,
    pub(super) sealed_bytes: u64,
    pub(super) report: ExchangeReport,
    /// Items dropped in sealed cells because a reference contains them.
    pub(super) reference_drops: u64,
    /// Cells decided since the last seal.
    pub(super) open: Vec<u32>,
    /// Items dropped in these because a reference contains them.
    pub(super) open_reference_drops: u64,
}

impl DecidedCells {
    /// The sealed cells of the journal.
    fn of(journal_state: &JournalState) -> Self {
        let mut sealed = CellSet::new(journal_state.reading.map_or(0, JournaledReading::cells));
        journal_state.decided.iter().for_each(|&cell| sealed.insert(cell));
        Self {
            sealed,
            sealed_bytes: journal_state.drops_bytes,
            report: journal_state.report,
            reference_drops: journal_state.reference_drops,
            open: Vec::new(),
            open_reference_drops: 0,
        }
    }
}

impl JournaledReading {
    /// Cells of all owners.
    pub(super) fn cells(self) -> u32 {
        self.workers.saturating_mul(self.cells_per_owner)
    }
}

impl Bench {
    /// Opens or creates the folder of a worker's job, and opens its input if that is still needed.
    pub(super) fn open(
        spec: JobSpec,
        member: Membership,
        folder: &Path,
        observer: Arc<dyn Observer>,
    ) -> Result<Self> {
        let clocks = (Stopwatch::start(), ProcessorTime::start());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads_for(spec.memory_bytes, cores);
        let references = References::open(&spec)?;
        // Opened before the folder is created, so that a command that fails leaves no folder behind.
        let is_new = !folder.join(JOURNAL).exists();
        let input = is_new.then(|| new_input(&spec, &*observer)).transpose()?;
        let folder = JobFolder::take(folder)?;
        let (mut journal, journal_state) = WorkerJournal::open(&folder.file(JOURNAL))?;
        let needs_input = journal_state.needs_input(spec.add_to.is_some());
        let (sources, chunks) = match input {
            Some(input) => input,
            None if journal_state.opened.is_none() => new_input(&spec, &*observer)?,
            None if needs_input => open_input(&spec, &*observer, &journal_state)?,
            None => (Vec::new(), Vec::new()),
        };
        let forecast = match &journal_state.opened {
            Some(opened) => {
                check_same_job(&folder, opened, &member)?;
                check_same_references(opened, &references)?;
                if needs_input {
                    check_same_input(&opened.inputs, &journaled_inputs(&sources)?)?;
                }
                journal.append(&JournalRecord::Resumed)?;
                opened.forecast
            }
            None => {
                let forecast = forecast(&spec, &references, &sources, &chunks)?;
                let Membership { worker, job, spec_digest, .. } = member;
                let (version, inputs) = (LAYOUT_VERSION, journaled_inputs(&sources)?);
                let opened =
                    JournaledOpening { version, job, worker, spec_digest, inputs, forecast };
                journal.append(&JournalRecord::Opened(opened))?;
                forecast
            }
        };
        let [runs_bytes, drops_bytes, group_bytes, asked_bytes] = journal_state.data_bytes();
        let runs = Arc::new(DataFile::open(&folder, "runs", runs_bytes)?);
        let drops = DataFile::open(&folder, "drops", drops_bytes)?;
        let groups = DataFile::open(&folder, "groups", group_bytes)?;
        let asked = DataFile::open(&folder, "asked", asked_bytes)?;
        let decided_cells = Mutex::new(DecidedCells::of(&journal_state));
        let bench = Self {
            spec,
            observer,
            member,
            sources,
            chunks,
            references,
            forecast,
            threads,
            folder,
            journal: Mutex::new(journal),
            runs,
            drops,
            groups,
            asked,
            journal_state: Mutex::new(journal_state),
            read: Mutex::default(),
            decided_cells,
            times: Mutex::default(),
            outputs: Mutex::default(),
            busy: RwLock::default(),
            is_over: AtomicBool::new(false),
            clocks,
        };
        bench.restore_read()?;
        lock(&bench.times).open = bench.clocks.0.elapsed();
        Ok(bench)
    }

    /// Fails if the job has ended, which makes long work stop.
    pub(super) fn check_wanted(&self) -> Result<()> {
        if self.is_over.load(Ordering::Relaxed) {
            bail!("the job has ended");
        }
        Ok(())
    }

    /// Makes long work stop, and waits until it has.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.busy.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Appends a journal record, durably.
    pub(super) fn append_record(&self, record: &JournalRecord) -> Result<()> {
        lock(&self.journal).append(record)
    }

    /// The job with only this worker's input, and the cells of the whole job.
    pub(super) fn job(&self, reading: JournaledReading) -> Job<'_> {
        let shape = JobShape {
            workers: reading.workers,
            cells_per_owner: reading.cells_per_owner,
            exactness: self.spec.exactness,
            keep: self.spec.keep,
            report_kept: self.spec.reports_kept(),
            item_bytes_mean: 0.0,
        };
        Job {
            spec: &self.spec,
            observer: &*self.observer,
            sources: &self.sources,
            chunks: &self.chunks,
            references: &self.references,
            shape,
            id: self.member.job,
            threads: self.threads,
        }
    }

    /// The state of the input that was read.
    ///
    /// # Errors
    ///
    /// If the input was not read to its end.
    pub(super) fn read_state(&self) -> Result<Arc<ReadState>> {
        lock(&self.read).clone().context("the input was not read yet")
    }

    /// Restores what an earlier process has read, if it had read the whole input, and the drops of sealed
    /// cells.
    fn restore_read(&self) -> Result<()> {
        let mut journal_state = lock(&self.journal_state);
        let Some(reading) = journal_state.reading else { return Ok(()) };
        let is_needed = journal_state.needs_input(self.spec.add_to.is_some());
        if !is_needed || journal_state.read_chunks.chunks.len() < self.chunks.len() {
            return Ok(());
        }
        let (read_chunks, asked_bytes) =
            (journal_state.take_read_chunks(), journal_state.asked_bytes());
        drop(journal_state);
        let restored = self.restore_chunks(read_chunks)?;
        self.set_read(reading, restored.facts, restored.segments, restored.pairs)?;
        let sealed_bytes = lock(&self.decided_cells).sealed_bytes;
        let state = self.read_state()?;
        for (file, bytes) in [(&self.drops, sealed_bytes), (&self.asked, asked_bytes)] {
            drop_file::for_each(file, bytes, |record_id, _, _| {
                self.mark_dropped(&state, record_id)
            })?;
        }
        Ok(())
    }

    /// Restores the chunks that earlier processes have read.
    pub(super) fn restore_chunks(&self, read_chunks: ReadChunks) -> Result<Restored> {
        let count = self.chunks.len();
        let mut restored = Restored {
            segments: read_chunks.segments,
            unread: vec![true; count],
            ..Restored::default()
        };
        restored.facts.resize_with(count, ChunkFacts::default);
        for record in read_chunks.chunks {
            let chunk = record.chunk as usize;
            if restored.unread.get(chunk) != Some(&true) {
                bail!("the journal speaks of chunk {chunk} of {count}, or twice of it");
            }
            restored.pairs.extend(&record.pairs);
            restored.facts[chunk] = self.facts(record)?;
            restored.unread[chunk] = false;
        }
        Ok(restored)
    }

    /// Sets the state of the input, once all of it was read.
    pub(super) fn set_read(
        &self,
        reading: JournaledReading,
        facts: Vec<ChunkFacts>,
        segments: Vec<Segment>,
        pairs: Vec<Blob>,
    ) -> Result<()> {
        let layout = SegmentLayout::of(&self.job(reading).shape);
        let limits = CellLimits::of(self.spec.memory_bytes, layout);
        let (data, base) = (Arc::clone(&self.runs), reading.chunk_base);
        let cells = CellReader::new(data, segments, layout, base, limits)?;
        let mut decided_cells = lock(&self.decided_cells);
        if !decided_cells.sealed.is_of(reading.cells()) {
            decided_cells.sealed = CellSet::new(reading.cells());
        }
        drop(decided_cells);
        *lock(&self.read) = Some(Arc::new(ReadState { facts, cells, reading, pairs }));
        Ok(())
    }

    /// The facts of a chunk from its journal record.
    fn facts(&self, record: JournaledChunk) -> Result<ChunkFacts> {
        let JournaledChunk { records, id_count, items, exempt, left_out, .. } = record;
        let JournaledChunk { item_bytes, early_drops, .. } = record;
        let (bytes, crc32c) = record.digest;
        let bits = |blob| -> Result<SharedBits> {
            let bytes = self.runs.read_blob(blob)?;
            let words = bytes.as_chunks::<8>().0.iter();
            Ok(SharedBits::from_words(words.map(|word| u64::from_le_bytes(*word))))
        };
        let dropped = record.dropped.map_or_else(|| Ok(SharedBits::new(id_count)), bits)?;
        let starts = record.starts.map(bits).transpose()?.map(RecordStarts::new);
        let bad = record.bad.into_iter().map(JournaledBadRecord::record);
        let (digest, bad) = (Some(ContentDigest { bytes, crc32c }), bad.collect());
        Ok(ChunkFacts {
            records,
            id_count,
            items,
            exempt,
            left_out,
            item_bytes,
            digest,
            dropped,
            early_drops,
            bad,
            starts,
        })
    }

    /// The chunk, by this worker's own numbering, and the item number in it, of a record id of the job.
    ///
    /// # Errors
    ///
    /// The record does not belong to this worker.
    pub(super) fn own_record(
        &self,
        state: &ReadState,
        record_id: RecordId,
    ) -> Result<(usize, u64)> {
        let chunk = record_id.chunk().checked_sub(state.reading.chunk_base);
        let found = chunk.and_then(|chunk| {
            let facts = state.facts.get(chunk as usize)?;
            (record_id.item() < facts.id_count).then_some((chunk as usize, record_id.item()))
        });
        found.with_context(|| {
            let (item, chunk, worker) = (record_id.item(), record_id.chunk(), self.member.worker);
            format!("item {item} of chunk {chunk} is none of worker {worker}")
        })
    }

    /// The record and part that a record id of this worker stands for.
    pub(super) fn own_part(&self, state: &ReadState, record_id: RecordId) -> Result<RecordPart> {
        let (chunk, item) = self.own_record(state, record_id)?;
        let (record, part) = state.facts[chunk].record_of(item);
        let part = part.context("records of the job have no parts")?;
        Ok(RecordPart { record, part })
    }

    /// Marks a record as dropped.
    pub(super) fn mark_dropped(&self, state: &ReadState, record_id: RecordId) -> Result<()> {
        let (chunk, record) = self.own_record(state, record_id)?;
        state.facts[chunk].dropped.set(record);
        Ok(())
    }

    /// Bytes on disk in the folder.
    pub(super) fn scratch_bytes(&self) -> u64 {
        let files = [&self.runs, &self.drops, &self.groups, &self.asked];
        files.map(DataFile::bytes).iter().sum::<u64>() + lock(&self.journal).bytes()
    }
}

/// Opens the input of a new job, and checks that its outputs can be written.
fn new_input(spec: &JobSpec, observer: &dyn Observer) -> Result<(Vec<Source>, Vec<Chunk>)> {
    check_named(spec)?;
    check_folders(spec)?;
    let input = open_input(spec, observer, &JournalState::default())?;
    check_against_inputs(spec, &input.0)?;
    try_objects(spec, &input.0)?;
    remove_leftovers_beside(spec, &input.0);
    // Checks that the filters respond. They are used after the exchange, when the worker connects again.
    drop(Online::connect(spec)?);
    Ok(input)
}

/// Rejects a named output whose folder does not exist: it is written when the work is done. A folder at or above the output
/// directory is made with that one now: a worker that keeps no file would not make it later. The folders of a node's jobs
/// are opened below their roots, and not looked at here.
fn check_folders(spec: &JobSpec) -> Result<()> {
    for (_, path) in spec.named_outputs().filter(|_| spec.roots.is_none()) {
        let folder = folder_of(path);
        if is_object(path) || is_device(path) || folder.is_dir() {
            continue;
        }
        match &spec.output {
            OutputTarget::Directory(root) if root.starts_with(folder) => {
                make_directory(spec, root)?;
            }
            _ => {
                refuse!("{}: cannot write: there is no folder {}", path.display(), folder.display())
            }
        }
    }
    Ok(())
}

/// The input files and their chunks, without outputs of this job. A worker's chunks do not depend on the
/// machine, so that the worker can be resumed on another one.
fn open_input(
    spec: &JobSpec,
    observer: &dyn Observer,
    journal_state: &JournalState,
) -> Result<(Vec<Source>, Vec<Chunk>)> {
    let outputs = journal_state.outputs.iter().filter(|_| journal_state.committing);
    let outputs = outputs.map(|output| identity(&output.path)).collect();
    let sources = open_sources_but(spec, observer, true, &outputs)?;
    for source in &sources {
        if source.identity.is_none() {
            refuse!(
                "{}: not a file; a worker of a job over many machines reads files, for it may be started again",
                source.name
            );
        }
    }
    let chunks = cut(&sources, 1, 1, spec.compares_files())?;
    Ok((sources, chunks))
}

fn forecast(
    spec: &JobSpec,
    references: &References,
    sources: &[Source],
    chunks: &[Chunk],
) -> Result<Forecast> {
    let plan::Forecast { stored_bytes, content_bytes, records } = plan::forecast(spec, sources)?;
    let chunks = u32::try_from(chunks.len()).context("number of chunks")?;
    let memory_bytes = spec.memory_bytes;
    let references = references.known();
    Ok(Forecast { stored_bytes, content_bytes, records, chunks, memory_bytes, references })
}
