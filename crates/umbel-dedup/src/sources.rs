//! Finds the inputs of a job, and checks that they can be read, compared and replaced as specified.

use super::best::Ranker;
use super::by_size;
use super::footers::read_footers;
use super::headers::{check_headers, read_headers};
use super::in_place::{check_arguments, check_in_place};
use super::inputs::Source;
use super::observer::Observer;
use super::search::resolve;
use super::spec::JobSpec;
use crate::error::Result;
use std::collections::BTreeSet;
use std::path::PathBuf;
use umbel_files::UsageError;
use umbel_records::{ExtractorError, Format};

/// Finds the inputs, and checks that they can be read, and, if `is_written`, that outputs can be made from them.
pub(crate) fn open_sources(
    spec: &JobSpec,
    observer: &dyn Observer,
    is_written: bool,
) -> Result<Vec<Source>> {
    open_sources_but(spec, observer, is_written, &BTreeSet::new())
}

/// The same, without the files with these [`identity`] values.
///
/// [`identity`]: super::inputs::identity
pub(crate) fn open_sources_but(
    spec: &JobSpec,
    observer: &dyn Observer,
    is_written: bool,
    left_out: &BTreeSet<PathBuf>,
) -> Result<Vec<Source>> {
    check_arguments(spec)?;
    // A file that is one record has no header.
    let format = if spec.compares_files() { Format::Text.into() } else { spec.format };
    let mut sources = resolve(&spec.search(format, observer))?;
    sources.retain(|source| source.identity.as_ref().is_none_or(|file| !left_out.contains(file)));
    check_in_place(spec, &sources)?;
    read_headers(&mut sources)?;
    read_footers(spec, is_written, &mut sources)?;
    for source in &sources {
        source.check(&spec.granularity).map_err(|error| match error {
            ExtractorError::BadKeyPath { key, error } => {
                UsageError(format!("{}: --key {key}: {error}", source.name))
            }
            error => UsageError(format!("{}: {error}{}", source.name, source.name_note())),
        })?;
        if let Some(best) = &spec.best {
            Ranker::new(best, source)
                .map_err(|error| UsageError(format!("{}: --keep {best}: {error}", source.name)))?;
        }
    }
    check_headers(spec, &sources)?;
    by_size::check_counts(spec, &sources)?;
    by_size::check_unique(spec, &sources)?;
    Ok(sources)
}
