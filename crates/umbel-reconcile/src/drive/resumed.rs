//! A session that is resumed after its connection was cut.
//!
//! The session is replayed over the same set, fed from the journal. Its regenerated output is compared
//! with what the other side already has, and only the rest is sent. New bytes are read back from the
//! journal, too, so that to its driver a resumed session looks like one that begins.

use super::parting::declined;
use super::{Drive, Ended, Event, Initiative, Resumed, overdue};
use crate::change::Change;
use crate::error::{Context, ReconcileError, Result, bail, failed, is_broken};
use crate::journal::{Journal, Journals, Opened};
use crate::set::ItemSet;
use crate::traffic::WireBytes;
use std::io;
use std::path::Path;
use umbel_reconcile_engine::{
    Fingerprint, Item, ItemIndex, JournalHeader, JournalState, Options, Pass, ResumeFrame,
    ResumeOffer, ResumeVerdict, Resumption, SendWindow, StreamEnd,
};

/// Error for a journal that lacks its first record.
const NO_STATE: &str = "a journal that has not begun";

/// Result of an attempt to resume a session.
enum Tried {
    /// There was nothing to resume.
    Nothing,
    /// A new session must begin; this is the old one's journal.
    Anew(Journal),
    /// The session has ended, or was cut again.
    Ended(Box<Result<Ended>>),
}

/// What a responder knows of a session.
enum Known {
    Nothing,
    /// The session can be replayed.
    Open(Journal),
    /// This side's set is already changed as intended; the `StreamEnd` is the end of what it sent.
    Applied(Journal, StreamEnd),
}

fn fingerprint(
    set: &dyn ItemSet,
    secret: [u8; 16],
    add: impl FnOnce(&mut Pass) -> Result<()>,
) -> Result<Fingerprint> {
    let mut pass = Pass::fingerprint(set.kind(), secret);
    add(&mut pass)?;
    pass.into_fingerprint().context("an item of another kind")
}

fn header(
    set: &dyn ItemSet,
    session: u128,
    options: &Options,
    secret: u128,
    is_initiator: bool,
) -> Result<JournalHeader> {
    let secret = secret.to_le_bytes();
    let fingerprint = fingerprint(set, secret, |pass| set.scan(pass))?;
    let (dataset_id, nonce) = (options.dataset_id, options.nonce);
    Ok(JournalHeader { session, is_initiator, dataset_id, nonce, secret, fingerprint })
}

/// Whether a journal belongs to this set as it is now; and whether it belongs to it as it was to be after
/// the change.
fn is_of(set: &dyn ItemSet, state: &JournalState, dataset_id: u64) -> Result<[bool; 2]> {
    if state.header.dataset_id != dataset_id {
        return Ok([false; 2]);
    }
    let now = fingerprint(set, state.header.secret, |pass| set.scan(pass))?;
    let ended = state.ended.as_ref().is_some_and(|(ended, _)| *ended == now);
    Ok([state.header.fingerprint == now, ended])
}

fn offer_of(state: &JournalState, fresh: u128) -> ResumeOffer {
    let received = state.received.mark();
    ResumeOffer { session: state.header.session, fresh, received, sent: state.sent }
}

