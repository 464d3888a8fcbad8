//! `--annotate`: instead of kept records, writes one line per record: whether it is a duplicate, and of
//! which one.

use super::bad::MISSING_KEY;
use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::destinations::make_directory;
use super::json_lines::JsonLines;
use super::output::{OutputFiles, ProcessOutputFiles, chunks_of};
use super::outputs::{Named, output_path};
use super::report::{Name, Names, RecordNames};
use super::sink::{Complete, Sink};
use super::sorted_rows::{RowReader, SortedRows};
use super::spec::OutputTarget;
use crate::error::Result;
use serde::Serialize;
use std::ops::Range;
use std::path::Path;
use umbel_dedup_engine::RecordId;
use umbel_dedup_engine::limits::RECORD_ID_ITEM_BITS;
use umbel_records::Compression;

/// A record of a group with at least two members: its id, the kept record's id, and the group's size.
pub(crate) type Member = [u64; 3];

/// Writes the annotations into one sink, or into one file per input. `members` are in input order.
pub(crate) fn write(
    job: &Job<'_>,
    named: Option<Named>,
    facts: &[ChunkFacts],
    names: &RecordNames<'_>,
    members: &SortedRows<3>,
) -> Result<Vec<Complete>> {
    let annotations = Annotations { job, facts, names, first_chunk: 0, members };
    match (named, &job.spec.output) {
        (Some(named), _) => Ok(vec![annotations.stream(named.sink()?)?]),
        (None, OutputTarget::Directory(root)) => {
            let output_files = ProcessOutputFiles::new(job, root);
            annotations.directory(root, &output_files)?;
            Ok(output_files.into_complete())
        }
        (None, _) => Ok(Vec::new()),
    }
}

/// What is needed to annotate the records of a job, or of one worker.
pub(crate) struct Annotations<'a> {
    /// The job, or the worker's part of it.
    pub(crate) job: &'a Job<'a>,
    /// The facts of its chunks.
    pub(crate) facts: &'a [ChunkFacts],
    /// Names of its records, and of all that were kept for one of them.
    pub(crate) names: &'a dyn Names,
    /// Number in the job of the first chunk.
    pub(crate) first_chunk: u32,
    /// The records in groups, by record ids of the job, in input order.
    pub(crate) members: &'a SortedRows<3>,
}

impl Annotations<'_> {
    /// Writes all annotations into one sink.
    ///
    /// # Errors
    ///
    /// [`DedupError::ClosedPipe`](crate::DedupError::ClosedPipe) if the reader of the sink has closed it.
    pub(crate) fn stream(&self, sink: Sink) -> Result<Complete> {
        let mut annotator = self.annotator()?;
        let mut lines = JsonLines::new(sink);
        (0..self.job.chunks.len()).try_for_each(|chunk| {
            annotator.chunk(chunk, &mut lines)?;
            lines.check_reader()
        })?;
        lines.complete()?.read_to_its_end()
    }

    /// Writes one file per source, except for those that are written already.
    pub(crate) fn directory(&self, root: &Path, output_files: &dyn OutputFiles) -> Result<()> {
        let Job { spec, sources, .. } = *self.job;
        let mut annotator = self.annotator()?;
        for (number, source) in sources.iter().enumerate() {
            let Range { start: first, end: next } = chunks_of(self.job, number);
            if output_files.has(number) || source.is_unreadable() {
                annotator.skip_to(next)?;
                continue;
            }
            let path = output_path(spec, root, source);
            make_directory(spec, path.parent().unwrap_or(root))?;
            let mut lines = JsonLines::new(output_files.sink(number, &path, Compression::Plain)?);
            (first..next).try_for_each(|chunk| annotator.chunk(chunk, &mut lines))?;
            output_files.add(number, lines.complete()?)?;
        }
        Ok(())
    }

    fn annotator(&self) -> Result<Annotator<'_>> {
        let Self { facts, names, first_chunk, members, .. } = *self;
        let mut members = members.read()?;
        Ok(Annotator { facts, names, first_chunk, next: members.next()?, members })
    }
}

/// One line of the annotations.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    record: Name<'a>,
    duplicate: bool,
    /// The kept record of a duplicate.
    group: Option<Name<'a>>,
    /// Number of records in the group; `None` for a bad record.
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad: Option<&'a str>,
}

/// Writes the lines, record by record.
struct Annotator<'a> {
    facts: &'a [ChunkFacts],
    names: &'a dyn Names,
    first_chunk: u32,
    members: RowReader<'a, 3>,
    next: Option<Member>,
}

impl<'a> Annotator<'a> {
    fn number_of(&self, chunk: usize) -> u32 {
        self.first_chunk + u32::try_from(chunk).expect("chunk numbers have 24 bits")
    }

    /// Skips all chunks before this one.
    fn skip_to(&mut self, chunk: usize) -> Result<()> {
        let first = u64::from(self.number_of(chunk)) << RECORD_ID_ITEM_BITS;
        while self.next.is_some_and(|[member, ..]| member < first) {
            self.next = self.members.next()?;
        }
        Ok(())
    }

    /// Writes the lines of the next chunk in input order.
    fn chunk(&mut self, index: usize, lines: &mut JsonLines) -> Result<()> {
        let chunk = self.number_of(index);
        let facts = &self.facts[index];
        // The unreadable rest of a file has no line here, but one in the list of bad records.
        let items = facts.bad.records().iter().filter(|bad| !bad.cause.loses_rest());
        let mut bad = items.peekable();
        for item in 0..facts.id_count {
            let (record, _) = facts.record_of(item);
            let record_id = RecordId::new(chunk, item);
            let mut cause = bad.next_if(|bad| bad.record == record).map(|bad| bad.cause.name());
            // A dropped record that is neither a duplicate nor bad has no key, and `--missing-key drop` was given.
            if cause.is_none() && facts.dropped.get(item) && !self.is_member(record_id) {
                cause = Some(MISSING_KEY.into());
            }
            self.line(record_id, cause.as_deref(), lines)?;
        }
        Ok(())
    }

    fn is_member(&self, record_id: RecordId) -> bool {
        self.next.is_some_and(|[member, ..]| member == record_id.to_bits())
    }

    fn line(
        &mut self,
        record_id: RecordId,
        bad: Option<&str>,
        lines: &mut JsonLines,
    ) -> Result<()> {
        let member = self.next.filter(|_| self.is_member(record_id));
        if member.is_some() {
            self.next = self.members.next()?;
        }
        let kept = member.map(|[_, kept, _]| kept).filter(|&kept| kept != record_id.to_bits());
        let size = if bad.is_some() { None } else { Some(member.map_or(1, |[_, _, size]| size)) };
        lines.add(&Line {
            record: self.names.name(record_id)?,
            duplicate: kept.is_some(),
            group: kept
                .map(|kept| self.names.name_of_kept(record_id, RecordId::from_bits(kept)))
                .transpose()?,
            size,
            bad,
        })
    }
}
