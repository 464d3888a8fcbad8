//! All workers of an exchange in one process, and the frames between them.

use super::entry::WorkerId;
use super::error::ExchangeError;
use super::worker::{ExchangeInput, ExchangeOutput, Worker};
use std::collections::VecDeque;
use umbel_step::Outbox;

/// All workers of an exchange, and their outputs until these are taken.
///
/// Two workers have one equal item each; the second one drops its copy:
///
/// ```
/// use umbel_dedup_engine::*;
/// use umbel_filter::ItemHash;
/// let shape = JobShape { workers: 2, cells_per_owner: 1, exactness: Exactness::Fingerprint, keep: Keep::First,
///                        report_kept: false, item_bytes_mean: 0.0 };
/// let plan = ExchangeCoordinator::plan_without_sample(shape, 2, None, FilterChoice::Auto);
/// let workers = [0, 1].map(|id| Worker::new(WorkerId(id), shape, 7).unwrap());
/// let mut mailbox = Mailbox::new(workers.into());
/// for id in [0, 1] {
///     mailbox.step(WorkerId(id), ExchangeInput::Plan(plan))?;
///     let entry = Entry { hash: ItemHash::new(5, 5), record_id: RecordId::new(id.into(), 0) };
///     for cell in 0..2 {
///         let entries = if cell == 0 { vec![entry] } else { vec![] };
///         mailbox.step(WorkerId(id), ExchangeInput::Cell { cell, entries, ranks: vec![] })?;
///     }
/// }
/// let mut dropped = Vec::new();
/// while let Some((_, output)) = mailbox.carry()? {
///     let ExchangeOutput::Decided { drops, .. } = output else { unreachable!() };
///     dropped.extend(drops.record_ids);
/// }
/// assert_eq!(dropped, [RecordId::new(1, 0)]);
/// # Ok::<(), ExchangeError>(())
/// ```
pub struct Mailbox {
    workers: Vec<Worker>,
    outbox: Outbox<ExchangeOutput>,
    /// Oldest first: frames of a stream must not overtake each other.
    mail: VecDeque<(WorkerId, ExchangeOutput)>,
}

impl Mailbox {
    /// The workers 0 to p - 1, in this order.
    #[must_use]
    pub const fn new(workers: Vec<Worker>) -> Self {
        Self { workers, outbox: Outbox::new(), mail: VecDeque::new() }
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// One step of a worker, whose outputs wait behind those of earlier steps.
    ///
    /// # Errors
    ///
    /// As [`Worker::step`].
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    pub fn step(&mut self, worker: WorkerId, input: ExchangeInput) -> Result<(), ExchangeError> {
        self.workers[worker.index()].step(input, &mut self.outbox)?;
        self.mail.extend(self.outbox.take().into_iter().map(|output| (worker, output)));
        Ok(())
    }

    /// The oldest output, a frame or another one, and its worker.
    pub fn pop(&mut self) -> Option<(WorkerId, ExchangeOutput)> {
        self.mail.pop_front()
    }

    /// Passes frames on up to the next output that is none, and returns that. None if nothing is left.
    ///
    /// # Errors
    ///
    /// As [`Worker::step`], for a frame.
    pub fn carry(&mut self) -> Result<Option<(WorkerId, ExchangeOutput)>, ExchangeError> {
        while let Some((from, output)) = self.pop() {
            match output {
                ExchangeOutput::Send { to, frame } => {
                    self.step(to, ExchangeInput::Frame { from, bytes: frame })?;
                }
                other => return Ok(Some((from, other))),
            }
        }
        Ok(None)
    }
}
