//! Calls from other replicas of the group. A vote with a term that no election can have reached is
//! refused before openraft learns of it.

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse};
use openraft::storage::Snapshot;
use umbel_storage::SnapshotFile;
use umbel_storage::types::{Types, Vote};

use super::Group;
use crate::raft::network::SnapshotReceiver;
use crate::raft::network::terms::{check_entries, check_vote};

impl Group {
    pub(crate) async fn append(
        &self,
        request: AppendEntriesRequest<Types>,
    ) -> Result<AppendEntriesResponse<Types>, String> {
        self.check_term(&request.vote)?;
        check_entries(&request.vote, &request.entries).map_err(|error| error.to_string())?;
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

    /// Checks that a vote's term is one that an election can have reached.
    pub(super) fn check_term(&self, vote: &Vote) -> Result<(), String> {
        check_vote(self.term(), vote).map_err(|error| error.to_string())
    }

    /// The receiver of snapshots that other replicas send to this one.
    pub(crate) fn incoming_snapshots(&self) -> &SnapshotReceiver {
        &self.incoming
    }

    pub(crate) async fn install(
        &self,
        vote: Vote,
        file: SnapshotFile,
    ) -> Result<SnapshotResponse<Types>, String> {
        self.check_term(&vote)?;
        let snapshot = Snapshot { meta: file.meta().clone(), snapshot: file };
        self.raft.install_full_snapshot(vote, snapshot).await.map_err(|error| error.to_string())
    }
}
