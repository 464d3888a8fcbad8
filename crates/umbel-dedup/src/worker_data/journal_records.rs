//! The records in the journal of a worker, and the state that results from them.
//!
//! The journal has two kinds of records: the opaque ones of the job's state machines (see
//! [`umbel_dedup_engine::job`]), in the order in which they were appended, and between them those of this
//! worker's data, [`JournalRecord`], as JSON.

use super::super::bad::{BadCause, BadRecord, CauseText};
use super::super::online::FilterAnswers;
use super::folder::Blob;
use super::journal::{Journal, RawRecord};
use crate::error::{Context, Result, bail};
use crate::segments::Segment;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use umbel_dedup_engine::ExchangeReport;
use umbel_dedup_engine::job::{Forecast, Written};
use umbel_objects::KeptUpload;

/// Kind of a record of the job's state machines.
const JOB_RECORD: u8 = 1;

/// Kind of a [`JournalRecord`].
const WORKER_RECORD: u8 = 2;

/// Kind of the last record of the job's state machine: after it, nothing else in the folder is needed.
const END_RECORD: u8 = 3;

/// Version of the records and of the files that they describe.
pub(super) const LAYOUT_VERSION: u32 = 6;

/// An input file as it was when the job began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JournaledInput {
    /// Its name in messages.
    pub(super) name: String,
    /// Stored bytes.
    pub(super) bytes: u64,
    /// A value that differs if the file was modified.
    #[serde(rename = "modified_ns")]
    pub(super) state: i64,
}

/// The job that a folder belongs to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct JournaledOpening {
    pub(super) version: u32,
    pub(super) job: u64,
    pub(super) worker: u16,
    pub(super) spec_digest: [u8; 16],
    pub(super) inputs: Vec<JournaledInput>,
    pub(super) forecast: Forecast,
}

/// The part of the order to read that the worker needs to interpret its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JournaledReading {
    pub(super) workers: u32,
    pub(super) cells_per_owner: u32,
    pub(super) chunk_base: u32,
}

/// A bad record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JournaledBadRecord {
    pub(super) record: u64,
    pub(super) byte: u64,
    pub(super) cause: CauseText,
}

impl JournaledBadRecord {
    /// The bad record with its cause as text.
    pub(super) fn of(bad: BadRecord) -> Self {
        Self { record: bad.record, byte: bad.content_offset, cause: bad.cause.into_text() }
    }

    /// The bad record, whose cause is text.
    pub(super) fn record(self) -> BadRecord {
        let Self { record, byte: content_offset, cause } = self;
        BadRecord { record, content_offset, cause: BadCause::Text(cause) }
    }
}

/// A chunk that was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JournaledChunk {
    pub(super) chunk: u32,
    pub(super) records: u64,
    /// Record ids of the chunk.
    #[serde(rename = "places")]
    pub(super) id_count: u64,
    pub(super) items: u64,
    pub(super) exempt: u64,
    pub(super) left_out: u64,
    pub(super) item_bytes: u64,
    /// Length and CRC-32C of the content.
    pub(super) digest: (u64, u32),
    pub(super) early_drops: u64,
    /// Bits of the dropped records, if there are any.
    pub(super) dropped: Option<Blob>,
    /// Bits of the record ids at which records start, if they have parts and the job reports kept records.
    pub(super) starts: Option<Blob>,
    /// Pairs of dropped and kept records, if the job reports them.
    pub(super) pairs: Vec<Blob>,
    pub(super) bad: Vec<JournaledBadRecord>,
}

/// An output that is durable under a temporary name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JournaledOutput {
    /// Index of the source whose output it is, in an output directory.
    pub(super) source: Option<u32>,
    pub(super) path: PathBuf,
    pub(super) aside: JournaledAside,
}

/// Where an output is before the commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum JournaledAside {
    /// A file of `bytes` bytes.
    File { path: PathBuf, bytes: u64 },
    /// An upload to an object store.
    Upload(KeptUpload),
}

impl JournaledAside {
    /// The file, if it is one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Upload(_) => None,
        }
    }
}

/// An upload that has begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JournaledUpload {
    pub(super) path: PathBuf,
    /// The store's id of it.
    pub(super) id: String,
}

/// The responses of a cluster's filters to the queries for the kept items.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct JournaledAnswers {
    /// Valid bytes of the file `asked`, which lists the kept items that the filters contain.
    pub(super) bytes: u64,
    /// Counts, one per filter.
    pub(super) filters: Vec<FilterAnswers>,
}

