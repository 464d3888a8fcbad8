//! What a leader does with a request before it proposes, and what readers ask.
//!
//! *Left out.* In all kinds but counting, cuckoo and quotient, bits only rise within a generation. So what the leader
//! finds present is present when the entry is applied, on every replica, and need not travel: the
//! answer *present* is safe once the leader has made sure that it still is one. What it finds
//! absent may be present by then; applying tells. (A dropped slice is never created anew: the meta
//! group does not use a filter's number twice.)
//!
//! In a counting, cuckoo or quotient filter every insert counts and removals take it back, so everything is proposed. What a
//! window has is present now; where the last time counts, what an earlier slice has is proposed too. What
//! the newer generation of an aging filter has now stays for as many others as if it came now; what only
//! the older one has is proposed, so that it stays as long. A stable filter counts from the last time
//! that an item came, and every insert lowers others, so everything is proposed.

use super::bitmap::Bitmap;
use super::command::{InsertPart, PartError, RemovePart, RequestStamp};
use super::hash_list::HashList;
use super::replay::{Asked, Operation};
use super::slice::no_removal;
use super::state::{ShardState, check_list};
use crate::ids::{FilterId, Generation};
use umbel_step::planted::{self, Planted};

/// What is left to do for an insert.
#[derive(Clone, PartialEq, Debug)]
pub enum PreparedInsert {
    /// The request came before: this was its answer. Nothing is left to do.
    Answered(Bitmap),
    /// Nothing is new, so nothing is proposed. True as soon as the caller has confirmed that it
    /// still leads, with a state at least as new as when it did.
    AllPresent {
        /// Number of items, all to be answered *present*.
        item_count: u32,
    },
    /// To be proposed.
    Propose(InsertPart),
    /// The slice may have to grow for it, to so many bytes beyond those that it began with, and may not yet: it is to be
    /// allowed first, and the request prepared again. Nothing is proposed.
    Growing {
        /// What is to be allowed.
        growth_bytes: u64,
    },
}

/// How far a slice of a kind that grows may do so for an insert.
///
/// ```
/// use umbel_engine::shard::SliceGrowth;
///
/// assert_eq!(SliceGrowth::ANY.allowed_bytes, u64::MAX);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceGrowth {
    /// Bytes beyond those that it began with.
    pub allowed_bytes: u64,
    /// Whether more was refused already: what has no room then is refused when it is applied.
    pub is_final: bool,
    /// Items for the same filter that are on their way already: they may take the room that there is.
    pub waiting_items: u64,
}

impl SliceGrowth {
    /// As far as slices may.
    pub const ANY: Self = Self { allowed_bytes: u64::MAX, is_final: true, waiting_items: 0 };
}

/// What is left to do for a removal.
#[derive(Clone, PartialEq, Debug)]
pub enum PreparedRemove {
    /// The request came before, or names no items: this is its answer. Nothing is left to do.
    Answered(Bitmap),
    /// To be proposed.
    Propose(RemovePart),
}

impl ShardState {
    /// Answers an insert, or makes the part to be proposed for it.
    ///
    /// # Errors
    /// As applying would refuse it; nothing is to be proposed then.
    pub fn prepare_insert(
        &self,
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
        growth: SliceGrowth,
    ) -> Result<PreparedInsert, PartError> {
        let item_count = check_list(&hashes)?;
        let asked = request.map(|stamp| Asked::new(stamp, Operation::Insert, filter, item_count));
        if let Some(answer) = self.answered(asked.as_ref())? {
            return Ok(PreparedInsert::Answered(answer));
        }
        let slice = self.slice(filter, generation)?;
        let propose = |proposed, hashes: HashList| {
            let growth_bytes = growth.allowed_bytes;
            let items = growth.waiting_items.saturating_add(hashes.len() as u64);
            match slice.growth_with(items).filter(|&bytes| bytes > growth_bytes) {
                Some(growth_bytes) if !growth.is_final => {
                    Ok(PreparedInsert::Growing { growth_bytes })
                }
                _ => Ok(PreparedInsert::Propose(InsertPart {
                    filter,
                    generation,
                    request,
                    proposed,
                    hashes,
                    growth_bytes,
                })),
            }
        };
        let mut items = hashes.to_vec();
        slice.check_hashes(self.range, self.shard, &hashes)?;
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

    /// Answers a removal, or makes the part to be proposed for it.
    ///
    /// # Errors
    /// As applying would refuse it; nothing is to be proposed then.
    pub fn prepare_remove(
        &self,
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
    ) -> Result<PreparedRemove, PartError> {
        let item_count = check_list(&hashes)?;
        let asked = request.map(|stamp| Asked::new(stamp, Operation::Remove, filter, item_count));
        if let Some(answer) = self.answered(asked.as_ref())? {
            return Ok(PreparedRemove::Answered(answer));
        }
        let slice = self.slice(filter, generation)?;
        slice.check_hashes(self.range, self.shard, &hashes)?;
        if !slice.kind().removes() {
            return Err(no_removal(slice.kind()));
        }
        if item_count == 0 {
            return Ok(PreparedRemove::Answered(Bitmap::zeros(0)));
        }
        Ok(PreparedRemove::Propose(RemovePart { filter, generation, request, hashes }))
    }

    /// One answer an item: a one says that it may have been inserted, a zero that it certainly was
    /// not.
    ///
    /// # Errors
    /// If there is no such slice, it is at another generation, or a hash is another shard's.
    pub fn contains(
        &self,
        filter: FilterId,
        generation: Generation,
        hashes: &HashList,
    ) -> Result<Bitmap, PartError> {
        check_list(hashes)?;
        let slice = match self.slices.get(&filter) {
            Some(slice) if planted::on(Planted::FenceSkipped) => slice,
            _ => self.slice(filter, generation)?,
        };
        slice.check_hashes(self.range, self.shard, hashes)?;
        Ok(Bitmap::from_bools(slice.contains(&hashes.to_vec())))
    }

    /// How often each item may be in the slice of a cuckoo filter: as often as it was inserted and not removed, up
    /// to seven times, and with it others of its fingerprint and buckets.
    ///
    /// # Errors
    /// If there is no such slice, it is at another generation or of another kind, or a hash is another shard's.
    pub fn copies(
        &self,
        filter: FilterId,
        generation: Generation,
        hashes: &HashList,
    ) -> Result<Vec<u64>, PartError> {
        check_list(hashes)?;
        let slice = self.slice(filter, generation)?;
        slice.check_hashes(self.range, self.shard, hashes)?;
        slice.copies(hashes)
    }
}
