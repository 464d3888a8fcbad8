//! Parquet inputs: their row groups are chunks, their rows places.
//!
//! All footers are read before anything else, and what will not go together is refused there. A job may have more files
//! than a process may hold open, so only a few stay open; the others are opened again, and must have the same footer.

use super::content::{ChunkContent, Found, Spot, Take};
use super::inputs::Source;
use super::job::{JobSpec, OutputTarget};
use super::object_inputs::{each_of, opening_threads};
use super::turns::lock;
use crate::exit::UsageError;
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use umbel_engine::dedup::Rank;
use umbel_records::{
    ContentDigest, Format, Granularity, KeyPath, ParquetFile, ParquetSelection, ReadError,
    RowGroupItems,
};

/// Files that stay open: several threads read neighbouring chunks, which are mostly of few files.
const OPEN_FILES: usize = 16;

/// Bytes of items that are read at once, unless one item is longer.
const BATCH_BYTES: usize = 64 << 10;

/// What is known of a Parquet input from the start.
#[derive(Debug)]
pub(crate) struct RowGroups {
    /// Its row groups in order.
    pub(crate) groups: Vec<RowGroup>,
    /// The columns that items are made of.
    pub(crate) selection: ParquetSelection,
    footer: ContentDigest,
    recent: Arc<RecentFiles>,
}

/// Sizes of a row group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowGroup {
    /// Rows.
    pub(crate) rows: u64,
    /// Bytes in the file.
    pub(crate) stored_bytes: u64,
    /// Bytes once unpacked.
    pub(crate) unpacked_bytes: u64,
}

/// Files that were used last.
#[derive(Debug, Default)]
struct RecentFiles(Mutex<VecDeque<(String, ParquetFile)>>);

impl RowGroups {
    /// The file, open.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not the one that was there at the start.
    pub(crate) fn open(&self, source: &Source) -> Result<ParquetFile> {
        let recent = lock(&self.recent.0).iter().find(|(name, _)| *name == source.name).cloned();
        if let Some((_, file)) = recent {
            return Ok(file);
        }
        let file = ParquetFile::open(source.open()?).with_context(|| source.name.clone())?;
        if file.footer_digest() != self.footer {
            bail!("{}: the file was changed while it was read; run the job again", source.name);
        }
        self.remember(source, &file);
        Ok(file)
    }

    fn remember(&self, source: &Source, file: &ParquetFile) {
        let mut recent = lock(&self.recent.0);
        if recent.len() == OPEN_FILES {
            recent.pop_front();
        }
        recent.push_back((source.name.clone(), file.clone()));
    }
}

/// Reads the footers of all Parquet inputs, and refuses what cannot be compared or written.
///
/// # Errors
///
/// A [`UsageError`] that names the files and what they differ in; any other error names the file that cannot be read.
pub(crate) fn read_footers(spec: &JobSpec, sources: &mut [Source]) -> Result<()> {
    if spec.granularity == Granularity::File {
        return Ok(()); // Whole files are compared and copied, whatever is in them.
    }
    let recent = Arc::new(RecentFiles::default());
    let mut first: Option<FirstTable> = None;
    let writes_one_file = check_output(spec, sources)?;
    let is_table = |index: &usize| sources[*index].format == Format::Parquet;
    let tables: Vec<usize> = (0..sources.len()).filter(is_table).collect();
    let threads = opening_threads(sources);
    // A few at a time: a job may have more files than a process may hold open.
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
            let is_written = !spec.plan_only && !spec.annotates;
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
            let groups = Arc::new(RowGroups { groups, selection, footer, recent });
            groups.remember(source, &file);
            source.row_groups = Some(groups);
        }
    }
    Ok(())
}

/// The first Parquet input, which the others must go with.
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
            let text = format!("{first} and {other} cannot be compared: {difference}");
            return Err(UsageError(text).into());
        }
        let differs = writes_one_file.then(|| file.schema_difference(&self.file)).flatten();
        if let Some(difference) = differs {
            let text = format!(
                "{first} and {other} have different schemas: {difference}; in one output all need the same; \
                 --output DIR/ writes one file an input"
            );
            return Err(UsageError(text).into());
        }
        Ok(())
    }
}

