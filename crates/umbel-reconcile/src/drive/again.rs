//! A session that is replayed: feeds it from the journal, and sends only what the other side does not
//! have yet.

use super::{Drive, Event};
use crate::error::{Context, Result, bail};
use crate::journal::{Journal, Replay};
use umbel_reconcile_engine::{
    Regenerated, ResumeFrame, ResumeVerdict, SendWindow, StreamEnd, StreamMark,
};

/// The state of a session that outlives its connection.
pub(super) struct Resumed {
    pub(super) journal: Journal,
    pub(super) replay: Replay,
    /// Bytes read from the journal so far, and the bytes that are in it.
    pub(super) read: u64,
    pub(super) available: u64,
    /// Compares the regenerated output with what the other side has, until both sides' verdicts are
    /// known.
    pub(super) regenerated: Option<(Regenerated, StreamMark)>,
    /// The other side's verdict, if it arrived before this side had its own.
    pub(super) received: Option<ResumeVerdict>,
    /// Whether the other side has forgotten the session, so that only the journal can complete it.
    pub(super) is_alone: bool,
    /// The end of what this side has sent.
    pub(super) end: StreamEnd,
    /// Why a new session must begin.
    pub(super) anew: Option<ResumeVerdict>,
    /// Whether the other side has received all that it needs.
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
    /// Sends bytes of the session, except those that the other side already has.
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

    /// The next journaled bytes that were not read yet; `None` at the end of the journal.
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

    /// Ensures that a replayed session changes no set before both sides have agreed that it is the same
    /// session.
    pub(super) fn check_again(&mut self) -> Result<()> {
        let is_checked = self.resumed.as_ref().is_some_and(|resumed| resumed.regenerated.is_some());
        if is_checked { self.journal_ended() } else { Ok(()) }
    }

    /// Called when everything in the journal has been replayed.
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

    /// Handles a control frame that nothing is waiting for: the other side's verdict, while this side
    /// still replays its session.
    ///
    /// # Errors
    ///
    /// If it is another frame, or says that the other side needs nothing more.
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
