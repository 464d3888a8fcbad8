//! openraft's own tests of a log store.
//!
//! They want node ids that come from numbers, which ours do not. So they run with plain numbers:
//! both are encoded alike, and every value goes through its bytes on its way to the log.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};

use openraft::storage::{
    EntryResponder, IOFlushed, LogState, RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine,
};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{
    EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf,
};
use openraft::{EntryPayload, OptionalSend, RaftLogReader, StorageError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_stream::{Stream, StreamExt};
use umbel_engine::GroupId;

use super::fault_disk::FaultDisk;
use super::{LogOwner, LogStore, Storage, WalOptions};
use crate::raft::encoding::{decode, encode};
use crate::raft::types::{Command, NodeAddress, Reply, Types};

openraft::declare_raft_types!(
    Plain:
        D = Command,
        R = Reply,
        NodeId = u64,
        Node = NodeAddress,
);

/// The same value in the other configuration.
fn recast<T: Serialize, U: DeserializeOwned>(value: &T) -> U {
    decode(&encode(value)).unwrap()
}

#[derive(Clone)]
struct PlainLog(LogStore);

impl RaftLogReader<Plain> for PlainLog {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<EntryOf<Plain>>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let entries = self.0.try_get_log_entries(range.clone()).await?;
        let stream = self.0.entries_stream(range).await;
        let streamed: Vec<_> = stream.map(Result::unwrap).collect().await;
        assert_eq!(streamed, entries);
        Ok(entries.iter().map(recast).collect())
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> io::Result<Vec<EntryOf<Plain>>> {
        let entries = self.0.limited_get_log_entries(start, end).await?;
        Ok(entries.iter().map(recast).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<Plain>>> {
        Ok(recast(&self.0.read_vote().await?))
    }

    async fn get_key_log_ids(
        &mut self,
        range: std::ops::RangeInclusive<LogIdOf<Plain>>,
    ) -> io::Result<Vec<LogIdOf<Plain>>> {
        let (from, through) = (recast(range.start()), recast(range.end()));
        Ok(recast(&self.0.get_key_log_ids(from..=through).await?))
    }
}

impl RaftLogStorage<Plain> for PlainLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Plain>> {
        let state = self.0.get_log_state().await?;
        Ok(LogState {
            last_purged_log_id: recast(&state.last_purged_log_id),
            last_log_id: recast(&state.last_log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<Plain>) -> io::Result<()> {
        self.0.save_vote(&recast(vote)).await
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<Plain>>) -> io::Result<()> {
        self.0.save_committed(recast(&committed)).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<Plain>>> {
        Ok(recast(&self.0.read_committed().await?))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Plain>) -> io::Result<()>
    where
        I: IntoIterator<Item = EntryOf<Plain>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<_> = entries.into_iter().map(|entry| recast(&entry)).collect();
        let (sender, receiver) = <Types as TypeConfigExt>::oneshot();
        self.0.append(entries, IOFlushed::signal(sender)).await?;
        callback.io_completed(receiver.await.unwrap());
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<Plain>>) -> io::Result<()> {
        self.0.truncate_after(recast(&last_log_id)).await
    }

    async fn purge(&mut self, log_id: LogIdOf<Plain>) -> io::Result<()> {
        self.0.purge(recast(&log_id)).await
    }
}

type State = (Option<LogIdOf<Plain>>, StoredMembershipOf<Plain>);

/// Knows what was applied last, and the members.
#[derive(Clone, Default)]
struct Machine {
    state: Arc<Mutex<State>>,
    snapshot: Arc<Mutex<Option<SnapshotMetaOf<Plain>>>>,
}

impl RaftSnapshotBuilder<Plain> for Machine {
    type SnapshotData = State;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Plain, State>> {
        let state = self.state.lock().unwrap().clone();
        let (last_log_id, last_membership) = state.clone();
        let meta = SnapshotMetaOf::<Plain> { last_log_id, last_membership };
        *self.snapshot.lock().unwrap() = Some(meta.clone());
        Ok(SnapshotOf::<Plain, State> { meta, snapshot: state })
    }
}

impl RaftStateMachine<Plain> for Machine {
    type SnapshotData = State;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<State> {
        Ok(self.state.lock().unwrap().clone())
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Plain>>> + Unpin + OptionalSend,
    {
        while let Some(entry) = entries.next().await {
            let (entry, responder) = entry?;
            let mut state = self.state.lock().unwrap();
            state.0 = Some(entry.log_id);
            if let EntryPayload::Membership(members) = entry.payload {
                state.1 = StoredMembershipOf::<Plain>::new(Some(entry.log_id), members);
            }
            if let Some(responder) = responder {
                responder.send(Reply::None);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Plain>,
        snapshot: State,
    ) -> io::Result<()> {
        *self.state.lock().unwrap() = snapshot;
        *self.snapshot.lock().unwrap() = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Plain, State>>> {
        let meta = self.snapshot.lock().unwrap().clone();
        Ok(meta.map(|meta| {
            let snapshot = (meta.last_log_id, meta.last_membership.clone());
            SnapshotOf::<Plain, State> { meta, snapshot }
        }))
    }
}

struct Builder;

impl StoreBuilder<Plain, PlainLog, Machine, Storage> for Builder {
    async fn build(&self) -> Result<(Storage, PlainLog, Machine), StorageError<Plain>> {
        let mut options = WalOptions::new(LogOwner::New { nonce: 1 });
        // Entries leave the cache at once and segments change often, so that all paths are taken.
        options.segment_bytes_max = 512;
        options.cache_bytes_max = 0;
        let (storage, _) = Storage::open(Arc::new(FaultDisk::new()), options).await.unwrap();
        let log = PlainLog(storage.log(GroupId::META));
        Ok((storage, log, Machine::default()))
    }
}

#[tokio::test(start_paused = true)]
async fn openrafts_suite_passes() {
    Suite::test_all(Builder).await.unwrap();
}
