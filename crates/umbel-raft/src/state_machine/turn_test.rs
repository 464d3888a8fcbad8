//! Other tasks of the runtime get their turn while a long log is applied.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{FutureExt, stream};
use openraft::EntryPayload;
use openraft::storage::RaftStateMachine;
use umbel_engine::{GroupId, ShardId};
use umbel_filter::HashRange;
use umbel_ports::RealDisk;
use umbel_storage::identity::Identity;
use umbel_storage::observer::{Event, NodeObserver};
use umbel_storage::testing::id;
use umbel_storage::types::LogEntry;
use umbel_storage::{Storage, WalOptions};

use super::{GroupReplica, StateMachine, TURN};

/// Entries that are applied in one turn.
const PER_TURN: u32 = 5;

/// Each entry takes a part of a turn, by a clock that nothing else moves.
struct SlowEntries {
    /// How often the other task has run.
    runs: Arc<AtomicU64>,
    /// The same when each entry was applied.
    seen: Mutex<Vec<u64>>,
}

impl NodeObserver for SlowEntries {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Applied { .. }) {
            self.seen.lock().unwrap().push(self.runs.load(Ordering::Relaxed));
            // The clock is moved at the first poll; the rest of it would be a turn for others.
            let is_over = tokio::time::advance(TURN / PER_TURN).now_or_never().is_some();
            assert!(!is_over);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn others_get_their_turn_between_entries_that_are_at_hand() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let options = WalOptions::new(Identity::new(1).log_owner());
    let (storage, _) = Storage::open_wrapped(disk, options, None).await.unwrap();
    let runs = Arc::<AtomicU64>::default();
    let observer = Arc::new(SlowEntries { runs: Arc::clone(&runs), seen: Mutex::default() });
    let storage = storage.observed_by(Some(Arc::clone(&observer) as _));
    let replica = GroupReplica::shard(GroupId::of_shard(ShardId(0)), HashRange::WHOLE);
    let mut machine = StateMachine::open(Arc::new(replica), storage).await.unwrap();
    let other = tokio::spawn(async move {
        loop {
            runs.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let blank = |index| LogEntry { log_id: id(1, index), payload: EntryPayload::Blank };
    let entries = (1..=u64::from(3 * PER_TURN)).map(|index| Ok((blank(index), None)));
    // Unlike that of tokio, this stream is always ready, so that it never ends a turn itself.
    machine.apply(stream::iter(entries)).await.unwrap();
    other.abort();
    let seen = observer.seen.lock().unwrap();
    let turns: Vec<&[u64]> = seen.chunk_by(|before, after| before == after).collect();
    let lengths: Vec<usize> = turns.iter().map(|turn| turn.len()).collect();
    assert_eq!(lengths, [5, 5, 5], "{seen:?}");
}
