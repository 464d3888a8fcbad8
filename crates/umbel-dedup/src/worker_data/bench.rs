//! What a worker's workshop holds: its input, the folder of its job, and what is durable there.

use super::super::addresses::is_object;
use super::super::chunk_facts::ChunkFacts;
use super::super::chunks::{Chunk, cut};
use super::super::context::Job;
use super::super::drops::SharedBits;
use super::super::inputs::{Source, identity};
use super::super::observer::Observer;
use super::super::online::Online;
use super::super::outputs::try_objects;
use super::super::outputs::{check_against_inputs, check_named, remove_leftovers_beside};
use super::super::plan;
use super::super::record_starts::RecordStarts;
use super::super::references::References;
use super::super::sink::is_device;
use super::super::sources::open_sources_but;
use super::super::spec::JobSpec;
use super::super::turns::lock;
use super::drop_file;
use super::folder::{Blob, DataFile, JOURNAL, JobFolder};
use super::notes::{
    BadNote, ChunkNote, Known, LAYOUT_VERSION, Note, Notebook, OpenedNote, ReadingNote, Told,
};
use super::same_job::{check_same_input, check_same_job, check_same_references, notes_of};
use super::segments::{CellReader, Segment, SegmentLayout};
use super::times::PartTimes;
use crate::clock::{ProcessorTime, Stopwatch};
use crate::error::{Context, Result, bail, refuse};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use umbel_dedup_engine::job::{CellSet, Forecast};
use umbel_dedup_engine::{ExchangeReport, JobShape, Place, RecordPart};
use umbel_files::folder_of;
use umbel_filter::ItemHasher;
use umbel_records::ContentDigest;

/// Memory that a thread needs to read, hash, sort and write: see the single-process job.
const THREAD_BYTES: u64 = 24 << 20;

/// Which worker of which job a process is.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Number of the worker.
    pub worker: u16,
    /// Number of the job.
    pub job: u64,
    /// Over all that workers must agree on.
    pub spec_digest: [u8; 16],
}

/// All that a workshop knows.
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
    pub(super) notebook: Mutex<Notebook>,
    pub(super) runs: Arc<DataFile>,
    pub(super) drops: DataFile,
    pub(super) groups: DataFile,
    /// What filters of a cluster hold of the kept items.
    pub(super) asked: DataFile,
    /// What the journal told, as far as nobody has taken it.
    pub(super) told: Mutex<Told>,
    /// Set once all was read.
    pub(super) read: Mutex<Option<Arc<ReadState>>>,
    pub(super) settling: Mutex<Settling>,
    pub(super) times: Mutex<PartTimes>,
    /// Held by whoever writes or commits outputs: a coordinator that was started again orders what is under way.
    pub(super) outputs: Mutex<()>,
    /// Held (shared) by work that takes long.
    pub(super) busy: RwLock<()>,
    /// Whether such work shall end.
    pub(super) is_over: AtomicBool,
    pub(super) clocks: (Stopwatch, ProcessorTime),
}

/// What is known once all was read.
pub(super) struct ReadState {
    pub(super) facts: Vec<ChunkFacts>,
    pub(super) cells: CellReader,
    pub(super) reading: ReadingNote,
    /// Which records were dropped for which in the first reading, if the job reports it.
    pub(super) pairs: Vec<Blob>,
}

/// Chunks as they were read before.
#[derive(Default)]
pub(super) struct Restored {
    /// Facts of all chunks; empty ones of those that were not read.
    pub(super) facts: Vec<ChunkFacts>,
    pub(super) segments: Vec<Segment>,
    pub(super) pairs: Vec<Blob>,
    pub(super) unread: Vec<bool>,
}

/// Which cells are settled.
pub(super) struct Settling {
    pub(super) sealed: CellSet,
    pub(super) sealed_bytes: u64,
    pub(super) report: ExchangeReport,
    /// Items dropped there because a reference holds them.
    pub(super) reference_drops: u64,
    /// Settled since the last seal.
    pub(super) open: Vec<u32>,
    /// As above, in these.
    pub(super) open_reference_drops: u64,
}

impl Settling {
    /// As the journal has it.
    fn of(told: &Told) -> Self {
        let mut sealed = CellSet::new(told.reading.map_or(0, ReadingNote::cells));
        told.settled.iter().for_each(|&cell| sealed.insert(cell));
        Self {
            sealed,
            sealed_bytes: told.drops_bytes,
            report: told.report,
            reference_drops: told.reference_drops,
            open: Vec::new(),
            open_reference_drops: 0,
        }
    }
}

impl ReadingNote {
    /// Cells of all owners.
    pub(super) fn cells(self) -> u32 {
        self.workers.saturating_mul(self.cells_per_owner)
    }
}