impl Drive<'_> {
    /// Runs the whole of a session that this side begins or resumes.
    pub(super) fn begin_resumable(
        &mut self,
        options: Options,
        initiative: Initiative,
        path: &Path,
    ) -> Result<Ended> {
        let Opened::Ours(mut journal) = Journal::open(path, options.limits.bytes_max)? else {
            bail!("{}: another process goes on with this session", path.display());
        };
        let fresh = (self.draw)();
        let known = match journal.state() {
            Some(state) => {
                state.header.is_initiator && is_of(self.set, state, options.dataset_id)?[0]
            }
            None => false,
        };
        if !known {
            if journal.state().is_some() {
                self.observer.notice(format_args!(
                    "{}: of another set, or of this one before it changed: a new session begins",
                    path.display()
                ));
            }
            journal.begin(header(self.set, fresh, &options, (self.draw)(), true)?)?;
        }
        let state = journal.state().context(NO_STATE)?;
        let ours = if known { offer_of(state, fresh) } else { ResumeOffer::first(fresh) };
        let nonce = state.header.nonce;
        self.link.send_control(ResumeFrame::Offer(ours));
        let theirs = match self.receive_offer() {
            Ok(theirs) => theirs,
            Err(error) if known => return Err(error),
            Err(error) => {
                journal.remove();
                return Err(error);
            }
        };
        let outcome = match ours.with(&theirs)? {
            Resumption::Rejoin { theirs, again } => {
                journal.note_resumed(again)?;
                self.link.go_on(Some(journal.writer()));
                self.resumed = Some(Resumed::new(journal, Some(theirs))?);
                self.begin(Options { nonce, ..options }, initiative)
            }
            Resumption::Anew if known => {
                let mut resumed = Resumed::new(journal, None)?;
                resumed.is_alone = true;
                self.resumed = Some(resumed);
                let alone = self.begin(Options { nonce, ..options }, initiative);
                if alone.is_ok() {
                    self.link.send_control(ResumeFrame::Verdict(ResumeVerdict::Complete));
                }
                alone
            }
            Resumption::Anew => {
                self.start(journal)?;
                self.begin(options, initiative)
            }
        };
        let outcome = match self.tried(outcome) {
            Tried::Ended(outcome) => *outcome,
            Tried::Anew(mut journal) => {
                journal.begin(header(self.set, fresh, &options, (self.draw)(), true)?)?;
                self.start(journal)?;
                self.begin(options, initiative)
            }
            Tried::Nothing => bail!("nothing was tried"),
        };
        self.conclude(outcome, true)?.with_context(|| self.link.peer.clone())
    }

    /// Runs the whole of a session that the other side begins or resumes; `None` if nothing was left to
    /// do.
    pub(super) fn respond_resumable(
        &mut self,
        options: Options,
        initiative: Initiative,
        folder: &Path,
    ) -> Result<Option<Ended>> {
        let offer = match self.link.next_event() {
            Event::Control(ResumeFrame::Offer(offer)) => offer,
            Event::Bytes(bytes) => {
                // The initiator does not ask for a resumable session.
                self.early = Some(bytes);
                return self.respond(options, initiative).map(Some);
            }
            event => return Err(self.no_offer(event)),
        };
        let journals = Journals::open(folder, options.limits.bytes_max)?;
        let outcome = match self.known(&journals, &offer, options.dataset_id)? {
            Known::Applied(journal, end) => match self.send_end(journal, &end, &offer)? {
                None => return Ok(None),
                Some(old) => Tried::Anew(old),
            },
            Known::Open(mut journal) => {
                let state = journal.state().context(NO_STATE)?;
                let (nonce, ours) = (state.header.nonce, offer_of(state, offer.fresh));
                let Resumption::Rejoin { theirs, again } = ours.with(&offer)? else {
                    bail!("an offer that is no answer");
                };
                journal.note_resumed(again)?;
                self.link.send_control(ResumeFrame::Offer(ours));
                self.link.go_on(Some(journal.writer()));
                self.resumed = Some(Resumed::new(journal, Some(theirs))?);
                let outcome = self.respond(Options { nonce, ..options }, initiative);
                self.tried(outcome)
            }
            Known::Nothing => {
                self.link.send_control(ResumeFrame::Offer(offer.answer(None)));
                Tried::Nothing
            }
        };
        let outcome = match outcome {
            Tried::Ended(outcome) => *outcome,
            old => {
                if let Tried::Anew(old) = old {
                    old.remove();
                }
                let mut journal = journals.make(offer.fresh, &self.link.owner)?;
                journal.begin(header(self.set, offer.fresh, &options, (self.draw)(), false)?)?;
                self.start(journal)?;
                self.respond(options, initiative)
            }
        };
        self.conclude(outcome, false)
    }

    /// Starts a session from nothing.
    fn start(&mut self, journal: Journal) -> Result<()> {
        self.link.go_on(Some(journal.writer()));
        self.link.resume(SendWindow::new(0), journal.writer());
        self.resumed = Some(Resumed::new(journal, None)?);
        Ok(())
    }

    fn known(
        &mut self,
        journals: &Journals,
        offer: &ResumeOffer,
        dataset_id: u64,
    ) -> Result<Known> {
        if offer.session == offer.fresh {
            return Ok(Known::Nothing);
        }
        let journal = match journals.find(offer.session)? {
            None => return Ok(Known::Nothing),
            Some(Opened::Ours(journal)) => journal,
            Some(Opened::Busy) => {
                self.link.send_control(ResumeFrame::Verdict(ResumeVerdict::Busy));
                bail!("{}: its session is still served by another process", self.link.peer);
            }
        };
        if let Some(state) = journal.state() {
            let [is_same, is_applied] = is_of(self.set, state, dataset_id)?;
            let end = state.ended.as_ref().map(|(_, end)| end.clone());
            match end.filter(|_| is_applied) {
                _ if is_same => return Ok(Known::Open(journal)),
                Some(end) => return Ok(Known::Applied(journal, end)),
                None => {}
            }
        }
        journal.remove();
        Ok(Known::Nothing)
    }

    /// Sends the end of a session that has already changed this side's set. Returns the journal if the
    /// other side's state does not match that end.
    fn send_end(
        &mut self,
        journal: Journal,
        end: &StreamEnd,
        offer: &ResumeOffer,
    ) -> Result<Option<Journal>> {
        let ours = offer_of(journal.state().context(NO_STATE)?, offer.fresh);
        let Resumption::Rejoin { theirs, .. } = ours.with(offer)? else {
            bail!("an offer that is no answer");
        };
        self.link.send_control(ResumeFrame::Offer(ours));
        self.link.go_on(Some(journal.writer()));
        let (verdict, rest) = match end.behind(theirs) {
            Ok(rest) => (ResumeVerdict::Same, rest),
            Err(verdict) => (verdict, Vec::new()),
        };
        self.link.send_control(ResumeFrame::Verdict(verdict));
        let received = self.receive_verdict()?;
        if [verdict, received] != [ResumeVerdict::Same; 2] {
            return Ok(Some(journal));
        }
        self.link.go_on(None);
        self.link.resume(SendWindow::new(theirs.bytes), journal.writer());
        self.link.send(rest);
        if self.wait_durable() {
            journal.remove();
        }
        Ok(None)
    }

    /// Classifies the outcome of a session that was resumed or should have been.
    fn tried(&mut self, outcome: Result<Ended>) -> Tried {
        let is_decided = self.resumed.as_ref().is_none_or(|resumed| resumed.anew.is_some());
        let is_refuted = outcome.is_err() && !self.is_cut && !self.is_applying && !is_decided;
        if is_refuted && self.journal_ended().is_ok() {
            // What is in the journal makes it fail, and would again: report it as an ordinary error of
            // the session.
            return Tried::Ended(Box::new(outcome));
        }
        match self.resumed.take() {
            Some(Resumed { anew: Some(why), journal, is_alone, .. }) => {
                let peer = &self.link.peer;
                let why = match why {
                    _ if is_alone => "the other side knows it no more, or its set has changed",
                    ResumeVerdict::Changed => {
                        "a set has changed since, or the other program is of another release"
                    }
                    _ => "the end of a journal was lost, or a set has changed since",
                };
                self.observer.notice(format_args!(
                    "{peer}: the session cannot go on, {why}: a new one begins"
                ));
                self.applied.clear();
                self.pending.clear();
                (self.received, self.behind) = (0, WireBytes::default());
                Tried::Anew(journal)
            }
            resumed => {
                self.resumed = resumed;
                Tried::Ended(Box::new(outcome))
            }
        }
    }

    /// Removes the journal if the session has ended, and keeps it if the session can be resumed.
    fn conclude(&mut self, outcome: Result<Ended>, is_initiator: bool) -> Result<Option<Ended>> {
        let Some(resumed) = self.resumed.take() else { return outcome.map(Some) };
        match outcome {
            Ok(mut ended) => {
                if let Some(state) = resumed.journal.state() {
                    (ended.resumed_count, ended.again_bytes) = (state.resumed_count, state.again);
                }
                ended.framing = self.link.traffic.framing();
                if is_initiator || self.wait_durable() {
                    resumed.journal.remove();
                }
                Ok(Some(ended))
            }
            Err(_) if resumed.is_complete => {
                resumed.journal.remove();
                Ok(None)
            }
            Err(error) if self.is_applying || (self.is_cut && !error.is_final()) => {
                let path = resumed.journal.path().display();
                Err(error
                    .context(format!("{path}: keeps what came: run it again to go on from there")))
            }
            Err(error) => {
                resumed.journal.remove();
                Err(error)
            }
        }
    }

    /// Records what is needed to finish once this side's set is changed and the session cannot be
    /// replayed any more.
    pub(super) fn note_end(&self, change: &Change) -> Result<()> {
        let Some(resumed) = &self.resumed else { return Ok(()) };
        let JournalHeader { secret, fingerprint: before, .. } =
            resumed.journal.state().context(NO_STATE)?.header;
        let of = |items: &mut dyn Iterator<Item = &Item>| {
            fingerprint(self.set, secret, |pass| {
                items.for_each(|item| pass.add(ItemIndex(0), item.as_item_ref()));
                Ok(())
            })
        };
        let gone: Vec<ItemIndex> = change.replaced.keys().chain(&change.removed).copied().collect();
        let removed = of(&mut self.set.items(&gone)?.iter())?;
        let added = of(&mut change.added.iter().chain(change.replaced.values()))?;
        let mut end = resumed.end.clone();
        end.push(&[super::APPLIED]);
        resumed.journal.writer().note_end(before.changed(removed, added), end)
    }

    fn receive_offer(&mut self) -> Result<ResumeOffer> {
        match self.heard_event() {
            Event::Control(ResumeFrame::Offer(offer)) => Ok(offer),
            Event::Control(ResumeFrame::Verdict(ResumeVerdict::Busy)) => bail!(
                "{}: still serves this session: run it again when it has noticed that the connection broke",
                self.link.peer
            ),
            event => Err(self.no_offer(event)),
        }
    }

    pub(super) fn no_offer(&self, event: Event) -> ReconcileError {
        let peer = &self.link.peer;
        match event {
            Event::Bytes(bytes) => match declined(bytes) {
                Some(error) => ReconcileError::from(error).context(peer.clone()),
                None => {
                    failed!("{peer}: keeps no journals: give it --resume too, or leave it out here")
                }
            },
            Event::Closed(Some(error)) => {
                ReconcileError::from(error).context(format!("{peer}: cannot read"))
            }
            Event::Silent(time) => failed!("{}", self.link.silence(time)),
            Event::Late(time) => failed!("{peer}: not done within {} s", time.as_secs()),
            Event::Overdue(time) => failed!("{}", overdue(peer, time)),
            Event::Written(Err(error)) if !is_broken(&error) => {
                ReconcileError::from(error).context(format!("{peer}: cannot write"))
            }
            Event::Closed(None) | Event::Written(Err(_)) => {
                let text = "the connection ended before it said anything";
                let ended = io::Error::new(io::ErrorKind::BrokenPipe, text);
                ReconcileError::from(ended).context(peer.clone())
            }
            _ => failed!("{peer}: it said something else than what session it has"),
        }
    }
}
