//! Totals of a worker's files for the summary: how many repeats each file has, and of which files.

use super::super::drop_rows::DropRow;
use super::super::file_repeats::{FileCounter, FileTotals, RepeatTotals, files_json};
use super::super::report::FileName;
use super::bench::{Bench, ReadState};
use super::catalogue::Catalogues;
use super::report::gather;
use super::times::Part;
use super::weights;
use crate::error::{Context, Result, bail};
use serde_json::Value;
use umbel_dedup_engine::job::{JobResult, WriteOrder};

/// Counts the repeats in this worker's files.
pub(super) fn totals(bench: &Bench, state: &ReadState, order: &WriteOrder) -> Result<RepeatTotals> {
    let catalogues = Catalogues::decode(&order.chunk_bases, &order.catalogues)?;
    let mut overlap = weights::overlap(&catalogues, &order.weights)?;
    let mut counter = FileCounter::new(&bench.job(state.reading), &state.facts);
    let first = catalogues.first_file_of(usize::from(bench.member.worker));
    gather(bench, state)?.for_each(|row: DropRow| {
        bench.check_wanted()?;
        let dropped = catalogues.file_of(row.record_id)?;
        let own = dropped.checked_sub(first).context("a drop of another worker: a bug of umbel")?;
        if row.is_known() {
            counter.add_known(own);
            return Ok(());
        }
        let kept = catalogues.file_of(row.kept)?;
        counter.add_repeat(own, kept == dropped);
        overlap.add(dropped, kept);
        Ok(())
    })?;
    Ok(RepeatTotals { files: counter.totals(), overlap: overlap.into_counts() })
}

/// The sections `files` and `overlap` of the summary from the totals of all workers; `None` if the job does not report
/// files.
///
/// # Errors
///
/// Names the worker whose totals do not fit the others.
pub(super) fn sections(
    catalogues: &Catalogues,
    result: &JobResult,
    parts: &[Part],
) -> Result<Option<(Value, Value)>> {
    if parts.iter().all(|part| part.repeats.is_none()) {
        return Ok(None);
    }
    let mut overlap = weights::overlap(catalogues, &result.weights)?;
    let mut files: Vec<&FileTotals> = Vec::new();
    for (worker, part) in parts.iter().enumerate() {
        match &part.repeats {
            Some(totals) if overlap.add_counts(&totals.overlap) => files.push(&totals.files),
            _ => bail!("worker {worker} has told nothing of repeats, or counted other files"),
        }
    }
    let name = |worker: usize, file: u32| {
        let name = catalogues.files_of(worker).get(file as usize);
        let name = name.with_context(|| format!("worker {worker} has no file {file}"))?;
        Ok(FileName { worker: u16::try_from(worker).ok(), name })
    };
    Ok(Some((files_json(&files, name)?, overlap.json())))
}
