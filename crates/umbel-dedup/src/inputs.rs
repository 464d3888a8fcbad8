//! The inputs of a job: what is known of each before it is read, and how it is opened.

use super::addresses::is_object;
use super::format_rule::FormatRule;
use super::row_groups::RowGroups;
use super::unreadable::Unreadable;
use umbel_files::{FileState, Inode, Likeness, OpenBelowError, Roots, inode_of, place_of};
use umbel_objects::{Object, ReadFailure};

use crate::error::{Context, DedupError, InputError, Result};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use umbel_records::{
    Compression, ExtractorError, Format, Granularity, ItemExtractor, ParquetFile, ScoreError,
    ScoreExtractor, Stored, TableHeader, TextField,
};

/// Bytes at the start of a file from which its compression is detected.
const HEAD_BYTES: usize = 64;

/// The location of a source's bytes.
#[derive(Clone, Debug)]
pub(super) enum Location {
    /// A regular file, opened when it is read, because a job may have more files than a process may have open.
    Path(PathBuf),
    /// The same, but it must be below one of these folders each time it is opened.
    Below(Roots, PathBuf),
    /// An open file without a (permanent) name.
    Open(Arc<File>),
    /// An object of a store.
    Object(Arc<Object>),
    /// A file that could not be opened.
    Unreadable(Arc<Unreadable>),
}

/// One input file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Its name in messages: the path as given, or `-`.
    pub(crate) name: String,
    /// Its path below the output directory.
    pub(crate) relative: PathBuf,
    /// Its absolute path. Links in its directory are resolved; a link as the last component is not.
    pub(crate) absolute: PathBuf,
    /// Identifies the file, however its path was given; `None` for a pipe.
    pub(crate) identity: Option<PathBuf>,
    /// Identifies the file, whatever links lead to it; `None` for a pipe and for an object.
    pub(crate) inode: Option<Inode>,
    /// Stored bytes at the start of the job.
    pub(crate) bytes: u64,
    /// Its compression.
    pub(crate) compression: Compression,
    /// How records are cut.
    pub(crate) format: Format,
    /// Of Parquet, the content of the footer, once it was read.
    pub(crate) row_groups: Option<Arc<RowGroups>>,
    /// Of a table, the header row, once it was read; a table without rows has none.
    pub(crate) header: Option<Arc<TableHeader>>,
    /// Whether it is copied as a whole and not compared.
    pub(crate) is_copied: bool,
    /// Its state when it was opened, if it is a file with a path.
    pub(super) opened: Option<FileState>,
    pub(super) location: Location,
}

impl Source {
    /// A file that was not read yet and has no identity yet.
    pub(super) const fn new(
        name: String,
        relative: PathBuf,
        bytes: u64,
        (compression, format): (Compression, Format),
        location: Location,
    ) -> Self {
        let (identity, inode, row_groups, header) = (None, None, None, None);
        Self {
            name,
            relative,
            absolute: PathBuf::new(),
            identity,
            inode,
            bytes,
            compression,
            format,
            row_groups,
            header,
            is_copied: false,
            opened: None,
            location,
        }
    }

    /// Opens its bytes.
    pub(crate) fn open(&self) -> Result<Stored> {
        match &self.location {
            Location::Open(file) => Ok(Stored::File(Arc::clone(file))),
            Location::Path(path) => {
                let file =
                    File::open(path).with_context(|| format!("{}: cannot open", self.name))?;
                Ok(Stored::File(Arc::new(file)))
            }
            Location::Below(roots, path) => {
                let file =
                    below(roots, path).with_context(|| format!("{}: cannot open", self.name))?;
                Ok(Stored::File(Arc::new(file)))
            }
            Location::Object(object) => Ok(Stored::Remote(Arc::clone(object) as _)),
            Location::Unreadable(nothing) => Ok(Stored::Remote(Arc::clone(nothing) as _)),
        }
    }

    /// Permissions and owner, if it is a file that still exists.
    pub(crate) fn likeness(&self) -> Option<Likeness> {
        Likeness::of(&self.file_metadata()?)
    }

