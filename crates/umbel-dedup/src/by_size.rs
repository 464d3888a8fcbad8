//! What is written by the size of a group of equal records: all, only those that were repeated, only those that were
//! not; and the size itself in front of each record.
//!
//! The groups are those of the reports: the size of each is known once all drops are sorted by what was kept for them, in
//! front of the output.

use super::chunk_facts::ChunkFacts;
use super::content::open_records;
use super::context::Job;
use super::destinations::make_directory;
use super::drops::SharedBits;
use super::groups::for_each_group;
use super::inputs::Source;
use super::output::{self, OwnPlaces, Places, Written, check_digest, chunks_of, copy_source};
use super::outputs::{Named, output_path};
use super::progress::Bar;
use super::reports::{Drops, sort_bytes};
use super::sink::{Complete, Sink};
use super::sorted_rows::{RowReader, RowSorter, SortedRows};
use super::spec::{Groups, JobSpec, OutputTarget};
use super::spill::ScratchFile;
use crate::error::{Result, refuse};
use std::io::Write as _;
use std::sync::Arc;
use umbel_dedup_engine::Place;
use umbel_records::Format;

/// Bytes of records with their counts that are gathered before they are written: as much as a block that is read.
const GATHERED_BYTES: usize = 1 << 20;

/// Refuses counts in front of records that are more than lines.
///
/// # Errors
///
/// A usage error that names a file with such records.
pub(crate) fn check_counts(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let is_line = |source: &Source| {
        let is_text = matches!(source.format, Format::Text | Format::ZeroTerminated);
        is_text || source.is_copied || source.is_unreadable()
    };
    let Some(source) = sources.iter().find(|source| !is_line(source)) else { return Ok(()) };
    if !spec.by_size.counts {
        return Ok(());
    }
    refuse!(
        "{}: --count writes a number in front of each line of a text, and these records would be none behind it: \
         --groups FILE lists the numbers, --format text reads lines",
        source.name
    )
}

/// Writes the records that stay, as many of them as the user wants.
pub(crate) fn write(
    job: &Job<'_>,
    kept: Option<Named>,
    facts: &[ChunkFacts],
    drops: &mut Drops<'_>,
    scratch: &Arc<ScratchFile>,
    bar: &Bar<'_>,
) -> Result<Written> {
    let by_size = job.spec.by_size;
    if !by_size.needs_sizes() {
        return output::run(job, kept, facts, bar);
    }
    let repeated: Vec<SharedBits> =
        facts.iter().map(|facts| SharedBits::new(facts.places)).collect();
    let mut sizes = RowSorter::<2>::new(sort_bytes(job), scratch);
    if let Some(by_kept) = drops.by_kept()? {
        for_each_group(by_kept, |kept, size| {
            repeated[kept.chunk() as usize].set(kept.item());
            if by_size.counts { sizes.push([kept.to_bits(), size]) } else { Ok(()) }
        })?;
    }
    for (facts, repeated) in facts.iter().zip(repeated) {
        choose(by_size.groups, facts, &repeated);
    }
    let mut written = if by_size.counts {
        counted(job, kept, facts, &sizes.finish()?, bar)?
    } else {
        output::run(job, kept, facts, bar)?
    };
    let stay = |facts: &ChunkFacts| facts.places - facts.dropped.count();
    written.records = Some(facts.iter().map(stay).sum());
    Ok(written)
}

/// Drops what is not wanted of the records of a chunk that stay, some of which were repeated.
fn choose(groups: Groups, facts: &ChunkFacts, repeated: &SharedBits) {
    let unwanted = |place: &u64| match groups {
        Groups::All => false,
        Groups::Repeated => !repeated.get(*place),
        Groups::Unique => repeated.get(*place),
    };
    (0..facts.places).filter(unwanted).for_each(|place| facts.dropped.set(place));
}

