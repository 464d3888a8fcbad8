//! The index of what a job has kept, for later jobs to compare with.
//!
//! Cells are ranges of the hash space in order, so the kept hashes of one cell after another are all of them in order.
//! Blocks wait on scratch disk until header and directory, which stand before them, are known.

use super::drops::SharedBits;
use super::hash_runs::HashRuns;
use super::job::Job;
use super::local_pass::ChunkFacts;
use super::outputs::Named;
use super::references::spec_digest;
use super::sink::Complete;
use super::spill::ScratchFile;
use super::turns::{Turns, lock, run_tasks};
use anyhow::Result;
use std::sync::Mutex;
use umbel_engine::dedup::{IndexBits, IndexSpec, IndexWriter};
use umbel_filter::ItemHash;

/// Bytes of blocks that are worth a write.
const WRITE_BYTES: usize = 1 << 20;

/// An index in the making.
struct Blocks<'a> {
    writer: IndexWriter,
    scratch: &'a ScratchFile,
    buffer: Vec<u8>,
    /// Where written blocks are in the scratch file, in order: offset and length.
    pieces: Vec<(u64, usize)>,
}

impl Blocks<'_> {
    fn add(&mut self, hashes: &[ItemHash]) -> Result<()> {
        for hash in hashes {
            self.writer.push(*hash, &mut self.buffer)?;
        }
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        self.pieces.push((self.scratch.append(&self.buffer)?, self.buffer.len()));
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self, named: Named) -> Result<Complete> {
        let head = self.writer.finish(&mut self.buffer);
        let mut sink = named.sink()?;
        sink.write(&head)?;
        let mut bytes = Vec::new();
        for (offset, length) in self.pieces {
            bytes.resize(length, 0);
            self.scratch.read(offset, &mut bytes)?;
            sink.write(&bytes)?;
        }
        sink.write(&self.buffer)?;
        sink.complete()
    }
}

/// Writes the index of all places that were not dropped.
pub(crate) fn write(
    job: &Job<'_>,
    runs: &HashRuns,
    facts: &[ChunkFacts],
    bits: IndexBits,
    scratch: &ScratchFile,
    named: Named,
) -> Result<Complete> {
    let kept = |facts: &ChunkFacts| facts.places - SharedBits::count(&facts.dropped);
    let expected = facts.iter().map(kept).sum();
    let spec = IndexSpec { bits, seed: job.spec.seed, digest: spec_digest(job.spec) };
    let writer = IndexWriter::new(spec, expected);
    let blocks = Mutex::new(Blocks { writer, scratch, buffer: Vec::new(), pieces: Vec::new() });
    let turns = Turns::new();
    let work = |hashes: &mut Vec<ItemHash>, cell: usize| {
        let outcome = gather(job, runs, facts, cell, hashes);
        if outcome.is_ok() && !turns.wait(cell) {
            return Ok(()); // Another task has failed, and says why.
        }
        let outcome = outcome.and_then(|()| lock(&blocks).add(hashes));
        if outcome.is_ok() {
            turns.pass();
        } else {
            turns.stop();
        }
        outcome
    };
    run_tasks(job.threads, job.cells().get() as usize, || Ok(Vec::new()), work, |_| Ok(()))?;
    blocks.into_inner().expect("threads are done").finish(named)
}

/// The kept hashes of a cell, rising.
fn gather(
    job: &Job<'_>,
    runs: &HashRuns,
    facts: &[ChunkFacts],
    cell: usize,
    hashes: &mut Vec<ItemHash>,
) -> Result<()> {
    hashes.clear();
    for worker in job.worker_ids() {
        let cell = u32::try_from(cell).expect("at most 2^20 cells");
        let entries = runs.cell(worker.0, cell)?.entries.into_iter();
        let kept = entries
            .filter(|entry| !facts[entry.place.chunk() as usize].dropped.get(entry.place.item()));
        hashes.extend(kept.map(|entry| entry.hash));
    }
    hashes.sort_unstable();
    Ok(())
}
