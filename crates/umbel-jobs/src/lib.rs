//! Workers of duplicate-detection jobs: drives the state machines of [`umbel_dedup_engine`] over the
//! network.
//!
//! ```text
//!   worker 0                              worker 1
//!   coordinating ◄── control (one line each worker) ──► working
//!   working                                             working
//!     exchanger ─ tasks ◄── frames (a stream a pair and direction) ──► tasks ─ exchanger
//!     workshop                                          workshop
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `workshop` | the port to a worker's own data: input, scratch space, outputs |
//! | `member` | a worker from its start to its end; [`run_member`] gives it its own server |
//! | `host` | the workers of a process behind one service |
//! | `coordinating`, `working` | drive the two state machines of a job |
//! | `control` | a worker's control connection (line) to the coordinator |
//! | `exchanger`, `cell_task`, `overseer` | an attempt at the exchange: its tasks, and their supervision |
//! | `group_count_task` | counts the groups, once all cells are decided |
//! | `outgoing`, `incoming`, `packing` | frames between workers |
//! | `wire`, `journal_records` | encodings on the network and in the journal |
//! | `observer` | receives the progress of a job |

mod cell_task;
mod control;
mod coordinating;
mod exchanger;
mod group_count_task;
mod host;
mod incoming;
mod journal_records;
mod limits;
mod member;
mod observer;
mod outgoing;
mod overseer;
mod packing;
mod wire;
mod working;
mod workshop;

#[cfg(test)]
mod end_test;
#[cfg(test)]
mod intruder_test;
#[cfg(test)]
mod jobs_test;
#[cfg(test)]
mod testing;

pub use host::{JobHost, JobService};
pub use member::{
    Canceller, Member, MemberConfig, MemberError, MemberPorts, WORKER_TIMEOUT, run_member,
};
pub use observer::{JobObserver, JobProgress};
pub use wire::OptionDigest;
pub use workshop::{
    Attempt, BegunAttempt, CellItems, GatheredGroups, JobSite, OpenJob, Workshop, WorkshopError,
    Workshops,
};
