//! A session over a connection: bytes in and out, scans of the set, and what comes of it.
//!
//! One thread reads, one writes, this one computes, so that no side ever waits for the other to read. Behind the
//! session's last frame come contents, if the items have any, and one byte of the responder: that it has put what came
//! where it belongs. The initiator puts
//! its own part there only then.

use super::apply::{Change, OnConflict};
use super::contents;
use super::endpoint::Connection;
use super::set::ItemSet;
use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use umbel_engine::Outbox;
use umbel_engine::limits::RECONCILE_INBOX_BYTES_MAX;
use umbel_engine::reconcile::{
    Direction, Input, Item, ItemIndex, Options, Outcome, Output, Pass, RemoteItem, Session,
};

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// Chunks that wait for the session: a few round trips of a fast network.
const CHUNKS_WAITING_MAX: usize = 64;

/// The byte behind the session: what came is where it belongs.
const APPLIED: u8 = b'+';

/// What a session came to.
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    /// Items of this side alone.
    pub(crate) only_here: Vec<ItemIndex>,
    /// Items of the other side alone.
    pub(crate) only_there: Vec<RemoteItem>,
    /// What became of this side's set.
    pub(crate) change: Change,
    /// Bytes that were sent and received behind the session: contents, and that all is applied.
    pub(crate) behind: [u64; 2],
}

impl Ended {
    /// Items of this side alone that are counted but not listed: so it is where hashes collided in a session.
    pub(crate) fn unlisted_count(&self) -> u64 {
        self.outcome.only_here_count.saturating_sub(self.only_here.len() as u64)
    }
}

/// What an initiator wants beside the session's own options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Initiative {
    /// Whether what only this side has is removed here.
    pub(crate) delete: bool,
    /// What becomes of records that differ on both sides.
    pub(crate) on_conflict: OnConflict,
    /// Whether this side is the B of the command.
    pub(crate) is_b: bool,
}

impl Initiative {
    /// Whether the other side's version of a record wins; `None` if none does.
    fn theirs_win(self, direction: Direction) -> Option<bool> {
        match (direction, self.on_conflict) {
            (Direction::Pull | Direction::Push, _) => Some(true),
            (_, OnConflict::Report) => None,
            (_, OnConflict::A) => Some(self.is_b),
            (_, OnConflict::B) => Some(!self.is_b),
        }
    }
}

enum Event {
    Bytes(Vec<u8>),
    Closed(Option<io::Error>),
    /// Everything in front of a mark is written, or could not be.
    Written(io::Result<()>),
}

enum Writing {
    Bytes(Vec<u8>),
    Mark,
}

/// Begins a session with the other side, and changes this side's set if that is wanted.
///
/// # Errors
///
/// If the session fails, or one of the sets cannot be changed; what had been changed is said.
pub(crate) fn reconcile(
    set: &dyn ItemSet,
    options: Options,
    initiative: Initiative,
    connection: Connection,
    idle_timeout: Duration,
) -> Result<Ended> {
    let mut drive = Drive::new(set, options.nonce, connection, idle_timeout);
    drive.progress = spinner();
    let mut ended = drive.run(options)?;
    drive.prepare(&mut ended, initiative, true)?;
    drive.hear_applied().with_context(|| {
        format!("{}: it could not change its set; this side's is unchanged", drive.peer)
    })?;
    drive.apply(&ended)?;
    ended.behind = drive.behind;
    drive.end();
    Ok(ended)
}

/// Answers a session that the other side begins.
///
/// # Errors
///
/// As for [`reconcile`].
pub(crate) fn answer(
    set: &dyn ItemSet,
    options: Options,
    initiative: Initiative,
    connection: Connection,
    idle_timeout: Duration,
) -> Result<Ended> {
    let mut drive = Drive::new(set, options.nonce, connection, idle_timeout);
    let mut ended = drive.run(options)?;
    let outcome = drive.prepare(&mut ended, initiative, false).and_then(|()| drive.apply(&ended));
    if outcome.is_ok() {
        drive.send(vec![APPLIED]);
    }
    ended.behind = drive.behind;
    // What the session wrote must arrive in any case, so that the other side knows how far it came.
    drive.end();
    outcome.map(|()| ended)
}

/// A session while it runs.
pub(super) struct Drive<'s> {
    set: &'s dyn ItemSet,
    peer: String,
    idle_timeout: Duration,
    events: Receiver<Event>,
    writing: Sender<Writing>,
    /// Items that came to be applied.
    applied: Vec<Item>,
    /// Bytes that came so far.
    received: u64,
    /// While the session runs, what came last: as much as the session may hold without having worked on it. Then, what
    /// came behind the session and was not read.
    pending: VecDeque<u8>,
    /// Bytes that were sent and received behind the session.
    behind: [u64; 2],
    /// For hashes of contents, drawn for this session.
    salt: u64,
    /// What goes on, on a terminal.
    progress: ProgressBar,
    guard: super::endpoint::Guard,
}

