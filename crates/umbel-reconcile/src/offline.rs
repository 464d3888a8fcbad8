//! Sketch files in place of a set: builds them, keeps them up to date, compares them with a set or with
//! each other.

use super::apply;
use super::form::Form;
use super::frozen::FrozenFile;
use super::open::open_set;
use super::set::{ItemSet, Shown};
use crate::error::{Context, ReconcileError, Result, ensure, failed};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use umbel_files::UsageError;
use umbel_reconcile_engine::{
    Item, Limits, RemoteItem, SketchCell, SketchDecoder, SketchDifference, SketchError,
    SketchHeader, SketchReader, SketchSpec, StoredSketch, SymbolKind,
};

/// Suffix of sketch file names.
const EXTENSION: &str = ".sketch";

/// Where to read a sketch from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SketchPlace {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

impl SketchPlace {
    /// Parses an endpoint; `None` if it is not a sketch.
    pub(super) fn parse(text: &OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        match bytes.strip_prefix(b"sketch:") {
            Some(b"-") => Some(Self::Stdin),
            Some(path) => Some(Self::File(OsStr::from_bytes(path).into())),
            None => bytes.ends_with(EXTENSION.as_bytes()).then(|| Self::File(text.into())),
        }
    }

    fn open(&self) -> Result<Box<dyn Read>> {
        Ok(match self {
            Self::File(path) => Box::new(File::open(path).with_context(|| self.to_string())?),
            Self::Stdin => Box::new(std::io::stdin()),
        })
    }
}

impl fmt::Display for SketchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}

/// A sketch while it is read.
struct Reading<'p> {
    place: &'p SketchPlace,
    source: Box<dyn Read>,
    reader: SketchReader,
    read_bytes: u64,
    bytes_max: u64,
}

impl<'p> Reading<'p> {
    fn new(place: &'p SketchPlace, bytes_max: u64) -> Result<Self> {
        let source = place.open()?;
        Ok(Self { place, source, reader: SketchReader::new(), read_bytes: 0, bytes_max })
    }

    /// Reads until the header is complete.
    fn header(&mut self) -> Result<SketchHeader> {
        while self.reader.header().is_none() {
            self.next_cells()?;
        }
        Ok(self.reader.header().cloned().expect("it was read"))
    }

    /// The next coded symbols; empty while the header is incomplete. `None` at the end.
    fn next_cells(&mut self) -> Result<Option<Vec<SketchCell>>> {
        let shown = || self.place.to_string();
        let wanted_bytes = self.reader.wanted_bytes();
        if wanted_bytes == 0 {
            return Ok(None);
        }
        self.read_bytes += wanted_bytes as u64;
        ensure!(
            self.read_bytes <= self.bytes_max,
            "{}: more than {} bytes, which --max-bytes allows, would have to be read",
            self.place,
            self.bytes_max
        );
        let mut bytes = Vec::with_capacity(wanted_bytes);
        let mut part = self.source.by_ref().take(wanted_bytes as u64);
        let read_bytes = part.read_to_end(&mut bytes).with_context(shown)?;
        let cells = self.reader.push(&bytes).with_context(shown)?;
        if read_bytes < wanted_bytes {
            self.reader.end().with_context(shown)?;
        }
        Ok(Some(cells))
    }

    fn whole(mut self) -> Result<(StoredSketch, u64)> {
        let header = self.header()?;
        let mut cells = Vec::new();
        while let Some(more) = self.next_cells()? {
            cells.extend(more);
        }
        let mut behind = [0];
        let behind = self.source.read(&mut behind).with_context(|| self.place.to_string())?;
        ensure!(behind == 0, "{}: something follows the sketch", self.place);
        let sketch = StoredSketch::of_parts(header, cells);
        Ok((sketch.with_context(|| self.place.to_string())?, self.read_bytes))
    }
}

/// A sketch file, which may be changed.
pub struct SketchFile {
    pub(super) file: FrozenFile,
    /// Its contents.
    pub sketch: StoredSketch,
}

impl SketchFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a sketch.
    pub fn open(path: &Path) -> Result<Self> {
        let file = FrozenFile::open(path)?;
        let place = SketchPlace::File(path.to_owned());
        let (sketch, _) = Reading::new(&place, u64::MAX)?.whole()?;
        Ok(Self { file, sketch })
    }

    /// The sketch of another set of the same form, with `coded_count` coded symbols.
    ///
    /// # Errors
    ///
    /// If the set cannot be read, or its items are of another form.
    pub fn sketch_of(&self, path: &Path, form: &Form, coded_count: u64) -> Result<StoredSketch> {
        let set = open_set(path, form)?;
        let spec = &self.sketch.spec();
        check_form(self.file.path().display(), spec, (set.kind(), set.id_bytes()), form)?;
        sketch_of(&*set, self.sketch.spec(), coded_count)
    }

    /// Replaces the file with another sketch, durably.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or somebody else has changed the file.
    pub fn replace(&self, sketch: &StoredSketch) -> Result<()> {
        apply::replace(&self.file, |target| target.write(&sketch.to_bytes()))
    }
}

