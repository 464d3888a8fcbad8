//! A session over a connection: sends and receives bytes, scans the set, and applies the result.
//!
//! After the session's last frame the two sides exchange contents, if the items have any. Then the
//! responder sends one byte which says that it has applied what it received, or the reason why it could not. The
//! initiator applies its own part only after that byte.

use super::change::Change;
use super::endpoint::PeerConnection;
use super::link::{Event, Link, READ_BYTES, Reading};
use super::observer::SessionObserver;
use super::set::ItemSet;
use super::traffic::WireBytes;
use super::turn::Timeouts;
use crate::error::{Context, ReconcileError, Result, bail, is_broken};
use std::collections::VecDeque;
use std::path::Path;
use umbel_reconcile_engine::limits::INBOX_BYTES_MAX;
use umbel_reconcile_engine::{
    Item, ItemIndex, Options, Pass, RemoteItem, Session, SessionError, SessionInput,
    SessionOutcome, SessionOutput,
};
use umbel_step::Outbox;

mod again;
mod behind;
mod parting;
mod resumed;
mod taking;

use again::Resumed;
pub(super) use behind::REFUSED;
pub(super) use parting::decline;
use parting::{CANNOT_READ, OTHERS_WAIT, TOO_LONG, overdue};

/// The byte after the session: the responder has applied what it received.
const APPLIED: u8 = b'+';

/// Result of a session.
pub struct Ended {
    /// What the session found and what it cost.
    pub outcome: SessionOutcome,
    /// Items that only this side has.
    pub only_here: Vec<ItemIndex>,
    /// Items that only the other side has.
    pub only_there: Vec<RemoteItem>,
    /// The change of this side's set.
    pub change: Change,
    /// Bytes after the session: contents, and the byte that confirms the application.
    pub behind: WireBytes,
    /// Framing bytes around those of a resumable session, since it was last resumed.
    pub framing: WireBytes,
    /// How often a resumable session was resumed after a cut.
    pub resumed_count: u64,
    /// Bytes that were sent again because of that.
    pub again_bytes: u64,
}

impl Ended {
    /// All bytes: of the session, behind it and around it.
    pub fn wire_bytes(&self) -> WireBytes {
        let Self { outcome, behind, framing, .. } = self;
        WireBytes {
            sent: outcome.sent_bytes + behind.sent + framing.sent,
            received: outcome.received_bytes + behind.received + framing.received,
        }
    }

    /// Items that only this side has and that are counted but not listed: this happens when hashes
    /// collide in a session.
    pub fn unlisted_count(&self) -> u64 {
        self.outcome.only_here_count.saturating_sub(self.only_here.len() as u64)
    }
}

/// What an initiator asks for beyond the session's own options.
#[derive(Clone, Copy, Debug)]
pub struct Initiative {
    /// Whether the side that receives items removes those that only it has. A responder removes nothing
    /// unless both sides set this option.
    pub delete: bool,
}

/// How to drive a session, beyond its own options.
#[derive(Clone, Copy)]
pub struct Driving<'d> {
    /// What an initiator asks for, and what a responder may do.
    pub initiative: Initiative,
    /// Timeouts of the session.
    pub timeouts: Timeouts,
    /// Journal of what is received, so that a cut session can be resumed: a file for the initiator, a
    /// folder for the responder.
    pub journal: Option<&'d Path>,
    /// Observes the progress.
    pub observer: &'d dyn SessionObserver,
    /// Draws names and keys of journals. No result depends on them, but they must be unpredictable.
    pub draw: fn() -> u128,
}

