//! Normalisers: they remove differences in text that do not matter when items are compared.
//!
//! Each is a function from bytes to bytes that never fails: bytes that are not UTF-8 stay in their
//! places, and the text between them is normalised.

mod url;

use std::fmt;
use std::str::FromStr;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick, is_nfkc_quick};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// A difference in text that does not matter. It is removed from an item, never from the record that
/// the item is made of.
///
/// ```
/// use umbel_records::Normaliser;
///
/// assert_eq!("nfkc".parse(), Ok(Normaliser::Nfkc));
/// assert_eq!(Normaliser::Squeeze.to_string(), "squeeze");
/// assert!("NFKC".parse::<Normaliser>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Normaliser {
    /// No white space (Unicode `White_Space`) at the start and the end.
    Trim,
    /// Lower case, of all scripts that have one (Unicode `Lowercase_Mapping`).
    Lower,
    /// Unicode normalisation form C: composed characters.
    Nfc,
    /// Unicode normalisation form KC: composed, and compatibility variants (`ﬁ`, `①`, full width)
    /// as what they stand for.
    Nfkc,
    /// Every run of white space as one blank.
    Squeeze,
    /// `\r\n` as `\n`, and no `\r` at the end, where the item's own `\n` was removed.
    Crlf,
    /// No punctuation: neither the 32 characters of ASCII (such as `$`, `+`, `<`, `~`) nor characters
    /// of the Unicode category P.
    Punct,
    /// URLs (`scheme://host...`) with scheme and host in lower case (ASCII), without the scheme's
    /// default port and without the fragment. Anything that is not a URL is unchanged.
    Url,
}

impl Normaliser {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Trim,
        Self::Lower,
        Self::Nfc,
        Self::Nfkc,
        Self::Squeeze,
        Self::Crlf,
        Self::Punct,
        Self::Url,
    ];

    /// Its name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trim => "trim",
            Self::Lower => "lower",
            Self::Nfc => "nfc",
            Self::Nfkc => "nfkc",
            Self::Squeeze => "squeeze",
            Self::Crlf => "crlf",
            Self::Punct => "punct",
            Self::Url => "url",
        }
    }

    /// Appends the normal form of `from` to `to`.
    fn write(self, from: &[u8], to: &mut Vec<u8>) {
        match self {
            Self::Trim => to.extend_from_slice(trimmed(from)),
            Self::Crlf => write_crlf(from, to),
            Self::Url => url::write(from, to),
            Self::Lower | Self::Nfc | Self::Nfkc | Self::Squeeze | Self::Punct => {
                for chunk in from.utf8_chunks() {
                    self.write_text(chunk.valid(), to);
                    to.extend_from_slice(chunk.invalid());
                }
            }
        }
    }

    /// As [`write`](Self::write), for text.
    fn write_text(self, from: &str, to: &mut Vec<u8>) {
        let mut push = |char: char| to.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        match self {
            Self::Lower => to.extend_from_slice(from.to_lowercase().as_bytes()),
            Self::Nfc if is_nfc_quick(from.chars()) == IsNormalized::Yes => {
                to.extend_from_slice(from.as_bytes());
            }
            Self::Nfkc if is_nfkc_quick(from.chars()) == IsNormalized::Yes => {
                to.extend_from_slice(from.as_bytes());
            }
            Self::Nfc => from.nfc().for_each(push),
            Self::Nfkc => from.nfkc().for_each(push),
            Self::Squeeze => {
                let mut in_space = false;
                for char in from.chars() {
                    let is_space = char.is_whitespace();
                    if !is_space || !in_space {
                        push(if is_space { ' ' } else { char });
                    }
                    in_space = is_space;
                }
            }
            Self::Punct => from.chars().filter(|char| !is_punctuation(*char)).for_each(push),
            Self::Trim | Self::Crlf | Self::Url => to.extend_from_slice(from.as_bytes()),
        }
    }
}

impl fmt::Display for Normaliser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Normaliser {
    type Err = UnknownNormaliser;

    fn from_str(text: &str) -> Result<Self, UnknownNormaliser> {
        let named = Self::ALL.into_iter().find(|normaliser| normaliser.name() == text);
        named.ok_or_else(|| UnknownNormaliser { name: text.to_owned() })
    }
}

/// No [`Normaliser`] has this name. Correct it.
///
/// ```
/// use umbel_records::Normaliser;
///
/// let error = "lowercase".parse::<Normaliser>().unwrap_err();
/// assert!(error.to_string().starts_with("no normaliser is called `lowercase`"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no normaliser is called `{name}`; there are trim, lower, nfc, nfkc, squeeze, crlf, punct and url"
)]
pub struct UnknownNormaliser {
    /// The name.
    pub name: String,
}

/// Several normalisers, applied one after the other. Has buffers that it reuses for every item.
///
/// ```
/// use umbel_records::{Normaliser, Normalisers};
///
/// let mut both = Normalisers::new(vec![Normaliser::Trim, Normaliser::Lower]);
/// assert_eq!(both.apply(b" \tAda \xff\n"), b"ada \xff");
/// let mut none = Normalisers::default();
/// assert_eq!(none.apply(b" Ada"), b" Ada");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Normalisers {
    steps: Vec<Normaliser>,
    done: Vec<u8>,
    next: Vec<u8>,
}

impl Normalisers {
    /// Applies these, in this order.
    pub fn new(steps: Vec<Normaliser>) -> Self {
        Self { steps, done: Vec::new(), next: Vec::new() }
    }

    /// Whether there are no normalisers.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The normal form of `item`: borrowed from `item` if there are no normalisers, otherwise valid
    /// until the next call.
    pub fn apply<'a>(&'a mut self, item: &'a [u8]) -> &'a [u8] {
        let Some((first, rest)) = self.steps.split_first() else { return item };
        self.done.clear();
        first.write(item, &mut self.done);
        for step in rest {
            self.next.clear();
            step.write(&self.done, &mut self.next);
            std::mem::swap(&mut self.done, &mut self.next);
        }
        &self.done
    }
}

/// Without white space at both ends; bytes that are not UTF-8 are not white space.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let Some(first) = bytes.utf8_chunks().next() else { return bytes };
    let bytes = &bytes[first.valid().len() - first.valid().trim_start().len()..];
    match bytes.utf8_chunks().last() {
        Some(last) if last.invalid().is_empty() => {
            let text = last.valid();
            &bytes[..bytes.len() - (text.len() - text.trim_end().len())]
        }
        _ => bytes,
    }
}

fn write_crlf(from: &[u8], to: &mut Vec<u8>) {
    let from = from.strip_suffix(b"\r").unwrap_or(from);
    let mut rest = from;
    while let Some(at) = memchr::memchr(b'\r', rest) {
        let is_line_end = rest.get(at + 1) == Some(&b'\n');
        to.extend_from_slice(&rest[..at + usize::from(!is_line_end)]);
        rest = &rest[at + 1..];
    }
    to.extend_from_slice(rest);
}

fn is_punctuation(char: char) -> bool {
    char.is_ascii_punctuation()
        || !char.is_ascii() && char.general_category_group() == GeneralCategoryGroup::Punctuation
}

#[cfg(test)]
mod normalise_test;
