//! Phase 1: reads every chunk once, hashes its items, and stores their entries in runs.
//!
//! Output: the facts of each chunk, and, through a [`ChunkSink`], runs of entries and early drops.

use super::bad::{BadCause, BadRecord, MISSING_KEY};
use super::chunk_facts::ChunkFacts;
use super::content::{ChunkContent, Found, Position, open_content, read_on};
use super::context::Job;
use super::drop_rows::{DropRow, DropRows, DropWriter};
use super::drops::ChunkBits;
use super::hash_runs::RunStore;
use super::lost_rest::check_rest;
use super::outputs::BAD_LINES_SHOWN;
use super::progress::Bar;
use super::record_starts::RecordStarts;
use super::run_builder::{EarlyDrop, Run, RunBuilder};
use super::scope::ScopedHasher;
use super::turns::{lock, run_tasks};
use crate::clock::Stopwatch;
use crate::error::{Context, DedupError, InputError, Result};
use std::sync::Mutex;
use std::time::Duration;
use umbel_dedup_engine::{JobShape, Rank, RecordId};
use umbel_filter::ItemHash;
use umbel_records::{ContentDigest, item_before, records_ending};

/// Thread time by kind of work.
#[derive(Default, Clone, Copy)]
pub(crate) struct LocalTimes {
    /// Reading and decompressing.
    pub(crate) read: Duration,
    /// Cutting records, finding keys, hashing.
    pub(crate) hash: Duration,
    /// Partitioning runs and storing them.
    pub(crate) partition: Duration,
}

/// The result of the phase.
pub(crate) struct LocalPass {
    /// The facts of each chunk.
    pub(crate) facts: Vec<ChunkFacts>,
    /// Sums over threads.
    pub(crate) times: LocalTimes,
}

/// Receives what a thread finds in chunks besides their facts.
pub(crate) trait ChunkSink {
    /// Called with a run of a chunk, which may have several.
    fn run(&mut self, chunk: u32, run: Run) -> Result<()>;

    /// Called with an early drop: a repeat that was dropped for another record of its chunk.
    fn early_drop(&mut self, row: DropRow) -> Result<()>;

    /// Most bad records of a chunk that are stored, and not only counted; at least one.
    fn bad_records_max(&self) -> usize;

    /// Called when a chunk was read to its end.
    fn end_chunk(&mut self, chunk: u32, facts: &mut ChunkFacts) -> Result<()>;

    /// Called when the thread has read its last chunk.
    fn finish(self) -> Result<()>;
}

/// The sink of a job in one process, which stores nothing durably.
struct Stored<'a> {
    job: &'a Job<'a>,
    store: &'a RunStore,
    report: Option<DropWriter<'a>>,
}

impl ChunkSink for Stored<'_> {
    fn run(&mut self, chunk: u32, run: Run) -> Result<()> {
        self.store.push(self.job.chunks[chunk as usize].worker, chunk, run)
    }

    fn early_drop(&mut self, row: DropRow) -> Result<()> {
        self.report.as_mut().map_or(Ok(()), |report| report.append(row))
    }

    fn bad_records_max(&self) -> usize {
        if self.job.spec.lists_bad() { usize::MAX } else { BAD_LINES_SHOWN }
    }

    fn end_chunk(&mut self, _: u32, _: &mut ChunkFacts) -> Result<()> {
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.report.map_or(Ok(()), DropWriter::finish)
    }
}

/// Reads all chunks.
pub(crate) fn run(
    job: &Job<'_>,
    store: &RunStore,
    dropped: Option<&DropRows>,
    bar: &Bar<'_>,
) -> Result<LocalPass> {
    let mut facts = Vec::new();
    facts.resize_with(job.chunks.len(), ChunkFacts::default);
    let todo: Vec<usize> = (0..job.chunks.len()).collect();
    let sink = || Stored { job, store, report: dropped.map(DropRows::writer) };
    let local = read_chunks(job, &todo, facts, sink, bar)?;
    check_rest(job, &local.facts)?;
    Ok(local)
}

