//! Converts a record to its item, the canonical bytes that are compared for equality.
//!
//! | granularity | text | JSON Lines | CSV, TSV |
//! |---|---|---|---|
//! | line | bytes up to `\n` | bytes up to `\n`, never parsed | bytes up to the line end |
//! | record | bytes up to `\n` | canonical form of the record | tag, length, text of each field |
//! | key | – | for each path: tag, length, value | the same for each column |

use std::ops::Range;

use crate::json::{Canonical, Cursor, PathTree};
use crate::key_group::{is_empty_key, write_group};
use crate::table::TableItems;
use crate::{
    Format, KeyPath, KeyPathError, Normalisers, RecordItemError, TableHeader, item_before,
};

/// The part of a record that is compared for equality.
///
/// ```
/// use umbel_records::Granularity;
///
/// let key = Granularity::Key(vec!["user.id".into(), "day".into()]);
/// assert_ne!(key, Granularity::Line);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Granularity {
    /// The bytes of the line, up to its `\n`. Nothing is parsed; a carriage return is part of the line.
    Line,
    /// The values of one or more fields, in this order: a [`KeyPath`] into JSON Lines, the exact
    /// name of a column in a table.
    Key(Vec<String>),
    /// The pieces of one text field, each up to its `\n`. No extractor produces them: see
    /// [`TextField`](crate::TextField).
    Paragraph(String),
    /// The whole content of a file. No extractor produces it: see
    /// [`ContentReader`](crate::ContentReader).
    File,
    /// The whole record: the line of a text; the value of a JSON line, independent of white space,
    /// escapes and order of fields; or the fields of a table's row, independent of quoting.
    Record,
}

/// Converts records to items. Has buffers that it reuses for every record.
///
/// Two JSON values are equal if their canonical forms are. That is RFC 8785 with two changes: `1`,
/// `1.0` and `1e0` are equal, integers written in digits are exact whatever their size, other numbers
/// equal the nearest f64 (from 1e21 on, an exponent and written-out digits differ); of fields with the
/// same name, the last one counts. White space, escapes and the order of fields do not matter; Unicode
/// is not normalised. Every record is validated as a whole, even if only one field is used.
///
/// ```
/// use umbel_records::{Format, Granularity, ItemExtractor};
///
/// let mut extractor = ItemExtractor::new(Format::JsonLines, Granularity::Record)?;
/// assert_eq!(extractor.item(b"{\"b\": 1.0, \"a\": \"\\u0041\"}\n")?, br#"{"a":"A","b":1}"#);
///
/// let key = Granularity::Key(vec!["user.id".into(), "tags.0".into()]);
/// let mut extractor = ItemExtractor::new(Format::JsonLines, key)?;
/// assert_eq!(extractor.item(br#"{"tags": ["x"], "user": {"id": 42}}"#)?, b"d\x0242s\x01x");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ItemExtractor {
    mode: Mode,
    /// The normalisers of lines.
    normalisers: Normalisers,
    /// The item that was produced last.
    item: Vec<u8>,
}

#[derive(Debug)]
enum Mode {
    /// The bytes before the one that ends a record.
    Line(u8),
    Record(Canonical),
    Key(KeyExtractor),
    Table(Box<TableItems>),
}

impl ItemExtractor {
    /// An extractor for records of `format`, which must not be a table: see
    /// [`of_table`](Self::of_table).
    ///
    /// # Errors
    /// [`ExtractorError`] if the format has no such granularity.
    pub fn new(format: Format, granularity: Granularity) -> Result<Self, ExtractorError> {
        let mode = match (format, granularity) {
            (_, Granularity::File) => return Err(ExtractorError::FileOfRecord),
            (_, Granularity::Paragraph(_)) => return Err(ExtractorError::ManyItems),
            (Format::Table { .. }, _) => return Err(ExtractorError::NoHeader),
            (Format::Parquet, _) => return Err(ExtractorError::Columns),
            (_, Granularity::Line)
            | (Format::Text | Format::ZeroTerminated, Granularity::Record) => {
                Mode::Line(format.record_end())
            }
            (Format::Text | Format::ZeroTerminated, Granularity::Key(_)) => {
                return Err(ExtractorError::KeyOfText);
            }
            (Format::JsonLines, Granularity::Record) => Mode::Record(Canonical::default()),
            (Format::JsonLines, Granularity::Key(paths)) => {
                Mode::Key(KeyExtractor::new(parse_paths(paths)?))
            }
        };
        Ok(Self { mode, normalisers: Normalisers::default(), item: Vec::new() })
    }

