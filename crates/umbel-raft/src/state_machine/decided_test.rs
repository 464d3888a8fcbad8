//! The final state of an absorbed shard stays until a snapshot covers the entry that absorbed it.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use umbel_engine::shard::{ShardCommand, ShardReply};
use umbel_engine::{Epoch, GroupId, NodeId, ShardId};
use umbel_filter::HashRange;
use umbel_ports::testing::{CountingSeed, MemoryNet};
use umbel_ports::{Net, RealDisk, Seed};
use umbel_storage::identity::Identity;
use umbel_storage::observer::{Event, NodeObserver, Payload};
use umbel_storage::types::{CommandReply, LogCommand, NodeAddress, SnapshotMeta};
use umbel_storage::{FinalStateId, Storage, WalOptions};

use super::write_shard;
use crate::group::Group;
use crate::host::{GroupHost, GroupMemory};
use crate::peer::test_node::{TIMING, identity};

const INTO: GroupId = GroupId::of_shard(ShardId(0));
const UPPER: GroupId = GroupId::of_shard(ShardId(1));
const SPLIT: ShardCommand = ShardCommand::Split { into: ShardId(1), at: 1 << 63 };
const STATE: FinalStateId = FinalStateId { of: UPPER, fence_index: 7 };

/// Longer than a snapshot takes here.
const PATIENCE: Duration = Duration::from_secs(40);

type Dropping = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// Begins to remove final states when the shard has absorbed another one, and nobody knows yet that it has applied
/// that entry: another thread may do so.
#[derive(Default)]
struct EarlyCare {
    group: OnceLock<Arc<Group>>,
    dropping: Mutex<Option<Dropping>>,
}

impl NodeObserver for EarlyCare {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Applied { payload: Payload::Shard(ShardCommand::Absorb { .. }, _), .. } =
            event
        {
            let group = Arc::clone(self.group.get().unwrap());
            let mut dropping: Dropping =
                Box::pin(async move { group.drop_decided(PATIENCE).await });
            let begun = dropping.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(begun.is_pending());
            *self.dropping.lock().unwrap() = Some(dropping);
        }
    }
}

/// The group of a shard whose only replica is on this node.
async fn lone_leader(storage: &Storage) -> Arc<Group> {
    let net: Arc<dyn Net> = Arc::new(MemoryNet::default());
    let seed: Arc<dyn Seed> = Arc::new(CountingSeed::default());
    let memory = GroupMemory { storage: storage.clone(), witness: Arc::default() };
    let started = GroupHost::start(identity(1), TIMING, net, seed, memory, BTreeMap::new(), 0);
    let group = started.await.unwrap().start_shard(INTO, HashRange::WHOLE).await.unwrap();
    let address = NodeAddress("one:1".to_owned());
    group.form(BTreeMap::from([(NodeId(1), address)])).await.unwrap();
    while !group.is_leader() {
        tokio::task::yield_now().await;
    }
    group
}

async fn propose(group: &Group, command: ShardCommand) {
    let reply = group.propose(LogCommand::Shard(command)).await.unwrap();
    assert_eq!(reply, CommandReply::Shard(ShardReply::Done(Ok(()))));
}

#[tokio::test]
async fn a_final_state_stays_until_a_snapshot_covers_its_absorption() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let options = WalOptions::new(Identity::new(1).log_owner());
    let (storage, _) = Storage::open_wrapped(disk, options, None).await.unwrap();
    let care = Arc::<EarlyCare>::default();
    let storage = storage.observed_by(Some(Arc::clone(&care) as _));
    let group = lone_leader(&storage).await;
    assert!(care.group.set(Arc::clone(&group)).is_ok());

    let upper = group.replica().read_shard(|state| state.upper_half(&SPLIT));
    let mut upper = upper.unwrap().unwrap();
    let fence = ShardCommand::Fence { into: INTO, since: Epoch(3) };
    upper.apply_at(STATE.fence_index, &fence);
    propose(&group, SPLIT).await;
    let meta = SnapshotMeta::default();
    let kept = storage.keep_final_state(INTO, STATE, meta, async |writer| {
        write_shard(writer, upper.snapshot()).await
    });
    kept.await.unwrap();
    // The log is purged up to the last entry before the one that absorbs the shard.
    assert!(group.snapshot_and_purge(PATIENCE).await);
    let fence_index = STATE.fence_index;
    propose(&group, ShardCommand::Absorb { from: UPPER, fence_index }).await;
    let absorbed_at = group.applied_index();

    let dropping = care.dropping.lock().unwrap().take();
    dropping.unwrap().await.unwrap();
    assert!(!storage.has_final_state(INTO, STATE));
    let newest = storage.snapshots(INTO).latest().await.unwrap().unwrap();
    assert!(newest.last_index() >= absorbed_at, "{} of {absorbed_at}", newest.last_index());
    group.shut_down().await;
}
