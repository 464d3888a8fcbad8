//! What a shard's Raft group replicates: commands, and what applying them answers.
//!
//! Commands hold hashes, 16 bytes an item, never items. They are plain data: the log's encoding of
//! them is the node's business. Whatever stands in a command, applying it is total.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::bitmap::Bitmap;
use super::hash_list::HashList;
use super::scrub::{RepairPart, ScrubPart};
use super::slice_shape::SliceShape;
use super::windowed::TimedInsert;
use crate::ids::{FilterId, Generation, OwnerId, RequestId, ShardId};

/// One entry of a shard's log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ShardCommand {
    /// Inserts of one or more requests, applied in their order.
    Insert(Vec<InsertPart>),
    /// Takes items out of a counting filter.
    Remove(RemovePart),
    /// Makes an empty slice, or leaves an equal one as it is.
    CreateSlice(SliceSpec),
    /// Forgets a slice; one that is not there is forgotten already.
    DropSlice(FilterId),
    /// Empties a slice and raises its generation, or leaves one of that generation as it is.
    ClearSlice {
        /// Whose slice.
        filter: FilterId,
        /// The new generation.
        generation: Generation,
    },
    /// ORs what slices of other filters of the same shard have into a slice, or adds it up.
    MergeSlices {
        /// The filter that takes.
        target: FilterId,
        /// Its generation.
        generation: Generation,
        /// The filters that give, each with its generation; they stay as they are.
        sources: Vec<(FilterId, Generation)>,
        /// What of them.
        operation: SetOperation,
    },
    /// ORs a frame (`umbel-codec`) into a slice; counting and scalable slices must be empty or
    /// half loaded and take their frames in order.
    LoadFrame {
        /// Whose slice.
        filter: FilterId,
        /// Its generation.
        generation: Generation,
        /// The frame's bytes, checked again when applied.
        frame: Bytes,
    },
    /// Has every replica digest a piece of a slice, so that they can be compared.
    Scrub(ScrubPart),
    /// Gives blocks of a slice what the majority of replicas holds.
    Repair(RepairPart),
    /// Inserts of one or more requests, applied in their order, some of them into windows, which move on
    /// to the time.
    InsertTimed {
        /// By the leader's clock, in milliseconds since 1970.
        now_ms: u64,
        /// What is inserted.
        inserts: Vec<TimedInsert>,
    },
    /// Moves every window of the shard on to this time.
    Advance {
        /// By the leader's clock, in milliseconds since 1970.
        now_ms: u64,
    },
    /// Ends the slice at hand of a window that goes by hand and raises its generation, or leaves one of
    /// that generation as it is.
    RotateSlice {
        /// Whose slice.
        filter: FilterId,
        /// The new generation.
        generation: Generation,
    },
    /// Raises the generation of a slice and leaves what it has, so that who asks by the old one looks into the
    /// catalogue again.
    RenewSlice {
        /// Whose slice.
        filter: FilterId,
        /// The new generation.
        generation: Generation,
    },
    /// Gives the upper part of the range, with all that is there and all answers, to a new shard, which every replica
    /// makes for itself ([`ShardState::upper_half`](super::ShardState::upper_half)). Ignored when that is done already.
    Split {
        /// The new shard.
        into: ShardId,
        /// Its first hash.
        at: u64,
    },
}

/// What of several filters goes into another one. Bits only rise there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetOperation {
    /// What any of them has.
    Union,
    /// What all of them have.
    Intersection,
    /// What all of them count together, of a kind that counts; once for each request.
    Sum(SumTerms),
}

/// What a sum needs beside its filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SumTerms {
    /// Under which name the answer is remembered, if it is; its digest is not looked at.
    pub request: Option<RequestStamp>,
    /// As [`InsertPart::growth_bytes`].
    pub growth_bytes: u64,
}

/// A filter's share of a shard, as it is created.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SliceSpec {
    /// Whose slice.
    pub filter: FilterId,
    /// The generation that it starts with.
    pub generation: Generation,
    /// Numbers, not rates: what every replica must build alike.
    pub shape: SliceShape,
    /// Which key made the hashes: frames are merged only if they name the same.
    pub key: KeyName,
}

