//! Header rows of tables: read before anything else, and compared where one must stand for all.

use super::inputs::Source;
use super::job::{JobSpec, OutputTarget};
use crate::exit::UsageError;
use anyhow::Result;
use std::sync::Arc;
use umbel_records::{Granularity, ReadLimits, TableHeader};

/// Reads the headers of all tables.
pub(crate) fn read_headers(sources: &mut [Source]) -> Result<()> {
    for source in sources {
        let Some(delimiter) = source.format.delimiter() else { continue };
        let file = source.open()?;
        let limits = ReadLimits::default();
        // Damage is reported when the file is read in earnest, and then nothing of it is left but the damage.
        let header = TableHeader::read(file, source.compression, delimiter, limits);
        source.header = header.ok().flatten().map(Arc::new);
    }
    Ok(())
}

/// Refuses tables whose header would have to stand for others, but differs from theirs.
///
/// # Errors
///
/// A [`UsageError`] that names two files and the difference.
pub(crate) fn check_headers(spec: &JobSpec, sources: &[Source]) -> Result<()> {
    let is_one_stream = !spec.annotates && !matches!(spec.output, OutputTarget::Directory(_));
    let mut tables = sources.iter().filter_map(|source| Some((source, source.header.as_ref()?)));
    let Some((first, first_header)) = tables.next() else { return Ok(()) };
    let lines = sources.iter().find(|source| source.format.delimiter().is_none());
    if let (true, Some(lines)) = (is_one_stream, lines) {
        let (first, lines) = (&first.name, &lines.name);
        let text = format!(
            "{first} has a header row and {lines} has none: they cannot go to one output; \
             --output DIR/ writes one file an input"
        );
        return Err(UsageError(text).into());
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
            let text = format!("{first} and {other} have different headers: {difference}; {why}");
            return Err(UsageError(text).into());
        }
    }
    Ok(())
}

fn difference(first: &TableHeader, other: &TableHeader, with_delimiter: bool) -> Option<String> {
    if with_delimiter && first.delimiter() != other.delimiter() {
        return Some("one is CSV, the other TSV".into());
    }
    let (a, b) = (first.columns(), other.columns());
    if let Some(at) = a.iter().zip(b).position(|(a, b)| a != b) {
        let name = |columns: &[Vec<u8>]| String::from_utf8_lossy(&columns[at]).into_owned();
        return Some(format!("column {} is `{}` and `{}`", at + 1, name(a), name(b)));
    }
    (a.len() != b.len()).then(|| format!("{} and {} columns", a.len(), b.len()))
}