/// Begins a session with the other side, and changes this side's set if that is wanted. With a journal it
/// resumes the session that was cut.
///
/// # Errors
///
/// If the session fails, or one of the sets cannot be changed; the error says what had been changed.
pub fn reconcile(
    set: &dyn ItemSet,
    options: Options,
    connection: PeerConnection,
    driving: Driving<'_>,
) -> Result<Ended> {
    let mut drive = Drive::new(set, connection, driving);
    drive.link.await_greeting();
    let ended = match driving.journal {
        Some(path) => drive.begin_resumable(options, driving.initiative, path),
        None => drive.begin(options, driving.initiative),
    };
    let ended = ended.map_err(|error| drive.link.explained(error));
    let ended = ended.map_err(|error| error.after_receiving(!drive.link.traffic.heard.is_empty()));
    match ended {
        Ok(ended) => {
            drive.end();
            Ok(ended)
        }
        Err(error) => {
            // A program that reads its standard input to the end ends now.
            drive.link.leave();
            Err(drive.link.with_status(error))
        }
    }
}

/// Answers a session that the other side begins. With a folder of journals it resumes a session that was
/// cut. Returns `None` if that session had nothing left to do.
///
/// # Errors
///
/// As for [`reconcile`].
pub fn answer(
    set: &dyn ItemSet,
    options: Options,
    connection: PeerConnection,
    driving: Driving<'_>,
) -> Result<Option<Ended>> {
    let mut drive = Drive::new(set, connection, driving);
    let outcome = match driving.journal {
        Some(folder) => drive.respond_resumable(options, driving.initiative, folder),
        None => drive.respond(options, driving.initiative).map(Some),
    };
    let outcome = outcome.map_err(|error| drive.link.explained(error));
    // What the session wrote must arrive in any case, so that the other side learns how far the session
    // came.
    drive.end();
    outcome
}

/// A running session.
pub(super) struct Drive<'s> {
    set: &'s dyn ItemSet,
    link: Link,
    /// State of a resumable session, which outlives the connection.
    resumed: Option<Resumed>,
    /// Whether the connection failed.
    is_cut: bool,
    /// What the other side is told if this one gives up.
    parting: &'static str,
    /// Whether this side has begun to change its set.
    is_applying: bool,
    /// First bytes of a plain session, received where an offer to resume was expected.
    early: Option<Vec<u8>>,
    /// Received items that are to be applied.
    applied: Vec<Item>,
    /// Bytes received so far.
    received: u64,
    /// While the session runs: the bytes received last, as many as the session may hold unprocessed.
    /// Afterwards: the bytes received after the session and not read yet.
    pending: VecDeque<u8>,
    /// Bytes after the session.
    behind: WireBytes,
    /// Bytes of the session, sent and received, and the most that may be sent and received in all.
    session_bytes: u64,
    bytes_max: u64,
    /// Salt for hashes of contents, drawn for this session.
    salt: u64,
    /// Observes the progress.
    observer: &'s dyn SessionObserver,
    /// Draws names and keys of journals.
    draw: fn() -> u128,
}

impl<'s> Drive<'s> {
    fn new(set: &'s dyn ItemSet, connection: PeerConnection, driving: Driving<'s>) -> Self {
        let reading = if driving.journal.is_some() { Reading::Resumable } else { Reading::Plain };
        let link = Link::new(connection, driving.timeouts, reading);
        Self {
            set,
            link,
            resumed: None,
            is_cut: false,
            parting: CANNOT_READ,
            is_applying: false,
            early: None,
            applied: Vec::new(),
            received: 0,
            pending: VecDeque::new(),
            behind: WireBytes::default(),
            session_bytes: 0,
            bytes_max: 0,
            salt: 0,
            observer: driving.observer,
            draw: driving.draw,
        }
    }

    /// Runs the whole of a session that this side begins.
    fn begin(&mut self, options: Options, initiative: Initiative) -> Result<Ended> {
        let mut ended = self.run(options)?;
        self.prepare(&mut ended, initiative, true)?;
        if ended.outcome.direction.to_responder() {
            self.enter("waiting until the other side has changed its set");
        }
        if let Err(error) = self.receive_applied() {
            let why = if error.is_refusal() {
                ""
            } else {
                "it did not say that it is done, its own messages may say why; "
            };
            let peer = &self.link.peer;
            return Err(error.context(format!("{peer}: {why}this side's set is unchanged")));
        }
        self.check_again()?;
        self.apply(&ended)?;
        ended.behind = self.behind;
        Ok(ended)
    }

