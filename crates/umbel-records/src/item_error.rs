//! Why a record has no item.
//!
//! It is separate from `ReadError` because the consequence differs: a bad record can be skipped and the
//! next one read, a damaged file has no next one. Offsets are relative to the start of the record,
//! since only the caller knows where that is.

use crate::KeyPath;

/// Why a record has no item. The record is bad, not the reading: the next one can be read. Correct the
/// input, or skip the record and count it by [`cause`](Self::cause).
///
/// ```
/// use umbel_records::{Format, Granularity, ItemExtractor};
///
/// let key = Granularity::Key(vec!["id".into()]);
/// let mut extractor = ItemExtractor::new(Format::JsonLines, key)?;
/// let error = extractor.item(br#"{"id": 7,}"#).unwrap_err();
/// assert_eq!(error.cause(), "invalid_json");
/// assert_eq!(error.to_string(), "invalid JSON at byte 9 of the record: expected a field name");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordItemError {
    /// The record is not one JSON value (RFC 8259); an empty line is none either.
    #[error("invalid JSON at byte {offset} of the record: {detail}")]
    InvalidJson {
        /// First byte that is invalid, relative to the start of the record.
        offset: usize,
        /// What is wrong there.
        detail: &'static str,
    },
    /// The record is not UTF-8, as JSON must be. Convert the file.
    #[error("invalid UTF-8 at byte {offset} of the record")]
    InvalidUtf8 {
        /// First byte that is invalid, relative to the start of the record.
        offset: usize,
    },
    /// A string holds half of a UTF-16 pair (`"\ud800"`), which names no character and has no
    /// canonical form (RFC 8785, 3.2.2.2).
    #[error("unpaired surrogate at byte {offset} of the record")]
    LoneSurrogate {
        /// Offset of the escape in bytes from the start of the record.
        offset: usize,
    },
    /// A number written with a fraction or exponent is larger than any f64. Integers have no limit.
    #[error("number out of range of f64 at byte {offset} of the record")]
    NumberOutOfRange {
        /// Offset of the number in bytes from the start of the record.
        offset: usize,
    },
    /// The record is nested too deep.
    #[error("more than {limit} nested arrays and objects at byte {offset} of the record")]
    NestedTooDeep {
        /// Offset of the bracket that exceeds the limit, in bytes from the start of the record.
        offset: usize,
        /// Deepest nesting accepted.
        limit: usize,
    },
    /// The number of fields differs from that of the table's first row, which is mostly a header. Often
    /// a quote or delimiter should have been quoted.
    #[error("expected {expected} fields, as in the first row, found {found}")]
    FieldCount {
        /// Fields of the record.
        found: usize,
        /// Fields of the first row.
        expected: usize,
    },
    /// A key column of a table's record is not UTF-8. Convert the file.
    #[error("column `{column}` is not valid UTF-8")]
    FieldNotUtf8 {
        /// Name of the column.
        column: String,
    },
    /// A quote is open at the end of a table's record.
    #[error("a quoted field does not end")]
    UnclosedQuote,
    /// The requested text field is not a string.
    #[error("field `{path}` is not a string")]
    NoText {
        /// The path to the field.
        path: KeyPath,
    },
    /// The record is valid but has no such field. Correct the path if that holds for every record.
    #[error("no field `{path}` in the record")]
    MissingKey {
        /// The first key path, in the order given, that is not in the record.
        path: KeyPath,
    },
}

impl RecordItemError {
    /// A stable snake_case name of the cause, for summaries that count by cause: `invalid_json`,
    /// `invalid_utf8`, `lone_surrogate`, `number_out_of_range`, `nested_too_deep`, `field_count`,
    /// `unclosed_quote`, `no_text` or `missing_key`.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::InvalidJson { .. } => "invalid_json",
            Self::InvalidUtf8 { .. } | Self::FieldNotUtf8 { .. } => "invalid_utf8",
            Self::LoneSurrogate { .. } => "lone_surrogate",
            Self::NumberOutOfRange { .. } => "number_out_of_range",
            Self::NestedTooDeep { .. } => "nested_too_deep",
            Self::FieldCount { .. } => "field_count",
            Self::UnclosedQuote => "unclosed_quote",
            Self::NoText { .. } => "no_text",
            Self::MissingKey { .. } => "missing_key",
        }
    }
}
