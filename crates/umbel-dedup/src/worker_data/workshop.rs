//! The port of a job over many machines to a worker's data, on files and threads.

use super::super::object_inputs::ObjectStores;
use super::super::observer::Observer;
use super::super::spec::JobSpec;
use super::super::turns::lock;
use super::attempt::FileAttempt;
use super::bench::{Bench, Membership};
use super::ended::EndRecord;
use super::folder::{JOURNAL, JobFolder};
use super::journal_records::{JournalRecord, WorkerJournal};
use super::times::Part;
use super::{conclusion, filters, reading, writing};
use crate::error::{DedupError, Result, chain_text};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use umbel_dedup_engine::job::{Counts, Forecast, JobResult, ReadOrder, WriteOrder, Written};
use umbel_files::Roots;
use umbel_jobs::{BegunAttempt, Workshop, WorkshopError};
use umbel_ports::PortFuture;

/// The result of a call of the port.
pub(super) type Outcome<T> = Result<T, WorkshopError>;

impl From<DedupError> for WorkshopError {
    fn from(error: DedupError) -> Self {
        Self { cause: chain_text(&error), resumable: !error.is_final() }
    }
}

/// A worker's data on files and threads.
pub struct FileWorkshop {
    bench: Arc<Bench>,
    /// Renders the page from the summary.
    draw: fn(&Value) -> String,
    /// The job's summary in one line of JSON.
    summary: Arc<Mutex<Vec<u8>>>,
    /// Whether the folder is removed at the end of the process instead of at the end of the job, and an end
    /// record remains.
    removes_last: bool,
    /// Whether the folder must be removed.
    is_done_with: AtomicBool,
}

impl FileWorkshop {
    /// Opens the folder of a worker's job, and creates it if it does not exist. At the coordinator, `draw` renders the
    /// page from the summary, if the job has one.
    ///
    /// # Errors
    ///
    /// If another process uses the folder, if it belongs to another job, if the input has changed since the job began, or
    /// if the folder is damaged.
    pub fn open(
        spec: JobSpec,
        member: Membership,
        folder: &Path,
        observer: Arc<dyn Observer>,
        draw: fn(&Value) -> String,
    ) -> Result<Self> {
        Ok(Self {
            bench: Arc::new(Bench::open(spec, member, folder, observer)?),
            draw,
            summary: Arc::default(),
            removes_last: false,
            is_done_with: AtomicBool::new(false),
        })
    }

    /// Keeps the folder until [`FileWorkshop::remove_done`], which leaves an end record: if the process is
    /// killed after the end of the job, the next process finds the record and does not begin a new job.
    pub fn removing_last(self) -> Self {
        Self { removes_last: true, ..self }
    }

    /// Removes the folder if the job has ended and cannot be resumed; leaves an end record if the job has
    /// succeeded.
    pub fn remove_done(&self) {
        if self.is_done_with.load(Ordering::Relaxed) {
            self.remove_folder();
        }
    }

    fn remove_folder(&self) {
        let (has_ended, stands) = {
            let journal_state = lock(&self.bench.journal_state);
            (journal_state.ended, journal_state.ended && journal_state.committing)
        };
        let folder = &self.bench.folder;
        // Without its outputs, an end record would be of no use: a new job would not be rejected.
        let record = (stands && self.removes_last).then(|| self.end_record().ok()).flatten();
        let removed = match record {
            Some(record) => folder.leave(&record),
            None => folder.remove(has_ended),
        };
        if let Err(error) = removed {
            self.bench.observer.warn(&chain_text(&error));
        }
    }

    fn end_record(&self) -> Result<Vec<u8>> {
        let bad = self.bad_count();
        let journal_state = lock(&self.bench.journal_state);
        let outputs = journal_state.outputs.iter().map(|output| output.path.clone());
        EndRecord::new(&self.bench, bad, outputs)?.encode()
    }

    /// Removes the folder of any job, and its outputs under temporary names.
    ///
    /// # Errors
    ///
    /// If a process uses the folder, or it cannot be removed.
    pub fn discard(folder: &Path, roots: &Roots) -> Result<()> {
        let folder = JobFolder::take(folder)?;
        // If the journal cannot be read, the temporary names of the outputs are unknown.
        if let Ok((_, mut journal_state)) = WorkerJournal::open(&folder.file(JOURNAL)) {
            writing::forget(&mut journal_state, &ObjectStores::new(0), Some(roots));
        }
        folder.remove(false)
    }

