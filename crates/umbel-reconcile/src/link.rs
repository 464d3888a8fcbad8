//! The connection of a running session: one thread reads and one writes, so that neither side ever waits
//! for the other to read.
//!
//! On a resumable connection all bytes are in the engine's frames. Received bytes are written to the
//! journal first, then acknowledged and reported; the writing thread sends at most a window of bytes beyond
//! those that the peer has acknowledged. The reading thread stops after each offer and verdict until
//! `Link::go_on` says where to put what follows. It ends where the first bytes are no message: then nothing that
//! follows is one.

use super::endpoint::{Guard, PeerConnection};
use super::greeting::Greeting;
use super::journal::JournalWriter;
use super::traffic::Traffic;
use super::turn::{Missed, Timeouts, Turn, now};
use crate::error::{ReconcileError, failed, is_broken};
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};
use umbel_reconcile_engine::{ResumeFrame, ResumeReader, SendWindow};

mod writes;

use writes::Writes;

/// Bytes read at a time.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Maximum number of events queued for the session: a few round trips on a fast network.
const CHUNKS_WAITING_MAX: usize = 64;

/// How long this side waits, once it knows that the other one has left, for what that said before.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// An event of a connection.
pub(super) enum Event {
    /// Bytes of a plain session.
    Bytes(Vec<u8>),
    /// The journal now has this many bytes of a resumable session.
    Journaled(u64),
    /// An offer or a verdict. Nothing more is read until [`Link::go_on`].
    Control(ResumeFrame),
    /// Nothing more will arrive; with the error, if reading failed.
    Closed(Option<io::Error>),
    /// Everything before a mark is written; or a write failed, which is reported without a mark, too.
    Written(io::Result<()>),
    /// The other side has said nothing at all for this long, and is still waited for.
    Ungreeted(Duration),
    /// Nothing arrived within this time.
    Silent(Duration),
    /// The session exceeded this time limit.
    Late(Duration),
    /// Others wait, and the peer was waited for for this long. Only parting words follow.
    Overdue(Duration),
}

/// How to interpret the peer's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// As a plain session.
    Plain,
    /// As plain or resumable, depending on the peer's first bytes.
    Resumable,
}

enum Writing {
    /// Bytes of the stream.
    Bytes(Vec<u8>),
    /// A frame outside the stream.
    Frame(ResumeFrame),
    /// Report when everything before this is written.
    NotifyWritten,
    /// Report when everything before this is durable on the other side.
    NotifyDurable,
    /// From now on the stream is sent in frames.
    Resume(SendWindow, Arc<JournalWriter>),
    /// The other side has this many bytes.
    Acknowledged(u64),
    /// The peer will acknowledge nothing more.
    PeerGone,
    End,
}

/// A connection and its threads.
pub(super) struct Link {
    pub(super) peer: String,
    pub(super) owner: String,
    pub(super) traffic: Arc<Traffic>,
    turn: Turn,
    timeouts: Timeouts,
    since: Instant,
    greeting: Greeting,
    /// How long nothing has arrived, as far as that is reported.
    silent: Duration,
    events: Receiver<Event>,
    /// The write that failed because the other side has left. What that said before says more, so it comes first.
    unwritten: Option<io::Error>,
    /// The end of the connection, if it comes next.
    closed: Option<Event>,
    /// Whether such a write was reported, and whether the end of the connection was noticed.
    has_reported: bool,
    has_closed: bool,
    writing: Sender<Writing>,
    going: Sender<Option<Arc<JournalWriter>>>,
    guard: Guard,
}

impl Link {
    pub(super) fn new(connection: PeerConnection, timeouts: Timeouts, reading: Reading) -> Self {
        let PeerConnection { reader, writer, peer, owner, guard, turn } = connection;
        let (event, events) = sync_channel(CHUNKS_WAITING_MAX);
        let (writing, orders) = channel();
        let (going, go) = channel();
        let traffic = Arc::<Traffic>::default();
        let reads = Reads {
            events: event.clone(),
            writing: writing.clone(),
            go,
            journal: None,
            traffic: Arc::clone(&traffic),
        };
        spawn(move || reads.run(reader, reading));
        let mut writes = Writes::new(writer, event, Arc::clone(&traffic));
        spawn(move || writes.run(&orders));
        let since = now();
        Self {
            peer,
            owner,
            traffic,
            turn,
            timeouts,
            since,
            greeting: Greeting::default(),
            silent: Duration::ZERO,
            events,
            unwritten: None,
            closed: None,
            has_reported: false,
            has_closed: false,
            writing,
            going,
            guard,
        }
    }

    /// From now on the first word of the other side, which is another process, is waited for.
    pub(super) fn await_greeting(&mut self) {
        if !matches!(self.guard, Guard::None) {
            self.greeting = Greeting::awaited(self.timeouts.idle);
        }
    }