impl<'s> Drive<'s> {
    fn new(
        set: &'s dyn ItemSet,
        salt: u64,
        connection: Connection,
        idle_timeout: Duration,
    ) -> Self {
        let Connection { reader, writer, peer, guard } = connection;
        let (event, events) = sync_channel(CHUNKS_WAITING_MAX);
        let (writing, orders) = channel();
        spawn({
            let event = event.clone();
            move || read_all(reader, &event)
        });
        spawn(move || write_all(writer, &orders, &event));
        Self {
            set,
            peer,
            idle_timeout,
            events,
            writing,
            applied: Vec::new(),
            received: 0,
            pending: VecDeque::new(),
            behind: [0; 2],
            salt,
            progress: ProgressBar::hidden(),
            guard,
        }
    }

    fn run(&mut self, options: Options) -> Result<Ended> {
        let mut session = Session::new(options);
        let mut out = Outbox::new();
        let (mut only_here, mut only_there) = (Vec::new(), Vec::new());
        session.step(Input::Start, &mut out);
        loop {
            let mut inputs = VecDeque::new();
            for order in out.take() {
                match order {
                    Output::Send(bytes) => drop(self.writing.send(Writing::Bytes(bytes))),
                    Output::Pause => drop(self.writing.send(Writing::Mark)),
                    Output::RunPass(pass) => inputs.push_back(self.scan(pass)?),
                    Output::Fetch(wanted) => {
                        inputs.push_back(Input::Items(self.set.items(&wanted)?));
                    }
                    Output::OnlyHere(items) => only_here = items,
                    Output::OnlyThere(items) => {
                        self.applied.extend(items.iter().filter_map(|item| item.item.clone()));
                        only_there.extend(items);
                        inputs.push_back(Input::Applied);
                    }
                    Output::Phase(phase) => self.progress.set_message(phase),
                    Output::Finish(Ok(outcome)) => {
                        // Of what came last, the session took all but this.
                        let behind = self.received.saturating_sub(outcome.received_bytes);
                        let behind = usize::try_from(behind).unwrap_or(usize::MAX);
                        self.pending.drain(..self.pending.len().saturating_sub(behind));
                        let change = Change::default();
                        let behind = [0; 2];
                        return Ok(Ended { outcome, only_here, only_there, change, behind });
                    }
                    Output::Finish(Err(error)) => {
                        self.flush();
                        return Err(anyhow!(error).context(self.peer.clone()));
                    }
                }
            }
            if inputs.is_empty() {
                inputs.push_back(self.next_input()?);
            }
            inputs.into_iter().for_each(|input| session.step(input, &mut out));
        }
    }

    fn scan(&self, mut pass: Pass) -> Result<Input> {
        self.set.scan(&mut pass)?;
        if pass.includes_applied() {
            self.applied.iter().for_each(|item| pass.add_applied(item.as_item_ref()));
        }
        Ok(Input::PassDone(pass))
    }

    fn next_input(&mut self) -> Result<Input> {
        Ok(match self.next_event()? {
            Event::Bytes(bytes) => {
                self.note(&bytes);
                Input::Received(bytes)
            }
            Event::Closed(None) => Input::Closed,
            Event::Closed(Some(error)) => {
                return Err(error).context(format!("{}: cannot read", self.peer));
            }
            Event::Written(Ok(())) => Input::Resume,
            Event::Written(Err(error)) => {
                return Err(error).context(format!("{}: cannot write", self.peer));
            }
        })
    }

    fn next_event(&self) -> Result<Event> {
        match self.events.recv_timeout(self.idle_timeout) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => bail!(
                "{}: nothing came for {} s; nothing was applied here",
                self.peer,
                self.idle_timeout.as_secs()
            ),
            Err(RecvTimeoutError::Disconnected) => Ok(Event::Closed(None)),
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        self.pending.extend(bytes);
        let excess = self.pending.len().saturating_sub(RECONCILE_INBOX_BYTES_MAX + READ_BYTES);
        self.pending.drain(..excess);
    }

