//! Phase 9 for Parquet: copies row groups without the dropped rows.

use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::inputs::Source;
use super::output::{OutputTimes, check_digest, chunks_of};
use super::paragraphs::PiecePicker;
use super::progress::Bar;
use super::row_groups::RowGroups;
use super::sink::{Complete, Sink};
use super::turns::lock;
use crate::clock::Stopwatch;
use crate::error::{Context, DedupError, Result, chain_text};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Mutex;
use umbel_records::{ContentDigest, Granularity, ParquetCopy, ParquetError, ParquetFile};

/// A sink as an `io::Write`.
struct SinkStream(Sink);

impl Write for SinkStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| io::Error::other(chain_text(&error)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Copies the kept rows of some sources, which all have the schema of the first, into one file.
pub(crate) fn write_rows(
    job: &Job<'_>,
    facts: &[ChunkFacts],
    sources: Range<usize>,
    sink: Sink,
    times: &Mutex<OutputTimes>,
    bar: &Bar<'_>,
) -> Result<Complete> {
    let mut watch = Stopwatch::start();
    let mut tables = sources.filter(|index| !job.sources[*index].is_unreadable()).peekable();
    let (first, model) = source_at(job, *tables.peek().expect("one was told by its footer"));
    let model = model.open(first)?;
    let mut copy =
        ParquetCopy::new(SinkStream(sink), &model).with_context(|| first.name.clone())?;
    for index in tables {
        let (source, row_groups) = source_at(job, index);
        let file = row_groups.open(source)?;
        let chunks = chunks_of(job, index);
        for (chunk, facts) in job.chunks[chunks.clone()].iter().zip(&facts[chunks]) {
            let Some(row_group) = chunk.row_group else { continue };
            let part = RowGroupOf { file: &file, row_groups, row_group, facts };
            let copied = match job.spec.granularity {
                Granularity::Paragraph(_) => part.copy_pieces(&mut copy),
                _ => part.copy_rows(&mut copy),
            };
            let digest = copied.map_err(|error| explain(source, error))?;
            if let Some(digest) = digest {
                check_digest(source, digest, facts)?;
            }
            bar.add(chunk.bytes)?;
        }
    }
    let sink = copy.finish().map_err(|error| explain(first, error))?.0;
    lock(times).pick += watch.lap();
    let complete = sink.complete();
    lock(times).write += watch.lap();
    complete
}

/// A row group, and the facts of its chunk.
struct RowGroupOf<'a> {
    file: &'a ParquetFile,
    row_groups: &'a RowGroups,
    row_group: usize,
    facts: &'a ChunkFacts,
}

impl RowGroupOf<'_> {
    /// Copies the kept rows.
    fn copy_rows<W: Write + Send>(
        &self,
        copy: &mut ParquetCopy<W>,
    ) -> Result<Option<ContentDigest>, ParquetError> {
        let (selection, facts) = (&self.row_groups.selection, self.facts);
        let stays = |number| !facts.dropped.get(number);
        copy.copy_row_group(self.file, self.row_group, selection, facts.id_count, &stays)
    }

    /// Copies all rows, each with the kept pieces of its text.
    fn copy_pieces<W: Write + Send>(
        &self,
        copy: &mut ParquetCopy<W>,
    ) -> Result<Option<ContentDigest>, ParquetError> {
        let Self { file, row_group, facts, .. } = *self;
        let selection = &self.row_groups.selection;
        if facts.dropped.count() == 0 {
            // Rows after damage are dropped, all others are kept as they are.
            return copy.copy_row_group(file, row_group, selection, facts.records, &|_| true);
        }
        let mut picker = PiecePicker::default();
        let mut edit = |text: &[u8]| picker.pick(text, facts).map(<[u8]>::to_vec);
        copy.copy_texts(file, row_group, selection, facts.records, &mut edit)
    }
}

fn explain(source: &Source, error: ParquetError) -> DedupError {
    source.failure().unwrap_or_else(|| DedupError::from(error).context(source.name.clone()))
}

fn source_at<'a>(job: &Job<'a>, index: usize) -> (&'a Source, &'a RowGroups) {
    let source = &job.sources[index];
    (source, source.row_groups.as_deref().expect("only Parquet is written so"))
}
