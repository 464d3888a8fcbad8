//! Exports of a node: how long they are kept, and how many there may be.

use std::time::Duration;

use tokio::sync::RwLock;
use tokio::time::{advance, sleep, timeout};
use umbel_engine::ShardId;
use umbel_engine::shard::{KeyName, ShardCommand, ShardState, SliceShape, SliceSpec};
use umbel_filter::{CellCount, HashFunction, HashRange, Kind};

use super::*;
use crate::limits::FILTER_SNAPSHOT_HOLD_MAX;

const FILTER: FilterId = FilterId(1);
const COPIED: Copied = Copied { filter: FILTER, generation: Generation(1), written_index: 7 };

/// A copy of a slice of 2.4 MB, which is cut into several frames.
fn copy() -> SliceCopy {
    let one = CellCount::new(1).unwrap();
    let shape = SliceShape::plan(Kind::Blocked, 1_500_000, 0.01, one).unwrap();
    let key = KeyName { function: HashFunction::Xxh3Seeded.id(), key_id: 7 };
    let spec = SliceSpec { filter: FILTER, generation: Generation(1), shape, key };
    let mut state = ShardState::new(ShardId(0), HashRange::WHOLE);
    state.apply(&ShardCommand::CreateSlice(spec));
    state.snapshot().take_slice().unwrap()
}

/// Begins an export of a snapshot, which holds writes.
async fn begin(
    exports: &Arc<Exports>,
    snapshot: FilterSnapshotId,
    writes: &Arc<RwLock<()>>,
) -> Result<u64, ShardFailure> {
    let arriving = exports.arrive(snapshot)?;
    let writes = Arc::clone(writes).write_owned().await;
    let until = Instant::now() + FILTER_SNAPSHOT_HOLD_MAX;
    exports.begin(COPIED, copy(), None, Some(Hold { arriving, writes, until }))
}

#[tokio::test(start_paused = true)]
async fn writes_wait_until_release_or_timeout() {
    let (exports, writes) = (Exports::new(), Arc::new(RwLock::new(())));
    let export = begin(&exports, 1, &writes).await.unwrap();
    assert_eq!(exports.copied(export).unwrap().written_index, 7);
    assert!(writes.try_read().is_err());
    exports.release(export).unwrap();
    assert!(writes.try_read().is_ok());
    // A released export stays, an unreleased one is ended.
    let unreleased = begin(&exports, 1, &writes).await.unwrap();
    let began = Instant::now();
    drop(writes.read().await);
    assert_eq!(began.elapsed(), FILTER_SNAPSHOT_HOLD_MAX);
    assert!(matches!(exports.release(unreleased), Err(ShardFailure::NoExport)));
    exports.release(export).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_waits_for_its_turn_as_long_as_it_is_kept() {
    let (exports, writes) = (Exports::new(), Arc::new(RwLock::new(())));
    let (kept, left) = (begin(&exports, 1, &writes).await.unwrap(), async {
        begin(&exports, 1, &Arc::new(RwLock::new(()))).await.unwrap()
    });
    let left = left.await;
    exports.release(kept).unwrap();
    exports.release(left).unwrap();
    for _ in 0..4 {
        advance(EXPORT_IDLE_MAX / 2).await;
        exports.keep(kept).unwrap();
        // The task that makes the frames notices that it was kept alive.
        tokio::task::yield_now().await;
    }
    let mut is_last = false;
    while !is_last {
        (_, is_last) = exports.next(kept).await.unwrap();
    }
    // The other export's copy was dropped; the table is cleaned up when the next export begins.
    let (frames, is_last) = exports.next(left).await.unwrap();
    assert!(frames.is_empty() && is_last);
}

#[tokio::test(start_paused = true)]
async fn one_snapshot_has_a_copy_of_many_slices_and_another_waits() {
    let exports = Exports::new();
    let lock = || Arc::new(RwLock::new(()));
    let mut begun = Vec::new();
    for _ in 0..2 * EXPORTS_MAX {
        begun.push(begin(&exports, 1, &lock()).await.unwrap());
    }
    let refused = begin(&exports, 2, &lock()).await;
    assert!(matches!(refused, Err(ShardFailure::TooManyExports)));
    // Independent exports are counted separately.
    for _ in 0..EXPORTS_MAX {
        exports.check_room().unwrap();
        exports.begin(COPIED, copy(), None, None).unwrap();
    }
    assert!(matches!(exports.check_room(), Err(ShardFailure::TooManyExports)));
    let refused = exports.begin(COPIED, copy(), None, None);
    assert!(matches!(refused, Err(ShardFailure::TooManyExports)));
    for export in begun {
        exports.end(export);
    }
    begin(&exports, 2, &lock()).await.unwrap();
}

#[test]
fn a_snapshot_has_its_room_while_it_waits_for_writes() {
    let exports = Exports::new();
    let is_refused = || matches!(exports.arrive(2), Err(ShardFailure::TooManyExports));
    let slices = [exports.arrive(1).unwrap(), exports.arrive(1).unwrap()];
    assert!(is_refused());
    let [first, second] = slices;
    drop(first);
    assert!(is_refused());
    drop(second);
    assert!(!is_refused());
}

#[tokio::test(start_paused = true)]
async fn no_frame_is_made_before_it_is_asked_for() {
    let (exports, writes) = (Exports::new(), Arc::new(RwLock::new(())));
    let export = begin(&exports, 1, &writes).await.unwrap();
    exports.release(export).unwrap();
    sleep(Duration::from_secs(1)).await;
    let count = |exports: &Exports| {
        locked(&exports.table).running[&export].frames.as_ref().map(mpsc::Receiver::len)
    };
    assert_eq!(count(&exports), Some(0));
    let next = timeout(Duration::from_secs(1), exports.next(export));
    let (frames, is_last) = next.await.unwrap().unwrap();
    assert!(is_last && frames.len() > 1, "{} frames", frames.len());
}