    /// An extractor for records of a table with this header.
    ///
    /// # Errors
    /// [`ExtractorError`] if the table has no such column.
    pub fn of_table(
        header: &TableHeader,
        granularity: Granularity,
    ) -> Result<Self, ExtractorError> {
        let mode = Mode::Table(Box::new(TableItems::new(header, granularity)?));
        Ok(Self { mode, normalisers: Normalisers::default(), item: Vec::new() })
    }

    /// The same, with normalisers that are applied to the whole line, or to every string value
    /// (not name) of a JSON record or key, or to every field of a table's record or key.
    ///
    /// ```
    /// use umbel_records::{Format, Granularity, ItemExtractor, Normaliser, Normalisers};
    ///
    /// let lower = Normalisers::new(vec![Normaliser::Lower]);
    /// let extractor = ItemExtractor::new(Format::JsonLines, Granularity::Record)?;
    /// let mut extractor = extractor.normalised(lower);
    /// assert_eq!(extractor.item(br#"{"A": ["B\u0041"]}"#)?, br#"{"A":["ba"]}"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn normalised(mut self, normalisers: Normalisers) -> Self {
        match &mut self.mode {
            Mode::Line(_) => self.normalisers = normalisers,
            Mode::Record(canonical) => *canonical = Canonical::new(normalisers),
            Mode::Key(key) => {
                key.canonical = Canonical::new(normalisers.clone());
                key.normalisers = normalisers;
            }
            Mode::Table(table) => table.set_normalisers(normalisers),
        }
        self
    }

    /// Returns a function that tells whether an item of this extractor is empty: it has no bytes, or
    /// only fields that are null or the empty string. A whole JSON value is never empty.
    pub fn emptiness(&self) -> fn(&[u8]) -> bool {
        let has_fields = match &self.mode {
            Mode::Line(_) | Mode::Record(_) => false,
            Mode::Key(_) => true,
            Mode::Table(table) => table.has_groups(),
        };
        if has_fields { is_empty_key } else { <[u8]>::is_empty }
    }

    /// The item of `record`, which may have its terminator or not. The result borrows from the record
    /// if the item is the line as it is; otherwise it is valid until the next call.
    ///
    /// # Errors
    /// [`RecordItemError`] if the record does not match the format or has no such field; never for lines.
    pub fn item<'a>(&'a mut self, record: &'a [u8]) -> Result<&'a [u8], RecordItemError> {
        self.item.clear();
        match &mut self.mode {
            Mode::Line(record_end) => {
                return Ok(self.normalisers.apply(item_before(record, *record_end)));
            }
            Mode::Record(canonical) => {
                let mut cursor = start(record)?;
                canonical.write(&mut cursor, &mut self.item)?;
                cursor.finish()?;
            }
            Mode::Key(key) => key.write(record, &mut self.item)?,
            Mode::Table(table) => table.write(record, &mut self.item)?,
        }
        Ok(&self.item)
    }
}

fn parse_paths(texts: Vec<String>) -> Result<Vec<KeyPath>, ExtractorError> {
    let parse = |key: String| match key.parse() {
        Ok(path) => Ok(path),
        Err(error) => Err(ExtractorError::BadKeyPath { key, error }),
    };
    match &texts[..] {
        [] => Err(ExtractorError::NoKeyPath),
        _ => texts.into_iter().map(parse).collect(),
    }
}

/// A cursor at the start of the value of `record`.
fn start(record: &[u8]) -> Result<Cursor<'_>, RecordItemError> {
    if let Err(error) = str::from_utf8(record) {
        return Err(RecordItemError::InvalidUtf8 { offset: error.valid_up_to() });
    }
    let mut cursor = Cursor::new(record);
    cursor.skip_space();
    Ok(cursor)
}

/// Writes the values of some fields.
#[derive(Debug)]
struct KeyExtractor {
    paths: Vec<KeyPath>,
    tree: PathTree,
    found: Vec<Option<Range<usize>>>,
    canonical: Canonical,
    normalisers: Normalisers,
    value: Vec<u8>,
}

