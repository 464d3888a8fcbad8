//! What a leader does with a request before proposing it, and how queries are answered.
//!
//! *Items left out.* In all kinds but counting, cuckoo and quotient, bits only rise within a generation. An
//! item that the leader finds present is therefore still present when the entry is applied, on every
//! replica, and need not be proposed: the answer *present* is safe once the leader has confirmed its
//! leadership. An item that the leader finds absent may be present by then; applying the entry decides. (A
//! dropped slice is never created again: the meta group never reuses a filter's number.)
//!
//! In a counting, cuckoo or quotient filter every insert counts and a removal undoes one, so every item is
//! proposed. In a window, a found item is present now; if the window counts from an item's last time, an
//! item that only an earlier slice has is proposed again. In an aging filter, an item in the newer
//! generation lives as long as if it were inserted now; an item only in the older generation is proposed,
//! so that it lives as long. A stable filter counts from an item's last insert, and every insert lowers
//! other cells, so every item is proposed.

use super::bitmap::Bitmap;
use super::command::{InsertPart, RemovePart, RequestStamp};
use super::hash_list::HashList;
use super::replay::{Operation, StampedPart};
use super::slice::{Slice, no_removal};
use super::state::{ShardState, check_list};
use crate::ids::{FilterId, Generation};
use crate::shard::PartResult;
use umbel_step::planted::{self, Planted};

/// The outcome of preparing an insert.
#[derive(Clone, PartialEq, Debug)]
pub enum PreparedInsert {
    /// The request is a retry: its recorded answer. Nothing is left to do.
    Answered(Bitmap),
    /// No item is new, so nothing is proposed. The answer is valid once the caller has confirmed that it
    /// still leads, with a state at least as new as at that confirmation.
    AllPresent {
        /// Number of items, all of which are answered *present*.
        item_count: u32,
    },
    /// The part to propose.
    Propose(InsertPart),
    /// The slice may have to grow, to this many bytes beyond its initial size, which is not allowed yet.
    /// Get the growth allowed, then prepare the request again. Nothing is proposed.
    Growing {
        /// Bytes beyond the initial size that must be allowed.
        growth_bytes: u64,
    },
}

/// How far an insert may make a slice of a growing kind grow.
///
/// ```
/// use umbel_engine::shard::SliceGrowth;
///
/// assert_eq!(SliceGrowth::ANY.allowed_bytes, u64::MAX);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceGrowth {
    /// Allowed bytes beyond the slice's initial size.
    pub allowed_bytes: u64,
    /// Whether more was already refused: then items without room are refused when the entry is applied.
    pub is_final: bool,
    /// Items for the same filter that are already in flight: they may use up the free room.
    pub waiting_items: u64,
}

impl SliceGrowth {
    /// No limit but the slice's own.
    pub const ANY: Self = Self { allowed_bytes: u64::MAX, is_final: true, waiting_items: 0 };
}

/// The outcome of preparing a removal.
#[derive(Clone, PartialEq, Debug)]
pub enum PreparedRemove {
    /// The request is a retry or names no items: its answer. Nothing is left to do.
    Answered(Bitmap),
    /// The part to propose.
    Propose(RemovePart),
}

impl Slice {
    /// The part to propose, unless the slice may have to grow further than allowed for so many new items.
    pub(super) fn prepared(
        &self,
        part: InsertPart,
        new_count: u64,
        growth: SliceGrowth,
    ) -> PreparedInsert {
        let items = growth.waiting_items.saturating_add(new_count);
        match self.growth_with(items).filter(|&bytes| bytes > growth.allowed_bytes) {
            Some(growth_bytes) if !growth.is_final => PreparedInsert::Growing { growth_bytes },
            _ => PreparedInsert::Propose(part),
        }
    }
}

