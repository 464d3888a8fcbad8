//! Filters of a cluster beside a worker's part: what they hold of its kept items is asked once, and what stays is told
//! to one.
//!
//! All workers ask before any output stands under its name, and add when all do. So no worker hears of what its own job
//! has added, whoever is started again: answers are durable before the first output is begun.

use super::super::online::{KeptItem, Online};
use super::super::turns::lock;
use super::bench::{Bench, ReadState};
use super::drop_file;
use super::notes::{AskedNote, Note};
use crate::clock::Stopwatch;
use crate::error::{Context, DedupError, Result, chain_text};
use umbel_dedup_engine::{Drops, Keep, Place};

/// Drops what filters hold of the kept items, unless an earlier process has asked.
///
/// # Errors
///
/// If a filter does not answer, or the input has changed.
pub(super) fn ask(bench: &Bench, state: &ReadState) -> Result<()> {
    if bench.spec.online.is_empty() || lock(&bench.told).asked.is_some() {
        return Ok(());
    }
    let watch = Stopwatch::start();
    let online = connect(bench)?;
    let tell = |chunk: usize, known: &[KeptItem]| {
        bench.check_wanted()?;
        if known.is_empty() {
            return Ok(());
        }
        let chunk = u32::try_from(chunk).expect("chunk numbers have 24 bits");
        drop_file::append(&bench.asked, chunk, &drops(bench, state, chunk, known))
    };
    let filters = online.ask(&bench.job(state.reading), &state.facts, &tell)?;
    bench.asked.sync()?;
    let note = AskedNote { bytes: bench.asked.bytes(), filters };
    bench.note(&Note::Asked(note.clone()))?;
    lock(&bench.told).asked = Some(note);
    lock(&bench.times).ask = watch.elapsed();
    Ok(())
}

/// What is known of a chunk, as drops: each is noted as kept in its own stead.
fn drops(bench: &Bench, state: &ReadState, chunk: u32, known: &[KeptItem]) -> Drops {
    let chunk = state.reading.chunk_base + chunk;
    let places: Vec<Place> = known.iter().map(|item| Place::new(chunk, item.place)).collect();
    let (mut kept, mut ranks) = (Vec::new(), Vec::new());
    if bench.spec.reports_kept() {
        kept.clone_from(&places);
        if bench.spec.keep == Keep::Best {
            ranks.extend(known.iter().map(|item| item.rank));
        }
    }
    Drops { places, kept, ranks, ..Drops::default() }
}

/// Adds what stays to the filter that the job adds to, unless an earlier process has.
///
/// # Errors
///
/// If the filter does not answer, or the input is not as it was. Whatever it is, the job can be taken up again: outputs
/// stand already, and only this is missing.
pub(super) fn add(bench: &Bench) -> Result<()> {
    if bench.spec.add_to.is_none() || lock(&bench.told).added {
        return Ok(());
    }
    add_kept(bench).map_err(|error| DedupError::Failed(chain_text(&error)))?;
    bench.note(&Note::Added)?;
    lock(&bench.told).added = true;
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
