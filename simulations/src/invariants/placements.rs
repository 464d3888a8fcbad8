//! Where the catalogue places shards, from each command of its log to the next: holds its state after a
//! command against that before.

use umbel_engine::meta::MetaState;

use super::drained_gets_none::{self, Members};
use super::epoch_rises::{self, Placement};

/// The placements after the commands that were applied so far.
pub(crate) struct Placements {
    /// Index of the last command's entry.
    defined: u64,
    count: u64,
    placement: Placement,
    members: Members,
}

impl Placements {
    /// Those of a cluster that is not formed.
    pub(crate) fn new() -> Self {
        let state = MetaState::new();
        let (placement, members) = (Placement::of(&state), Members::of(&state));
        Self { defined: 0, count: 0, placement, members }
    }

    /// Number of commands whose placements were held against those before.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// A node applied a command; `newest` is the state after it, if no other node applied it before.
    ///
    /// # Errors
    /// The invariant that the command breaks, and how.
    pub(crate) fn applied(
        &mut self,
        index: u64,
        newest: &MetaState,
    ) -> Result<(), (&'static str, String)> {
        if index <= self.defined {
            return Ok(());
        }
        self.defined = index;
        self.count += 1;
        let placement = Placement::of(newest);
        let moved = self.placement.broken_by(&placement).map(|what| (epoch_rises::NAME, what));
        let given = self.members.broken_by(newest).map(|what| (drained_gets_none::NAME, what));
        (self.placement, self.members) = (placement, Members::of(newest));
        match moved.or(given) {
            Some((invariant, what)) => Err((invariant, format!("entry {index}: {what}"))),
            None => Ok(()),
        }
    }
}
