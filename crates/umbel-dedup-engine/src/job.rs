//! A job over many workers, from the first word to the commit, as two machines.
//!
//! ```text
//!   coordinator                          every worker
//!     │ ◄── Join (what is durable)         opens its scratch
//!     │  Read        ──►                   reads its input; entries to scratch
//!     │ ◄── ReadDone                       C: all have read
//!     │  Stop a      ──►                   ends what it exchanges, tells which cells are settled
//!     │ ◄── Stopped a                      C: all have stopped
//!     │  Sample a    ──►                   (once a job) owners count what collides
//!     │ ◄── Sampled a
//!     │  Exchange a  ──►                   every cell that is not settled everywhere
//!     │ ◄── Exchanged a                    C: all cells are settled
//!     │  Tally a     ──►                   (if outputs tell of groups) how large each one is
//!     │ ◄── Tallied a                      C: all know theirs, durably
//!     │  Write       ──►                   outputs aside
//!     │ ◄── Written                        C: all outputs are durable
//!     │  Commit      ──►                   outputs under their names
//!     │ ◄── Committed                      C: all stand there
//!     │  Add         ──►                   (if the job adds) what stays into the filter of a cluster
//!     │ ◄── Added
//! ```
//!
//! Whatever breaks while cells are exchanged or groups are counted (a worker, a connection) ends the *attempt*: all
//! stop, what is settled everywhere stays settled, and the next attempt exchanges the rest. A cell that one worker had
//! settled and another had not is exchanged again, with the same verdicts, for they depend on entries alone. Groups
//! are counted again until all workers know theirs; who knows them already only answers. Reading and writing are a
//! worker's own affair: only the lost worker does them again, from its last mark. So is asking a filter of a cluster for
//! what would stay, which comes before writing; and since nobody adds before all have written, no worker is told of what
//! this job has added.

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
pub use coordinator::{CoordinatorMark, JobCoordinator, JobEvent, JobInput, JobOutput, JobRules};
pub use messages::{
    Counts, Forecast, KnownReferences, Order, ReadOrder, Stage, Tallied, TallyOrder, Word,
    WriteOrder, Written,
};
pub use outcome::{JobFailure, JobResult};
pub use shape::shape_for;
pub use window::CellWindow;
pub use worker::{JobWorker, WorkerEvent, WorkerMark, WorkerOutput};
