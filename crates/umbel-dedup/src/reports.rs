//! Outputs about dropped records: the report, the list of groups, the annotations, and totals for the summary.

use super::annotate;
use super::chunk_facts::ChunkFacts;
use super::context::Job;
use super::drop_rows::{DropRow, DropRows};
use super::file_repeats::{FileCounter, files_json};
use super::groups::{GroupFacts, GroupList, for_each_group};
use super::outputs::Named;
use super::overlap::Overlap;
use super::report::{FileName, RecordNames, Report};
use super::sink::Complete;
use super::sorted_rows::{RowSorter, SortedRows};
use super::spill::ScratchFile;
use crate::error::Result;
use serde_json::Value;
use std::sync::Arc;
use umbel_dedup_engine::RecordId;

/// The outputs to write.
pub(crate) struct ReportOutputs {
    /// The list of groups.
    pub(crate) groups: Option<Named>,
    /// The annotations, if they go to one stream.
    pub(crate) annotations: Option<Named>,
}

/// The written outputs and totals.
#[derive(Default)]
pub(crate) struct Reported {
    /// The outputs, to be committed.
    pub(crate) complete: Vec<Complete>,
    /// The sections `groups` and `most_repeated` of the summary.
    pub(crate) groups: Option<(Value, Value)>,
    /// The sections `files` and `overlap`, if a page is wanted.
    pub(crate) files: Option<(Value, Value)>,
    /// Whether the reader of annotations that were written directly closed them before the end.
    pub(crate) was_closed: bool,
}

/// Writes all outputs about dropped records.
pub(crate) fn write(outputs: ReportOutputs, mut drops: Drops<'_>) -> Result<Reported> {
    let mut reported = Reported::default();
    drops.by_kept()?;
    reported.complete.extend(drops.report);
    let Some(by_kept) = drops.by_kept else { return Ok(reported) };
    reported.files = drops.repeats.map(|repeats| repeats.json(drops.job, &by_kept)).transpose()?;
    let Drops { job, facts, scratch, .. } = drops;
    let names = RecordNames::new(job, facts);

    let mut group_facts = GroupFacts::default();
    let sink = outputs.groups.map(Named::sink).transpose()?;
    let mut list = sink.map(|sink| GroupList::new(&names, sink));
    let mut members = job.spec.annotates.then(|| RowSorter::new(sort_bytes(job), scratch));
    let mut rows = by_kept.read()?;
    for_each_group(&by_kept, |kept, size| {
        group_facts.add(kept, size);
        if let Some(list) = &mut list {
            list.add(kept, size)?;
        }
        let Some(members) = &mut members else { return Ok(()) };
        // Reads the same rows a second time, once the group's size is known.
        members.push([kept.to_bits(), kept.to_bits(), size])?;
        for _ in 1..size {
            let [kept, record_id] = rows.next()?.expect("one row a dropped member");
            members.push([record_id, kept, size])?;
        }
        Ok(())
    })?;
    drop(rows);
    reported.groups = Some(group_facts.json(&names)?);
    reported.complete.extend(list.map(GroupList::complete).transpose()?);
    let Some(members) = members else { return Ok(reported) };
    drop(by_kept);
    match annotate::write(job, outputs.annotations, facts, &names, &members.finish()?) {
        Ok(complete) => {
            reported.was_closed = complete.iter().any(|complete| complete.was_closed);
            reported.complete.extend(complete);
        }
        // The reader of the annotations closed the stream; the reports are complete.
        Err(error) if error.is_closed_pipe() => reported.was_closed = true,
        Err(error) => return Err(error),
    }
    Ok(reported)
}

/// Bytes of rows that are sorted in memory: a quarter, since at most two sorters exist at a time.
pub(crate) fn sort_bytes(job: &Job<'_>) -> u64 {
    job.resident_bytes() / 4
}

