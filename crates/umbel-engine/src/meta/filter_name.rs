//! Names of filters.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::FILTER_NAME_BYTES_MAX;

/// A filter's name: 1 to [`FILTER_NAME_BYTES_MAX`] bytes of UTF-8 without control characters.
///
/// ```
/// use umbel_engine::meta::FilterName;
///
/// let name = FilterName::new("crawl 2026/été")?;
/// assert_eq!(name.as_str(), "crawl 2026/été");
/// assert!(FilterName::new("two\nlines").is_err());
/// # Ok::<(), umbel_engine::meta::FilterNameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct FilterName(String);

/// The text is not a filter's name. Choose another one.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FilterNameError {
    /// The name is empty or too long.
    #[error("a filter's name has 1 to {FILTER_NAME_BYTES_MAX} bytes, not {byte_count}")]
    Length {
        /// The text's length.
        byte_count: usize,
    },
    /// The name contains a control character, which would break listings and logs.
    #[error("a filter's name has no control characters, but this one has U+{code:04X}")]
    ControlCharacter {
        /// The character's code.
        code: u32,
    },
}

impl FilterName {
    /// Validates a name.
    ///
    /// # Errors
    /// If it is empty or too long, or contains a control character.
    pub fn new(name: impl Into<String>) -> Result<Self, FilterNameError> {
        let name = name.into();
        if name.is_empty() || name.len() > FILTER_NAME_BYTES_MAX {
            return Err(FilterNameError::Length { byte_count: name.len() });
        }
        if let Some(control) = name.chars().find(|c| c.is_control()) {
            return Err(FilterNameError::ControlCharacter { code: control.into() });
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lets names be looked up by text: they compare like their texts.
impl Borrow<str> for FilterName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FilterName {
    type Error = FilterNameError;

    fn try_from(name: String) -> Result<Self, FilterNameError> {
        Self::new(name)
    }
}

impl From<FilterName> for String {
    fn from(name: FilterName) -> Self {
        name.0
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
