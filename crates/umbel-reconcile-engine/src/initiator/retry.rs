//! What an attempt that failed teaches the next one.
//!
//! An attempt fails by items that have the same symbol, at most once in 2^7 sessions, or by a peer that lies. The next
//! one has another key, symbols that are longer by [`SYMBOL_BITS_MORE`], and the differences that are left by what is
//! known: so it costs what the first one did, or far less where that one has resolved all but what was in doubt.

use super::{Count, Initiator, Known};
use crate::core::Core;
use crate::error::SessionError;
use crate::event::Output;
use crate::job::Job;
use crate::limits::RECONCILE_ATTEMPTS_MAX as ATTEMPTS_MAX;
use crate::message::Message;
use crate::options::Direction;
use umbel_step::Outbox;

/// Differences that are expected after sets were merged under a key that made two symbols collide.
const RESIDUE: f64 = 8.0;

/// Differences that a symbol in doubt stands for: one of several entries here, and perhaps one there.
const DOUBTFUL_DIFFERENCES: f64 = 2.0;

/// Bits by which the symbols of another attempt are longer: it fails 2^8 times more rarely.
const SYMBOL_BITS_MORE: u8 = 8;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// Its sketches decoded nothing.
    Undecoded,
    /// There are far more differences than the plan was made for: about so many.
    Overfull(f64),
    /// What was decoded is contradictory or in doubt, and was not transferred.
    Contradicted,
    /// After the transfer the digests differ.
    Unequal,
}

impl Initiator {
    /// Whether each side takes what it lacks, so that an attempt leaves less to the next one.
    pub(super) const fn merges(&self, core: &Core) -> bool {
        matches!(core.aim.direction, Direction::TwoWay)
    }

    /// Fewest bits of a symbol of the coming plan.
    pub(super) fn symbol_bits_min(&self, core: &Core) -> u8 {
        match self.symbol_bits {
            0 => core.symbol_bits_min,
            bits => bits.saturating_add(SYMBOL_BITS_MORE).clamp(core.symbol_bits_min, 64),
        }
    }

    /// Differences that are left after this attempt.
    fn left(&self, core: &Core, failure: Failure) -> Count {
        let exact = |count: f64| Count { count, is_exact: true };
        match failure {
            Failure::Undecoded => self.estimate,
            Failure::Overfull(count) => exact(count.max(self.estimate.count)),
            Failure::Unequal if self.merges(core) => {
                exact(RESIDUE + DOUBTFUL_DIFFERENCES * self.doubtful)
            }
            Failure::Contradicted | Failure::Unequal => {
                let counted = |is_taken: bool, count: f64| if is_taken { count } else { 0.0 };
                // What a side has taken is on both sides now.
                let taken_here = counted(core.changes(true), core.received.count as f64);
                let taken_there = counted(core.changes(false), self.filtered_here);
                exact(self.found - taken_here - taken_there + RESIDUE)
            }
        }
    }

    /// Begins again under another key; after two of them with the whole list.
    pub(super) fn retry(
        &mut self,
        core: &mut Core,
        failure: Failure,
        out: &mut Outbox<Output>,
    ) -> Result<(), SessionError> {
        if self.is_last_resort {
            return Err(SessionError::NotConverged {
                ours: core.own.count,
                theirs: core.there_count,
            });
        }
        let left = self.left(core, failure);
        let attempt = core.attempt + 1;
        self.is_last_resort = attempt >= ATTEMPTS_MAX - 1;
        core.attempts += 1;
        core.begin_attempt(attempt);
        (self.filtered_here, self.found, self.doubtful) = (0.0, 0.0, 0.0);
        core.queue.push_back(Job::Message(Message::Retry { attempt }));
        self.survey(core, Known::Count(left), out);
        Ok(())
    }
}
