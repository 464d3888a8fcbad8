//! Slices that somebody else still reads, copied before an entry changes them.

use std::sync::Arc;

use umbel_filter::{AnyFilter, ItemHash};

use super::command::ShardCommand;
use super::hash_list::HashList;
use super::slice::Slice;
use super::state::ShardState;
use crate::ids::FilterId;

/// The positions of a slice that a snapshot or an export has too.
///
/// ```
/// use umbel_engine::shard::*;
/// use umbel_engine::{FilterId, Generation, ShardId};
/// use umbel_filter::{HashFunction, HashRange, ItemHash, Kind};
///
/// let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
/// let shape = SliceShape::Blocks {
///     kind: Kind::Blocked.id(), block_count: 10, block_bits: 512, probe_count: 6,
/// };
/// let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
/// let spec = SliceSpec { filter: FilterId(1), generation: Generation(1), shape, key };
/// state.apply(&ShardCommand::CreateSlice(spec));
///
/// let hashes = HashList::from_hashes(&[ItemHash::new(1, 2)]);
/// let (filter, generation) = (FilterId(1), Generation(1));
/// let prepared = state.prepare_insert(filter, generation, None, hashes, SliceGrowth::ANY)?;
/// let PreparedInsert::Propose(part) = prepared else { unreachable!("the slice is empty") };
/// let insert = ShardCommand::Insert(vec![part]);
/// assert_eq!(state.shared_slices(&insert).len(), 0);
/// let snapshot = state.snapshot();
/// let copies: Vec<_> = state.shared_slices(&insert).into_iter().map(SharedSlice::copy).collect();
/// assert_eq!(copies.len(), 1);
/// state.take_copies(copies);
/// // What the snapshot has is no longer what the insert changes.
/// assert_eq!(state.shared_slices(&insert).len(), 0);
/// # drop(snapshot);
/// # Ok::<(), PartError>(())
/// ```
#[derive(Debug)]
pub struct SharedSlice {
    filter: FilterId,
    positions: Arc<AnyFilter>,
}

impl SharedSlice {
    /// Copies the positions, which takes as long as copying their memory.
    #[must_use]
    pub fn copy(self) -> CopiedSlice {
        let copy = Arc::new(AnyFilter::clone(&self.positions));
        CopiedSlice { of: self, copy }
    }
}

/// A slice's own copy of positions that it has shared.
#[derive(Debug)]
pub struct CopiedSlice {
    of: SharedSlice,
    copy: Arc<AnyFilter>,
}

impl ShardState {
    /// The slices that applying this command copies first, because somebody else has their positions too.
    /// Whoever applies it under a lock copies them before that, and hands them over with
    /// [`take_copies`](Self::take_copies): the state is the same with and without it. Windows that the time alone
    /// moves on are not among them.
    ///
    /// For readers ([`read_slice`](Self::read_slice)) of a slice this keeps what the command's items would change, or,
    /// if there is no room for that, copies what they have not read yet. So applying it does neither, except for
    /// readers that begin in between. If the command changes more than its items do, they share the slice from now
    /// on. All of that is harmless if the command is not applied.
    #[must_use]
    pub fn shared_slices(&self, command: &ShardCommand) -> Vec<SharedSlice> {
        let mut shared: Vec<SharedSlice> = Vec::new();
        command.for_each_changed(|filter, hashes| {
            let Some(slice) = self.slices.get(&filter) else { return };
            let is_listed = || shared.iter().any(|listed| listed.filter == filter);
            match hashes {
                Some(hashes) => self.keep_for_readers(slice, hashes),
                None => slice.filter.end_logs(),
            }
            if slice.filter.is_shared() && !is_listed() {
                shared.push(SharedSlice { filter, positions: slice.filter.share() });
            }
        });
        shared
    }

    fn keep_for_readers(&self, slice: &Slice, hashes: &HashList) {
        if slice.filter.has_readers() {
            // Those of other shards have no place here; the command is refused for them.
            let (is_whole, range) = (slice.kind().is_whole(), self.range());
            let is_ours = |hash: &ItemHash| is_whole || range.contains(hash.hi());
            slice.filter.keep_for_readers(&hashes.iter().filter(is_ours));
        }
    }