/// The hash function of a filter and the name of its key, never the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyName {
    /// [`HashFunction::id`](umbel_filter::HashFunction::id).
    pub function: u8,
    /// XXH3: the seed. SipHash: a random number that names the key.
    pub key_id: u64,
}

/// The part of one insert request that falls into a shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InsertPart {
    /// The filter.
    pub filter: FilterId,
    /// Its generation when the hashes were made.
    pub generation: Generation,
    /// Under which name the answer is remembered, if it is.
    pub request: Option<RequestStamp>,
    /// Which of the part's items are in `hashes`, by their order in the part: the leader leaves
    /// out those that it knows to be present.
    pub proposed: Bitmap,
    /// The hashes, as many as `proposed` has ones.
    pub hashes: HashList,
    /// Bytes that a slice which grows may take beyond those that it began with; the same on every replica,
    /// whatever they know of quotas.
    pub growth_bytes: u64,
}

/// The part of one removal that falls into a shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RemovePart {
    /// The filter.
    pub filter: FilterId,
    /// Its generation when the hashes were made.
    pub generation: Generation,
    /// Under which name the answer is remembered, if it is.
    pub request: Option<RequestStamp>,
    /// The hashes of the whole part.
    pub hashes: HashList,
}

/// What lets a shard recognise a request that comes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestStamp {
    /// The request's name.
    pub id: RequestId,
    /// The client acknowledges the answers to all its requests below this sequence number: they may
    /// be forgotten.
    pub acknowledged_below: u64,
    /// Digest of all hashes of the part, in order ([`HashList::digest`]): the same name with other
    /// items is an error of the client.
    pub digest: u64,
    /// First and last hash of the range that the part is cut for: the shard's, or one that it had before, as
    /// [`PartError::CutBefore`] names it.
    pub cut: (u64, u64),
    /// Whose session it is: sessions are forgotten owner by owner.
    pub owner: OwnerId,
}

/// What applying a [`ShardCommand`] answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ShardReply {
    /// For [`ShardCommand::Insert`] and [`ShardCommand::InsertTimed`]: one answer a part, in order. A one says that the item of the
    /// part (all its items, not only the proposed ones) was new.
    Inserted(Vec<Result<Bitmap, PartError>>),
    /// For [`ShardCommand::Remove`]: a one says that the item was taken out, a zero that it was
    /// certainly not there.
    Removed(Result<Bitmap, PartError>),
    /// For [`ShardCommand::MergeSlices`] and [`ShardCommand::LoadFrame`]: positions newly set.
    Merged(Result<u64, PartError>),
    /// For the others.
    Done(Result<(), PartError>),
}

