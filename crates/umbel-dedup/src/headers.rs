//! Header rows of tables: read before anything else, and compared if one output has one header for all.

use super::inputs::Source;
use super::object_inputs::{each_of, opening_threads};
use super::spec::{JobSpec, OutputTarget};
use crate::error::{Result, refuse};
use std::sync::Arc;
use umbel_records::{Format, Granularity, ReadLimits, TableHeader};

/// Reads the headers of all tables.
pub(crate) fn read_headers(sources: &mut [Source]) -> Result<()> {
    let read = |index: usize| {
        let source = &sources[index];
        let Format::Table { delimiter, has_header } = source.format else { return Ok(None) };
        let file = source.open()?;
        let limits = ReadLimits::default();
        let header = if has_header {
            TableHeader::read(file, source.compression, delimiter, limits)
        } else {
            TableHeader::numbered(file, source.compression, delimiter, limits)
        };
        if let (Err(_), Some(failure)) = (&header, source.failure()) {
            return Err(failure);
        }
        // Damage is reported by the first reading, which then finds no records.
        Ok(header.ok().flatten().map(Arc::new))
    };
    let headers = each_of(opening_threads(sources), sources.len(), read)?;
    for (source, header) in sources.iter_mut().zip(headers) {
        source.header = header;
    }
    Ok(())
}

/// Refuses tables with different headers that are to be written to one output.
///
/// # Errors
///
/// A usage error that names two files and the difference.
pub(crate) fn check_headers(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let is_one_stream = !spec.annotates && !matches!(spec.output, OutputTarget::Directory(_));
    let mut tables = sources.iter().filter_map(|source| Some((source, source.header.as_ref()?)));
    let Some((first, first_header)) = tables.next() else { return Ok(()) };
    let has_records = |source: &&Source| !source.is_unreadable() && !source.is_copied;
    let mut readable = sources.iter().filter(has_records);
    let lines = readable.find(|source| source.format.delimiter().is_none());
    if let (true, Some(lines)) = (is_one_stream, lines) {
        let (first, lines) = (&first.name, &lines.name);
        let what = if first_header.is_made_up() {
            format!("{first} is a table and {lines} is none")
        } else {
            format!("{first} has a header row and {lines} has none")
        };
        refuse!(
            "{what}: they cannot go to one output; \
             --output DIR/ writes one file an input"
        );
    }
    if !is_one_stream && spec.granularity != Granularity::Record {
        return Ok(());
    }
    let why = if is_one_stream {
        "in one output all need the same; --output DIR/ writes one file an input"
    } else {
        "to compare whole records all need the same; --key names the columns to compare"
    };
    for (other, other_header) in tables {
        if let Some(difference) = difference(first_header, other_header, is_one_stream) {
            let (first, other) = (&first.name, &other.name);
            refuse!("{first} and {other} have different headers: {difference}; {why}");
        }
    }
    Ok(())
}

fn difference(first: &TableHeader, other: &TableHeader, with_delimiter: bool) -> Option<String> {
    if with_delimiter && first.delimiter() != other.delimiter() {
        let name = |header: &TableHeader| header.delimiter().escape_ascii();
        return Some(format!("between fields is `{}` and `{}`", name(first), name(other)));
    }
    let (a, b) = (first.columns(), other.columns());
    if let Some(at) = a.iter().zip(b).position(|(a, b)| a != b) {
        let name = |columns: &[Vec<u8>]| String::from_utf8_lossy(&columns[at]).into_owned();
        return Some(format!("column {} is `{}` and `{}`", at + 1, name(a), name(b)));
    }
    (a.len() != b.len()).then(|| format!("{} and {} columns", a.len(), b.len()))
}