    /// Its modification time, if it is a file that still exists.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.file_metadata()?.modified().ok()
    }

    /// Its state now, if it is a file with a path that still exists.
    pub(super) fn state_now(&self) -> Option<FileState> {
        Some(FileState::of(&self.file_metadata()?))
    }

    fn file_metadata(&self) -> Option<Metadata> {
        match &self.location {
            Location::Path(path) | Location::Below(_, path) => std::fs::metadata(path).ok(),
            Location::Open(_) | Location::Object(_) | Location::Unreadable(_) => None,
        }
    }

    /// Whether the path leads to this source.
    pub(crate) fn stands_at(&self, path: &Path) -> bool {
        match (self.inode, std::fs::metadata(path)) {
            (Some(inode), Ok(metadata)) => inode_of(&metadata) == Some(inode),
            _ => is_object(path) && self.absolute == path,
        }
    }

    /// Whether an output at this path replaces what this source was read from. A link to it is replaced itself, and so is
    /// another name of its file.
    pub(crate) fn is_replaced_at(&self, path: &Path) -> bool {
        // Of a link, and of a file without a path, whatever leads to the same file may be what it was read by.
        let has_own_name = self.inode.is_some() && self.identity.as_ref() == Some(&self.absolute);
        if is_object(path) || !has_own_name {
            return self.stands_at(path);
        }
        // On a file system that ignores case, one name has several spellings.
        let is_only_name = |there: Metadata| there.nlink() == 1 && inode_of(&there) == self.inode;
        place_of(path) == self.absolute || path.symlink_metadata().is_ok_and(is_only_name)
    }

    /// Whether it could not be opened: then it has no records, and counts as one bad record.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self.location, Location::Unreadable(_))
    }

    /// Whether it is an object of a store.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self.location, Location::Object(_))
    }

    /// The error if its bytes could not be read although the content may be intact, as of an object whose
    /// store does not respond. Such an error ends the job instead of counting as a bad record.
    pub(crate) fn failure(&self) -> Option<DedupError> {
        let Location::Object(object) = &self.location else { return None };
        let name = || self.name.clone();
        object.failure().map(|failure| match failure {
            ReadFailure::Changed => InputError::Changed(name()).into(),
            ReadFailure::Other(text) => DedupError::Failed(text).context(name()),
        })
    }

    /// Its length, and a value that differs if it was modified: the modification time in nanoseconds since 1970, or the
    /// state of an object.
    pub(crate) fn state(&self) -> Result<(u64, i64)> {
        let cannot = || format!("{}: cannot read", self.name);
        let metadata = match (&self.location, self.open()?) {
            (Location::Object(object), _) => return Ok((self.bytes, object.state())),
            (Location::Unreadable(_), _) => return Ok((0, 0)),
            (_, Stored::File(file)) => file.metadata().with_context(cannot)?,
            (_, Stored::Remote(_)) => unreachable!("objects alone are remote"),
        };
        let modified = metadata.modified().with_context(cannot)?;
        let modified_ns = match modified.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
        };
        Ok((metadata.len(), modified_ns))
    }

    /// Finds the text field whose paragraphs are compared; `None` for a table without records, and for Parquet.
    ///
    /// # Errors
    ///
    /// If the format has no fields, or the table no such column.
    pub(crate) fn text_field(&self, field: &str) -> Result<Option<TextField>, ExtractorError> {
        match (&self.header, self.format) {
            (Some(header), _) => TextField::of_table(header, field.to_owned()).map(Some),
            (None, Format::Table { .. }) => Ok(None),
            (None, Format::Text | Format::ZeroTerminated) => Err(ExtractorError::ParagraphOfText),
            // `row_content` reads the texts of columns.
            (None, Format::Parquet) => Ok(None),
            (None, Format::JsonLines) => TextField::of_json(field.to_owned()).map(Some),
        }
    }

    /// What its name promises and its content does not keep, for messages; else nothing.
    pub(crate) fn name_note(&self) -> &'static str {
        if self.format == Format::Text && self.name.ends_with(".parquet") {
            " (it is named .parquet and read as text)"
        } else {
            ""
        }
    }

    /// Checks that records have the items that are compared.
    ///
    /// # Errors
    ///
    /// If the format has no such granularity, or the table no such column.
    pub(crate) fn check(&self, granularity: &Granularity) -> Result<(), ExtractorError> {
        match granularity {
            _ if self.is_copied => Ok(()),
            Granularity::File => Ok(()),
            Granularity::Paragraph(field) => self.text_field(field).map(drop),
            _ => self.extractor(granularity).map(drop),
        }
    }

    /// Extracts the items of records; `None` for a table without records, and for Parquet.
    ///
    /// # Errors
    ///
    /// If the format has no such granularity, or the table no such column.
    pub(crate) fn extractor(
        &self,
        granularity: &Granularity,
    ) -> Result<Option<ItemExtractor>, ExtractorError> {
        match (&self.header, self.format.delimiter()) {
            (Some(header), _) => ItemExtractor::of_table(header, granularity.clone()).map(Some),
            (None, Some(_)) => Ok(None),
            // `row_content` reads the items of columns.
            (None, None) if self.format == Format::Parquet => Ok(None),
            (None, None) => ItemExtractor::new(self.format, granularity.clone()).map(Some),
        }
    }

    /// Finds a field's number in records; `None` for a table without records, and for Parquet.
    ///
    /// # Errors
    ///
    /// If records of this format have no such field.
    pub(crate) fn score_extractor(
        &self,
        field: &str,
    ) -> Result<Option<ScoreExtractor>, ScoreError> {
        match (&self.header, self.format.delimiter()) {
            (Some(header), _) => ScoreExtractor::of_table(header, field).map(Some),
            (None, Some(_)) => Ok(None),
            // `row_content` reads the numbers of columns.
            (None, None) if self.format == Format::Parquet => Ok(None),
            (None, None) => ScoreExtractor::new(self.format, field).map(Some),
        }
    }
}

