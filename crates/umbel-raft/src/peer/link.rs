//! Outgoing links: many concurrent calls to each peer over one stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::{Net, Purpose, Rare, Seed};

use super::limits::{
    LINK_BACKOFF_MAX, LINK_BACKOFF_MIN, LINK_BODY_BYTES_MAX, LINK_IDLE, LINK_SILENT,
};
use super::refused_hellos::RefusedHellos;
use super::session::{End, Session};
use super::{CallError, CallKind, LocalIdentity, RefusalReason};

/// The outgoing links of this node. The first call to a peer opens its link, a call after a failure
/// reopens it, and it is closed some time after the last call. Dropping this closes all links.
///
/// While a peer is unreachable, calls fail at once during a pause that grows from 50 ms to 0.5 s; the
/// first call after the pause tries again.
pub struct Links {
    local: Arc<Local>,
    table: Mutex<Table>,
}

/// By peer and address: a node that changes its address has two links for a while.
type Table = BTreeMap<NodeId, BTreeMap<String, Arc<Link>>>;

/// State shared by all links.
pub(super) struct Local {
    pub(super) net: Arc<dyn Net>,
    pub(super) seed: Arc<dyn Seed>,
    pub(super) identity: LocalIdentity,
}

impl Links {
    /// Creates an empty set of links.
    pub fn new(net: Arc<dyn Net>, seed: Arc<dyn Seed>, identity: LocalIdentity) -> Self {
        let local = Arc::new(Local { net, seed, identity });
        Self { local, table: Mutex::new(Table::new()) }
    }

    /// Whether a simulation asks for this rare choice now; always false in production.
    pub(crate) fn provokes(&self, rare: Rare) -> bool {
        self.local.seed.provokes(rare)
    }

    /// Calls node `to` at `host:port` and waits at most `timeout` for its response. Dropping the future
    /// abandons the call, which may still be carried out.
    ///
    /// # Errors
    /// See [`CallError`]; [`CallError::is_certainly_undone`] tells whether the call may have been
    /// carried out.
    pub async fn call(
        &self,
        to: NodeId,
        address: &str,
        kind: CallKind,
        group: GroupId,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        if body.len() > LINK_BODY_BYTES_MAX {
            let byte_count = body.len();
            let message =
                format!("a body of {byte_count} bytes, at most {LINK_BODY_BYTES_MAX} can be sent");
            return Err(CallError::Refused { node: to, reason: RefusalReason::BadBody, message });
        }
        let link = self.link(to, address);
        let session = link.session(&self.local)?;
        let (waiting, answer) = session.submit(kind, group, body, timeout)?;
        if let Ok(outcome) = tokio::time::timeout(timeout, answer).await {
            // The sender is dropped only together with the call itself.
            return outcome.unwrap_or_else(|_| Err(link.unreachable("the call was dropped", true)));
        }
        drop(waiting);
        if session.is_silent_for(LINK_SILENT) {
            let cause = format!("silent for {} ms", LINK_SILENT.as_millis());
            link.end(&session, &End::Broken(cause), &*self.local.seed);
        }
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Err(CallError::Timeout { node: to, timeout_ms })
    }

    /// Fails the calls that wait for a node that is no longer reachable. Later calls connect again.
    pub(crate) fn give_up(&self, node: NodeId) {
        let links: Vec<Arc<Link>> =
            self.lock().get(&node).into_iter().flat_map(BTreeMap::values).cloned().collect();
        for link in links {
            let session = link.lock().session.clone();
            if let Some(session) = session {
                let end = End::Broken("the node is not heard any more".to_owned());
                link.end(&session, &end, &*self.local.seed);
            }
        }
    }

    /// Lets the next call connect to a node without a pause, because the node gave a sign of life.
    pub(crate) fn retry(&self, node: NodeId) {
        for link in self.lock().get(&node).into_iter().flat_map(BTreeMap::values) {
            link.lock().down.take_if(|(error, _)| matches!(error, CallError::Unreachable { .. }));
        }
    }

    /// Closes all links; pending calls fail. A later call opens its link again.
    pub(crate) fn close(&self) {
        for link in std::mem::take(&mut *self.lock()).values().flat_map(BTreeMap::values) {
            link.close();
        }
    }

    fn link(&self, to: NodeId, address: &str) -> Arc<Link> {
        let mut table = self.lock();
        if let Some(link) = table.get(&to).and_then(|links| links.get(address)) {
            return Arc::clone(link);
        }
        // The table is cleaned up only when it grows.
        for links in table.values_mut() {
            links.retain(|_, link| {
                let is_used = !link.is_idle();
                if !is_used {
                    link.close();
                }
                is_used
            });
        }
        table.retain(|_, links| !links.is_empty());
        let link = Arc::new(Link::new(to, address.to_owned()));
        table.entry(to).or_default().insert(address.to_owned(), Arc::clone(&link));
        link
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("nothing panics while it holds the table of links")
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.close();
    }
}

