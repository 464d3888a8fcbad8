//! Filters into another one.

use tonic::{Request, Response, Status};
use umbel_proto::v1::{MergeRequest, MergeResponse, OverlapRequest, OverlapResponse};

use crate::caller::{Ask, First, Repeat};
use crate::client::Client;
use crate::error::ClientError;
use crate::nodes::Node;

impl Client {
    /// `ORs` filters of equal shape and key into another one and returns how many positions that
    /// set. After a repeated attempt that number may leave out what the first one set.
    /// Of replicated filters what the node has heard of them is merged: flush them first.
    ///
    /// # Errors
    /// [`ClientError`]; some shards may be merged already, which does no harm.
    pub async fn merge(&self, target: &str, sources: &[&str]) -> Result<u64, ClientError> {
        let merge = |node: Node, request| async move { node.filters().merge(request).await };
        self.put_together(target, sources, merge).await
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
        self.put_together(target, sources, intersect).await
    }

    /// ORs what the call makes of the sources into the target.
    async fn put_together<F, A>(
        &self,
        target: &str,
        sources: &[&str],
        call: F,
    ) -> Result<u64, ClientError>
    where
        F: Fn(Node, Request<MergeRequest>) -> A,
        A: Future<Output = Result<Response<MergeResponse>, Status>>,
    {
        let named = format!("filter {target:?}");
        let ask = Ask { target: &named, repeat: Repeat::Freely, first: First::InTurn };
        let sources = sources.iter().map(ToString::to_string).collect();
        let message = MergeRequest { target: target.to_owned(), sources };
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
