//! Phase 8, level `bytes`: the records whose hash stands twice are read again, and their items compared.

use super::drops::SharedBits;
use super::exchange::{Decisions, Exchange, compare};
use super::job::Job;
use super::local_pass::{ChunkFacts, open};
use super::output::check_digest;
use super::progress::Bar;
use super::spill::{GroupWriter, GroupedBytes, ScratchFile};
use super::turns::run_tasks;
use anyhow::{Context, Result};
use std::sync::Arc;
use umbel_engine::dedup::{Item, Place, Suspect, WorkerId};
use umbel_filter::ItemHash;
use umbel_records::{ItemExtractor, records};

/// Which records are to be compared.
pub(crate) struct Suspects {
    rows: Vec<(SharedBits, SharedBits)>,
}

impl Suspects {
    /// None yet, for chunks with so many records.
    pub(crate) fn new(facts: &[ChunkFacts]) -> Self {
        let row =
            |facts: &ChunkFacts| (SharedBits::new(facts.records), SharedBits::new(facts.records));
        Self { rows: facts.iter().map(row).collect() }
    }

    /// Adds one.
    pub(crate) fn add(&self, suspect: Suspect) {
        let (suspects, shared) = &self.rows[suspect.place.chunk() as usize];
        suspects.set(suspect.place.item());
        if suspect.shared {
            shared.set(suspect.place.item());
        }
    }
}

/// Reads the suspects' items and lets the workers settle.
pub(crate) fn run(
    job: &Job<'_>,
    suspects: &Suspects,
    exchange: &mut Exchange<'_>,
    decisions: &Decisions<'_>,
    scratch: &Arc<ScratchFile>,
    bar: &Bar,
) -> Result<()> {
    let groups = job.cells().get() as usize;
    let store = GroupedBytes::new(groups, job.resident_bytes(), Arc::clone(scratch));
    run_tasks(
        job.threads,
        job.chunks.len(),
        || Ok(GroupWriter::new(&store)),
        |writer, chunk| read_items(job, chunk, &suspects.rows[chunk], decisions, writer, bar),
        GroupWriter::finish,
    )?;
    compare(exchange, |cell| decode(&store.take(cell as usize)?), decisions)
}

/// Puts the suspects' items of a chunk into the groups of their cells.
fn read_items(
    job: &Job<'_>,
    index: usize,
    (suspects, shared): &(SharedBits, SharedBits),
    decisions: &Decisions<'_>,
    writer: &mut GroupWriter<'_>,
    bar: &Bar,
) -> Result<()> {
    let chunk = job.chunks[index];
    let source = &job.sources[chunk.source];
    bar.add(chunk.bytes);
    if suspects.count() == 0 {
        return Ok(());
    }
    let mut reader = open(source, chunk)?;
    let mut extractor = ItemExtractor::new(source.format, job.spec.granularity.clone())?;
    let records_in_chunk = decisions.facts[index].records;
    let mut record_number = 0;
    // A damaged end was reported by the first reading; the digest tells whether the same was seen again.
    while let Ok(Some(block)) = reader.next_block() {
        for record in records(block) {
            if record_number < records_in_chunk && suspects.get(record_number) {
                let item = extractor.item(record).with_context(|| source.name.clone())?;
                let hash = job.hasher.hash(item);
                let place = Place::new(u32::try_from(index).expect("24 bits"), record_number);
                let head =
                    Head { worker: chunk.worker, shared: shared.get(record_number), hash, place };
                let cell = job.cells().cell_of(hash.hi()) as usize;
                writer.append(cell, |buffer| head.encode(item, buffer))?;
            }
            record_number += 1;
        }
    }
    check_digest(source, reader.digest(), &decisions.facts[index])
}

struct Head {
    worker: u16,
    shared: bool,
    hash: ItemHash,
    place: Place,
}

impl Head {
    /// worker u16, shared u8, hi u64, lo u64, place u64, length u64, item.
    fn encode(&self, item: &[u8], buffer: &mut Vec<u8>) {
        buffer.extend(self.worker.to_le_bytes());
        buffer.push(u8::from(self.shared));
        for word in [self.hash.hi(), self.hash.lo(), self.place.to_bits(), item.len() as u64] {
            buffer.extend(word.to_le_bytes());
        }
        buffer.extend_from_slice(item);
    }
}

/// Reads a group back; it is our own scratch, so anything but what was written is an error of the disk.
fn decode(mut bytes: &[u8]) -> Result<Vec<(WorkerId, Item)>> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let item = decode_one(&mut bytes).context("scratch file is damaged")?;
        items.push(item);
    }
    Ok(items)
}

fn decode_one(bytes: &mut &[u8]) -> Option<(WorkerId, Item)> {
    let worker = u16::from_le_bytes(*bytes.split_off(..2)?.first_chunk()?);
    let shared = *bytes.split_off_first()? == 1;
    let mut word = || Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?));
    let hash = ItemHash::new(word()?, word()?);
    let place = Place::from_bits(word()?);
    let length = usize::try_from(word()?).ok()?;
    let bytes = bytes.split_off(..length)?.to_vec();
    Some((WorkerId(worker), Item { hash, place, shared, bytes }))
}
