//! Sessions and request ids, which make retries safe.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::Request;
use umbel_proto::v1::{Applied, ListResponse, OpenSessionRequest, RequestId};

use crate::caller::{CallPolicy, Caller, Failed, Progress, Repeat};
use crate::failure::{Failure, OPEN_SESSION};
use crate::limits::{ANSWER_GRACE, FIRST_SESSION_PATIENCE, SESSION_WINDOW_MAX};

/// An open session.
pub(crate) struct Session {
    number: u64,
    state: Mutex<State>,
}

struct State {
    next: u64,
    in_flight: BTreeSet<u64>,
}

/// The id of a request. While it exists, the cluster keeps the answer to the request's first attempt.
pub(crate) struct Ticket {
    session: Arc<Session>,
    sequence: u64,
}

impl Session {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, state: Mutex::new(State { next: 1, in_flight: BTreeSet::new() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request id; None if the oldest request in flight is too far behind.
    fn ticket(self: &Arc<Self>) -> Option<Ticket> {
        let mut state = self.state();
        let sequence = state.next;
        let lowest = state.in_flight.first().copied().unwrap_or(sequence);
        if sequence - lowest >= SESSION_WINDOW_MAX {
            return None;
        }
        state.next += 1;
        state.in_flight.insert(sequence);
        drop(state);
        Some(Ticket { session: Arc::clone(self), sequence })
    }
}

impl Ticket {
    /// The request id for the wire, with the current lowest request in flight.
    pub(crate) fn request_id(&self) -> RequestId {
        let lowest = self.session.state().in_flight.first().copied();
        RequestId {
            session: self.session.number,
            sequence: self.sequence,
            acknowledged_below: lowest.unwrap_or(self.sequence),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.session.state().in_flight.remove(&self.sequence);
    }
}

/// The session of new requests, opened with the first one.
#[derive(Default)]
pub(crate) struct SessionSlot {
    current: tokio::sync::Mutex<Option<Arc<Session>>>,
}

impl Caller {
    /// Draws an id for a new request, within the time of one. `expired` is an id whose session the cluster does not
    /// know any more.
    pub(crate) async fn ticket(&self, expired: Option<&Ticket>) -> Result<Ticket, Failed> {
        // Requests wait for the one that opens a session, and none may wait for several that fail one after the
        // other. Whoever asks itself learns from the call why it failed, a little later.
        let patience = self.options.timeout + ANSWER_GRACE;
        let drawn = tokio::time::timeout(patience, self.ticket_in_turn(expired)).await;
        let silence = |_| Failed {
            failure: Failure::no_session(patience),
            is_transient: true,
            repeat: Repeat::Freely,
        };
        let mut drawn = drawn.map_err(silence).flatten();
        if let Err(failed) = &mut drawn {
            // A session changes no filter.
            failed.failure.applied = Applied::No;
        }
        drawn
    }

    /// Opens the client's first session by a call whose answer also lists this filter and has the shard map, and returns that
    /// list. A replicated filter needs no session, and its node opens none.
    ///
    /// None if there is a session, another request is opening one, the call fails, or the node is of a build that does
    /// not answer so: then the filter is looked up on its own, and errors are those of these calls.
    pub(crate) async fn first_session(&self, filter: &str) -> Option<ListResponse> {
        let mut current = self.session.current.try_lock().ok()?;
        if current.is_some() {
            return None;
        }
        let with_shard_map = self.wants_map();
        let message = OpenSessionRequest { filter: filter.to_owned(), with_shard_map };
        let policy = CallPolicy::freely(OPEN_SESSION);
        let mut progress = Progress::default();
        let asking = self.call(&policy, &mut progress, |node, patience| {
            let mut request = Request::new(message.clone());
            request.set_timeout(patience.min(FIRST_SESSION_PATIENCE));
            async move { node.filters().open_session(request).await }
        });
        let answered = tokio::time::timeout(FIRST_SESSION_PATIENCE, asking).await;
        let answer = answered.ok()?.ok()?;
        if answer.session != 0 {
            *current = Some(Session::new(answer.session));
        }
        drop(current);
        answer.listed
    }

    async fn ticket_in_turn(&self, expired: Option<&Ticket>) -> Result<Ticket, Failed> {
        let mut current = self.session.current.lock().await;
        if let Some(session) = &*current
            && expired.is_none_or(|ticket| !Arc::ptr_eq(session, &ticket.session))
            && let Some(ticket) = session.ticket()
        {
            return Ok(ticket);
        }
        let policy = CallPolicy::freely(OPEN_SESSION);
        let mut progress = Progress::default();
        let answer = self.call(&policy, &mut progress, |node, _| async move {
            node.filters().open_session(OpenSessionRequest::default()).await
        });
        let session = Session::new(answer.await?.session);
        let ticket = session.ticket().expect("nothing of a new session is in flight");
        *current = Some(session);
        Ok(ticket)
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;
    use tokio::time::Instant;

    use super::*;
    use crate::{Client, ClientError, ClientOptions, Connecting, Connector};

    /// Makes no connection, and does not say so.
    struct Deaf;

    impl Connector for Deaf {
        fn connect(&self, _: &str) -> Connecting {
            Box::pin(std::future::pending())
        }
    }

    /// Requests that wait for each other's session all end in the time of one.
    #[tokio::test(start_paused = true)]
    async fn requests_without_a_session_end_in_their_own_time() {
        let options = ClientOptions::default();
        let latest = Instant::now() + options.timeout + 2 * ANSWER_GRACE;
        let client = Client::connect_through("deaf:1", options, Deaf).unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..5 {
            let caller = Arc::clone(&client.caller);
            waiting.spawn(async move { caller.ticket(None).await.map(drop) });
        }
        while let Some(ended) = waiting.join_next().await {
            let Err(failed) = ended.unwrap() else { panic!("there is no session") };
            let error = ClientError::from(failed);
            assert!(matches!(error, ClientError::Unavailable(_)), "{error}");
            assert_eq!(error.failure().map(|failure| failure.applied), Some(Applied::No));
            assert!(Instant::now() <= latest, "{error}");
        }
    }

    #[test]
    fn the_lowest_in_flight_is_not_acknowledged() {
        let session = Session::new(7);
        let id = |ticket: &Ticket| {
            let RequestId { session, sequence, acknowledged_below } = ticket.request_id();
            (session, sequence, acknowledged_below)
        };
        let first = session.ticket().unwrap();
        let second = session.ticket().unwrap();
        assert_eq!((id(&first), id(&second)), ((7, 1, 1), (7, 2, 1)));
        drop(first);
        assert_eq!(id(&second), (7, 2, 2));
        let third = session.ticket().unwrap();
        drop(second);
        assert_eq!(id(&third), (7, 3, 3));
    }

    #[test]
    fn a_session_ends_before_an_old_request_is_forgotten() {
        let session = Session::new(7);
        let oldest = session.ticket().unwrap();
        for _ in 1..SESSION_WINDOW_MAX {
            assert!(session.ticket().is_some());
        }
        assert!(session.ticket().is_none());
        drop(oldest);
        assert!(session.ticket().is_some());
    }
}
