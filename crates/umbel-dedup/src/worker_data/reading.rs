//! The first reading of a worker's input. Chunks become durable one after the other, so that a restarted process does not
//! read them again.
//!
//! A thread gathers the runs of many chunks, writes them as one segment, and then journals the chunks. If the
//! runs of a chunk exceed a segment, they become segments of their own, which are valid once the chunk is
//! journaled.

use super::super::chunk_facts::{ChunkFacts, FactTotals};
use super::super::context::Job;
use super::super::drop_rows::DropRow;
use super::super::local_pass::{ChunkSink, read_chunks};
use super::super::observer::Unit;
use super::super::progress::Bar;
use super::super::run_builder::{RUN_ENTRIES_MAX, Run, entry_bytes};
use super::super::turns::lock;
use super::bench::{Bench, Restored};
use super::catalogue;
use super::folder::Blob;
use super::journal_records::{
    JournalRecord, JournaledBadRecord, JournaledChunk, JournaledReading, ReadChunks,
};
use super::report::push_pair;
use crate::clock::Stopwatch;
use crate::error::{Result, bail};
use crate::segments::{GatheredRuns, Segment, SegmentLayout};
use std::sync::Mutex;
use umbel_dedup_engine::job::{Counts, ReadOrder};
use umbel_dedup_engine::{Exactness, JobShape};

/// Stored bytes of input after which a thread makes what it has read durable: reading so much again takes
/// about a second, so the disk is synced about once a second.
const SEAL_INPUT_BYTES: u64 = 64 << 20;

/// A small input is made durable in at least this many steps, so that a crash costs only a part of it.
const SEALS_MIN: u64 = 16;

/// Bytes of pairs (dropped, kept) of one chunk that are buffered in memory.
const PAIRS_BYTES_MAX: usize = 1 << 20;

/// Bits of dropped records may take the memory divided by this.
const BITS_MEMORY_SHARE: u64 = 2;

/// Reads all chunks that were not read before.
pub(super) fn read(bench: &Bench, order: ReadOrder) -> Result<Counts> {
    let watch = Stopwatch::start();
    let reading = JournaledReading {
        workers: order.shape.workers,
        cells_per_owner: order.shape.cells_per_owner,
        chunk_base: order.chunk_base,
    };
    let earlier = begin(bench, reading)?;
    if lock(&bench.read).is_some() {
        return counts(bench);
    }
    let Restored { facts, segments, pairs, unread } = bench.restore_chunks(earlier)?;
    let todo: Vec<usize> = (0..unread.len()).filter(|&chunk| unread[chunk]).collect();
    let job = bench.job(reading);
    let bytes: u64 = bench.chunks.iter().map(|chunk| chunk.bytes).sum();
    let shared = Shared {
        bench,
        job: &job,
        sealed: Mutex::new((segments, pairs)),
        segment_bytes: segment_bytes(bench, &job.shape),
        seal_bytes: (bytes / SEALS_MIN).min(SEAL_INPUT_BYTES),
    };
    let bar = Bar::new(&*bench.observer, "read", bytes, Unit::Bytes);
    bar.add(bytes - todo.iter().map(|&chunk| bench.chunks[chunk].bytes).sum::<u64>())?;
    let pass = read_chunks(&job, &todo, facts, || Gatherer::new(&shared), &bar)?;
    check_memory(bench, &pass.facts)?;
    let (segments, pairs) = std::mem::take(&mut *lock(&shared.sealed));
    bench.set_read(reading, pass.facts, segments, pairs)?;
    let mut times = lock(&bench.times);
    (times.local, times.local_threads) = (watch.elapsed(), pass.times);
    times.read_at = bench.clocks.0.elapsed();
    drop(times);
    counts(bench)
}

