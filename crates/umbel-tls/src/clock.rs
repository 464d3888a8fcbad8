//! The one place where the time comes in: certificates have dates.

use std::time::SystemTime;

/// This moment, as the machine's clock has it.
#[expect(clippy::disallowed_methods, reason = "whether a certificate is valid depends on the day")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}
