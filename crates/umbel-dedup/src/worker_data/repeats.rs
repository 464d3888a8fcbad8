//! What a worker tells of its files, for the summary: how many repeats each had, and which files they repeat.

use super::super::drop_rows::DropRow;
use super::super::file_tally::{FileTally, ToldFiles, ToldRepeats, files_json};
use super::super::report::FileName;
use super::bench::{Bench, ReadState};
use super::catalogue::Catalogues;
use super::report::gather;
use super::times::Part;
use super::weights;
use crate::error::{Context, Result, bail};
use serde_json::Value;
use umbel_dedup_engine::job::{JobResult, WriteOrder};

/// Counts the repeats of this worker's files.
pub(super) fn told(bench: &Bench, state: &ReadState, order: &WriteOrder) -> Result<ToldRepeats> {
    let catalogues = Catalogues::decode(&order.chunk_bases, &order.catalogues)?;
    let mut overlap = weights::overlap(&catalogues, &order.weights)?;
    let mut tally = FileTally::new(&bench.job(state.reading), &state.facts);
    let first = catalogues.first_file_of(usize::from(bench.member.worker));
    gather(bench, state)?.for_each(|row: DropRow| {
        bench.check_wanted()?;
        let dropped = catalogues.file_of(row.place)?;
        let own = dropped.checked_sub(first).context("a drop of another worker: a bug of umbel")?;
        if row.is_known() {
            tally.add_known(own);
            return Ok(());
        }
        let kept = catalogues.file_of(row.kept)?;
        tally.add_repeat(own, kept == dropped);
        overlap.add(dropped, kept);
        Ok(())
    })?;
    Ok(ToldRepeats { files: tally.told(), overlap: overlap.into_counts() })
}

/// The sections `files` and `overlap` of the summary, of what all workers have told; `None` if the job does not tell of
/// files.
///
/// # Errors
///
/// Names the worker that has told what cannot be.
pub(super) fn sections(
    catalogues: &Catalogues,
    result: &JobResult,
    parts: &[Part],
) -> Result<Option<(Value, Value)>> {
    if parts.iter().all(|part| part.repeats.is_none()) {
        return Ok(None);
    }
    let mut overlap = weights::overlap(catalogues, &result.weights)?;
    let mut files: Vec<&ToldFiles> = Vec::new();
    for (worker, part) in parts.iter().enumerate() {
        match &part.repeats {
            Some(told) if overlap.add_counts(&told.overlap) => files.push(&told.files),
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