/// A record of this worker's data: a step that is durable.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum JournalRecord {
    /// The folder was created.
    Opened(JournaledOpening),
    /// A process was restarted with the folder.
    Resumed,
    /// Reading has begun.
    Reading(JournaledReading),
    /// These chunks were read; their data is durable.
    Batch {
        segments: Vec<Segment>,
        chunks: Vec<JournaledChunk>,
        /// Valid bytes of the file `runs`.
        runs_bytes: u64,
    },
    /// These further cells are decided. `drops_bytes` are the valid bytes of the file `drops`; `reference_drops` of all
    /// drops are for references.
    Sealed { cells: Vec<u32>, drops_bytes: u64, reference_drops: u64, report: Box<ExchangeReport> },
    /// All groups are durable, in `group_bytes` bytes; `weights` tells how much of each file was repeated.
    Counted { group_bytes: u64, weights: Vec<u8> },
    /// A cluster's filters were queried. They are not queried again, since by then they may contain items of
    /// this job.
    Asked(JournaledAnswers),
    /// This upload has begun. It is complete once it is among the outputs.
    Begun(JournaledUpload),
    /// These outputs are durable under temporary names.
    Outputs(Vec<JournaledOutput>),
    /// All outputs are durable.
    Written(Written),
    /// Renaming outputs to their names has begun.
    Committing,
    /// Kept items were added to the cluster's filter.
    Added,
    /// At the coordinator: the summary is written; `bad` is the number of bad records of all workers.
    Concluded { bad: u64 },
}

/// Chunks that were read, from the journal.
#[derive(Default, Debug)]
pub(super) struct ReadChunks {
    pub(super) chunks: Vec<JournaledChunk>,
    pub(super) segments: Vec<Segment>,
}

/// The state that results from a journal's records.
#[derive(Default, Debug)]
pub(super) struct JournalState {
    pub(super) opened: Option<JournaledOpening>,
    pub(super) resumed: u64,
    pub(super) job_records: Vec<Vec<u8>>,
    pub(super) reading: Option<JournaledReading>,
    pub(super) read_chunks: ReadChunks,
    /// Whether this process has begun to read, and has taken `read_chunks`.
    pub(super) reads: bool,
    pub(super) runs_bytes: u64,
    pub(super) decided: Vec<u32>,
    pub(super) drops_bytes: u64,
    pub(super) reference_drops: u64,
    pub(super) report: ExchangeReport,
    /// Valid bytes of the file `groups`, once all groups are durable.
    pub(super) group_bytes: Option<u64>,
    /// How much of each file was repeated, once groups were counted.
    pub(super) weights: Vec<u8>,
    /// The responses of filters, once they were queried.
    pub(super) asked: Option<JournaledAnswers>,
    /// Uploads that have begun; some may be among the outputs.
    pub(super) begun: Vec<JournaledUpload>,
    pub(super) outputs: Vec<JournaledOutput>,
    pub(super) written: Option<Written>,
    pub(super) committing: bool,
    pub(super) added: bool,
    /// Bad records of all workers, once the coordinator has written the summary.
    pub(super) concluded_bad: Option<u64>,
    /// Whether the job has ended: then only the journal is needed.
    pub(super) ended: bool,
}

impl JournalState {
    /// Whether the worker still needs its input; `adds` tells whether the job adds kept items to a filter. Until the
    /// commit it does, also when all outputs are written: that the input is unchanged is checked then, too.
    pub(super) const fn needs_input(&self, adds: bool) -> bool {
        !self.ended && (!self.committing || (adds && !self.added))
    }

    /// Valid bytes of the files `runs`, `drops`, `groups` and `asked`; 0 after the end, when they may have been removed.
    pub(super) fn data_bytes(&self) -> [u64; 4] {
        if self.ended {
            return [0; 4];
        }
        let group_bytes = self.group_bytes.unwrap_or(0);
        [self.runs_bytes, self.drops_bytes, group_bytes, self.asked_bytes()]
    }

    /// Valid bytes of the file `asked`.
    pub(super) fn asked_bytes(&self) -> u64 {
        self.asked.as_ref().map_or(0, |asked| asked.bytes)
    }

    /// Takes the chunks that were read.
    pub(super) fn take_read_chunks(&mut self) -> ReadChunks {
        std::mem::take(&mut self.read_chunks)
    }

