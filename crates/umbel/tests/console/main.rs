//! The console in a real browser: three nodes that are processes, and Chromium without a window.
//!
//! Debian and Ubuntu have both in `chromium` and `chromium-driver`. Where they are not there, each test says
//! that it was skipped and passes.
//!
//! | variable | what it changes |
//! |---|---|
//! | `UMBEL_CONSOLE_PICTURES` | where the ignored test `pictures` writes what the views look like, from the root of the project; `target` if it is not set |
//! | `UMBEL_AXE` | the file axe.min.js, of axe-core: pages are looked at with it, too |
//! | `UMBEL_CLUSTER_TEST_LOG`, `UMBEL_CLUSTER_TEST_KEEP` | as in the cluster suite |

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod accessible;
mod drawings;
#[path = "../support/free_ports.rs"]
mod free_ports;
mod large;
mod operate;
mod pictures;
mod report_pages;
#[allow(dead_code, reason = "shared with the cluster suite")]
#[path = "../support/servers.rs"]
mod servers;
mod sign_in;
mod views;
mod webdriver;

use webdriver::Browser;

/// Of the room for clusters all of it: a browser is another one's work.
const fn room_of_a_test() -> u32 {
    servers::CLUSTERS_MAX
}

/// A browser, or a word that there is none.
fn browser() -> Option<Browser> {
    let browser = Browser::start();
    if browser.is_none() {
        eprintln!(
            "skipped: there is no Chromium with its driver (packages chromium, chromium-driver)"
        );
    }
    browser
}