    /// The next event, or a timeout.
    pub(super) fn next_event(&mut self) -> Event {
        if let Some(closed) = self.closed.take() {
            return closed;
        }
        loop {
            let event = self.wait();
            self.has_closed |= matches!(event, Event::Closed(_));
            match (event, self.unwritten.take()) {
                (Event::Written(Err(error)), unwritten)
                    if is_broken(&error) && !self.has_reported && !self.has_closed =>
                {
                    self.unwritten = Some(unwritten.unwrap_or(error));
                }
                (event @ (Event::Closed(_) | Event::Silent(_)), Some(error)) => {
                    self.closed = Some(event).filter(|event| matches!(event, Event::Closed(_)));
                    self.has_reported = true;
                    return Event::Written(Err(error));
                }
                (event, unwritten) => {
                    self.unwritten = unwritten;
                    return event;
                }
            }
        }
    }

    fn wait(&mut self) -> Event {
        let Timeouts { idle, whole } = self.timeouts;
        let idle = if self.unwritten.is_some() { idle.min(LAST_WORDS) } else { idle };
        let left = whole.map(|whole| whole.saturating_sub(self.since.elapsed()));
        let idle_left = idle.saturating_sub(std::mem::take(&mut self.silent));
        let within = left.map_or(idle_left, |left| left.min(idle_left));
        let greeting = self.greeting.left(&self.traffic.heard).filter(|left| *left < within);
        let within = greeting.unwrap_or(within);
        match (self.turn.receive(&self.events, within, &self.traffic.moved), whole) {
            // A peer that sends a byte now and then is not silent, but must not block others for ever.
            (_, Some(whole)) if self.since.elapsed() >= whole => Event::Late(whole),
            (Ok(event), _) => event,
            (Err(Missed::Timeout), _) if greeting.is_some() => {
                self.silent = within;
                Event::Ungreeted(self.greeting.report())
            }
            (Err(Missed::Timeout), _) => Event::Silent(idle),
            (Err(Missed::Disconnected), _) => Event::Closed(None),
            (Err(Missed::Overdue(time)), _) => {
                let whole = Some(self.since.elapsed() + LAST_WORDS);
                let timeouts = Timeouts { idle: LAST_WORDS, whole };
                (self.turn, self.timeouts) = (Turn::default(), timeouts);
                Event::Overdue(time)
            }
        }
    }

    /// How long nothing may arrive.
    pub(super) const fn idle_timeout(&self) -> Duration {
        self.timeouts.idle
    }

    /// Why a session ends in which nothing came for this long.
    pub(super) fn silence(&self, time: Duration) -> String {
        let (peer, seconds) = (&self.peer, time.as_secs());
        if self.traffic.heard.is_empty() {
            return format!(
                "{peer}: nothing came at all for {seconds} s: it may be no `umbel reconcile`, or take longer to read its set \
                 (--idle-timeout)"
            );
        }
        format!("{peer}: nothing came for {seconds} s")
    }

    /// The error of a session that failed: if the other side speaks otherwise, what it said, and what to do.
    pub(super) fn explained(&self, error: ReconcileError) -> ReconcileError {
        let Some(foreign) = self.traffic.heard.foreign() else { return error };
        let remedy = match self.guard {
            Guard::Program(_) => {
                "nothing but umbel may write to standard output there: silence what its shell prints when it starts \
                 without a terminal"
            }
            Guard::Socket(_) | Guard::None => "another program speaks there",
        };
        failed!("{}: {foreign}: {remedy}", self.peer)
    }

    /// Adds to the error of a connection that ended without a reason how the other side's program has ended.
    pub(super) fn with_status(&mut self, error: ReconcileError) -> ReconcileError {
        let status = if error.is_cut_off() { self.guard.ended_within(LAST_WORDS) } else { None };
        let Some(status) = status else { return error };
        let how = match (status.code(), status.signal()) {
            (None, Some(signal)) => format!("by signal {signal}"),
            (code, _) => format!("with exit code {}", code.unwrap_or_default()),
        };
        error.context(format!("the other side's program ended {how}"))
    }

    /// Waits a little until the other side has closed the connection: a program that this side has started is
    /// stopped when this side leaves, and may still have to say why it gave up.
    pub(super) fn wait_closed(&mut self) {
        let until = now() + LAST_WORDS;
        while !self.has_closed {
            let event = self.events.recv_timeout(until.saturating_duration_since(now()));
            self.has_closed = matches!(event, Ok(Event::Closed(_)) | Err(_));
        }
    }

    // If the writing thread has ended, the next wait returns its error.
    fn order(&self, writing: Writing) {
        drop(self.writing.send(writing));
    }

    /// Sends bytes of the stream.
    pub(super) fn send(&self, bytes: Vec<u8>) {
        self.order(Writing::Bytes(bytes));
    }