/// Checks that a sketch is of items of this kind and form, and of ids of this length.
pub(super) fn check_form(
    name: impl fmt::Display,
    spec: &SketchSpec,
    (kind, id_bytes): (SymbolKind, usize),
    form: &Form,
) -> Result<(), UsageError> {
    if (spec.kind(), spec.dataset_id()) == (kind, form.dataset_id_of(id_bytes)) {
        return Ok(());
    }
    Err(UsageError(format!(
        "{name}: its items are others: say --ids, --id-bytes, --kv, --key or --dir as when it was built"
    )))
}

/// The sketch of a set.
///
/// # Errors
///
/// If the set cannot be read.
pub fn sketch_of(set: &dyn ItemSet, spec: SketchSpec, coded_count: u64) -> Result<StoredSketch> {
    let mut pass = spec.pass(coded_count)?;
    set.scan(&mut pass)?;
    Ok(StoredSketch::of_pass(spec, pass)?)
}

/// What a comparison found, and what it cost.
pub struct Compared {
    /// The difference.
    pub difference: SketchDifference,
    /// What only this side has, in human-readable form.
    pub here_lines: Vec<Vec<u8>>,
    /// What only the other side has, in human-readable form.
    pub there_lines: Vec<Vec<u8>>,
    /// Bytes of sketches read.
    pub read_bytes: u64,
}

/// Compares a set with a sketch, of which it reads only as much as it needs.
///
/// # Errors
///
/// If one of them cannot be read, the sketch is too short, or the decoded difference contradicts the set.
pub fn compare_with_set(
    path: &Path,
    form: &Form,
    place: &SketchPlace,
    limits: &Limits,
) -> Result<Compared> {
    let set = open_set(path, form)?;
    let mut reading = Reading::new(place, limits.bytes_max)?;
    let header = reading.header()?;
    check_form(place, &header.spec(), (set.kind(), set.id_bytes()), form)?;
    let mut pass = header.pass();
    set.scan(&mut pass)?;
    let explain = |error| explain(place, &error);
    let mut decoder = SketchDecoder::new(&header, pass, limits.diff_max).map_err(explain)?;
    while let Some(cells) = reading.next_cells()? {
        if decoder.push(&cells).map_err(explain)? {
            break;
        }
    }
    let read_bytes = reading.read_bytes;
    let difference = decoder.finish().map_err(explain)?;
    check_limit(&difference, limits)?;
    let line = |shown| match shown {
        Shown::OnlyHere(text) | Shown::OnlyThere(text) | Shown::Changed(text) => text,
        Shown::Renamed { here, .. } => here,
    };
    let ours = set.items(&difference.only_here_indices)?;
    let here_lines = set.show(&ours, &[])?.into_iter().map(line).collect();
    let there_lines = lines(&difference.only_there, &header.spec());
    Ok(Compared { difference, here_lines, there_lines, read_bytes })
}

/// Compares two sketches.
///
/// # Errors
///
/// As for [`compare_with_set`]; if their salts differ.
pub fn compare_sketches(a: &SketchPlace, b: &SketchPlace, limits: &Limits) -> Result<Compared> {
    if (a, b) == (&SketchPlace::Stdin, &SketchPlace::Stdin) {
        return Err(UsageError("one of the sketches must be a file".into()).into());
    }
    let (here, here_bytes) = Reading::new(a, limits.bytes_max)?.whole()?;
    let (there, there_bytes) = Reading::new(b, limits.bytes_max)?.whole()?;
    let shorter = if here.coded_count() < there.coded_count() { a } else { b };
    let difference = here.difference(&there).map_err(|error| explain(shorter, &error))?;
    check_limit(&difference, limits)?;
    let here_lines = lines(&difference.only_here, &here.spec());
    let there_lines = lines(&difference.only_there, &here.spec());
    let read_bytes = here_bytes + there_bytes;
    Ok(Compared { difference, here_lines, there_lines, read_bytes })
}

/// Describes what is wrong with a sketch, and what to do.
fn explain(place: &SketchPlace, error: &SketchError) -> ReconcileError {
    let hint = match error {
        SketchError::InsufficientSymbols { need_at_least, .. } => format!(
            ": where its set is, run `umbel sketch extend {place} FILE --symbols {need_at_least}`"
        ),
        _ => String::new(),
    };
    failed!("{place}: {error}{hint}")
}

fn check_limit(difference: &SketchDifference, limits: &Limits) -> Result<()> {
    let count = difference.only_here.len() as u64 + difference.only_there.len() as u64;
    ensure!(
        count <= limits.diff_max,
        "{count} items differ, --max-diff allows {}",
        limits.diff_max
    );
    Ok(())
}

/// Ids as in files; symbols as hexadecimal digits after a `#`.
fn lines(items: &[RemoteItem], spec: &SketchSpec) -> Vec<Vec<u8>> {
    let digits = usize::from(spec.symbol_bits().div_ceil(4));
    let line = |item: &RemoteItem| match item.item {
        Some(Item::Id(id)) => format!("{id:016x}").into_bytes(),
        _ => {
            let symbol = item.symbol >> (64 - u32::from(spec.symbol_bits()));
            format!("#{symbol:0digits$x}").into_bytes()
        }
    };
    items.iter().map(line).collect()
}

impl Compared {
    /// Whether nothing differs.
    pub fn is_equal(&self) -> bool {
        self.difference.only_here.is_empty() && self.difference.only_there.is_empty()
    }
}
