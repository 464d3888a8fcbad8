//! Phase 8, level `bytes`: the records whose hash stands twice are read again, and their items compared.

use super::chunk_facts::ChunkFacts;
use super::content::{Found, Spot, open_content};
use super::context::Job;
use super::drops::SharedBits;
use super::exchange::{Decisions, Exchange, compare};
use super::output::check_digest;
use super::progress::Bar;
use super::spill::{GroupWriter, GroupedBytes, ScratchFile, buffer_bytes};
use super::turns::run_tasks;
use crate::error::{Context, Result};
use std::sync::Arc;
use umbel_dedup_engine::{Item, Place, Rank, Suspect, WorkerId};
use umbel_filter::ItemHash;

/// Which records are to be compared.
pub struct Suspects {
    rows: Vec<(SharedBits, SharedBits)>,
}

impl Suspects {
    /// None yet, for chunks with so many records.
    pub(crate) fn new(facts: &[ChunkFacts]) -> Self {
        let row =
            |facts: &ChunkFacts| (SharedBits::new(facts.places), SharedBits::new(facts.places));
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
    bar: &Bar<'_>,
) -> Result<()> {
    let groups = job.cells().get() as usize;
    // What writers gather and what stays in memory share what the entries have had.
    let gathered = job.resident_bytes() / 2;
    let store = GroupedBytes::new(groups, gathered, Arc::clone(scratch))
        .with_buffers(buffer_bytes(gathered, job.threads, groups));
    run_tasks(
        job.threads,
        job.chunks.len(),
        || Ok(GroupWriter::new(&store)),
        |writer, chunk| read_items(job, chunk, suspects, &decisions.facts[chunk], writer, bar),
        GroupWriter::finish,
    )?;
    compare(exchange, |cell| decode(&store.take(cell as usize)?), decisions)
}

/// Puts the suspects' items of a chunk into the groups of their cells.
pub(crate) fn read_items(
    job: &Job<'_>,
    index: usize,
    suspects: &Suspects,
    facts: &ChunkFacts,
    writer: &mut GroupWriter<'_>,
    bar: &Bar<'_>,
) -> Result<()> {
    let chunk = job.chunks[index];
    let source = &job.sources[chunk.source];
    let (suspects, shared) = &suspects.rows[index];
    bar.add(chunk.bytes)?;
    if suspects.count() == 0 {
        return Ok(());
    }
    let ranker = job.ranker(source)?;
    let (hasher, tag) = (job.hasher_of(source), job.spec.scope.tag(source, job.spec.rank));
    let mut content = open_content(source, chunk, job.spec, hasher, ranker)?;
    let places = facts.places;
    let wanted = |place| place < places && suspects.get(place);
    // A damaged end was reported by the first reading; the digest tells whether the same was seen again.
    while let Ok(true) = content.read() {
        content.hand_out(&wanted, &mut |Spot { place, .. }, found| {
            if let Found::Item(item, rank) = found {
                let shared = shared.get(place);
                let place = Place::new(u32::try_from(index).expect("24 bits"), place);
                let hash = hasher.hash(item);
                let head = Head { worker: chunk.worker, shared, hash, place, rank };
                let cell = job.cells().cell_of(hash.hi()) as usize;
                writer.append(cell, |buffer| head.encode(&tag, item, buffer))?;
            }
            Ok(true)
        })?;
    }
    check_digest(source, content.digest(), facts)
}

struct Head {
    worker: u16,
    shared: bool,
    hash: ItemHash,
    place: Place,
    rank: Rank,
}

impl Head {
    /// worker u16, shared u8, hi u64, lo u64, place u64, rank u64, length u64, and what is compared: the item, and the
    /// scope's tag with its length, so that items of different scopes are not equal.
    fn encode(&self, tag: &[u8], item: &[u8], buffer: &mut Vec<u8>) {
        let length = tag.len() + 8 + item.len();
        buffer.extend(self.worker.to_le_bytes());
        buffer.push(u8::from(self.shared));
        let Self { hash, place, rank, .. } = self;
        for word in [hash.hi(), hash.lo(), place.to_bits(), rank.0, length as u64] {
            buffer.extend(word.to_le_bytes());
        }
        buffer.extend_from_slice(item);
        buffer.extend_from_slice(tag);
        buffer.extend((tag.len() as u64).to_le_bytes());
    }
}

/// Reads a group back; it is our own scratch, so anything but what was written is an error of the disk.
pub(crate) fn decode(mut bytes: &[u8]) -> Result<Vec<(WorkerId, Item)>> {
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
    let rank = Rank(word()?);
    let length = usize::try_from(word()?).ok()?;
    let bytes = bytes.split_off(..length)?.to_vec();
    Some((WorkerId(worker), Item { hash, place, shared, rank, bytes }))
}
