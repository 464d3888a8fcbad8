//! Makes local inserts durable: waiting inserts are written as one entry of the log, and applied in the
//! order of the log, as they would be after a restart.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use umbel_engine::Generation;
use umbel_engine::shard::HashList;
use umbel_step::planted::{self, Planted};
use umbel_storage::LogStore;
use umbel_storage::types::{CopyEntry, LogCommand};

use super::copy::Copy;
use super::failure::CopyFailure;
use crate::cube::Result;
use crate::limits::PROPOSAL_ITEMS_MAX;
use crate::metrics;
use crate::space::Space;

/// Entries of one copy that are being written at once: while one is synced, the next gathers, and a
/// third is being encoded.
const ENTRIES_IN_FLIGHT_MAX: usize = 3;

/// Most batches that may wait for one copy's log.
const QUEUE_BATCHES_MAX: usize = 4096;

/// An insert that waits.
struct Job {
    generation: Generation,
    /// The time slice of the items, for windowed filters.
    slice: Option<u64>,
    hashes: HashList,
    reply: oneshot::Sender<Result<Vec<bool>>>,
    /// Frees room in the queue when dropped.
    _room: OwnedSemaphorePermit,
}

/// The queue of a copy's inserts.
pub(super) struct Journal {
    jobs: mpsc::Sender<Job>,
    /// One permit per item.
    room: Arc<Semaphore>,
    space: Arc<Space>,
}

/// The receiving end, for [`run`].
pub(super) struct Jobs(mpsc::Receiver<Job>);

/// Creates a queue for at most `items_max` items.
pub(super) fn queue(items_max: usize, space: Arc<Space>) -> (Journal, Jobs) {
    let (jobs, waiting) = mpsc::channel(QUEUE_BATCHES_MAX);
    let room = Arc::new(Semaphore::new(items_max.min(Semaphore::MAX_PERMITS)));
    (Journal { jobs, room, space }, Jobs(waiting))
}

impl Journal {
    /// Inserts items once they are on disk. Returns whether each was new.
    pub(super) async fn insert(
        &self,
        generation: Generation,
        slice: Option<u64>,
        hashes: HashList,
    ) -> Result<Vec<bool>> {
        if let Some(free_bytes) = self.space.shortage() {
            return Err(CopyFailure::DiskFull { free_bytes });
        }
        let count = u32::try_from(hashes.len()).map_err(|_| CopyFailure::Overloaded)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(count);
        let _room = room.map_err(|_| CopyFailure::Overloaded)?;
        let (reply, outcome) = oneshot::channel();
        let job = Job { generation, slice, hashes, reply, _room };
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CopyFailure::Overloaded,
            mpsc::error::TrySendError::Closed(_) => stopped("the copy was dropped"),
        })?;
        outcome.await.unwrap_or_else(|_| Err(stopped("the copy was dropped")))
    }
}

fn stopped(why: impl Into<String>) -> CopyFailure {
    CopyFailure::Stopped(why.into())
}

/// An entry that was passed to the log, with its outcome.
struct Written {
    index: u64,
    slice: Option<u64>,
    entry: CopyEntry,
    jobs: Vec<Job>,
    outcome: std::io::Result<()>,
}

type Writing = Pin<Box<dyn Future<Output = Written> + Send>>;

/// Writes waiting inserts and applies those that are written; runs until it is aborted.
pub(super) async fn run(copy: Arc<Copy>, mut jobs: Jobs, log: LogStore, mut last: u64) {
    let mut writing: FuturesOrdered<Writing> = FuturesOrdered::new();
    let mut next: Option<Job> = None;
    loop {
        tokio::select! {
            biased;
            Some(written) = writing.next() => finish(&copy, written),
            Some(first) = take(&mut next, &mut jobs), if writing.len() < ENTRIES_IN_FLIGHT_MAX => {
                let batch = gather(first, &mut next, &mut jobs);
                last += 1;
                writing.push_back(write(&copy, &log, last, batch).await);
            }
            else => return,
        }
    }
}

async fn take(next: &mut Option<Job>, jobs: &mut Jobs) -> Option<Job> {
    match next.take() {
        Some(job) => Some(job),
        None => jobs.0.recv().await,
    }
}

/// Collects the waiting inserts that fit into the same entry; the first that does not begins the next
/// entry.
fn gather(first: Job, next: &mut Option<Job>, jobs: &mut Jobs) -> Vec<Job> {
    let (kept, mut count) = ((first.generation, first.slice), first.hashes.len());
    let mut batch = vec![first];
    while let Ok(job) = jobs.0.try_recv() {
        count += job.hashes.len();
        if (job.generation, job.slice) != kept || count > PROPOSAL_ITEMS_MAX {
            *next = Some(job);
            break;
        }
        batch.push(job);
    }
    batch
}

/// Passes an entry to the log.
async fn write(copy: &Copy, log: &LogStore, index: u64, jobs: Vec<Job>) -> Writing {
    let (generation, slice) = (jobs[0].generation, jobs[0].slice);
    let hashes = match &jobs[..] {
        [job] => job.hashes.clone(),
        jobs => HashList::joined(jobs.iter().map(|job| &job.hashes)),
    };
    let entry = CopyEntry { generation, hashes };
    if planted::on(Planted::CopyAckEarly) {
        finish(copy, Written { index, slice, entry: entry.clone(), jobs, outcome: Ok(()) });
        let entry = CopyEntry { generation, hashes: HashList::default() };
        return Box::pin(async move {
            Written { index, slice, entry, jobs: Vec::new(), outcome: Ok(()) }
        });
    }
    let command = match slice {
        Some(slice) => LogCommand::CopySlice { slice, entry: entry.clone() },
        None => LogCommand::Copy(entry.clone()),
    };
    let handed = log.append_own(copy.node, index, command).await;
    Box::pin(async move {
        let outcome = match handed {
            Ok(outcome) => {
                outcome.await.unwrap_or_else(|_| Err(std::io::Error::other("the log is gone")))
            }
            Err(error) => Err(error),
        };
        Written { index, slice, entry, jobs, outcome }
    })
}

/// Applies an entry that is on disk, and responds to its callers.
fn finish(copy: &Copy, Written { index, slice, entry, jobs, outcome }: Written) {
    let outcome = match outcome {
        // The health of the log stops the node; no later entry succeeds either.
        Err(error) => Err(stopped(error.to_string())),
        Ok(()) => copy.apply(index, entry.generation, slice, &entry.hashes),
    };
    match outcome {
        Err(failure) => {
            for job in jobs {
                // The caller may have gone.
                let _ = job.reply.send(Err(failure.clone()));
            }
        }
        Ok(is_new) => {
            let mut rest = &is_new[..];
            for job in jobs {
                let (own, behind) = rest.split_at(job.hashes.len());
                rest = behind;
                let new_count = own.iter().filter(|is_new| **is_new).count();
                metrics::insert_answered(new_count as u64, (own.len() - new_count) as u64);
                let _ = job.reply.send(Ok(own.to_vec()));
            }
        }
    }
}
