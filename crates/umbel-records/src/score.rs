//! Maps the numbers of a field to 64 bits with the same order, to choose the best of equal records.
//!
//! Numbers compare by value, whether they are written as integers or with a fraction. All f64 values
//! and all 64-bit integers together are more than 2^64 values, so the ends of the range are coarse.
//! Zones of the image, by magnitude:
//!
//! ```text
//! 0 ........ 2^-896 ................... 2^53 ................ 2^62 ................ infinity
//! |  coarse  |  every f64               |  every integer      |  coarse             |
//! ```
//!
//! In a coarse zone, the last four bits of an f64 are left out: at and above 2^62 (4.6e18) two numbers
//! differ only if their leading 49 bits do, and so below 2^-896 (1.9e-270) down to 0. Positive numbers
//! take the codes upwards from the middle of the 64 bits, negative ones downwards; neither end is
//! reached, so 0 and 2^64 − 1 are free for "no number".

use std::ops::Range;

use crate::json::{Cursor, PathTree};
use crate::table::TableFields;
use crate::{ExtractorError, Format, KeyPathError, TableHeader};

/// Bits of an f64 that a coarse zone leaves out.
const COARSE_BITS: u32 = 4;

/// The f64 2^`exponent` as bits.
const fn bits_of_power(exponent: i64) -> u64 {
    ((exponent + 1023) as u64) << 52
}

/// From this f64 on, every f64 has a code of its own; as bits.
const FINE_FROM: u64 = bits_of_power(-896);

/// From this integer on, every integer has a code of its own: an f64 skips some from here on.
const INTEGERS_FROM: u64 = 1 << 53;

/// The first integer that has no code of its own any more.
const INTEGERS_END: u64 = 1 << 62;

/// First code of each zone above the lowest one.
const FINE_CODE: u64 = FINE_FROM >> COARSE_BITS;
const INTEGERS_CODE: u64 = FINE_CODE + (bits_of_power(53) - FINE_FROM);
const HUGE_CODE: u64 = INTEGERS_CODE + (INTEGERS_END - INTEGERS_FROM);

/// The image of 0.
const ZERO: u64 = 1 << 63;

/// A number by which records are compared to keep the best of equal ones.
///
/// ```
/// use umbel_records::Score;
///
/// let score = |text: &str| Score::of_text(text.as_bytes());
/// assert!(score("9007199254740993") > score("9007199254740992.0"));
/// assert!(score("0.5") > score("-3") && score("1e2") == score("100"));
/// assert_eq!(score("five"), None);
/// assert_eq!(Score::of_integer(0).image(), 1 << 63);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Score(u64);

/// The value of a [`Score`].
///
/// ```
/// use umbel_records::{Score, ScoreValue};
///
/// assert_eq!(Score::of_text(b"2.50").unwrap().value(), ScoreValue::Float(2.5));
/// assert_eq!(Score::of_text(b"-7.0").unwrap().value(), ScoreValue::Integer(-7));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScoreValue {
    /// A whole number below 2^62 in magnitude, however it was written.
    Integer(i64),
    /// Any other number; in a coarse zone, the one of smallest magnitude with the same image.
    Float(f64),
}

impl Score {
    /// The score of an integer.
    #[must_use]
    pub fn of_integer(value: i128) -> Self {
        Self::signed(value < 0, code_of_integer(value.unsigned_abs()))
    }

    /// The score of a float; `None` for NaN, which has no order. Both zeros are equal.
    #[must_use]
    pub fn of_float(value: f64) -> Option<Self> {
        (!value.is_nan()).then(|| Self::signed(value < 0.0, code_of_float(value.abs())))
    }

    /// The score of a decimal number, with optional sign, fraction and exponent, and optional blanks
    /// around it: an integer is exact up to 38 digits, any other number is the nearest f64. `None` for
    /// any other text.
    #[must_use]
    pub fn of_text(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text.trim_ascii()).ok()?;
        if let Ok(integer) = text.parse() {
            return Some(Self::of_integer(integer));
        }
        // Other texts that Rust parses as floats, the names of infinity and NaN, are not decimals.
        let is_decimal = |byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        if !text.bytes().all(is_decimal) {
            return None;
        }
        Self::of_float(text.parse().ok()?)
    }

    /// The score with this image, as returned by [`Score::image`].
    #[must_use]
    pub const fn from_image(image: u64) -> Self {
        Self(image)
    }

    /// 64 bits with the same order as the numbers; never 0 and never 2^64 − 1.
    #[must_use]
    pub const fn image(self) -> u64 {
        self.0
    }

    /// The number.
    #[must_use]
    pub fn value(self) -> ScoreValue {
        let is_negative = self.0 < ZERO;
        let code = self.0.abs_diff(ZERO);
        if (INTEGERS_CODE..HUGE_CODE).contains(&code) {
            let value = (code - INTEGERS_CODE + INTEGERS_FROM).cast_signed();
            return ScoreValue::Integer(if is_negative { -value } else { value });
        }
        let magnitude = if code < FINE_CODE {
            f64::from_bits(code << COARSE_BITS)
        } else if code < INTEGERS_CODE {
            f64::from_bits(code - FINE_CODE + FINE_FROM)
        } else {
            f64::from_bits(((code - HUGE_CODE) << COARSE_BITS) + bits_of_power(62))
        };
        let value = if is_negative { -magnitude } else { magnitude };
        if value.fract() == 0.0 && code < INTEGERS_CODE {
            #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
            return ScoreValue::Integer(value as i64);
        }
        ScoreValue::Float(value)
    }

    fn signed(is_negative: bool, code: u64) -> Self {
        Self(if is_negative { ZERO - code } else { ZERO + code })
    }
}

