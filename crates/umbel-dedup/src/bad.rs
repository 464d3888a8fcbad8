//! Records that cannot be read: the first one ends the job, or they are listed and left out.

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
    /// The file cannot be read further: what follows is lost.
    Read(ReadError),
    /// One of the two, as an earlier process has put it down.
    Told(ToldCause),
}

/// A cause in words that can be kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ToldCause {
    name: Cow<'static, str>,
    detail: String,
    rest_lost: bool,
    rest: Cow<'static, str>,
}

impl BadCause {
    /// A short stable name, for the summary.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Item(error) => error.cause().into(),
            Self::Read(error) => error.cause().into(),
            Self::Told(told) => told.name.clone(),
        }
    }

    /// Whether everything behind it in the file is lost too.
    pub(crate) fn loses_rest(&self) -> bool {
        match self {
            Self::Item(_) => false,
            Self::Read(_) => true,
            Self::Told(told) => told.rest_lost,
        }
    }

    /// In words.
    pub(crate) fn told(self) -> ToldCause {
        let (name, rest_lost, rest) = (self.name(), self.loses_rest(), self.rest());
        ToldCause { name, rest_lost, rest, detail: self.text() }
    }

    /// What people are told of the rest.
    fn rest(&self) -> Cow<'static, str> {
        match self {
            Self::Item(_) => "".into(),
            Self::Read(ReadError::Parquet(_)) => "; the rest of the row group is lost".into(),
            Self::Read(_) => "; the rest of the file is lost".into(),
            Self::Told(told) => told.rest.clone(),
        }
    }

    /// The cause and what is behind it, in one line.
    fn text(self) -> String {
        match self {
            Self::Item(error) => chain_text(&error),
            Self::Read(error) => chain_text(&error),
            Self::Told(told) => told.detail,
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
    /// The same, of a record whose cause is told; other causes cannot be had twice.
    pub(crate) fn again(&self) -> Self {
        let cause = match &self.cause {
            BadCause::Told(told) => told.clone(),
            BadCause::Item(error) => BadCause::Item(error.clone()).told(),
            BadCause::Read(error) => ToldCause {
                name: error.cause().into(),
                detail: error.to_string(),
                rest_lost: true,
                rest: self.cause.rest(),
            },
        };
        Self { cause: BadCause::Told(cause), ..*self }
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
    /// Whether everything behind it in the file, or in its row group, is lost too.
    rest_lost: bool,
    /// What of the file that is.
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