    /// Whether somebody reads ([`read_slice`](Self::read_slice)) a slice that this command changes, so that
    /// [`shared_slices`](Self::shared_slices) may take as long as copying the slice.
    #[must_use]
    pub fn has_readers(&self, command: &ShardCommand) -> bool {
        let mut has_readers = false;
        command.for_each_changed(|filter, _| {
            let slice = self.slices.get(&filter);
            has_readers |= slice.is_some_and(|slice| slice.filter.has_readers());
        });
        has_readers
    }

    /// Gives slices copies of the positions that they share. A slice that has other positions by now keeps them.
    /// Returns what may be dropped when no lock is held: dropping the last use of a large slice takes long, too.
    pub fn take_copies(&mut self, copies: Vec<CopiedSlice>) -> Vec<SharedSlice> {
        let mut released = Vec::with_capacity(copies.len());
        for CopiedSlice { of, copy } in copies {
            if let Some(slice) = self.slices.get_mut(&of.filter) {
                slice.filter.take_copy(&of.positions, copy);
            }
            released.push(of);
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use umbel_filter::Kind;

    use super::super::prepare::{PreparedInsert, SliceGrowth};
    use super::super::shard_test::{FIRST, filter_of, insert_of, list, state};
    use super::super::snapshot_test::load;
    use super::*;

    fn insert_into(state: &ShardState, filter: FilterId) -> ShardCommand {
        let hashes = list(&[1, 2, 3]);
        match state.prepare_insert(filter, FIRST, None, hashes, SliceGrowth::ANY).unwrap() {
            PreparedInsert::Propose(part) => insert_of(state, part),
            other => panic!("{other:?}"),
        }
    }

    fn positions(state: &ShardState, filter: FilterId) -> *const AnyFilter {
        &raw const *state.slices[&filter].filter
    }

    /// The slow twin applies the command while the snapshot has the slice.
    #[test]
    fn a_slice_is_copied_before_a_command_that_then_copies_nothing() {
        for kind in Kind::ALL {
            let filter = filter_of(kind, 0);
            let [mut state, mut twin] = [state(), state()];
            let command = insert_into(&state, filter);
            assert!(state.shared_slices(&command).is_empty());
            let [snapshot, _twins] = [state.snapshot(), twin.snapshot()];
            let digest = state.digest();
            let copies = state.shared_slices(&command).into_iter().map(SharedSlice::copy).collect();
            assert_eq!(state.take_copies(copies).len(), 1, "{kind}");
            let copied = positions(&state, filter);
            assert_eq!(state.apply(&command), twin.apply(&command), "{kind}");
            assert_eq!(positions(&state, filter), copied, "{kind}");
            assert_eq!(state.digest(), twin.digest(), "{kind}");
            assert_eq!(load(&snapshot).unwrap().digest(), digest, "{kind}");
        }
    }

    #[test]
    fn a_command_that_names_a_filter_twice_copies_its_slice_once() {
        let state = state();
        let filter = filter_of(Kind::Blocked, 0);
        let ShardCommand::Insert(mut parts) = insert_into(&state, filter) else {
            unreachable!("it has no window")
        };
        parts.push(parts[0].clone());
        let _snapshot = state.snapshot();
        assert_eq!(state.shared_slices(&ShardCommand::Insert(parts)).len(), 1);
    }

    #[test]
    fn a_copy_of_what_a_slice_no_longer_has_is_left_out() {
        let mut state = state();
        let filter = filter_of(Kind::Blocked, 0);
        let command = insert_into(&state, filter);
        let snapshot = state.snapshot();
        let early = state.shared_slices(&command).into_iter().map(SharedSlice::copy).collect();
        state.apply(&command);
        let digest = state.digest();
        assert_eq!(state.take_copies(early).len(), 1);
        assert_eq!(state.digest(), digest);
        drop(snapshot);
    }
}
