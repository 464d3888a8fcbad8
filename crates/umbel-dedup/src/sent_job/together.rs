//! Checks of a job's fields beside each other.

use super::{SentJobError, wrong};
use crate::spec::{BinaryFiles, JobSpec, MissingKey, OutputTarget};
use crate::spec_conflicts::{Conflict, conflicts};
use std::path::Path;
use umbel_dedup_engine::{Exactness, Keep};
use umbel_records::{Format, Granularity};

/// Refuses fields that exclude each other.
pub(super) fn check_together(spec: &JobSpec) -> Result<(), SentJobError> {
    let is_keyed = matches!(spec.granularity, Granularity::Key(_) | Granularity::Paragraph(_));
    let has_references = !spec.references.is_empty() || !spec.online.is_empty();
    let conflicts = conflicts(spec);
    let has = |conflict| conflicts.contains(&conflict);
    let is_set = "a value";
    let refused = [
        (
            is_keyed && spec.format.given == Some(Format::ZeroTerminated),
            ("format", "one with fields, as keys are given", "ZERO_TERMINATED"),
        ),
        (
            spec.missing_key != MissingKey::Fail && !is_keyed,
            ("missing_key", "FAIL without keys", is_set),
        ),
        (
            spec.paragraph_bytes_min > 0 && !spec.has_parts(),
            ("paragraph_bytes_min", "0 without PARAGRAPH", is_set),
        ),
        (
            (spec.keep == Keep::Best) != spec.best.is_some(),
            ("best", "a field exactly with BEST", spec.best.as_ref().map_or("none", |_| "one")),
        ),
        (spec.bad.is_some() && spec.skip_bad.is_none(), ("bad", "none without skip_bad", is_set)),
        (
            spec.binary == BinaryFiles::Copy && !names_directory(&spec.output),
            ("binary", "COPY only with an output that ends in a slash", "COPY"),
        ),
        (
            spec.exactness == Exactness::Bytes && !spec.references.is_empty(),
            ("references", "none with BYTES, as they hold only hashes", is_set),
        ),
        (
            has(Conflict::BytesWithFilter),
            ("reference_filters", "none with BYTES, as they hold no items", is_set),
        ),
        (
            has(Conflict::FilesWithFilter),
            ("granularity", "not FILE with filters, whose items are no whole files", "FILE"),
        ),
        (
            has(Conflict::ScopeWithFilter) || has(Conflict::ScopeWithIndex),
            ("scope", "GLOBAL with references, filters and save_index", spec.scope.name()),
        ),
        (
            spec.annotates && has_references,
            ("annotates", "false with references, whose records have no names", "true"),
        ),
    ];
    match refused.into_iter().find(|(is_refused, _)| *is_refused) {
        Some((_, (field, expected, got))) => Err(wrong(field, expected, got)),
        None => Ok(()),
    }
}

/// Whether an output is a directory by its name, so at every node.
fn names_directory(output: &OutputTarget) -> bool {
    let ends_in_slash = |path: &Path| path.as_os_str().as_encoded_bytes().ends_with(b"/");
    matches!(output, OutputTarget::Directory(path) if ends_in_slash(path))
}
