//! JSON for the console's pages.
//!
//! Domain types are not serialized themselves: a page receives only what a view puts into a value.

pub(super) use serde_json::Value;

/// An object of named values.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A list of anything that converts into a value.
pub(super) fn list<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> Value {
    Value::Array(values.into_iter().map(Into::into).collect())
}

/// A value as one line, as an event requires. `<` occurs only in strings and is escaped there, in case a
/// value is ever put between tags.
pub(super) fn line(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json() {
        let value = object([
            ("count", u64::MAX.into()),
            ("empty", object([])),
            ("infinite", f64::INFINITY.into()),
            ("list", list(["a", "b"])),
            ("none", Value::Null),
            ("rate", 0.25.into()),
            ("some", Some(3_u32).into()),
            ("yes", true.into()),
        ]);
        let expected = "{\"count\":18446744073709551615,\"empty\":{},\"infinite\":null,\
                        \"list\":[\"a\",\"b\"],\"none\":null,\"rate\":0.25,\"some\":3,\"yes\":true}";
        assert_eq!(line(&value), expected);
    }

    #[test]
    fn hostile_texts_stay_one_line_within_their_quotes() {
        let text = "\"]}</script>\\\n\r\0\u{7f}\u{85}\u{2028}ü";
        let written = line(&text.into());
        assert!(!written.contains(['\n', '\r', '\0', '<']), "{written}");
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), Value::from(text));
    }
}
