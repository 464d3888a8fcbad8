//! What the journal of a worker says: the marks of the job's machine, and the workshop's own notes between them.

use super::super::bad::{BadCause, BadRecord, ToldCause};
use super::super::online::Asked;
use super::folder::Blob;
use super::journal::{Journal, JournalRecord};
use super::segments::Segment;
use crate::error::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use umbel_dedup_engine::ExchangeReport;
use umbel_dedup_engine::job::{Forecast, Written};
use umbel_objects::KeptUpload;

/// Kind of a record that holds a mark.
const MARK: u8 = 1;

/// Kind of a record that holds a note.
const NOTE: u8 = 2;

/// Kind of a record that holds a mark behind which nothing else in the folder is needed.
const END_MARK: u8 = 3;

/// Version of the notes and of the files that they speak of.
pub(super) const LAYOUT_VERSION: u32 = 6;

/// An input file as it was when the job began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct InputNote {
    /// What people call it.
    pub(super) name: String,
    /// Stored bytes.
    pub(super) bytes: u64,
    /// What differs if it was written again.
    #[serde(rename = "modified_ns")]
    pub(super) state: i64,
}

/// The job that a folder belongs to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct OpenedNote {
    pub(super) version: u32,
    pub(super) job: u64,
    pub(super) worker: u16,
    pub(super) spec_digest: [u8; 16],
    pub(super) inputs: Vec<InputNote>,
    pub(super) forecast: Forecast,
}

/// By what a worker reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ReadingNote {
    pub(super) workers: u32,
    pub(super) cells_per_owner: u32,
    pub(super) chunk_base: u32,
}

/// A bad record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BadNote {
    pub(super) record: u64,
    pub(super) byte: u64,
    pub(super) cause: ToldCause,
}

impl BadNote {
    /// In words that can be kept.
    pub(super) fn of(bad: BadRecord) -> Self {
        Self { record: bad.record, byte: bad.content_offset, cause: bad.cause.told() }
    }

    /// And back.
    pub(super) fn record(self) -> BadRecord {
        let Self { record, byte: content_offset, cause } = self;
        BadRecord { record, content_offset, cause: BadCause::Told(cause) }
    }
}

/// A chunk that was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ChunkNote {
    pub(super) chunk: u32,
    pub(super) records: u64,
    pub(super) places: u64,
    pub(super) items: u64,
    pub(super) exempt: u64,
    pub(super) left_out: u64,
    pub(super) item_bytes: u64,
    /// Length and CRC-32C of the content.
    pub(super) digest: (u64, u32),
    pub(super) early_drops: u64,
    /// Bits of the records that do not stay, if there are any.
    pub(super) dropped: Option<Blob>,
    /// At which places records start, where they have parts and the job reports what was kept.
    pub(super) starts: Option<Blob>,
    /// Which records were dropped for which, if the job reports it.
    pub(super) pairs: Vec<Blob>,
    pub(super) bad: Vec<BadNote>,
}

/// An output that is durable, aside.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct OutputNote {
    /// Index of the source whose output it is, in an output directory.
    pub(super) source: Option<u32>,
    pub(super) path: PathBuf,
    pub(super) aside: AsideNote,
}

/// Where an output waits for the commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum AsideNote {
    /// In a file of so many bytes.
    File { path: PathBuf, bytes: u64 },
    /// In an object store.
    Upload(KeptUpload),
}

impl AsideNote {
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
pub(super) struct UploadNote {
    pub(super) path: PathBuf,
    /// The store's name of it.
    pub(super) id: String,
}

/// What filters of a cluster have said of the kept items.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct AskedNote {
    /// What they hold is durable, in so many bytes.
    pub(super) bytes: u64,
    /// One row a filter.
    pub(super) filters: Vec<Asked>,
}

