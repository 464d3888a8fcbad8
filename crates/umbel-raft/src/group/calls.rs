//! Calls from other replicas of the group. A vote with a term that no election can have reached, an entry
//! with an index that no log reaches, and a snapshot that ends where none can, are refused before openraft
//! learns of them.

use std::io;
use std::time::Duration;

use openraft::EntryPayload;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse};
use openraft::storage::Snapshot;
use openraft_rt::WatchReceiver;
use umbel_engine::GroupId;
use umbel_engine::shard::ShardCommand;
use umbel_ports::locked;
use umbel_step::planted::{self, Planted};
use umbel_storage::types::{LogCommand, LogEntry, Types, Vote};
use umbel_storage::{FinalStateId, SnapshotFile};

use super::Group;
use crate::network::SnapshotReceiver;
use crate::network::terms::{check_entries, check_indices, check_snapshot, check_vote};

impl Group {
    pub(crate) async fn append(
        &self,
        request: AppendEntriesRequest<Types>,
    ) -> Result<AppendEntriesResponse<Types>, String> {
        self.check_term(&request.vote)?;
        check_entries(&request.vote, &request.entries).map_err(|error| error.to_string())?;
        let ids = request.entries.iter().map(|entry| entry.log_id);
        let ids = ids.chain(request.prev_log_id).chain(request.leader_commit);
        check_indices(ids).map_err(|error| error.to_string())?;
        self.check_absorbable(&request.entries)?;
        self.raft.append_entries(request).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn transfer_leader(
        &self,
        request: openraft::raft::TransferLeaderRequest<Types>,
    ) -> Result<openraft::raft::TransferLeaderResponse<Types>, String> {
        self.check_term(request.from_leader())?;
        self.check_caught_up(None)?;
        self.raft.handle_transfer_leader(request).await.map_err(|error| error.to_string())
    }

    /// Refuses an entry that absorbs a shard whose final state this node does not have: this replica could
    /// not apply it. A leader that has applied such an entry purges its log up to it, and then sends a
    /// snapshot instead.
    fn check_absorbable(&self, entries: &[LogEntry]) -> Result<(), String> {
        for entry in entries {
            let EntryPayload::Normal(LogCommand::Shard(command)) = &entry.payload else { continue };
            if let ShardCommand::Absorb { from, fence_index } = *command
                && !self.can_absorb(from, fence_index)
                && !planted::on(Planted::AbsorbUnready)
            {
                return Err(format!("{} lacks the final state of {from}", self.id));
            }
        }
        Ok(())
    }

    /// Whether this replica has the final state of a shard, or needs it no more.
    pub fn can_absorb(&self, from: GroupId, fence_index: u64) -> bool {
        let id = FinalStateId { of: from, fence_index };
        self.storage.has_final_state(self.id, id)
            || self.replica.read_shard(|state| state.has_decided(from, fence_index))
    }

    /// Removes the final states about which this replica has decided, once a snapshot of its own covers that
    /// and its log is purged. Does nothing if that takes longer than `timeout`.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn drop_decided(&self, timeout: Duration) -> io::Result<()> {
        let states = self.storage.final_states(self.id);
        let is_decided = |id: &FinalStateId| {
            self.replica.read_shard(|state| state.has_decided(id.of, id.fence_index))
        };
        let decided: Vec<FinalStateId> = states.into_iter().filter(is_decided).collect();
        // The same aim for each call: a snapshot that takes longer than the timeout counts for the next one.
        let aim = {
            // That of the state which has decided. Those who watch the index are told later: a snapshot up to the index
            // that they know may lack the decision.
            let applied = self.replica.read_shard_at(|index, _| index);
            let mut aims = locked(&self.decided_at);
            aims.retain(|id, _| decided.contains(id));
            decided.iter().map(|&id| *aims.entry(id).or_insert(applied)).max()
        };
        let Some(aim) = aim else { return Ok(()) };
        let is_early = planted::on(Planted::FinalStateDropped);
        if !is_early && !self.snapshot_and_purge_to(aim, timeout).await {
            return Ok(());
        }
        for id in decided {
            self.storage.drop_final_state(self.id, id).await?;
        }
        Ok(())
    }

    /// Checks that a vote's term is one that an election can have reached.
    pub(super) fn check_term(&self, vote: &Vote) -> Result<(), String> {
        check_vote(self.term(), vote).map_err(|error| error.to_string())
    }

    /// Drops incoming snapshots that their senders do not continue. To be called now and then.
    pub fn drop_idle_snapshots(&self) {
        self.incoming.drop_idle();
    }

    /// The receiver of snapshots that other replicas send to this one.
    pub(crate) fn incoming_snapshots(&self) -> &SnapshotReceiver {
        &self.incoming
    }

    /// Installs a snapshot that the leader with this vote has sent.
    pub(crate) async fn install(
        &self,
        vote: Vote,
        file: SnapshotFile,
    ) -> Result<SnapshotResponse<Types>, String> {
        self.check_term(&vote)?;
        let committed = self.raft.metrics().borrow_watched().local_committed;
        let checked = check_snapshot(&vote, file.meta().last_log_id, committed);
        checked.map_err(|error| error.to_string())?;
        let snapshot = Snapshot { meta: file.meta().clone(), snapshot: file };
        self.raft.install_full_snapshot(vote, snapshot).await.map_err(|error| error.to_string())
    }
}
