//! One session of a link: a connection, a stream on it, and the calls that wait for responses.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status, Streaming};
use umbel_engine::{GroupId, NodeId};
use umbel_ports::causes;
use umbel_proto::v1::{Hello, LinkAnswer, LinkAnswers, LinkCall, LinkCalls, link_answer::Outcome};

use super::clients::member_client;
use super::limits::{
    LINK_CALLS_PENDING_MAX, LINK_HEAD_BYTES, LINK_OPEN_TIMEOUT, LINK_QUEUE_BYTES_MAX,
    LINK_QUEUE_CALLS_MAX,
};
use super::link::{Link, Local};
use super::outbox::{NotTaken, Outbox};
use super::{CallError, CallKind, LocalIdentity, PEER_PROTOCOL, RefusalReason, cluster_bytes};

/// Name of the metadata that contains the [`Hello`].
pub(super) const HELLO: &str = "umbel-hello-bin";

/// Adds the caller's and the called node's identity to a request.
pub fn add_hello<T>(request: &mut Request<T>, identity: LocalIdentity, to: NodeId) {
    let hello = Hello {
        protocol: PEER_PROTOCOL,
        cluster_id: cluster_bytes(identity.cluster),
        from: identity.node.0,
        to: to.0,
    };
    let hello = MetadataValue::from_bytes(&hello.encode_to_vec());
    request.metadata_mut().insert_bin(HELLO, hello);
}

/// Why a session ended.
pub(super) enum End {
    /// There was no connection, or it broke.
    Broken(String),
    /// The machine refused the connection: no process listens there.
    NotListening(String),
    /// The peer refused the hello.
    WrongPeer(String),
    /// The peer knows that this node was removed from the cluster.
    Removed(String),
}

impl End {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Broken(text)
            | Self::NotListening(text)
            | Self::WrongPeer(text)
            | Self::Removed(text) => text,
        }
    }

    fn of_status(status: &Status) -> Self {
        match status.code() {
            Code::FailedPrecondition => return Self::WrongPeer(status.message().to_owned()),
            Code::PermissionDenied => return Self::Removed(status.message().to_owned()),
            _ => {}
        }
        let mut text = status.message().to_owned();
        let mut is_refused = false;
        for error in causes(status) {
            // Most errors repeat their cause.
            let cause = error.to_string();
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
            let io_error = error.downcast_ref::<io::Error>();
            is_refused |= io_error.is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
        }
        if is_refused { Self::NotListening(text) } else { Self::Broken(text) }
    }
}

type Answer = Result<Bytes, CallError>;

/// One session; see the module.
pub(super) struct Session {
    to: NodeId,
    address: String,
    outbox: Outbox<LinkCall>,
    calls: Mutex<Calls>,
    task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Calls {
    id_last: u64,
    pending: BTreeMap<u64, oneshot::Sender<Answer>>,
    /// Since when calls wait without any response.
    silent_since: Option<Instant>,
    /// Whether a batch was taken to be sent.
    was_sent: bool,
    was_answered: bool,
    is_over: bool,
}

/// A call that waits; dropping it abandons the call.
pub(super) struct WaitingCall {
    session: Arc<Session>,
    id: u64,
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.session.lock().pending.remove(&self.id);
    }
}

impl Session {
    pub(super) fn new(to: NodeId, address: String) -> Self {
        let (outbox, calls, task) = (Outbox::new(), Mutex::default(), OnceLock::new());
        Self { to, address, outbox, calls, task }
    }

    /// Opens the link in its own task, which ends with the session.
    pub(super) fn start(self: &Arc<Self>, local: Arc<Local>, link: Arc<Link>) {
        let session = Arc::clone(self);
        let task = tokio::spawn(async move {
            let end = session.talk(&local).await;
            link.end(&session, &end, &*local.seed);
        });
        let is_first = self.task.set(task.abort_handle()).is_ok();
        debug_assert!(is_first, "a session is started once");
    }