impl Bench {
    /// Opens the folder of a worker's job, and its input as far as that is still needed.
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
        // Before the folder is made: a command that cannot work leaves nothing behind.
        let is_new = !folder.join(JOURNAL).exists();
        let input = is_new.then(|| new_input(&spec, &*observer)).transpose()?;
        let folder = JobFolder::take(folder)?;
        let (mut notebook, told) = Notebook::open(&folder.file(JOURNAL))?;
        let needs_input = told.needs_input(spec.add_to.is_some());
        let (sources, chunks) = match input {
            Some(input) => input,
            None if told.opened.is_none() => new_input(&spec, &*observer)?,
            None if needs_input => open_input(&spec, &*observer, &told)?,
            None => (Vec::new(), Vec::new()),
        };
        let forecast = match &told.opened {
            Some(opened) => {
                check_same_job(&folder, opened, &member)?;
                check_same_references(opened, &references)?;
                if needs_input {
                    check_same_input(&opened.inputs, &notes_of(&sources)?)?;
                }
                notebook.note(&Note::Resumed)?;
                opened.forecast
            }
            None => {
                let forecast = forecast(&spec, &references, &sources, &chunks)?;
                let Membership { worker, job, spec_digest, .. } = member;
                let (version, inputs) = (LAYOUT_VERSION, notes_of(&sources)?);
                let opened = OpenedNote { version, job, worker, spec_digest, inputs, forecast };
                notebook.note(&Note::Opened(opened))?;
                forecast
            }
        };
        let [runs_bytes, drops_bytes, group_bytes, asked_bytes] = told.data_bytes();
        let runs = Arc::new(DataFile::open(&folder, "runs", runs_bytes)?);
        let drops = DataFile::open(&folder, "drops", drops_bytes)?;
        let groups = DataFile::open(&folder, "groups", group_bytes)?;
        let asked = DataFile::open(&folder, "asked", asked_bytes)?;
        let settling = Mutex::new(Settling::of(&told));
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
            notebook: Mutex::new(notebook),
            runs,
            drops,
            groups,
            asked,
            told: Mutex::new(told),
            read: Mutex::default(),
            settling,
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

    /// Fails if nobody waits for the work any more.
    pub(super) fn check_wanted(&self) -> Result<()> {
        if self.is_over.load(Ordering::Relaxed) {
            bail!("the job has ended");
        }
        Ok(())
    }

    /// Ends work that is under way, and waits for its end.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.busy.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds a note, durably.
    pub(super) fn note(&self, note: &Note) -> Result<()> {
        lock(&self.notebook).note(note)
    }

