//! The commands that a shard's Raft group replicates, and the replies of applying them.
//!
//! Commands hold hashes, 16 bytes per item, never items. They are plain data; the node chooses how the log
//! encodes them. Applying is total: any content of a command leads to a reply.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::bitmap::Bitmap;
use super::hash_list::HashList;
use super::part_error::PartError;
use super::scrub_parts::{RepairPart, ScrubPart};
use super::slice_shape::SliceShape;
use crate::ids::{Epoch, FilterId, Generation, GroupId, OwnerId, RequestId, ShardId};

/// One entry of a shard's log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ShardCommand {
    /// Inserts of one or more requests, applied in their order.
    Insert(Vec<InsertPart>),
    /// Removes items from a slice whose kind supports removal.
    Remove(RemovePart),
    /// Creates an empty slice. Leaves an equal existing slice as it is.
    CreateSlice(SliceSpec),
    /// Drops a slice. Does nothing if there is none.
    DropSlice(FilterId),
    /// Empties a slice and raises its generation. Leaves a slice of that generation as it is.
    ClearSlice {
        /// The filter whose slice is cleared.
        filter: FilterId,
        /// The new generation.
        generation: Generation,
    },
    /// Merges slices of other filters of the same shard into a slice, as a union, an intersection or a sum.
    MergeSlices {
        /// The filter that the result goes into.
        target: FilterId,
        /// Its generation.
        generation: Generation,
        /// The source filters, each with its generation; they are not changed.
        sources: Vec<(FilterId, Generation)>,
        /// How the sources are combined.
        operation: SetOperation,
    },
    /// ORs a frame (`umbel-codec`) into a slice. Slices of counting and scalable filters must be empty or
    /// partly loaded, and take their frames in order.
    LoadFrame {
        /// The filter whose slice is loaded.
        filter: FilterId,
        /// Its generation.
        generation: Generation,
        /// The frame's bytes; validated again when the entry is applied.
        frame: Bytes,
    },
    /// Has every replica digest a piece of a slice, so that the digests can be compared.
    Scrub(ScrubPart),
    /// Overwrites blocks of a slice with the contents that the majority of the replicas has.
    Repair(RepairPart),
    /// Inserts of one or more requests, applied in order. Some go to windowed filters, whose windows first
    /// advance to `now_ms`.
    InsertTimed {
        /// The leader's clock, in milliseconds since 1970.
        now_ms: u64,
        /// The inserts.
        inserts: Vec<TimedInsert>,
    },
    /// Advances every window of the shard to this time.
    Advance {
        /// The leader's clock, in milliseconds since 1970.
        now_ms: u64,
    },
    /// Ends the current slice of a window that is rotated manually, and raises the generation. Leaves a
    /// window of that generation as it is.
    RotateSlice {
        /// The filter whose window is rotated.
        filter: FilterId,
        /// The new generation.
        generation: Generation,
    },
    /// Raises the generation of a slice and keeps its contents, so that a request with the old generation
    /// is refused and its sender refreshes its catalogue.
    RenewSlice {
        /// The filter whose slice is renewed.
        filter: FilterId,
        /// The new generation.
        generation: Generation,
    },
    /// Moves the upper part of the hash range, with its contents and all recorded answers, to a new shard,
    /// which every replica creates for itself ([`ShardState::upper_half`](super::ShardState::upper_half)).
    /// Ignored if already done.
    Split {
        /// The new shard.
        into: ShardId,
        /// The first hash of the new shard.
        at: u64,
    },
    /// [`Split`](Self::Split), if there was another group of the new shard's number before.
    SplitAgain {
        /// The new shard's group.
        into: GroupId,
        /// The first hash of the new shard.
        at: u64,
    },
    /// Ends the shard, because it is merged into its lower neighbour: everything after this entry is
    /// refused. Every replica keeps the final state for the group that absorbs it. Ignored if already done.
    Fence {
        /// The group that absorbs the shard.
        into: GroupId,
        /// The epoch at which the catalogue began the merge.
        since: Epoch,
    },
    /// Joins the final state of the upper neighbour, which every replica has kept, to this shard's
    /// ([`ShardState::absorb`](super::ShardState::absorb)). Ignored if already done.
    Absorb {
        /// The group of the neighbour.
        from: GroupId,
        /// Index of the neighbour's last entry, its [`Fence`](Self::Fence).
        fence_index: u64,
    },
    /// Opens a shard again that its neighbour cannot absorb. Fences of this merge that come later are
    /// refused.
    Reopen {
        /// The epoch at which the catalogue began the merge.
        since: Epoch,
    },
    /// Inserts of one or more requests, applied in order, of those items alone that are absent: of equal items the
    /// first. All of a part or none, for kinds that tell copies alone. Since version 6 of the cluster.
    InsertAbsent(Vec<InsertPart>),
}

