//! Changes to a replica's state that are computed while others read it.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel_engine::shard::{CopiedSlice, ShardCommand, ShardReply, ShardState, SharedSlice};
use umbel_ports::run_blocking;
use umbel_storage::types::{CommandReply, LogEntry};

use super::{GroupReplica, GroupState};

/// A split that is being applied, until this is dropped.
pub(super) struct Splitting<'a>(&'a AtomicBool);

impl Drop for Splitting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl GroupReplica {
    /// Begins to apply a split. The group of the upper half can start before this state is cut, and an only replica
    /// elects itself at once: what it has acknowledged since is missing here.
    pub(super) fn begin_split(&self) -> Splitting<'_> {
        self.is_splitting.store(true, Ordering::Release);
        Splitting(&self.is_splitting)
    }

    /// Whether a split is being applied. A linearizable read waits for its end then.
    pub(crate) fn is_splitting(&self) -> bool {
        self.is_splitting.load(Ordering::Acquire)
    }

    /// Applies an entry that cuts or joins all slices of a shard, which may take seconds. The change is made
    /// to a copy, which shares its slices with the state until it has others; then the copy takes the place
    /// of the state, at once. So a reader gets the state before the entry or the one after it, and waits for
    /// neither. Nothing is lost, because nobody else changes the state meanwhile: this has the turn.
    ///
    /// # Panics
    /// If this is the meta group's replica.
    pub(super) fn apply_aside(
        &self,
        entry: &LogEntry,
        change: impl FnOnce(&mut ShardState) -> ShardReply,
    ) -> CommandReply {
        run_blocking(|| {
            let turn = self.turn();
            let mut state = Box::new(self.read_shard(ShardState::clone));
            let reply = change(&mut state);
            let mut inner = self.write(&turn);
            inner.applied = Some(entry.log_id);
            let before = inner.replace_state(GroupState::Shard(state));
            drop(inner);
            // Readers do not wait until the memory of all slices is given back.
            drop(before);
            CommandReply::Shard(reply)
        })
    }

    /// Copies the slices that a command changes and somebody else has too, such as a snapshot that is written, and
    /// keeps what readers of slices need. Otherwise the state would do so when it applies the command, and all who
    /// ask it would wait for that.
    pub(super) fn copy_shared(
        &self,
        _turn: &MutexGuard<'_, ()>,
        command: &ShardCommand,
    ) -> Vec<CopiedSlice> {
        let shared = match &self.read().state {
            // For a reader that is far behind, most of a slice may be copied.
            GroupState::Shard(state) if state.has_readers(command) => {
                run_blocking(|| state.shared_slices(command))
            }
            GroupState::Shard(state) => state.shared_slices(command),
            GroupState::Meta(_) => Vec::new(),
        };
        if shared.is_empty() {
            return Vec::new();
        }
        run_blocking(|| shared.into_iter().map(SharedSlice::copy).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use openraft::EntryPayload;
    use openraft::vote::leader_id_adv::LeaderId;
    use umbel_engine::shard::{
        Bitmap, HashList, KeyName, PreparedInsert, ShardSnapshot, SliceGrowth, SliceShape,
        SliceSpec,
    };
    use umbel_engine::{Epoch, FilterId, Generation, GroupId, NodeId, ShardId};
    use umbel_filter::{HashFunction, HashRange, ItemHash, Kind};
    use umbel_storage::types::{LogCommand, LogId};

    use super::super::Copied;
    use super::*;

    const SPLIT: ShardCommand = ShardCommand::Split { into: ShardId(1), at: 1 << 63 };

    fn entry(index: u64, command: ShardCommand) -> LogEntry {
        let leader_id = LeaderId { term: 1, node_id: NodeId(1) };
        LogEntry {
            log_id: LogId { leader_id, index },
            payload: EntryPayload::Normal(LogCommand::Shard(command)),
        }
    }

    /// What a reader gets who does not wait: the index of the last entry, and the range of the state. None
    /// if it would have to wait.
    fn read_at_once(replica: &GroupReplica) -> Option<(u64, HashRange)> {
        let inner = replica.inner.try_read().ok()?;
        let GroupState::Shard(state) = &inner.state else { unreachable!("it is a shard's") };
        Some((inner.applied.map_or(0, |id| id.index), state.range()))
    }

    #[tokio::test]
    async fn a_shard_is_read_while_it_is_split_or_absorbs_another_one() {
        let [into, from] = [0, 1].map(|shard| GroupId::of_shard(ShardId(shard)));
        let replica = GroupReplica::shard(into, HashRange::WHOLE);
        let mut upper = replica
            .read_shard(|state| state.upper_half(&SPLIT))
            .expect("it can be split")
            .expect("it was not split before");
        upper.apply_at(7, &ShardCommand::Fence { into, since: Epoch(3) });
        let lower = HashRange::new(0, 1 << 63).expect("it is not empty");

        let splitting = replica.begin_split();
        replica.apply_aside(&entry(8, SPLIT), |state| {
            let reply = state.apply_at(8, &SPLIT);
            assert_eq!(read_at_once(&replica), Some((0, HashRange::WHOLE)));
            assert!(replica.is_splitting());
            reply
        });
        assert_eq!(read_at_once(&replica), Some((8, lower)));
        drop(splitting);
        assert!(!replica.is_splitting());

        let absorb = ShardCommand::Absorb { from, fence_index: 7 };
        replica.apply_aside(&entry(9, absorb), |state| {
            let reply = state.absorb(9, from, upper);
            assert_eq!(read_at_once(&replica), Some((8, lower)));
            reply
        });
        assert_eq!(read_at_once(&replica), Some((9, HashRange::WHOLE)));
    }

    /// A replica with a filter, and an entry that inserts an item.
    fn replica_and_insert() -> (Arc<GroupReplica>, LogEntry) {
        let replica =
            Arc::new(GroupReplica::shard(GroupId::of_shard(ShardId(0)), HashRange::WHOLE));
        let shape = SliceShape::Blocks {
            kind: Kind::Blocked.id(),
            block_count: 10,
            block_bits: 512,
            probe_count: 6,
        };
        let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
        let (filter, generation) = (FilterId(1), Generation(1));
        let spec = SliceSpec { filter, generation, shape, key };
        replica.apply(&entry(1, ShardCommand::CreateSlice(spec)));
        let hashes = HashList::from_hashes(&[ItemHash::new(1, 2)]);
        let prepared = replica.read_shard(|state| {
            state.prepare_insert(filter, generation, None, hashes, SliceGrowth::ANY)
        });
        let Ok(PreparedInsert::Propose(part)) = prepared else { panic!("{prepared:?}") };
        (replica, entry(2, ShardCommand::Insert(vec![part])))
    }

    fn command_of(entry: &LogEntry) -> &ShardCommand {
        match &entry.payload {
            EntryPayload::Normal(LogCommand::Shard(command)) => command,
            other => panic!("{other:?}"),
        }
    }

    /// A slice that is shared as long as the snapshot is there.
    #[tokio::test]
    async fn what_a_snapshot_has_too_is_copied_before_readers_are_kept_out() {
        let (replica, insert) = replica_and_insert();
        let snapshot = replica.read_shard(ShardState::snapshot);
        assert_eq!(replica.copy_shared(&replica.turn(), command_of(&insert)).len(), 1);
        let reply = replica.apply(&insert);
        assert_eq!(reply, CommandReply::Shard(ShardReply::Inserted(vec![Ok(Bitmap::ones(1))])));
        // The slice has positions of its own now.
        assert!(replica.copy_shared(&replica.turn(), command_of(&insert)).is_empty());
        drop(snapshot);
    }

    #[tokio::test]
    async fn a_snapshot_that_is_built_reads_the_replica_without_a_copy_of_it() {
        let (replica, insert) = replica_and_insert();
        let frames = |snapshot: &ShardSnapshot| {
            snapshot.frames().collect::<Result<Vec<_>, _>>().expect("the replica is there")
        };
        let before = frames(&replica.read_shard(ShardState::snapshot));
        let (_, Copied::Shard(snapshot)) = replica.copy() else { panic!("it is a shard's") };
        assert!(replica.copy_shared(&replica.turn(), command_of(&insert)).is_empty());
        replica.apply(&insert);
        assert_eq!(frames(&snapshot), before);
        // Of a state in whose place another one is, it has the slices.
        let before = frames(&replica.read_shard(ShardState::snapshot));
        let (_, Copied::Shard(snapshot)) = replica.copy() else { panic!("it is a shard's") };
        replica.apply_aside(&entry(3, SPLIT), |state| state.apply_at(3, &SPLIT));
        assert_eq!(frames(&snapshot), before);
    }

    #[tokio::test]
    async fn nobody_else_changes_a_state_that_is_computed_aside() {
        let group = GroupId::of_shard(ShardId(0));
        let replica = GroupReplica::shard(group, HashRange::WHOLE);
        replica.apply_aside(&entry(8, SPLIT), |state| {
            assert!(replica.turn.try_lock().is_err());
            state.apply_at(8, &SPLIT)
        });
        assert!(replica.turn.try_lock().is_ok());
    }
}