/// Why a part of a request was refused. Nothing of the part was applied, unless a variant says so.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum PartError {
    /// The sender's catalogue is old, or the filter was dropped: refresh it and send again.
    #[error("{shard} has no slice of {filter}")]
    UnknownSlice {
        /// The filter that was named.
        filter: FilterId,
        /// The shard that was asked.
        shard: ShardId,
    },
    /// The filter was cleared since: refresh the catalogue and send again.
    #[error("{filter} is at {current}, the request names {got}")]
    StaleGeneration {
        /// The filter.
        filter: FilterId,
        /// The generation that the request names.
        got: Generation,
        /// The slice's.
        current: Generation,
    },
    /// The sender's shard map is old: refresh it and send again.
    #[error("hash {hi:#018x} does not belong to {shard}")]
    ForeignHash {
        /// The item's place in the hash space.
        hi: u64,
        /// The shard that was asked.
        shard: ShardId,
    },
    /// The first answer is lost: it was forgotten to keep memory bounded. Nothing was applied now;
    /// whether it was the first time is unknown. Ask `contains`, then go on in a new session.
    #[error("the answer to {id} is no longer kept")]
    RequestExpired {
        /// The request's name.
        id: RequestId,
    },
    /// The session is older than the shard remembers. Open a new one; a request that was sent only
    /// once was not applied.
    #[error("{} is no longer known", id.session)]
    SessionExpired {
        /// The request's name.
        id: RequestId,
    },
    /// The sender's shard map is of another age than the shard, which is being split: refresh it and send again.
    #[error("a part for the hashes {start} to {last} came to {shard}, which has others")]
    OtherCut {
        /// The shard that was asked.
        shard: ShardId,
        /// First hash of the range that the part is cut for.
        start: u64,
        /// Its last hash.
        last: u64,
    },
    /// The request was answered before the shard was split: ask again for the part of all its items in this range.
    #[error("{id} came when the shard had the hashes {start} to {last}")]
    CutBefore {
        /// The request's name.
        id: RequestId,
        /// First hash of the range that the shard had.
        start: u64,
        /// Its last hash.
        last: u64,
    },
    /// The client used one name for two requests. Fix the client.
    #[error("{id} came before with other items")]
    RequestReused {
        /// The request's name.
        id: RequestId,
    },
    /// The operation is not one of the filter's kind. Fix the request.
    #[error("{what}")]
    WrongKind {
        /// What was asked of which kind.
        what: String,
    },
    /// The filters differ in shape. Fix the request.
    #[error("{what}")]
    ShapeMismatch {
        /// Both shapes.
        what: String,
    },
    /// The frame is damaged or none. Send it again from a good copy.
    #[error("{what}")]
    BadFrame {
        /// What was expected and what came.
        what: String,
    },
    /// The filter cannot grow. Items before the one that did not fit were inserted.
    #[error("{filter} cannot grow: {what}")]
    Full {
        /// The filter.
        filter: FilterId,
        /// Why.
        what: String,
    },
    /// The item's time is before the window, which is to refuse such items. Nothing was inserted; leave the
    /// item out, or create a window that takes them.
    #[error(
        "{filter} has no slice for an item of time {at_ms} ms any more, the oldest begins at {oldest_ms}"
    )]
    LateItem {
        /// The filter.
        filter: FilterId,
        /// The item's time, in milliseconds since 1970.
        at_ms: u64,
        /// Where the oldest slice begins.
        oldest_ms: u64,
    },
    /// The item's time is more than a slice ahead of the leader's clock. Nothing was inserted; check the
    /// clock that made it.
    #[error("{filter} has no slice for an item of time {at_ms} ms yet, the latest is {latest_ms}")]
    FutureItem {
        /// The filter.
        filter: FilterId,
        /// The item's time, in milliseconds since 1970.
        at_ms: u64,
        /// The latest time that is taken.
        latest_ms: u64,
    },
    /// The lists of the command do not fit together: a bug of the proposer.
    #[error("malformed command: {what}")]
    Malformed {
        /// What was expected and what came.
        what: String,
    },
}

impl ShardCommand {
    /// Takes the request ids out, as a planted bug does
    /// ([`IdsOnLeaderOnly`](umbel_step::planted::Planted::IdsOnLeaderOnly)).
    pub fn forget_request_ids(&mut self) {
        match self {
            Self::Insert(parts) => parts.iter_mut().for_each(|part| part.request = None),
            Self::InsertTimed { inserts, .. } => {
                inserts.iter_mut().for_each(|insert| insert.part.request = None);
            }
            Self::Remove(part) => part.request = None,
            Self::MergeSlices { operation: SetOperation::Sum(terms), .. } => terms.request = None,
            _ => {}
        }
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function {} under key {:#x}", self.function, self.key_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{OwnerId, RequestId, SessionId};

    #[test]
    fn request_ids_are_forgotten_and_nothing_else() {
        let id = RequestId { session: SessionId(1), sequence: 2 };
        let part = |request| InsertPart {
            filter: FilterId(3),
            generation: Generation(1),
            request,
            proposed: Bitmap::zeros(0),
            hashes: HashList::from_hashes(&[]),
            growth_bytes: 0,
        };
        let stamp = RequestStamp {
            id,
            acknowledged_below: 0,
            digest: 4,
            cut: (0, u64::MAX),
            owner: OwnerId::default(),
        };
        let mut command = ShardCommand::Insert(vec![part(Some(stamp)), part(None)]);
        command.forget_request_ids();
        assert_eq!(command, ShardCommand::Insert(vec![part(None), part(None)]));
        let mut other = ShardCommand::DropSlice(FilterId(3));
        other.forget_request_ids();
        assert_eq!(other, ShardCommand::DropSlice(FilterId(3)));
    }
}
