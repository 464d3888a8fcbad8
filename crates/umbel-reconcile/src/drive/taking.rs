//! What a side takes over from a session: the change of its set.

use super::{Drive, Ended, Initiative};
use crate::apply::change_of;
use crate::contents;
use crate::error::{Context, Result, bail};
use umbel_reconcile_engine::{Direction, OnConflict, SessionOutcome};

/// Whether the other side's version of a record wins; `None` if none does. Both sides decide by what the
/// initiator said, so that they keep the same version.
fn theirs_win(outcome: &SessionOutcome, is_initiator: bool) -> Option<bool> {
    let is_b = outcome.initiator_is_b == is_initiator;
    match (outcome.direction, outcome.on_conflict) {
        (Direction::Pull | Direction::Push, _) => Some(true),
        (_, OnConflict::Report) => None,
        (_, OnConflict::A) => Some(is_b),
        (_, OnConflict::B) => Some(!is_b),
    }
}

impl Drive<'_> {
    /// What a responder does after its session: changes its set, and confirms that.
    pub(super) fn take_over(&mut self, ended: &mut Ended, initiative: Initiative) -> Result<()> {
        self.prepare(ended, initiative, false)?;
        if !ended.change.is_empty() {
            self.check_again()?;
            self.note_end(&ended.change)?;
        }
        self.apply(ended)?;
        self.send_applied()
    }

    /// Determines the change of this side's set, and receives the contents that it lacks.
    pub(super) fn prepare(
        &mut self,
        ended: &mut Ended,
        initiative: Initiative,
        is_initiator: bool,
    ) -> Result<()> {
        let direction = ended.outcome.direction;
        let takes = if is_initiator { direction.to_initiator() } else { direction.to_responder() };
        if takes {
            let came = ended.only_there.iter().filter_map(|item| item.item.clone()).collect();
            let theirs_win = theirs_win(&ended.outcome, is_initiator);
            let deletes =
                if is_initiator { initiative.delete } else { self.deletes(ended, initiative)? };
            let removed = if deletes { ended.only_here.clone() } else { Vec::new() };
            if deletes && ended.unlisted_count() > 0 {
                bail!(
                    "{}: which items are to be removed is not known, for hashes collided; nothing was applied here: run it again",
                    self.link.peer
                );
            }
            let change = change_of(self.set, came, removed, theirs_win)
                .and_then(|change| self.set.check_change(&change).map(|()| change));
            ended.change =
                change.with_context(|| format!("{}: nothing was applied here", self.link.peer))?;
        }
        match self.set.contents() {
            Some(contents) if direction != Direction::Compare => {
                contents::exchange(self, contents, &ended.change, self.salt, is_initiator)
                    .with_context(|| format!("{}: nothing was applied here", self.link.peer))
            }
            _ => Ok(()),
        }
    }

    /// Whether the responder removes the items that only it has.
    fn deletes(&self, ended: &Ended, initiative: Initiative) -> Result<bool> {
        let wanted = ended.outcome.notifies_responder;
        if wanted && !initiative.delete {
            bail!(
                "{}: it wants what only this set has removed, and this side may not: answer with --writable --delete",
                self.link.peer
            );
        }
        Ok(wanted)
    }

    pub(super) fn apply(&mut self, ended: &Ended) -> Result<()> {
        self.is_applying = true;
        if ended.change.is_empty() {
            return Ok(());
        }
        self.enter("changing the set");
        self.set.apply(&ended.change)
    }
}
