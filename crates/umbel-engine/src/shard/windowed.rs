//! Windowed filters: slices that forget, driven by times in log entries.
//!
//! A replica never reads a clock. The leader writes its clock's time into each entry, and a window advances
//! to the latest time of any entry. So after the same entries all replicas have the same window, and it
//! never moves back, whatever the next leader's clock says.
//!
//! ```text
//! number of a slice   ⌊milliseconds since 1970 / milliseconds of a slice⌋
//! kept                the newest, which is at hand, and as many as the window has before it
//! ```
//!
//! A manually rotated window has no times: the number of its newest slice is the number of its rotations.
//! Each rotation is an entry that starts a new generation, so requests that were hashed before it are
//! refused and retried.

use umbel_filter::{AnyFilter, Insertion, ItemHash, Window};

use super::bitmap::Bitmap;
use super::command::TimedInsert;
use super::part_error::PartError;
use super::slice::Slice;
use super::slice_shape::SliceShape;
use super::state::ShardState;
use super::window_rules::{LateItems, WindowRules, WindowTime};
use crate::ids::{FilterId, Generation};
use crate::shard::PartResult;
use umbel_step::planted::{self, Planted};

/// The times of an insert, in milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InsertTime {
    /// The leader's clock.
    pub(super) now_ms: u64,
    /// The time that the client states, if any.
    pub(super) at_ms: Option<u64>,
}

impl Slice {
    /// The window and its rules, if the filter has one.
    pub(super) fn window(&self) -> Option<(&Window, &WindowRules)> {
        match (&*self.filter, &self.spec.shape) {
            (AnyFilter::Window(window), SliceShape::Window { rules, .. }) => Some((window, rules)),
            _ => None,
        }
    }

    /// The same, to be changed. A filter without a window stays as it is, shared or read.
    fn window_mut(&mut self) -> Option<(&mut Window, WindowRules)> {
        let (_, &rules) = self.window()?;
        match self.filter.change() {
            AnyFilter::Window(window) => Some((window, rules)),
            _ => None,
        }
    }

    /// Advances a window to a time, unless it is rotated manually.
    pub(super) fn advance(&mut self, now_ms: u64) {
        let Some((window, rules)) = self.window() else { return };
        if rules.time == WindowTime::Manual {
            return;
        }
        let newest = rules.slice_at(now_ms).max(window.newest());
        // A window that is there already is not modified, so that it is not copied for a snapshot.
        if newest == window.newest() && window.oldest() >= rules.oldest_for(newest) {
            return;
        }
        if let Some((window, rules)) = self.window_mut() {
            advance_to(window, &rules, newest);
        }
    }

    /// Ends the current slice of a manually rotated window, and starts the given generation.
    pub(super) fn rotate(&mut self, generation: Generation) -> PartResult<()> {
        let filter = self.spec.filter;
        let Some((window, rules)) = self.window_mut() else {
            let what = format!("{filter} has no slices to rotate");
            return Err(PartError::WrongKind { what });
        };
        if rules.time != WindowTime::Manual {
            let what = format!("slices of {filter} end by time");
            return Err(PartError::WrongKind { what });
        }
        let ended = u64::from(!planted::on(Planted::RotationLost));
        let newest = window.newest().saturating_add(ended);
        advance_to(window, &rules, newest);
        self.generation = generation;
        Ok(())
    }

    /// Inserts hashes of the shard's range into the slice of their time.
    pub(super) fn insert_timed(
        &mut self,
        hashes: &[ItemHash],
        time: InsertTime,
    ) -> PartResult<Vec<Insertion>> {
        self.advance(time.now_ms);
        let filter = self.spec.filter;
        let Some((window, rules)) = self.window_mut() else {
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
                let what = format!(
                    "{filter} counts by {by}, so items have no other time: a window that is created with the time of \
                     events takes one"
                );
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
                // The window treats them as items of its oldest slice.
                LateItems::Oldest => {}
            }
        }
        let mut outcomes = Vec::new();
        let outcome = window.insert_batch_at(hashes, slice, rules.sighting(), &mut outcomes);
        self.count_new(&outcomes);
        outcome.map_err(|error| self.refused(error))?;
        Ok(outcomes)
    }

    /// Which of the hashes need no insert: those that are present. If an item is kept from its last insert
    /// on, those present in the newest slice that it could be inserted into; in an aging filter, those in
    /// the newer generation.
    pub(super) fn needs_no_insert(&self, hashes: &[ItemHash]) -> Vec<bool> {
        match self.window() {
            Some((window, rules)) if rules.refresh => {
                // A client's time may be one slice ahead.
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

/// Advances a window to a slice, which must not be before the newest.
fn advance_to(window: &mut Window, rules: &WindowRules, newest: u64) {
    let early = u64::from(planted::on(Planted::SliceFreedEarly)).min(newest);
    window.advance(rules.oldest_for(newest) + early, newest);
}

impl ShardState {
    /// Whether this filter's window must advance before a query is answered or an insert is prepared at
    /// this time. If so, propose [`ShardCommand::Advance`](super::ShardCommand::Advance) first. False if
    /// the filter has no window.
    #[must_use]
    pub fn is_behind(&self, filter: FilterId, now_ms: u64) -> bool {
        let window = self.slices.get(&filter).and_then(Slice::window);
        window.is_some_and(|(window, rules)| {
            rules.time != WindowTime::Manual && rules.slice_at(now_ms) > window.newest()
        })
    }

    /// Whether this filter has a window, so that its inserts carry a time.
    #[must_use]
    pub fn is_windowed(&self, filter: FilterId) -> bool {
        self.slices.get(&filter).and_then(Slice::window).is_some()
    }

    pub(super) fn advance(&mut self, now_ms: u64) {
        self.slices.values_mut().for_each(|slice| slice.advance(now_ms));
    }

    pub(super) fn rotate(&mut self, filter: FilterId, generation: Generation) -> PartResult<()> {
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
    ) -> Vec<PartResult<Bitmap>> {
        let timed = |insert: &TimedInsert| {
            let time = InsertTime { now_ms, at_ms: insert.at_ms };
            self.insert(&insert.part, Some(time))
        };
        inserts.iter().map(timed).collect()
    }
}
