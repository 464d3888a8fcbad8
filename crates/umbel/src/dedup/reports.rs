//! What is said of dropped records: the report, the list of groups, the annotations, and figures for the summary.

use super::annotate;
use super::drop_rows::DropRows;
use super::groups::{GroupFacts, GroupList, for_each_group};
use super::job::Job;
use super::local_pass::ChunkFacts;
use super::outputs::Named;
use super::report::{RecordNames, Report};
use super::sink::{Complete, is_closed_pipe};
use super::sorted_rows::{RowSorter, SortedRows};
use super::spill::ScratchFile;
use anyhow::Result;
use serde_json::Value;
use std::sync::Arc;

/// Where the reports go.
pub(crate) struct ReportOutputs {
    /// The report of dropped records.
    pub(crate) duplicates: Option<Named>,
    /// The list of groups.
    pub(crate) groups: Option<Named>,
    /// The annotations, if they go to one stream.
    pub(crate) annotations: Option<Named>,
}

/// What was written.
#[derive(Default)]
pub(crate) struct Reported {
    /// The outputs, to be committed.
    pub(crate) complete: Vec<Complete>,
    /// The sections `groups` and `most_repeated` of the summary.
    pub(crate) groups: Option<(Value, Value)>,
    /// The reader of standard output has left before the end.
    pub(crate) was_closed: bool,
}

/// Writes all that the user wants to know of dropped records.
pub(crate) fn write(
    job: &Job<'_>,
    outputs: ReportOutputs,
    facts: &[ChunkFacts],
    dropped: Option<&DropRows>,
    scratch: &Arc<ScratchFile>,
) -> Result<Reported> {
    let Some(dropped) = dropped else { return Ok(Reported::default()) };
    let names = RecordNames::new(job, facts);
    let mut reported = Reported::default();
    let by_kept = report(job, outputs.duplicates, &names, dropped, scratch, &mut reported)?;

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
        // The same rows a second time: only now is the group's size known.
        members.push([kept.to_bits(), kept.to_bits(), size])?;
        for _ in 1..size {
            let [kept, place] = rows.next()?.expect("one row a dropped member");
            members.push([place, kept, size])?;
        }
        Ok(())
    })?;
    drop(rows);
    reported.groups = Some(group_facts.json(&names)?);
    reported.complete.extend(list.map(GroupList::complete).transpose()?);
    let Some(members) = members else { return Ok(reported) };
    drop(by_kept);
    match annotate::write(job, outputs.annotations, facts, &names, &members.finish()?) {
        Ok(complete) => reported.complete.extend(complete),
        // Nobody reads the annotations any more; the reports are still wanted.
        Err(error) if is_closed_pipe(&error) => reported.was_closed = true,
        Err(error) => return Err(error),
    }
    Ok(reported)
}

/// Bytes of rows that are sorted in memory. A quarter, as for the drops before: two sorters at most are alive at once.
fn sort_bytes(job: &Job<'_>) -> u64 {
    job.resident_bytes() / 4
}

/// Writes the report of dropped records, if it is wanted, and sorts them by what was kept.
fn report(
    job: &Job<'_>,
    named: Option<Named>,
    names: &RecordNames<'_>,
    dropped: &DropRows,
    scratch: &Arc<ScratchFile>,
    reported: &mut Reported,
) -> Result<SortedRows<2>> {
    let sink = named.map(Named::sink).transpose()?;
    let mut report = sink.map(|sink| Report::new(names, job.spec.best.as_ref(), sink));
    let mut by_kept = RowSorter::new(sort_bytes(job), scratch);
    dropped.for_each(|row| {
        if let Some(report) = &mut report {
            report.add(row)?;
        }
        // What a reference holds is in no group: the record that was kept is not of this job.
        if row.is_known() {
            return Ok(());
        }
        by_kept.push([row.kept.to_bits(), row.place.to_bits()])
    })?;
    reported.complete.extend(report.map(Report::complete).transpose()?);
    by_kept.finish()
}