/// Resolves paths, and caches the last directory, because files are found directory by directory.
#[derive(Default)]
pub(super) struct Directories {
    last: Option<(PathBuf, PathBuf)>,
}

impl Directories {
    /// The file's name in its resolved directory.
    pub(super) fn identity(&mut self, path: &Path) -> PathBuf {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return place_of(path);
        };
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            let resolved = place_of(path);
            let directory = resolved.parent().unwrap_or(&resolved).to_owned();
            self.last = Some((parent.to_owned(), directory));
        }
        let (_, directory) = self.last.as_ref().expect("just set");
        directory.join(name)
    }
}

/// Opens a file below one of these folders.
fn below(roots: &Roots, path: &Path) -> Result<File> {
    roots.open(path).map_err(|error| match error {
        OpenBelowError::NotBelow(error) => error.into(),
        OpenBelowError::Io(error) => error.into(),
    })
}

pub(super) fn source(
    path: PathBuf,
    format: FormatRule,
    scratch: &Path,
    directories: &mut Directories,
    roots: Option<&Roots>,
) -> Result<Source> {
    let name = path.display().to_string();
    let cannot = || format!("{name}: cannot read");
    let file = match roots {
        Some(roots) => below(roots, &path),
        None => File::open(&path).map_err(DedupError::from),
    };
    let file = file.with_context(cannot)?;
    let metadata = file.metadata().with_context(cannot)?;
    let by_name = Format::from_name(&path);
    if metadata.is_file() {
        let (compression, detected) = detect(&file, &path).with_context(cannot)?;
        let format = format.format_of(detected, by_name);
        let relative = directories.identity(&path);
        let is_link = std::fs::symlink_metadata(&path).with_context(cannot)?.is_symlink();
        let identity = Some(if is_link { identity(&path) } else { relative.clone() });
        let absolute = relative.clone();
        let location = match roots {
            Some(roots) => Location::Below(roots.clone(), path),
            None => Location::Path(path),
        };
        let source = Source::new(name, relative, metadata.len(), (compression, format), location);
        let (inode, opened) = (inode_of(&metadata), Some(FileState::of(&metadata)));
        return Ok(Source { identity, absolute, inode, opened, ..source });
    }
    // A pipe or device can be read only once, and the job reads twice.
    let relative = PathBuf::from(path.file_name().unwrap_or_default());
    spooled(file, name, relative, (format, by_name), scratch)
}

