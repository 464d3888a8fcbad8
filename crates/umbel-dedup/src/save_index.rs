//! Writes the index of a job's kept items, for later jobs to compare with.
//!
//! Cells are consecutive ranges of the hash space, so sorting the kept hashes cell by cell sorts all of them.
//! Blocks are stored on scratch disk until the header and the directory, which come first in the file, are
//! complete.

use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::references::spec_digest;
use super::segments::SegmentFile;
use super::sink::{Complete, Sink};
use super::spill::ScratchFile;
use super::turns::{Turns, lock, run_tasks};
use crate::error::{Context, Result};
use std::sync::Mutex;
use umbel_dedup_engine::{Entry, IndexBits, IndexSpec, IndexWriter};
use umbel_filter::{HashRange, ItemHash};

/// Bytes of blocks that are buffered before a write.
const WRITE_BYTES: usize = 1 << 20;

/// An index that is being built.
pub(super) struct Blocks<'a> {
    writer: IndexWriter,
    scratch: &'a ScratchFile,
    buffer: Vec<u8>,
    /// Offset and length in the scratch file of written blocks, in order.
    pieces: Vec<(u64, usize)>,
}

impl<'a> Blocks<'a> {
    /// For about this many hashes.
    pub(super) fn new(spec: IndexSpec, expected_count: u64, scratch: &'a ScratchFile) -> Self {
        let writer = IndexWriter::new(spec, expected_count);
        Self { writer, scratch, buffer: Vec::new(), pieces: Vec::new() }
    }

    /// How many hashes it has.
    pub(super) fn count(&self) -> u64 {
        self.writer.count()
    }

    /// Adds hashes in ascending order, all greater than earlier ones.
    pub(super) fn add(&mut self, hashes: &[ItemHash]) -> Result<()> {
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

    /// Writes the index.
    pub(super) fn finish(mut self, mut sink: Sink) -> Result<Complete> {
        let head = self.writer.finish(&mut self.buffer);
        sink.write(&head)?;
        let mut bytes = Vec::new();
        for (offset, length) in self.pieces {
            bytes.resize(length, 0);
            self.scratch.read(offset, &mut bytes)?;
            sink.write(&bytes)?;
        }
        sink.write(&self.buffer)?;
        // Part of an index is of no use, and a job whose index is lost has not done what it was told.
        sink.complete()?.read_to_its_end().context("the index was not written to its end")
    }
}

/// Reads the entries of a cell, in any order.
pub(crate) type CellEntriesOf<'a> = dyn Fn(u32) -> Result<Vec<Entry>> + Sync + 'a;

/// Writes the index of kept items: of a job, or of one of its workers, whose chunks begin with `first_chunk`.
pub(crate) fn write(
    job: &Job<'_>,
    (facts, first_chunk): (&[ChunkFacts], u32),
    entries: &CellEntriesOf<'_>,
    bits: Option<IndexBits>,
    scratch: &ScratchFile,
    sink: Sink,
) -> Result<Complete> {
    let updated = job.references.updated().map(|index| index.header().spec.bits);
    let bits = bits.or(updated).unwrap_or(IndexBits::Bits128);
    let spec = IndexSpec { bits, seed: job.spec.seed, digest: spec_digest(job.spec) };
    let updated = job.references.updated();
    let known = updated.map_or(0, |index| index.header().count);
    let kept: u64 = facts.iter().map(|facts| facts.id_count - facts.dropped.count()).sum();
    let blocks = Mutex::new(Blocks::new(spec, kept + known, scratch));
    let turns = Turns::new();
    let work = |hashes: &mut Vec<ItemHash>, cell: usize| {
        hashes.clear();
        let number = u32::try_from(cell).expect("at most 2^20 cells");
        let range = HashRange::cell(number, job.cells());
        let known = updated.map_or(Ok(()), |index| index.append_in(range, hashes));
        let outcome = known.and_then(|()| entries(number)).and_then(|entries| {
            for Entry { hash, record_id } in entries {
                let chunk = record_id.chunk().checked_sub(first_chunk);
                let facts = chunk.and_then(|chunk| facts.get(chunk as usize));
                let facts = facts.filter(|facts| record_id.item() < facts.id_count);
                if !facts.context("scratch is damaged")?.dropped.get(record_id.item()) {
                    hashes.push(hash);
                }
            }
            Ok(())
        });
        hashes.sort_unstable();
        if outcome.is_ok() && !turns.wait(cell) {
            return Ok(()); // Another task has failed and returns the error.
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
    blocks.into_inner().expect("threads are done").finish(sink)
}
