//! Merges, intersections and overlaps of filters.

use tonic::{Request, Response, Status};
use umbel_proto::v1::{
    Applied, MergeRequest, MergeResponse, OverlapRequest, OverlapResponse, RequestId,
};

use crate::caller::{CallPolicy, ask, is_session_lost};
use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::nodes::Node;

impl Client {
    /// `ORs` filters of equal shape and key into a target, and returns how many positions that set. The
    /// counts of counting and quotient filters are added, exactly once per call, however often the
    /// request is sent. If an attempt was repeated, the number may lack the positions that the first
    /// attempt set. For replicated filters, the node merges its own copies: flush them first.
    ///
    /// # Errors
    /// [`ClientError`]; `ChangeUnknown` if some shards, or all, may be merged, or may be later. A second call does no
    /// harm, except that it adds the counts of counting and quotient filters in those shards a second time.
    pub async fn merge(&self, target: &str, sources: &[&str]) -> Result<u64> {
        let mut expired = None;
        loop {
            let ticket = self.caller.ticket(expired.as_ref()).await?;
            let merge = |node: Node, request| async move { node.filters().merge(request).await };
            let request = Some(ticket.request_id());
            match self.put_together(target, sources, request, merge).await {
                // A node may have forgotten a session because others were opened; all nodes know a new
                // one.
                Err(ClientError::Refused(failure))
                    if expired.is_none()
                        && is_session_lost(&failure)
                        && failure.applied == Applied::No =>
                {
                    expired = Some(ticket);
                }
                // Of filters that count, another call adds up once more.
                Err(ClientError::OrderUnknown(failure)) => {
                    return Err(ClientError::ChangeUnknown(failure));
                }
                answer => return answer,
            }
        }
    }

    /// `ORs` the intersection of at least two filters into a target, and returns how many positions that
    /// set. All of them and the target must have one shape and key, and be blocked, classic or
    /// partitioned. Each item that all sources have is in the result; by chance also some that only one
    /// of them has, no more than the best source falsely reports as present. The target keeps its own
    /// items.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` if shapes or keys differ or a source is full; `OrderUnknown` if some shards, or all,
    /// may have the intersection, or may have it later. Calling again does no harm.
    pub async fn intersect(&self, target: &str, sources: &[&str]) -> Result<u64> {
        let intersect =
            |node: Node, request| async move { node.filters().intersect(request).await };
        self.put_together(target, sources, None, intersect).await
    }

    /// Sends a request that combines the sources into the target.
    async fn put_together<F, A>(
        &self,
        target: &str,
        sources: &[&str],
        request: Option<RequestId>,
        call: F,
    ) -> Result<u64>
    where
        F: Fn(Node, Request<MergeRequest>) -> A,
        A: Future<Output = Result<Response<MergeResponse>, Status>>,
    {
        let named = format!("filter {target:?}");
        let policy = CallPolicy::order(&named);
        let sources = sources.iter().map(ToString::to_string).collect();
        let message = MergeRequest { target: target.to_owned(), sources, request };
        Ok(self.caller.simple(&policy, message, call).await?.new_position_count)
    }

    /// Estimates how many items two filters have, and how many are in either and in both. They must have
    /// one shape, key and distribution: create the second one with
    /// [`NewFilter::like`](crate::NewFilter::like). For replicated filters, the node that answers counts
    /// its own copies.
    ///
    /// # Errors
    /// [`ClientError`]; `Refused` if shapes or keys differ, or the kind cannot be merged.
    pub async fn overlap(&self, one: &str, other: &str) -> Result<OverlapResponse> {
        let named = format!("filter {one:?}");
        let message = OverlapRequest { ours: one.to_owned(), theirs: other.to_owned() };
        Ok(ask!(self, CallPolicy::freely(&named), filters.overlap, message)?)
    }
}