    /// Sends an offer or a verdict.
    pub(super) fn send_control(&self, frame: ResumeFrame) {
        self.order(Writing::Frame(frame));
    }

    /// Asks for an event when all is written.
    pub(super) fn mark(&self) {
        self.order(Writing::NotifyWritten);
    }

    /// Asks for an event when all is durable on the other side.
    pub(super) fn notify_durable(&self) {
        self.order(Writing::NotifyDurable);
    }

    /// From now on the stream is sent in frames.
    pub(super) fn resume(&self, window: SendWindow, journal: &Arc<JournalWriter>) {
        self.order(Writing::Resume(window, Arc::clone(journal)));
    }

    /// Continues to read after an offer or a verdict; from now on into this journal, if one is given.
    pub(super) fn go_on(&self, journal: Option<&Arc<JournalWriter>>) {
        // If the reading thread has ended, it has already reported that.
        drop(self.going.send(journal.cloned()));
    }

    /// Tells the other side that nothing more will be sent. A failed session must do so too: the reading
    /// thread may wait for ever.
    pub(super) fn leave(&self) {
        self.order(Writing::End);
    }

    /// Closes the connection after a successful session.
    pub(super) fn end(self) {
        self.leave();
        drop(self.writing);
        self.guard.end();
    }
}

/// Spawns a thread that may outlive its session because the peer neither writes nor closes.
#[expect(clippy::disallowed_methods, reason = "a silent peer must not hold the process")]
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}

/// State of the reading thread.
struct Reads {
    events: SyncSender<Event>,
    writing: Sender<Writing>,
    go: Receiver<Option<Arc<JournalWriter>>>,
    journal: Option<Arc<JournalWriter>>,
    traffic: Arc<Traffic>,
}

/// The receiver of events or of orders is gone.
struct PeerGone;

impl Reads {
    fn run(mut self, mut reader: Box<dyn Read + Send>, reading: Reading) {
        let mut is_resumable = (reading == Reading::Plain).then_some(false);
        let (mut first, mut frames) = (Vec::new(), ResumeReader::default());
        loop {
            let mut buffer = vec![0; READ_BYTES];
            let end = match reader.read(&mut buffer) {
                Ok(0) => None,
                Ok(count) => {
                    buffer.truncate(count);
                    self.traffic.moved.fetch_add(count as u64, Ordering::Relaxed);
                    if !self.traffic.heard.add(&buffer) {
                        return drop(self.closed(Some(io::Error::other("no message"))));
                    }
                    if is_resumable.is_none() {
                        first.append(&mut buffer);
                        is_resumable = ResumeReader::is_resumable(&first);
                        std::mem::swap(&mut first, &mut buffer);
                    }
                    match is_resumable {
                        None => first = buffer,
                        Some(false) => {
                            if self.events.send(Event::Bytes(buffer)).is_err() {
                                return;
                            }
                        }
                        Some(true) => match self.take(&mut frames, &buffer) {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => return drop(self.closed(Some(error))),
                            Err(PeerGone) => return,
                        },
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Some(error),
            };
            return drop(self.closed(end));
        }
    }

    fn closed(&self, error: Option<io::Error>) -> Result<(), PeerGone> {
        drop(self.writing.send(Writing::PeerGone));
        self.events.send(Event::Closed(error)).map_err(|_| PeerGone)
    }

    /// Handles bytes of a resumable connection.
    fn take(
        &mut self,
        frames: &mut ResumeReader,
        bytes: &[u8],
    ) -> Result<io::Result<()>, PeerGone> {
        self.traffic.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        frames.push(bytes);
        loop {
            let frame = match frames.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(io::Error::other(error))),
            };
            let done = match frame {
                ResumeFrame::Data(bytes) => self.receive(bytes),
                ResumeFrame::Ack(bytes) => {
                    self.writing.send(Writing::Acknowledged(bytes)).map_err(|_| PeerGone)?;
                    Ok(())
                }
                control => {
                    self.events.send(Event::Control(control)).map_err(|_| PeerGone)?;
                    if let Some(journal) = self.go.recv().map_err(|_| PeerGone)? {
                        self.journal = Some(journal);
                    }
                    Ok(())
                }
            };
            if done.is_err() {
                return Ok(done);
            }
        }
    }

    fn receive(&self, bytes: Vec<u8>) -> io::Result<()> {
        let Some(journal) = &self.journal else {
            return Err(io::Error::other("a Data frame where none is expected"));
        };
        self.traffic.received.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        let total =
            journal.receive(bytes).map_err(|error| io::Error::other(format!("{error:#}")))?;
        // If the writing thread or the session has ended, nobody needs the acknowledgement or the event.
        drop(self.writing.send(Writing::Frame(ResumeFrame::Ack(total))));
        drop(self.events.send(Event::Journaled(total)));
        Ok(())
    }
}
