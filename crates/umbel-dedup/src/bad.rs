//! Bad records, those that cannot be read: the first one ends the job, or they are listed and skipped.

use super::inputs::Source;
use crate::error::chain_text;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use umbel_records::{ItemError, ReadError};

/// Cause of a record without a field of the key, as [`ItemError::cause`] names it.
pub(crate) const MISSING_KEY: &str = "missing_key";

/// Why a record (or the rest of a file) is bad.
#[derive(Debug)]
pub(crate) enum BadCause {
    /// The record has no item.
    Item(ItemError),
    /// The file cannot be read further: its rest is lost.
    Read(ReadError),
    /// One of the two, as text that an earlier process has journaled.
    Text(CauseText),
}

/// A cause as text, for the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CauseText {
    name: Cow<'static, str>,
    detail: String,
    rest_lost: bool,
    rest: Cow<'static, str>,
}

impl BadCause {
    /// A short stable name for the summary.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Item(error) => error.cause().into(),
            Self::Read(error) => error.cause().into(),
            Self::Text(text) => text.name.clone(),
        }
    }

    /// Whether the rest of the file is lost.
    pub(crate) fn loses_rest(&self) -> bool {
        match self {
            Self::Item(_) => false,
            Self::Read(_) => true,
            Self::Text(text) => text.rest_lost,
        }
    }

    /// The cause as text.
    pub(crate) fn into_text(self) -> CauseText {
        let (name, rest_lost, rest) = (self.name(), self.loses_rest(), self.rest());
        CauseText { name, rest_lost, rest, detail: self.text() }
    }

    /// The part of the message about the rest.
    fn rest(&self) -> Cow<'static, str> {
        match self {
            Self::Item(_) => "".into(),
            Self::Read(ReadError::Parquet(_)) => "; the rest of the row group is lost".into(),
            Self::Read(_) => "; the rest of the file is lost".into(),
            Self::Text(text) => text.rest.clone(),
        }
    }

    /// The error and its sources, in one line.
    fn text(self) -> String {
        match self {
            Self::Item(error) => chain_text(&error),
            Self::Read(error) => chain_text(&error),
            Self::Text(text) => text.detail,
        }
    }
}

/// A bad record of a chunk.
#[derive(Debug)]
pub(crate) struct BadRecord {
    /// Its number in the chunk, from 0.
    pub(crate) record: u64,
    /// Where it starts in the file's content.
    pub(crate) content_offset: u64,
    /// What is wrong.
    pub(crate) cause: BadCause,
}

impl BadRecord {
    /// A copy of a record whose cause is text; errors cannot be cloned.
    pub(crate) fn again(&self) -> Self {
        let cause = match &self.cause {
            BadCause::Text(text) => text.clone(),
            BadCause::Item(error) => BadCause::Item(error.clone()).into_text(),
            BadCause::Read(error) => CauseText {
                name: error.cause().into(),
                detail: error.to_string(),
                rest_lost: true,
                rest: self.cause.rest(),
            },
        };
        Self { cause: BadCause::Text(cause), ..*self }
    }

    /// File, record, byte and cause. `records_before` are those of earlier chunks.
    pub(crate) fn text(self, source: &Source, records_before: u64) -> String {
        let record = records_before + self.record + 1;
        let (name, offset) = (&source.name, self.content_offset);
        format!("{name}: record {record} (byte {offset}): {}", self.cause.text())
    }
}

/// A bad record as it is listed.
#[derive(Serialize, Debug)]
pub(crate) struct BadLine {
    file: String,
    record: u64,
    byte: u64,
    cause: Cow<'static, str>,
    detail: String,
    /// Whether the rest of the file, or of its row group, is lost.
    rest_lost: bool,
    /// The part of the message about the rest.
    #[serde(skip)]
    rest: Cow<'static, str>,
}

/// All bad records of a job, in input order.
#[derive(Default, Debug)]
pub(crate) struct BadRecords {
    lines: Vec<BadLine>,
    by_cause: BTreeMap<Cow<'static, str>, u64>,
}

impl BadRecords {
    /// Lists a bad record.
    pub(crate) fn add(&mut self, bad: BadRecord, source: &Source, records_before: u64) {
        let cause = bad.cause.name();
        *self.by_cause.entry(cause.clone()).or_default() += 1;
        self.lines.push(BadLine {
            file: source.name.clone(),
            record: records_before + bad.record + 1,
            byte: bad.content_offset,
            cause,
            rest_lost: bad.cause.loses_rest(),
            rest: bad.cause.rest(),
            detail: bad.cause.text(),
        });
    }

    /// How many there are.
    pub(crate) fn total(&self) -> u64 {
        self.lines.len() as u64
    }

    /// How many there are of each cause.
    pub(crate) fn by_cause(&self) -> &BTreeMap<Cow<'static, str>, u64> {
        &self.by_cause
    }

    /// The list, in input order.
    pub(crate) fn lines(&self) -> &[BadLine] {
        &self.lines
    }
}

impl BadLine {
    /// One line for people.
    pub(crate) fn text(&self) -> String {
        let Self { file, record, byte, detail, rest, .. } = self;
        format!("{file}: record {record} (byte {byte}): {detail}{rest}")
    }
}
