//! One side of a session over a simulated connection.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use umbel_reconcile_engine::{
    Item, ItemIndex, Options, Pass, RemoteItem, Session, SessionError, SessionInput,
    SessionOutcome, SessionOutput, StoredSketch,
};
use umbel_step::Outbox;

use super::context::{Context, Order};
use super::failure::{Failure, IDLE};
use super::lie::Liar;
use super::place::Place;
use super::transport::Transport;
use crate::plan::scenario::After;

/// Time between two writes of a side.
const PACE: Duration = Duration::from_millis(1);

/// Most bytes that are read at once.
const READ_BYTES: usize = 4 << 10;

/// What a side is to do, and the faults that affect it.
pub(super) struct Task {
    pub(super) options: Options,
    /// Bits of short symbols, which may collide.
    pub(super) symbol_bits: Option<u8>,
    /// Bytes that it writes at once.
    pub(super) chunk_bytes: usize,
    pub(super) blow: Option<(After, Blow)>,
    pub(super) loss_per_mille: u32,
    pub(super) liar: Option<Liar>,
    pub(super) dice: ChaCha8Rng,
}

/// A fault that affects a side once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blow {
    /// It drops the connection.
    Reset,
    /// Its host crashes.
    Crash,
    /// The link fails.
    Link,
}

/// A side while it runs.
pub(super) struct Side {
    task: Task,
    context: Rc<Context>,
    place: Place,
    frozen: Rc<Vec<Item>>,
    session: Session,
    out: Outbox<SessionOutput>,
    inputs: VecDeque<SessionInput>,
    input_count: u32,
    /// Bytes that are to be written.
    outgoing: VecDeque<u8>,
    written: u64,
    next_write: Instant,
    is_paused: bool,
    is_closed: bool,
    /// The items that the session handed out.
    applied: Vec<Item>,
    result: Option<Result<SessionOutcome, SessionError>>,
    /// Differences that are reported once both sides agree that they resume the same session.
    only_here: Option<Vec<ItemIndex>>,
    only_there: Vec<Vec<RemoteItem>>,
    /// The transport of a resumable session.
    transport: Option<Transport>,
}

impl Side {
    /// A side that works on the items `frozen`.
    pub(super) fn new(
        task: Task,
        context: Rc<Context>,
        place: Place,
        (frozen, sketch): (Rc<Vec<Item>>, Option<StoredSketch>),
        transport: Option<Transport>,
    ) -> Self {
        let mut session = Session::new(task.options);
        if let Some(bits) = task.symbol_bits {
            session = session.with_symbol_bits(bits);
        }
        if let Some(sketch) = sketch {
            session = session.with_sketch(sketch).expect("a sketch of this set");
        }
        Self {
            task,
            context,
            place,
            frozen,
            session,
            out: Outbox::new(),
            inputs: VecDeque::from([SessionInput::Start]),
            input_count: 0,
            outgoing: VecDeque::new(),
            written: 0,
            next_write: Instant::now(),
            is_paused: false,
            is_closed: false,
            applied: Vec::new(),
            result: None,
            only_here: None,
            only_there: Vec::new(),
            transport,
        }
    }

