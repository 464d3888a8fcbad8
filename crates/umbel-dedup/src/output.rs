//! Phase 9: reads every chunk again, and writes the kept records in input order.
//!
//! For one output stream, threads read chunks in parallel and write them in turn; for a directory, each
//! thread writes whole files. The digest of every chunk must equal that of the first reading.

use super::addresses::is_object;
use super::chunk_facts::ChunkFacts;
use super::content::open_records;
use super::context::Job;
use super::destinations::{make_directory, open_sink};
use super::drops::SharedBits;
use super::in_place::{OWN_LOCKS_MAX, common_directory};
use super::inputs::Source;
use super::outputs::{Named, output_path};
use super::paragraphs::PieceCopier;
use super::progress::Bar;
use super::row_group_output::write_rows;
use super::sink::{Complete, Sink, is_dangling};
use super::spec::{JobSpec, OutputTarget};
use super::turns::{Turns, lock, run_tasks};
use super::whole_file::open_whole;
use crate::clock::Stopwatch;
use crate::error::{Context, DedupError, InputError, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use umbel_files::PartialFile;
use umbel_records::{
    Compression, ContentDigest, ContentReader, Granularity, RecordReader, TableHeader,
    records_ending,
};

/// Most bytes of a chunk's output that are buffered before its turn; then the thread waits for the turn.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Thread time by kind of work.
#[derive(Default, Clone, Copy)]
pub(crate) struct OutputTimes {
    /// Reading again and picking kept records.
    pub(crate) pick: Duration,
    /// Writing, and waiting for the turn to write.
    pub(crate) write: Duration,
}

/// The result of the phase.
#[derive(Default)]
pub(crate) struct Written {
    /// The outputs, to be committed.
    pub(crate) complete: Vec<Complete>,
    /// Sums over threads.
    pub(crate) times: OutputTimes,
    /// Whether the reader of kept records that were written directly closed them before the end.
    pub(crate) was_closed: bool,
    /// How many records were written, if that depends on the sizes of groups.
    pub(crate) records: Option<u64>,
}

/// The files of an output directory before the commit: names them, and stores which are complete.
pub(crate) trait OutputFiles: Sync {
    /// Whether a source's output is complete already.
    fn has(&self, source: usize) -> bool;

    /// The sink of a source's output.
    fn sink(&self, source: usize, path: &Path, compression: Compression) -> Result<Sink>;

    /// Stores a complete output of a source.
    fn add(&self, source: usize, complete: Complete) -> Result<()>;
}

/// The output files of a job in one process. Their temporary names contain a random number of the process,
/// and it removes them if it ends before the commit.
pub(crate) struct ProcessOutputFiles<'a> {
    spec: &'a JobSpec,
    sources: &'a [Source],
    root: &'a Path,
    /// The anchor, whose lock marks all temporary files as in use; created with the first of them.
    anchor: OnceLock<Result<Arc<PartialFile>, String>>,
    complete: Mutex<Vec<(usize, Complete)>>,
}

impl<'a> ProcessOutputFiles<'a> {
    /// No file so far.
    pub(crate) fn new(job: &'a Job<'_>, root: &'a Path) -> Self {
        let (spec, sources) = (job.spec, job.sources);
        Self { spec, sources, root, anchor: OnceLock::new(), complete: Mutex::default() }
    }

    /// All complete outputs, in the order of sources.
    pub(crate) fn into_complete(self) -> Vec<Complete> {
        let mut complete = self.complete.into_inner().expect("threads are done");
        complete.sort_by_key(|(index, _)| *index);
        complete.into_iter().map(|(_, complete)| complete).collect()
    }
}

impl OutputFiles for ProcessOutputFiles<'_> {
    fn has(&self, _: usize) -> bool {
        false
    }

    fn sink(&self, source: usize, path: &Path, compression: Compression) -> Result<Sink> {
        if is_object(path) {
            return open_sink(self.spec, path, compression);
        }
        let like = self.sources[source].likeness();
        let replaces = self.spec.overwrite || self.spec.in_place || is_dangling(path);
        if self.spec.in_place && self.sources.len() <= OWN_LOCKS_MAX {
            return Sink::file_aside(path, compression, like, replaces, PartialFile::beside);
        }
        let anchor = self.anchor.get_or_init(|| {
            let common = self.spec.in_place.then(|| common_directory(self.sources)).flatten();
            let root = common.as_deref().unwrap_or(self.root);
            let made = PartialFile::anchor(root);
            made.map_err(|error| format!("{}: cannot write: {error}", root.display()))
        });
        let anchor = anchor.as_ref().map_err(|text| DedupError::Failed(text.clone()))?;
        let create = |path: &Path, mode| PartialFile::of_directory(anchor, path, mode);
        Sink::file_aside(path, compression, like, replaces, create)
    }

    fn add(&self, source: usize, complete: Complete) -> Result<()> {
        lock(&self.complete).push((source, complete));
        Ok(())
    }
}

