//! Values of options that take more than a word or a number.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use umbel_dedup::BestField;
use umbel_dedup_engine::IndexBits;

/// Which of equal records is kept.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum KeepArg {
    /// The first.
    First,
    /// The last.
    Last,
    /// The one with the largest or smallest value of a field.
    Best(BestField),
}

/// Parses a keep rule. A field whose own name ends in `:min` or `:max` needs a further `:max` or `:min`.
pub(super) fn parse_keep(text: &str) -> Result<KeepArg, String> {
    let Some(field) = text.strip_prefix("best:") else {
        return match text {
            "first" => Ok(KeepArg::First),
            "last" => Ok(KeepArg::Last),
            _ => Err("expected first, last, best:FIELD or best:FIELD:min".to_owned()),
        };
    };
    let (field, smallest) = match (field.strip_suffix(":min"), field.strip_suffix(":max")) {
        (Some(field), _) => (field, true),
        (None, Some(field)) => (field, false),
        (None, None) => (field, false),
    };
    if field.is_empty() {
        return Err("expected a field behind best:, like best:quality".to_owned());
    }
    Ok(KeepArg::Best(BestField { field: field.to_owned(), smallest }))
}

/// Parses an argument that has to be UTF-8. The error names it, and says what to do instead.
pub(in crate::commands) fn text_argument(
    instead: &'static str,
) -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(move |argument: OsString| {
        argument.into_string().map_err(|_| format!("it is not UTF-8: {instead}"))
    })
}

/// Parses how many bad records may be left out.
pub(super) fn parse_bad_max(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a number of records below 2^64".to_owned())
}

/// Parses a seed in decimal, or in hexadecimal after `0x`.
pub(in crate::commands) fn parse_seed(text: &str) -> Result<u64, String> {
    let seed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    seed.map_err(|_| {
        "expected a whole number below 2^64, in decimal digits or in hexadecimal ones behind 0x"
            .to_owned()
    })
}

/// Parses the number of bits of each hash in an index.
pub(in crate::commands) fn parse_index_bits(text: &str) -> Result<IndexBits, String> {
    let bits = text.parse().ok().and_then(IndexBits::new);
    bits.ok_or_else(|| "expected 64, 96 or 128".to_owned())
}
