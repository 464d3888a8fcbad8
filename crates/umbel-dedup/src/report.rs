//! The report of dropped records: one JSON object per line and dropped record, with the kept record, in input order.

use super::best::BestField;
use super::chunk_facts::ChunkFacts;
use super::chunks::Chunk;
use super::context::Job;
use super::drop_rows::DropRow;
use super::inputs::Source;
use super::json_lines::JsonLines;
use super::sink::{Complete, Sink};
use crate::error::Result;
use serde::Serialize;
use serde_json::Value;
use umbel_dedup_engine::RecordId;

/// One line of the report. It has parts if the granularity has them, and scores with `--keep best`.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<u16>,
    file: &'a str,
    record: u64,
    part: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_worker: Option<u16>,
    kept_file: Option<&'a str>,
    kept_record: Option<u64>,
    kept_part: Option<u64>,
    cause: &'static str,
    score: Value,
}

/// The name of a record in outputs.
#[derive(Serialize)]
pub(crate) struct Name<'a> {
    /// The worker that has read it, in a job over many machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<u16>,
    /// The file.
    pub(crate) file: &'a str,
    /// The record in it, from 1.
    pub(crate) record: u64,
    /// The part of the record, if records have parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<u64>,
}

/// A file of a job, or a directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FileName<'a> {
    /// The worker that has read it, in a job over many machines, where one path can be several files.
    pub(crate) worker: Option<u16>,
    /// Its name in outputs.
    pub(crate) name: &'a str,
}

impl FileName<'_> {
    /// The directory of a file or an object.
    pub(crate) fn directory(&self) -> Self {
        let name = match self.name.rsplit_once('/') {
            Some(("", _)) => "/",
            Some((folder, _)) => folder,
            None => ".",
        };
        Self { name, ..*self }
    }
}

/// Names records in outputs.
pub(crate) trait Names {
    /// The name of a record.
    ///
    /// # Errors
    ///
    /// If there is no such record.
    fn name(&self, record_id: RecordId) -> Result<Name<'_>>;

    /// The name of the record that was kept for a dropped one. Must be called in ascending order of dropped
    /// records.
    ///
    /// # Errors
    ///
    /// As [`Names::name`].
    fn name_of_kept(&self, dropped: RecordId, kept: RecordId) -> Result<Name<'_>> {
        let _ = dropped;
        self.name(kept)
    }
}

/// Writes the lines of the report.
pub(crate) struct Report<'a> {
    names: &'a dyn Names,
    best: Option<&'a BestField>,
    lines: JsonLines,
}

impl<'a> Report<'a> {
    /// A report without lines.
    pub(crate) fn new(names: &'a dyn Names, best: Option<&'a BestField>, sink: Sink) -> Self {
        Self { names, best, lines: JsonLines::new(sink) }
    }

    /// Adds the next drop in input order.
    pub(crate) fn add(&mut self, row: DropRow) -> Result<()> {
        let Name { worker, file, record, part } = self.names.name(row.record_id)?;
        let is_known = row.is_known();
        let kept =
            if is_known { None } else { Some(self.names.name_of_kept(row.record_id, row.kept)?) };
        self.lines.add(&Line {
            worker,
            file,
            record,
            part,
            kept_worker: kept.as_ref().and_then(|kept| kept.worker),
            kept_file: kept.as_ref().map(|kept| kept.file),
            kept_record: kept.as_ref().map(|kept| kept.record),
            kept_part: kept.as_ref().and_then(|kept| kept.part),
            cause: if is_known { "reference" } else { "input" },
            score: self.best.map_or(Value::Null, |best| best.json(row.rank)),
        })
    }

    /// Writes the buffered lines.
    pub(crate) fn complete(self) -> Result<Complete> {
        self.lines.complete()
    }
}

/// The names of the records of a job in one process: file, record in it from 1, and part, if records have parts.
pub(crate) struct RecordNames<'a> {
    sources: &'a [Source],
    chunks: &'a [Chunk],
    facts: &'a [ChunkFacts],
    records_before: Vec<u64>,
}

impl<'a> RecordNames<'a> {
    /// The names of all records that were read.
    pub(crate) fn new(job: &Job<'a>, facts: &'a [ChunkFacts]) -> Self {
        let Job { sources, chunks, .. } = *job;
        Self { sources, chunks, facts, records_before: records_before(chunks, facts) }
    }

    /// File, record and part of a record id.
    fn of(&self, record_id: RecordId) -> (&'a str, u64, Option<u64>) {
        let chunk = record_id.chunk() as usize;
        let file = &self.sources[self.chunks[chunk].source].name[..];
        let (record, part) = self.facts[chunk].record_of(record_id.item());
        (file, self.records_before[chunk] + record + 1, part)
    }
}

impl Names for RecordNames<'_> {
    fn name(&self, record_id: RecordId) -> Result<Name<'_>> {
        let (file, record, part) = self.of(record_id);
        Ok(Name { worker: None, file, record, part })
    }
}

/// For each chunk the number of records of its source before it.
pub(crate) fn records_before(chunks: &[Chunk], facts: &[ChunkFacts]) -> Vec<u64> {
    let mut source = usize::MAX;
    let mut records = 0;
    let rows = chunks.iter().zip(facts);
    rows.map(|(chunk, facts)| {
        if chunk.source != source {
            (source, records) = (chunk.source, 0);
        }
        let before = records;
        records += facts.records;
        before
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_called_as_people_call_them() {
        let names = ["a.txt", "/a.txt", "in/x/a.txt", "s3://bucket/a.txt"];
        let directory = |name| FileName { worker: Some(1), name }.directory();
        assert_eq!(names.map(|name| directory(name).name), [".", "/", "in/x", "s3://bucket"]);
        assert_eq!(directory("a.txt").worker, Some(1));
    }
}