    fn add(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Opened(opened) => self.opened = Some(opened),
            JournalRecord::Resumed => self.resumed += 1,
            JournalRecord::Reading(reading) => self.reading = Some(reading),
            JournalRecord::Batch { segments, chunks, runs_bytes } => {
                self.read_chunks.segments.extend(segments);
                self.read_chunks.chunks.extend(chunks);
                self.runs_bytes = self.runs_bytes.max(runs_bytes);
            }
            JournalRecord::Sealed { cells, drops_bytes, reference_drops, report } => {
                self.decided.extend(cells);
                (self.drops_bytes, self.reference_drops) = (drops_bytes, reference_drops);
                self.report = *report;
            }
            JournalRecord::Counted { group_bytes, weights } => {
                (self.group_bytes, self.weights) = (Some(group_bytes), weights);
            }
            JournalRecord::Asked(asked) => self.asked = Some(asked),
            JournalRecord::Begun(upload) => self.begun.push(upload),
            JournalRecord::Outputs(outputs) => self.outputs.extend(outputs),
            JournalRecord::Written(written) => self.written = Some(written),
            JournalRecord::Committing => self.committing = true,
            JournalRecord::Added => self.added = true,
            JournalRecord::Concluded { bad } => self.concluded_bad = Some(bad),
        }
    }
}

/// The journal of a worker, which encodes and decodes its records.
pub(super) struct WorkerJournal {
    journal: Journal,
}

impl WorkerJournal {
    /// Opens the journal, and returns the state of its records.
    pub(super) fn open(path: &Path) -> Result<(Self, JournalState)> {
        let (journal, records) = Journal::open(path)?;
        let mut journal_state = JournalState::default();
        for (number, RawRecord { kind, body }) in records.into_iter().enumerate() {
            match kind {
                JOB_RECORD => journal_state.job_records.push(body),
                END_RECORD => {
                    journal_state.job_records.push(body);
                    journal_state.ended = true;
                }
                WORKER_RECORD => {
                    let record = serde_json::from_slice(&body).with_context(|| {
                        format!(
                            "{}: record {number} is none of this release: finish the job with the release that \
                             began it, or remove the folder",
                            path.display()
                        )
                    })?;
                    journal_state.add(record);
                }
                _ => bail!("{}: record {number} has the unknown kind {kind}", path.display()),
            }
        }
        Ok((Self { journal }, journal_state))
    }

    /// Appends a record of the job's state machines, durably.
    pub(super) fn append_job_record(&mut self, record: &[u8]) -> Result<()> {
        self.journal.append([(JOB_RECORD, record)])
    }

    /// Appends the last record of the job's state machine, durably.
    pub(super) fn append_end_record(&mut self, record: &[u8]) -> Result<()> {
        self.journal.append([(END_RECORD, record)])
    }

    /// Appends a record of this worker's data, durably.
    pub(super) fn append(&mut self, record: &JournalRecord) -> Result<()> {
        let body = serde_json::to_vec(record).context("note in the journal")?;
        self.journal.append([(WORKER_RECORD, &body[..])])
    }

    /// Bytes on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.journal.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (mut journal, _) = WorkerJournal::open(&path).unwrap();
        let mut report = ExchangeReport::default();
        report.items = u64::MAX;
        journal.append_job_record(b"{not json").unwrap();
        for (cells, drops_bytes, reference_drops) in [(vec![1, 9], 3, 0), (vec![2], 8, 5)] {
            let sealed = JournalRecord::Sealed {
                cells,
                drops_bytes,
                reference_drops,
                report: Box::new(report),
            };
            journal.append(&sealed).unwrap();
        }
        journal.append(&JournalRecord::Resumed).unwrap();
        let upload = JournaledUpload { path: "s3://b/k".into(), id: "an id".into() };
        journal.append(&JournalRecord::Begun(upload.clone())).unwrap();
        let kept = serde_json::json!({"id": "an id", "mark": "a mark", "tags": ["\"a\"", "b"]});
        let output = JournaledOutput {
            source: Some(3),
            path: "s3://b/k".into(),
            aside: JournaledAside::Upload(serde_json::from_value(kept).unwrap()),
        };
        journal.append(&JournalRecord::Outputs(vec![output.clone()])).unwrap();
        drop(journal);
        let (_, journal_state) = WorkerJournal::open(&path).unwrap();
        assert_eq!(journal_state.job_records, [b"{not json"]);
        assert_eq!((journal_state.begun, journal_state.outputs), (vec![upload], vec![output]));
        assert_eq!(
            (journal_state.decided, journal_state.drops_bytes, journal_state.resumed),
            (vec![1, 9, 2], 8, 1)
        );
        assert_eq!(
            (journal_state.report, journal_state.reference_drops, journal_state.committing),
            (report, 5, false)
        );
    }
}
