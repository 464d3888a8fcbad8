//! What a replica does on its disk when shards are split and merged.

use std::io;

use openraft::EntryPayload;
use openraft::vote::leader_id_adv::LeaderId;
use umbel_engine::shard::{Fence, ShardCommand, ShardState};
use umbel_engine::{GroupId, NodeId};
use umbel_ports::run_blocking;
use umbel_storage::FinalStateId;
use umbel_storage::types::{
    CommandReply, LogCommand, LogEntry, LogId, SnapshotMeta, StoredMembership,
};

use super::{GroupState, StateMachine, invalid, load_shard, write_shard};

impl StateMachine {
    /// Prepares on this node's disk what an entry needs, and applies it.
    pub(super) async fn prepare_and_apply(&self, entry: &LogEntry) -> io::Result<CommandReply> {
        if let EntryPayload::Normal(LogCommand::Shard(command)) = &entry.payload {
            let index = entry.log_id.index;
            match *command {
                ShardCommand::Split { .. } | ShardCommand::SplitAgain { .. } => {
                    let _splitting = self.replica.begin_split();
                    self.begin_upper_half(command).await?;
                    let split = |state: &mut ShardState| state.apply_at(index, command);
                    return Ok(self.replica.apply_aside(entry, split));
                }
                ShardCommand::Fence { .. } => self.keep_final_state_of(entry, command).await?,
                ShardCommand::Absorb { from, fence_index } => {
                    let is_decided = |state: &ShardState| state.has_decided(from, fence_index);
                    if !self.replica.read_shard(is_decided) {
                        let upper = self.final_state(from, fence_index).await?;
                        let absorb = |state: &mut ShardState| state.absorb(index, from, upper);
                        return Ok(self.replica.apply_aside(entry, absorb));
                    }
                }
                _ => {}
            }
        }
        Ok(self.replica.apply(entry))
    }

    /// If the command splits this shard, writes a first snapshot of the upper half to this node's disk,
    /// where the new shard's group finds it. This comes before the split is applied: otherwise a
    /// snapshot of this shard could record the split while the upper half exists nowhere.
    async fn begin_upper_half(&self, command: &ShardCommand) -> io::Result<()> {
        let Some((group, _)) = command.splits_off() else { return Ok(()) };
        // A split that will be refused changes nothing.
        let state = self.replica.read_shard(ShardState::clone);
        let upper = run_blocking(move || state.upper_half(command));
        let Ok(Some(upper)) = upper else { return Ok(()) };
        // The same log position as if this group's members had formed the new group.
        let (leader_id, index) = (LeaderId { term: 0, node_id: NodeId(0) }, 0);
        let first = LogId { leader_id, index };
        let members = self.replica.read().membership.membership().clone();
        let last_membership = StoredMembership::new(Some(first), members);
        let meta = SnapshotMeta { last_log_id: Some(first), last_membership };
        let snapshot = upper.snapshot();
        // Each slice goes when it is on the disk.
        drop(upper);
        self.storage
            .begin_group(group, meta, async |writer| write_shard(writer, snapshot).await)
            .await
    }

    /// If the command ends this shard, keeps the state after it for the group that absorbs it. This comes
    /// before the command is applied: a replica that has applied it has kept the state.
    async fn keep_final_state_of(
        &self,
        entry: &LogEntry,
        command: &ShardCommand,
    ) -> io::Result<()> {
        let index = entry.log_id.index;
        match self.replica.read_shard(|state| state.ended(index, command)) {
            Some(ended) => self.keep_final_state(ended).await,
            None => Ok(()),
        }
    }

    /// Keeps the state of this shard, if it has ended. A replica that was sent a snapshot of it never
    /// applies the entry that ended it.
    pub(super) async fn keep_ended_state(&self) -> io::Result<()> {
        let ended = match &self.replica.read().state {
            GroupState::Shard(state) if state.fence().is_some() => state.clone(),
            _ => return Ok(()),
        };
        self.keep_final_state(*ended).await
    }

    async fn keep_final_state(&self, ended: ShardState) -> io::Result<()> {
        let Some(Fence { into, index, .. }) = ended.fence() else { return Ok(()) };
        let id = FinalStateId { of: self.replica.group, fence_index: index };
        let meta = self.replica.read().position();
        let snapshot = ended.snapshot();
        self.storage
            .keep_final_state(into, id, meta, async |writer| write_shard(writer, snapshot).await)
            .await
    }

    /// Reads the final state of a shard that this one absorbs.
    async fn final_state(&self, of: GroupId, fence_index: u64) -> io::Result<ShardState> {
        let shard = of.shard().ok_or_else(|| invalid(format!("{of} is no shard")))?;
        let file =
            self.storage.final_state(self.replica.group, FinalStateId { of, fence_index }).await?;
        let above = self.replica.read_shard(|state| state.range_above(self.replica.first_range));
        let range = above.ok_or_else(|| {
            invalid(format!("{} absorbs {of}, but has all of its range", self.replica.group))
        })?;
        load_shard(&file, shard, range).await
    }
}
