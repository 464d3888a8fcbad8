//! JSON for the console's pages: values that are written, never read.
//!
//! Domain types are not serialized themselves, so what a page is told is what a view puts into such a
//! value by hand.

use std::fmt::{self, Write as _};

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Count(u64),
    /// What is no number of JSON is written as `null`.
    Number(f64),
    Text(String),
    List(Vec<Json>),
    /// Names are written in this order.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// A list of whatever can be a value.
    pub(super) fn list<T: Into<Self>>(values: impl IntoIterator<Item = T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }

    /// An object of named values.
    pub(super) fn object<const N: usize>(fields: [(&'static str, Self); N]) -> Self {
        Self::Object(fields.into())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Count(value) => write!(f, "{value}"),
            Self::Number(value) if value.is_finite() => write!(f, "{value}"),
            Self::Number(_) => f.write_str("null"),
            Self::Text(text) => write_text(f, text),
            Self::List(values) => {
                f.write_char('[')?;
                for (at, value) in values.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{value}")?;
                }
                f.write_char(']')
            }
            Self::Object(fields) => {
                f.write_char('{')?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}\"{name}\":{value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

/// Control characters are escaped, so a value is one line, as an event of a stream must be. So is `<`,
/// should anybody ever put a value between tags.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '<' | '\u{2028}' | '\u{2029}' => write!(f, "\\u{:04x}", u32::from(c))?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Self {
        Self::Count(value.into())
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json() {
        let value = Json::object([
            ("none", Json::Null),
            ("yes", true.into()),
            ("count", u64::MAX.into()),
            ("rate", 0.25.into()),
            ("infinite", f64::INFINITY.into()),
            ("some", Some(3_u32).into()),
            ("list", Json::list(["a", "b"])),
            ("empty", Json::Object(Vec::new())),
        ]);
        let expected = "{\"none\":null,\"yes\":true,\"count\":18446744073709551615,\"rate\":0.25,\
                        \"infinite\":null,\"some\":3,\"list\":[\"a\",\"b\"],\"empty\":{}}";
        assert_eq!(value.to_string(), expected);
    }

    #[test]
    fn hostile_texts_stay_one_line_within_their_quotes() {
        let text = "\"]}</script>\\\n\r\0\u{7f}\u{85}\u{2028}ü";
        let written = Json::from(text).to_string();
        let expected = "\"\\\"]}\\u003c/script>\\\\\\u000a\\u000d\\u0000\\u007f\\u0085\\u2028ü\"";
        assert_eq!(written, expected);
    }
}
