//! The options of a cluster's job as JSON, for people and scripts that ask what a job does.

use super::SentJob;
use crate::filter_address::FilterAddress;
use crate::name_filter::NamePattern;
use crate::spec::{BinaryFiles, JobSpec, SaveIndex};
use crate::summary::{exactness_name, options};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use umbel_dedup_engine::{FilterChoice, IndexBits};
use umbel_records::Format;

impl SentJob {
    /// The options of the job: those of its summary, and the other fields of its message by their names. A field
    /// that is not set is null. Names are a public interface.
    pub fn options(&self) -> Value {
        let Self { spec, own_inputs, names_seed } = self;
        let own = own_inputs.iter().map(|(node, input)| json!({ "node": node, "input": input }));
        let mut value = options(spec);
        if let (Value::Object(all), Value::Object(more)) = (&mut value, more(spec)) {
            all.extend(more);
        }
        value["own_inputs"] = own.collect();
        value["names_seed"] = (*names_seed).into();
        value
    }
}

/// The options that a summary does not repeat. Lists every field of a specification, so that a new one is shown.
fn more(spec: &JobSpec) -> Value {
    let JobSpec {
        // In the summary's options.
        inputs: _,
        granularity: _,
        paragraph_bytes_min: _,
        normalise: _,
        scope: _,
        missing_key: _,
        empty: _,
        output: _,
        annotates: _,
        // Shown here.
        names,
        names_granularity,
        format,
        duplicates,
        groups,
        bad,
        references,
        online,
        add_to,
        save_index,
        reports_files,
        exactness,
        // Both in the name of the keep rule.
        keep: _,
        best: _,
        filter,
        skip_bad,
        binary,
        overwrite,
        // Not of a cluster's job, or the node's own.
        workers: _,
        in_place: _,
        by_size: _,
        summary: _,
        page: _,
        seed: _,
        rank: _,
        roots: _,
        reach: _,
        memory_bytes: _,
        scratch: _,
        stores: _,
    } = spec;
    json!({
        "include": names.include.iter().map(NamePattern::text).collect::<Vec<_>>(),
        "exclude": names.exclude.iter().map(NamePattern::text).collect::<Vec<_>>(),
        "names_granularity": names_granularity,
        "format": format.given.map(format_name),
        "delimiter": format.delimiter.map(char::from),
        "is_headless": format.is_headless,
        "duplicates": shown(duplicates.as_ref()),
        "groups": shown(groups.as_ref()),
        "bad": shown(bad.as_ref()),
        "references": references.iter().map(|path| text(path)).collect::<Vec<_>>(),
        "reference_filters": online.iter().map(FilterAddress::filter).collect::<Vec<_>>(),
        "add_to": add_to.as_ref().map(FilterAddress::filter),
        "save_index": save_index.as_ref().map(index),
        "reports_files": reports_files,
        "exactness": exactness_name(*exactness),
        "keep": spec.keep_name(),
        "filter": filter_name(*filter),
        "skip_bad": skip_bad,
        "binary": binary_name(*binary),
        "overwrite": overwrite,
    })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn shown(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| text(path))
}

fn index(index: &SaveIndex) -> Value {
    json!({ "path": text(&index.path), "bits": index.bits.map(IndexBits::get) })
}

const fn format_name(format: Format) -> &'static str {
    match format {
        Format::Text => "text",
        Format::ZeroTerminated => "zero-terminated",
        Format::JsonLines => "jsonl",
        Format::Table { delimiter: b'\t', .. } => "tsv",
        Format::Table { .. } => "csv",
        Format::Parquet => "parquet",
    }
}

const fn filter_name(filter: FilterChoice) -> &'static str {
    match filter {
        FilterChoice::Auto => "auto",
        FilterChoice::SingleShot => "single-shot",
        FilterChoice::FullHash => "wide",
    }
}

const fn binary_name(binary: BinaryFiles) -> &'static str {
    match binary {
        BinaryFiles::Refuse => "refuse",
        BinaryFiles::Skip => "skip",
        BinaryFiles::Copy => "copy",
        BinaryFiles::Text => "text",
    }
}
