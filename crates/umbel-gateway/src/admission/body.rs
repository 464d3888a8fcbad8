//! A request body that is counted and timed as it arrives.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use umbel_node::failure::CallFailure;
use umbel_node::metrics;

use crate::budget::{Lease, NoRoom, no_room};
use crate::errors::status;
use crate::limits::{ARRIVAL_BYTES_PER_SECOND_MIN, ARRIVAL_TIMEOUT};

/// Bytes before each message (gRPC over HTTP/2): the compression flag and the length.
const MESSAGE_HEAD_BYTES: usize = 5;

/// The buffer of a call with many messages keeps the size of its largest one. Up to this size that is not
/// counted between messages: an open call takes as much anyway.
const BUFFER_BYTES_FREE: u64 = 64 << 10;

/// See the module.
pub(super) struct AdmittedBody {
    body: Body,
    lease: Arc<Lease>,
    /// The message boundaries, for a call with many messages.
    messages: Option<Messages>,
    /// When the current request, or the current message of many, began to arrive.
    began: Instant,
    /// Bytes of it that have arrived.
    came: u64,
    /// Since when the reader of many messages has not asked for more: it may be busy with earlier ones.
    paused_at: Option<Instant>,
    ends_at: Option<Instant>,
    late: Option<Pin<Box<Sleep>>>,
    /// Whether the budget knows that more is to come.
    is_noted: bool,
    /// Whether it is that of a link, see [`AdmittedBody::of_link`].
    is_link: bool,
    /// Whether the last message has made the link younger.
    is_renewed: bool,
}

impl AdmittedBody {
    pub(super) fn new(
        body: Body,
        lease: Arc<Lease>,
        takes_many: bool,
        ends_at: Option<Instant>,
    ) -> Self {
        Self {
            body,
            lease,
            messages: takes_many.then(Messages::default),
            began: Instant::now(),
            came: 0,
            paused_at: None,
            ends_at,
            late: None,
            is_noted: false,
            is_link: false,
            is_renewed: false,
        }
    }

    /// The body of a link between nodes. It lasts as long as both do, and nothing of it is late: a message that does
    /// not come holds memory only until others need it.
    pub(super) fn of_link(body: Body, lease: Arc<Lease>) -> Self {
        let mut new = Self::new(body, lease, true, None);
        new.is_link = true;
        new
    }

    /// Counts bytes that arrived.
    fn count(&mut self, data: &[u8]) -> Result<(), Status> {
        let byte_count = data.len() as u64;
        if let Some(messages) = &mut self.messages {
            // The reader polls for more only after it has taken all complete messages.
            let was_open = messages.is_open();
            let open_bytes = messages.see(data);
            if !was_open || open_bytes < data.len() {
                (self.began, self.came) = (Instant::now(), open_bytes as u64);
                self.is_renewed = false;
            } else {
                self.came += byte_count;
            }
        } else {
            self.came += byte_count;
        }
        let held = self.lease.held.load(Ordering::Relaxed);
        let more = if self.is_link { self.needed().saturating_sub(held) } else { byte_count };
        if self.is_link && more > 0 && !self.is_renewed {
            // The link is as old as its last message that needed more than it keeps: with short messages alone a link that
            // keeps a large buffer would stay younger than a message that comes, which then ended itself.
            self.is_renewed = true;
            self.arrived();
            self.lease.renew();
        }
        self.lease.take(more).map_err(|NoRoom| status(&no_room()))?;
        if self.is_link {
            // Its reader may not ask for more for long.
            self.note_waiting();
        }
        Ok(())
    }

    /// Returns the bytes that the reader has taken, if it takes messages one by one.
    fn release_read(&mut self) {
        let Some(messages) = &self.messages else { return };
        if messages.has_ended_one {
            let held = self.lease.held.load(Ordering::Relaxed);
            self.lease.give_back(held.saturating_sub(self.needed()));
        }
    }

    /// Bytes of memory of what has arrived and not been taken.
    fn needed(&self) -> u64 {
        let kept = self.messages.as_ref().map_or(0, |messages| messages.largest_bytes);
        self.came.max(if kept > BUFFER_BYTES_FREE { kept } else { 0 })
    }

    /// Gives the client the time in which the reader did not ask for more: meanwhile the window was closed.
    fn note_resumed(&mut self) {
        if let Some(paused_at) = self.paused_at.take() {
            self.began += paused_at.elapsed();
        }
    }

