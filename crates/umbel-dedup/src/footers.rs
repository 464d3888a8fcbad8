//! The footers of Parquet inputs: all are read before anything else, and incompatible inputs are refused.

use super::inputs::Source;
use super::object_inputs::{each_of, opening_threads};
use super::row_groups::{RecentFiles, RowGroup, RowGroups};
use super::spec::{JobSpec, OutputTarget};
use crate::error::{Context, Result, refuse};
use std::sync::Arc;
use umbel_files::UsageError;
use umbel_records::{Format, Granularity, KeyPath, ParquetFile, ParquetSelection};

/// Reads the footers of all Parquet inputs, and refuses those that cannot be compared or written.
///
/// # Errors
///
/// A [`UsageError`] that names the files and what they differ in; any other error names the file that cannot be read.
pub(crate) fn read_footers(spec: &JobSpec, is_written: bool, sources: &mut [Source]) -> Result<()> {
    if spec.granularity == Granularity::File {
        return Ok(()); // Whole files are compared and copied without regard to their format.
    }
    let is_written = is_written && !spec.annotates;
    let recent = Arc::new(RecentFiles::default());
    let mut first: Option<FirstTable> = None;
    let writes_one_file = is_written && check_output(spec, sources)?;
    let is_table = |index: &usize| sources[*index].format == Format::Parquet;
    let tables: Vec<usize> = (0..sources.len()).filter(is_table).collect();
    let threads = opening_threads(sources);
    // A few at a time: a job may have more files than a process may have open.
    for window in tables.chunks(threads) {
        let open = |at: usize| {
            let source: &Source = &sources[window[at]];
            ParquetFile::open(source.open()?).with_context(|| source.name.clone())
        };
        let files = each_of(threads, window.len(), open)?;
        for (&index, file) in window.iter().zip(files) {
            let source = &mut sources[index];
            let selection = select(&file, spec)
                .map_err(|text| UsageError(format!("{}: {text}", source.name)))?;
            if is_written {
                file.check_codecs().with_context(|| source.name.clone())?;
            }
            match &first {
                Some(first) => first.check_goes_with(source, &file, &selection, writes_one_file)?,
                None => {
                    let (name, file) = (source.name.clone(), file.clone());
                    first = Some(FirstTable { name, file, selection: selection.clone() });
                }
            }
            let sizes = |group| RowGroup {
                rows: file.row_count(group),
                stored_bytes: file.stored_bytes(group),
                unpacked_bytes: file.unpacked_bytes(group),
            };
            let groups = (0..file.row_group_count()).map(sizes).collect();
            let (footer, recent) = (file.footer_digest(), Arc::clone(&recent));
            let groups = Arc::new(RowGroups::new(index, groups, selection, footer, recent));
            groups.remember(&file);
            source.row_groups = Some(groups);
        }
    }
    Ok(())
}

/// The first Parquet input, with which the others must be compatible.
struct FirstTable {
    name: String,
    file: ParquetFile,
    selection: ParquetSelection,
}

impl FirstTable {
    fn check_goes_with(
        &self,
        other: &Source,
        file: &ParquetFile,
        selection: &ParquetSelection,
        writes_one_file: bool,
    ) -> Result<()> {
        let (first, other) = (&self.name, &other.name);
        if let Some(difference) = selection.difference(&self.selection) {
            refuse!("{first} and {other} cannot be compared: {difference}");
        }
        let differs = writes_one_file.then(|| file.schema_difference(&self.file)).flatten();
        if let Some(difference) = differs {
            refuse!(
                "{first} and {other} have different schemas: {difference}; in one output all need the same; \
                 --output DIR/ writes one file an input"
            );
        }
        Ok(())
    }
}

/// Whether all inputs are written to one Parquet file.
fn check_output(spec: &JobSpec, sources: &[Source]) -> Result<bool> {
    let Some(table) = sources.iter().find(|source| source.format == Format::Parquet) else {
        return Ok(false);
    };
    let name = &table.name;
    let refuse = |text: String| Err(UsageError(text).into());
    match &spec.output {
        OutputTarget::Directory(_) => Ok(false),
        OutputTarget::File(path) if path.extension().is_some_and(|name| name == "parquet") => {
            let mut readable = sources.iter().filter(|source| !source.is_unreadable());
            match readable.find(|source| source.format != Format::Parquet) {
                None => Ok(true),
                Some(other) => {
                    let other = &other.name;
                    refuse(format!(
                        "{name} is Parquet and {other} is not: they cannot go to one output; \
                         --output DIR/ writes one file an input"
                    ))
                }
            }
        }
        _ => refuse(format!(
            "{name} is Parquet, which is no stream: --output DIR/ writes one file an input, \
             --output FILE.parquet all into one"
        )),
    }
}

/// The columns that items are made of, and that rows are ranked by.
fn select(file: &ParquetFile, spec: &JobSpec) -> Result<ParquetSelection, String> {
    let selection = select_items(file, spec)?;
    let Some(best) = &spec.best else { return Ok(selection) };
    let path = best.field.parse::<KeyPath>().map_err(|error| format!("--keep {best}: {error}"))?;
    selection.scored(file, &path).map_err(|error| format!("--keep {best}: {error}"))
}

fn select_items(file: &ParquetFile, spec: &JobSpec) -> Result<ParquetSelection, String> {
    let parse =
        |key: &String| key.parse::<KeyPath>().map_err(|error| format!("--key {key}: {error}"));
    let selection = match &spec.granularity {
        Granularity::Line if spec.names_granularity => {
            return Err(
                "Parquet has rows and no lines: --granularity record compares whole rows, \
                        --key FIELD columns"
                    .to_owned(),
            );
        }
        Granularity::Paragraph(field) => ParquetSelection::text(file, &parse(field)?),
        Granularity::Line | Granularity::Record | Granularity::File => {
            ParquetSelection::record(file)
        }
        Granularity::Key(keys) => {
            let paths = keys.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
            ParquetSelection::key(file, &paths)
        }
    };
    selection.map_err(|error| error.to_string())
}
