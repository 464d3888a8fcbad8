//! A connection while a session runs over it: one thread reads, one writes, so that no side ever waits for the other to
//! read.
//!
//! Over a resumable connection everything lies in the engine's frames. What comes is in the journal before anybody sees
//! of it, and is acknowledged then; what is sent waits for that. Whoever reads stops behind each offer and verdict until
//! it learns where to put what follows.

use super::endpoint::{Connection, Guard};
use super::journal::JournalWriter;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};
use umbel_reconcile_engine::{ResumeFrame, ResumeReader, SendWindow};

/// Bytes that are read at a time.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Chunks that wait for the session: a few round trips of a fast network.
const CHUNKS_WAITING_MAX: usize = 64;

/// What happened on a connection.
pub(super) enum Event {
    /// Bytes of a plain session.
    Bytes(Vec<u8>),
    /// So many bytes of a resumable session are in the journal.
    Journaled(u64),
    /// An offer or a verdict. Nothing else is read before [`Link::go_on`].
    Control(ResumeFrame),
    /// Nothing more comes.
    Closed(Option<io::Error>),
    /// Everything in front of a mark is written, or could not be.
    Written(io::Result<()>),
    /// Nothing came for too long.
    Silent(Duration),
    /// The session takes longer than it may.
    Late(Duration),
}

/// How long a session waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For something to come.
    pub idle: Duration,
    /// For all of it together, if there is an end to that.
    pub whole: Option<Duration>,
}

/// How the peer's bytes are to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// As those of a session.
    Plain,
    /// As the peer begins.
    Resumable,
}

enum Writing {
    /// Bytes of the stream.
    Bytes(Vec<u8>),
    /// A frame beside it.
    Frame(ResumeFrame),
    /// Report when everything before this is written.
    NotifyWritten,
    /// Report when everything before this is durable on the other side.
    NotifyDurable,
    /// From now on the stream goes out in frames.
    Resume(SendWindow, Arc<JournalWriter>),
    /// The other side has so much.
    Acknowledged(u64),
    /// The peer will acknowledge nothing more.
    PeerGone,
    End,
}

/// Bytes around the stream of a resumable session.
#[derive(Default)]
pub(super) struct Around {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Around {
    /// Those that were sent and received.
    pub(super) fn bytes(&self) -> [u64; 2] {
        [&self.sent, &self.received].map(|bytes| bytes.load(Ordering::Relaxed))
    }
}

/// A connection and its threads.
pub(super) struct Link {
    pub(super) peer: String,
    pub(super) owner: String,
    pub(super) around: Arc<Around>,
    patience: Patience,
    since: Instant,
    events: Receiver<Event>,
    writing: Sender<Writing>,
    going: Sender<Option<Arc<JournalWriter>>>,
    guard: Guard,
}

impl Link {
    pub(super) fn new(connection: Connection, patience: Patience, reading: Reading) -> Self {
        let Connection { reader, writer, peer, owner, guard } = connection;
        let (event, events) = sync_channel(CHUNKS_WAITING_MAX);
        let (writing, orders) = channel();
        let (going, go) = channel();
        let around = Arc::<Around>::default();
        let reads = Reads {
            events: event.clone(),
            writing: writing.clone(),
            go,
            journal: None,
            around: Arc::clone(&around),
        };
        spawn(move || reads.run(reader, reading));
        let mut writes = Writes::new(writer, event, Arc::clone(&around));
        spawn(move || writes.run(&orders));
        let since = now();
        Self { peer, owner, around, patience, since, events, writing, going, guard }
    }

    /// The next event, or that there was none for too long.
    pub(super) fn next_event(&self) -> Event {
        let Patience { idle, whole } = self.patience;
        let left = whole.map(|whole| whole.saturating_sub(self.since.elapsed()));
        match (self.events.recv_timeout(left.map_or(idle, |left| left.min(idle))), whole) {
            // Who sends a byte now and then is not silent, and shall not hold others up for ever.
            (_, Some(whole)) if self.since.elapsed() >= whole => Event::Late(whole),
            (Ok(event), _) => event,
            (Err(RecvTimeoutError::Timeout), _) => Event::Silent(idle),
            (Err(RecvTimeoutError::Disconnected), _) => Event::Closed(None),
        }
    }

    // If the writer has ended, the next wait says why.
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

    /// From now on the stream goes out in frames.
    pub(super) fn resume(&self, window: SendWindow, journal: &Arc<JournalWriter>) {
        self.order(Writing::Resume(window, Arc::clone(journal)));
    }

    /// Reads on behind an offer or a verdict; from now on into this journal, if one is given.
    pub(super) fn go_on(&self, journal: Option<&Arc<JournalWriter>>) {
        // A reader that has ended has said so.
        drop(self.going.send(journal.cloned()));
    }

