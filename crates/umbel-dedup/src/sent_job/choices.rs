//! Fields of a job's message that have one of a few values.

use super::SentJobError;
use crate::scope::Scope;
use crate::spec::{BinaryFiles, EmptyItems, MissingKey};
use umbel_client::proto;
use umbel_dedup_engine::{Exactness, FilterChoice, Keep};
use umbel_records::{Format, Granularity, Normaliser};

/// A field with one of a few values.
pub(super) struct Choice<W: 'static, T: 'static> {
    field: &'static str,
    expected: &'static str,
    values: &'static [T],
    /// The value in the message.
    sent: fn(T) -> W,
}

impl<W: Into<i32>, T: Copy + PartialEq> Choice<W, T> {
    /// Whether this is one of the values.
    pub(super) fn has(&self, value: T) -> bool {
        self.values.contains(&value)
    }

    /// The number in the message.
    pub(super) fn sent(&self, value: T) -> i32 {
        (self.sent)(value).into()
    }

    /// The value of a number.
    pub(super) fn received(&self, number: i32) -> Result<T, SentJobError> {
        let found = self.values.iter().find(|value| self.sent(**value) == number);
        found.copied().ok_or_else(|| SentJobError::Field {
            field: self.field,
            expected: self.expected.to_owned(),
            got: number.to_string(),
        })
    }
}

pub(super) const FORMAT: Choice<proto::DedupFormat, Option<Format>> = Choice {
    field: "format",
    expected: "none, TEXT, ZERO_TERMINATED, JSONL, CSV, TSV or PARQUET",
    values: &[
        None,
        Some(Format::Text),
        Some(Format::ZeroTerminated),
        Some(Format::JsonLines),
        Some(Format::CSV),
        Some(Format::TSV),
        Some(Format::Parquet),
    ],
    sent: |format| match format {
        None => proto::DedupFormat::Unspecified,
        Some(Format::Text) => proto::DedupFormat::Text,
        Some(Format::ZeroTerminated) => proto::DedupFormat::ZeroTerminated,
        Some(Format::JsonLines) => proto::DedupFormat::Jsonl,
        Some(Format::Table { delimiter: b'\t', .. }) => proto::DedupFormat::Tsv,
        Some(Format::Table { .. }) => proto::DedupFormat::Csv,
        Some(Format::Parquet) => proto::DedupFormat::Parquet,
    },
};

pub(super) const BINARY: Choice<proto::DedupBinary, BinaryFiles> = Choice {
    field: "binary",
    expected: "REFUSE, SKIP, COPY or TEXT",
    values: &[BinaryFiles::Refuse, BinaryFiles::Skip, BinaryFiles::Copy, BinaryFiles::Text],
    sent: |binary| match binary {
        BinaryFiles::Refuse => proto::DedupBinary::Refuse,
        BinaryFiles::Skip => proto::DedupBinary::Skip,
        BinaryFiles::Copy => proto::DedupBinary::Copy,
        BinaryFiles::Text => proto::DedupBinary::Text,
    },
};

pub(super) const NORMALISER: Choice<proto::DedupNormaliser, Normaliser> = Choice {
    field: "normalise",
    expected: "TRIM, LOWER, NFC, NFKC, SQUEEZE, CRLF, PUNCT or URL",
    values: &Normaliser::ALL,
    sent: |step| match step {
        Normaliser::Trim => proto::DedupNormaliser::Trim,
        Normaliser::Lower => proto::DedupNormaliser::Lower,
        Normaliser::Nfc => proto::DedupNormaliser::Nfc,
        Normaliser::Nfkc => proto::DedupNormaliser::Nfkc,
        Normaliser::Squeeze => proto::DedupNormaliser::Squeeze,
        Normaliser::Crlf => proto::DedupNormaliser::Crlf,
        Normaliser::Punct => proto::DedupNormaliser::Punct,
        Normaliser::Url => proto::DedupNormaliser::Url,
    },
};

pub(super) const SCOPE: Choice<proto::DedupScope, Scope> = Choice {
    field: "scope",
    expected: "GLOBAL, DIRECTORY or FILE",
    values: &[Scope::Global, Scope::Directory, Scope::File],
    sent: |scope| match scope {
        Scope::Global => proto::DedupScope::Global,
        Scope::Directory => proto::DedupScope::Directory,
        Scope::File => proto::DedupScope::File,
    },
};

pub(super) const MISSING_KEY: Choice<proto::DedupMissingKey, MissingKey> = Choice {
    field: "missing_key",
    expected: "FAIL, KEEP or DROP",
    values: &[MissingKey::Fail, MissingKey::Keep, MissingKey::Drop],
    sent: |missing| match missing {
        MissingKey::Fail => proto::DedupMissingKey::Fail,
        MissingKey::Keep => proto::DedupMissingKey::Keep,
        MissingKey::Drop => proto::DedupMissingKey::Drop,
    },
};

pub(super) const EMPTY: Choice<proto::DedupEmpty, EmptyItems> = Choice {
    field: "empty",
    expected: "COMPARE or KEEP",
    values: &[EmptyItems::Compare, EmptyItems::Keep],
    sent: |empty| match empty {
        EmptyItems::Compare => proto::DedupEmpty::Compare,
        EmptyItems::Keep => proto::DedupEmpty::Keep,
    },
};

pub(super) const KEEP: Choice<proto::DedupKeep, Keep> = Choice {
    field: "keep",
    expected: "FIRST, LAST or BEST",
    values: &[Keep::First, Keep::Last, Keep::Best],
    sent: |keep| match keep {
        Keep::First => proto::DedupKeep::First,
        Keep::Last => proto::DedupKeep::Last,
        Keep::Best => proto::DedupKeep::Best,
    },
};

pub(super) const FILTER: Choice<proto::DedupFilter, FilterChoice> = Choice {
    field: "filter",
    expected: "AUTO, SINGLE_SHOT or WIDE",
    values: &[FilterChoice::Auto, FilterChoice::SingleShot, FilterChoice::FullHash],
    sent: |filter| match filter {
        FilterChoice::Auto => proto::DedupFilter::Auto,
        FilterChoice::SingleShot => proto::DedupFilter::SingleShot,
        FilterChoice::FullHash => proto::DedupFilter::Wide,
    },
};

/// The granularity in the message, and the fields that it compares.
pub(super) fn granularity_sent(granularity: &Granularity) -> (i32, Vec<String>) {
    let (granularity, keys) = match granularity {
        Granularity::Line => (proto::DedupGranularity::Line, Vec::new()),
        Granularity::Key(keys) => (proto::DedupGranularity::Key, keys.clone()),
        Granularity::Record => (proto::DedupGranularity::Record, Vec::new()),
        Granularity::Paragraph(key) => (proto::DedupGranularity::Paragraph, vec![key.clone()]),
        Granularity::File => (proto::DedupGranularity::File, Vec::new()),
    };
    (granularity.into(), keys)
}

/// The exactness in the message, and its rate of false positives; 0 for none.
pub(super) fn exactness_sent(exactness: Exactness) -> (i32, f64) {
    let (exactness, rate) = match exactness {
        Exactness::Approximate { false_positive_rate } => {
            (proto::DedupExactness::Approximate, false_positive_rate)
        }
        Exactness::Fingerprint => (proto::DedupExactness::Fingerprint, 0.0),
        Exactness::Bytes => (proto::DedupExactness::Bytes, 0.0),
    };
    (exactness.into(), rate)
}
