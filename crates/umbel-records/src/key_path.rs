//! Paths into JSON records: `user.id`, `tags.0`, `a\.b`.
//!
//! ```text
//! path  = field *("." field)
//! field = 1*(any character but "." and "\", or "\." or "\\")
//! ```
//! A field that is a decimal number without leading zeros also names the element of an array.

use std::fmt;
use std::str::FromStr;

use crate::JSON_DEPTH_MAX;

/// Most fields of a path: no record is nested deeper than [`JSON_DEPTH_MAX`].
pub const KEY_PATH_FIELDS_MAX: usize = JSON_DEPTH_MAX;

/// A path into a JSON record: field names from the outside in, separated by dots. A backslash makes a
/// dot or backslash part of a name. A number names an element of an array, counted from 0, or a field
/// of an object with that name. A field with an empty name cannot be addressed.
///
/// ```
/// use umbel_records::KeyPath;
///
/// let path: KeyPath = r"user.e\.mail".parse()?;
/// assert_eq!(path.fields(), ["user", "e.mail"]);
/// assert_eq!(path.to_string(), r"user.e\.mail");
/// # Ok::<(), umbel_records::KeyPathError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPath {
    fields: Vec<String>,
}

impl KeyPath {
    /// The names on the path from the outside in, unescaped. There is at least one, and none is empty.
    pub fn fields(&self) -> &[String] {
        &self.fields
    }
}

impl FromStr for KeyPath {
    type Err = KeyPathError;

    fn from_str(text: &str) -> Result<Self, KeyPathError> {
        if text.is_empty() {
            return Err(KeyPathError::Empty);
        }
        let mut fields = Vec::new();
        let mut field = String::new();
        let mut chars = text.char_indices();
        while let Some((offset, char)) = chars.next() {
            match char {
                '.' if field.is_empty() => return Err(KeyPathError::EmptyField { offset }),
                '.' => fields.push(std::mem::take(&mut field)),
                '\\' => match chars.next() {
                    Some((_, escaped @ ('.' | '\\'))) => field.push(escaped),
                    _ => return Err(KeyPathError::BadEscape { offset }),
                },
                _ => field.push(char),
            }
        }
        if field.is_empty() {
            return Err(KeyPathError::EmptyField { offset: text.len() });
        }
        fields.push(field);
        if fields.len() > KEY_PATH_FIELDS_MAX {
            return Err(KeyPathError::TooManyFields {
                count: fields.len(),
                limit: KEY_PATH_FIELDS_MAX,
            });
        }
        Ok(Self { fields })
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            f.write_str(&field.replace('\\', r"\\").replace('.', r"\."))?;
        }
        Ok(())
    }
}

/// Why a text is not a [`KeyPath`]. Correct the text; nothing else was done.
///
/// ```
/// use umbel_records::{KeyPath, KeyPathError};
///
/// let error = "user..id".parse::<KeyPath>().unwrap_err();
/// assert_eq!(error, KeyPathError::EmptyField { offset: 5 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyPathError {
    /// The text is empty. Name at least one field.
    #[error("the key path is empty; name a field, such as `url` or `user.id`")]
    Empty,
    /// A dot at the start or end, or two dots in a row. Remove it, or write `\.` for a dot in a
    /// name.
    #[error(r"the key path has an empty field at byte {offset}; write `\.` for a dot in a name")]
    EmptyField {
        /// Where the name should begin, in bytes from the start of the text.
        offset: usize,
    },
    /// A backslash in front of anything but a dot or a backslash. Write `\\` for a backslash.
    #[error(
        r"the backslash at byte {offset} of the key path escapes neither a dot nor a backslash"
    )]
    BadEscape {
        /// Place of the backslash, in bytes from the start of the text.
        offset: usize,
    },
    /// The path has more fields than the deepest accepted record has levels. Shorten it.
    #[error("the key path has {count} fields, more than the {limit} levels of a record")]
    TooManyFields {
        /// Fields in the text.
        count: usize,
        /// Most fields accepted.
        limit: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(text: &str) -> Result<Vec<String>, KeyPathError> {
        text.parse::<KeyPath>().map(|path| path.fields)
    }

    #[test]
    fn paths_are_cut_at_dots() {
        assert_eq!(fields("a").unwrap(), ["a"]);
        assert_eq!(fields("tags.0.名").unwrap(), ["tags", "0", "名"]);
        assert_eq!(fields(r"a\.b.c\\").unwrap(), ["a.b", r"c\"]);
        assert_eq!(fields(" a b ").unwrap(), [" a b "]);
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(fields(""), Err(KeyPathError::Empty));
        assert_eq!(fields(".a"), Err(KeyPathError::EmptyField { offset: 0 }));
        assert_eq!(fields("a."), Err(KeyPathError::EmptyField { offset: 2 }));
        assert_eq!(fields(r"a\n"), Err(KeyPathError::BadEscape { offset: 1 }));
        assert_eq!(fields(r"a.b\"), Err(KeyPathError::BadEscape { offset: 3 }));
        assert_eq!(
            fields(&["a"; 129].join(".")),
            Err(KeyPathError::TooManyFields { count: 129, limit: 128 })
        );
    }

    proptest! {
        #[test]
        fn a_printed_path_is_read_back(
            fields in proptest::collection::vec("[a.\\\\é]{1,4}", 1..4)
        ) {
            let path = KeyPath { fields };
            prop_assert_eq!(path.to_string().parse::<KeyPath>().unwrap(), path);
        }
    }
}
