//! Merges whole filters into a copy, and copies into other filters.

use tokio::time::Instant;
use umbel_engine::Generation;
use umbel_filter::AnyFilter;

use super::Copy;
use super::room::room_for;
use crate::cube::{CopyFailure, Result};

impl Copy {
    /// ORs a filter into the copy and returns the number of newly set positions. For a windowed filter,
    /// `newest_slice` is the newest time slice of `other`. The change is sent to other nodes once the
    /// copy was saved.
    pub(in crate::cube) fn absorb(
        &self,
        generation: Generation,
        other: &AnyFilter,
        newest_slice: Option<u64>,
    ) -> Result<u64> {
        let mut state = self.write();
        self.check(&state, generation)?;
        room_for(self.filter, state.replica.filter(), 0)?;
        let absorbed = state.replica.absorb(other, newest_slice);
        let new = absorbed.map_err(|error| CopyFailure::Unmergeable(error.to_string()))?;
        // Counts even if all bits were present: some of them may not be on disk.
        state.merge_count += 1;
        state.absorbed_merge_count = state.merge_count;
        state.waiting_since.get_or_insert_with(Instant::now);
        drop(state);
        self.changed();
        Ok(new)
    }

    /// ORs the copy into another filter.
    ///
    /// # Errors
    /// If the copy is at another generation, or the filters cannot be merged; the other one is as it was.
    pub fn add_to(&self, generation: Generation, other: &mut AnyFilter) -> Result<()> {
        let state = self.read();
        self.check(&state, generation)?;
        let merged = other.merge(state.replica.filter());
        merged.map(|_| ()).map_err(|error| CopyFailure::Unmergeable(error.to_string()))
    }

    /// Whether a filter was absorbed that is not on this node's disk, and no save is running.
    pub(in crate::cube) fn is_left_unsaved(&self) -> bool {
        self.read().is_withheld() && self.saving.try_lock().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::{Distribution, FilterSettings, HashKey};
    use umbel_engine::shard::SliceShape;
    use umbel_engine::{FilterId, GroupId, NodeId};
    use umbel_filter::{Insert, ItemHash, Kind};
    use umbel_replicated_engine::hypercube::{Replica, ReplicaOptions, SampleTable};

    use super::*;
    use crate::cube::copy::CopyState;
    use crate::cube::journal;
    use crate::space::Space;

    /// Other nodes would record the change under a number that another insert gets after a restart.
    #[test]
    fn changes_are_sent_once_they_are_durable() {
        let settings = FilterSettings {
            distribution: Distribution::Replicated,
            kind: Kind::SingleShot.id(),
            capacity: 1_000,
            false_positive_rate: 0.01,
            shape: SliceShape::SingleShot { position_count: 99_500 },
            memory_bytes: 1_100,
            key: HashKey::Xxh3 { seed: 7 },
        };
        let (filter, generation) = (FilterId(12), Generation(1));
        let mut other = settings.shape.create_copy().unwrap();
        let replica = |node| {
            let options = ReplicaOptions {
                node,
                filter,
                generation,
                log: node.0,
                key: settings.frame_key(),
                log_bytes_max: 1 << 20,
                payload_bytes_max: 1 << 20,
            };
            Replica::new(options, settings.shape.create_copy().unwrap()).unwrap()
        };
        let (node, partner) = (NodeId(1), NodeId(2));
        let (journal, _jobs) = journal::queue(10, Space::new(0));
        let parts = (CopyState::new(replica(node), 0, true), SampleTable::new(node));
        let place = (node, filter, GroupId::of_copy(filter).unwrap());
        let copy = Copy::new(place, (settings.clone(), None), parts, journal);
        let question = replica(partner).ask(node);
        assert!(copy.reply(partner, &question, true).unwrap().is_some());

        other.insert(ItemHash::new(1, 2)).unwrap();
        assert_eq!(copy.absorb(generation, &other, None), Ok(1));
        assert_eq!(copy.reply(partner, &question, true), Ok(None));
        assert!(copy.is_left_unsaved());
        let turn = copy.saving.try_lock().unwrap();
        assert!(!copy.is_left_unsaved());
        drop(turn);
        copy.write().saved_merge_count = 1;
        assert!(!copy.is_left_unsaved());
        let (reply, whole) = copy.reply(partner, &question, true).unwrap().unwrap();
        assert_eq!((reply.delta.coverage.complete.of(node), whole), (1, Some(other)));
    }
}