/// How several filters are combined into another one. Nothing in the target is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SetOperation {
    /// Positions set in any of the sources.
    Union,
    /// Positions set in all of the sources.
    Intersection,
    /// The sum of all sources' counts, for kinds that count. Applied once per request.
    Sum(SumTerms),
}

/// Parameters of a sum besides its filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SumTerms {
    /// The stamp under which the answer is recorded, if any. Its digest is ignored.
    pub request: Option<RequestStamp>,
    /// As [`InsertPart::growth_bytes`].
    pub growth_bytes: u64,
}

/// The parameters with which a filter's slice in a shard is created.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SliceSpec {
    /// The filter.
    pub filter: FilterId,
    /// The generation that the slice starts with.
    pub generation: Generation,
    /// Sizes, not rates, so that every replica builds the same slice.
    pub shape: SliceShape,
    /// The key that the hashes were made with: only frames that name the same key are merged.
    pub key: KeyName,
}

/// A filter's hash function and the name of its key, never the key itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyName {
    /// [`HashFunction::id`](umbel_filter::HashFunction::id).
    pub function: u8,
    /// XXH3: the seed. SipHash: a random number that names the key.
    pub key_id: u64,
}

/// The part of an insert request that belongs to one shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InsertPart {
    /// The filter.
    pub filter: FilterId,
    /// Its generation when the hashes were made.
    pub generation: Generation,
    /// The stamp under which the answer is recorded, if any.
    pub request: Option<RequestStamp>,
    /// Which of the part's items are in `hashes`, in the part's order: the leader leaves out items that it
    /// knows to be present.
    pub proposed: Bitmap,
    /// The hashes: one for each one bit of `proposed`.
    pub hashes: HashList,
    /// Bytes that a growing slice may take beyond its initial size. Part of the command, so that every
    /// replica decides alike, whatever it knows of quotas.
    pub growth_bytes: u64,
}

/// An insert with an optional time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TimedInsert {
    /// What is inserted.
    pub part: InsertPart,
    /// The time that the client states, in milliseconds since 1970.
    pub at_ms: Option<u64>,
}

/// The part of a removal request that belongs to one shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RemovePart {
    /// The filter.
    pub filter: FilterId,
    /// Its generation when the hashes were made.
    pub generation: Generation,
    /// The stamp under which the answer is recorded, if any.
    pub request: Option<RequestStamp>,
    /// The hashes of all items of the part.
    pub hashes: HashList,
}

/// Lets a shard recognise a retried request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestStamp {
    /// The request's id.
    pub id: RequestId,
    /// The client has received the answers to all its requests below this sequence number, so they may be
    /// dropped.
    pub acknowledged_below: u64,
    /// Digest of all hashes of the part, in order ([`HashList::digest`]). The same id with other items is
    /// an error of the client.
    pub digest: u64,
    /// First and last hash of the range for which the part was cut, with all of the request's items in it:
    /// the shard's range, one that [`PartError::CutBefore`] reported, or what that leaves of the part.
    pub cut: (u64, u64),
    /// The owner of the session. Sessions are forgotten per owner.
    pub owner: OwnerId,
}

