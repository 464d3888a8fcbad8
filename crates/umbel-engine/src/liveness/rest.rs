//! How long a group that this node leads has been idle.

use super::GroupStanding;

/// Beats after the last entry before the first reminder: while entries flow, each carries the commit index.
const FIRST_REMINDER_BEATS: u32 = 5;

/// Most beats between two reminders. At ten beats a second, a follower that missed everything while its
/// node was alive lags for half a minute at most.
const REMINDER_BEATS_MAX: u32 = 320;

/// How long a group has been idle.
#[derive(Debug)]
pub(super) struct GroupRest {
    committed_index: u64,
    term: u64,
    /// Beats since the last entry, or since the last reminder.
    beat_count: u32,
    /// Beats until the next reminder.
    pause_beats: u32,
}

impl GroupRest {
    pub(super) const fn new(standing: &GroupStanding) -> Self {
        let (committed_index, term) = (standing.committed_index, standing.term);
        Self { committed_index, term, beat_count: 0, pause_beats: FIRST_REMINDER_BEATS }
    }

    /// Counts a beat, and returns whether a reminder is due now.
    pub(super) fn is_reminder_due(&mut self, standing: &GroupStanding) -> bool {
        if (self.committed_index, self.term) != (standing.committed_index, standing.term) {
            *self = Self::new(standing);
            return false;
        }
        self.beat_count += 1;
        let is_due = self.beat_count >= self.pause_beats;
        if is_due {
            self.beat_count = 0;
            self.pause_beats = (2 * self.pause_beats).min(REMINDER_BEATS_MAX);
        }
        is_due
    }
}