    /// Runs the whole of a session that the other side begins.
    fn respond(&mut self, options: Options, initiative: Initiative) -> Result<Ended> {
        let mut ended = self.run(options).map_err(|error| {
            let is_told = error.is_refused_session() && self.wait_sent();
            error.told_if(is_told)
        })?;
        if let Err(error) = self.take_over(&mut ended, initiative) {
            let is_told = ended.outcome.direction.to_responder() && self.send_refusal(&error);
            return Err(error.told_if(is_told));
        }
        ended.behind = self.behind;
        Ok(ended)
    }

    fn run(&mut self, options: Options) -> Result<Ended> {
        (self.salt, self.bytes_max) = (options.nonce, options.limits.bytes_max);
        let mut session = Session::new(options);
        if let Some(sketch) = self.set.stored_sketch() {
            session = session.with_sketch(sketch.clone())?;
        }
        let ended = self.run_session(&mut session);
        if ended.is_err() {
            self.give_up(session);
        }
        ended
    }

    fn run_session(&mut self, session: &mut Session) -> Result<Ended> {
        let mut out = Outbox::new();
        let (mut only_here, mut only_there) = (Vec::new(), Vec::new());
        session.step(SessionInput::Start, &mut out);
        loop {
            let mut inputs = VecDeque::new();
            for order in out.take() {
                match order {
                    SessionOutput::Send(bytes) => self.put(bytes)?,
                    SessionOutput::Pause => self.link.mark(),
                    SessionOutput::RunPass(pass) => inputs.push_back(self.scan(pass)?),
                    SessionOutput::Fetch(wanted) => {
                        inputs.push_back(SessionInput::Items(self.fetch(&wanted)?));
                    }
                    SessionOutput::OnlyHere(items) => only_here = items,
                    SessionOutput::OnlyThere(items) => {
                        self.applied.extend(items.iter().filter_map(|item| item.item.clone()));
                        only_there.extend(items);
                        inputs.push_back(SessionInput::Applied);
                    }
                    SessionOutput::Phase(phase) => self.observer.phase(phase),
                    SessionOutput::Finish(Ok(outcome)) => {
                        // Drop what the session consumed; the rest came after it.
                        let behind = self.received.saturating_sub(outcome.received_bytes);
                        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
                        self.pending.drain(..self.pending.len().saturating_sub(behind));
                        self.session_bytes = outcome.sent_bytes + outcome.received_bytes;
                        return Ok(Ended {
                            outcome,
                            only_here,
                            only_there,
                            change: Change::default(),
                            behind: WireBytes::default(),
                            framing: WireBytes::default(),
                            resumed_count: 0,
                            again_bytes: 0,
                        });
                    }
                    SessionOutput::Finish(Err(error)) => {
                        self.flush();
                        if matches!(error, SessionError::Aborted { .. }) {
                            self.link.wait_closed();
                        }
                        return Err(ReconcileError::from(error).context(self.link.peer.clone()));
                    }
                }
            }
            if inputs.is_empty() {
                inputs.push_back(self.next_input(session.wants_bytes())?);
            }
            inputs.into_iter().for_each(|input| session.step(input, &mut out));
        }
    }

    /// The items that are to be sent.
    fn fetch(&mut self, wanted: &[ItemIndex]) -> Result<Vec<Item>> {
        let items = self.set.items(wanted)?;
        let checked = self.set.check_lengths(wanted, &items);
        if checked.is_err() {
            self.parting = TOO_LONG;
        }
        checked.map(|()| items)
    }

    fn scan(&self, mut pass: Pass) -> Result<SessionInput> {
        self.set.scan(&mut pass)?;
        if pass.includes_applied() {
            self.applied.iter().for_each(|item| pass.add_applied(item.as_item_ref()));
        }
        Ok(SessionInput::PassDone(pass))
    }