/// The drops of a job. The first use sorts them by the kept record and, in the same pass, writes the report
/// of dropped records.
pub(crate) struct Drops<'a> {
    job: &'a Job<'a>,
    facts: &'a [ChunkFacts],
    dropped: Option<&'a DropRows>,
    scratch: &'a Arc<ScratchFile>,
    duplicates: Option<Named>,
    by_kept: Option<SortedRows<2>>,
    report: Option<Complete>,
    /// Repeats by file, if a page is wanted.
    repeats: Option<Repeats>,
}

impl<'a> Drops<'a> {
    /// The drops of a job, not yet sorted. `duplicates` is the output of the report.
    pub(crate) fn new(
        job: &'a Job<'a>,
        facts: &'a [ChunkFacts],
        dropped: Option<&'a DropRows>,
        scratch: &'a Arc<ScratchFile>,
        duplicates: Option<Named>,
    ) -> Self {
        let repeats = job.spec.reports_files.then(|| Repeats::new(job, facts));
        Self { job, facts, dropped, scratch, duplicates, by_kept: None, report: None, repeats }
    }

    /// Rows of kept and dropped record ids, sorted by the kept ones; `None` if the job does not report kept records.
    pub(crate) fn by_kept(&mut self) -> Result<Option<&SortedRows<2>>> {
        let Some(dropped) = self.dropped.take() else { return Ok(self.by_kept.as_ref()) };
        let names = RecordNames::new(self.job, self.facts);
        let sink = self.duplicates.take().map(Named::sink).transpose()?;
        let best = self.job.spec.best.as_ref();
        let mut report = sink.map(|sink| Report::new(&names, best, sink));
        let mut by_kept = RowSorter::new(sort_bytes(self.job), self.scratch);
        dropped.for_each(|row| {
            if let Some(report) = &mut report {
                report.add(row)?;
            }
            if let Some(repeats) = &mut self.repeats {
                repeats.add(self.job, &row);
            }
            // A record that equals a reference is in no group: the kept record is of another job.
            if row.is_known() {
                return Ok(());
            }
            by_kept.push([row.kept.to_bits(), row.record_id.to_bits()])
        })?;
        self.report = report.map(Report::complete).transpose()?;
        Ok(Some(self.by_kept.insert(by_kept.finish()?)))
    }
}

/// Repeats by file, of one process.
struct Repeats {
    counter: FileCounter,
    /// For each file the number of items that were dropped for one of its items.
    kept_for: Vec<u64>,
}

impl Repeats {
    fn new(job: &Job<'_>, facts: &[ChunkFacts]) -> Self {
        Self { counter: FileCounter::new(job, facts), kept_for: vec![0; job.sources.len()] }
    }

    fn add(&mut self, job: &Job<'_>, row: &DropRow) {
        let of = file_of(job, row.record_id);
        if row.is_known() {
            return self.counter.add_known(of);
        }
        let kept = file_of(job, row.kept);
        self.kept_for[kept] += 1;
        self.counter.add_repeat(of, kept == of);
    }

    /// The sections `files` and `overlap` of the summary, once all drops are counted.
    fn json(&self, job: &Job<'_>, by_kept: &SortedRows<2>) -> Result<(Value, Value)> {
        let name = |file: usize| FileName { worker: None, name: &job.sources[file].name };
        let weights = self.counter.repeats().zip(&self.kept_for);
        let weights = weights.map(|(repeats, kept_for)| repeats + kept_for);
        let files: Vec<_> = weights.enumerate().map(|(at, weight)| (name(at), weight)).collect();
        let mut overlap = Overlap::new(&files);
        let mut rows = by_kept.read()?;
        while let Some([kept, dropped]) = rows.next()? {
            let file = |bits: u64| file_of(job, RecordId::from_bits(bits));
            overlap.add(file(dropped), file(kept));
        }
        let files = files_json(&[&self.counter.totals()], |_, file| Ok(name(file as usize)))?;
        Ok((files, overlap.json()))
    }
}

/// The number of the file that contains a record, in a job in one process.
fn file_of(job: &Job<'_>, record_id: RecordId) -> usize {
    job.chunks[record_id.chunk() as usize].source
}
