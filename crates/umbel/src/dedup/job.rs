//! A job from its specification to its outcome: phases in order, the commit last.

use super::bad::BadRecords;
use super::best::{BestField, Ranker};
use super::by_size::{self, BySize};
use super::chunks::{Chunk, cut};
use super::commit::commit;
use super::compare::{self, Suspects};
use super::destinations::try_objects;
use super::drop_rows::DropRows;
use super::exchange::{self, Decisions, Outcome};
use super::format_rule::FormatRule;
use super::hash_runs::{HashRuns, RunStore};
use super::headers::{check_headers, read_headers};
use super::local_pass::{self, ChunkFacts, LocalPass};
use super::memory::{check_workers, pairs_bytes, resident_bytes};
use super::name_filter::NameFilter;
use super::object_inputs::ObjectStores;
use super::online::{Asked, FilterAddress, Online};
use super::output::Written;
use super::outputs::{
    Named, Outputs, check_against_inputs, check_named, remove_leftovers_beside, write_bad,
};
use super::plan;
use super::progress::{Bar, Unit};
use super::references::References;
use super::report::records_before;
use super::reports::{self, Drops, ReportOutputs};
use super::row_groups::read_footers;
use super::save_index::{self, KeptOfJob};
use super::scope::{Scope, ScopedHasher};
use super::search::{BinaryFiles, resolve};
use super::sink::{Complete, Sink};
use super::spill::ScratchFile;
use super::summary::{DroppedItems, Facts, Summary};
use super::{in_place::check_in_place, inputs::Source};
use crate::clock::{ProcessorTime, Stopwatch};
use crate::exit::{Exit, UsageError};
use crate::say::say;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_engine::dedup::{FilterChoice, IndexBits, JobShape, Keep, Level, WorkerId};
use umbel_filter::{CellCount, ItemHasher};
use umbel_records::{ExtractorError, Format, Granularity, Normaliser};

/// Where kept records go.
#[derive(Clone, Debug)]
pub(crate) enum OutputTarget {
    /// Standard output.
    Stdout,
    /// One file.
    File(PathBuf),
    /// One file an input.
    Directory(PathBuf),
}

/// What becomes of a record without a field that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MissingKey {
    /// It is a bad record.
    Fail,
    /// It stays, and is compared with nothing.
    Keep,
    /// It goes.
    Drop,
}

/// What becomes of an empty item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EmptyItems {
    /// It is equal to other empty ones.
    Compare,
    /// Its record stays.
    Keep,
}

/// An index that is to be written.
#[derive(Clone, Debug)]
pub(crate) struct SaveIndex {
    /// Its file.
    pub(crate) path: PathBuf,
    /// How much of each hash is stored; `None`: as the index has it that is updated, else all.
    pub(crate) bits: Option<IndexBits>,
}

