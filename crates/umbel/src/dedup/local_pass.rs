//! Phase 1: every chunk is read once, its items are hashed, and their entries stored run by run.

use super::bad::{BadCause, BadRecord};
use super::chunks::Chunk;
use super::drops::{ChunkBits, SharedBits};
use super::hash_runs::RunStore;
use super::inputs::Source;
use super::job::Job;
use super::progress::Bar;
use super::report::DropWriter;
use super::run_builder::{EarlyDrop, RunBuilder};
use super::spill::{GroupWriter, GroupedBytes};
use super::turns::{lock, run_tasks};
use crate::clock::Stopwatch;
use anyhow::{Context, Result, anyhow};
use std::sync::Mutex;
use std::time::Duration;
use umbel_engine::dedup::Place;
use umbel_records::{ContentDigest, Granularity, ItemExtractor, RecordReader, line_item, records};

/// What reading a chunk has shown.
#[derive(Default)]
pub(crate) struct ChunkFacts {
    /// Records in it, bad ones included.
    pub(crate) records: u64,
    /// Bytes of its items.
    pub(crate) item_bytes: u64,
    /// What the second reading must see again.
    pub(crate) digest: Option<ContentDigest>,
    /// Records that do not stay: bad ones, and repeats that were dropped at once.
    pub(crate) dropped: SharedBits,
    /// Repeats that were dropped at once.
    pub(crate) early_drops: u64,
    /// Bad records.
    pub(crate) bad: Vec<BadRecord>,
}

impl ChunkFacts {
    /// Items that entered the job.
    pub(crate) fn items(&self) -> u64 {
        let bad_items = self.bad.iter().filter(|bad| matches!(bad.cause, BadCause::Item(_)));
        self.records - bad_items.count() as u64
    }
}

/// Thread time by kind of work.
#[derive(Default, Clone, Copy)]
pub(crate) struct LocalTimes {
    /// Reading and unpacking.
    pub(crate) read: Duration,
    /// Cutting records, finding keys, hashing.
    pub(crate) hash: Duration,
    /// Partitioning runs and storing them.
    pub(crate) partition: Duration,
}

/// What the phase leaves.
pub(crate) struct LocalPass {
    /// One row a chunk.
    pub(crate) facts: Vec<ChunkFacts>,
    /// Sums over threads.
    pub(crate) times: LocalTimes,
}

/// Reads all chunks.
pub(crate) fn run(
    job: &Job<'_>,
    store: &RunStore,
    dropped: Option<&GroupedBytes>,
    bar: &Bar,
) -> Result<LocalPass> {
    let facts: Mutex<Vec<ChunkFacts>> = Mutex::default();
    lock(&facts).resize_with(job.chunks.len(), ChunkFacts::default);
    let times = Mutex::new(LocalTimes::default());
    let outcome = run_tasks(
        job.threads,
        job.chunks.len(),
        || Ok(ChunkReader::new(job, store, dropped)),
        |reader, chunk| {
            let facts_of_chunk = reader.read(chunk, bar)?;
            let is_too_bad = facts_of_chunk.bad.len() as u64 > job.spec.skip_bad.unwrap_or(0);
            lock(&facts)[chunk] = facts_of_chunk;
            // The message needs record numbers of earlier chunks, which are all in work: it is made at the end.
            if is_too_bad { Err(TooManyBad.into()) } else { Ok(()) }
        },
        |reader| {
            let mut sum = lock(&times);
            sum.read += reader.times.read;
            sum.hash += reader.times.hash;
            sum.partition += reader.times.partition;
            reader.report.map_or(Ok(()), DropWriter::finish)
        },
    );
    let facts = facts.into_inner().expect("threads are done");
    let bad: usize = facts.iter().map(|facts| facts.bad.len()).sum();
    match outcome {
        Err(error) if !error.is::<TooManyBad>() => return Err(error),
        Ok(()) if bad as u64 <= job.spec.skip_bad.unwrap_or(0) => {}
        _ => return Err(first_bad(job, facts)),
    }
    let times = *lock(&times);
    Ok(LocalPass { facts, times })
}

/// More bad records than may be left out; which, the facts of the chunks tell.
#[derive(Debug, thiserror::Error)]
#[error("too many bad records")]
struct TooManyBad;

/// The error about the first bad record in input order.
fn first_bad(job: &Job<'_>, facts: Vec<ChunkFacts>) -> anyhow::Error {
    let mut source = 0;
    let mut records_before = 0;
    for (chunk, facts) in job.chunks.iter().zip(facts) {
        if chunk.source != source {
            (source, records_before) = (chunk.source, 0);
        }
        if let Some(bad) = facts.bad.into_iter().next() {
            let text = bad.text(&job.sources[source], records_before);
            return match job.spec.skip_bad {
                None => anyhow!("{text}; --skip-bad leaves bad records out"),
                Some(max) => anyhow!(
                    "more than {max} bad records, as --skip-bad={max} allows; the first: {text}"
                ),
            };
        }
        records_before += facts.records;
    }
    TooManyBad.into()
}

/// Reads chunks on one thread.
struct ChunkReader<'a> {
    job: &'a Job<'a>,
    store: &'a RunStore,
    builder: RunBuilder,
    report: Option<DropWriter<'a>>,
    times: LocalTimes,
}