/// Journals the order to read, or checks that it is the same as before, and returns the chunks that were read.
fn begin(bench: &Bench, reading: JournaledReading) -> Result<ReadChunks> {
    let mut journal_state = lock(&bench.journal_state);
    if std::mem::replace(&mut journal_state.reads, true) && lock(&bench.read).is_none() {
        bail!("an earlier reading has failed: start this worker again");
    }
    match journal_state.reading {
        None => {
            bench.append_record(&JournalRecord::Reading(reading))?;
            journal_state.reading = Some(reading);
        }
        Some(before) if before == reading => {}
        Some(before) => bail!("told to read by {reading:?}, but has read by {before:?}"),
    }
    Ok(journal_state.take_read_chunks())
}

/// Bytes of runs that a thread gathers for a segment: as many as the memory allows, at least those of one run.
fn segment_bytes(bench: &Bench, shape: &JobShape) -> usize {
    let bytes = bench.spec.memory_bytes / 16 / bench.threads as u64;
    usize::try_from(bytes)
        .unwrap_or(usize::MAX)
        .clamp(RUN_ENTRIES_MAX * entry_bytes(shape.ranks_entries()), 256 << 20)
}

fn check_memory(bench: &Bench, facts: &[ChunkFacts]) -> Result<()> {
    let records: u64 = facts.iter().map(|facts| facts.id_count).sum();
    // At exactness `bytes` there are also the bits of suspects and of shared suspects.
    let bits = if bench.spec.exactness == Exactness::Bytes { 3 } else { 1 };
    // If records have parts, there are also the bits where they start, with a count per word.
    let bits = if bench.spec.has_parts() { bits + 2 } else { bits };
    let needed = records.saturating_mul(bits) / 8;
    if needed > bench.spec.memory_bytes / BITS_MEMORY_SHARE {
        let wanted = (needed * BITS_MEMORY_SHARE).div_ceil(1 << 20);
        bail!(
            "{records} records need more memory: start this worker again with --memory {wanted}M or more"
        );
    }
    Ok(())
}

/// The counts for the coordinator.
fn counts(bench: &Bench) -> Result<Counts> {
    let state = bench.read_state()?;
    let facts = &state.facts;
    let catalogue = if bench.spec.reports_kept() {
        catalogue::encode(&bench.sources, &bench.chunks, facts)
    } else {
        Vec::new()
    };
    let totals = FactTotals::of(facts);
    Ok(Counts {
        items: totals.items,
        records: totals.records,
        chunk_items_max: facts.iter().map(|facts| facts.id_count).max().unwrap_or(0),
        bad: facts.iter().map(|facts| facts.bad.count()).sum(),
        catalogue,
    })
}

/// State that all threads share.
struct Shared<'a> {
    bench: &'a Bench,
    job: &'a Job<'a>,
    /// Segments, and pairs of dropped and kept records, of journaled chunks.
    sealed: Mutex<(Vec<Segment>, Vec<Blob>)>,
    segment_bytes: usize,
    seal_bytes: u64,
}

/// State of one thread.
struct Gatherer<'a> {
    shared: &'a Shared<'a>,
    reports: bool,
    /// Runs of the chunk that is being read.
    current: GatheredRuns,
    current_segments: Vec<Segment>,
    pairs: Vec<u8>,
    pair_blobs: Vec<Blob>,
    /// Runs of chunks that were read to their ends and are not journaled yet.
    complete: GatheredRuns,
    segments: Vec<Segment>,
    chunks: Vec<JournaledChunk>,
    input_bytes: u64,
}

impl<'a> Gatherer<'a> {
    fn new(shared: &'a Shared<'a>) -> Self {
        Self {
            shared,
            reports: shared.bench.spec.reports_kept(),
            current: GatheredRuns::default(),
            current_segments: Vec::new(),
            pairs: Vec::new(),
            pair_blobs: Vec::new(),
            complete: GatheredRuns::default(),
            segments: Vec::new(),
            chunks: Vec::new(),
            input_bytes: 0,
        }
    }

    fn write_pairs(&mut self) -> Result<()> {
        if !self.pairs.is_empty() {
            self.pair_blobs.push(self.shared.bench.runs.append_blob(&self.pairs)?);
            self.pairs.clear();
        }
        Ok(())
    }