/// What the user wants.
#[derive(Debug)]
pub(crate) struct JobSpec {
    /// Files, directories, globs, `-`.
    pub(crate) inputs: Vec<String>,
    /// Which files of directories are read.
    pub(crate) names: NameFilter,
    /// Workers in this process, to measure the exchange between them; `None`: one, which exchanges nothing.
    pub(crate) workers: Option<u32>,
    /// What is compared.
    pub(crate) granularity: Granularity,
    /// Paragraphs of fewer bytes are not compared.
    pub(crate) paragraph_bytes_min: u64,
    /// What of items does not count, in order.
    pub(crate) normalise: Vec<Normaliser>,
    /// Which records are compared with each other.
    pub(crate) scope: Scope,
    /// Number of the worker that does this part of a job over many machines.
    pub(crate) rank: Option<u16>,
    /// What becomes of records without a key.
    pub(crate) missing_key: MissingKey,
    /// What becomes of empty items.
    pub(crate) empty: EmptyItems,
    /// Whether the user said what is compared; else it depends on the format.
    pub(crate) names_granularity: bool,
    /// How records are cut.
    pub(crate) format: FormatRule,
    /// Where kept records go, or the annotations.
    pub(crate) output: OutputTarget,
    /// Whether each input file is replaced: the output is a directory then, without a name.
    pub(crate) in_place: bool,
    /// Whether records are annotated instead of dropped.
    pub(crate) annotates: bool,
    /// What is written by how often a record was there.
    pub(crate) by_size: BySize,
    /// Where the report of dropped records goes.
    pub(crate) duplicates: Option<PathBuf>,
    /// Where the list of groups of equal records goes.
    pub(crate) groups: Option<PathBuf>,
    /// Where the list of bad records goes, if there are any.
    pub(crate) bad: Option<PathBuf>,
    /// Indexes of what earlier jobs have kept.
    pub(crate) references: Vec<PathBuf>,
    /// Filters that are asked what they hold of the kept items.
    pub(crate) online: Vec<FilterAddress>,
    /// The filter that kept items are added to.
    pub(crate) add_to: Option<FilterAddress>,
    /// Below which folders inputs may be; anywhere if there are none, as for whoever starts the process.
    pub(crate) roots: Option<crate::files::Roots>,
    /// How their clusters are reached.
    pub(crate) reach: crate::cluster_client::Reach,
    /// The index of what this job keeps.
    pub(crate) save_index: Option<SaveIndex>,
    /// Where the summary goes.
    pub(crate) summary: Option<PathBuf>,
    /// When records are equal.
    pub(crate) level: Level,
    /// Which of equal records stays.
    pub(crate) keep: Keep,
    /// Where the best one stays: by which field.
    pub(crate) best: Option<BestField>,
    /// How entries are compared between workers.
    pub(crate) filter: FilterChoice,
    /// Seed of the hash.
    pub(crate) seed: u64,
    /// Memory in bytes.
    pub(crate) memory_bytes: u64,
    /// Directory for scratch files.
    pub(crate) scratch: PathBuf,
    /// Most bad records that are left out; `None`: the first one ends the job.
    pub(crate) skip_bad: Option<u64>,
    /// What becomes of files of a directory or pattern that are no text.
    pub(crate) binary: BinaryFiles,
    /// Whether existing outputs are replaced.
    pub(crate) overwrite: bool,
    /// No progress, no closing table.
    pub(crate) quiet: bool,
    /// Only say what the job would need.
    pub(crate) plan_only: bool,
    /// The object store, for inputs and outputs.
    pub(crate) stores: ObjectStores,
}

impl JobSpec {
    /// Whether every file is one record.
    pub(crate) fn compares_files(&self) -> bool {
        self.granularity == Granularity::File
    }

    /// What pairs of workers in one process take.
    fn pairs_bytes(&self) -> u64 {
        self.workers.map_or(0, |workers| pairs_bytes(workers, self.level))
    }

    /// Whether records have parts, which are compared each by itself.
    pub(crate) fn has_parts(&self) -> bool {
        matches!(self.granularity, Granularity::Paragraph(_))
    }

    /// Outputs that are one file or object each, and the options that name them; `-` may be among them.
    pub(crate) fn named_outputs(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let target = match &self.output {
            OutputTarget::File(path) => Some(path),
            OutputTarget::Stdout | OutputTarget::Directory(_) => None,
        };
        let outputs = [
            ("--duplicates", self.duplicates.as_ref()),
            ("--groups", self.groups.as_ref()),
            ("--bad", self.bad.as_ref()),
            ("--summary", self.summary.as_ref()),
            ("--save-index", self.save_index.as_ref().map(|index| &index.path)),
            (if self.annotates { "--annotate" } else { "--output" }, target),
        ];
        outputs.into_iter().filter_map(|(flag, path)| Some((flag, &**path?)))
    }

    /// The byte that ends a record.
    pub(crate) fn record_end(&self) -> u8 {
        self.format.record_end()
    }

    /// The keep rule, as the user names it.
    pub(crate) fn keep_name(&self) -> String {
        match (&self.best, self.keep) {
            (Some(best), _) => best.to_string(),
            (None, Keep::Last) => "last".to_owned(),
            (None, Keep::First | Keep::Best) => "first".to_owned(),
        }
    }

    /// Whether anybody wants to know which record was kept for a dropped one.
    pub(crate) fn reports_kept(&self) -> bool {
        let is_told = self.duplicates.is_some() || self.groups.is_some() || self.annotates;
        is_told || self.by_size.needs_sizes()
    }
}

