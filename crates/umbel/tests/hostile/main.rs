//! Attacks on real nodes by raw clients, with an honest client beside them.
//!
//! While an attack lasts, the tests assert that the node's memory and descriptors stay below the stated
//! bounds, and that every call of the honest client is answered within its deadline; afterwards, that the
//! descriptors are released, the node serves new clients, and it has not panicked.
//!
//! | variable | what it changes |
//! |---|---|
//! | `UMBEL_HOSTILE_TEST_SCALE` | how often floods are repeated and how many connections are opened; 1 by default, the short form for CI. From 4 on, the tests also assert that the honest client keeps half of the calls that it made in an equal time before the attack |
//! | `UMBEL_CLUSTER_TEST_LOG`, `UMBEL_CLUSTER_TEST_KEEP` | as in the cluster suite |
//!
//! The long form is `UMBEL_HOSTILE_TEST_SCALE=4 cargo test -p umbel --test hostile -- --include-ignored`;
//! it includes tests that wait for time limits, which are ignored otherwise. With `--nocapture` each
//! attack prints what it cost.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod bodies;
mod calls;
mod certificates;
mod connections;
mod floods;
mod frames;
mod honest;
mod identities;
mod jobs;
mod listeners;
mod peers;
#[allow(dead_code, reason = "shared with the cluster suite")]
#[path = "../support/servers.rs"]
mod servers;
mod sessions;
mod siege;
mod streams;
mod unfolding;

/// The permits of a test; all of them if it measures throughput.
fn room_of_a_test() -> u32 {
    if siege::is_long() { servers::CLUSTERS_MAX } else { 1 }
}
