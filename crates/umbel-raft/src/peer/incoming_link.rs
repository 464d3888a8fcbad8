//! A link that a peer opened: its calls run concurrently, and their responses are sent in batches.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tonic::Streaming;
use umbel_engine::{GroupId, NodeId};
use umbel_proto::v1::{
    LinkAnswer, LinkAnswers, LinkCall, LinkCalls, LinkRefusal, link_answer::Outcome,
};

use super::limits::{
    CALL_TIMEOUT_MAX, LINK_ANSWERS_WAITING_MAX, LINK_BODY_BYTES_MAX, LINK_CALLS_IN_FLIGHT_MAX,
    LINK_HEAD_BYTES, LINK_IN_FLIGHT_KIB_MAX, LINK_RAFT_CALLS_IN_FLIGHT_MAX,
};
use super::link_slots::LinkSlot;
use super::outbox::Outbox;
use super::service::CallHandler;
use super::{CallKind, CallRefusal, RefusalReason};

/// A response, and the call's share of the allowance, which it holds until it is sent.
type WaitingAnswer = (LinkAnswer, Option<Admitted>);

/// The serving side of one link.
pub(super) struct IncomingLink {
    from: NodeId,
    handler: Arc<dyn CallHandler>,
    outbox: Arc<Outbox<WaitingAnswer>>,
    raft: Allowance,
    others: Allowance,
}

/// Limits how many calls, and how many KiB of them, are in progress.
struct Allowance {
    calls: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

/// A call's share of the allowance.
struct Admitted {
    _call: OwnedSemaphorePermit,
    _kib: OwnedSemaphorePermit,
}

impl Allowance {
    fn new(call_count: usize) -> Self {
        let kib = Arc::new(Semaphore::new(LINK_IN_FLIGHT_KIB_MAX));
        Self { calls: Arc::new(Semaphore::new(call_count)), kib }
    }

    fn admit(&self, body_bytes: usize) -> Option<Admitted> {
        let kib = u32::try_from(body_bytes.div_ceil(1024)).ok()?;
        Some(Admitted {
            _call: Arc::clone(&self.calls).try_acquire_owned().ok()?,
            _kib: Arc::clone(&self.kib).try_acquire_many_owned(kib).ok()?,
        })
    }
}

impl IncomingLink {
    pub(super) fn new(from: NodeId, handler: Arc<dyn CallHandler>) -> Self {
        Self {
            from,
            handler,
            outbox: Arc::new(Outbox::new()),
            raft: Allowance::new(LINK_RAFT_CALLS_IN_FLIGHT_MAX),
            others: Allowance::new(LINK_CALLS_IN_FLIGHT_MAX),
        }
    }

    /// Serves the calls in a task that ends with the link, the service, or the returned answers.
    pub(super) fn serve(
        self,
        calls: Streaming<LinkCalls>,
        closed: watch::Receiver<bool>,
        (slot, replaced): (LinkSlot, oneshot::Receiver<()>),
    ) -> Answers {
        let outbox = Arc::clone(&self.outbox);
        let reading = async move {
            let ended = Arc::clone(&self.outbox);
            tokio::select! {
                biased;
                // Another link takes this link's slot.
                _ = replaced => ended.close(),
                () = self.read(calls, closed) => {}
            }
        };
        let reader = tokio::spawn(reading).abort_handle();
        Answers { outbox, reader, _slot: slot }
    }

    async fn read(self, mut calls: Streaming<LinkCalls>, mut closed: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        loop {
            let batch = tokio::select! {
                biased;
                // An error means that the service is gone.
                _ = closed.wait_for(|is_closed| *is_closed) => break,
                Some(_) = tasks.join_next() => continue,
                message = calls.message() => match message {
                    Ok(Some(batch)) => batch,
                    Ok(None) => break,
                    Err(status) => {
                        tracing::debug!(peer = self.from.0, %status, "link from a peer broke");
                        break;
                    }
                },
            };
            for call in batch.calls {
                // If the peer does not read its answers, its calls are not read either.
                tokio::select! {
                    biased;
                    _ = closed.wait_for(|is_closed| *is_closed) => break,
                    () = self.outbox.has_room(LINK_ANSWERS_WAITING_MAX) => {}
                }
                self.begin(call, &mut tasks);
            }
        }
        // Dropping the tasks cancels them: no peer can receive their answers.
        drop(tasks);
        self.outbox.close();
    }

