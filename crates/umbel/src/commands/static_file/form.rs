//! Which part of a record is the key: chosen when a file is built, stored in it, and applied when it is
//! queried.

use crate::exit::{UsageError, refuse};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use umbel_records::{Format, Granularity, ItemExtractor, Normaliser, Normalisers};

/// Which part of a record is the key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ItemForm {
    /// The fields of the key; empty if the key is the whole line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) key: Vec<String>,
    /// Names of the normalisers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) normalise: Vec<String>,
    /// The types of JSON values that keys of one field have: `s` for strings, `d` for numbers and others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) types: String,
    /// The field with the numbers of a map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
}

impl ItemForm {
    /// Parses the text that a file stores.
    ///
    /// # Errors
    ///
    /// If a newer release wrote it, with forms that are unknown here.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(text).map_err(|_| {
            anyhow::anyhow!(
                "the file says of its keys `{}`, which this release does not know: ask it with a newer one",
                printable(text)
            )
        })
    }

    /// The text that a file stores.
    pub(super) fn text(&self) -> String {
        if self == &Self::default() {
            String::new()
        } else {
            serde_json::to_string(self).expect("it has texts alone")
        }
    }

    pub(super) fn granularity(&self) -> Granularity {
        match &self.key[..] {
            [] => Granularity::Line,
            fields => Granularity::Key(fields.to_vec()),
        }
    }

    /// The normalisers by their names.
    ///
    /// # Errors
    ///
    /// If a newer release wrote the file, with normalisers that are unknown here.
    pub(super) fn normalisers(&self) -> Result<Normalisers> {
        let parsed: Result<Vec<Normaliser>, _> =
            self.normalise.iter().map(|name| name.parse()).collect();
        Ok(Normalisers::new(parsed?))
    }

    /// The item for an argument: a line, or the key's only field.
    ///
    /// # Errors
    ///
    /// If keys have several fields, or values of several types, so that an argument could be more than
    /// one key.
    pub(super) fn item_of(&self, argument: &str) -> Result<Vec<u8>> {
        let normalisers = self.normalisers()?;
        let mut extractor = match &self.key[..] {
            [] => ItemExtractor::new(Format::Text, Granularity::Line)?,
            [_] => ItemExtractor::new(Format::JsonLines, Granularity::Key(vec!["k".into()]))?,
            fields => {
                refuse!(
                    "its keys have the fields {}: ask with --file and records that have them",
                    printable(&fields.join(", "))
                );
            }
        }
        .normalised(normalisers);
        let record = match (&self.key[..], self.types.as_str()) {
            ([], _) => argument.as_bytes().to_vec(),
            (_, "s" | "") => serde_json::json!({ "k": argument }).to_string().into_bytes(),
            (_, "d") => format!("{{\"k\":{argument}}}").into_bytes(),
            _ => {
                refuse!(
                    "its keys are values of several types, so that a text may mean several of them: \
                     ask with --file and records"
                );
            }
        };
        let item = extractor.item(&record).map(<[u8]>::to_vec);
        item.map_err(|error| {
            UsageError(format!("{argument}: {error}; its keys are numbers")).into()
        })
    }

    /// A description in words.
    pub(super) fn words(&self) -> String {
        let mut text = match &self.key[..] {
            [] => "lines".to_owned(),
            fields => format!("fields {}", fields.join(", ")),
        };
        if !self.normalise.is_empty() {
            text += &format!(", normalised: {}", self.normalise.join(", "));
        }
        printable(&text)
    }
}

/// A text from an untrusted file, for a terminal: control characters are escaped.
pub(crate) fn printable(text: &str) -> String {
    let escaped =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_mean_what_records_have() {
        let form = |types: &str| ItemForm {
            key: vec!["id".into()],
            types: types.into(),
            normalise: vec!["lower".into()],
            ..ItemForm::default()
        };
        assert_eq!(ItemForm::default().item_of("a \"b").unwrap(), b"a \"b");
        assert_eq!(form("s").item_of("A\"b").unwrap(), b"s\x03a\"b");
        assert_eq!(form("d").item_of("4.0").unwrap(), b"d\x014");
        assert!(form("d").item_of("four").is_err() && form("ds").item_of("4").is_err());
        let two = ItemForm { key: vec!["a".into(), "b".into()], ..ItemForm::default() };
        assert!(two.item_of("4").unwrap_err().to_string().contains("a, b"));
    }

    #[test]
    fn a_form_is_read_as_it_was_written() {
        let form = ItemForm {
            key: vec!["a.b".into()],
            normalise: vec!["lower".into(), "trim".into()],
            types: "s".into(),
            value: Some("n".into()),
        };
        assert_eq!(ItemForm::parse(&form.text()).unwrap(), form);
        assert_eq!(ItemForm::default().text(), "");
        assert_eq!(ItemForm::parse("").unwrap(), ItemForm::default());
        assert!(ItemForm::parse("lines").is_err());
        assert_eq!(form.words(), "fields a.b, normalised: lower, trim");
        let hostile = ItemForm { key: vec!["\x1b]0;ü".into()], ..ItemForm::default() };
        assert_eq!(hostile.words(), "fields \\u{1b}]0;ü");
        let error = ItemForm::parse("\x1b[2J").unwrap_err().to_string();
        assert!(error.contains("`\\u{1b}[2J`"), "{error}");
    }
}
