//! The state machine of both halves of a session.

use super::core::{Awaiting, Core};
use super::error::{Result, SessionError, SessionFrameError, limit};
use super::event::{SessionInput, SessionOutput};
use super::initiator::Initiator;
use super::message::Message;
use super::offline::StoredSketch;
use super::options::{Aim, Direction, Options, SessionRole};
use super::responder::Responder;
use super::resume::OFFER;
use super::wire::FrameBuffer;
use crate::limits::INBOX_BYTES_MAX;
use umbel_step::Outbox;
use umbel_step::planted::{self, Planted};

/// A responder's aim until the first frame arrives.
const UNKNOWN_AIM: Aim = Aim::new(Direction::Compare);

/// One half of a session.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_reconcile_engine::{Direction, SessionInput, SymbolKind, Options, SessionOutput, Session};
///
/// // Two empty sets: the responder's answer says so, and both are done.
/// let mut ours = Session::new(Options::initiator(SymbolKind::Id64, Direction::TwoWay, 1));
/// let mut theirs = Session::new(Options::responder(SymbolKind::Id64, 2));
/// let (mut out, mut sent) = (Outbox::new(), 0);
/// theirs.step(SessionInput::Start, &mut out);
/// let mut inputs = vec![(true, SessionInput::Start)];
/// let mut finished = 0;
/// while let Some((is_ours, input)) = inputs.pop() {
///     let side = if is_ours { &mut ours } else { &mut theirs };
///     side.step(input, &mut out);
///     for output in out.take() {
///         match output {
///             SessionOutput::RunPass(pass) => inputs.push((is_ours, SessionInput::PassDone(pass))),
///             SessionOutput::Send(bytes) => {
///                 sent += bytes.len();
///                 inputs.push((!is_ours, SessionInput::Received(bytes)));
///             }
///             SessionOutput::Finish(result) => {
///                 assert!(result.expect("equal sets").verified);
///                 finished += 1;
///             }
///             _ => {}
///         }
///     }
/// }
/// // A Hello of 175 bytes, and 32 that say "equal" with a digest.
/// assert_eq!((finished, sent), (2, 207));
/// ```
#[derive(Debug)]
pub struct Session {
    core: Core,
    half: Half,
    inbox: FrameBuffer,
    is_closed: bool,
}

#[derive(Debug)]
enum Half {
    Initiator(Initiator),
    Responder(Responder),
    Over,
}

impl Session {
    /// A session that waits for [`SessionInput::Start`].
    #[must_use]
    pub fn new(options: Options) -> Self {
        let (aim, half) = match options.role {
            SessionRole::Initiator(aim) => (aim, Half::Initiator(Initiator::new())),
            SessionRole::Responder { .. } => (UNKNOWN_AIM, Half::Responder(Responder::new())),
        };
        let is_initiator = matches!(half, Half::Initiator(_));
        let core = Core::new(options, aim, is_initiator);
        Self { core, half, inbox: FrameBuffer::default(), is_closed: false }
    }

    /// A session that begins with the stored sketch of the set, and does not scan the set before the
    /// difference is known. If more differs than the sketch decodes, or the peer has no sketch with the
    /// same salt, the set is scanned after all. Both sides must trust everyone who knows the salt; sessions
    /// with a domain do not accept sketches.
    ///
    /// # Errors
    /// If the sketch is of items of another kind or dataset, or the session has a domain.
    pub fn with_sketch(mut self, sketch: StoredSketch) -> Result<Self> {
        let options = &self.core.terms.options;
        let spec = sketch.spec();
        if (spec.kind(), spec.dataset_id()) != (options.kind, options.dataset_id) {
            return Err(SessionError::Driver { what: "a sketch of another sort of items" });
        }
        if options.domain != [0; 16] {
            return Err(SessionError::Driver {
                what: "a stored sketch in a session with a domain",
            });
        }
        self.core.sets.sketch = Some(Box::new(sketch));
        Ok(self)
    }

    /// An initiator with symbols short enough to collide, for tests and simulations of collisions. Fewer
    /// than 32 bits are used exactly, 32 or more are a minimum.
    #[must_use]
    pub fn with_symbol_bits(mut self, bits: u8) -> Self {
        self.core.terms.symbol_bits_min = bits;
        self
    }

    /// Processes one input and emits the resulting outputs. A step computes for at most a few scans of the
    /// snapshot's hashes (a second for ten million items), so the driver should run it where it may block.
    pub fn step(&mut self, input: SessionInput, out: &mut Outbox<SessionOutput>) {
        if matches!(self.half, Half::Over) {
            return;
        }
        if let Err(error) = self.advance(input, out) {
            self.fail(error, out);
        }
    }

