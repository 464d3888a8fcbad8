//! What a stranger can cost: real nodes, raw clients that do each hostile thing, and an honest client beside them.
//!
//! Of each attack it is asserted, while it lasts, that the node's memory and descriptors stay below the bounds that the
//! test states and that every call of the honest client is answered within its deadline; afterwards, that
//! descriptors come back, the node serves new clients, and nothing in it panicked.
//!
//! | variable | what it changes |
//! |---|---|
//! | `UMBEL_HOSTILE_TEST_SCALE` | how often floods are repeated and how many connections come, 1 if it is not set: the short form of CI. From 4 on it is also measured that the honest client keeps half of the calls that it made in an equal time before the attack |
//! | `UMBEL_CLUSTER_TEST_LOG`, `UMBEL_CLUSTER_TEST_KEEP` | as in the cluster suite |
//!
//! The long form is `UMBEL_HOSTILE_TEST_SCALE=4 cargo test -p umbel --test hostile -- --include-ignored`: tests that wait
//! for limits in time are ignored otherwise. With `--nocapture` each attack prints what it cost.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod bodies;
mod calls;
mod certificates;
mod connections;
mod floods;
mod frames;
#[path = "../support/free_ports.rs"]
mod free_ports;
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

/// Of the room for clusters: all of it where throughput is measured.
fn room_of_a_test() -> u32 {
    if siege::is_long() { servers::CLUSTERS_MAX } else { 1 }
}