    /// The worker's input as a job of its own, in the cells of the whole one.
    pub(super) fn job(&self, reading: ReadingNote) -> Job<'_> {
        let shape = JobShape {
            workers: reading.workers,
            cells_per_owner: reading.cells_per_owner,
            level: self.spec.level,
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
            hasher: ItemHasher::Xxh3 { seed: self.spec.seed },
            id: self.member.job,
            threads: self.threads,
        }
    }

    /// What was read.
    ///
    /// # Errors
    ///
    /// If not all was.
    pub(super) fn read_state(&self) -> Result<Arc<ReadState>> {
        lock(&self.read).clone().context("the input was not read yet")
    }

    /// If an earlier process has read all, what it found; and what it dropped.
    fn restore_read(&self) -> Result<()> {
        let mut told = lock(&self.told);
        let Some(reading) = told.reading else { return Ok(()) };
        let is_needed = told.needs_input(self.spec.add_to.is_some());
        if !is_needed || told.known.chunks.len() < self.chunks.len() {
            return Ok(());
        }
        let (known, asked_bytes) = (told.take_known(), told.asked_bytes());
        drop(told);
        let restored = self.restore_chunks(known)?;
        self.set_read(reading, restored.facts, restored.segments, restored.pairs)?;
        let sealed_bytes = lock(&self.settling).sealed_bytes;
        let state = self.read_state()?;
        for (file, bytes) in [(&self.drops, sealed_bytes), (&self.asked, asked_bytes)] {
            drop_file::for_each(file, bytes, |place, _, _| self.mark_dropped(&state, place))?;
        }
        Ok(())
    }

    /// What earlier processes found in the chunks that they have read.
    pub(super) fn restore_chunks(&self, known: Known) -> Result<Restored> {
        let count = self.chunks.len();
        let mut restored =
            Restored { segments: known.segments, unread: vec![true; count], ..Restored::default() };
        restored.facts.resize_with(count, ChunkFacts::default);
        for note in known.chunks {
            let chunk = note.chunk as usize;
            if restored.unread.get(chunk) != Some(&true) {
                bail!("the journal speaks of chunk {chunk} of {count}, or twice of it");
            }
            restored.pairs.extend(&note.pairs);
            restored.facts[chunk] = self.facts(note)?;
            restored.unread[chunk] = false;
        }
        Ok(restored)
    }

    /// All was read.
    pub(super) fn set_read(
        &self,
        reading: ReadingNote,
        facts: Vec<ChunkFacts>,
        segments: Vec<Segment>,
        pairs: Vec<Blob>,
    ) -> Result<()> {
        let layout = SegmentLayout::of(&self.job(reading).shape);
        let (data, base) = (Arc::clone(&self.runs), reading.chunk_base);
        let cells = CellReader::new(data, segments, layout, base, self.spec.memory_bytes)?;
        let mut settling = lock(&self.settling);
        if !settling.sealed.is_of(reading.cells()) {
            settling.sealed = CellSet::new(reading.cells());
        }
        drop(settling);
        *lock(&self.read) = Some(Arc::new(ReadState { facts, cells, reading, pairs }));
        Ok(())
    }

    /// Facts of a chunk, as noted.
    fn facts(&self, note: ChunkNote) -> Result<ChunkFacts> {
        let ChunkNote { records, places, items, exempt, left_out, .. } = note;
        let ChunkNote { item_bytes, early_drops, .. } = note;
        let (bytes, crc32c) = note.digest;
        let bits = |blob| -> Result<SharedBits> {
            let bytes = self.runs.read_blob(blob)?;
            let words = bytes.as_chunks::<8>().0.iter();
            Ok(SharedBits::from_words(words.map(|word| u64::from_le_bytes(*word))))
        };
        let dropped = note.dropped.map_or_else(|| Ok(SharedBits::new(places)), bits)?;
        let starts = note.starts.map(bits).transpose()?.map(RecordStarts::new);
        let bad = note.bad.into_iter().map(BadNote::record);
        let (digest, bad) = (Some(ContentDigest { bytes, crc32c }), bad.collect());
        Ok(ChunkFacts {
            records,
            places,
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

    /// A place of the job that must be one of this worker's records, by its own number of the chunk.
    pub(super) fn own_place(&self, state: &ReadState, place: Place) -> Result<(usize, u64)> {
        let chunk = place.chunk().checked_sub(state.reading.chunk_base);
        let found = chunk.and_then(|chunk| {
            let facts = state.facts.get(chunk as usize)?;
            (place.item() < facts.places).then_some((chunk as usize, place.item()))
        });
        found.with_context(|| {
            let (item, chunk, worker) = (place.item(), place.chunk(), self.member.worker);
            format!("item {item} of chunk {chunk} is none of worker {worker}")
        })
    }

    /// Which part of which record a place of this worker is.
    pub(super) fn own_part(&self, state: &ReadState, place: Place) -> Result<RecordPart> {
        let (chunk, item) = self.own_place(state, place)?;
        let (record, part) = state.facts[chunk].record_of(item);
        let part = part.context("records of the job have no parts")?;
        Ok(RecordPart { record, part })
    }

    /// A record does not stay.
    pub(super) fn mark_dropped(&self, state: &ReadState, place: Place) -> Result<()> {
        let (chunk, record) = self.own_place(state, place)?;
        state.facts[chunk].dropped.set(record);
        Ok(())
    }

    /// Bytes on disk in the folder.
    pub(super) fn scratch_bytes(&self) -> u64 {
        let files = [&self.runs, &self.drops, &self.groups, &self.asked];
        files.map(DataFile::bytes).iter().sum::<u64>() + lock(&self.notebook).bytes()
    }
}

/// So many threads that all of them have what they need; the other half is for lanes, connections and what was read.
fn threads_for(memory_bytes: u64, cores: usize) -> usize {
    let fit = memory_bytes / 2 / THREAD_BYTES;
    cores.min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1)
}

/// The input of a new job, and whether its outputs can be written.
fn new_input(spec: &JobSpec, observer: &dyn Observer) -> Result<(Vec<Source>, Vec<Chunk>)> {
    check_named(spec)?;
    check_last(spec)?;
    let input = open_input(spec, observer, &Told::default())?;
    check_against_inputs(spec, &input.0)?;
    try_objects(spec, &input.0)?;
    remove_leftovers_beside(spec, &input.0);
    // They are asked when all cells are settled, and told when all outputs stand: connections begin then.
    drop(Online::connect(spec)?);
    Ok(input)
}

/// Refuses what is written when all workers have done all of it where there is no folder for it: later it would help
/// nobody to know.
fn check_last(spec: &JobSpec) -> Result<()> {
    let last = [&spec.summary, &spec.page].into_iter().flatten();
    for path in last.filter(|path| !is_object(path) && !is_device(path)) {
        let folder = folder_of(path);
        if !folder.is_dir() {
            bail!("{}: cannot write: there is no folder {}", path.display(), folder.display());
        }
    }
    Ok(())
}

/// The input files and their parts, without outputs that have come beside them since. A worker's parts do not depend on
/// the machine, so that another one can go on.
fn open_input(
    spec: &JobSpec,
    observer: &dyn Observer,
    told: &Told,
) -> Result<(Vec<Source>, Vec<Chunk>)> {
    let outputs = told.outputs.iter().filter(|_| told.committing);
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
