//! Why a shard refuses a part of a request.

use serde::{Deserialize, Serialize};

use crate::ids::{FilterId, Generation, GroupId, RequestId, ShardId};

/// Why a part of a request was refused. Nothing of the part was applied, unless the variant says so.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum PartError {
    /// The sender's catalogue is outdated, or the filter was dropped: refresh the catalogue and retry.
    #[error("{shard} has no slice of {filter}")]
    UnknownSlice {
        /// The requested filter.
        filter: FilterId,
        /// The shard that refused.
        shard: ShardId,
    },
    /// The request's generation is not the slice's, because the filter was cleared since, for example.
    /// Refresh the catalogue and retry.
    #[error("{filter} is at {current}, the request names {got}")]
    StaleGeneration {
        /// The filter.
        filter: FilterId,
        /// The generation in the request.
        got: Generation,
        /// The slice's generation.
        current: Generation,
    },
    /// The sender's shard map is outdated: refresh it and retry.
    #[error("hash {hi:#018x} does not belong to {shard}")]
    ForeignHash {
        /// The item's position in the hash space: the high half of its hash.
        hi: u64,
        /// The shard that refused.
        shard: ShardId,
    },
    /// The answer was dropped to bound memory. Nothing was applied now; whether the request was applied
    /// before is unknown. Query `contains`, then continue in a new session.
    #[error("the answer to {id} is no longer kept")]
    RequestExpired {
        /// The request's id.
        id: RequestId,
    },
    /// The session is older than those that the shard remembers. Open a new one. If the request was sent
    /// only once, it was not applied.
    #[error("{} is no longer known", id.session)]
    SessionExpired {
        /// The request's id.
        id: RequestId,
    },
    /// The part was cut for a range that the shard does not have, because shards are being split or merged:
    /// refresh the shard map and retry. If the shard has answered for other hashes of the request, and the
    /// part is what is left, it is a sum, which cannot be added to a part of a range.
    #[error("a part for the hashes {start} to {last} came to {shard}, which has others")]
    OtherCut {
        /// The shard that refused.
        shard: ShardId,
        /// First hash of the range for which the part was cut.
        start: u64,
        /// Last hash of that range.
        last: u64,
    },
    /// Some hashes of the part were answered before, in a part that was cut for this range, because shards
    /// were split or merged since. Retry with all of the request's items in this range, and then with what
    /// is left of the part ([`Pieces`](crate::routing::Pieces)).
    #[error("{id} was answered for the hashes {start} to {last}")]
    CutBefore {
        /// The request's id.
        id: RequestId,
        /// First hash of the lowest such range that overlaps that of the part.
        start: u64,
        /// Last hash of that range.
        last: u64,
    },
    /// The client used the same id for two different requests: fix the client. Or it repeated one whose filter
    /// another one has replaced since (`rename --replace`): send it under a new id.
    #[error(
        "{id} came before with other items, or for another filter, such as one that this filter replaced"
    )]
    RequestReused {
        /// The request's id.
        id: RequestId,
    },
    /// The filter's kind does not support the operation. Fix the request.
    #[error("{what}")]
    WrongKind {
        /// The operation and the kind.
        what: String,
    },
    /// The filters differ in shape. Fix the request.
    #[error("{what}")]
    ShapeMismatch {
        /// Both shapes.
        what: String,
    },
    /// The frame is damaged or is not a frame. Send it again from a good copy.
    #[error("{what}")]
    BadFrame {
        /// What was expected and what was received.
        what: String,
    },
    /// The filter is full, and cannot grow or may not. Single-shot, cuckoo and quotient filters have inserted nothing of the part;
    /// others have the items before the first one that did not fit.
    #[error("{filter} is full: {what}")]
    Full {
        /// The filter.
        filter: FilterId,
        /// The reason, and what to do; of a quota whose it is, its limit and its use.
        what: String,
    },
    /// The item's time is before the start of the window, and the window is configured to refuse late
    /// items. Nothing was inserted. Leave the item out, or create a window that accepts late items.
    #[error(
        "{filter} has no slice for an item of time {at_ms} ms any more, the oldest begins at {oldest_ms}: leave the item \
         out; a window that is created to drop late items, or to keep them with the oldest slice, takes it"
    )]
    LateItem {
        /// The filter.
        filter: FilterId,
        /// The item's time, in milliseconds since 1970.
        at_ms: u64,
        /// Start of the oldest slice, in milliseconds since 1970.
        oldest_ms: u64,
    },
    /// The item's time is more than one slice ahead of the leader's clock. Nothing was inserted. Check the
    /// clock that produced the time.
    #[error(
        "{filter} has no slice for an item of time {at_ms} ms yet, the latest is {latest_ms}: check the clock that gave \
         the time, and that it is in milliseconds"
    )]
    FutureItem {
        /// The filter.
        filter: FilterId,
        /// The item's time, in milliseconds since 1970.
        at_ms: u64,
        /// The latest accepted time, in milliseconds since 1970.
        latest_ms: u64,
    },
    /// The command's lists contradict each other: a bug of the proposer.
    #[error("malformed command: {what}")]
    Malformed {
        /// What was expected and what was received.
        what: String,
    },
    /// The slices of a filter in two shards cannot become one, so the shards are not merged.
    #[error("{filter} cannot be merged: {what}")]
    NotJoined {
        /// The filter.
        filter: FilterId,
        /// The reason.
        what: String,
    },
    /// The shard is being merged into another one: refresh the shard map and retry.
    #[error("{shard} is being merged into {into}")]
    Fenced {
        /// The shard that refused.
        shard: ShardId,
        /// The group that absorbs it.
        into: GroupId,
    },
}

impl PartError {
    /// The filter of which the text has the number, for callers that know its name.
    #[must_use]
    pub const fn filter(&self) -> Option<FilterId> {
        match self {
            Self::UnknownSlice { filter, .. }
            | Self::StaleGeneration { filter, .. }
            | Self::Full { filter, .. }
            | Self::LateItem { filter, .. }
            | Self::FutureItem { filter, .. }
            | Self::NotJoined { filter, .. } => Some(*filter),
            Self::ForeignHash { .. }
            | Self::RequestExpired { .. }
            | Self::SessionExpired { .. }
            | Self::OtherCut { .. }
            | Self::CutBefore { .. }
            | Self::RequestReused { .. }
            | Self::WrongKind { .. }
            | Self::ShapeMismatch { .. }
            | Self::BadFrame { .. }
            | Self::Malformed { .. }
            | Self::Fenced { .. } => None,
        }
    }
}
