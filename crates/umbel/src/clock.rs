//! The one place where the binary looks at a clock: to say how long something took, or how long ago it was. No result
//! depends on it.

pub(crate) use umbel_dedup::{ProcessorTime, Stopwatch};

/// Seconds since 1970, for the signature of a request.
#[expect(clippy::disallowed_methods, reason = "time is measured here and nowhere else")]
pub(crate) fn unix_seconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// How long ago a moment was, for people, given in milliseconds since 1970.
pub(crate) fn age_text(moment_ms: u64) -> String {
    let age_s = unix_seconds().saturating_sub(moment_ms / 1000);
    match age_s {
        0..120 => format!("{age_s} s ago"),
        120..7200 => format!("{} min ago", age_s / 60),
        7200..172_800 => format!("{} h ago", age_s / 3600),
        _ => format!("{} days ago", age_s / 86_400),
    }
}
