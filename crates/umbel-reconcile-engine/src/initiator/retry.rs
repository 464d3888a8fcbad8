//! How a failed attempt affects the next one.
//!
//! An attempt fails because items have the same symbol, at most once in 2^7 sessions, or because the peer
//! lies. The next one uses another key, symbols that are longer by [`SYMBOL_BITS_MORE`], and the number of
//! differences that are left as far as known. So it costs what the first one did, or far less if that one
//! has resolved everything but the doubtful symbols.

use super::{Count, Initiator, Known};
use crate::core::Core;
use crate::error::{Result, SessionError};
use crate::event::Out;
use crate::job::Job;
use crate::limits::ATTEMPTS_MAX;
use crate::message::Message;
use crate::options::Direction;
use umbel_step::planted::{self, Planted};

/// Expected differences after sets were merged under a key that made two symbols collide.
const RESIDUE: f64 = 8.0;

/// Differences that a doubtful symbol stands for: one of several entries here, and perhaps one there.
const DOUBTFUL_DIFFERENCES: f64 = 2.0;

/// How many bits longer the symbols of another attempt are: it fails 2^8 times more rarely.
const SYMBOL_BITS_MORE: u8 = 8;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// Its sketches could not be decoded.
    Undecoded,
    /// There are far more differences than planned for: about this many.
    Overfull(f64),
    /// What was decoded is contradictory or doubtful, and was not transferred.
    Contradicted,
    /// The digests differ after the transfer.
    Unequal,
}

impl Initiator {
    /// Whether each side takes what it lacks, so that an attempt leaves fewer differences to the next one.
    pub(super) const fn merges(&self, core: &Core) -> bool {
        matches!(core.terms.aim.direction, Direction::TwoWay)
    }

    /// Fewest bits of a symbol of the next plan.
    pub(super) fn symbol_bits_min(&self, core: &Core) -> u8 {
        let more = if planted::on(Planted::RetryKeepsKey) { 0 } else { SYMBOL_BITS_MORE };
        match self.symbol_bits {
            0 => core.terms.symbol_bits_min,
            bits => bits.saturating_add(more).clamp(core.terms.symbol_bits_min, 64),
        }
    }

    /// Number of differences left after this attempt.
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
                let taken_here = counted(core.terms.changes_here(), core.arrivals.sum.count as f64);
                let taken_there = counted(core.terms.changes_there(), self.filtered_here);
                exact(self.found - taken_here - taken_there + RESIDUE)
            }
        }
    }

    /// Begins a new attempt under another key; after two of them with the whole list.
    pub(super) fn retry(&mut self, core: &mut Core, failure: Failure, out: &mut Out) -> Result<()> {
        if self.is_last_resort {
            return Err(SessionError::NotConverged {
                ours: core.sets.own.count,
                theirs: core.sets.there_count,
            });
        }
        let left = self.left(core, failure);
        let attempt = core.attempt.number + 1;
        self.is_last_resort = attempt >= ATTEMPTS_MAX - 1;
        core.attempt.tried += 1;
        core.begin_attempt(attempt);
        (self.filtered_here, self.found, self.doubtful) = (0.0, 0.0, 0.0);
        core.jobs.push(Job::Message(Message::Retry { attempt }));
        self.survey(core, Known::Count(left), out);
        Ok(())
    }
}
