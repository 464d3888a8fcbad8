//! Filters into another one.

use tonic::{Request, Response, Status};
use umbel_proto::v1::{
    Applied, MergeRequest, MergeResponse, OverlapRequest, OverlapResponse, RequestId,
};

use crate::caller::{Ask, First, Repeat, is_session_lost};
use crate::client::Client;
use crate::error::ClientError;
use crate::nodes::Node;

impl Client {
    /// `ORs` filters of equal shape and key into another one and returns how many positions that
    /// set; of counting and quotient filters it adds up what they count, once, however often that is sent. After
    /// a repeated attempt that number may leave out what the first one set.
    /// Of replicated filters what the node has heard of them is merged: flush them first.
    ///
    /// # Errors
    /// [`ClientError`]; some shards may be merged already, which does no harm; but of filters that count a second
    /// call counts there twice.
    pub async fn merge(&self, target: &str, sources: &[&str]) -> Result<u64, ClientError> {
        let mut expired = None;
        loop {
            let ticket = self.caller.ticket(expired.as_ref()).await;
            let ticket = ticket.map_err(|failed| failed.into_error(Repeat::Freely))?;
            let merge = |node: Node, request| async move { node.filters().merge(request).await };
            let request = Some(ticket.request_id());
            match self.put_together(target, sources, request, merge).await {
                // A session is forgotten where others are opened; a fresh one is known everywhere.
                Err(ClientError::Refused(failure))
                    if expired.is_none()
                        && is_session_lost(&failure)
                        && failure.applied == Applied::No =>
                {
                    expired = Some(ticket);
                }
                answer => return answer,
            }
        }
    }

    /// `ORs` what all of these filters have in common into another one, and returns how many positions that set:
    /// two sources at least, all of them and the target of one shape and key, and blocked, classic or partitioned.
    /// No item that all have is missed; some that one alone has may come along by chance, no more than the best of
    /// them calls present wrongly. What the target has stays in it.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` if they are not alike or one is full; some shards may have it already, which does
    /// no harm.
    pub async fn intersect(&self, target: &str, sources: &[&str]) -> Result<u64, ClientError> {
        let intersect =
            |node: Node, request| async move { node.filters().intersect(request).await };
        self.put_together(target, sources, None, intersect).await
    }

    /// Puts what the call makes of the sources into the target.
    async fn put_together<F, A>(
        &self,
        target: &str,
        sources: &[&str],
        request: Option<RequestId>,
        call: F,
    ) -> Result<u64, ClientError>
    where
        F: Fn(Node, Request<MergeRequest>) -> A,
        A: Future<Output = Result<Response<MergeResponse>, Status>>,
    {
        let named = format!("filter {target:?}");
        let ask = Ask { target: &named, repeat: Repeat::Freely, first: First::InTurn };
        let sources = sources.iter().map(ToString::to_string).collect();
        let message = MergeRequest { target: target.to_owned(), sources, request };
        Ok(self.caller.simple(&ask, message, call).await?.new_position_count)
    }

    /// Estimates how many items two filters of one shape, key and distribution have, each, together and
    /// in common: make the second one by [`NewFilter::like`](crate::NewFilter::like). Of replicated
    /// filters the copies of the node that answers are counted.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` if they are not alike, or of a kind that does not merge.
    pub async fn overlap(&self, one: &str, other: &str) -> Result<OverlapResponse, ClientError> {
        let named = format!("filter {one:?}");
        let ask = Ask { target: &named, repeat: Repeat::Freely, first: First::InTurn };
        let message = OverlapRequest { ours: one.to_owned(), theirs: other.to_owned() };
        self.caller
            .simple(
                &ask,
                message,
                |node, request| async move { node.filters().overlap(request).await },
            )
            .await
    }
}