/// The link to one peer, over a sequence of sessions.
pub(super) struct Link {
    pub(super) to: NodeId,
    pub(super) address: String,
    state: Mutex<LinkState>,
}

struct LinkState {
    /// The current session, open or being opened.
    session: Option<Arc<Session>>,
    /// Sessions in a row that broke without a response.
    failure_count: u32,
    refused_hellos: RefusedHellos,
    /// The error of the last session, and until when calls fail with it.
    down: Option<(CallError, Instant)>,
    used_at: Instant,
}

impl Link {
    fn new(to: NodeId, address: String) -> Self {
        let used_at = Instant::now();
        let refused_hellos = RefusedHellos::default();
        let state =
            LinkState { session: None, failure_count: 0, refused_hellos, down: None, used_at };
        Self { to, address, state: Mutex::new(state) }
    }

    /// The current session; a new one if there is none and the pause is over.
    fn session(self: &Arc<Self>, local: &Arc<Local>) -> Result<Arc<Session>, CallError> {
        let mut state = self.lock();
        let now = Instant::now();
        state.used_at = now;
        if let Some(session) = &state.session {
            return Ok(Arc::clone(session));
        }
        match &state.down {
            Some((error, until)) if now < *until => Err(error.clone()),
            _ => {
                let session = Arc::new(Session::new(self.to, self.address.clone()));
                session.start(Arc::clone(local), Arc::clone(self));
                state.session = Some(Arc::clone(&session));
                Ok(session)
            }
        }
    }

    /// Ends a session, once: its calls fail, and so do later calls until the pause is over.
    pub(super) fn end(&self, session: &Arc<Session>, end: &End, seed: &dyn Seed) {
        {
            let mut state = self.lock();
            if !state.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
                return;
            }
            state.session = None;
            state.failure_count =
                if session.was_answered() { 0 } else { state.failure_count.saturating_add(1) };
            let pause = backoff(state.failure_count, seed);
            let refusal = match end {
                End::WrongPeer(message) => Some(message.as_str()),
                _ => None,
            };
            if state.refused_hellos.warns(refusal, session.was_answered()) {
                tracing::warn!(
                    peer = self.to.0,
                    address = self.address,
                    why = refusal,
                    "peer refuses"
                );
            }
            tracing::debug!(
                peer = self.to.0,
                address = self.address,
                cause = end.text(),
                pause_ms = pause.as_millis(),
                "link ended"
            );
            state.down = Some((self.ended(end, false), Instant::now() + pause));
        }
        session.fail(|was_sent| self.ended(end, was_sent));
    }

    /// The error of calls after their session ended.
    fn ended(&self, end: &End, was_sent: bool) -> CallError {
        let (node, address, text) = (self.to, self.address.clone(), end.text().to_owned());
        match end {
            End::Broken(_) => self.unreachable(&text, was_sent),
            End::NotListening(_) => {
                let (was_sent, is_refused) = (false, true);
                CallError::Unreachable { node, address, cause: text, was_sent, is_refused }
            }
            End::WrongPeer(_) => CallError::WrongPeer { node, address, message: text },
            End::Removed(_) => {
                CallError::Refused { node, reason: RefusalReason::Removed, message: text }
            }
        }
    }

    fn close(&self) {
        let session = self.lock().session.take();
        if let Some(session) = session {
            session.fail(|was_sent| self.unreachable("the link was closed here", was_sent));
        }
    }

    fn is_idle(&self) -> bool {
        self.lock().used_at.elapsed() > LINK_IDLE
    }

    fn unreachable(&self, cause: &str, was_sent: bool) -> CallError {
        CallError::unreachable(self.to, &self.address, cause, was_sent)
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().expect("nothing panics while it holds a link")
    }
}

/// The pause after `failure_count` failures in a row: none for 0; otherwise 50 ms, doubled with each
/// further failure up to 0.5 s, minus a random part of at most a half.
fn backoff(failure_count: u32, seed: &dyn Seed) -> Duration {
    let Some(doublings) = failure_count.checked_sub(1) else {
        return Duration::ZERO;
    };
    let whole = LINK_BACKOFF_MIN
        .saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX))
        .min(LINK_BACKOFF_MAX);
    let spread = u64::try_from(whole.as_micros() / 2).unwrap_or(u64::MAX);
    whole - Duration::from_micros(seed.number(Purpose::Backoff) % (spread + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_ports::testing::CountingSeed;

    #[test]
    fn waiting_times_double_up_to_the_longest() {
        let seed = CountingSeed::default();
        assert_eq!(backoff(0, &seed), Duration::ZERO);
        for (failure_count, whole_ms) in [(1, 50), (2, 100), (4, 400), (5, 500), (90, 500)] {
            let pause = backoff(failure_count, &seed);
            let whole = Duration::from_millis(whole_ms);
            assert!(pause <= whole && pause >= whole / 2, "{failure_count}: {pause:?}");
        }
    }
}
