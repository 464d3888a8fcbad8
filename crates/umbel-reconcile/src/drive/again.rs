//! A session that is run again: what it is fed, and what of its words goes out.

use super::{Drive, Event};
use crate::error::{Context, Result, bail};
use crate::journal::{Journal, Replay};
use umbel_reconcile_engine::{
    Regenerated, ResumeFrame, ResumeVerdict, SendWindow, StreamEnd, StreamMark,
};

/// What of a session outlives its connection.
pub(super) struct Resumed {
    pub(super) journal: Journal,
    pub(super) replay: Replay,
    /// Bytes that were read out of the journal, and that are in it.
    pub(super) read: u64,
    pub(super) available: u64,
    /// What is said again, until both sides' verdicts are known.
    pub(super) regenerated: Option<(Regenerated, StreamMark)>,
    /// The other side's verdict, if it came first.
    pub(super) received: Option<ResumeVerdict>,
    /// Whether the other side has forgotten the session, and only the journal can end it.
    pub(super) is_alone: bool,
    /// The end of what this side said.
    pub(super) end: StreamEnd,
    /// Why a new session is to begin.
    pub(super) anew: Option<ResumeVerdict>,
    /// Whether the other side has all that it needs.
    pub(super) is_complete: bool,
}

impl Resumed {
    pub(super) fn new(journal: Journal, theirs: Option<StreamMark>) -> Result<Self> {
        let available = journal.state().map_or(0, |state| state.received.mark().bytes);
        Ok(Self {
            replay: journal.replay()?,
            journal,
            read: 0,
            available,
            regenerated: theirs.map(|theirs| (Regenerated::new(theirs), theirs)),
            received: None,
            is_alone: false,
            end: StreamEnd::default(),
            anew: None,
            is_complete: false,
        })
    }
}

impl Drive<'_> {
    /// Sends bytes of the session, but for those that the other side has.
    pub(super) fn put(&mut self, mut bytes: Vec<u8>) -> Result<()> {
        if let Some(resumed) = &mut self.resumed {
            resumed.end.push(&bytes);
            if resumed.is_alone {
                return Ok(());
            }
            if let Some((regenerated, _)) = &mut resumed.regenerated {
                bytes.drain(..regenerated.skip(&bytes));
                if regenerated.verdict().is_some() {
                    self.agree()?;
                }
            }
        }
        if !bytes.is_empty() {
            self.link.send(bytes);
        }
        Ok(())
    }

    /// The next bytes that are in the journal and were not yet read; none if that is all.
    pub(super) fn next_journaled(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(resumed) = &mut self.resumed else { return Ok(None) };
        if resumed.read < resumed.available {
            let bytes = resumed.replay.next()?.context("a journal that became shorter")?;
            resumed.read += bytes.len() as u64;
            return Ok(Some(bytes));
        }
        self.journal_ended()?;
        Ok(None)
    }

    pub(super) fn note_journaled(&mut self, bytes: u64) {
        if let Some(resumed) = &mut self.resumed {
            resumed.available = bytes;
        }
    }

    /// No set is changed by a session that is run again before both sides have agreed that it is the same.
    pub(super) fn check_again(&mut self) -> Result<()> {
        let is_checked = self.resumed.as_ref().is_some_and(|resumed| resumed.regenerated.is_some());
        if is_checked { self.journal_ended() } else { Ok(()) }
    }

    /// All that the journal had was worked on.
    pub(super) fn journal_ended(&mut self) -> Result<()> {
        let Some(resumed) = &mut self.resumed else { return Ok(()) };
        if resumed.is_alone {
            resumed.anew = Some(ResumeVerdict::Lost);
            bail!("the journal ends before the session");
        }
        let Some((regenerated, _)) = &mut resumed.regenerated else { return Ok(()) };
        regenerated.journal_ended();
        self.agree()
    }

    /// Sends the peer this side's verdict, and receives the peer's.
    fn agree(&mut self) -> Result<()> {
        let Some(Resumed { regenerated: Some((regenerated, theirs)), .. }) = &self.resumed else {
            return Ok(());
        };
        let (Some(verdict), behind) = (regenerated.verdict(), theirs.bytes) else { return Ok(()) };
        self.link.send_control(ResumeFrame::Verdict(verdict));
        let received = self.receive_verdict()?;
        let Some(resumed) = &mut self.resumed else { return Ok(()) };
        resumed.regenerated = None;
        for found in [verdict, received] {
            if found != ResumeVerdict::Same {
                resumed.anew = Some(found);
                bail!("the session cannot go on");
            }
        }
        self.link.go_on(None);
        self.link.resume(SendWindow::new(behind), resumed.journal.writer());
        Ok(())
    }

    pub(super) fn receive_verdict(&mut self) -> Result<ResumeVerdict> {
        if let Some(verdict) = self.resumed.as_mut().and_then(|resumed| resumed.received.take()) {
            return Ok(verdict);
        }
        match self.link.next_event() {
            Event::Control(ResumeFrame::Verdict(verdict)) => Ok(verdict),
            event => {
                self.is_cut = true;
                Err(self.no_offer(event))
            }
        }
    }

    /// A frame that nobody waits for: the other side's verdict, if this side still runs its session again.
    ///
    /// # Errors
    ///
    /// If it is another one, or says that the session is over.
    pub(super) fn note_control(&mut self, frame: &ResumeFrame) -> Result<()> {
        match (frame, &mut self.resumed) {
            (ResumeFrame::Verdict(ResumeVerdict::Complete), Some(resumed)) => {
                resumed.is_complete = true;
                bail!("{}: it has all that it needs", self.link.peer)
            }
            (
                ResumeFrame::Verdict(verdict),
                Some(Resumed { received: received @ None, regenerated: Some(_), .. }),
            ) => {
                *received = Some(*verdict);
                Ok(())
            }
            _ => bail!("{}: {} frame where none is expected", self.link.peer, frame.name()),
        }
    }
}
