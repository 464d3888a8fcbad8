//! One connection: reads bytes, carries out commands and writes the answers, in turn. It reads nothing
//! while commands run, and a limited part while one waits for those of others or the client takes no answers, so
//! backpressure stops a client that does not read them.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};
use umbel_node::metrics;
use umbel_ports::{ConnectionHandle, Incoming, PeerIdentity, Stream};
use umbel_resp::{Decoder, ProtocolError, Refusal, Request};

use super::parting::part;
use super::pipeline;
use super::session::{Executing, Queue, Session};
use super::shared::{ConnectionPlace, Counts, Shared};
use super::writing::write_answers;
use crate::budget::{Budget, Holding, NoRoom};
use crate::limits::{
    ARRIVAL_BYTES_PER_SECOND_MIN, ARRIVAL_TIMEOUT, RESP_AHEAD_BYTES_MAX,
    RESP_COMMANDS_IN_FLIGHT_MAX, RESP_DROPPED_BYTES_MAX, RESP_FREE_BYTES, RESP_READ_BYTES,
    RESP_WRITE_BYTES,
};

/// Serves a connection to its end.
pub(super) async fn serve(taken: Incoming, shared: Arc<Shared>, stop: watch::Receiver<bool>) {
    let Incoming { stream, from, identity, slot } = taken;
    let connection = slot.as_ref().map(|slot| slot.connection().clone()).unwrap_or_default();
    if !matches!(identity, PeerIdentity::Unchecked | PeerIdentity::Anonymous) {
        connection.prove();
    }
    let place = ConnectionPlace::new(&shared, from, connection.clone());
    let session = Session::new(Arc::clone(&shared), Arc::clone(&place.client), identity).await;
    if session.is_known() {
        shared.clients.keep(place.client.id);
    }
    let input = Input::new(connection, session.is_known(), &shared.budget);
    let mut served = Served { stream, session, input, out: Vec::new() };
    // An error means that the client is gone: it receives nothing more.
    let _ = served.run(stop).await;
}

struct Served {
    stream: Box<dyn Stream>,
    session: Session,
    input: Input,
    /// Answers that are not written yet.
    out: Vec<u8>,
}

/// The input of a connection.
struct Input {
    connection: ConnectionHandle,
    decoder: Decoder,
    /// Whether the client has authenticated, or need not.
    is_known: bool,
    /// Bytes that arrived but are not decoded: too many commands came before them.
    rest: BytesMut,
    /// The most that these were since there were none: the buffer is freed as a whole.
    rest_bytes: usize,
    /// The client sends nothing more.
    is_closed: bool,
    /// Commands to carry out.
    requests: Vec<Request>,
    /// The bytes after these commands are no command.
    failed: Option<ProtocolError>,
    /// Bytes that came after those, while the client took no answers, and were dropped.
    dropped_bytes: usize,
    /// Since when the next command is waited for.
    waiting_since: Instant,
    /// When the incomplete request began to arrive.
    began: Option<Instant>,
    /// Bytes of it that have arrived.
    came: u64,
    late: Option<Pin<Box<Sleep>>>,
    budget: Arc<Budget>,
    /// What the connection holds of the budget of all clients; None up to `RESP_FREE_BYTES`.
    holding: Option<Holding>,
    /// Bytes of commands that wait for `EXEC`.
    queued: usize,
    /// Bytes of the commands that are carried out, and of the request that has arrived in part.
    carried: usize,
}

/// Why the connection reads nothing more.
enum End {
    /// The client has closed its side, or the connection must end.
    Closed,
    /// The budget has no room for its requests.
    NoRoom,
    /// A request did not arrive in time.
    Late,
}