    /// Whether [`SessionInput::Received`] would be processed now. Otherwise bytes are buffered up to a limit; a
    /// driver that stops reading in the meantime makes the transport apply backpressure to the peer.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        self.core.awaiting == Awaiting::Nothing && self.core.jobs.is_empty()
    }

    fn advance(&mut self, input: SessionInput, out: &mut Outbox<SessionOutput>) -> Result<()> {
        match input {
            SessionInput::Start => {
                if let Half::Initiator(half) = &mut self.half {
                    half.start(&mut self.core, out)?;
                }
            }
            SessionInput::Received(bytes) => {
                let waiting = self.inbox.waiting_bytes() + bytes.len();
                self.inbox.push(&bytes);
                if !self.wants_bytes() && waiting > INBOX_BYTES_MAX {
                    return Err(limit("bytes that wait", waiting as u64, INBOX_BYTES_MAX as u64));
                }
            }
            SessionInput::PassDone(pass) => {
                self.waited_for(Awaiting::Pass)?;
                let mixed = SessionError::Driver { what: "an item of another kind" };
                let gathered = pass.finish().ok_or(mixed)?;
                match &mut self.half {
                    Half::Initiator(half) => half.on_pass(&mut self.core, gathered, out)?,
                    Half::Responder(half) => half.on_pass(&mut self.core, gathered, out)?,
                    Half::Over => {}
                }
            }
            SessionInput::Items(items) => {
                self.waited_for(Awaiting::Items)?;
                self.core.items_fetched(&items, out)?;
            }
            SessionInput::Applied => {
                let extra = SessionError::Driver { what: "applied more than was handed out" };
                self.core.arrivals.unapplied =
                    self.core.arrivals.unapplied.checked_sub(1).ok_or(extra)?;
            }
            SessionInput::Resume => self.waited_for(Awaiting::Resume)?,
            SessionInput::Closed => {
                self.is_closed = true;
                if self.core.awaiting == Awaiting::Resume {
                    return Err(self.left_too_early());
                }
            }
            SessionInput::Cancel(why) => return Err(SessionError::Cancelled { why }),
        }
        self.go_on(out)
    }

    /// The error of a peer that left while this side still had to send: its reason, if it has given one.
    fn left_too_early(&mut self) -> SessionError {
        while let Ok(Some(frame)) = self.inbox.next_frame() {
            if let Ok(Message::Abort { text }) = Message::read(&frame) {
                return self.abort_error(text);
            }
        }
        SessionError::Disconnected { phase: self.core.phase }
    }

    fn waited_for(&mut self, awaiting: Awaiting) -> Result<()> {
        if self.core.awaiting != awaiting {
            return Err(SessionError::Driver { what: "an answer to no question" });
        }
        self.core.awaiting = Awaiting::Nothing;
        Ok(())
    }

    /// Sends and processes frames until the session must wait.
    fn go_on(&mut self, out: &mut Outbox<SessionOutput>) -> Result<()> {
        loop {
            self.core.pump(out)?;
            self.core.traffic.check()?;
            if self.conclude(out)? {
                self.half = Half::Over;
                return Ok(());
            }
            if !self.wants_bytes() {
                return Ok(());
            }
            let Some(frame) = self.inbox.next_frame()? else { break };
            if frame.frame_type == OFFER {
                return Err(SessionError::Resumable);
            }
            let message = match (Message::read(&frame), &self.half) {
                (Err(SessionFrameError::Version { .. }), Half::Responder(_)) => {
                    return Responder::refuse_version(&mut self.core, out);
                }
                (read, _) => read?,
            };
            self.core.traffic.receive(&message, frame.wire_bytes)?;
            if let Message::Abort { text } = message {
                return Err(self.abort_error(text));
            }
            match &mut self.half {
                Half::Initiator(half) => half.on_message(&mut self.core, message, out)?,
                Half::Responder(half) => half.on_message(&mut self.core, message, out)?,
                Half::Over => {}
            }
        }
        if self.is_closed && self.core.arrivals.unapplied == 0 {
            if planted::on(Planted::CloseIsConsent) && self.core.unions.sent.is_some() {
                self.core.finish(out)?;
                self.half = Half::Over;
                return Ok(());
            }
            return Err(SessionError::Disconnected { phase: self.core.phase });
        }
        Ok(())
    }

    /// Compares the digests of the union once both are known; true if the session ended.
    fn conclude(&mut self, out: &mut Outbox<SessionOutput>) -> Result<bool> {
        let Some((ours, theirs)) = self.core.unions.both() else { return Ok(false) };
        if self.core.arrivals.unapplied > 0 {
            return Ok(false);
        }
        let is_over = match &mut self.half {
            Half::Initiator(half) => half.conclude(&mut self.core, ours, theirs, out)?,
            Half::Responder(half) => half.conclude(&mut self.core, ours, theirs, out)?,
            Half::Over => true,
        };
        if !is_over {
            self.core.pump(out)?;
        }
        Ok(is_over)
    }

    fn abort_error(&self, text: String) -> SessionError {
        match &self.half {
            Half::Responder(half) => match half.unions() {
                Some((ours, theirs)) => SessionError::NotConverged { ours, theirs },
                None => SessionError::Aborted { text },
            },
            _ => SessionError::Aborted { text },
        }
    }

    fn fail(&mut self, error: SessionError, out: &mut Outbox<SessionOutput>) {
        let is_known_to_peer = matches!(
            error,
            SessionError::Aborted { .. }
                | SessionError::Disconnected { .. }
                | SessionError::Refused(_)
        );
        if !is_known_to_peer {
            let text = match &error {
                SessionError::Frame(cause) => format!("{error}: {cause}"),
                error => error.to_string(),
            };
            self.core.traffic.send(&Message::Abort { text }, out);
        }
        self.half = Half::Over;
        out.push(SessionOutput::Finish(Err(error)));
    }
}