fn code_of_integer(magnitude: u128) -> u64 {
    match u64::try_from(magnitude) {
        // 53 bits fit.
        Ok(small) if small < INTEGERS_FROM => code_of_float(small as f64),
        Ok(middle) if middle < INTEGERS_END => INTEGERS_CODE + (middle - INTEGERS_FROM),
        _ => {
            // The bits of the next f64 towards zero.
            let exponent = magnitude.ilog2();
            #[expect(clippy::cast_possible_truncation, reason = "53 bits are left")]
            let leading = (magnitude >> (exponent - 52)) as u64;
            let bits = bits_of_power(exponent.into()) + (leading - (1 << 52));
            code_of_huge(bits)
        }
    }
}

fn code_of_float(magnitude: f64) -> u64 {
    let bits = magnitude.to_bits();
    if bits < FINE_FROM {
        bits >> COARSE_BITS
    } else if bits < bits_of_power(53) {
        FINE_CODE + (bits - FINE_FROM)
    } else if bits < bits_of_power(62) {
        #[expect(clippy::cast_possible_truncation, reason = "below 2^62")]
        let integer = magnitude as u64;
        INTEGERS_CODE + (integer - INTEGERS_FROM)
    } else {
        code_of_huge(bits)
    }
}

const fn code_of_huge(bits: u64) -> u64 {
    HUGE_CODE + ((bits - bits_of_power(62)) >> COARSE_BITS)
}

/// Finds the number of a field in records. Has buffers that it reuses for every record.
///
/// ```
/// use umbel_records::{Format, Score, ScoreExtractor};
///
/// let mut extractor = ScoreExtractor::new(Format::JsonLines, "meta.quality")?;
/// assert_eq!(extractor.score(br#"{"meta": {"quality": 7}}"#), Some(Score::of_integer(7)));
/// assert_eq!(extractor.score(br#"{"meta": {"quality": "7"}}"#), None); // text, not a number
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ScoreExtractor {
    field: Field,
}

#[derive(Debug)]
enum Field {
    Json { tree: PathTree, found: [Option<Range<usize>>; 1] },
    Column { fields: Box<TableFields>, index: usize },
}

impl ScoreExtractor {
    /// An extractor of the numbers of `field`, a [`KeyPath`](crate::KeyPath), in records of `format`,
    /// which must not be a table: see [`of_table`](Self::of_table).
    ///
    /// # Errors
    /// [`ScoreError`] if such records have no such field.
    pub fn new(format: Format, field: &str) -> Result<Self, ScoreError> {
        match format {
            Format::Text | Format::ZeroTerminated => Err(ScoreError::FieldOfText),
            Format::JsonLines => match field.parse() {
                Ok(path) => {
                    let tree = PathTree::new(&[path]);
                    Ok(Self { field: Field::Json { tree, found: [None] } })
                }
                Err(error) => Err(ScoreError::BadKeyPath { field: field.to_owned(), error }),
            },
            Format::Table { .. } => Err(ScoreError::Column(ExtractorError::NoHeader)),
            Format::Parquet => Err(ScoreError::Column(ExtractorError::Columns)),
        }
    }

    /// An extractor of the numbers of a column in records of a table with this header.
    ///
    /// # Errors
    /// [`ScoreError`] if the table has no such column.
    pub fn of_table(header: &TableHeader, column: &str) -> Result<Self, ScoreError> {
        let index = header.column(column).map_err(ScoreError::Column)?;
        let fields = Box::new(TableFields::below(header));
        Ok(Self { field: Field::Column { fields, index } })
    }

    /// The number in `record`; `None` if the field is missing or is not a number, or if the record is
    /// bad.
    pub fn score(&mut self, record: &[u8]) -> Option<Score> {
        match &mut self.field {
            Field::Json { tree, found } => {
                str::from_utf8(record).ok()?;
                let mut cursor = Cursor::new(record);
                cursor.skip_space();
                tree.find(&mut cursor, found).ok()?;
                cursor.finish().ok()?;
                let value = &record[found[0].clone()?];
                matches!(value.first(), Some(b'-' | b'0'..=b'9')).then(|| Score::of_text(value))?
            }
            Field::Column { fields, index } => {
                fields.split(record).ok()?;
                if *index < fields.count() { Score::of_text(fields.text(*index)) } else { None }
            }
        }
    }
}

/// Why no extractor of scores can be created. Change the request; nothing was done.
///
/// ```
/// use umbel_records::{Format, ScoreError, ScoreExtractor};
///
/// let error = ScoreExtractor::new(Format::Text, "size").unwrap_err();
/// assert_eq!(error, ScoreError::FieldOfText);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// A field of a text, which has none. Read it as JSON Lines, or keep the first or the last record.
    #[error("text has no field to compare; read it as JSON Lines (--format jsonl), CSV or TSV")]
    FieldOfText,
    /// The text is no path into JSON records. Correct it.
    #[error("field `{field}`: {error}")]
    BadKeyPath {
        /// The text.
        field: String,
        /// What is wrong with it.
        error: KeyPathError,
    },
    /// The table has no such column.
    #[error(transparent)]
    Column(ExtractorError),
}

#[cfg(test)]
mod score_test;
