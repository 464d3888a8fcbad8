//! Clusters of real processes: the binary, sockets, disks and signals, under load and under faults.
//!
//! | variable | what it changes |
//! |---|---|
//! | `UMBEL_CLUSTER_TEST_ROUNDS` | rounds of kills under load; 3 by default |
//! | `UMBEL_CLUSTER_TEST_ITEMS` | items that are inserted into one filter; 200000 by default |
//! | `UMBEL_CLUSTER_TEST_LOG` | the `log_level` of the nodes |
//! | `UMBEL_CLUSTER_TEST_KEEP` | if set, the folders of all clusters are kept |
//!
//! Two clusters run at a time: tests wait for conditions, most of the time for one that is not about the processor.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod access;
mod crashes;
mod enrolment;
mod forming;
mod full_disk;
mod growth;
mod history;
mod jobs;
mod late;
mod load;
mod lost;
mod members;
mod monitoring;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod partition;
mod quotas;
mod refusals;
mod releases;
mod renames;
mod replicated;
mod scrub;
mod secure;
#[allow(dead_code, reason = "shared with the hostile suite")]
#[path = "../support/servers.rs"]
mod servers;
mod snapshots;
mod splits;

/// One permit: no test asserts how long something takes, and together they wait more than they compute.
const fn room_of_a_test() -> u32 {
    1
}
