//! Bad records, those that cannot be read: the first one ends the job, or they are listed and skipped.

use super::inputs::Source;
use crate::error::chain_text;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use umbel_records::{ReadError, RecordItemError};

/// Cause of a record without a field of the key, as [`RecordItemError::cause`] names it.
pub(crate) const MISSING_KEY: &str = "missing_key";

/// Why a record (or the rest of a file) is bad.
#[derive(Debug)]
pub(crate) enum BadCause {
    /// The record has no item.
    Item(RecordItemError),
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
            // Checksums are at the ends of what they cover, and the records before the damage were delivered by then.
            Self::Read(ReadError::Corrupt { .. } | ReadError::Truncated { .. }) => {
                "; the rest of the file is lost, and what is kept of the damaged member, frame or block is unverified: \
                 its checksum is at its end"
                    .into()
            }
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

/// The bad records of a chunk.
#[derive(Default, Debug)]
pub(crate) struct ChunkBad {
    count: u64,
    by_cause: BTreeMap<Cow<'static, str>, u64>,
    records: Vec<BadRecord>,
}

impl ChunkBad {
    /// Counts the next one, and stores it unless `stored_max` records are stored. One that loses the rest of the file is
    /// the last of its chunk, and always stored, because its cause decides whether the file may be replaced.
    pub(crate) fn add(&mut self, bad: BadRecord, stored_max: usize) {
        self.count += 1;
        *self.by_cause.entry(bad.cause.name()).or_default() += 1;
        if self.records.len() < stored_max || bad.cause.loses_rest() {
            self.records.push(bad);
        }
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The stored ones, in input order: the first ones at least.
    pub(crate) fn records(&self) -> &[BadRecord] {
        &self.records
    }

    /// The one behind which the rest of the file, or of its row group, is lost.
    pub(crate) fn loses_rest(&self) -> Option<&BadRecord> {
        self.records.last().filter(|bad| bad.cause.loses_rest())
    }

    /// Takes the stored ones.
    pub(crate) fn take_records(&mut self) -> Vec<BadRecord> {
        std::mem::take(&mut self.records)
    }
}

impl FromIterator<BadRecord> for ChunkBad {
    fn from_iter<Records: IntoIterator<Item = BadRecord>>(records: Records) -> Self {
        let mut bad = Self::default();
        records.into_iter().for_each(|record| bad.add(record, usize::MAX));
        bad
    }
}

/// How many bad records a job has.
#[derive(Default, Debug)]
pub(crate) struct BadCounts {
    by_cause: BTreeMap<Cow<'static, str>, u64>,
}

impl BadCounts {
    /// The sums over chunks.
    pub(crate) fn of<'a>(chunks: impl Iterator<Item = &'a ChunkBad>) -> Self {
        let mut by_cause = BTreeMap::new();
        for (cause, count) in chunks.flat_map(|bad| &bad.by_cause) {
            *by_cause.entry(cause.clone()).or_default() += count;
        }
        Self { by_cause }
    }

    /// How many there are.
    pub(crate) fn total(&self) -> u64 {
        self.by_cause.values().sum()
    }

    /// How many there are of each cause.
    pub(crate) fn by_cause(&self) -> &BTreeMap<Cow<'static, str>, u64> {
        &self.by_cause
    }
}

/// A bad record as it is listed.
#[derive(Serialize, Debug)]
pub(crate) struct BadLine<'a> {
    file: &'a str,
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

impl<'a> BadLine<'a> {
    /// The line of a record of a chunk before which its source has so many records.
    pub(crate) fn new(bad: BadRecord, source: &'a Source, records_before: u64) -> Self {
        Self {
            file: &source.name,
            record: records_before + bad.record + 1,
            byte: bad.content_offset,
            cause: bad.cause.name(),
            rest_lost: bad.cause.loses_rest(),
            rest: bad.cause.rest(),
            detail: bad.cause.text(),
        }
    }

    /// One line for people.
    pub(crate) fn text(&self) -> String {
        let Self { file, record, byte, detail, rest, .. } = self;
        format!("{file}: record {record} (byte {byte}): {detail}{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_checksum_has_verified_is_said_to_be_kept() {
        let compression = umbel_records::Compression::Gzip;
        let cut_off = ReadError::Truncated { compression, content_offset: 7 };
        let (detail, stored_offset) = ("wrong checksum", 9);
        let damaged = ReadError::Corrupt { compression, content_offset: 7, stored_offset, detail };
        let unclosed = ReadError::UnclosedQuote { content_offset: 7 };
        let said = [cut_off, damaged, unclosed].map(|error| {
            let rest = BadCause::Read(error).rest();
            (rest.contains("rest of the file is lost"), rest.contains("unverified"))
        });
        assert_eq!(said, [(true, true), (true, true), (true, false)]);
    }

    #[test]
    fn all_are_counted_and_the_first_ones_stored() {
        let bad = |record| {
            let error = RecordItemError::FieldCount { found: 1, expected: 2 };
            BadRecord { record, content_offset: 0, cause: BadCause::Item(error) }
        };
        let mut few = ChunkBad::default();
        (0..50).for_each(|record| few.add(bad(record), 3));
        let all: ChunkBad = (0..7).map(bad).collect();
        let numbers: Vec<u64> = few.records().iter().map(|bad| bad.record).collect();
        assert_eq!((few.count(), numbers, all.records().len()), (50, vec![0, 1, 2], 7));
        let counts = BadCounts::of([&few, &all].into_iter());
        assert_eq!((counts.total(), counts.by_cause()["field_count"]), (57, 57));
    }

    #[test]
    fn the_one_that_loses_the_rest_is_stored_behind_however_many() {
        let mut bad = ChunkBad::default();
        let mut add = |record, cause| {
            bad.add(BadRecord { record, content_offset: 0, cause }, 3);
            bad.loses_rest().map(|bad| bad.record)
        };
        for record in 0..9 {
            let error = RecordItemError::FieldCount { found: 1, expected: 2 };
            assert_eq!(add(record, BadCause::Item(error)), None);
        }
        let unclosed = ReadError::UnclosedQuote { content_offset: 0 };
        assert_eq!(add(9, BadCause::Read(unclosed)), Some(9));
    }
}
