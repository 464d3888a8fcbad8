//! Time windows of filters: their arguments and their output.

use crate::clock::unix_seconds;
use crate::exit::{UsageError, refuse};
use crate::units::time;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use umbel_client::{LateItems, Window};
use umbel_engine::shard::{SLICE_MS_MIN, WINDOW_SLICE_COUNT_MAX};

/// Default number of slices of a window, or the next smaller one that cuts it as slices are allowed to be.
const DEFAULT_SLICES: u32 = 24;

/// Default number of slices of a manual window: items from before the last rotation are kept, those from
/// before the rotation preceding it are gone.
const DEFAULT_MANUAL_SLICES: u32 = 1;

/// The span of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Span {
    Time(Duration),
    /// Slices that end with `umbel filter rotate`.
    Manual,
}

/// Arguments of `umbel filter create` about time.
#[derive(Args)]
pub(super) struct WindowArgs {
    /// Forget items after this time, like 90s, 10m, 24h or 7d, or after --slices slices that `umbel filter
    /// rotate` ends; --capacity counts the items of the whole window
    #[arg(long, value_name = "TIME|manual", value_parser = parse_span, conflicts_with = "kind")]
    window: Option<Span>,
    /// Slices that the window is divided into, 1 to 62: an item is kept for the window and at most one slice
    /// more [default: 24, or the next lower number that divides the window; for a manual window 1]
    #[arg(long, value_name = "COUNT", requires = "window")]
    slices: Option<u32>,
    /// Let `insert --at` give the time of items; otherwise it is the time of arrival
    #[arg(long, requires = "window")]
    event_time: bool,
    /// What happens to items whose time is before the window: reject, drop (reported present, not kept), or
    /// oldest (kept for as long as the oldest slice) [default: reject]
    #[arg(
        long,
        value_enum,
        value_name = "POLICY",
        requires = "event_time",
        hide_possible_values = true
    )]
    late: Option<LateArg>,
    /// Start an item's window again with each insert, not only with the first
    #[arg(long, requires = "window")]
    refresh: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LateArg {
    /// They are refused
    Reject,
    /// They are called present and left out
    Drop,
    /// They go into the oldest slice
    Oldest,
}

impl WindowArgs {
    /// The window that the arguments describe; None without `--window`.
    ///
    /// # Errors
    ///
    /// A [`UsageError`] if the window does not divide into the slices, there are too many or none, or a manual window
    /// has `--event-time`.
    pub(super) fn window(&self) -> Result<Option<Window>, UsageError> {
        if let Some(slices) = self.slices
            && !(1..=WINDOW_SLICE_COUNT_MAX).contains(&slices)
        {
            refuse!("--slices {slices}: expected 1 to {WINDOW_SLICE_COUNT_MAX}");
        }
        let (event_time, refresh) = (self.event_time, self.refresh);
        let time = match self.window {
            None => return Ok(None),
            Some(Span::Manual) if event_time => {
                refuse!("--event-time: slices of a manual window have no times");
            }
            Some(Span::Manual) => {
                let slice_count = self.slices.unwrap_or(DEFAULT_MANUAL_SLICES);
                let window = Window { slice_count, refresh, manual: true, ..Window::default() };
                return Ok(Some(window));
            }
            Some(Span::Time(time)) => time,
        };
        let window_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let cuts = |slice_count: &u32| {
            let slice_count = u64::from(*slice_count);
            window_ms.is_multiple_of(slice_count) && window_ms / slice_count >= SLICE_MS_MIN
        };
        let slice_count = match self.slices {
            None => (1..=DEFAULT_SLICES).rev().find(cuts).unwrap_or(1),
            Some(slices) if cuts(&slices) => slices,
            Some(slices) => {
                let near = (1..slices).rev().find(cuts).unwrap_or(1);
                refuse!(
                    "--slices {slices} does not cut a window of {window_ms} ms into slices of whole milliseconds, \
                     {SLICE_MS_MIN} at least: name another number of slices, like {near}"
                );
            }
        };
        let late = match self.late {
            None | Some(LateArg::Reject) => LateItems::Reject,
            Some(LateArg::Drop) => LateItems::Drop,
            Some(LateArg::Oldest) => LateItems::Oldest,
        };
        let slice_ms = window_ms / u64::from(slice_count);
        let late = late.into();
        Ok(Some(Window { slice_ms, slice_count, event_time, late, refresh, manual: false }))
    }
}

/// A window in one line.
pub(super) fn text(window: &Window) -> String {
    let mut text = match Duration::from_millis(window.slice_ms) {
        _ if window.manual => format!("{} slices that end by hand", window.slice_count),
        slice => format!("{} slices of {slice:?}", window.slice_count),
    };
    if window.event_time {
        text += &format!(", by the time of events, late ones: {}", late_name(window));
    }
    if window.refresh {
        text += ", from the last time on";
    }
    text
}