    /// Runs the session to its end.
    pub(super) async fn run(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<SessionOutcome, Failure> {
        loop {
            while let Some(input) = self.inputs.pop_front() {
                if matches!(self.task.blow, Some((After::Inputs(at), _)) if at <= self.input_count)
                {
                    self.strike().await?;
                }
                self.input_count += 1;
                self.session.step(input, &mut self.out);
                self.out.take().into_iter().for_each(|output| self.follow(output));
                if let Some(result) = self.take_result() {
                    return result;
                }
            }
            self.wait(reader, writer).await?;
            if let Some(result) = self.take_result() {
                return result;
            }
        }
    }

    /// The result of the session, once both sides agree that they resume the same one.
    fn take_result(&mut self) -> Option<Result<SessionOutcome, Failure>> {
        let is_checked = self.transport.as_ref().is_some_and(Transport::is_checked);
        if !is_checked {
            let (context, place) = (&self.context, self.place);
            self.only_there.drain(..).for_each(|items| context.only_there(place, items));
            self.only_here.take().into_iter().for_each(|items| context.only_here(place, &items));
        }
        match (&self.result, is_checked) {
            // It failed before it had sent again all that the peer has received.
            (Some(Err(_)), true) => Some(Err(Failure::Stale)),
            (_, true) => None,
            (_, false) => self.result.take().map(|result| result.map_err(Failure::Session)),
        }
    }

    fn follow(&mut self, output: SessionOutput) {
        match output {
            SessionOutput::Send(bytes) => {
                self.context.sent(self.place, bytes.len());
                let bytes = match &mut self.task.liar {
                    Some(liar) => {
                        let (bytes, is_now) = liar.pass(bytes);
                        if is_now {
                            self.context.fired(self.place);
                        }
                        bytes
                    }
                    None => bytes,
                };
                match &mut self.transport {
                    Some(transport) => transport.send(&bytes),
                    None => self.outgoing.extend(bytes),
                }
            }
            SessionOutput::Pause => self.is_paused = true,
            SessionOutput::RunPass(pass) => self.inputs.push_back(self.scan(pass)),
            SessionOutput::Fetch(wanted) => {
                let item = |index: &ItemIndex| {
                    let at = usize::try_from(index.0).expect("a place of the snapshot");
                    self.frozen[at].clone()
                };
                self.inputs.push_back(SessionInput::Items(wanted.iter().map(item).collect()));
            }
            SessionOutput::OnlyHere(items) => self.only_here = Some(items),
            SessionOutput::OnlyThere(items) => {
                self.applied.extend(items.iter().filter_map(|item| item.item.clone()));
                self.only_there.push(items);
                self.inputs.push_back(SessionInput::Applied);
            }
            SessionOutput::Phase(phase) => self.context.trace(self.place, "phase", phase),
            SessionOutput::Finish(result) => self.result = Some(result),
        }
    }

    fn scan(&self, mut pass: Pass) -> SessionInput {
        for (index, item) in (0..).zip(self.frozen.iter()) {
            pass.add(ItemIndex(index), item.as_item_ref());
        }
        if pass.includes_applied() {
            self.applied.iter().for_each(|item| pass.add_applied(item.as_item_ref()));
        }
        SessionInput::PassDone(pass)
    }

    /// Waits until something has been read or written, or there is other work.
    async fn wait(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Failure> {
        if self.feed()? {
            return Ok(());
        }
        let is_sent = self.transport.as_ref().is_none_or(Transport::is_sent);
        if self.outgoing.is_empty() && self.is_paused && is_sent {
            self.is_paused = false;
            self.inputs.push_back(SessionInput::Resume);
            return Ok(());
        }
        let can_read = (self.session.wants_bytes() || self.transport.is_some()) && !self.is_closed;
        let mut buffer = [0; READ_BYTES];
        tokio::select! {
            biased;
            read = reader.read(&mut buffer), if can_read => match read {
                Ok(0) => {
                    self.is_closed = true;
                    if self.transport.is_none() {
                        self.inputs.push_back(SessionInput::Closed);
                    }
                }
                Ok(count) => {
                    self.context.trace(self.place, "read", count);
                    match &mut self.transport {
                        Some(transport) => transport.receive(&buffer[..count])?,
                        None => self.inputs.push_back(SessionInput::Received(buffer[..count].to_vec())),
                    }
                }
                Err(_) => return Err(Failure::Broken),
            },
            () = tokio::time::sleep_until(self.next_write), if !self.outgoing.is_empty() => {
                self.write(writer).await?;
            }
            () = tokio::time::sleep(IDLE) => return Err(Failure::Silent),
        }
        Ok(())
    }

    /// Passes bytes of the journal to the session, and queues frames to send. Returns whether the session
    /// has input.
    fn feed(&mut self) -> Result<bool, Failure> {
        let Some(transport) = &mut self.transport else { return Ok(false) };
        if self.session.wants_bytes() {
            if let Some(bytes) = transport.feed() {
                self.inputs.push_back(SessionInput::Received(bytes));
                return Ok(true);
            }
            transport.journal_ended();
        }
        self.outgoing.extend(transport.frames()?);
        // Only now, because the session has received all bytes of the connection.
        if self.is_closed {
            return Err(Failure::Broken);
        }
        Ok(false)
    }

    async fn write(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> Result<(), Failure> {
        let mut count = self.task.chunk_bytes.min(self.outgoing.len());
        if let Some((After::Bytes(at), _)) = self.task.blow {
            let left = usize::try_from(at.saturating_sub(self.written)).unwrap_or(usize::MAX);
            if left == 0 {
                self.strike().await?;
            } else {
                count = count.min(left);
            }
        }
        let loss = self.task.loss_per_mille;
        if loss > 0 && self.task.dice.random_range(0..1000) < loss {
            self.context.fired(self.place);
            return Err(Failure::Reset);
        }
        let chunk: Vec<u8> = self.outgoing.drain(..count).collect();
        writer.write_all(&chunk).await.map_err(|_| Failure::Broken)?;
        self.written += chunk.len() as u64;
        self.context.trace(self.place, "wrote", chunk.len());
        self.next_write = Instant::now() + PACE;
        Ok(())
    }

    /// Carries out the planned fault of this side.
    async fn strike(&mut self) -> Result<(), Failure> {
        let Some((_, blow)) = self.task.blow.take() else { return Ok(()) };
        self.context.fired(self.place);
        match blow {
            Blow::Reset => return Err(Failure::Reset),
            Blow::Crash => {
                self.context.order(Order::Crash(self.place));
                std::future::pending::<()>().await;
            }
            Blow::Link => self.context.order(Order::Link(self.place)),
        }
        Ok(())
    }

    /// Writes the remaining bytes, and reads until the peer has closed its end, too: a side that closes a
    /// connection with unread bytes resets it, so that bytes which it has written may be lost.
    pub(super) async fn linger(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Failure> {
        loop {
            if let Some(transport) = &mut self.transport {
                self.outgoing.extend(transport.frames()?);
            }
            if !self.outgoing.is_empty() {
                tokio::time::sleep_until(self.next_write).await;
                self.write(writer).await?;
                continue;
            }
            let Some(transport) = self.transport.as_mut().filter(|one| !one.is_acknowledged())
            else {
                break;
            };
            let mut buffer = [0; READ_BYTES];
            let read = tokio::time::timeout(IDLE, reader.read(&mut buffer)).await;
            match read.map_err(|_| Failure::Silent)? {
                Ok(count @ 1..) => transport.receive(&buffer[..count])?,
                _ => return Err(Failure::Broken),
            }
        }
        writer.shutdown().await.map_err(|_| Failure::Broken)?;
        let mut buffer = [0; READ_BYTES];
        let drain = async { while reader.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
        tokio::time::timeout(IDLE, drain).await.map_err(|_| Failure::Silent)
    }

    /// Whether it is this side that cannot resume.
    pub(super) fn is_refuted(&self) -> bool {
        self.transport.as_ref().is_some_and(Transport::is_refuted)
    }

    /// Takes the items that the session handed out.
    pub(super) fn applied(&mut self) -> Vec<Item> {
        std::mem::take(&mut self.applied)
    }
}