    /// Bad records that this worker has skipped, once its outputs are written; at the coordinator, those of
    /// all workers once the summary is written.
    pub fn bad_count(&self) -> u64 {
        let journal_state = lock(&self.bench.journal_state);
        if let Some(bad) = journal_state.concluded_bad {
            return bad;
        }
        let detail =
            journal_state.written.as_ref().map(|written| &written.detail[..]).unwrap_or_default();
        let part: Part = serde_json::from_slice(detail).unwrap_or_default();
        part.bad_by_cause.values().sum()
    }

    /// Whether the end of the job is durable here.
    pub fn has_ended(&self) -> bool {
        lock(&self.bench.journal_state).ended
    }
}

/// Runs slow work on a thread of its own, which [`Workshop::end`] waits for.
pub(super) fn apart<T: Send + 'static>(
    bench: &Arc<Bench>,
    work: impl FnOnce(&Arc<Bench>) -> Result<T> + Send + 'static,
) -> PortFuture<'static, Outcome<T>> {
    let bench = Arc::clone(bench);
    Box::pin(async move {
        let working = tokio::task::spawn_blocking(move || {
            let _busy = bench.busy.read().unwrap_or_else(PoisonError::into_inner);
            bench.check_wanted()?;
            work(&bench)
        });
        let outcome = working.await.map_err(|stopped| WorkshopError {
            cause: format!("a bug of umbel: {stopped}"),
            resumable: true,
        })?;
        Ok(outcome?)
    })
}

impl Workshop for FileWorkshop {
    fn journal_records(&self) -> Outcome<Vec<Vec<u8>>> {
        Ok(lock(&self.bench.journal_state).job_records.clone())
    }

    fn append_record(&self, record: &[u8]) -> Outcome<()> {
        Ok(lock(&self.bench.journal).append_job_record(record)?)
    }

    fn append_end_record(&self, record: &[u8]) -> Outcome<()> {
        lock(&self.bench.journal).append_end_record(record)?;
        lock(&self.bench.journal_state).ended = true;
        Ok(())
    }

    fn forecast(&self) -> Outcome<Forecast> {
        Ok(self.bench.forecast)
    }

    fn read(&self, order: ReadOrder) -> PortFuture<'_, Outcome<Counts>> {
        apart(&self.bench, move |bench| reading::read(bench, order))
    }

    fn begin_attempt(&self) -> Outcome<BegunAttempt> {
        Ok(FileAttempt::begin(&self.bench)?)
    }

    fn write(&self, order: WriteOrder) -> PortFuture<'_, Outcome<Written>> {
        apart(&self.bench, move |bench| writing::write(bench, &order))
    }

    fn commit(&self) -> PortFuture<'_, Outcome<()>> {
        apart(&self.bench, |bench| writing::commit(bench))
    }

    fn add(&self) -> PortFuture<'_, Outcome<()>> {
        apart(&self.bench, |bench| filters::add(bench))
    }

    fn conclude(&self, result: &JobResult) -> PortFuture<'_, Outcome<()>> {
        let (result, draw, summary) = (result.clone(), self.draw, Arc::clone(&self.summary));
        apart(&self.bench, move |bench| {
            *lock(&summary) = conclusion::conclude(bench, &result, draw)?;
            // A restarted process must exit with the same code.
            let bad = result.counts.iter().map(|counts| counts.bad).sum();
            bench.append_record(&JournalRecord::Concluded { bad })
        })
    }

    fn summary(&self) -> Vec<u8> {
        lock(&self.summary).clone()
    }

    fn end(&self, keep_scratch: bool) {
        self.bench.stop();
        if keep_scratch {
            return;
        }
        let JobSpec { stores, roots, .. } = &self.bench.spec;
        writing::forget(&mut lock(&self.bench.journal_state), stores, roots.as_ref());
        self.is_done_with.store(true, Ordering::Relaxed);
        if !self.removes_last {
            self.remove_folder();
        }
    }
}