/// Reads the chunks `todo`; `facts` has the facts of all others.
pub(crate) fn read_chunks<Sink: ChunkSink>(
    job: &Job<'_>,
    todo: &[usize],
    facts: Vec<ChunkFacts>,
    new_sink: impl Fn() -> Sink + Sync,
    bar: &Bar<'_>,
) -> Result<LocalPass> {
    let facts = Mutex::new(facts);
    let times = Mutex::new(LocalTimes::default());
    let outcome = run_tasks(
        job.threads,
        todo.len(),
        || Ok(ChunkReader::new(job, new_sink())),
        |reader, task| {
            let chunk = todo[task];
            let mut facts_of_chunk = reader.read(chunk, bar)?;
            let is_too_bad = facts_of_chunk.bad.count() > job.spec.skip_bad.unwrap_or(0);
            if !is_too_bad {
                let number = u32::try_from(chunk).expect("chunk numbers have 24 bits");
                reader.sink.end_chunk(number, &mut facts_of_chunk)?;
            }
            lock(&facts)[chunk] = facts_of_chunk;
            // The message needs the record counts of earlier chunks, which may be unfinished, so it is
            // created at the end.
            if is_too_bad { Err(InputError::TooManyBad.into()) } else { Ok(()) }
        },
        |reader| {
            let mut sum = lock(&times);
            sum.read += reader.times.read;
            sum.hash += reader.times.hash;
            sum.partition += reader.times.partition;
            drop(sum);
            reader.sink.finish()
        },
    );
    let facts = facts.into_inner().expect("threads are done");
    let bad: u64 = facts.iter().map(|facts| facts.bad.count()).sum();
    match outcome {
        Err(error) if !matches!(error.innermost(), DedupError::Input(InputError::TooManyBad)) => {
            return Err(error);
        }
        Ok(()) if bad <= job.spec.skip_bad.unwrap_or(0) => {}
        _ => return Err(first_bad(job, facts)),
    }
    let times = *lock(&times);
    Ok(LocalPass { facts, times })
}

/// The error about the first bad record in input order.
fn first_bad(job: &Job<'_>, facts: Vec<ChunkFacts>) -> DedupError {
    let mut source = 0;
    let mut records_before = 0;
    for (chunk, mut facts) in job.chunks.iter().zip(facts) {
        if chunk.source != source {
            (source, records_before) = (chunk.source, 0);
        }
        if let Some(bad) = facts.bad.take_records().into_iter().next() {
            let lacks_key = bad.cause.name() == MISSING_KEY;
            let text = bad.text(&job.sources[source], records_before);
            let text = match job.spec.skip_bad {
                None if lacks_key => format!(
                    "{text}; --missing-key=keep or --missing-key=drop says what becomes of records without one, --skip-bad \
                     leaves bad records out"
                ),
                None => format!("{text}; --skip-bad leaves bad records out"),
                Some(max) => {
                    format!(
                        "more than {max} bad records, as --skip-bad={max} allows; the first: {text}"
                    )
                }
            };
            return InputError::Bad(text).into();
        }
        records_before += facts.records;
    }
    InputError::TooManyBad.into()
}

/// Reads chunks on one thread.
struct ChunkReader<'a, Sink> {
    job: &'a Job<'a>,
    builder: RunBuilder,
    sink: Sink,
    times: LocalTimes,
}

impl<'a, Sink: ChunkSink> ChunkReader<'a, Sink> {
    fn new(job: &'a Job<'a>, sink: Sink) -> Self {
        let JobShape { keep, .. } = job.shape;
        let is_ranked = job.shape.ranks_entries();
        let builder = RunBuilder::new(job.cells(), keep, job.drops_early(), is_ranked);
        Self { job, builder, sink, times: LocalTimes::default() }
    }