pub(super) fn stdin(format: FormatRule, scratch: &Path) -> Result<Source> {
    let name = "-".to_owned();
    let cannot = || "standard input: cannot read";
    let file = io::stdin().as_fd().try_clone_to_owned().with_context(cannot)?;
    let mut file = File::from(file);
    let relative = PathBuf::from("stdin");
    let metadata = file.metadata().with_context(cannot)?;
    let at_start = file.stream_position().is_ok_and(|position| position == 0);
    if metadata.is_file() && at_start {
        let (compression, detected) = detect(&file, &relative).with_context(cannot)?;
        let format = format.format_of(detected, Format::Text);
        let bytes = metadata.len();
        // The offset of a shared descriptor moves, as with any program that reads it.
        file.seek(SeekFrom::End(0)).with_context(cannot)?;
        let location = Location::Open(Arc::new(file));
        let source = Source::new(name, relative, bytes, (compression, format), location);
        return Ok(Source { inode: inode_of(&metadata), ..source });
    }
    spooled(file, name, relative, (format, Format::Text), scratch)
}

/// Copies an input that can be read once to an unnamed scratch file.
fn spooled(
    mut from: impl Read,
    name: String,
    relative: PathBuf,
    (format, by_name): (FormatRule, Format),
    scratch: &Path,
) -> Result<Source> {
    let cannot = || format!("{name}: cannot copy to a scratch file in {}", scratch.display());
    let mut file = tempfile::tempfile_in(scratch).with_context(cannot)?;
    let bytes = io::copy(&mut from, &mut file).with_context(cannot)?;
    let (compression, detected) = detect(&file, &relative).with_context(cannot)?;
    let format = format.format_of(detected, by_name);
    let location = Location::Open(Arc::new(file));
    Ok(Source::new(name, relative, bytes, (compression, format), location))
}

/// The compression of a file of this name, and its format if the content shows it.
fn detect(file: &File, name: &Path) -> io::Result<(Compression, Option<Format>)> {
    let mut head = [0; HEAD_BYTES];
    let mut filled = 0;
    while filled < HEAD_BYTES {
        match file.read_at(&mut head[filled..], filled as u64)? {
            0 => break,
            bytes => filled += bytes,
        }
    }
    Ok(detected(&head[..filled], name))
}

/// As [`detect`], from the first bytes.
pub(super) fn detected(head: &[u8], name: &Path) -> (Compression, Option<Format>) {
    let format = ParquetFile::is_magic(head).then_some(Format::Parquet);
    (Compression::detect_named(head, name), format)
}

/// The identity of the file that a path names, whether it exists or not: absolute, with links resolved. That of an object
/// is its address.
pub fn identity(path: &Path) -> PathBuf {
    if is_object(path) {
        return path.to_owned();
    }
    std::fs::canonicalize(path).unwrap_or_else(|_| place_of(path))
}

/// Whether a path is the dash that stands for standard input or output.
pub(crate) fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// Makes absolute paths relative to their common directory, which also contains all directories that were
/// named, wherever the files below these are.
pub(super) fn set_relative_paths(sources: &mut [Source], roots: &[PathBuf]) {
    let named = || sources.iter().filter(|source| source.relative.is_absolute());
    let Some(mut common) = named().next().map(|source| source.relative.clone()) else { return };
    common.pop();
    for source in named() {
        while !source.relative.starts_with(&common) {
            common.pop();
        }
    }
    for root in roots {
        while !root.starts_with(&common) {
            common.pop();
        }
    }
    for source in sources.iter_mut() {
        if let Ok(relative) = source.relative.strip_prefix(&common) {
            source.relative = relative.to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_spooled() {
        let scratch = std::env::temp_dir();
        let format = (FormatRule::default(), Format::Text);
        let spool = spooled(&b"abc"[..], "-".into(), "stdin".into(), format, &scratch).unwrap();
        assert_eq!((spool.bytes, spool.compression), (3, Compression::Plain));
    }
}