impl Served {
    async fn run(&mut self, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        loop {
            let end = tokio::select! {
                biased;
                // Everything that was begun has been answered by now.
                _ = stop.wait_for(|&is_stopped| is_stopped) => Some(End::Closed),
                end = self.input.read(&mut self.stream) => end,
            };
            let held = match end {
                Some(End::Closed) => return Ok(()),
                Some(End::NoRoom) => Err(NoRoom),
                Some(End::Late) => {
                    metrics::connection_refused("late");
                    return Ok(());
                }
                None => self.input.hold(self.session.queue.as_ref()),
            };
            if held.is_err() {
                self.session.answer(Refusal::NoRoom, &mut self.out);
                return self.flush().await;
            }
            self.carry_out().await?;
            // Nothing is said about what follows a command that ends the connection.
            if let Some(error) = self.input.failed
                && !self.session.is_ending
            {
                let text = self.session.no_request(error);
                self.session.answer(text, &mut self.out);
            }
            self.flush().await?;
            // The commands are done and no longer held. Holding less needs no room.
            let _ = self.input.hold(self.session.queue.as_ref());
            if self.session.is_ending {
                return Ok(());
            }
            if self.input.failed.is_some() {
                // Nobody keeps a stranger's place.
                if self.input.is_known {
                    self.session.queue = None;
                    self.input.let_go();
                    tokio::select! {
                        _ = stop.wait_for(|&is_stopped| is_stopped) => {}
                        () = part(&mut self.stream, &self.input.connection) => {}
                    }
                }
                return Ok(());
            }
        }
    }

    /// Carries out the commands that have arrived.
    async fn carry_out(&mut self) -> io::Result<()> {
        self.session.look_again().await;
        let requests = std::mem::take(&mut self.input.requests);
        Counts::add(&self.session.shared.counts.commands, requests.len());
        metrics::resp_commands(requests.len() as u64);
        self.session.client.note_command();
        let began = Instant::now();
        let mut at = 0;
        while let Some(left) = requests.get(at..).filter(|left| !left.is_empty()) {
            if self.session.is_ending {
                break;
            }
            at += self.run_some(left).await?;
            self.flush_if_full().await?;
            if let Some(transaction) = self.session.executing.take() {
                self.execute(transaction).await?;
            }
        }
        if !requests.is_empty() {
            metrics::resp_answered(began.elapsed());
        }
        let is_known = self.session.is_known();
        if is_known {
            self.input.connection.prove();
            if !self.input.is_known {
                self.session.shared.clients.keep(self.session.client.id);
            }
        }
        self.input.set_known(is_known);
        Ok(())
    }

    /// Carries out the first of these commands, and some that follow it; returns how many.
    async fn run_some(&mut self, requests: &[Request]) -> io::Result<usize> {
        let Self { stream, session, input, out } = self;
        let waiting = Arc::clone(&session.waiting);
        let running = pin!(pipeline::run_some(session, requests, out));
        let look = |cx: &mut Context<'_>, is_waiting: bool| {
            if is_waiting {
                return input.is_gone(stream, cx);
            }
            input.read_enough();
            Ok(false)
        };
        let done = waiting.run(running, look).await?;
        input.read_enough();
        Ok(done)
    }

    /// Carries out the commands of a transaction; their answers are the elements of an array that has begun.
    async fn execute(&mut self, Executing { requests, is_wanted }: Executing) -> io::Result<()> {
        let before = self.session.suspend_replies();
        let mut rest = &requests[..];
        while !rest.is_empty() {
            let begin = self.out.len();
            let done = self.run_some(rest).await?;
            rest = rest.get(done..).unwrap_or_default();
            if !is_wanted {
                self.out.truncate(begin);
            }
            self.flush_if_full().await?;
        }
        self.session.resume_replies(before);
        Ok(())
    }

    async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.out.len() >= RESP_WRITE_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Writes the answers.
    async fn flush(&mut self) -> io::Result<()> {
        let (out, input) = (std::mem::take(&mut self.out), &mut self.input);
        write_answers(&mut self.stream, &out, |stream, cx| input.read_ahead(stream, cx)).await?;
        input.read_enough();
        // A payload that was among the answers is no longer held.
        self.session.payload = None;
        Ok(())
    }
}

