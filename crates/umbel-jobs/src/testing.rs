//! Workers of a job on a network, with disks and workshops in memory, for tests.

pub(crate) mod cut_net;
pub(crate) mod job_world;
pub(crate) mod memory_attempt;
pub(crate) mod memory_records;
pub(crate) mod memory_workshop;