/// A job under way.
pub(crate) struct Job<'a> {
    /// What the user wants.
    pub(crate) spec: &'a JobSpec,
    /// Input files in order.
    pub(crate) sources: &'a [Source],
    /// Their parts in order.
    pub(crate) chunks: &'a [Chunk],
    /// What earlier jobs have kept.
    pub(crate) references: &'a References,
    /// The filters beside the job.
    pub(crate) online: Option<&'a Online>,
    /// Workers and cells.
    pub(crate) shape: JobShape,
    /// The hash function, the same for all scopes.
    pub(crate) hasher: ItemHasher,
    /// Number of the job, in every frame's checksum.
    pub(crate) id: u64,
    /// Threads that work.
    pub(crate) threads: usize,
}

impl Job<'_> {
    /// The cells of all owners.
    pub(crate) fn cells(&self) -> CellCount {
        self.shape.cells()
    }

    /// The hash function for items of a source.
    pub(crate) fn hasher_of(&self, source: &Source) -> ScopedHasher {
        self.spec.scope.hasher(self.hasher, source, self.spec.rank)
    }

    /// All workers.
    pub(crate) fn worker_ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let workers = u16::try_from(self.shape.workers).expect("at most 1,024 workers");
        (0..workers).map(WorkerId)
    }

    /// Stored bytes of the input.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Bytes that the entries of the job may take in memory; at level `bytes` the items to be compared as much again, at
    /// another time, for freed memory is not always returned.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let beside_pairs = self.spec.memory_bytes.saturating_sub(self.spec.pairs_bytes());
        let bytes = resident_bytes(beside_pairs, self.threads);
        if self.shape.level == Level::Bytes { bytes / 2 } else { bytes }
    }

    /// Ranks the records of a source, if the best one stays.
    pub(crate) fn ranker(&self, source: &Source) -> Result<Option<Ranker>> {
        let Some(best) = &self.spec.best else { return Ok(None) };
        Ranker::new(best, source).with_context(|| source.name.clone())
    }

    /// Whether a repeat may be dropped as soon as it is seen: not where its bytes are to be compared, or it is to be
    /// told whether it is a repeat of the input or of a reference.
    pub(crate) fn drops_early(&self) -> bool {
        self.shape.level != Level::Bytes && self.references.shape().is_none()
    }
}

/// Runs a job.
///
/// # Errors
///
/// A [`UsageError`] where no input was found; any other error names file and record or path. Nothing was
/// committed then.
pub(crate) fn run(spec: &JobSpec) -> Result<Exit> {
    let clocks = (Stopwatch::start(), ProcessorTime::start());
    if !spec.plan_only {
        check_named(spec)?;
    }
    let sources = open_sources(spec)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = spec.workers.unwrap_or(1);
    let references = References::open(spec)?;
    let forecast = plan::forecast(spec, &sources)?;
    let shape = plan::shape(spec, workers, &forecast, references.shape());
    shape.validate().map_err(|error| UsageError(error.to_string()))?;
    if spec.pairs_bytes() > 0 {
        check_workers(spec.memory_bytes, workers, spec.level)?;
    }
    let chunks = cut(&sources, workers, threads, spec.compares_files())?;
    let hasher = ItemHasher::Xxh3 { seed: spec.seed };
    let id = job_id(spec);
    let online = if spec.plan_only { None } else { Online::connect(spec)? };
    let (online, references) = (online.as_ref(), &references);
    let (sources, chunks) = (&sources[..], &chunks[..]);
    let job = Job { spec, sources, chunks, references, online, shape, hasher, id, threads };
    if spec.plan_only {
        Sink::stdout()?.write(plan::explain(&job, &forecast).as_bytes())?;
        return Ok(Exit::Done);
    }
    check_against_inputs(spec, sources)?;
    try_objects(spec, sources)?;
    remove_leftovers_beside(spec, sources);
    execute(&job, Outputs::open(spec)?, clocks)
}

/// Finds the inputs, and whether they can be read as they are to be.
pub(crate) fn open_sources(spec: &JobSpec) -> Result<Vec<Source>> {
    open_sources_but(spec, &BTreeSet::new())
}