/// The reply of applying a [`ShardCommand`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ShardReply {
    /// For [`ShardCommand::Insert`], [`ShardCommand::InsertTimed`] and [`ShardCommand::InsertAbsent`]: one
    /// answer per part, in order. It has a bit for each item of the part, not only for the proposed ones; one
    /// means that the item was new.
    Inserted(Vec<Result<Bitmap, PartError>>),
    /// For [`ShardCommand::Remove`]: one means that the item was removed, zero that it was certainly
    /// absent.
    Removed(Result<Bitmap, PartError>),
    /// For [`ShardCommand::MergeSlices`] and [`ShardCommand::LoadFrame`]: the number of positions newly
    /// set.
    Merged(Result<u64, PartError>),
    /// For all other commands.
    Done(Result<(), PartError>),
}

impl ShardCommand {
    /// The group and the first hash of the shard that the command splits off, if it does so.
    #[must_use]
    pub const fn splits_off(&self) -> Option<(GroupId, u64)> {
        match *self {
            Self::Split { into, at } => Some((GroupId::of_shard(into), at)),
            Self::SplitAgain { into, at } => Some((into, at)),
            _ => None,
        }
    }

    /// The command that splits a group off at a hash. A group of the first era is named as in clusters of
    /// version 1.
    ///
    /// ```
    /// use umbel_engine::shard::ShardCommand;
    /// use umbel_engine::{GroupId, ShardId};
    ///
    /// let into = GroupId::of_shard(ShardId(4));
    /// let split = ShardCommand::split_off(into, 1 << 63);
    /// assert_eq!(split, ShardCommand::Split { into: ShardId(4), at: 1 << 63 });
    /// assert_eq!(split.splits_off(), Some((into, 1 << 63)));
    /// ```
    #[must_use]
    pub const fn split_off(into: GroupId, at: u64) -> Self {
        match into.shard() {
            Some(shard) if into.era() == 0 => Self::Split { into: shard, at },
            _ => Self::SplitAgain { into, at },
        }
    }

    /// Calls this with each filter whose slice the command may change in place, as often as it names the filter, and
    /// with the hashes of the items if what they change is all that changes. Commands that replace a slice, and those
    /// that change slices of all filters, are none.
    pub(super) fn for_each_changed(&self, mut call: impl FnMut(FilterId, Option<&HashList>)) {
        match self {
            Self::Insert(parts) | Self::InsertAbsent(parts) => {
                parts.iter().for_each(|part| call(part.filter, Some(&part.hashes)));
            }
            Self::InsertTimed { inserts, .. } => {
                let parts = inserts.iter().map(|insert| &insert.part);
                parts.for_each(|part| call(part.filter, Some(&part.hashes)));
            }
            Self::Remove(part) => call(part.filter, Some(&part.hashes)),
            Self::Repair(part) => call(part.filter, None),
            Self::MergeSlices { target: filter, .. }
            | Self::LoadFrame { filter, .. }
            | Self::RotateSlice { filter, .. } => call(*filter, None),
            Self::CreateSlice(_)
            | Self::DropSlice(_)
            | Self::ClearSlice { .. }
            | Self::RenewSlice { .. }
            | Self::Scrub(_)
            | Self::Advance { .. }
            | Self::Split { .. }
            | Self::SplitAgain { .. }
            | Self::Fence { .. }
            | Self::Reopen { .. }
            | Self::Absorb { .. } => {}
        }
    }

    /// Removes all request ids. Only for a planted bug
    /// ([`IdsOnLeaderOnly`](umbel_step::planted::Planted::IdsOnLeaderOnly)).
    pub fn forget_request_ids(&mut self) {
        match self {
            Self::Insert(parts) | Self::InsertAbsent(parts) => {
                parts.iter_mut().for_each(|part| part.request = None);
            }
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
        for insert in [ShardCommand::Insert, ShardCommand::InsertAbsent] {
            let mut command = insert(vec![part(Some(stamp)), part(None)]);
            command.forget_request_ids();
            assert_eq!(command, insert(vec![part(None), part(None)]));
        }
        let mut other = ShardCommand::DropSlice(FilterId(3));
        other.forget_request_ids();
        assert_eq!(other, ShardCommand::DropSlice(FilterId(3)));
    }
}
