//! The one place where the time comes in: certificates have dates, and handshakes deadlines.

use std::time::{Instant, SystemTime};

/// This moment, as the machine's clock has it.
#[expect(clippy::disallowed_methods, reason = "whether a certificate is valid depends on the day")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// For deadlines of handshakes.
#[expect(clippy::disallowed_methods, reason = "only when somebody is given up depends on it")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
