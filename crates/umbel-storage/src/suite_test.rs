//! openraft's own tests of a log store.

use std::io;
use std::sync::{Arc, Mutex};

use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::SnapshotOf;
use openraft::{EntryPayload, OptionalSend, StorageError};
use tokio_stream::{Stream, StreamExt};
use umbel_engine::GroupId;

use super::testing::FaultDisk;
use super::{LogOwner, LogStore, Storage, WalOptions};
use crate::types::{CommandReply, LogId, SnapshotMeta, StoredMembership, Types};

type State = (Option<LogId>, StoredMembership);

/// Remembers the last applied entry and the members.
#[derive(Clone, Default)]
struct Machine {
    state: Arc<Mutex<State>>,
    snapshot: Arc<Mutex<Option<SnapshotMeta>>>,
}

impl RaftSnapshotBuilder<Types> for Machine {
    type SnapshotData = State;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, State>> {
        let state = self.state.lock().unwrap().clone();
        let (last_log_id, last_membership) = state.clone();
        let meta = SnapshotMeta { last_log_id, last_membership };
        *self.snapshot.lock().unwrap() = Some(meta.clone());
        Ok(SnapshotOf::<Types, State> { meta, snapshot: state })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = State;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<State> {
        Ok(self.state.lock().unwrap().clone())
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some(entry) = entries.next().await {
            let (entry, responder) = entry?;
            let mut state = self.state.lock().unwrap();
            state.0 = Some(entry.log_id);
            if let EntryPayload::Membership(members) = entry.payload {
                state.1 = StoredMembership::new(Some(entry.log_id), members);
            }
            if let Some(responder) = responder {
                responder.send(CommandReply::None);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: State) -> io::Result<()> {
        *self.state.lock().unwrap() = snapshot;
        *self.snapshot.lock().unwrap() = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, State>>> {
        let meta = self.snapshot.lock().unwrap().clone();
        Ok(meta.map(|meta| {
            let snapshot = (meta.last_log_id, meta.last_membership.clone());
            SnapshotOf::<Types, State> { meta, snapshot }
        }))
    }
}

struct Builder;

impl StoreBuilder<Types, LogStore, Machine, Storage> for Builder {
    async fn build(&self) -> Result<(Storage, LogStore, Machine), StorageError<Types>> {
        let mut options = WalOptions::new(LogOwner::New { nonce: 1 });
        // Entries leave the cache at once and segments change often, so that all code paths are taken.
        options.segment_bytes_max = 512;
        options.cache_bytes_max = 0;
        let (storage, _) = Storage::open(Arc::new(FaultDisk::new()), options).await.unwrap();
        let log = storage.log(GroupId::META);
        Ok((storage, log, Machine::default()))
    }
}

#[tokio::test(start_paused = true)]
async fn openrafts_suite_passes() {
    Suite::test_all(Builder).await.unwrap();
}