    /// Makes the complete chunks durable, and journals them.
    fn seal(&mut self) -> Result<()> {
        let Shared { bench, job, sealed, .. } = self.shared;
        let layout = SegmentLayout::of(&job.shape);
        self.segments.extend(self.complete.write(&*bench.runs, layout)?);
        let (segments, chunks) =
            (std::mem::take(&mut self.segments), std::mem::take(&mut self.chunks));
        self.input_bytes = 0;
        if chunks.is_empty() {
            return Ok(());
        }
        bench.runs.sync()?;
        let blobs = chunks
            .iter()
            .flat_map(|chunk| chunk.pairs.iter().chain(&chunk.dropped).chain(&chunk.starts));
        let ends = segments.iter().map(|segment| segment.end(layout)).chain(blobs.map(|b| b.end()));
        let runs_bytes = ends.max().unwrap_or(0);
        let record = JournalRecord::Batch { segments, chunks, runs_bytes };
        bench.append_record(&record)?;
        if let JournalRecord::Batch { segments, chunks, .. } = record {
            let mut sealed = lock(sealed);
            sealed.0.extend(segments);
            sealed.1.extend(chunks.iter().flat_map(|chunk| &chunk.pairs));
        }
        Ok(())
    }
}

impl ChunkSink for Gatherer<'_> {
    fn run(&mut self, chunk: u32, run: Run) -> Result<()> {
        self.shared.bench.check_wanted()?;
        self.current.push(chunk, run);
        let Shared { bench, job, segment_bytes, .. } = self.shared;
        if self.current.bytes() >= *segment_bytes {
            self.current_segments
                .extend(self.current.write(&*bench.runs, SegmentLayout::of(&job.shape))?);
        }
        Ok(())
    }

    fn early_drop(&mut self, row: DropRow) -> Result<()> {
        if self.reports {
            push_pair(row, self.shared.bench.spec.keep, &mut self.pairs);
            if self.pairs.len() >= PAIRS_BYTES_MAX {
                self.write_pairs()?;
            }
        }
        Ok(())
    }

    /// All, because they are journaled: a restarted process lists them, too.
    fn bad_records_max(&self) -> usize {
        usize::MAX
    }

    fn end_chunk(&mut self, chunk: u32, facts: &mut ChunkFacts) -> Result<()> {
        self.write_pairs()?;
        self.complete.append(&mut self.current);
        self.segments.append(&mut self.current_segments);
        let dropped = if facts.dropped.count() == 0 {
            None
        } else {
            let words: Vec<u8> = facts.dropped.words().flat_map(u64::to_le_bytes).collect();
            Some(self.shared.bench.runs.append_blob(&words)?)
        };
        let starts = facts.starts.as_ref().filter(|_| self.reports);
        let starts = starts.map(|starts| {
            let words: Vec<u8> = starts.bits().words().flat_map(u64::to_le_bytes).collect();
            self.shared.bench.runs.append_blob(&words)
        });
        let bad: Vec<JournaledBadRecord> =
            facts.bad.take_records().into_iter().map(JournaledBadRecord::of).collect();
        facts.bad = bad.iter().cloned().map(JournaledBadRecord::record).collect();
        let digest = facts.digest.unwrap_or_default();
        self.chunks.push(JournaledChunk {
            chunk,
            records: facts.records,
            id_count: facts.id_count,
            items: facts.items,
            exempt: facts.exempt,
            left_out: facts.left_out,
            item_bytes: facts.item_bytes,
            digest: (digest.bytes, digest.crc32c),
            early_drops: facts.early_drops,
            dropped,
            starts: starts.transpose()?,
            pairs: std::mem::take(&mut self.pair_blobs),
            bad,
        });
        self.input_bytes += self.shared.bench.chunks[chunk as usize].bytes;
        let is_due = self.complete.bytes() >= self.shared.segment_bytes
            || self.input_bytes >= self.shared.seal_bytes;
        if is_due { self.seal() } else { Ok(()) }
    }

    fn finish(mut self) -> Result<()> {
        self.seal()
    }
}
