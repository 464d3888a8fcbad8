//! Inserts of items that are absent alone, into filters that tell copies: there any other insert adds a copy of an item
//! that is present. Whether an item is present is decided where the entry is applied, so that one of several clients
//! inserts it, whichever nodes they ask.

use std::collections::BTreeSet;

use umbel_filter::{AnyFilter, Contains, Insertion, ItemHash};
use umbel_step::planted::{self, Planted};

use super::bitmap::Bitmap;
use super::command::{InsertPart, RequestStamp};
use super::hash_list::HashList;
use super::part_error::PartError;
use super::prepare::{PreparedInsert, SliceGrowth};
use super::replay::{Operation, StampedPart};
use super::slice::Slice;
use super::state::{ShardState, check_list};
use crate::ids::{FilterId, Generation};
use crate::shard::PartResult;

impl Slice {
    /// Inserts those hashes of the shard's range that are absent when their turn comes, and returns one outcome for
    /// each. All or none, as other inserts into these kinds: if it is refused, the slice has not grown either.
    fn insert_absent(
        &mut self,
        hashes: &[ItemHash],
        growth_bytes: u64,
    ) -> PartResult<Vec<Insertion>> {
        let absent = if planted::on(Planted::AbsentIsNotLookedFor) {
            vec![true; hashes.len()]
        } else {
            self.absent(hashes)?
        };
        let looked = hashes.iter().zip(&absent);
        let new: Vec<ItemHash> =
            looked.filter(|&(_, &is_absent)| is_absent).map(|(&hash, _)| hash).collect();
        if !new.is_empty() {
            self.insert(&new, growth_bytes)?;
        }
        let outcome = |is_new| if is_new { Insertion::New } else { Insertion::Present };
        Ok(absent.into_iter().map(outcome).collect())
    }

    /// Which of the hashes are absent; of those that the filter does not tell apart, the first, because the others find
    /// it then. Only for kinds that tell copies.
    fn absent(&self, hashes: &[ItemHash]) -> PartResult<Vec<bool>> {
        match &*self.filter {
            AnyFilter::Cuckoo(filter) => {
                Ok(absent_in(filter, hashes, |hash| filter.bucket_and_fingerprint(hash)))
            }
            AnyFilter::Quotient(filter) => {
                Ok(absent_in(filter, hashes, |hash| filter.position(hash)))
            }
            filter => {
                let kind = filter.kind();
                let what = format!(
                    "only cuckoo and quotient filters take an item if it is absent, and this is a {kind} filter"
                );
                Err(PartError::WrongKind { what })
            }
        }
    }
}

/// Which of the hashes are absent; of those with the same `place`, the first.
fn absent_in<P: Ord>(
    filter: &impl Contains,
    hashes: &[ItemHash],
    place: impl Fn(ItemHash) -> P,
) -> Vec<bool> {
    let mut present = Vec::with_capacity(hashes.len());
    filter.contains_batch(hashes, &mut present);
    let mut places = BTreeSet::new();
    let looked = hashes.iter().zip(present);
    looked.map(|(&hash, is_present)| !is_present && places.insert(place(hash))).collect()
}

impl ShardState {
    pub(super) fn insert_absent(&mut self, part: &InsertPart) -> PartResult<Bitmap> {
        self.insert_by(part, |slice, hashes| slice.insert_absent(hashes, part.growth_bytes))
    }

    /// Answers an insert of items that are absent, or returns the part to propose for it. Items can be removed, so
    /// *all present* is only true of a state that is at least as new as a confirmation of the leader: whoever gets
    /// this answer confirms that it leads, and prepares the request once more. A part to propose has all items, for
    /// the same reason, and a slice grows for those that are absent alone.
    ///
    /// # Errors
    /// If applying would refuse the request. Nothing must be proposed then.
    pub fn prepare_insert_absent(
        &self,
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: &HashList,
        growth: SliceGrowth,
    ) -> PartResult<PreparedInsert> {
        let item_count = check_list(hashes)?;
        let stamped =
            request.map(|stamp| StampedPart::new(stamp, Operation::Insert, filter, item_count));
        if let Some(answer) = self.answered(stamped.as_ref())? {
            return Ok(PreparedInsert::Answered(answer));
        }
        let slice = self.slice(filter, generation)?;
        self.check_hashes(slice, hashes, request)?;
        let absent = slice.absent(&hashes.to_vec())?;
        let absent_count = absent.into_iter().filter(|&is_absent| is_absent).count() as u64;
        if absent_count == 0 {
            return Ok(PreparedInsert::AllPresent { item_count });
        }
        let part = InsertPart {
            filter,
            generation,
            request,
            proposed: Bitmap::ones(item_count),
            hashes: hashes.clone(),
            growth_bytes: growth.allowed_bytes,
        };
        Ok(slice.prepared(part, absent_count, growth))
    }
}
