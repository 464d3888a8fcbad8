//! Phase 8, exactness `bytes`: records whose hash occurs more than once are read again, and their items are compared.

use super::chunk_facts::ChunkFacts;
use super::content::{Found, Position, open_content};
use super::context::Job;
use super::drops::SharedBits;
use super::exchange::{Decisions, Exchange, compare};
use super::output::check_digest;
use super::progress::Bar;
use super::spill::{GroupWriter, GroupedBytes, ScratchFile, buffer_bytes};
use super::turns::run_tasks;
use crate::error::{Context, Result};
use std::sync::Arc;
use umbel_dedup_engine::{Rank, RecordId, Suspect, SuspectItem, WorkerId};
use umbel_filter::ItemHash;

/// The records to compare.
pub(crate) struct Suspects {
    rows: Vec<(SharedBits, SharedBits)>,
}

impl Suspects {
    /// No records yet.
    pub(crate) fn new(facts: &[ChunkFacts]) -> Self {
        let row =
            |facts: &ChunkFacts| (SharedBits::new(facts.id_count), SharedBits::new(facts.id_count));
        Self { rows: facts.iter().map(row).collect() }
    }

    /// Adds a record.
    pub(crate) fn add(&self, suspect: Suspect) {
        let (suspects, shared) = &self.rows[suspect.record_id.chunk() as usize];
        suspects.set(suspect.record_id.item());
        if suspect.shared {
            shared.set(suspect.record_id.item());
        }
    }
}

/// Reads the suspects' items again, and passes them to the workers, which decide.
pub(crate) fn run(
    job: &Job<'_>,
    suspects: &Suspects,
    exchange: &mut Exchange<'_>,
    decisions: &Decisions<'_>,
    scratch: &Arc<ScratchFile>,
    bar: &Bar<'_>,
) -> Result<()> {
    // The buffers of writers and the groups in memory share the memory that the entries had.
    let memory = (job.resident_bytes() / 2, job.resident_bytes() / 2);
    let store = read_again(job, suspects, decisions.facts, memory, scratch, bar)?;
    compare(exchange, |cell| decode(&store.take(cell as usize)?), decisions)
}

/// Reads the suspects' items again, into one group per cell. The groups may take the first number of bytes of memory, the
/// buffers of the threads the second.
pub(crate) fn read_again(
    job: &Job<'_>,
    suspects: &Suspects,
    facts: &[ChunkFacts],
    (resident_bytes, buffered_bytes): (u64, u64),
    scratch: &Arc<ScratchFile>,
    bar: &Bar<'_>,
) -> Result<GroupedBytes> {
    let groups = job.cells().get() as usize;
    let store = GroupedBytes::new(groups, resident_bytes, Arc::clone(scratch))
        .with_buffers(buffer_bytes(buffered_bytes, job.threads, groups));
    run_tasks(
        job.threads,
        job.chunks.len(),
        || Ok(GroupWriter::new(&store)),
        |writer, chunk| read_items(job, chunk, suspects, &facts[chunk], writer, bar),
        GroupWriter::finish,
    )?;
    Ok(store)
}

/// Reads the suspects' items of a chunk into the groups of their cells.
fn read_items(
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
    let wanted = |number| number < facts.id_count && suspects.get(number);
    // A damaged end was reported by the first reading; the digest shows whether the content is the same.
    while let Ok(true) = content.read() {
        content.hand_out(&wanted, &mut |Position { number, .. }, found| {
            if let Found::Item(item, rank) = found {
                let shared = shared.get(number);
                let record_id = RecordId::new(u32::try_from(index).expect("24 bits"), number);
                let hash = hasher.hash(item);
                let head = Head { worker: chunk.worker, shared, hash, record_id, rank };
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
    record_id: RecordId,
    rank: Rank,
}

impl Head {
    /// Encodes worker u16, shared u8, hi u64, lo u64, record id u64, rank u64, length u64, and the bytes to compare: the
    /// item, and the scope's tag with its length, so that items of different scopes are not equal.
    fn encode(&self, tag: &[u8], item: &[u8], buffer: &mut Vec<u8>) {
        let length = tag.len() + 8 + item.len();
        buffer.extend(self.worker.to_le_bytes());
        buffer.push(u8::from(self.shared));
        let Self { hash, record_id, rank, .. } = self;
        for word in [hash.hi(), hash.lo(), record_id.to_bits(), rank.0, length as u64] {
            buffer.extend(word.to_le_bytes());
        }
        buffer.extend_from_slice(item);
        buffer.extend_from_slice(tag);
        buffer.extend((tag.len() as u64).to_le_bytes());
    }
}

/// Decodes a group. It is this process's own scratch, so malformed bytes are an error of the disk.
pub(crate) fn decode(mut bytes: &[u8]) -> Result<Vec<(WorkerId, SuspectItem)>> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let item = decode_one(&mut bytes).context("scratch file is damaged")?;
        items.push(item);
    }
    Ok(items)
}

fn decode_one(bytes: &mut &[u8]) -> Option<(WorkerId, SuspectItem)> {
    let worker = u16::from_le_bytes(*bytes.split_off(..2)?.first_chunk()?);
    let shared = *bytes.split_off_first()? == 1;
    let mut word = || Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?));
    let hash = ItemHash::new(word()?, word()?);
    let record_id = RecordId::from_bits(word()?);
    let rank = Rank(word()?);
    let length = usize::try_from(word()?).ok()?;
    let bytes = bytes.split_off(..length)?.to_vec();
    Some((WorkerId(worker), SuspectItem { hash, record_id, shared, rank, bytes }))
}