/// What the workshop notes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Note {
    /// The folder was made.
    Opened(OpenedNote),
    /// It was taken up again.
    Resumed,
    /// Reading has begun.
    Reading(ReadingNote),
    /// These chunks were read; all that belongs to them is durable.
    Batch {
        segments: Vec<Segment>,
        chunks: Vec<ChunkNote>,
        /// Good bytes of the file of runs.
        runs_bytes: u64,
    },
    /// These cells are settled too; drops up to there are durable, so many of all of them for a reference.
    Sealed { cells: Vec<u32>, drops_bytes: u64, reference_drops: u64, report: Box<ExchangeReport> },
    /// All groups are durable, in so many bytes; so much of each file was repeated.
    Counted { group_bytes: u64, weights: Vec<u8> },
    /// Filters of a cluster were asked, and are not asked again: they may hold by now what this job has added.
    Asked(AskedNote),
    /// This upload has begun, and is known as finished once it is among the outputs.
    Begun(UploadNote),
    /// These outputs are written, aside.
    Outputs(Vec<OutputNote>),
    /// All outputs are.
    Written(Written),
    /// Outputs go under their names from now on.
    Committing,
    /// What stays was added to the filter of a cluster.
    Added,
    /// At the coordinator: the summary is written, of so many bad records of all workers.
    Concluded { bad: u64 },
}

/// What the journal says of chunks that were read.
#[derive(Default, Debug)]
pub(super) struct Known {
    pub(super) chunks: Vec<ChunkNote>,
    pub(super) segments: Vec<Segment>,
}

/// All that a journal said, in the form in which it is needed.
#[derive(Default, Debug)]
pub(super) struct Told {
    pub(super) opened: Option<OpenedNote>,
    pub(super) resumed: u64,
    pub(super) marks: Vec<Vec<u8>>,
    pub(super) reading: Option<ReadingNote>,
    pub(super) known: Known,
    /// Whether this process has begun to read: it has taken what is known.
    pub(super) reads: bool,
    pub(super) runs_bytes: u64,
    pub(super) settled: Vec<u32>,
    pub(super) drops_bytes: u64,
    pub(super) reference_drops: u64,
    pub(super) report: ExchangeReport,
    /// Bytes of all groups, once they are durable.
    pub(super) group_bytes: Option<u64>,
    /// How much of each file was repeated, once that is known.
    pub(super) weights: Vec<u8>,
    /// What filters have said, once they were asked.
    pub(super) asked: Option<AskedNote>,
    /// Uploads that have begun, of which some may be outputs.
    pub(super) begun: Vec<UploadNote>,
    pub(super) outputs: Vec<OutputNote>,
    pub(super) written: Option<Written>,
    pub(super) committing: bool,
    pub(super) added: bool,
    /// Bad records of all workers, once the coordinator has written the summary.
    pub(super) concluded_bad: Option<u64>,
    /// Whether the job has ended for good: of the folder only the journal need be there.
    pub(super) ended: bool,
}

impl Told {
    /// Whether the worker will still read its input, in a job that adds what stays to a filter or does not.
    pub(super) const fn needs_input(&self, adds: bool) -> bool {
        let will_write = self.written.is_none() && !self.committing;
        !self.ended && (will_write || (adds && !self.added))
    }

    /// Good bytes of the files `runs`, `drops`, `groups` and `asked`; none once they may have been removed.
    pub(super) fn data_bytes(&self) -> [u64; 4] {
        if self.ended {
            return [0; 4];
        }
        let group_bytes = self.group_bytes.unwrap_or(0);
        [self.runs_bytes, self.drops_bytes, group_bytes, self.asked_bytes()]
    }

    /// Good bytes of what filters hold.
    pub(super) fn asked_bytes(&self) -> u64 {
        self.asked.as_ref().map_or(0, |asked| asked.bytes)
    }

    /// Hands out what is known of chunks: it is needed once.
    pub(super) fn take_known(&mut self) -> Known {
        std::mem::take(&mut self.known)
    }