    fn next_input(&mut self, wants_bytes: bool) -> Result<SessionInput> {
        if let Some(bytes) = self.early.take() {
            self.note(&bytes);
            return Ok(SessionInput::Received(bytes));
        }
        loop {
            if wants_bytes && let Some(bytes) = self.next_journaled()? {
                self.note(&bytes);
                return Ok(SessionInput::Received(bytes));
            }
            return Ok(match self.next_event()? {
                Event::Bytes(bytes) => {
                    self.note(&bytes);
                    SessionInput::Received(bytes)
                }
                Event::Closed(None) => SessionInput::Closed,
                // What the other side said before is in the session.
                Event::Closed(Some(error)) | Event::Written(Err(error)) if is_broken(&error) => {
                    SessionInput::Closed
                }
                Event::Closed(Some(error)) => {
                    return Err(error).context(format!("{}: cannot read", self.link.peer));
                }
                Event::Written(Ok(())) => SessionInput::Resume,
                Event::Written(Err(error)) => {
                    return Err(error).context(format!("{}: cannot write", self.link.peer));
                }
                _ => continue,
            });
        }
    }

    /// Returns the next event, after it has handled those that the session itself need not know.
    fn next_event(&mut self) -> Result<Event> {
        let event = self.heard_event();
        match &event {
            Event::Silent(time) => {
                self.is_cut = true;
                bail!("{}; nothing was applied here", self.link.silence(*time))
            }
            Event::Late(time) => {
                self.is_cut = true;
                bail!(
                    "{}: not done within {} s, as --max-time has it; nothing was applied here",
                    self.link.peer,
                    time.as_secs()
                )
            }
            Event::Overdue(time) => {
                // A session with a journal can go on later, as one that was cut.
                (self.is_cut, self.parting) = (self.resumed.is_some(), OTHERS_WAIT);
                bail!("{}; nothing was applied here", overdue(&self.link.peer, *time))
            }
            Event::Closed(_) | Event::Written(Err(_)) => self.is_cut = true,
            Event::Journaled(bytes) => self.note_journaled(*bytes),
            Event::Control(frame) => self.note_control(frame)?,
            Event::Bytes(_) | Event::Written(Ok(())) | Event::Ungreeted(_) => {}
        }
        Ok(event)
    }

    /// The next event of the connection; until the other side has said anything, the user is told what is waited for.
    fn heard_event(&mut self) -> Event {
        loop {
            match self.link.next_event() {
                Event::Ungreeted(time) => {
                    let (peer, idle) = (&self.link.peer, self.link.idle_timeout().as_secs());
                    self.observer.notice(format_args!(
                        "{peer}: nothing has come for {} s: it may still connect, read its set or serve others, or be no \
                         `umbel reconcile`; this side waits for {idle} s (--idle-timeout)",
                        time.as_secs()
                    ));
                }
                event => return event,
            }
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        self.pending.extend(bytes);
        let excess = self.pending.len().saturating_sub(INBOX_BYTES_MAX + READ_BYTES);
        self.pending.drain(..excess);
    }

    /// Waits until everything is written, or a write fails.
    fn flush(&mut self) {
        self.observer.end_phases();
        self.link.mark();
        while let Ok(event) = self.next_event() {
            if matches!(event, Event::Written(_) | Event::Closed(_)) {
                break;
            }
        }
    }

    /// Waits until the other side has everything in its journal, and returns whether it has.
    fn wait_durable(&mut self) -> bool {
        self.link.notify_durable();
        self.wait_reported()
    }

    /// Waits until everything is written, and returns whether it is.
    fn wait_sent(&mut self) -> bool {
        self.observer.end_phases();
        self.link.mark();
        self.wait_reported()
    }

    /// Waits for the report of the writing thread, and returns whether it is a good one.
    fn wait_reported(&mut self) -> bool {
        // The close of the connection may overtake the report, once: the other side closes it when it has read the last
        // word.
        let mut is_closed = false;
        while let Ok(event) = self.next_event() {
            match event {
                Event::Written(outcome) => return outcome.is_ok(),
                Event::Closed(_) if is_closed => return false,
                Event::Closed(_) => is_closed = true,
                _ => {}
            }
        }
        false
    }

    /// Writes what is left and closes the connection.
    fn end(mut self) {
        self.flush();
        self.link.end();
    }
}
