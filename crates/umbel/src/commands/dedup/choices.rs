//! Options of `umbel dedup` that take one of a few words.

use clap::ValueEnum;

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::commands) enum GranularityArg {
    /// The bytes of a line, without its end
    Line,
    /// The fields that --key names
    Key,
    /// The whole record: of JSON Lines in canonical form, so that white space and the order of fields do not count; of
    /// CSV and TSV all fields, so that quoting does not count; of Parquet all columns
    Record,
    /// The pieces of the text that --key names, each up to its line end: pieces are dropped, and their records stay
    Paragraph,
    /// The whole content of a file: whole files are dropped
    File,
}

/// Which records are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ScopeArg {
    /// All with all
    Global,
    /// Those of files in one directory
    Dir,
    /// Those of one file
    File,
}

/// What becomes of a record without a field of its key.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MissingKeyArg {
    /// It is a bad record
    Fail,
    /// It stays, and is compared with nothing
    Keep,
    /// It goes
    Drop,
}

/// What becomes of empty items.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum EmptyArg {
    /// They stay, all of them
    Keep,
    /// They are equal to each other
    Compare,
}

/// How records are cut.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatArg {
    /// Lines of any bytes
    Text,
    /// One JSON value a line
    Jsonl,
    /// A header row and fields between commas
    Csv,
    /// A header row and fields between tabs
    Tsv,
    /// Apache Parquet
    Parquet,
}

/// When records are equal.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExactnessArg {
    /// A few hash bits are equal: see --false-positive-rate
    Approximate,
    /// 128-bit hashes are equal
    Fingerprint,
    /// Bytes are equal
    Bytes,
}

/// What workers exchange.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FilterArg {
    /// Whatever is cheapest
    Auto,
    /// A single-shot filter
    SingleShot,
    /// Whole hashes
    Wide,
}