/// The same, without these files: [`identity`] tells which they are.
///
/// [`identity`]: super::inputs::identity
pub(crate) fn open_sources_but(
    spec: &JobSpec,
    left_out: &BTreeSet<PathBuf>,
) -> Result<Vec<Source>> {
    // A file that is one record has no header.
    let format = if spec.compares_files() { Format::Text.into() } else { spec.format };
    let mut sources = resolve(&spec.search(format))?;
    sources.retain(|source| source.identity.as_ref().is_none_or(|file| !left_out.contains(file)));
    read_headers(&mut sources)?;
    read_footers(spec, &mut sources)?;
    for source in &sources {
        source.check(&spec.granularity).map_err(|error| match error {
            ExtractorError::BadKeyPath { key, error } => {
                UsageError(format!("{}: --key {key}: {error}", source.name))
            }
            error => UsageError(format!("{}: {error}", source.name)),
        })?;
        if let Some(best) = &spec.best {
            Ranker::new(best, source)
                .map_err(|error| UsageError(format!("{}: --keep {best}: {error}", source.name)))?;
        }
    }
    check_headers(spec, &sources)?;
    by_size::check_counts(spec, &sources)?;
    check_in_place(spec, &sources)?;
    Ok(sources)
}

/// Number of the job: from its seed and input names, so that a repeated job repeats its frames.
fn job_id(spec: &JobSpec) -> u64 {
    let names = spec.inputs.join("\n");
    ItemHasher::Xxh3 { seed: spec.seed }.hash(names.as_bytes()).lo()
}

fn execute(
    job: &Job<'_>,
    named: Outputs,
    (total, cpu): (Stopwatch, ProcessorTime),
) -> Result<Exit> {
    let spec = job.spec;
    let mut watch = total;
    let input_bytes = job.input_bytes();
    let scratch = Arc::new(ScratchFile::new(&spec.scratch));
    let bar = |phase, length, unit| Bar::new(phase, length, unit, spec.quiet);
    let mut phases = vec![("open", watch.lap())];

    let store = RunStore::new(job.resident_bytes(), Arc::clone(&scratch));
    let dropped = spec.reports_kept().then(|| DropRows::new(job, &scratch));
    let bar_read = bar("read", input_bytes, Unit::Bytes);
    let local = local_pass::run(job, &store, dropped.as_ref(), &bar_read)?;
    drop(bar_read);
    let items: u64 = local.facts.iter().map(|facts| facts.items).sum();
    let records: u64 = local.facts.iter().map(|facts| facts.records).sum();
    phases.push(("local", watch.lap()));

    let Outputs { kept, duplicates, groups, bad: bad_list, index, summary: summary_sink } = named;
    let decided = settle(job, store, &local, dropped.as_ref(), &scratch, index, |phase| {
        phases.push((phase, watch.lap()));
    })?;
    let (kept, annotations) = if spec.annotates { (None, kept) } else { (kept, None) };
    let mut written = Written::default();
    let mut drops = Drops::new(job, &local.facts, dropped.as_ref(), &scratch, duplicates);
    if !spec.annotates {
        let bar = bar("write", input_bytes, Unit::BytesWritten);
        written = by_size::write(job, kept, &local.facts, &mut drops, &scratch, &bar)?;
    }
    let reported = reports::write(ReportOutputs { groups, annotations }, drops)?;
    written.complete.extend(reported.complete.into_iter().chain(decided.index));
    written.was_closed |= reported.was_closed;
    let mut chunk_facts = local.facts;
    let bad = take_bad(job, &mut chunk_facts);
    written.complete.extend(write_bad(spec, bad_list, &bad.records)?);
    phases.push(("output", watch.lap()));

    let report = &decided.exchange.report;
    let facts = Facts {
        job,
        items,
        records,
        exempt: bad.exempt,
        left_out: bad.left_out,
        dropped: DroppedItems::of_one_process(bad.early_drops, report, &decided.asked),
        exchange: &decided.exchange,
        asked: &decided.asked,
        bad: &bad.records,
        groups: reported.groups,
        written: written.records,
        early_drops: bad.early_drops,
        phases: &phases,
        wall: total.elapsed(),
        cpu_s: cpu.seconds(),
        local_times: local.times,
        output_times: written.times,
        scratch_bytes: scratch.bytes(),
    };
    let summary = Summary::new(&facts);
    if let Some(named) = summary_sink {
        // Renamed last: where it stands, the job is done.
        let mut sink = named.sink()?;
        sink.write(summary.json()?.as_bytes())?;
        written.complete.push(sink.complete()?);
    }
    job.references.check_not_replaced()?;
    commit(written.complete)?;
    job.online.map_or(Ok(()), |online| online.add(job, &chunk_facts, &|| Ok(())))?;
    // Like `sort | head`: whoever has heard enough is not told more.
    if !spec.quiet && !written.was_closed {
        say(summary.table());
    }
    Ok(if bad.records.total() > 0 { Exit::BadSkipped } else { Exit::Done })
}

