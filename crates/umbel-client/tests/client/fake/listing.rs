//! Lists and sessions of the fake nodes.

use super::*;

impl World {
    fn check_majority(&self) -> Result<(), Status> {
        if self.has_no_majority {
            let detail = detail(ErrorCode::NoQuorum, Applied::No);
            return Err(status(Code::Unavailable, &detail));
        }
        Ok(())
    }

    pub(super) fn listed(&mut self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list_headers.push(request.metadata().clone());
        let ListRequest { prefix, limit, after, as_heard: _, with_shard_map } =
            request.into_inner();
        let limit = limit.min(2) as usize; // small pages
        self.check_majority()?;
        let mut found = self.filters.values().map(|(summary, _)| summary.clone());
        let mut filters: Vec<_> = found
            .by_ref()
            .filter(|f| f.name.starts_with(&prefix) && f.name > after)
            .take(limit + 1)
            .collect();
        let has_more = filters.len() > limit;
        filters.truncate(limit);
        let shard_map = (with_shard_map && !self.is_old).then(|| self.map.clone());
        Ok(Response::new(ListResponse { filters, has_more, shard_map }))
    }

    /// As real nodes do, it opens no session for a replicated filter.
    pub(super) fn opened(&mut self, request: OpenSessionRequest) -> Answer<OpenSessionResponse> {
        let OpenSessionRequest { filter, with_shard_map } = request;
        self.check_majority()?;
        let listed = (!filter.is_empty() && !self.is_old).then(|| {
            let found = self.filters.get(&filter).map(|(summary, _)| summary.clone());
            let shard_map = with_shard_map.then(|| self.map.clone());
            ListResponse { filters: found.into_iter().collect(), has_more: false, shard_map }
        });
        let mut found = listed.iter().flat_map(|listed| &listed.filters);
        if found.any(|summary| summary.distribution() == Distribution::Replicated) {
            return Ok(Response::new(OpenSessionResponse { session: 0, listed }));
        }
        self.session_count += 1;
        Ok(Response::new(OpenSessionResponse { session: self.session_count, listed }))
    }
}