    fn read(&mut self, index: usize, bar: &Bar<'_>) -> Result<ChunkFacts> {
        let job = self.job;
        let chunk = job.chunks[index];
        let source = &job.sources[chunk.source];
        let ranker = if job.shape.ranks_entries() { job.ranker(source)? } else { None };
        let hasher = job.hasher_of(source);
        let mut content = open_content(source, chunk, job.spec, hasher, ranker)?;
        let bad_records_max = self.sink.bad_records_max();
        let mut found = Findings { bad_records_max, ..Findings::default() };
        let mut stored_before = 0;
        let mut watch = Stopwatch::start();
        loop {
            match read_on(&mut *content, source)? {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    found.add_bad(content.content_offset(), BadCause::Read(error));
                    break;
                }
            }
            self.times.read += watch.lap();
            match content.lines() {
                Some(block) => self.lines(index, hasher, block, &mut found, &mut watch)?,
                None => self
                    .items(index, hasher, &mut *content, &mut found, &mut watch)
                    .with_context(|| source.name.clone())?,
            }
            self.times.hash += watch.lap();
            let stored = content.stored_bytes_read();
            bar.add(stored - stored_before)?;
            stored_before = stored;
            if found.facts.bad.count() > job.spec.skip_bad.unwrap_or(0) {
                break;
            }
        }
        self.take_run(index, &mut watch)?;
        Ok(found.finish(content.digest(), content.has_parts()))
    }

    /// The fast path: every line is an item.
    fn lines(
        &mut self,
        index: usize,
        hasher: ScopedHasher,
        (block, record_end): (&[u8], u8),
        found: &mut Findings,
        watch: &mut Stopwatch,
    ) -> Result<()> {
        let mut number = found.facts.id_count;
        for record in records_ending(block, record_end) {
            let item = item_before(record, record_end);
            found.facts.item_bytes += item.len() as u64;
            if let Some(drop) = self.builder.push(hasher.hash(item), number, Rank::default()) {
                self.drop_early(index, drop, found)?;
            }
            number += 1;
            if self.builder.is_full(number) {
                self.times.hash += watch.lap();
                self.take_run(index, watch)?;
            }
        }
        let facts = &mut found.facts;
        facts.items += number - facts.id_count;
        facts.records = number;
        facts.id_count = number;
        Ok(())
    }

    /// The general path.
    fn items(
        &mut self,
        index: usize,
        hasher: ScopedHasher,
        content: &mut dyn ChunkContent,
        found: &mut Findings,
        watch: &mut Stopwatch,
    ) -> Result<()> {
        let bad_max = self.job.spec.skip_bad.unwrap_or(0);
        let has_parts = content.has_parts();
        content.hand_out(&|_| true, &mut |Position { number, starts_record }, what| {
            match what {
                Found::Item(item, rank) => {
                    found.add_item(item.len() as u64);
                    self.entry(index, number, hasher.hash(item), rank, found)?;
                }
                Found::Hashed { hash, bytes } => {
                    found.add_item(bytes);
                    self.entry(index, number, hash, Rank::default(), found)?;
                }
                Found::Exempt => found.facts.exempt += 1,
                Found::LeftOut => {
                    found.facts.left_out += 1;
                    found.dropped.set(number);
                }
                Found::Bad { content_offset, error } => {
                    found.add_bad(content_offset, BadCause::Item(error));
                    found.dropped.set(number);
                }
            }
            if starts_record {
                found.facts.records += 1;
                if has_parts {
                    found.starts.set(number);
                }
            }
            found.facts.id_count = number + 1;
            if self.builder.is_full(number + 1) {
                self.times.hash += watch.lap();
                self.take_run(index, watch)?;
            }
            Ok(found.facts.bad.count() <= bad_max) // One more than allowed ends the job.
        })
    }

    /// Adds an item of the general path.
    fn entry(
        &mut self,
        index: usize,
        number: u64,
        hash: ItemHash,
        rank: Rank,
        found: &mut Findings,
    ) -> Result<()> {
        match self.builder.push(hash, number, rank) {
            Some(drop) => self.drop_early(index, drop, found),
            None => Ok(()),
        }
    }

    /// Marks a near repeat as dropped, and reports the record that was kept for it. The exchange decides whether that one is
    /// kept in the end.
    fn drop_early(&mut self, index: usize, drop: EarlyDrop, found: &mut Findings) -> Result<()> {
        found.facts.early_drops += 1;
        found.dropped.set(drop.dropped);
        let chunk = u32::try_from(index).expect("chunk numbers have 24 bits");
        let record_id = |item| RecordId::new(chunk, item);
        let EarlyDrop { dropped, kept, rank } = drop;
        self.sink.early_drop(DropRow { record_id: record_id(dropped), kept: record_id(kept), rank })
    }

    fn take_run(&mut self, index: usize, watch: &mut Stopwatch) -> Result<()> {
        if let Some(run) = self.builder.take() {
            let chunk = u32::try_from(index).expect("chunk numbers have 24 bits");
            self.sink.run(chunk, run)?;
        }
        self.times.partition += watch.lap();
        Ok(())
    }
}

/// Facts of a chunk while it is read.
#[derive(Default)]
struct Findings {
    facts: ChunkFacts,
    dropped: ChunkBits,
    /// Bits of the numbers at which records start, if they have parts.
    starts: ChunkBits,
    /// Most bad records that are stored.
    bad_records_max: usize,
}

impl Findings {
    /// Counts an item of so many bytes.
    fn add_item(&mut self, bytes: u64) {
        self.facts.items += 1;
        self.facts.item_bytes += bytes;
    }

    /// Adds the next record as a bad one.
    fn add_bad(&mut self, content_offset: u64, cause: BadCause) {
        let bad = BadRecord { record: self.facts.records, content_offset, cause };
        self.facts.bad.add(bad, self.bad_records_max);
    }

    fn finish(self, digest: ContentDigest, has_parts: bool) -> ChunkFacts {
        let Self { mut facts, dropped, starts, .. } = self;
        facts.starts = has_parts.then(|| RecordStarts::new(starts.finish(facts.id_count)));
        facts.digest = Some(digest);
        facts.dropped = dropped.finish(facts.id_count);
        facts
    }
}
