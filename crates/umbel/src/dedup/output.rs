//! Phase 9: every chunk is read again, and the records that stay are written in input order.

use super::inputs::Source;
use super::job::{Job, OutputTarget};
use super::local_pass::{ChunkFacts, open};
use super::outputs::Named;
use super::progress::Bar;
use super::sink::{Complete, Sink, is_closed_pipe};
use super::turns::{Turns, lock, run_tasks};
use crate::clock::Stopwatch;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use umbel_records::{ContentDigest, RecordReader, records};

/// Output of a chunk that waits for its turn in memory; what is more waits for the turn itself.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Thread time by kind of work.
#[derive(Default, Clone, Copy)]
pub(crate) struct OutputTimes {
    /// Reading again and picking what stays.
    pub(crate) pick: Duration,
    /// Writing, and waiting for the turn to write.
    pub(crate) write: Duration,
}

/// What the phase leaves.
pub(crate) struct Written {
    /// The outputs, to be committed.
    pub(crate) complete: Vec<Complete>,
    /// Sums over threads.
    pub(crate) times: OutputTimes,
    /// The reader of standard output has left before the end.
    pub(crate) was_closed: bool,
}

/// Writes the records that stay.
pub(crate) fn run(
    job: &Job<'_>,
    kept: Option<Named>,
    facts: &[ChunkFacts],
    bar: &Bar,
) -> Result<Written> {
    let times = Mutex::new(OutputTimes::default());
    let mut was_closed = false;
    let complete = match (kept, &job.spec.output) {
        (Some(named), _) => match stream(job, facts, named.sink()?, &times, bar) {
            Ok(complete) => vec![complete],
            // Nobody reads the records any more; the reports are still wanted.
            Err(error) if is_closed_pipe(&error) => {
                was_closed = true;
                Vec::new()
            }
            Err(error) => return Err(error),
        },
        (None, OutputTarget::Directory(path)) => directory(job, facts, path, &times, bar)?,
        (None, _) => Vec::new(),
    };
    let times = *lock(&times);
    Ok(Written { complete, times, was_closed })
}

/// All sources into one sink. Chunks are read by all threads and written in turn.
fn stream(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    sink: Sink,
    times: &Mutex<OutputTimes>,
    bar: &Bar,
) -> Result<Complete> {
    let turns = Turns::new();
    let sink = Mutex::new(sink);
    let work = |kept: &mut Vec<u8>, index: usize| {
        let mut has_turn = false;
        let mut outcome = copy_chunk(job, facts, index, kept, times, bar, &mut |kept| {
            has_turn = has_turn || turns.wait(index);
            if has_turn { lock(&sink).write_records(kept) } else { Ok(()) }
        });
        if outcome.is_ok() && !has_turn && !turns.wait(index) {
            return Ok(()); // Another task has failed, and says why.
        }
        if outcome.is_ok() {
            let watch = Stopwatch::start();
            outcome = lock(&sink).write_records(kept);
            lock(times).write += watch.elapsed();
        }
        kept.clear();
        if outcome.is_ok() {
            turns.pass();
        } else {
            turns.stop();
        }
        outcome
    };
    run_tasks(job.threads, job.chunks.len(), || Ok(Vec::new()), work, |_| Ok(()))?;
    sink.into_inner().expect("threads are done").complete()
}

/// Each source into a file of its own, under its relative path.
fn directory(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    root: &Path,
    times: &Mutex<OutputTimes>,
    bar: &Bar,
) -> Result<Vec<Complete>> {
    let complete: Mutex<Vec<(usize, Complete)>> = Mutex::default();
    let work = |kept: &mut Vec<u8>, index: usize| {
        let source = &job.sources[index];
        let path = root.join(&source.relative);
        let parent = path.parent().unwrap_or(root);
        std::fs::create_dir_all(parent)
            .with_context(|| format!("{}: cannot create directory", parent.display()))?;
        let mut sink = Sink::packed_file(&path, source.compression, job.spec.overwrite)?;
        // Chunks are cut source by source.
        let first = job.chunks.partition_point(|chunk| chunk.source < index);
        let next = job.chunks.partition_point(|chunk| chunk.source <= index);
        for chunk in first..next {
            let mut write = |kept: &[u8]| sink.write_records(kept);
            copy_chunk(job, facts, chunk, kept, times, bar, &mut write)?;
            write(kept)?;
            kept.clear();
        }
        lock(&complete).push((index, sink.complete()?));
        Ok(())
    };
    run_tasks(job.threads, job.sources.len(), || Ok(Vec::new()), work, |_| Ok(()))?;
    let mut complete = complete.into_inner().expect("threads are done");
    complete.sort_by_key(|(index, _)| *index);
    Ok(complete.into_iter().map(|(_, complete)| complete).collect())
}

/// Appends a chunk's kept records to `kept`, and hands that to `flush` whenever it is full.
fn copy_chunk(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    index: usize,
    kept: &mut Vec<u8>,
    times: &Mutex<OutputTimes>,
    bar: &Bar,
    flush: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let chunk = job.chunks[index];
    let source = &job.sources[chunk.source];
    let facts = &facts[index];
    let mut reader = open(source, chunk)?;
    let mut picked = Picker { facts, record: 0, bar, stored: 0 };
    let mut watch = Stopwatch::start();
    while picked.next_block(&mut reader, kept) {
        if kept.len() >= WAITING_BYTES_MAX {
            lock(times).pick += watch.lap();
            flush(kept)?;
            kept.clear();
            lock(times).write += watch.lap();
        }
    }
    lock(times).pick += watch.lap();
    check_digest(source, reader.digest(), facts)
}

/// Picks the records that stay.
struct Picker<'a> {
    facts: &'a ChunkFacts,
    record: u64,
    bar: &'a Bar,
    stored: u64,
}

impl Picker<'_> {
    /// Appends the kept records of the next block; false at the end. A damaged end was reported by the first reading;
    /// whether the second one saw the same, the digest tells.
    fn next_block(&mut self, reader: &mut RecordReader, kept: &mut Vec<u8>) -> bool {
        let Ok(Some(block)) = reader.next_block() else { return false };
        // Neighbours that stay are copied together.
        let mut start = 0;
        let mut end = 0;
        for record in records(block) {
            let stays = self.record < self.facts.records && !self.facts.dropped.get(self.record);
            self.record += 1;
            if !stays {
                kept.extend_from_slice(&block[start..end]);
                start = end + record.len();
            }
            end += record.len();
        }
        kept.extend_from_slice(&block[start..end]);
        let stored = reader.stored_bytes_read();
        self.bar.add(stored - self.stored);
        self.stored = stored;
        true
    }
}

/// Fails if the second reading of a chunk saw other bytes than the first.
pub(crate) fn check_digest(
    source: &Source,
    digest: ContentDigest,
    facts: &ChunkFacts,
) -> Result<()> {
    if facts.digest != Some(digest) {
        bail!("{}: the file was changed while it was read; run the job again", source.name);
    }
    Ok(())
}
