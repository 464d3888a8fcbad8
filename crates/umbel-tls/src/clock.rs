//! The only module that reads clocks: certificates have dates, and handshakes have deadlines.

use std::time::{Instant, SystemTime};

/// The time of the system's clock.
#[expect(clippy::disallowed_methods, reason = "whether a certificate is valid depends on the day")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// The monotonic clock, for deadlines of handshakes.
#[expect(clippy::disallowed_methods, reason = "only when somebody is given up depends on it")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
