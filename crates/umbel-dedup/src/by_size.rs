//! Output by the size of groups: all kept records, those that were repeated, or those that were not;
//! optionally, each preceded by the size of its group.
//!
//! The sizes are known once all drops are sorted by the kept record, which happens before the output.

use super::chunk_facts::ChunkFacts;
use super::content::open_records;
use super::context::Job;
use super::destinations::make_directory;
use super::drops::SharedBits;
use super::groups::for_each_group;
use super::inputs::Source;
use super::output::{
    self, OutputFiles, ProcessOutputFiles, Written, check_digest, chunks_of, copy_source,
};
use super::outputs::{Named, is_replaced, leaves_unkept, output_path};
use super::progress::Bar;
use super::reports::{Drops, sort_bytes};
use super::scope::Scope;
use super::sink::{Complete, Sink};
use super::sorted_rows::{RowReader, RowSorter, SortedRows};
use super::spec::{Groups, JobSpec, OutputTarget};
use super::spill::ScratchFile;
use crate::error::{Result, refuse};
use std::io::Write as _;
use std::sync::Arc;
use umbel_dedup_engine::RecordId;
use umbel_records::Format;

/// Bytes of records with their counts that are buffered before a write: as many as a block that is read.
const GATHERED_BYTES: usize = 1 << 20;

/// Refuses counts in front of records that are not lines.
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

/// Rejects outputs that would replace several inputs by their records that occur once: a kill between two renames leaves a
/// repeated record in the second file alone, where it occurs once, and the next job would keep it.
///
/// # Errors
///
/// A usage error that names two of the inputs.
pub(crate) fn check_unique(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let is_directory = matches!(spec.output, OutputTarget::Directory(_));
    let is_each_alone = spec.scope == Scope::File || leaves_unkept(spec);
    if spec.by_size.groups != Groups::Unique || !is_directory || is_each_alone {
        return Ok(());
    }
    let has_records = |source: &&Source| !source.is_copied && !source.is_unreadable();
    let mut replaced =
        sources.iter().filter(has_records).filter(|source| is_replaced(spec, source));
    let (Some(first), Some(second)) = (replaced.next(), replaced.next()) else { return Ok(()) };
    refuse!(
        "--unique-only: {} and {} would be replaced one after the other; if the job were killed in between, what both \
         have would occur once, and a second run would keep it: write to another --output, or name one file, or \
         --scope file",
        first.name,
        second.name
    )
}

/// Writes the kept records that the user wants.
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
        facts.iter().map(|facts| SharedBits::new(facts.id_count)).collect();
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
    let stay = |facts: &ChunkFacts| facts.id_count - facts.dropped.count();
    written.records = Some(facts.iter().map(stay).sum());
    Ok(written)
}

/// Drops the kept records of a chunk that are not wanted; `repeated` has a bit for each that was repeated.
fn choose(groups: Groups, facts: &ChunkFacts, repeated: &SharedBits) {
    let unwanted = |number: &u64| match groups {
        Groups::All => false,
        Groups::Repeated => !repeated.get(*number),
        Groups::Unique => repeated.get(*number),
    };
    (0..facts.id_count).filter(unwanted).for_each(|number| facts.dropped.set(number));
}

/// Writes the kept records, each with the size of its group in front.
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
            // The reader of the records has closed them; the reports are still written.
            Err(error) if error.is_closed_pipe() => written.was_closed = true,
            Err(error) => return Err(error),
        },
        (None, OutputTarget::Directory(root)) => {
            let output_files = ProcessOutputFiles::new(job, root);
            for (index, source) in job.sources.iter().enumerate() {
                if source.is_unreadable() {
                    continue;
                }
                let path = output_path(job.spec, root, source);
                if copy_source(job.spec, (source, index), &path, &output_files)? {
                    continue;
                }
                make_directory(job.spec, path.parent().unwrap_or(root))?;
                let sink = output_files.sink(index, &path, source.compression)?;
                output_files.add(index, counter.source(index, sink)?)?;
            }
            written.complete = output_files.into_complete();
        }
        (None, _) => {}
    }
    written.was_closed |= written.complete.iter().any(|complete| complete.was_closed);
    Ok(written)
}

/// Writes records with counts in front, chunk by chunk in input order.
struct Counter<'a> {
    job: &'a Job<'a>,
    facts: &'a [ChunkFacts],
    /// Ids of kept records that were repeated, and the sizes of their groups, in input order.
    sizes: RowReader<'a, 2>,
    next: Option<[u64; 2]>,
    gathered: Vec<u8>,
    bar: &'a Bar<'a>,
}

impl Counter<'_> {
    /// Writes all sources into one sink.
    fn stream(&mut self, mut sink: Sink) -> Result<Complete> {
        (0..self.job.chunks.len()).try_for_each(|chunk| {
            self.chunk(chunk, &mut sink)?;
            sink.check_reader()
        })?;
        sink.complete()?.read_to_its_end()
    }

    /// Writes the records of one source.
    fn source(&mut self, index: usize, mut sink: Sink) -> Result<Complete> {
        chunks_of(self.job, index).try_for_each(|chunk| self.chunk(chunk, &mut sink))?;
        sink.complete()
    }

    fn chunk(&mut self, index: usize, sink: &mut Sink) -> Result<()> {
        let (facts, chunk) = (&self.facts[index], self.job.chunks[index]);
        let source = &self.job.sources[chunk.source];
        let chunk_number = u32::try_from(index).expect("chunk numbers have 24 bits");
        let mut reader = open_records(source, chunk)?;
        let mut number = 0;
        // A damaged end was reported by the first reading; the digest shows whether the content is the same.
        while let Ok(Some(_)) = reader.next_block() {
            for (_, record) in reader.block_records() {
                let is_kept = number < facts.id_count && !facts.dropped.get(number);
                let size = self.size_of(RecordId::new(chunk_number, number))?;
                number += 1;
                if !is_kept {
                    continue;
                }
                // In the format of uniq(1).
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

    /// The size of a kept record's group. Must be called in input order.
    fn size_of(&mut self, record_id: RecordId) -> Result<u64> {
        match self.next {
            Some([kept, size]) if kept == record_id.to_bits() => {
                self.next = self.sizes.next()?;
                Ok(size)
            }
            _ => Ok(1),
        }
    }
}