    /// Says to the other side that nothing more comes. Whoever fails must, too: the thread that reads may wait for ever.
    pub(super) fn leave(&self) {
        self.order(Writing::End);
    }

    /// Lets the other side go.
    pub(super) fn end(self) {
        self.leave();
        drop(self.writing);
        self.guard.end();
    }
}

/// When a session began, for its deadline.
#[expect(clippy::disallowed_methods, reason = "no result depends on it, only when it is given up")]
fn now() -> Instant {
    Instant::now()
}

/// A thread that may outlive its session: one that waits for a peer which neither writes nor closes.
#[expect(clippy::disallowed_methods, reason = "a silent peer must not hold the process")]
fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}

/// What the reading thread has.
struct Reads {
    events: SyncSender<Event>,
    writing: Sender<Writing>,
    go: Receiver<Option<Arc<JournalWriter>>>,
    journal: Option<Arc<JournalWriter>>,
    around: Arc<Around>,
}

/// Nobody listens any more.
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

    /// Takes bytes of a resumable connection.
    fn take(
        &mut self,
        frames: &mut ResumeReader,
        bytes: &[u8],
    ) -> Result<io::Result<()>, PeerGone> {
        self.around.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
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
        self.around.received.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        let total =
            journal.receive(bytes).map_err(|error| io::Error::other(format!("{error:#}")))?;
        // If the writer or the session has ended, nobody needs to know.
        drop(self.writing.send(Writing::Frame(ResumeFrame::Ack(total))));
        drop(self.events.send(Event::Journaled(total)));
        Ok(())
    }
}

/// What the writing thread has.
struct Writes {
    writer: Box<dyn Write + Send>,
    events: SyncSender<Event>,
    around: Arc<Around>,
    outcome: io::Result<()>,
    /// Of a resumable session; what it sends is noted in the journal.
    window: Option<(SendWindow, Arc<JournalWriter>)>,
    /// Who waits for what is in the window: to be sent, or to be durable.
    waits: Option<Wait>,
    /// Whether nothing more will be acknowledged.
    is_peer_gone: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Sent,
    Durable,
}

impl Writes {
    fn new(writer: Box<dyn Write + Send>, events: SyncSender<Event>, around: Arc<Around>) -> Self {
        Self {
            writer,
            events,
            around,
            outcome: Ok(()),
            window: None,
            waits: None,
            is_peer_gone: false,
        }
    }

    fn run(&mut self, orders: &Receiver<Writing>) {
        for order in orders {
            match order {
                Writing::Bytes(bytes) => match &mut self.window {
                    Some((window, _)) => window.push(&bytes),
                    None => self.write(&bytes),
                },
                Writing::Frame(frame) => {
                    let bytes = frame.to_bytes();
                    self.around.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    self.write(&bytes);
                }
                Writing::NotifyWritten => self.waits = Some(Wait::Sent),
                Writing::NotifyDurable => self.waits = Some(Wait::Durable),
                Writing::Resume(window, journal) => self.window = Some((window, journal)),
                Writing::Acknowledged(bytes) => {
                    let acknowledged = match &mut self.window {
                        Some((window, _)) => window.acknowledge(bytes).map_err(io::Error::other),
                        None => Err(io::Error::other("an Ack frame where none is expected")),
                    };
                    self.note(acknowledged);
                }
                Writing::PeerGone => self.is_peer_gone = true,
                Writing::End => return,
            }
            self.pump();
            if !self.answer() {
                return;
            }
        }
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if self.outcome.is_ok() {
            self.outcome = outcome;
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.outcome.is_ok() {
            self.outcome = self.writer.write_all(bytes).and_then(|()| self.writer.flush());
        }
    }

    /// Sends what the window allows.
    fn pump(&mut self) {
        while self.outcome.is_ok() {
            let Some((window, journal)) = &mut self.window else { return };
            let before = window.sent();
            let Some(frame) = window.next_frame() else { return };
            let bytes = window.sent() - before;
            let noted = journal.note_sent(window.sent());
            self.note(noted.map_err(|error| io::Error::other(format!("{error:#}"))));
            self.around.sent.fetch_add(frame.len() as u64 - bytes, Ordering::Relaxed);
            self.write(&frame);
        }
    }

    /// Tells who waits, if it has come to that; false if nobody listens any more.
    fn answer(&mut self) -> bool {
        let window = self.window.as_ref().map(|(window, _)| window);
        let is_done = match self.waits {
            None => return true,
            Some(Wait::Sent) => window.is_none_or(SendWindow::is_sent),
            Some(Wait::Durable) => window.is_none_or(SendWindow::is_acknowledged),
        };
        if !is_done && self.is_peer_gone {
            self.note(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !is_done && self.outcome.is_ok() {
            return true;
        }
        self.waits = None;
        let outcome = std::mem::replace(&mut self.outcome, Ok(()));
        self.events.send(Event::Written(outcome)).is_ok()
    }
}