impl<'a> ChunkReader<'a> {
    fn new(job: &'a Job<'a>, store: &'a RunStore, dropped: Option<&'a GroupedBytes>) -> Self {
        let builder = RunBuilder::new(job.cells(), job.spec.keep, job.drops_early());
        let writer = |store| DropWriter::new(GroupWriter::new(store), job.chunks.len());
        Self { job, store, builder, report: dropped.map(writer), times: LocalTimes::default() }
    }

    fn read(&mut self, index: usize, bar: &Bar) -> Result<ChunkFacts> {
        let job = self.job;
        let chunk = job.chunks[index];
        let source = &job.sources[chunk.source];
        let mut reader = open(source, chunk)?;
        let mut extractor = ItemExtractor::new(source.format, job.spec.granularity.clone())
            .with_context(|| source.name.clone())?;
        let lines = job.spec.granularity == Granularity::Line;
        let mut facts = ChunkFacts::default();
        let mut dropped = ChunkBits::default();
        let mut stored_before = 0;
        let mut watch = Stopwatch::start();
        loop {
            let bad_before = facts.bad.len();
            let block = match reader.next_block() {
                Ok(Some(block)) => block,
                Ok(None) => break,
                Err(error) => {
                    let (record, content_offset) = (facts.records, reader.block_offset());
                    facts.bad.push(BadRecord {
                        record,
                        content_offset,
                        cause: BadCause::Read(error),
                    });
                    break;
                }
            };
            self.times.read += watch.lap();
            if lines {
                self.lines(index, block, &mut facts, &mut dropped, &mut watch)?;
            } else {
                self.items(index, block, &mut extractor, &mut facts, &mut dropped, &mut watch)?;
                let block_offset = reader.block_offset();
                facts.bad[bad_before..]
                    .iter_mut()
                    .for_each(|bad| bad.content_offset += block_offset);
            }
            self.times.hash += watch.lap();
            let stored = reader.stored_bytes_read();
            bar.add(stored - stored_before);
            stored_before = stored;
            if facts.bad.len() as u64 > job.spec.skip_bad.unwrap_or(0) {
                break;
            }
        }
        self.take_run(index, &mut watch)?;
        facts.digest = Some(reader.digest());
        facts.dropped = dropped.finish(facts.records);
        Ok(facts)
    }

    /// The fast path: the item is the line.
    fn lines(
        &mut self,
        index: usize,
        block: &[u8],
        facts: &mut ChunkFacts,
        dropped: &mut ChunkBits,
        watch: &mut Stopwatch,
    ) -> Result<()> {
        let hasher = self.job.hasher;
        for record in records(block) {
            let item = line_item(record);
            facts.item_bytes += item.len() as u64;
            if let Some(drop) = self.builder.push(hasher.hash(item), facts.records) {
                self.drop_early(index, drop, facts, dropped)?;
            }
            facts.records += 1;
            if self.builder.is_full(facts.records) {
                self.times.hash += watch.lap();
                self.take_run(index, watch)?;
            }
        }
        Ok(())
    }

    /// The general path: the item is found in the record, or the record is bad.
    fn items(
        &mut self,
        index: usize,
        block: &[u8],
        extractor: &mut ItemExtractor,
        facts: &mut ChunkFacts,
        dropped: &mut ChunkBits,
        watch: &mut Stopwatch,
    ) -> Result<()> {
        let hasher = self.job.hasher;
        let mut content_offset = 0; // in the block; the caller knows where that starts
        for record in records(block) {
            match extractor.item(record) {
                Ok(item) => {
                    facts.item_bytes += item.len() as u64;
                    if let Some(drop) = self.builder.push(hasher.hash(item), facts.records) {
                        self.drop_early(index, drop, facts, dropped)?;
                    }
                }
                Err(error) => {
                    let cause = BadCause::Item(error);
                    facts.bad.push(BadRecord { record: facts.records, content_offset, cause });
                    dropped.set(facts.records);
                    if facts.bad.len() as u64 > self.job.spec.skip_bad.unwrap_or(0) {
                        return Ok(()); // Enough to end the job.
                    }
                }
            }
            facts.records += 1;
            content_offset += record.len() as u64;
            if self.builder.is_full(facts.records) {
                self.times.hash += watch.lap();
                self.take_run(index, watch)?;
            }
        }
        Ok(())
    }

    /// Marks a repeat, and reports it against the record that stands for it; whether that one stays, the exchange
    /// decides.
    fn drop_early(
        &mut self,
        index: usize,
        drop: EarlyDrop,
        facts: &mut ChunkFacts,
        dropped: &mut ChunkBits,
    ) -> Result<()> {
        facts.early_drops += 1;
        dropped.set(drop.dropped);
        if let Some(report) = &mut self.report {
            let chunk = u32::try_from(index).expect("chunk numbers have 24 bits");
            report.append(Place::new(chunk, drop.dropped), Place::new(chunk, drop.kept))?;
        }
        Ok(())
    }

    fn take_run(&mut self, index: usize, watch: &mut Stopwatch) -> Result<()> {
        if let Some(run) = self.builder.take() {
            let chunk = u32::try_from(index).expect("chunk numbers have 24 bits");
            self.store.push(self.job.chunks[index].worker, chunk, run)?;
        }
        self.times.partition += watch.lap();
        Ok(())
    }
}

/// A reader of a chunk.
pub(crate) fn open(source: &Source, chunk: Chunk) -> Result<RecordReader> {
    let file = source.open()?;
    RecordReader::open(file, source.compression, chunk.span, umbel_records::ReadLimits::default())
        .with_context(|| source.name.clone())
}