impl Input {
    /// Of a connection on which nothing has arrived.
    fn new(connection: ConnectionHandle, is_known: bool, budget: &Arc<Budget>) -> Self {
        Self {
            connection,
            decoder: Decoder::new(is_known),
            is_known,
            rest: BytesMut::new(),
            rest_bytes: 0,
            is_closed: false,
            requests: Vec::new(),
            failed: None,
            dropped_bytes: 0,
            waiting_since: Instant::now(),
            began: None,
            came: 0,
            late: None,
            budget: Arc::clone(budget),
            holding: None,
            queued: 0,
            carried: 0,
        }
    }

    /// Waits for the next commands and decodes them; Some if no more will come.
    async fn read(&mut self, stream: &mut Box<dyn Stream>) -> Option<End> {
        // While the commands before it ran, nothing was read: that time is not the client's.
        (self.began, self.late) = (None, None);
        self.waiting_since = Instant::now();
        self.decode_rest();
        if self.note_arrival().is_err() {
            return Some(End::NoRoom);
        }
        while self.requests.is_empty() && self.failed.is_none() {
            if self.is_closed {
                return Some(End::Closed);
            }
            let end = std::future::poll_fn(|cx| self.poll_read(stream, cx)).await;
            if end.is_some() {
                return end;
            }
        }
        None
    }