    /// Queues a call. The receiver gets its result.
    pub(super) fn submit(
        self: &Arc<Self>,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(WaitingCall, oneshot::Receiver<Answer>), CallError> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut calls = self.lock();
            if calls.is_over {
                return Err(self.unsent());
            }
            if calls.pending.len() >= LINK_CALLS_PENDING_MAX {
                return Err(self.overloaded(calls.pending.len()));
            }
            calls.id_last += 1;
            let id = calls.id_last;
            calls.pending.insert(id, sender);
            calls.silent_since.get_or_insert_with(Instant::now);
            id
        };
        let waiting = WaitingCall { session: Arc::clone(self), id };
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        let bytes = LINK_HEAD_BYTES + body.len();
        let call = LinkCall { id, kind: kind.number(), group: group.number(), timeout_ms, body };
        let limits = (LINK_QUEUE_CALLS_MAX, LINK_QUEUE_BYTES_MAX);
        match self.outbox.push(kind.queue(), call, bytes, limits) {
            Ok(()) => Ok((waiting, receiver)),
            Err(NotTaken::Closed) => Err(self.unsent()),
            Err(NotTaken::Full) => {
                let waiting_count = self.lock().pending.len();
                Err(self.overloaded(waiting_count))
            }
        }
    }

    /// Whether calls have waited for longer than `limit` without any response.
    pub(super) fn is_silent_for(&self, limit: Duration) -> bool {
        self.lock().silent_since.is_some_and(|since| since.elapsed() >= limit)
    }

    /// Whether the peer answered any call.
    pub(super) fn was_answered(&self) -> bool {
        self.lock().was_answered
    }

    /// Ends the session: all calls fail, and the connection is dropped.
    pub(super) fn fail(&self, error: impl Fn(bool) -> CallError) {
        self.outbox.close();
        let (pending, was_sent) = {
            let mut calls = self.lock();
            calls.is_over = true;
            (std::mem::take(&mut calls.pending), calls.was_sent)
        };
        for sender in pending.into_values() {
            // The caller may have gone.
            let _ = sender.send(Err(error(was_sent)));
        }
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Runs the session until it ends.
    async fn talk(self: &Arc<Self>, local: &Local) -> End {
        let opened = tokio::time::timeout(LINK_OPEN_TIMEOUT, self.open(local)).await;
        let mut answers = match opened {
            Ok(Ok(answers)) => answers,
            Ok(Err(end)) => return end,
            Err(_) => {
                let ms = LINK_OPEN_TIMEOUT.as_millis();
                return End::Broken(format!("the link was not accepted within {ms} ms"));
            }
        };
        loop {
            match answers.message().await {
                Ok(Some(batch)) => self.take(batch),
                Ok(None) => return End::Broken("the peer closed the link".to_owned()),
                Err(status) => return End::of_status(&status),
            }
        }
    }

    async fn open(self: &Arc<Self>, local: &Local) -> Result<Streaming<LinkAnswers>, End> {
        let wanted = local.identity.member(self.to);
        let mut client = member_client(&local.net, &self.address, wanted)
            .map_err(|error| End::Broken(error.to_string()))?;
        let mut request = Request::new(Outgoing { session: Arc::clone(self) });
        add_hello(&mut request, local.identity, self.to);
        let response = client.link(request).await.map_err(|status| End::of_status(&status))?;
        Ok(response.into_inner())
    }

    /// Passes answers to their callers.
    fn take(&self, batch: LinkAnswers) {
        let mut calls = self.lock();
        calls.was_answered = true;
        for answer in batch.answers {
            let id = answer.id;
            if let Some(sender) = calls.pending.remove(&id) {
                let _ = sender.send(self.outcome(answer));
            }
        }
        calls.silent_since = (!calls.pending.is_empty()).then(Instant::now);
    }

    fn outcome(&self, answer: LinkAnswer) -> Answer {
        let node = self.to;
        match answer.outcome {
            Some(Outcome::Body(body)) => Ok(body),
            Some(Outcome::Refusal(refusal)) => {
                Err(CallError::Refused { node, reason: refusal.reason(), message: refusal.message })
            }
            None => Err(CallError::Refused {
                node,
                reason: RefusalReason::Unspecified,
                message: "an answer without an outcome".to_owned(),
            }),
        }
    }

    fn unsent(&self) -> CallError {
        CallError::unreachable(self.to, &self.address, "the link just ended", false)
    }

    fn overloaded(&self, waiting: usize) -> CallError {
        CallError::Overloaded { node: self.to, waiting }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().expect("nothing panics while it holds the calls of a link")
    }
}

/// The calls of a session as a stream.
struct Outgoing {
    session: Arc<Session>,
}

impl tokio_stream::Stream for Outgoing {
    type Item = LinkCalls;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LinkCalls>> {
        loop {
            let Some(mut calls) = ready!(self.session.outbox.poll_batch(cx)) else {
                return Poll::Ready(None);
            };
            let mut state = self.session.lock();
            // Drops calls that were abandoned.
            calls.retain(|call| state.pending.contains_key(&call.id));
            if !calls.is_empty() {
                state.was_sent = true;
                return Poll::Ready(Some(LinkCalls { calls }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_broken_link_is_told_once() {
        let refused = || Box::new(io::Error::from(io::ErrorKind::ConnectionRefused));
        let end = End::of_status(&Status::from_error(refused()));
        assert!(matches!(end, End::NotListening(_)));
        assert_eq!(end.text(), refused().to_string());
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(matches!(End::of_status(&Status::from_error(Box::new(reset))), End::Broken(_)));
    }
}