/// A window as a JSON object.
pub(super) fn json(window: &Window) -> Value {
    json!({
        "slice_ms": window.slice_ms,
        "slices": window.slice_count,
        "event_time": window.event_time,
        "late": late_name(window),
        "refresh": window.refresh,
        "manual": window.manual,
    })
}

fn late_name(window: &Window) -> &'static str {
    match window.late() {
        LateItems::Unspecified | LateItems::Reject => "reject",
        LateItems::Drop => "drop",
        LateItems::Oldest => "oldest",
    }
}

/// Parses a time in seconds, minutes, hours or days.
fn parse_time(text: &str) -> Result<Duration, String> {
    time(text, "smhd")
        .ok_or_else(|| format!("`{text}` is not a time of at least 1s: write 90s, 10m, 24h or 7d"))
}

/// Parses a time, or `manual`.
fn parse_span(text: &str) -> Result<Span, String> {
    match text {
        "manual" => Ok(Span::Manual),
        text => parse_time(text).map(Span::Time).map_err(|error| format!("{error}; or manual")),
    }
}

/// The time after which a filter expires; None for never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ExpiryArg(pub(super) Option<Duration>);

/// Parses a time, or `never`.
///
/// # Errors
///
/// If the text is neither.
pub(super) fn parse_expiry(text: &str) -> Result<ExpiryArg, String> {
    match text {
        "never" => Ok(ExpiryArg(None)),
        text => parse_time(text).map(|time| ExpiryArg(Some(time))),
    }
}

/// A moment in the future, with the time until then.
pub(super) fn moment_text(at_ms: Option<u64>) -> String {
    let Some(at_ms) = at_ms else { return "never".to_owned() };
    match (at_ms / 1_000).checked_sub(unix_seconds()) {
        Some(left_s) => format!("in {left_s} s, at {at_ms} ms since 1970"),
        None => format!("now, since {at_ms} ms since 1970"),
    }
}

/// Parses a time in milliseconds since the Unix epoch.
///
/// # Errors
///
/// If the text is no such number.
pub(super) fn parse_ms(text: &str) -> Result<SystemTime, String> {
    let ms: Option<u64> = text.parse().ok();
    let time = ms.and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    time.ok_or_else(|| format!("`{text}` is not a number of milliseconds since 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        args: WindowArgs,
    }

    fn window(line: &str) -> Option<Window> {
        let words = line.split_whitespace();
        let line = Line::try_parse_from(["create"].into_iter().chain(words)).ok()?;
        line.args.window().ok()?
    }

    #[test]
    fn a_window_is_cut_into_slices() {
        let day = window("--window 24h").unwrap();
        assert_eq!((day.slice_ms, day.slice_count, day.event_time), (3_600_000, 24, false));
        assert_eq!(text(&day), "24 slices of 3600s");
        let week = window("--window 7d --slices 7 --event-time --late drop --refresh").unwrap();
        assert_eq!((week.slice_ms, week.late()), (86_400_000, LateItems::Drop));
        assert_eq!(
            text(&week),
            "7 slices of 86400s, by the time of events, late ones: drop, from the last time on"
        );
        assert_eq!(json(&week)["late"], "drop");
        let runs = window("--window manual --slices 7").unwrap();
        assert_eq!((runs.slice_ms, runs.slice_count, runs.manual), (0, 7, true));
        assert_eq!(text(&runs), "7 slices that end by hand");
        assert_eq!(window("--window manual").map(|window| window.slice_count), Some(1));
        // 1,000 ms are no 24 slices of whole milliseconds, and 20 slices would be too short.
        let short = window("--window 1s").unwrap();
        assert_eq!((short.slice_ms, short.slice_count), (100, 10));
        let most = window("--window 62d --slices 62").unwrap();
        assert_eq!((most.slice_ms, most.slice_count), (86_400_000, 62));
        for line in [
            "",
            "--window 24",
            "--window 0s",
            "--window -1h",
            "--window 1s --slices 0",
            "--window 1s --slices 7",
            "--window 1s --slices 20",
            "--window 24h --slices 63",
            "--window manual --slices 63",
            "--slices 24",
            "--refresh",
            "--window 1h --late drop",
            "--window 1h --kind classic",
            "--window manual --event-time",
        ] {
            assert_eq!(window(line), None, "{line}");
        }
    }

    #[test]
    fn filters_expire_after_a_time_or_never() {
        let week = Duration::from_secs(7 * 86_400);
        assert_eq!(parse_expiry("7d"), Ok(ExpiryArg(Some(week))));
        assert_eq!(parse_expiry("never"), Ok(ExpiryArg(None)));
        assert!(parse_expiry("0s").unwrap_err().contains("at least 1s"));
        assert!(parse_expiry("soon").is_err());
        assert_eq!(moment_text(None), "never");
        assert!(moment_text(Some(1)).starts_with("now"));
    }

    #[test]
    fn times_of_events_are_milliseconds() {
        let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        assert_eq!(parse_ms("1000"), Ok(second));
        for text in ["", "-1", "1.5", "now", "99999999999999999999"] {
            assert!(parse_ms(text).is_err(), "{text}");
        }
    }
}