    /// Starts a call, or refuses it.
    fn begin(&self, call: LinkCall, tasks: &mut JoinSet<()>) {
        let outbox = Arc::clone(&self.outbox);
        let Some(kind) = CallKind::from_number(call.kind) else {
            let number = call.kind;
            let message = format!(
                "call {number} is not known to this release: bring both nodes to one release"
            );
            let refusal = CallRefusal::new(RefusalReason::BadBody, message);
            return answer(&outbox, call.id, CallKind::Group, None, Err(refusal));
        };
        let allowance = if kind.is_raft() { &self.raft } else { &self.others };
        let Some(admitted) = allowance.admit(call.body.len()) else {
            let text = "too many calls of this link wait here";
            let refusal = CallRefusal::new(RefusalReason::Overloaded, text);
            return answer(&outbox, call.id, kind, None, Err(refusal));
        };
        let mut reply = Reply { outbox, id: call.id, kind, admitted: Some(admitted) };
        let (handler, from) = (Arc::clone(&self.handler), self.from);
        tasks.spawn(async move {
            let timeout = Duration::from_millis(call.timeout_ms.into()).min(CALL_TIMEOUT_MAX);
            let group = GroupId::from_number(call.group);
            let handled = handler.handle(from, kind, group, call.body);
            if let Ok(outcome) = tokio::time::timeout(timeout, handled).await {
                reply.send(outcome);
            }
        });
    }
}

/// Answers a call exactly once, even if its task panics or times out.
struct Reply {
    outbox: Arc<Outbox<WaitingAnswer>>,
    id: u64,
    kind: CallKind,
    admitted: Option<Admitted>,
}

impl Reply {
    fn send(&mut self, outcome: Result<Bytes, CallRefusal>) {
        if let Some(admitted) = self.admitted.take() {
            answer(&self.outbox, self.id, self.kind, Some(admitted), outcome);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let text = "the call ended without an answer; it may have been carried out";
        self.send(Err(CallRefusal::new(RefusalReason::Unspecified, text)));
    }
}

fn answer(
    outbox: &Outbox<WaitingAnswer>,
    id: u64,
    kind: CallKind,
    admitted: Option<Admitted>,
    outcome: Result<Bytes, CallRefusal>,
) {
    let outcome = outcome.and_then(|body| match body.len() {
        0..=LINK_BODY_BYTES_MAX => Ok(body),
        byte_count => Err(CallRefusal::new(
            RefusalReason::Unspecified,
            format!(
                "the call was carried out, but its answer has {byte_count} bytes, at most \
                 {LINK_BODY_BYTES_MAX} can be sent"
            ),
        )),
    });
    let (outcome, bytes) = match outcome {
        Ok(body) => {
            let bytes = body.len();
            (Outcome::Body(body), bytes)
        }
        Err(CallRefusal { reason, message }) => {
            let bytes = message.len();
            (Outcome::Refusal(LinkRefusal { reason: reason.into(), message }), bytes)
        }
    };
    let answer = LinkAnswer { id, outcome: Some(outcome) };
    // The allowances and the wait in `read` bound the length. A closed outbox has no reader.
    let limits = (usize::MAX, usize::MAX);
    let _ = outbox.push(kind.queue(), (answer, admitted), LINK_HEAD_BYTES + bytes, limits);
}

/// The answers of a link as a stream. The server drops it when the connection is gone, which ends the
/// link.
pub struct Answers {
    outbox: Arc<Outbox<WaitingAnswer>>,
    reader: AbortHandle,
    _slot: LinkSlot,
}

impl Answers {
    pub(super) fn poll_answers(&self, cx: &Context<'_>) -> Poll<Option<LinkAnswers>> {
        let batch = self.outbox.poll_batch(cx);
        batch.map(|answers| {
            let answers = answers?.into_iter().map(|(answer, _)| answer).collect();
            Some(LinkAnswers { answers })
        })
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.reader.abort();
        self.outbox.close();
    }
}