impl ShardState {
    /// Answers an insert, or returns the part to propose for it.
    ///
    /// # Errors
    /// If applying would refuse the request. Nothing must be proposed then.
    pub fn prepare_insert(
        &self,
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
        growth: SliceGrowth,
    ) -> PartResult<PreparedInsert> {
        let item_count = check_list(&hashes)?;
        let stamped =
            request.map(|stamp| StampedPart::new(stamp, Operation::Insert, filter, item_count));
        if let Some(answer) = self.answered(stamped.as_ref())? {
            return Ok(PreparedInsert::Answered(answer));
        }
        let slice = self.slice(filter, generation)?;
        let propose = |proposed, hashes: HashList| {
            let (growth_bytes, new_count) = (growth.allowed_bytes, hashes.len() as u64);
            let part = InsertPart { filter, generation, request, proposed, hashes, growth_bytes };
            Ok(slice.prepared(part, new_count, growth))
        };
        let mut items = hashes.to_vec();
        self.check_hashes(slice, &hashes, request)?;
        if items.is_empty() {
            return Ok(PreparedInsert::AllPresent { item_count });
        }
        if slice.kind().counts_every_insert() {
            return propose(Bitmap::ones(item_count), hashes);
        }
        let present = slice.needs_no_insert(&items);
        let absent = Bitmap::from_bools(present.iter().map(|present| !present));
        match absent.count_ones() {
            0 => Ok(PreparedInsert::AllPresent { item_count }),
            count if count == item_count => propose(absent, hashes),
            _ => {
                let mut at = present.into_iter();
                items.retain(|_| at.next() == Some(false));
                propose(absent, HashList::from_hashes(&items))
            }
        }
    }

    /// Answers a removal, or returns the part to propose for it.
    ///
    /// # Errors
    /// If applying would refuse the request. Nothing must be proposed then.
    pub fn prepare_remove(
        &self,
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
    ) -> PartResult<PreparedRemove> {
        let item_count = check_list(&hashes)?;
        let stamped =
            request.map(|stamp| StampedPart::new(stamp, Operation::Remove, filter, item_count));
        if let Some(answer) = self.answered(stamped.as_ref())? {
            return Ok(PreparedRemove::Answered(answer));
        }
        let slice = self.slice(filter, generation)?;
        self.check_hashes(slice, &hashes, request)?;
        if !slice.kind().removes() {
            return Err(no_removal(slice.kind()));
        }
        if item_count == 0 {
            return Ok(PreparedRemove::Answered(Bitmap::zeros(0)));
        }
        Ok(PreparedRemove::Propose(RemovePart { filter, generation, request, hashes }))
    }

    /// One bit per item: one means that it may have been inserted, zero that it certainly was not.
    ///
    /// # Errors
    /// If there is no such slice, it is at another generation, or a hash belongs to another shard.
    pub fn contains(
        &self,
        filter: FilterId,
        generation: Generation,
        hashes: &HashList,
    ) -> PartResult<Bitmap> {
        check_list(hashes)?;
        let slice = match self.slices.get(&filter) {
            Some(slice) if planted::on(Planted::FenceSkipped) => slice,
            _ => self.slice(filter, generation)?,
        };
        slice.check_hashes(self.range, self.shard, hashes)?;
        Ok(Bitmap::from_bools(slice.contains(&hashes.to_vec())))
    }

    /// How often each item may be in the slice of a cuckoo or quotient filter: its inserts minus its removals,
    /// and those of items that it is not told from; at most seven in a cuckoo filter, in a quotient filter as
    /// many as its shape counts.
    ///
    /// # Errors
    /// If there is no such slice, it is at another generation or of another kind, or a hash belongs to
    /// another shard.
    pub fn copies(
        &self,
        filter: FilterId,
        generation: Generation,
        hashes: &HashList,
    ) -> PartResult<Vec<u64>> {
        check_list(hashes)?;
        let slice = self.slice(filter, generation)?;
        slice.check_hashes(self.range, self.shard, hashes)?;
        slice.copies(hashes)
    }
}
