//! A batch of a call, and what shards are to do with the parts of it.

use umbel_engine::shard::{HashList, RequestStamp};
use umbel_filter::ItemHash;
use umbel_node::calls::{AllowedGrowth, ShardRequest};

use crate::{ClientRequest, LiveFilter};

/// What to do with a part of a batch.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    /// With the items' time, in milliseconds since 1970, if the client sets one.
    Insert {
        request: Option<ClientRequest>,
        at_ms: Option<u64>,
    },
    /// Only those that are absent.
    InsertAbsent,
    Remove(Option<ClientRequest>),
    Contains {
        confirmed: bool,
    },
}

/// The items of a call as hashes, in the order of the request, and what to do with them.
#[derive(Clone, Copy)]
pub(super) struct HashedBatch<'a> {
    pub(super) hashes: &'a [ItemHash],
    pub(super) operation: Operation,
}

impl Operation {
    /// Whether shards record their answers, so that it may be sent again.
    pub(super) const fn is_named(self) -> bool {
        matches!(self, Self::Insert { request: Some(_), .. } | Self::Remove(Some(_)))
    }

    pub(super) const fn is_read(self) -> bool {
        matches!(self, Self::Contains { .. })
    }

    /// The request to a shard, for a part that is cut for the range `cut`.
    pub(super) fn request(
        self,
        filter: &LiveFilter,
        hashes: HashList,
        cut: (u64, u64),
        growth: Option<AllowedGrowth>,
    ) -> ShardRequest {
        let (id, generation) = (filter.id, filter.record.generation);
        let stamp = |request: Option<ClientRequest>| {
            request.map(|request| RequestStamp {
                id: request.id,
                acknowledged_below: request.acknowledged_below,
                digest: hashes.digest(),
                cut,
                owner: request.owner,
            })
        };
        match self {
            Self::Insert { request, at_ms } => {
                let request = stamp(request);
                ShardRequest::Insert { filter: id, generation, request, hashes, growth, at_ms }
            }
            Self::InsertAbsent => {
                let request = None;
                ShardRequest::InsertAbsent { filter: id, generation, request, hashes, growth }
            }
            Self::Remove(request) => {
                let request = stamp(request);
                ShardRequest::Remove { filter: id, generation, request, hashes }
            }
            Self::Contains { confirmed } => {
                ShardRequest::Contains { filter: id, generation, hashes, confirmed }
            }
        }
    }
}
