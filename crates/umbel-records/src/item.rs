//! From a record to its item, the canonical bytes that are compared for equality.
//!
//! | granularity | text | JSON Lines |
//! |---|---|---|
//! | line | bytes up to `\n` | bytes up to `\n`, never parsed |
//! | record | bytes up to `\n` | canonical form of the record |
//! | key | – | for each path: tag, length, value |
//!
//! The layout of a key, one group per path in the order given, with the length of the value in
//! bytes as LEB128 (7 bits per byte, low bits first, the high bit says that more follow):
//! ```text
//! | tag | length | value |       n null, t true, f false: empty      s string: unescaped UTF-8
//! | u8  |  1..10 |       |       d number, a array, o object: canonical form
//! ```
//! Tags keep `null`, `""`, `"null"` and `0` apart, lengths keep ("a", "bc") and ("ab", "c") apart.

use std::ops::Range;

use crate::json::{Canonical, Cursor, PathTree};
use crate::{Format, ItemError, KeyPath, line_item};

/// What of a record is compared for equality.
///
/// ```
/// use umbel_records::Granularity;
///
/// let key = Granularity::Key(vec!["user.id".parse()?, "day".parse()?]);
/// assert_ne!(key, Granularity::Line);
/// # Ok::<(), umbel_records::KeyPathError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Granularity {
    /// The bytes of the line, up to its `\n`. Nothing is parsed, a carriage return counts.
    Line,
    /// The values of one or more fields, in this order. JSON Lines only.
    Key(Vec<KeyPath>),
    /// The whole record: the line of a text, the value of a JSON line, whatever its white space,
    /// escapes and order of fields.
    Record,
}

/// Turns records into items. Holds buffers that are used again for every record.
///
/// Two JSON values are equal if their canonical forms are, RFC 8785 with two changes: `1`, `1.0`
/// and `1e0` are equal, integers written in digits are exact whatever their size, other numbers
/// equal the nearest f64 (from 1e21 on, an exponent and written-out digits differ); of fields with
/// the same name the last one counts; white space, escapes and the order of fields do not matter;
/// Unicode is not normalised. Every record is checked as a whole, also where one field is wanted.
///
/// ```
/// use umbel_records::{Format, Granularity, ItemExtractor};
///
/// let mut extractor = ItemExtractor::new(Format::JsonLines, Granularity::Record)?;
/// assert_eq!(extractor.item(b"{\"b\": 1.0, \"a\": \"\\u0041\"}\n")?, br#"{"a":"A","b":1}"#);
///
/// let key = Granularity::Key(vec!["user.id".parse()?, "tags.0".parse()?]);
/// let mut extractor = ItemExtractor::new(Format::JsonLines, key)?;
/// assert_eq!(extractor.item(br#"{"tags": ["x"], "user": {"id": 42}}"#)?, b"d\x0242s\x01x");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ItemExtractor {
    mode: Mode,
    /// The item made last.
    item: Vec<u8>,
}

#[derive(Debug)]
enum Mode {
    Line,
    Record(Canonical),
    Key(KeyExtractor),
}

impl ItemExtractor {
    /// An extractor for records of `format`.
    ///
    /// # Errors
    /// [`ExtractorError`] if the format has no such granularity.
    pub fn new(format: Format, granularity: Granularity) -> Result<Self, ExtractorError> {
        let mode = match (format, granularity) {
            (_, Granularity::Line) | (Format::Text, Granularity::Record) => Mode::Line,
            (Format::Text, Granularity::Key(_)) => return Err(ExtractorError::KeyOfText),
            (Format::JsonLines, Granularity::Record) => Mode::Record(Canonical::default()),
            (Format::JsonLines, Granularity::Key(paths)) if paths.is_empty() => {
                return Err(ExtractorError::NoKeyPath);
            }
            (Format::JsonLines, Granularity::Key(paths)) => Mode::Key(KeyExtractor::new(paths)),
        };
        Ok(Self { mode, item: Vec::new() })
    }

    /// The item of `record`, with or without its terminator: borrowed from the record if it is a
    /// line of it, otherwise valid until the next call.
    ///
    /// # Errors
    /// [`ItemError`] if the record is not what the format says or has no such field; none for
    /// lines.
    pub fn item<'a>(&'a mut self, record: &'a [u8]) -> Result<&'a [u8], ItemError> {
        self.item.clear();
        match &mut self.mode {
            Mode::Line => return Ok(line_item(record)),
            Mode::Record(canonical) => {
                let mut cursor = start(record)?;
                canonical.write(&mut cursor, &mut self.item)?;
                cursor.finish()?;
            }
            Mode::Key(key) => key.write(record, &mut self.item)?,
        }
        Ok(&self.item)
    }
}

/// A cursor at the value of `record`.
fn start(record: &[u8]) -> Result<Cursor<'_>, ItemError> {
    if let Err(error) = str::from_utf8(record) {
        return Err(ItemError::InvalidUtf8 { offset: error.valid_up_to() });
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
    value: Vec<u8>,
}

impl KeyExtractor {
    fn new(paths: Vec<KeyPath>) -> Self {
        Self {
            tree: PathTree::new(&paths),
            found: vec![None; paths.len()],
            canonical: Canonical::default(),
            value: Vec::new(),
            paths,
        }
    }

    fn write(&mut self, record: &[u8], item: &mut Vec<u8>) -> Result<(), ItemError> {
        let mut cursor = start(record)?;
        self.tree.find(&mut cursor, &mut self.found)?;
        cursor.finish()?;
        for (path, span) in self.paths.iter().zip(&self.found) {
            let Some(span) = span else {
                return Err(ItemError::MissingKey { path: path.clone() });
            };
            self.value.clear();
            let mut cursor = Cursor::new(&record[span.clone()]);
            let tag = match cursor.peek() {
                Some(b'"') => {
                    cursor.string()?.unescape_into(&mut self.value);
                    b's'
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
            item.push(tag);
            write_length(self.value.len(), item);
            item.extend_from_slice(&self.value);
        }
        Ok(())
    }
}

/// Appends `length` as LEB128.
fn write_length(mut length: usize, target: &mut Vec<u8>) {
    while length >= 0x80 {
        target.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    target.push(length.to_le_bytes()[0]);
}

/// Why no extractor can be made. Change the request; nothing was done.
///
/// ```
/// use umbel_records::{ExtractorError, Format, Granularity, ItemExtractor};
///
/// let key = Granularity::Key(vec!["id".parse()?]);
/// let error = ItemExtractor::new(Format::Text, key).unwrap_err();
/// assert_eq!(error, ExtractorError::KeyOfText);
/// # Ok::<(), umbel_records::KeyPathError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExtractorError {
    /// Keys of a text, which has no fields. Read it as JSON Lines, or compare lines.
    #[error("text has no fields to make a key of; read it as JSON Lines or compare whole lines")]
    KeyOfText,
    /// A key of no fields, by which all records would be equal. Name at least one.
    #[error("the key has no fields; name at least one")]
    NoKeyPath,
}

#[cfg(test)]
mod item_test;
