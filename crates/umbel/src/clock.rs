//! The clocks of the binary: to report how long something took, or how long ago it happened. No result
//! depends on them.

pub(crate) use umbel_dedup::{ProcessorTime, Stopwatch};

/// Seconds since the Unix epoch, for the signature of a request.
#[expect(clippy::disallowed_methods, reason = "time is measured here and nowhere else")]
pub(crate) fn unix_seconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Formats the time since a moment, given in milliseconds since the Unix epoch, for people.
pub(crate) fn age_text(moment_ms: u64) -> String {
    let age_s = unix_seconds().saturating_sub(moment_ms / 1000);
    match age_s {
        0..120 => format!("{age_s} s ago"),
        120..7200 => format!("{} min ago", age_s / 60),
        7200..172_800 => format!("{} h ago", age_s / 3600),
        _ => format!("{} days ago", age_s / 86_400),
    }
}
