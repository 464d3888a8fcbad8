//! `umbel static ask`: queries a static file for items from arguments, a file or standard input.

use super::form::ItemForm;
use super::hash_key::Hashing;
use super::open_file::{Answer, OpenFile};
use crate::commands::dedup::cutting::CuttingArgs;
use crate::commands::dedup::{GranularityArg, text_argument};
use crate::exit::{Exit, refuse};
use crate::printer::Printer;
use anyhow::{Context, Result};
use clap::Args;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use umbel_filter::ItemHash;
use umbel_records::{
    Compression, Format, ItemExtractor, ParquetFile, ReadLimits, RecordItemError, RecordReader,
    TableHeader, is_blank_line,
};
use umbel_static::Role;

/// Arguments of `umbel static ask`.
#[derive(Args)]
pub(super) struct AskArgs {
    /// The file
    #[arg(value_name = "F.umbs")]
    file: PathBuf,
    /// Items; without any, and without --file, records are read from standard input
    #[arg(value_name = "ITEM", conflicts_with = "records", value_parser = text_argument("ask with --file and records"))]
    items: Vec<String>,
    /// Query the records of this file, plain or packed; - is standard input
    #[arg(long = "file", short, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Print only records that are present, as they are
    #[arg(long, conflicts_with_all = ["absent", "count"])]
    present: bool,
    /// Print only records that are absent, as they are
    #[arg(long, conflicts_with = "count")]
    absent: bool,
    /// Print only how many are present and absent
    #[arg(long)]
    count: bool,
    #[command(flatten)]
    cutting: CuttingArgs,
    /// The secret key that items are hashed under, if the file was built with one
    #[arg(long, value_name = "FILE")]
    hash_key: Option<PathBuf>,
}

/// Counts of the answers so far.
#[derive(Default)]
struct Counts {
    present: u64,
    absent: u64,
}

impl AskArgs {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// If the static file or the records cannot be read or are damaged, or the arguments do not fit the
    /// file.
    pub(super) fn run(&self) -> Result<Exit> {
        let mut open = OpenFile::open(&self.file, !self.items.is_empty())?;
        let name = self.file.display();
        let key = open.head().shape().key();
        let hashing =
            Hashing::of_file(key, self.hash_key.as_deref()).with_context(|| name.to_string())?;
        open.head().check_key(hashing.key).with_context(|| name.to_string())?;
        let form = ItemForm::parse(open.head().shape().form()).with_context(|| name.to_string())?;
        let mut printer = Printer::new();
        let counts = if self.items.is_empty() {
            self.ask_records(&mut open, hashing, &form, &mut printer)?
        } else {
            self.ask_items(&mut open, hashing, &form, &mut printer)?
        };
        if self.count {
            let Counts { present, absent } = counts;
            printer.write(format!("present\t{present}\nabsent\t{absent}\n").as_bytes())?;
        }
        printer.flush()?;
        // As with grep, code 1 means "absent" and not a failure.
        let is_absent = self.items.len() == 1 && counts.present == 0;
        Ok(if is_absent { Exit::No } else { Exit::Done })
    }

    fn ask_items(
        &self,
        open: &mut OpenFile,
        hashing: Hashing,
        form: &ItemForm,
        printer: &mut Printer,
    ) -> Result<Counts> {
        let hashes: Vec<ItemHash> = self
            .items
            .iter()
            .map(|item| Ok(hashing.hasher.hash(&form.item_of(item)?)))
            .collect::<Result<_>>()?;
        let (mut counts, mut answers) = (Counts::default(), Vec::new());
        let role = open.head().shape().role();
        open.answers(&hashes, &mut answers)?;
        for (item, answer) in self.items.iter().zip(&answers) {
            self.print(printer, role, item.as_bytes(), *answer, &mut counts)?;
        }
        Ok(counts)
    }