    /// What shall become of this side's set; contents that it lacks come now.
    fn prepare(
        &mut self,
        ended: &mut Ended,
        initiative: Initiative,
        is_initiator: bool,
    ) -> Result<()> {
        let direction = ended.outcome.direction;
        let takes = match is_initiator {
            true => direction.to_initiator(),
            false => direction.to_responder(),
        };
        if takes {
            let came = ended.only_there.iter().filter_map(|item| item.item.clone()).collect();
            let theirs_win = initiative.theirs_win(direction);
            let removed = if initiative.delete { ended.only_here.clone() } else { Vec::new() };
            if initiative.delete && ended.unlisted_count() > 0 {
                bail!(
                    "{}: which items are to be removed is not known, for hashes collided; nothing was applied here: run it again",
                    self.peer
                );
            }
            ended.change = Change::new(self.set, came, removed, theirs_win)?;
        }
        match self.set.contents() {
            Some(contents) if direction != Direction::Compare => {
                contents::exchange(self, contents, &ended.change, self.salt, is_initiator)
                    .with_context(|| format!("{}: nothing was applied here", self.peer))
            }
            _ => Ok(()),
        }
    }

    fn apply(&self, ended: &Ended) -> Result<()> {
        if ended.change.is_empty() { Ok(()) } else { self.set.apply(&ended.change) }
    }

    /// Waits until everything is written, or cannot be.
    fn flush(&self) {
        self.progress.finish_and_clear();
        drop(self.writing.send(Writing::Mark));
        while let Ok(event) = self.next_event() {
            if matches!(event, Event::Written(_) | Event::Closed(_)) {
                break;
            }
        }
    }

    /// Writes what is left and lets the other side go.
    fn end(self) {
        self.flush();
        drop(self.writing);
        self.guard.end();
    }

    /// Waits for the byte that says that the other side has applied what came to it.
    fn hear_applied(&mut self) -> Result<()> {
        let mut said = [0];
        self.read_exact(&mut said)?;
        if said == [APPLIED] { Ok(()) } else { bail!("something else came") }
    }

    /// Reads what came behind the session.
    pub(super) fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.behind[1] += buffer.len() as u64;
        let mut filled = 0;
        while filled < buffer.len() {
            filled += self.pending.read(&mut buffer[filled..])?;
            if self.pending.is_empty() && filled < buffer.len() {
                match self.next_event()? {
                    Event::Bytes(bytes) => self.pending.extend(bytes),
                    Event::Closed(Some(error)) => return Err(error).context("cannot read"),
                    Event::Closed(None) => bail!("the connection ended too early"),
                    Event::Written(outcome) => outcome.context("cannot write")?,
                }
            }
        }
        Ok(())
    }

    /// Sends bytes behind the session.
    pub(super) fn send(&mut self, bytes: Vec<u8>) {
        self.behind[0] += bytes.len() as u64;
        // If the writer has ended, the next wait says why.
        drop(self.writing.send(Writing::Bytes(bytes)));
    }

    /// Waits until everything that was sent is on its way.
    pub(super) fn wait_written(&mut self) -> Result<()> {
        drop(self.writing.send(Writing::Mark));
        loop {
            match self.next_event()? {
                Event::Bytes(bytes) => self.pending.extend(bytes),
                Event::Written(outcome) => return outcome.context("cannot write"),
                Event::Closed(Some(error)) => return Err(error).context("cannot read"),
                Event::Closed(None) => bail!("the connection ended too early"),
            }
        }
    }
}

/// A spinner on standard error if that is a terminal; else it shows nothing.
fn spinner() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

impl Read for Drive<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_exact(buffer).map_err(io::Error::other)?;
        Ok(buffer.len())
    }
}

/// A thread that may outlive its session: one that waits for a peer which neither writes nor closes.
#[expect(clippy::disallowed_methods, reason = "a silent peer must not hold the process")]
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}

fn read_all(mut reader: Box<dyn Read + Send>, events: &SyncSender<Event>) {
    loop {
        let mut buffer = vec![0; READ_BYTES];
        let event = match reader.read(&mut buffer) {
            Ok(0) => Event::Closed(None),
            Ok(count) => {
                buffer.truncate(count);
                Event::Bytes(buffer)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Event::Closed(Some(error)),
        };
        let is_last = matches!(event, Event::Closed(_));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

fn write_all(
    mut writer: Box<dyn Write + Send>,
    orders: &Receiver<Writing>,
    events: &SyncSender<Event>,
) {
    let mut outcome = Ok(());
    for order in orders {
        match order {
            Writing::Bytes(bytes) if outcome.is_ok() => {
                outcome = writer.write_all(&bytes).and_then(|()| writer.flush());
            }
            Writing::Bytes(_) => {}
            Writing::Mark => {
                let outcome = std::mem::replace(&mut outcome, Ok(()));
                if events.send(Event::Written(outcome)).is_err() {
                    return;
                }
            }
        }
    }
}
