//! When and how a windowed filter forgets.

use serde::{Deserialize, Serialize};
use umbel_filter::{Sighting, WINDOW_SLICES_MAX};

/// Most slices of a window: the filter has room for two more, the one that is ending and the one that
/// begins.
#[expect(clippy::cast_possible_truncation, reason = "64")]
pub const WINDOW_SLICE_COUNT_MAX: u32 = WINDOW_SLICES_MAX as u32 - 2;

/// Shortest slice. Each slice that ends costs a log entry and a pass over the table.
pub const SLICE_MS_MIN: u64 = 100;

/// Longest slice: a year.
pub const SLICE_MS_MAX: u64 = 366 * 24 * 3_600 * 1_000;

/// Largest slice number, so that sums do not overflow. Later than any clock's time in milliseconds.
const NUMBER_MAX: u64 = 1 << 62;

/// Which time determines an item's slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WindowTime {
    /// The time of arrival, by the leader's clock.
    Ingest,
    /// The time that the client states; if it states none, the time of arrival.
    Event,
    /// None: slices end when the filter is rotated.
    Manual,
}

/// How items are handled whose time is before the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LateItems {
    /// The insert is refused.
    Reject,
    /// They are answered present and not inserted.
    Drop,
    /// They are inserted into the oldest slice.
    Oldest,
}

/// When and how a filter forgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WindowRules {
    /// Milliseconds per slice, [`SLICE_MS_MIN`] to [`SLICE_MS_MAX`]; 0 if rotated manually.
    pub slice_ms: u64,
    /// Slices of the window, S, 1 to [`WINDOW_SLICE_COUNT_MAX`]: an item is kept for at least S and at most
    /// S + 1 slices.
    pub slice_count: u32,
    /// Which time determines an item's slice.
    pub time: WindowTime,
    /// How late items are handled.
    pub late: LateItems,
    /// Whether an item is kept from its last insert on, instead of its first.
    pub refresh: bool,
}

impl WindowRules {
    /// The number of the slice that contains a time, given in milliseconds since 1970.
    ///
    /// ```
    /// use umbel_engine::shard::{LateItems, WindowRules, WindowTime};
    ///
    /// let rules = WindowRules {
    ///     slice_ms: 3_600_000, slice_count: 24, time: WindowTime::Ingest, late: LateItems::Reject,
    ///     refresh: false,
    /// };
    /// assert_eq!(rules.slice_at(7_200_000), 2);
    /// assert_eq!(rules.oldest_for(30), 6);
    /// assert!(rules.check().is_ok());
    /// ```
    #[must_use]
    pub const fn slice_at(&self, ms: u64) -> u64 {
        let number = ms / if self.slice_ms == 0 { 1 } else { self.slice_ms };
        if number > NUMBER_MAX { NUMBER_MAX } else { number }
    }

    /// The oldest slice that is kept when `newest` is the newest one.
    #[must_use]
    pub const fn oldest_for(&self, newest: u64) -> u64 {
        newest.saturating_sub(self.slice_count as u64)
    }

    /// Checks that the rules are within their ranges.
    ///
    /// # Errors
    /// If they are not; the message says what was expected.
    pub fn check(&self) -> Result<(), String> {
        if self.time == WindowTime::Manual {
            if self.slice_ms != 0 {
                return Err(format!("slices of {} ms that end by hand, expected 0", self.slice_ms));
            }
        } else if !(SLICE_MS_MIN..=SLICE_MS_MAX).contains(&self.slice_ms) {
            return Err(format!(
                "slices of {} ms, expected {SLICE_MS_MIN} to {SLICE_MS_MAX}",
                self.slice_ms
            ));
        }
        if !(1..=WINDOW_SLICE_COUNT_MAX).contains(&self.slice_count) {
            return Err(format!(
                "a window of {} slices, expected 1 to {WINDOW_SLICE_COUNT_MAX}",
                self.slice_count
            ));
        }
        Ok(())
    }

    /// Which insert of an item determines how long it is kept.
    pub(super) const fn sighting(&self) -> Sighting {
        if self.refresh { Sighting::Last } else { Sighting::First }
    }
}
