//! The console in a real browser: three node processes, and headless Chromium.
//!
//! On Debian and Ubuntu, install `chromium` and `chromium-driver`. Without them, each test prints that it
//! was skipped, and passes.
//!
//! | variable | what it changes |
//! |---|---|
//! | `UMBEL_CONSOLE_PICTURES` | folder for the pictures of the ignored test `pictures`, relative to the root of the project; `target` by default |
//! | `UMBEL_AXE` | the file axe.min.js of axe-core, with which pages are checked in addition |
//! | `UMBEL_CLUSTER_TEST_LOG`, `UMBEL_CLUSTER_TEST_KEEP` | as in the cluster suite |

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed test is what should come of it")]

mod accessible;
mod drawings;
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

/// All permits, since a browser runs beside the cluster.
const fn room_of_a_test() -> u32 {
    servers::CLUSTERS_MAX
}

/// A browser; prints a line if there is none.
fn browser() -> Option<Browser> {
    let browser = Browser::start();
    if browser.is_none() {
        eprintln!(
            "skipped: there is no Chromium with its driver (packages chromium, chromium-driver)"
        );
    }
    browser
}
