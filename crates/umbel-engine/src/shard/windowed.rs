//! Windows: slices of a filter that forgets, by times that stand in the log.
//!
//! A replica never asks a clock. The leader writes what its clock says into the entry, and a window
//! moves on to the latest time that any entry had: so all replicas have the same window after the same
//! entries, and it never moves back, whatever the clock of the next leader says.
//!
//! ```text
//! number of a slice   ⌊milliseconds since 1970 / milliseconds of a slice⌋
//! kept                the newest, which is at hand, and as many as the window has before it
//! ```
//!
//! A window that goes by hand has no times: its newest slice is the number of its rotations, each of which is an
//! entry that begins a generation, so that requests that were hashed before it are asked anew.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use umbel_filter::{AnyFilter, Insertion, ItemHash, Sighting, WINDOW_SLICES_MAX, Window};

use super::bitmap::Bitmap;
use super::command::{InsertPart, PartError};
use super::slice::Slice;
use super::slice_shape::SliceShape;
use super::state::ShardState;
use crate::ids::{FilterId, Generation};
use umbel_step::planted::{self, Planted};

/// Most slices of a window: beside them the filter keeps the one that is ending and the one that begins.
#[expect(clippy::cast_possible_truncation, reason = "64")]
pub const WINDOW_SLICE_COUNT_MAX: u32 = WINDOW_SLICES_MAX as u32 - 2;

/// Shortest slice. Each slice that ends costs an entry and a pass over the table.
pub const SLICE_MS_MIN: u64 = 100;

/// Longest slice: a year.
pub const SLICE_MS_MAX: u64 = 366 * 24 * 3_600 * 1_000;

/// Which time puts an item into its slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WindowTime {
    /// When it comes, by the leader's clock.
    Ingest,
    /// What the client names; when it comes, if the client names none.
    Event,
    /// None: slices end when somebody rotates the filter.
    Manual,
}

/// What becomes of items whose time is before the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LateItems {
    /// They are refused.
    Reject,
    /// They are called present and left out.
    Drop,
    /// They go into the oldest slice.
    Oldest,
}

/// How a filter forgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WindowRules {
    /// Milliseconds of a slice, [`SLICE_MS_MIN`] to [`SLICE_MS_MAX`]; 0 where they are rotated by hand.
    pub slice_ms: u64,
    /// Slices of the window, S, 1 to [`WINDOW_SLICE_COUNT_MAX`]: an item is kept for S slices at least
    /// and for S + 1 at most.
    pub slice_count: u32,
    /// Which time counts.
    pub time: WindowTime,
    /// What becomes of late items.
    pub late: LateItems,
    /// Whether an item that comes again is kept from then on, and not from the first time.
    pub refresh: bool,
}

impl WindowRules {
    /// The number of the slice of a time, in milliseconds since 1970.
    ///
    /// ```
    /// use umbel_engine::shard::{LateItems, WindowRules, WindowTime};
    ///
    /// let rules = WindowRules {
    ///     slice_ms: 3_600_000, slice_count: 24, time: WindowTime::Ingest, late: LateItems::Reject,
    ///     refresh: false,
    /// };
    /// assert_eq!(rules.slice_at(7_200_000), 2);
    /// assert_eq!(rules.oldest_beside(30), 6);
    /// assert!(rules.check().is_ok());
    /// ```
    #[must_use]
    pub const fn slice_at(&self, ms: u64) -> u64 {
        let number = ms / if self.slice_ms == 0 { 1 } else { self.slice_ms };
        if number > NUMBER_MAX { NUMBER_MAX } else { number }
    }

    /// The oldest slice that is kept beside the newest.
    #[must_use]
    pub const fn oldest_beside(&self, newest: u64) -> u64 {
        newest.saturating_sub(self.slice_count as u64)
    }

    /// Whether there is such a window.
    ///
    /// # Errors
    /// With what was expected.
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

    const fn sighting(&self) -> Sighting {
        if self.refresh { Sighting::Last } else { Sighting::First }
    }
}

/// Largest number of a slice, so that sums do not overflow: beyond the end of times in milliseconds of
/// any clock.
const NUMBER_MAX: u64 = 1 << 62;

/// An insert whose time matters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TimedInsert {
    /// What is inserted.
    pub part: InsertPart,
    /// The time that the client names, in milliseconds since 1970.
    pub at_ms: Option<u64>,
}

/// The times of an insert: milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InsertTime {
    /// By the leader's clock.
    pub(super) now_ms: u64,
    /// By the client.
    pub(super) at_ms: Option<u64>,
}

impl Slice {
    /// The window and its rules, of a filter that has one.
    pub(super) fn window(&self) -> Option<(&Window, &WindowRules)> {
        match (&*self.filter, &self.spec.shape) {
            (AnyFilter::Window(window), SliceShape::Window { rules, .. }) => Some((window, rules)),
            _ => None,
        }
    }

    /// Moves a window on to a time, if it goes by time.
    pub(super) fn advance(&mut self, now_ms: u64) {
        let Some((window, rules)) = self.window() else { return };
        if rules.time == WindowTime::Manual {
            return;
        }
        let newest = rules.slice_at(now_ms).max(window.newest());
        // Who is there already is not changed, and so not copied for a snapshot.
        if newest == window.newest() && window.oldest() >= rules.oldest_beside(newest) {
            return;
        }
        let rules = *rules;
        if let AnyFilter::Window(window) = Arc::make_mut(&mut self.filter) {
            advance_to(window, &rules, newest);
        }
    }