    fn ask_records(
        &self,
        open: &mut OpenFile,
        hashing: Hashing,
        form: &ItemForm,
        printer: &mut Printer,
    ) -> Result<Counts> {
        let mut input = self.open_input(form)?;
        let role = open.head().shape().role();
        if let Some(header) = input.header.as_ref().filter(|_| self.present || self.absent) {
            printer.write(header.bytes())?;
        }
        let (mut counts, mut record_count) = (Counts::default(), 0u64);
        let (mut hashes, mut records, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        while input.reader.next_block().with_context(|| input.name.clone())?.is_some() {
            hashes.clear();
            records.clear();
            let block_offset = input.reader.block_offset();
            for (at, record) in input.reader.block_records() {
                record_count += 1;
                let extractor = input.extractor.as_mut().context("a table has a header")?;
                match extractor.item(record) {
                    Ok(item) => {
                        hashes.push(hashing.hasher.hash(item));
                        records.push(at..at + record.len());
                    }
                    // A blank line between JSON values, or after the last one.
                    Err(_) if is_blank_line(record) => {}
                    Err(error) => {
                        let offset = block_offset + at as u64;
                        return Err(bad(&input.name, record_count, offset, error));
                    }
                }
            }
            open.answers(&hashes, &mut answers)?;
            let block = input.reader.block();
            for (record, answer) in records.iter().zip(&answers) {
                self.print(printer, role, &block[record.clone()], *answer, &mut counts)?;
            }
            if printer.is_closed() {
                break;
            }
        }
        Ok(counts)
    }

    /// Counts an answer, and prints it if the flags select it.
    fn print(
        &self,
        printer: &mut Printer,
        role: Role,
        record: &[u8],
        answer: Answer,
        counts: &mut Counts,
    ) -> Result<()> {
        *(if answer.is_some() { &mut counts.present } else { &mut counts.absent }) += 1;
        if self.count || (self.present && answer.is_none()) || (self.absent && answer.is_some()) {
            return Ok(());
        }
        if !self.present && !self.absent {
            match (answer, role) {
                (None, _) => printer.write(b"absent\t")?,
                (Some(value), Role::Map) => printer.write(format!("{value}\t").as_bytes())?,
                (Some(_), Role::Filter | Role::Exact) => printer.write(b"present\t")?,
            }
        }
        printer.write(record)?;
        let end = self.cutting.record_end();
        if record.last() == Some(&end) { Ok(()) } else { printer.write(&[end]) }
    }

    fn open_input(&self, form: &ItemForm) -> Result<Input> {
        let path = self.records.as_deref().filter(|path| *path != Path::new("-"));
        let name = path.map_or("standard input".to_owned(), |path| path.display().to_string());
        let cannot = || format!("{name}: cannot read");
        let file = match path {
            Some(path) => File::open(path).with_context(cannot)?,
            None => {
                let stdin = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned();
                File::from(stdin.with_context(cannot)?)
            }
        };
        let file = if path.is_some() && file.metadata().with_context(cannot)?.is_file() {
            file
        } else {
            spooled(file).with_context(cannot)?
        };
        let compared = if form.key.is_empty() { GranularityArg::Line } else { GranularityArg::Key };
        let rule = self.cutting.format(compared)?;
        let by_name = path.map_or(Format::Text, Format::from_name);
        let format = rule.format_of(magic_format(&file).with_context(cannot)?, by_name);
        Input::open(name, &Arc::new(file), format, form)
    }
}

fn bad(name: &str, record: u64, offset: u64, error: RecordItemError) -> anyhow::Error {
    anyhow::Error::from(error).context(format!("{name}: record {record} (byte {offset})"))
}

/// Copies an input that can be read only once into a scratch file.
fn spooled(mut from: File) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut from, &mut file)?;
    Ok(file)
}

/// The format that the first bytes of a file reveal, if any.
fn magic_format(file: &File) -> io::Result<Option<Format>> {
    let mut head = [0; 8];
    let length = std::os::unix::fs::FileExt::read_at(file, &mut head, 0)?;
    Ok(ParquetFile::is_magic(&head[..length]).then_some(Format::Parquet))
}

/// The records to query for.
struct Input {
    name: String,
    reader: RecordReader,
    header: Option<TableHeader>,
    /// `None` for a table without rows.
    extractor: Option<ItemExtractor>,
}

impl Input {
    fn open(name: String, file: &Arc<File>, format: Format, form: &ItemForm) -> Result<Self> {
        let compression = Compression::of_file(file, Path::new(&name));
        let compression = compression.with_context(|| name.clone())?;
        let limits = ReadLimits::default();
        let open = || -> Result<_> {
            let granularity = form.granularity();
            Ok(match format {
                Format::Parquet => {
                    refuse!(
                        "Parquet is read when a file is built; to ask, write its column as text or JSON Lines"
                    );
                }
                Format::Table { delimiter, has_header } => {
                    let of_table =
                        if has_header { TableHeader::read } else { TableHeader::numbered };
                    let header = of_table(Arc::clone(file), compression, delimiter, limits)?;
                    let extractor = header
                        .as_ref()
                        .map(|header| ItemExtractor::of_table(header, granularity))
                        .transpose()?;
                    let open = if has_header {
                        RecordReader::open_table
                    } else {
                        RecordReader::open_headless_table
                    };
                    let reader = open(Arc::clone(file), compression, delimiter, limits)?;
                    (reader, header.filter(|_| has_header), extractor)
                }
                Format::Text | Format::ZeroTerminated | Format::JsonLines => {
                    let extractor = ItemExtractor::new(format, granularity)?;
                    let reader = RecordReader::open(Arc::clone(file), compression, None, limits)?;
                    (reader.ending(format.record_end()), None, Some(extractor))
                }
            })
        };
        let (reader, header, extractor) = open().with_context(|| name.clone())?;
        let normalisers = form.normalisers()?;
        let extractor = extractor.map(|extractor| extractor.normalised(normalisers));
        Ok(Self { name, reader, header, extractor })
    }
}
