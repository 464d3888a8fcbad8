//! Inserts that are sent several times with the same request id, to several nodes.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_client::Applied;
use umbel_client::proto::filters_client::FiltersClient;
use umbel_client::proto::{ErrorDetail, InsertRequest, OpenSessionRequest, RequestId};
use umbel_engine::SessionId;
use umbel_engine::shard::PartError;

use super::{Clients, REQUEST_TIMEOUT, bits, items_of};
use crate::channel::{NodeChannel, node_channel};
use crate::history::{Outcome, Verb};
use crate::plan::access::ROOT;

/// How long one try may take.
pub(super) const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two tries.
pub(super) const TRY_PAUSE: Duration = Duration::from_millis(50);

/// The pause after the try with this number, from 0. It grows: while all nodes refuse connections, hundreds of calls try, and each connection
/// takes a port that the network has again only when the node has heard of its end.
pub(super) fn pause_after(turn: u32) -> Duration {
    TRY_PAUSE * (1 + turn / 8)
}

impl Clients {
    /// Sends `copies` copies of one insert at the same time, each to a different node first.
    pub(super) async fn insert_copies(
        self: &Rc<Self>,
        client: u32,
        via: u32,
        filter: &str,
        items: &[u32],
        copies: u32,
    ) {
        let Some((session, sequence)) = self.next_request(client, via).await else { return };
        let request = InsertRequest {
            filter: filter.to_owned(),
            items: Some(items_of(items)),
            request: Some(RequestId { session, sequence, acknowledged_below: 1 }),
            level: 0,
            timeout_ms: u32::try_from(TRY_TIMEOUT.as_millis()).expect("it is two seconds"),
            at_ms: None,
        };
        self.at_once((client, filter, items), copies, |copy| {
            let (clients, request) = (Rc::clone(self), request.clone());
            async move {
                let outcome = clients.insert_copy(via + copy, request).await;
                if matches!(outcome, Outcome::Unknown(_)) {
                    // The node may have dropped the session.
                    clients.sessions.borrow_mut().remove(&client);
                }
                outcome
            }
        })
        .await;
    }

    /// Makes copies of one insert at the same time, which the history has as one request, and returns how each ended.
    pub(super) async fn at_once<F>(
        self: &Rc<Self>,
        (client, filter, items): (u32, &str, &[u32]),
        copies: u32,
        send: impl Fn(u32) -> F,
    ) -> Vec<Outcome>
    where
        F: Future<Output = Outcome> + 'static,
    {
        let number = self.next_number();
        let mut running = tokio::task::JoinSet::new();
        for copy in 0..copies {
            let id = self.begin(client, None, filter, Verb::Insert, items, Some(number));
            let (clients, sending) = (Rc::clone(self), send(copy));
            running.spawn_local(async move {
                let outcome = sending.await;
                clients.end(id, outcome.clone());
                outcome
            });
        }
        let mut outcomes = Vec::new();
        while let Some(ended) = running.join_next().await {
            outcomes.push(ended.unwrap_or_else(|_| Outcome::Unknown("a copy panicked".to_owned())));
        }
        outcomes
    }

    /// Session and sequence number of a client's next request. Where shards are split, clients with even
    /// numbers keep their session: a node that knows the session accepts the request without asking the
    /// majority, from which it would learn of the split.
    async fn next_request(&self, client: u32, via: u32) -> Option<(u64, u64)> {
        let keeps = self.keeps_sessions && client.is_multiple_of(2);
        if keeps && let Some((session, last)) = self.sessions.borrow_mut().get_mut(&client) {
            *last += 1;
            return Some((*session, *last));
        }
        let session = self.open_session(via).await?;
        if keeps {
            self.sessions.borrow_mut().insert(client, (session, 1));
        }
        Some((session, 1))
    }

    /// Asks one node after the other until one opens a session; None after `REQUEST_TIMEOUT`.
    async fn open_session(&self, via: u32) -> Option<u64> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        for turn in 0.. {
            let mut node = self.node(via + turn);
            let asked = node.open_session(OpenSessionRequest::default());
            if let Ok(Ok(answer)) = tokio::time::timeout(TRY_TIMEOUT, asked).await {
                return Some(answer.into_inner().session);
            }
            if Instant::now() > deadline {
                return None;
            }
            tokio::time::sleep(TRY_PAUSE).await;
        }
        None
    }

    /// Sends one copy to one node after the other until it is answered or refused, or `REQUEST_TIMEOUT`
    /// is over.
    async fn insert_copy(&self, via: u32, request: InsertRequest) -> Outcome {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let RequestId { session, sequence, .. } = request.request.unwrap_or_default();
        let reused = reused_text(session, sequence);
        let item_count = request.items.as_ref().map_or(0, |items| items.items.len());
        // Once a try may have been applied, the refusal of a later one does not tell the outcome.
        let mut may_be_applied = false;
        let mut turn = 0;
        loop {
            let mut node = self.node(via + turn);
            let tried = tokio::time::timeout(TRY_TIMEOUT, node.insert(request.clone())).await;
            let (text, is_final) = match tried {
                Ok(Ok(answer)) => {
                    return Outcome::Done(bits(&answer.into_inner().new_bits, item_count));
                }
                Ok(Err(status)) => {
                    let detail: ErrorDetail = umbel_proto::detail_of(&status).unwrap_or_default();
                    if status.message().contains(&reused) {
                        return Outcome::Reused(status.to_string());
                    }
                    let is_untouched = detail.applied() == Applied::No;
                    may_be_applied |= !is_untouched;
                    (status.to_string(), is_untouched && detail.retry_after_ms == 0)
                }
                Err(_) => {
                    may_be_applied = true;
                    ("no answer".to_owned(), false)
                }
            };
            if is_final || Instant::now() > deadline {
                return if may_be_applied {
                    Outcome::Unknown(text)
                } else {
                    Outcome::NotApplied(text)
                };
            }
            tokio::time::sleep(pause_after(turn)).await;
            turn += 1;
        }
    }

    /// A client of the node with this number, modulo the number of nodes.
    pub(super) fn node(&self, number: u32) -> FiltersClient<NodeChannel> {
        let address = self.addresses[(number as usize - 1) % self.addresses.len()].clone();
        let token = self.token.as_ref().map(|_| ROOT);
        FiltersClient::new(node_channel(&self.net, address, token))
    }
}

/// The error text with which a shard refuses a request whose id another request has used. The text is
/// needed because the error code only says that the outcome is unknown if other shards have applied their
/// parts.
pub(super) fn reused_text(session: u64, sequence: u64) -> String {
    let id = umbel_engine::RequestId { session: SessionId(session), sequence };
    PartError::RequestReused { id }.to_string()
}
