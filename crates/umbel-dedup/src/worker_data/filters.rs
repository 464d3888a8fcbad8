//! A cluster's filters in a job over many machines: each worker queries them once for its kept items and drops those that
//! they contain, and after the commit adds its kept items to one of them.
//!
//! The filters' responses are durable before the worker begins its outputs, and no worker adds items before
//! all outputs have their names. So no response includes items of this job, whichever process is restarted.

use super::super::online::{KeptItem, Online};
use super::super::turns::lock;
use super::bench::{Bench, ReadState};
use super::drop_file;
use super::journal_records::{JournalRecord, JournaledAnswers};
use crate::clock::Stopwatch;
use crate::error::{Context, DedupError, Result, chain_text};
use umbel_dedup_engine::{Drops, Keep, RecordId};

/// Drops the kept items that filters contain, unless an earlier process has queried them.
///
/// # Errors
///
/// A filter does not respond, or the input has changed.
pub(super) fn query(bench: &Bench, state: &ReadState) -> Result<()> {
    if bench.spec.online.is_empty() || lock(&bench.journal_state).asked.is_some() {
        return Ok(());
    }
    let watch = Stopwatch::start();
    let online = connect(bench)?;
    let report_known = |chunk: usize, known: &[KeptItem]| {
        bench.check_wanted()?;
        if known.is_empty() {
            return Ok(());
        }
        let chunk = u32::try_from(chunk).expect("chunk numbers have 24 bits");
        drop_file::append(&bench.asked, chunk, &drops(bench, state, chunk, known))
    };
    let filters = online.query(&bench.job(state.reading), &state.facts, &report_known)?;
    bench.asked.sync()?;
    let record = JournaledAnswers { bytes: bench.asked.bytes(), filters };
    bench.append_record(&JournalRecord::Asked(record.clone()))?;
    lock(&bench.journal_state).asked = Some(record);
    lock(&bench.times).query = watch.elapsed();
    Ok(())
}

/// The items of a chunk that a filter contains, as drops whose kept record is the record itself.
fn drops(bench: &Bench, state: &ReadState, chunk: u32, known: &[KeptItem]) -> Drops {
    let chunk = state.reading.chunk_base + chunk;
    let record_ids: Vec<RecordId> =
        known.iter().map(|item| RecordId::new(chunk, item.number)).collect();
    let (mut kept, mut ranks) = (Vec::new(), Vec::new());
    if bench.spec.reports_kept() {
        kept.clone_from(&record_ids);
        if bench.spec.keep == Keep::Best {
            ranks.extend(known.iter().map(|item| item.rank));
        }
    }
    Drops { record_ids, kept, ranks, ..Drops::default() }
}

/// Adds the kept items to the filter that the job adds to, unless an earlier process has done so.
///
/// # Errors
///
/// The filter does not respond, or the input has changed. The job can be resumed in either case: all outputs
/// have their names, and only this step is missing.
pub(super) fn add(bench: &Bench) -> Result<()> {
    if bench.spec.add_to.is_none() || lock(&bench.journal_state).added {
        return Ok(());
    }
    add_kept(bench).map_err(|error| DedupError::Failed(chain_text(&error)))?;
    bench.append_record(&JournalRecord::Added)?;
    lock(&bench.journal_state).added = true;
    Ok(())
}

fn add_kept(bench: &Bench) -> Result<()> {
    let state = bench.read_state()?;
    let online =
        connect(bench).context("not all kept items were added; the outputs are complete")?;
    online.add(&bench.job(state.reading), &state.facts, &|| bench.check_wanted())
}

fn connect(bench: &Bench) -> Result<Online> {
    Online::connect(&bench.spec)?.context("the job has no filter")
}