/// What has become of all items.
struct Decided {
    exchange: Outcome,
    asked: Vec<Asked>,
    index: Option<Complete>,
}

/// Decides of all items, and writes the index of those that stay; `done` hears of each phase's end.
fn settle(
    job: &Job<'_>,
    store: RunStore,
    local: &LocalPass,
    dropped: Option<&DropRows>,
    scratch: &Arc<ScratchFile>,
    index: Option<Named>,
    mut done: impl FnMut(&'static str),
) -> Result<Decided> {
    let (exchange, runs) = decide(job, store, local, dropped, scratch, &mut done)?;
    let mut asked = Vec::new();
    if let Some(online) = job.online {
        asked = online.drop_known(job, &local.facts, dropped)?;
        done("ask");
    }
    let save = job.spec.save_index.as_ref();
    let index = match (runs, save, index) {
        (Some(runs), Some(save), Some(named)) => {
            let kept = KeptOfJob { job, runs: &runs, facts: &local.facts };
            Some(save_index::write(job, &kept, save.bits, scratch, named.sink()?)?)
        }
        _ => None,
    };
    Ok(Decided { exchange, asked, index })
}

/// Exchanges all entries, and at level `bytes` all items in doubt; `done` hears of each phase's end. Also all entries,
/// if an index is to be made of those that stay.
fn decide(
    job: &Job<'_>,
    store: RunStore,
    local: &LocalPass,
    dropped: Option<&DropRows>,
    scratch: &Arc<ScratchFile>,
    done: &mut impl FnMut(&'static str),
) -> Result<(Outcome, Option<HashRuns>)> {
    let runs = store.finish(job.shape.workers, job.cells(), job.shape.ranks_entries());
    let suspects = (job.shape.level == Level::Bytes).then(|| Suspects::new(&local.facts));
    let suspect = |suspect| {
        if let Some(suspects) = &suspects {
            suspects.add(suspect);
        }
    };
    let decisions = Decisions { facts: &local.facts, dropped, suspect: &suspect };
    let bar = Bar::new("exchange", job.cells().get().into(), Unit::Cells, job.spec.quiet);
    let mut exchange = exchange::run(job, &runs, &decisions, &bar)?;
    drop(bar);
    let runs = job.spec.save_index.is_some().then_some(runs);
    done("exchange");
    if let Some(suspects) = &suspects {
        let bar = Bar::new("compare", job.input_bytes(), Unit::Bytes, job.spec.quiet);
        compare::run(job, suspects, &mut exchange, &decisions, scratch, &bar)?;
        done("compare");
    }
    Ok((exchange.outcome, runs))
}

/// What is left of the chunks' facts at the end.
#[derive(Default)]
struct TakenFacts {
    records: BadRecords,
    early_drops: u64,
    exempt: u64,
    left_out: u64,
}

fn take_bad(job: &Job<'_>, facts: &mut [ChunkFacts]) -> TakenFacts {
    let before = records_before(job.chunks, facts);
    let mut taken = TakenFacts::default();
    for ((chunk, facts), before) in job.chunks.iter().zip(facts).zip(before) {
        taken.early_drops += facts.early_drops;
        taken.exempt += facts.exempt;
        taken.left_out += facts.left_out;
        for bad in std::mem::take(&mut facts.bad) {
            taken.records.add(bad, &job.sources[chunk.source], before);
        }
    }
    taken
}