    /// Ends the slice at hand of a window that goes by hand, and begins a generation.
    pub(super) fn rotate(&mut self, generation: Generation) -> Result<(), PartError> {
        let (AnyFilter::Window(window), SliceShape::Window { rules, .. }) =
            (Arc::make_mut(&mut self.filter), &self.spec.shape)
        else {
            let what = format!("{} has no slices to rotate", self.spec.filter);
            return Err(PartError::WrongKind { what });
        };
        if rules.time != WindowTime::Manual {
            let what = format!("slices of {} end by time", self.spec.filter);
            return Err(PartError::WrongKind { what });
        }
        let ended = u64::from(!planted::on(Planted::RotationLost));
        advance_to(window, rules, window.newest().saturating_add(ended));
        self.generation = generation;
        Ok(())
    }

    /// Inserts hashes of the range into the slice of their time.
    pub(super) fn insert_timed(
        &mut self,
        hashes: &[ItemHash],
        time: InsertTime,
    ) -> Result<Vec<Insertion>, PartError> {
        self.advance(time.now_ms);
        let filter = self.spec.filter;
        let (AnyFilter::Window(window), SliceShape::Window { rules, .. }) =
            (Arc::make_mut(&mut self.filter), &self.spec.shape)
        else {
            let what = format!("{filter} has no window, so its items have no time");
            return Err(PartError::WrongKind { what });
        };
        let slice = match (time.at_ms, rules.time) {
            (None, _) => window.newest(),
            (Some(at_ms), WindowTime::Event) => rules.slice_at(at_ms),
            (Some(_), WindowTime::Ingest | WindowTime::Manual) => {
                let by = match rules.time {
                    WindowTime::Manual => "rotations",
                    _ => "the time of arrival",
                };
                let what = format!("{filter} counts by {by}, so items have no other time");
                return Err(PartError::WrongKind { what });
            }
        };
        let ms_of = |slice: u64| slice.saturating_mul(rules.slice_ms);
        if slice > window.newest() + 1 {
            let at_ms = time.at_ms.unwrap_or_default();
            let latest_ms = ms_of(window.newest() + 2) - 1;
            return Err(PartError::FutureItem { filter, at_ms, latest_ms });
        }
        if slice < window.oldest() {
            match rules.late {
                LateItems::Reject => {
                    let (at_ms, oldest_ms) =
                        (time.at_ms.unwrap_or_default(), ms_of(window.oldest()));
                    return Err(PartError::LateItem { filter, at_ms, oldest_ms });
                }
                LateItems::Drop => return Ok(vec![Insertion::Present; hashes.len()]),
                // The window takes them for the oldest.
                LateItems::Oldest => {}
            }
        }
        let mut outcomes = Vec::new();
        let outcome = window.insert_batch_at(hashes, slice, rules.sighting(), &mut outcomes);
        self.count_new(&outcomes);
        outcome.map_err(|error| self.refused(error))?;
        Ok(outcomes)
    }

    /// Which of the hashes need no insert: those that are present, or, where the last time counts,
    /// present in the last slice that it can be inserted into, or in the newer generation.
    pub(super) fn needs_no_insert(&self, hashes: &[ItemHash]) -> Vec<bool> {
        match self.window() {
            Some((window, rules)) if rules.refresh => {
                // A client's time may be a slice ahead.
                let newest = window.newest() + u64::from(rules.time == WindowTime::Event);
                let is_there = |&hash| window.slice_of(hash).is_some_and(|slice| slice >= newest);
                hashes.iter().map(is_there).collect()
            }
            None if let AnyFilter::Aging(filter) = &*self.filter => {
                hashes.iter().map(|&hash| filter.is_newest(hash)).collect()
            }
            _ => self.contains(hashes),
        }
    }
}

/// Moves a window on to a slice that is not before the newest.
fn advance_to(window: &mut Window, rules: &WindowRules, newest: u64) {
    let early = u64::from(planted::on(Planted::SliceFreedEarly)).min(newest);
    window.advance(rules.oldest_beside(newest) + early, newest);
}

impl ShardState {
    /// Whether the window of this filter, if it has one, has to move on before a question is answered
    /// or an insert is prepared at this time: then propose
    /// [`ShardCommand::Advance`](super::ShardCommand::Advance) first.
    #[must_use]
    pub fn is_behind(&self, filter: FilterId, now_ms: u64) -> bool {
        let window = self.slices.get(&filter).and_then(Slice::window);
        window.is_some_and(|(window, rules)| {
            rules.time != WindowTime::Manual && rules.slice_at(now_ms) > window.newest()
        })
    }

    /// Whether inserts into this filter carry a time.
    #[must_use]
    pub fn is_windowed(&self, filter: FilterId) -> bool {
        self.slices.get(&filter).and_then(Slice::window).is_some()
    }

    pub(super) fn advance(&mut self, now_ms: u64) {
        self.slices.values_mut().for_each(|slice| slice.advance(now_ms));
    }

    pub(super) fn rotate(
        &mut self,
        filter: FilterId,
        generation: Generation,
    ) -> Result<(), PartError> {
        let unknown = PartError::UnknownSlice { filter, shard: self.shard };
        let slice = self.slices.get_mut(&filter).ok_or(unknown)?;
        if generation > slice.generation {
            slice.rotate(generation)
        } else {
            slice.check_generation(generation)
        }
    }

    pub(super) fn insert_timed(
        &mut self,
        now_ms: u64,
        inserts: &[TimedInsert],
    ) -> Vec<Result<Bitmap, PartError>> {
        let timed = |insert: &TimedInsert| {
            let time = InsertTime { now_ms, at_ms: insert.at_ms };
            self.insert(&insert.part, Some(time))
        };
        inserts.iter().map(timed).collect()
    }
}