    fn add(&mut self, note: Note) {
        match note {
            Note::Opened(opened) => self.opened = Some(opened),
            Note::Resumed => self.resumed += 1,
            Note::Reading(reading) => self.reading = Some(reading),
            Note::Batch { segments, chunks, runs_bytes } => {
                self.known.segments.extend(segments);
                self.known.chunks.extend(chunks);
                self.runs_bytes = self.runs_bytes.max(runs_bytes);
            }
            Note::Sealed { cells, drops_bytes, reference_drops, report } => {
                self.settled.extend(cells);
                (self.drops_bytes, self.reference_drops) = (drops_bytes, reference_drops);
                self.report = *report;
            }
            Note::Counted { group_bytes, weights } => {
                (self.group_bytes, self.weights) = (Some(group_bytes), weights);
            }
            Note::Asked(asked) => self.asked = Some(asked),
            Note::Begun(upload) => self.begun.push(upload),
            Note::Outputs(outputs) => self.outputs.extend(outputs),
            Note::Written(written) => self.written = Some(written),
            Note::Committing => self.committing = true,
            Note::Added => self.added = true,
            Note::Concluded { bad } => self.concluded_bad = Some(bad),
        }
    }
}

/// The journal, in marks and notes.
pub(super) struct Notebook {
    journal: Journal,
}

impl Notebook {
    /// Opens the journal and reads it.
    pub(super) fn open(path: &Path) -> Result<(Self, Told)> {
        let (journal, records) = Journal::open(path)?;
        let mut told = Told::default();
        for (number, JournalRecord { kind, body }) in records.into_iter().enumerate() {
            match kind {
                MARK => told.marks.push(body),
                END_MARK => {
                    told.marks.push(body);
                    told.ended = true;
                }
                NOTE => {
                    let note = serde_json::from_slice(&body).with_context(|| {
                        format!(
                            "{}: record {number} is none of this release: finish the job with the release that \
                             began it, or remove the folder",
                            path.display()
                        )
                    })?;
                    told.add(note);
                }
                _ => bail!("{}: record {number} has the unknown kind {kind}", path.display()),
            }
        }
        Ok((Self { journal }, told))
    }

    /// Adds a mark, durably.
    pub(super) fn mark(&mut self, mark: &[u8]) -> Result<()> {
        self.journal.append([(MARK, mark)])
    }

    /// Adds a mark behind which nothing else in the folder is needed, durably.
    pub(super) fn mark_end(&mut self, mark: &[u8]) -> Result<()> {
        self.journal.append([(END_MARK, mark)])
    }

    /// Adds a note, durably.
    pub(super) fn note(&mut self, note: &Note) -> Result<()> {
        let body = serde_json::to_vec(note).context("note in the journal")?;
        self.journal.append([(NOTE, &body[..])])
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
    fn what_was_noted_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (mut notebook, _) = Notebook::open(&path).unwrap();
        let mut report = ExchangeReport::default();
        report.items = u64::MAX;
        notebook.mark(b"{not json").unwrap();
        for (cells, drops_bytes, reference_drops) in [(vec![1, 9], 3, 0), (vec![2], 8, 5)] {
            let sealed =
                Note::Sealed { cells, drops_bytes, reference_drops, report: Box::new(report) };
            notebook.note(&sealed).unwrap();
        }
        notebook.note(&Note::Resumed).unwrap();
        let upload = UploadNote { path: "s3://b/k".into(), id: "an id".into() };
        notebook.note(&Note::Begun(upload.clone())).unwrap();
        let kept = serde_json::json!({"id": "an id", "mark": "a mark", "tags": ["\"a\"", "b"]});
        let output = OutputNote {
            source: Some(3),
            path: "s3://b/k".into(),
            aside: AsideNote::Upload(serde_json::from_value(kept).unwrap()),
        };
        notebook.note(&Note::Outputs(vec![output.clone()])).unwrap();
        drop(notebook);
        let (_, told) = Notebook::open(&path).unwrap();
        assert_eq!(told.marks, [b"{not json"]);
        assert_eq!((told.begun, told.outputs), (vec![upload], vec![output]));
        assert_eq!((told.settled, told.drops_bytes, told.resumed), (vec![1, 9, 2], 8, 1));
        assert_eq!((told.report, told.reference_drops, told.committing), (report, 5, false));
    }
}
