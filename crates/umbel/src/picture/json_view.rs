//! Reads the fields of a report in JSON. A field that is missing counts as zero or empty.

use serde_json::Value;

/// A value of a report.
#[derive(Clone, Copy)]
pub(crate) struct JsonView<'a>(&'a Value);

impl<'a> JsonView<'a> {
    /// The whole report.
    pub(crate) fn new(report: &'a Value) -> Self {
        Self(report)
    }

    /// The value at a JSON pointer like `/run/wall_s`.
    pub(crate) fn at(self, path: &str) -> Self {
        Self(self.0.pointer(path).unwrap_or(&Value::Null))
    }

    /// The whole number at a path; 0 if there is none.
    pub(crate) fn count(self, path: &str) -> u64 {
        self.at(path).0.as_u64().unwrap_or(0)
    }

    /// The number at a path; 0 if there is none.
    pub(crate) fn number(self, path: &str) -> f64 {
        self.at(path).0.as_f64().unwrap_or(0.0)
    }

    /// The text at a path; empty if there is none.
    pub(crate) fn text(self, path: &str) -> &'a str {
        self.at(path).0.as_str().unwrap_or_default()
    }

    /// The elements of the list at a path.
    pub(crate) fn list(self, path: &str) -> impl Iterator<Item = Self> + use<'a> {
        self.at(path).0.as_array().into_iter().flatten().map(Self)
    }

    /// Whether the value at a path is `true`.
    pub(crate) fn is_so(self, path: &str) -> bool {
        self.at(path).0.as_bool().unwrap_or(false)
    }

    /// Whether a path has a value other than null.
    pub(crate) fn is_there(self, path: &str) -> bool {
        !self.at(path).0.is_null()
    }
}