/// Writes the records that stay behind the sizes of their groups.
fn counted(
    job: &Job<'_>,
    kept: Option<Named>,
    facts: &[ChunkFacts],
    sizes: &SortedRows<2>,
    bar: &Bar<'_>,
) -> Result<Written> {
    let mut sizes = sizes.read()?;
    let next = sizes.next()?;
    let mut counter = Counter { job, facts, sizes, next, gathered: Vec::new(), bar };
    let mut written = Written::default();
    match (kept, &job.spec.output) {
        (Some(named), _) => match counter.stream(named.sink()?) {
            Ok(complete) => written.complete.push(complete),
            // Nobody reads the records any more; the reports are still wanted.
            Err(error) if error.is_closed_pipe() => written.was_closed = true,
            Err(error) => return Err(error),
        },
        (None, OutputTarget::Directory(root)) => {
            let places = OwnPlaces::new(job, root);
            for (index, source) in job.sources.iter().enumerate() {
                if source.is_unreadable() {
                    continue;
                }
                let path = output_path(job.spec, root, source);
                if copy_source(job.spec, (source, index), &path, &places)? {
                    continue;
                }
                make_directory(job.spec, path.parent().unwrap_or(root))?;
                let sink = places.sink(index, &path, source.compression)?;
                places.add(index, counter.source(index, sink)?)?;
            }
            written.complete = places.into_complete();
        }
        (None, _) => {}
    }
    Ok(written)
}

/// Puts counts in front of records, chunk by chunk in input order.
struct Counter<'a> {
    job: &'a Job<'a>,
    facts: &'a [ChunkFacts],
    /// Places of kept records that were repeated and the sizes of their groups, in input order.
    sizes: RowReader<'a, 2>,
    next: Option<[u64; 2]>,
    gathered: Vec<u8>,
    bar: &'a Bar<'a>,
}

impl Counter<'_> {
    /// All into one sink.
    fn stream(&mut self, mut sink: Sink) -> Result<Complete> {
        (0..self.job.chunks.len()).try_for_each(|chunk| self.chunk(chunk, &mut sink))?;
        sink.complete()
    }

    /// The records of one source.
    fn source(&mut self, index: usize, mut sink: Sink) -> Result<Complete> {
        chunks_of(self.job, index).try_for_each(|chunk| self.chunk(chunk, &mut sink))?;
        sink.complete()
    }

    fn chunk(&mut self, index: usize, sink: &mut Sink) -> Result<()> {
        let (facts, chunk) = (&self.facts[index], self.job.chunks[index]);
        let source = &self.job.sources[chunk.source];
        let number = u32::try_from(index).expect("chunk numbers have 24 bits");
        let mut reader = open_records(source, chunk)?;
        let mut place = 0;
        // A damaged end was reported by the first reading; whether this one saw the same, the digest tells.
        while let Ok(Some(_)) = reader.next_block() {
            for (_, record) in reader.block_records() {
                let is_kept = place < facts.places && !facts.dropped.get(place);
                let size = self.size_of(Place::new(number, place))?;
                place += 1;
                if !is_kept {
                    continue;
                }
                // As uniq(1) writes it.
                write!(self.gathered, "{size:>7} ")?;
                self.gathered.extend_from_slice(record);
                if !record.ends_with(&[source.format.record_end()]) {
                    self.gathered.push(source.format.record_end());
                }
                if self.gathered.len() >= GATHERED_BYTES {
                    sink.write(&self.gathered)?;
                    self.gathered.clear();
                }
            }
        }
        sink.write(&self.gathered)?;
        self.gathered.clear();
        self.bar.add(chunk.bytes)?;
        check_digest(source, reader.digest(), facts)
    }

    /// The size of the group of a record that stays. Places are asked for in input order.
    fn size_of(&mut self, place: Place) -> Result<u64> {
        match self.next {
            Some([kept, size]) if kept == place.to_bits() => {
                self.next = self.sizes.next()?;
                Ok(size)
            }
            _ => Ok(1),
        }
    }
}
