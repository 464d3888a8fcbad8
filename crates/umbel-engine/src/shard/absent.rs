//! Inserts of items that are absent alone, into filters that tell copies: there any other insert adds a copy of an item
//! that is present. Whether an item is present is decided where the entry is applied, so that one of several clients
//! inserts it, whichever nodes they ask.

use umbel_filter::{Contains, Insertion, ItemHash};
use umbel_step::planted::{self, Planted};

use super::bitmap::Bitmap;
use super::command::{InsertPart, RequestStamp};
use super::hash_list::HashList;
use super::part_error::PartError;
use super::prepare::{PreparedInsert, SliceGrowth};
use super::slice::Slice;
use super::state::{ShardState, check_list};
use crate::ids::{FilterId, Generation};
use crate::shard::PartResult;

impl Slice {
    /// Inserts those hashes of the shard's range that are absent when their turn comes, and returns one outcome for
    /// each. All or none, as other inserts into these kinds.
    fn insert_absent(
        &mut self,
        hashes: &[ItemHash],
        growth_bytes: u64,
    ) -> PartResult<Vec<Insertion>> {
        self.check_tells_copies()?;
        let mut outcomes = Vec::with_capacity(hashes.len());
        let mut new: Vec<ItemHash> = Vec::new();
        for &hash in hashes {
            if self.filter.contains(hash) && !planted::on(Planted::AbsentIsNotLookedFor) {
                outcomes.push(Insertion::Present);
                continue;
            }
            if let Err(error) = self.insert(&[hash], growth_bytes) {
                // Each was absent, so it has one copy, which goes.
                self.remove(new.iter().copied())?;
                self.new_count -= new.len() as u64;
                return Err(error);
            }
            outcomes.push(Insertion::New);
            new.push(hash);
        }
        Ok(outcomes)
    }

    fn check_tells_copies(&self) -> PartResult<()> {
        let kind = self.kind();
        if kind.tells_copies() {
            return Ok(());
        }
        let what = format!(
            "only cuckoo and quotient filters take an item if it is absent, and this is a {kind} filter"
        );
        Err(PartError::WrongKind { what })
    }
}

impl ShardState {
    pub(super) fn insert_absent(&mut self, part: &InsertPart) -> PartResult<Bitmap> {
        self.insert_by(part, |slice, hashes| slice.insert_absent(hashes, part.growth_bytes))
    }

    /// Answers an insert of items that are absent, or returns the part to propose for it. Items can be removed, so
    /// *all present* is only true of a state that is at least as new as a confirmation of the leader: whoever gets
    /// this answer confirms that it leads, and prepares the request once more.
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
        let prepared = self.prepare_insert(filter, generation, request, hashes.clone(), growth)?;
        if matches!(prepared, PreparedInsert::Answered(_)) {
            return Ok(prepared);
        }
        let slice = self.slice(filter, generation)?;
        slice.check_tells_copies()?;
        // A slice without room is not asked to grow for items that it has.
        let is_all_present = slice.contains(&hashes.to_vec()).into_iter().all(|present| present);
        Ok(if is_all_present { PreparedInsert::AllPresent { item_count } } else { prepared })
    }
}
