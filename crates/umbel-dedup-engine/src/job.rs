//! A job over many workers, from joining to the commit, as two state machines: [`JobCoordinator`] and [`JobWorker`].
//!
//! ```text
//!   coordinator                          every worker
//!     │ ◄── Join (what is durable)         opens its scratch
//!     │  Read          ──►                 reads its input; entries to scratch
//!     │ ◄── ReadDone                       coordinator waits for all
//!     │  Stop a        ──►                 ends an earlier attempt's exchange
//!     │ ◄── Stopped a (decided cells)      coordinator waits for all
//!     │  Sample a      ──►                 (once per job) owners count collisions
//!     │ ◄── Sampled a
//!     │  Exchange a    ──►                 exchanges every cell that is not decided at all workers
//!     │ ◄── Exchanged a                    coordinator waits for all
//!     │  CountGroups a ──►                 (if outputs name groups) counts the groups
//!     │ ◄── GroupsCounted a                coordinator waits for all
//!     │  Write         ──►                 writes outputs under temporary names
//!     │ ◄── Written                        coordinator waits for all: all outputs are durable
//!     │  Commit        ──►                 renames outputs to their names
//!     │ ◄── Committed                      coordinator waits for all
//!     │  Add           ──►                 (if the job adds) adds kept items to a cluster's filter
//!     │ ◄── Added
//! ```
//!
//! If a worker or a connection fails while cells are exchanged or groups are counted, the *attempt* `a` ends: all
//! workers stop, cells that are decided at all workers remain decided, and the next attempt exchanges the others. A cell
//! that was decided at some workers is exchanged again, with the same verdicts, since these depend on the entries alone.
//! Groups are counted again until all workers have theirs durably; a worker that has them still answers the others. A
//! failure while reading or writing concerns one worker, which continues from its last journal record. That holds for
//! queries to a cluster's filter, too, which a worker sends before it writes; since no worker adds before all have
//! written, no query returns what this job has added.

#[cfg(test)]
mod acts_test;
mod cell_set;
mod coordinator;
#[cfg(test)]
mod job_test;
mod messages;
mod outcome;
mod shape;
mod window;
mod worker;

pub use cell_set::CellSet;
pub use coordinator::{
    CoordinatorJournalRecord, JobCoordinator, JobEvent, JobInput, JobOutput, JobRules,
};
pub use messages::{
    Counts, Forecast, GroupCountOrder, GroupCountResult, KnownReferences, Order, ReadOrder, Stage,
    WorkerMessage, WriteOrder, Written,
};
pub use outcome::{JobFailure, JobResult};
pub use shape::{CellLoad, shape_for};
pub use window::CellWindow;
pub use worker::{JobWorker, WorkerEvent, WorkerJournalRecord, WorkerOutput};
