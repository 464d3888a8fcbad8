//! Workers of a job on a network, with disks and workshops in memory, for tests.

mod cut_net;
pub(crate) mod job_world;
mod memory_attempt;
mod memory_records;
pub(crate) mod memory_workshop;