impl KeyExtractor {
    fn new(paths: Vec<KeyPath>) -> Self {
        Self {
            tree: PathTree::new(&paths),
            found: vec![None; paths.len()],
            canonical: Canonical::default(),
            normalisers: Normalisers::default(),
            value: Vec::new(),
            paths,
        }
    }

    fn write(&mut self, record: &[u8], item: &mut Vec<u8>) -> Result<(), RecordItemError> {
        let mut cursor = start(record)?;
        self.tree.find(&mut cursor, &mut self.found)?;
        cursor.finish()?;
        for (path, span) in self.paths.iter().zip(&self.found) {
            let Some(span) = span else {
                return Err(RecordItemError::MissingKey { path: path.clone() });
            };
            self.value.clear();
            let mut cursor = Cursor::new(&record[span.clone()]);
            let tag = match cursor.peek() {
                Some(b'"') => {
                    cursor.string()?.unescape_into(&mut self.value);
                    write_group(b's', self.normalisers.apply(&self.value), item);
                    continue;
                }
                Some(word @ (b'n' | b't' | b'f')) => word,
                other => {
                    self.canonical.write(&mut cursor, &mut self.value)?;
                    match other {
                        Some(b'[') => b'a',
                        Some(b'{') => b'o',
                        _ => b'd',
                    }
                }
            };
            write_group(tag, &self.value, item);
        }
        Ok(())
    }
}

/// Why no extractor can be created. Change the request; nothing was done.
///
/// ```
/// use umbel_records::{ExtractorError, Format, Granularity, ItemExtractor};
///
/// let key = Granularity::Key(vec!["id".into()]);
/// let error = ItemExtractor::new(Format::Text, key).unwrap_err();
/// assert_eq!(error, ExtractorError::KeyOfText);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractorError {
    /// Items of Parquet are made of columns, not of records. A bug of the caller: use
    /// [`ParquetSelection`](crate::ParquetSelection).
    #[error("items of Parquet are made of its columns, not of records")]
    Columns,
    /// Keys of a text, which has no fields. Read it as JSON Lines or a table, or compare lines.
    #[error(
        "text has no fields to make a key of; read it as JSON Lines (--format jsonl), CSV or TSV, \
         or compare whole lines"
    )]
    KeyOfText,
    /// A record has many paragraphs, not one. A bug of the caller: read them from its text field.
    #[error("paragraphs are not one item of a record")]
    ManyItems,
    /// Paragraphs of a text, which has no fields: they would be its lines. Compare lines.
    #[error(
        "text has no field with paragraphs; read it as JSON Lines (--format jsonl), CSV or TSV, or \
         compare lines"
    )]
    ParagraphOfText,
    /// A record is not a file. A bug of the caller: read the content instead.
    #[error("a whole file is no item of a record")]
    FileOfRecord,
    /// A table without its header, which names or numbers the fields. A bug of the caller: call
    /// [`ItemExtractor::of_table`].
    #[error("a table cannot be read without its header")]
    NoHeader,
    /// The text is no path into JSON records. Correct it.
    #[error("key `{key}`: {error}")]
    BadKeyPath {
        /// The text.
        key: String,
        /// What is wrong with it.
        error: KeyPathError,
    },
    /// The header has no such column. Names are compared exactly, with upper and lower case.
    #[error("no column `{name}` in the header; it has {columns}")]
    NoSuchColumn {
        /// The name.
        name: String,
        /// The existing names.
        columns: String,
    },
    /// The table has no header, so columns are numbered, and no column has this number.
    #[error("no column `{name}`: without a header columns are numbered, here from 1 to {columns}")]
    NoSuchColumnNumber {
        /// The text that should be a column's number.
        name: String,
        /// How many columns there are.
        columns: usize,
    },
    /// The header has several columns of this name. Rename one of them.
    #[error("several columns are called `{name}`")]
    AmbiguousColumn {
        /// The name.
        name: String,
    },
    /// A key without fields, by which all records would be equal. Name at least one.
    #[error("the key has no fields; name at least one")]
    NoKeyPath,
}

#[cfg(test)]
mod item_test;