/// Writes the kept records.
pub(crate) fn run(
    job: &Job<'_>,
    kept: Option<Named>,
    facts: &[ChunkFacts],
    bar: &Bar<'_>,
) -> Result<Written> {
    let times = Mutex::new(OutputTimes::default());
    let complete = match (kept, &job.spec.output) {
        (Some(named), _) => match stream(job, facts, named.sink()?, &times, bar) {
            Ok(complete) => vec![complete],
            // The reader of the records closed the stream; the reports are still written.
            Err(error) if error.is_closed_pipe() => vec![Complete::closed()],
            Err(error) => return Err(error),
        },
        (None, OutputTarget::Directory(path)) => {
            let output_files = ProcessOutputFiles::new(job, path);
            directory(job, facts, path, &output_files, &times, bar)?;
            output_files.into_complete()
        }
        (None, _) => Vec::new(),
    };
    let was_closed = complete.iter().any(|complete| complete.was_closed);
    let times = *lock(&times);
    Ok(Written { complete, times, was_closed, records: None })
}

/// Writes all sources into one sink. All threads read chunks, and write them in turn.
///
/// # Errors
///
/// [`DedupError::ClosedPipe`] if the reader of the sink has closed it; any other error names file and record.
pub(crate) fn stream(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    mut sink: Sink,
    times: &Mutex<OutputTimes>,
    bar: &Bar<'_>,
) -> Result<Complete> {
    if job.sources.iter().any(|source| source.row_groups.is_some()) {
        // Then all are Parquet, with one schema.
        return write_rows(job, facts, 0..job.sources.len(), sink, times, bar)?.read_to_its_end();
    }
    // All headers are equal, which was checked before.
    if let Some(header) = job.sources.iter().find_map(|source| source.header.as_deref()) {
        write_header(header, &mut sink)?;
    }
    let turns = Turns::new();
    let sink = Mutex::new(sink);
    let work = |kept: &mut Vec<u8>, index: usize| {
        let mut has_turn = false;
        let mut outcome = copy_chunk(job, facts, index, kept, times, bar, &mut |kept| {
            has_turn = has_turn || turns.wait(index);
            if has_turn { put_on(job, &mut lock(&sink), kept) } else { Ok(()) }
        });
        if outcome.is_ok() && !has_turn && !turns.wait(index) {
            return Ok(()); // Another task has failed and returns the error.
        }
        if outcome.is_ok() {
            let watch = Stopwatch::start();
            outcome = put_on(job, &mut lock(&sink), kept);
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
    sink.into_inner().expect("threads are done").complete()?.read_to_its_end()
}

/// Writes each source into a file of its own, at its relative path.
pub(crate) fn directory(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    root: &Path,
    output_files: &dyn OutputFiles,
    times: &Mutex<OutputTimes>,
    bar: &Bar<'_>,
) -> Result<()> {
    let work = |kept: &mut Vec<u8>, index: usize| {
        if output_files.has(index) || is_left_away(job, facts, index) {
            return Ok(());
        }
        let path = output_path(job.spec, root, &job.sources[index]);
        let source = &job.sources[index];
        if copy_source(job.spec, (source, index), &path, output_files)? {
            return Ok(());
        }
        if job.spec.in_place && loses_nothing(job, facts, index) {
            return read_again(job, facts, index, kept, times, bar);
        }
        make_directory(job.spec, path.parent().unwrap_or(root))?;
        let sink = output_files.sink(index, &path, source.compression)?;
        output_files.add(index, write_source(job, facts, index, sink, kept, times, bar)?)
    };
    run_tasks(job.threads, job.sources.len(), || Ok(Vec::new()), work, |_| Ok(()))
}

/// Copies a source that is copied as a whole; false if it is not such a source.
pub(crate) fn copy_source(
    spec: &JobSpec,
    (source, index): (&Source, usize),
    path: &Path,
    output_files: &dyn OutputFiles,
) -> Result<bool> {
    // In a job in place it is already there.
    if source.is_copied && !source.stands_at(path) {
        make_directory(spec, path.parent().unwrap_or(path))?;
        let sink = output_files.sink(index, path, Compression::Plain)?;
        output_files.add(index, copy_stored(source, sink)?)?;
    }
    Ok(source.is_copied)
}

/// Copies a source as it is stored.
fn copy_stored(source: &Source, mut sink: Sink) -> Result<Complete> {
    let state = source.state()?;
    let cannot = || source.name.clone();
    let mut reader =
        ContentReader::open(source.open()?, Compression::Plain).with_context(cannot)?;
    while let Some(block) = reader.next_block().with_context(cannot)? {
        sink.write(block)?;
    }
    if source.state()? != state {
        return Err(InputError::Changed(source.name.clone()).into());
    }
    source.modified().into_iter().for_each(|time| sink.set_modified(time));
    sink.complete()
}

/// Whether a source has no output: it could not be opened, or it is compared as a whole and dropped.
fn is_left_away(job: &Job<'_>, facts: &[ChunkFacts], index: usize) -> bool {
    if job.sources[index].is_unreadable() {
        return true;
    }
    let chunk = job.chunks.partition_point(|chunk| chunk.source < index);
    job.spec.granularity == Granularity::File && !facts[chunk].is_kept_whole()
}

/// The chunks of a source.
pub(crate) fn chunks_of(job: &Job<'_>, index: usize) -> Range<usize> {
    let first = job.chunks.partition_point(|chunk| chunk.source < index);
    first..job.chunks.partition_point(|chunk| chunk.source <= index)
}

/// Whether all records of a source are kept.
fn loses_nothing(job: &Job<'_>, facts: &[ChunkFacts], index: usize) -> bool {
    let is_whole =
        |facts: &ChunkFacts| facts.bad.count() == 0 && SharedBits::count(&facts.dropped) == 0;
    facts[chunks_of(job, index)].iter().all(is_whole)
}

/// Reads a source again whose file is not rewritten, to check that it has not changed: other records may have
/// been dropped for its records. Sources of Parquet are not checked.
fn read_again(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    index: usize,
    kept: &mut Vec<u8>,
    times: &Mutex<OutputTimes>,
    bar: &Bar<'_>,
) -> Result<()> {
    if job.sources[index].row_groups.is_some() {
        return Ok(());
    }
    for chunk in chunks_of(job, index) {
        copy_chunk(job, facts, chunk, kept, times, bar, &mut |_| Ok(()))?;
        kept.clear();
    }
    Ok(())
}

/// Writes the kept records of one source into a file of its own.
fn write_source(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    index: usize,
    mut sink: Sink,
    kept: &mut Vec<u8>,
    times: &Mutex<OutputTimes>,
    bar: &Bar<'_>,
) -> Result<Complete> {
    let source = &job.sources[index];
    if source.row_groups.is_some() {
        return write_rows(job, facts, index..index + 1, sink, times, bar);
    }
    if let Some(header) = &source.header {
        write_header(header, &mut sink)?;
    }
    for chunk in chunks_of(job, index) {
        let mut write = |kept: &[u8]| put(job, &mut sink, kept);
        copy_chunk(job, facts, chunk, kept, times, bar, &mut write)?;
        write(kept)?;
        kept.clear();
    }
    if source.compression == Compression::Plain && loses_nothing(job, facts, index) {
        // The content is the same, so the modification time is kept, too.
        source.modified().into_iter().for_each(|time| sink.set_modified(time));
    }
    sink.complete()
}

/// Writes kept bytes. Records are separated by their end byte; whole files are concatenated byte by byte.
fn put(job: &Job<'_>, sink: &mut Sink, kept: &[u8]) -> Result<()> {
    match job.spec.granularity {
        Granularity::File => sink.write(kept),
        _ => sink.write_records(kept, job.spec.record_end()),
    }
}

/// As [`put`], into the only output of kept records: nothing more is read for a reader that has closed it.
fn put_on(job: &Job<'_>, sink: &mut Sink, kept: &[u8]) -> Result<()> {
    put(job, sink, kept)?;
    sink.check_reader()
}

/// Writes the header row of a table.
fn write_header(header: &TableHeader, sink: &mut Sink) -> Result<()> {
    sink.write_records(header.bytes(), b'\n')
}

/// Appends a chunk's kept records to `kept`, and calls `flush` with it whenever it is full.
fn copy_chunk(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    index: usize,
    kept: &mut Vec<u8>,
    times: &Mutex<OutputTimes>,
    bar: &Bar<'_>,
    flush: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let chunk = job.chunks[index];
    let source = &job.sources[chunk.source];
    let facts = &facts[index];
    if job.spec.granularity == Granularity::File {
        return copy_whole(source, facts, kept, bar, flush);
    }
    let mut reader = open_records(source, chunk)?;
    let pieces = match &job.spec.granularity {
        Granularity::Paragraph(field) => Some(PieceCopier::new(source, field)?),
        _ => None,
    };
    let record_end = source.format.record_end();
    let mut picked = Picker { facts, pieces, record_end, number: 0, bar, stored: 0 };
    let mut watch = Stopwatch::start();
    while picked.next_block(&mut reader, kept)? {
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

/// As [`copy_chunk`], where the chunk is one file and one record.
fn copy_whole(
    source: &Source,
    facts: &ChunkFacts,
    kept: &mut Vec<u8>,
    bar: &Bar<'_>,
    flush: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    bar.add(source.bytes)?;
    if !facts.is_kept_whole() {
        return Ok(());
    }
    let mut reader = open_whole(source)?;
    // A file that cannot be read to its end was a bad record at the first reading; the digest shows changes.
    while let Ok(Some(block)) = reader.next_block() {
        kept.extend_from_slice(block);
        if kept.len() >= WAITING_BYTES_MAX {
            flush(kept)?;
            kept.clear();
        }
    }
    check_digest(source, reader.digest(), facts)
}

/// Picks the kept records of a chunk.
struct Picker<'a> {
    facts: &'a ChunkFacts,
    /// Set if pieces of records are picked instead of whole records.
    pieces: Option<PieceCopier>,
    record_end: u8,
    number: u64,
    bar: &'a Bar<'a>,
    stored: u64,
}

impl Picker<'_> {
    /// Appends the kept records of the next block; false at the end. A damaged end was reported by the first reading; the
    /// digest shows whether the content is the same.
    fn next_block(&mut self, reader: &mut RecordReader, kept: &mut Vec<u8>) -> Result<bool> {
        let Ok(Some(_)) = reader.next_block() else { return Ok(false) };
        if let Some(pieces) = &mut self.pieces {
            reader.block_records().for_each(|(_, record)| pieces.copy(record, self.facts, kept));
        } else if reader.is_table() {
            self.pick(reader.block(), reader.block_records(), kept);
        } else {
            let mut at = 0;
            let numbered = records_ending(reader.block(), self.record_end).map(|record| {
                at += record.len();
                (at - record.len(), record)
            });
            self.pick(reader.block(), numbered, kept);
        }
        let stored = reader.stored_bytes_read();
        self.bar.add(stored - self.stored)?;
        self.stored = stored;
        Ok(true)
    }

    /// Appends the kept records of a block. Adjacent ones are copied together.
    #[inline]
    fn pick<'b>(
        &mut self,
        block: &[u8],
        records: impl Iterator<Item = (usize, &'b [u8])>,
        kept: &mut Vec<u8>,
    ) {
        let (mut start, mut end) = (0, 0);
        for (at, record) in records {
            let stays = self.number < self.facts.id_count && !self.facts.dropped.get(self.number);
            self.number += 1;
            if !stays || at != end {
                kept.extend_from_slice(&block[start..end]);
                start = at + if stays { 0 } else { record.len() };
            }
            end = at + record.len();
        }
        kept.extend_from_slice(&block[start..end]);
    }
}

/// Fails if a chunk's content differs from that of the first reading.
pub(crate) fn check_digest(
    source: &Source,
    digest: ContentDigest,
    facts: &ChunkFacts,
) -> Result<()> {
    if facts.digest != Some(digest) {
        if let Some(failure) = source.failure() {
            return Err(failure);
        }
        return Err(InputError::Changed(source.name.clone()).into());
    }
    Ok(())
}