    /// Notes in the budget whether this request may be ended to make room for others. A link need not end for the few
    /// bytes of a short message, which most are.
    fn note_waiting(&mut self) {
        let free = if self.is_link { BUFFER_BYTES_FREE } else { 0 };
        match (self.is_noted, self.needed() > free) {
            (false, true) => {
                self.is_noted = true;
                self.lease.note_arriving();
            }
            // Nothing would become free.
            (true, false) => self.arrived(),
            (true, true) | (false, false) => {}
        }
    }

    /// When the current request or message must have arrived; between messages, when the call must end,
    /// if ever.
    fn deadline(&self) -> Option<Instant> {
        let is_coming = !self.is_link && self.messages.as_ref().is_none_or(Messages::is_open);
        let earned = Duration::from_millis(self.came * 1000 / ARRIVAL_BYTES_PER_SECOND_MIN);
        let whole = is_coming.then(|| self.began + ARRIVAL_TIMEOUT + earned);
        whole.into_iter().chain(self.ends_at).min()
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline() else { return Poll::Pending };
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if late.deadline() > deadline {
            late.as_mut().reset(deadline);
        }
        // Bytes that arrived since the timer was set may have extended the deadline.
        while late.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            late.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.note_resumed();
        self.release_read();
        if self.is_link && self.lease.is_over.load(Ordering::Acquire) {
            return Poll::Ready(Some(Err(status(&no_room()).into())));
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref()
                    && let Err(refusal) = self.count(data)
                {
                    return Poll::Ready(Some(Err(refusal.into())));
                }
                self.paused_at = self.messages.is_some().then(Instant::now);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                self.arrived();
                Poll::Ready(None)
            }
            Poll::Pending => {
                self.lease.reader.register(cx.waker());
                if self.lease.is_over.load(Ordering::Acquire) {
                    return Poll::Ready(Some(Err(status(&no_room()).into())));
                }
                self.note_waiting();
                self.poll_late(cx).map(|()| Some(Err(self.too_slow().into())))
            }
        }
    }

    fn too_slow(&self) -> Status {
        metrics::request_refused("late");
        if self.ends_at.is_some_and(|ends_at| Instant::now() >= ends_at) {
            let what = "the request took longer than it may in all: name a time (grpc-timeout) if it \
                        needs more";
            return status(&CallFailure::TooSlow { what: what.to_owned() });
        }
        let (seconds, rate) = (ARRIVAL_TIMEOUT.as_secs(), ARRIVAL_BYTES_PER_SECOND_MIN >> 10);
        let what = format!(
            "the request did not come in time: {} bytes were here; it may take {seconds} s, and longer at \
             {rate} KiB/s or more",
            self.came
        );
        status(&CallFailure::TooSlow { what })
    }

    fn arrived(&mut self) {
        if self.is_noted {
            self.is_noted = false;
            self.lease.note_arrived();
        }
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

impl HttpBody for AdmittedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.get_mut().poll(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AdmittedBody {
    fn drop(&mut self) {
        self.arrived();
    }
}

/// Tracks message boundaries in the bytes of a call.
#[derive(Default)]
struct Messages {
    head: [u8; MESSAGE_HEAD_BYTES],
    head_bytes: usize,
    left: usize,
    /// Bytes of the message that is arriving, and of the largest that has ended.
    length: usize,
    largest_bytes: u64,
    /// Whether a message has ended: the reader takes messages one by one.
    has_ended_one: bool,
}

impl Messages {
    /// Processes bytes; returns how many of them, at the end, belong to a message that has not ended.
    fn see(&mut self, mut bytes: &[u8]) -> usize {
        let mut open_bytes = bytes.len();
        while !bytes.is_empty() {
            let count = if self.left > 0 {
                let count = self.left.min(bytes.len());
                self.left -= count;
                count
            } else {
                let count = (MESSAGE_HEAD_BYTES - self.head_bytes).min(bytes.len());
                self.head[self.head_bytes..self.head_bytes + count]
                    .copy_from_slice(&bytes[..count]);
                self.head_bytes += count;
                if self.head_bytes == MESSAGE_HEAD_BYTES {
                    let [_, length @ ..] = self.head;
                    self.length = u32::from_be_bytes(length) as usize;
                    self.left = self.length;
                }
                count
            };
            bytes = &bytes[count..];
            if self.left == 0 && self.head_bytes == MESSAGE_HEAD_BYTES {
                self.head_bytes = 0;
                self.has_ended_one = true;
                self.largest_bytes = self.largest_bytes.max(self.length as u64);
                open_bytes = bytes.len();
            }
        }
        open_bytes
    }

    /// Whether a message has begun and not ended.
    const fn is_open(&self) -> bool {
        self.head_bytes > 0
    }
}