/// Whether all inputs go into one Parquet file.
fn check_output(spec: &JobSpec, sources: &[Source]) -> Result<bool> {
    let Some(table) = sources.iter().find(|source| source.format == Format::Parquet) else {
        return Ok(false);
    };
    let name = &table.name;
    if !spec.normalise.is_empty() {
        let text = format!("{name} is Parquet, to which --normalise is not applied");
        return Err(UsageError(text).into());
    }
    if spec.best.is_some() {
        let text =
            format!("{name} is Parquet, of which the first or the last row stays, not the best");
        return Err(UsageError(text).into());
    }
    let refuse = |text: String| Err(UsageError(text).into());
    match &spec.output {
        _ if spec.plan_only || spec.annotates => Ok(false),
        OutputTarget::Directory(_) => Ok(false),
        OutputTarget::File(path) if path.extension().is_some_and(|name| name == "parquet") => {
            match sources.iter().find(|source| source.format != Format::Parquet) {
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

/// The columns that items are made of.
fn select(file: &ParquetFile, spec: &JobSpec) -> Result<ParquetSelection, String> {
    let selection = match &spec.granularity {
        Granularity::Line if spec.names_granularity => {
            return Err(
                "Parquet has rows and no lines: --granularity record compares whole rows, \
                        --key FIELD columns"
                    .to_owned(),
            );
        }
        Granularity::Paragraph(_) => {
            return Err("paragraphs of Parquet are not told apart".to_owned());
        }
        Granularity::Line | Granularity::Record | Granularity::File => {
            ParquetSelection::record(file)
        }
        Granularity::Key(keys) => {
            let parse = |key: &String| {
                key.parse::<KeyPath>().map_err(|error| format!("--key {key}: {error}"))
            };
            let paths = keys.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
            ParquetSelection::key(file, &paths)
        }
    };
    selection.map_err(|error| error.to_string())
}

/// Opens a row group for its items.
pub(crate) fn open_rows(
    source: &Source,
    row_groups: &RowGroups,
    row_group: usize,
    keeps_empty: bool,
) -> Result<Box<dyn ChunkContent>> {
    let file = row_groups.open(source)?;
    let offset = file.row_group_offset(row_group);
    let rows = RowGroupItems::open(&file, row_group, &row_groups.selection);
    let (rows, failed) = match rows {
        Ok(rows) => (Some(rows), None),
        // A damaged row group is bad input like any other, not the end of the job.
        Err(error) => (None, Some(error.into())),
    };
    Ok(Box::new(RowContent {
        rows,
        failed,
        keeps: keeps_empty.then(|| row_groups.selection.emptiness()),
        offset,
        items: Vec::new(),
        ends: Vec::new(),
        places: 0,
        digest: ContentDigest::default(),
    }))
}

/// Rows of a row group, one place each.
struct RowContent {
    /// `None` if they could not be opened.
    rows: Option<RowGroupItems>,
    /// Met behind the rows that were read last.
    failed: Option<ReadError>,
    /// Which items are not compared, but stay.
    keeps: Option<fn(&[u8]) -> bool>,
    /// Where the row group starts in the file.
    offset: u64,
    /// Items that were read last, end to end, and where each ends.
    items: Vec<u8>,
    ends: Vec<usize>,
    /// Places in front of them.
    places: u64,
    digest: ContentDigest,
}

impl RowContent {
    /// Takes the digest, once no more is read.
    fn finish(&mut self) -> Result<(), ReadError> {
        if let Some(rows) = &self.rows {
            self.digest = rows.digest()?;
        }
        Ok(())
    }
}

impl ChunkContent for RowContent {
    fn read(&mut self) -> Result<bool, ReadError> {
        self.places += self.ends.len() as u64;
        self.items.clear();
        self.ends.clear();
        while let (Some(rows), None) = (&mut self.rows, &self.failed)
            && self.items.len() < BATCH_BYTES
        {
            match rows.next_item() {
                Ok(Some(item)) => {
                    self.items.extend_from_slice(item);
                    self.ends.push(self.items.len());
                }
                Ok(None) => break,
                Err(error) => self.failed = Some(error.into()),
            }
        }
        if !self.ends.is_empty() {
            return Ok(true);
        }
        self.finish()?;
        self.failed.take().map_or(Ok(false), Err)
    }

    fn hand_out(&mut self, wanted: &dyn Fn(u64) -> bool, take: &mut Take<'_>) -> Result<()> {
        let mut start = 0;
        for (place, &end) in (self.places..).zip(&self.ends) {
            let item = &self.items[start..end];
            start = end;
            let is_exempt = self.keeps.is_some_and(|is_empty| is_empty(item));
            let found = if is_exempt { Found::Exempt } else { Found::Item(item, Rank::default()) };
            if wanted(place) && !take(Spot { place, starts_record: true }, found)? {
                break;
            }
        }
        Ok(())
    }

    fn content_offset(&self) -> u64 {
        self.offset
    }

    fn stored_bytes_read(&self) -> u64 {
        self.rows.as_ref().map_or(0, RowGroupItems::stored_bytes_read)
    }

    fn digest(&self) -> ContentDigest {
        self.digest
    }
}