    /// Reads once. Ready when bytes have arrived, or none will.
    fn poll_read(
        &mut self,
        stream: &mut Box<dyn Stream>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        if self.connection.poll_ended(cx).is_ready() {
            return Poll::Ready(Some(End::Closed));
        }
        let mut space = [const { MaybeUninit::<u8>::uninit() }; RESP_READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut space);
        match Pin::new(stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                self.take(buffer.filled());
                Poll::Ready(match self.note_arrival() {
                    Ok(()) => None,
                    Err(NoRoom) => Some(End::NoRoom),
                })
            }
            Poll::Ready(_) => Poll::Ready(Some(End::Closed)),
            Poll::Pending if self.holding.as_ref().is_some_and(|held| held.poll_over(cx)) => {
                Poll::Ready(Some(End::NoRoom))
            }
            Poll::Pending => self.poll_late(cx).map(|()| Some(End::Late)),
        }
    }

    /// Reads what comes while the client takes no answers, and returns how many bytes came: a client that sends a
    /// whole pipeline before it reads the first answer would wait for the node as the node waits for it. What there is
    /// no room for is left to the client. What follows bytes that are no command is dropped.
    fn read_ahead(
        &mut self,
        stream: &mut Box<dyn Stream>,
        cx: &mut Context<'_>,
    ) -> io::Result<usize> {
        let before = self.rest.len() + self.dropped_bytes;
        while self.is_known
            && !self.is_closed
            && self.rest.len() < RESP_AHEAD_BYTES_MAX
            && self.dropped_bytes < RESP_DROPPED_BYTES_MAX
        {
            // Who has sent no more than one read brings is only slow to read, and gives way to nobody.
            let is_ahead = self.rest.len() > RESP_READ_BYTES;
            if self.count(self.carried + RESP_READ_BYTES, is_ahead).is_err() {
                break;
            }
            let mut space = [const { MaybeUninit::<u8>::uninit() }; RESP_READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    // It would hold room that other clients need, and is never decoded.
                    if self.failed.is_some() {
                        self.dropped_bytes += buffer.filled().len();
                    } else {
                        self.keep(buffer.filled());
                    }
                }
                Poll::Ready(_) => self.is_closed = true,
            }
        }
        // Asked last, as the loop may have begun to hold: whoever needs the room wakes this task.
        if self.holding.as_ref().is_some_and(|held| held.poll_over(cx)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(self.rest.len() + self.dropped_bytes - before)
    }

    /// Notes that no more is read ahead for now: what has come is held, and gives way to nobody.
    fn read_enough(&mut self) {
        if self.holding.is_some() {
            // Holding less needs no room.
            let _ = self.count(self.carried, false);
        }
    }

    /// Whether the client has closed its side, or the connection must end. What comes meanwhile is read ahead.
    fn is_gone(&mut self, stream: &mut Box<dyn Stream>, cx: &mut Context<'_>) -> io::Result<bool> {
        let is_ended = self.connection.poll_ended(cx).is_ready();
        self.read_ahead(stream, cx)?;
        Ok(is_ended || self.is_closed)
    }

    /// Gives back what is held: nothing more is decoded, and others may need the room before the connection ends.
    fn let_go(&mut self) {
        self.decoder = Decoder::new(self.is_known);
        self.rest = BytesMut::new();
        (self.rest_bytes, self.queued, self.carried) = (0, 0, 0);
        self.holding = None;
    }

    /// Sets whether the client has authenticated, for what is decoded next.
    const fn set_known(&mut self, is_known: bool) {
        self.is_known = is_known;
        self.decoder.set_known(is_known);
    }

    /// Takes bytes that arrived. Those beyond the commands in flight are left for later.
    fn take(&mut self, bytes: &[u8]) {
        let left = self.decode(bytes);
        self.keep(left);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        self.rest_bytes = self.rest_bytes.max(self.rest.len());
    }

    /// Decodes what was left, without copying what is left again: of a stranger's pipeline that is often.
    fn decode_rest(&mut self) {
        let mut rest = std::mem::take(&mut self.rest);
        let left_bytes = self.decode(&rest).len();
        // An idle connection has no buffer.
        if left_bytes > 0 {
            rest.advance(rest.len() - left_bytes);
            self.rest = rest;
        } else {
            self.rest_bytes = 0;
        }
    }

    /// Decodes commands up to the limit in flight; returns the bytes after them. A stranger's commands come one at
    /// a time, because the limits of those after its `AUTH` are others.
    fn decode<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut left = bytes;
        let most = if self.is_known { RESP_COMMANDS_IN_FLIGHT_MAX } else { 1 };
        while self.requests.len() < most {
            match self.decoder.decode(&mut left) {
                Ok(Some(request)) => self.requests.push(request),
                Ok(None) => break,
                Err(error) => {
                    self.failed = Some(error);
                    return &[];
                }
            }
        }
        left
    }

    /// Notes whether a request has arrived in part.
    fn note_arrival(&mut self) -> Result<(), NoRoom> {
        let pending = self.decoder.pending_bytes();
        if !self.requests.is_empty() || pending == 0 {
            (self.began, self.came, self.late) = (None, 0, None);
        }
        if pending > 0 {
            self.began.get_or_insert_with(Instant::now);
            self.came = pending as u64;
        }
        self.count(pending, pending > 0)
    }

    /// Counts what the connection holds towards the budget of all clients, if it exceeds `RESP_FREE_BYTES`.
    fn count(&mut self, byte_count: usize, is_arriving: bool) -> Result<(), NoRoom> {
        let held = byte_count + self.queued + self.rest_bytes;
        if held <= RESP_FREE_BYTES {
            self.holding = None;
            return Ok(());
        }
        let holding = self.holding.get_or_insert_with(|| Holding::new(&self.budget));
        holding.set(held as u64, is_arriving)
    }

    /// Counts the commands to carry out next, and those that wait for `EXEC`.
    fn hold(&mut self, queue: Option<&Queue>) -> Result<(), NoRoom> {
        self.queued = queue.map_or(0, |queue| queue.byte_count);
        let of_requests: usize = self.requests.iter().map(Request::held_bytes).sum();
        self.carried = of_requests + self.decoder.pending_bytes();
        self.count(self.carried, false)
    }

    /// Ready once an incomplete request has been arriving for too long: it holds memory. And once a stranger has
    /// sent nothing for as long: it holds a place.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let began = match self.began {
            Some(began) => began,
            None if !self.is_known => self.waiting_since,
            None => return Poll::Pending,
        };
        let earned = Duration::from_millis(self.came * 1000 / ARRIVAL_BYTES_PER_SECOND_MIN);
        let deadline = began + ARRIVAL_TIMEOUT + earned;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if late.deadline() != deadline {
            late.as_mut().reset(deadline);
        }
        late.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod ahead_test;
#[cfg(test)]
mod late_test;
#[cfg(test)]
mod served_test;
