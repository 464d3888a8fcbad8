//! Checks that a restarted worker continues the same job: equal options, inputs and references.

use super::super::inputs::Source;
use super::super::references::References;
use super::bench::Membership;
use super::folder::JobFolder;
use super::journal_records::{JournaledInput, JournaledOpening, LAYOUT_VERSION};
use crate::error::{InputError, Result, bail, refuse};

/// The journal's description of the inputs as they are now.
pub(super) fn journaled_inputs(sources: &[Source]) -> Result<Vec<JournaledInput>> {
    let record = |source: &Source| {
        let (bytes, state) = source.state()?;
        Ok(JournaledInput { name: source.name.clone(), bytes, state })
    };
    sources.iter().map(record).collect()
}

/// Fails if the folder belongs to another job.
pub(super) fn check_same_job(
    folder: &JobFolder,
    opened: &JournaledOpening,
    member: &Membership,
) -> Result<()> {
    let path = folder.path().display();
    if opened.version != LAYOUT_VERSION {
        bail!(
            "{path}: written by another release (layout {}, expected {LAYOUT_VERSION}): finish the job with that one, \
             or remove the folder",
            opened.version
        );
    }
    if (opened.job, opened.worker, opened.spec_digest)
        != (member.job, member.worker, member.spec_digest)
    {
        refuse!(
            "{path}: belongs to worker {} of another job (another secret, other options, or another release); finish that one, remove the \
             folder, or name another --job-dir; on a cluster, cancel the job and submit it again",
            opened.worker
        );
    }
    Ok(())
}

/// Fails if the job began with other references.
pub(super) fn check_same_references(
    opened: &JournaledOpening,
    references: &References,
) -> Result<()> {
    if opened.forecast.references == references.known() {
        return Ok(());
    }
    let names: Vec<&str> = references.facts().map(|(name, ..)| name).collect();
    refuse!(
        "--reference {}: not the indexes that the job began with: put those in their place again",
        names.join(", ")
    )
}

/// Fails if input files were added, removed or changed since the job began.
pub(super) fn check_same_input(then: &[JournaledInput], now: &[JournaledInput]) -> Result<()> {
    let mut pairs = then
        .iter()
        .map(Some)
        .chain(std::iter::repeat(None))
        .zip(now.iter().map(Some).chain(std::iter::repeat(None)));
    let rows = then.len().max(now.len());
    let Some((then, now)) = pairs.by_ref().take(rows).find(|(then, now)| then != now) else {
        return Ok(());
    };
    let (name, what) = match (then, now) {
        (Some(then), Some(now)) if then.name == now.name => {
            (&now.name, format!("{} bytes then, {} now, or written again", then.bytes, now.bytes))
        }
        (_, Some(now)) => (&now.name, "not in its place then".to_owned()),
        (Some(then), None) => (&then.name, "not there now".to_owned()),
        (None, None) => return Ok(()),
    };
    let text = format!("{name}: the input has changed since the job began ({what})");
    Err(InputError::Bad(text).into())
}
