//! Inserts that wait to be proposed, many in one entry of the log. An entry inserts in one way ([`Way`]), so the parts of
//! each way wait by themselves: mixed ones would cut each other's entries.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use umbel_engine::GroupId;
use umbel_engine::shard::{Bitmap, InsertPart, ShardCommand, ShardReply};
use umbel_ports::{Rare, locked};
use umbel_raft::{Group, ProposeError};
use umbel_step::planted::{self, Planted};
use umbel_storage::types::{CommandReply, LogCommand};

use super::windowed::{self, Timing};
use super::{PartAnswer, Writes, failure};
use crate::calls::ShardFailure;
use crate::limits::{PROPOSAL_ITEMS_MAX, PROPOSAL_QUEUE_MAX, PROPOSALS_IN_FLIGHT_MAX};

/// Calls that insert into any shard of this node, and wait for their answers.
#[derive(Default)]
pub(crate) struct InsertsInProgress(AtomicUsize);

impl InsertsInProgress {
    fn begin(self: &Arc<Self>) -> InProgress {
        self.0.fetch_add(1, Ordering::Relaxed);
        InProgress(Arc::clone(self))
    }

    fn are_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

/// One of them, until this is dropped.
struct InProgress(Arc<InsertsInProgress>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The inserts of a shard that wait, or are on their way to a majority. Bounded in items and in requests.
pub(super) struct InsertQueue {
    group: GroupId,
    /// Those of [`Way::Always`].
    waiting: mpsc::Sender<Waiting>,
    /// Those of [`Way::IfAbsent`].
    waiting_if_absent: mpsc::Sender<Waiting>,
    /// One permit per item that may wait or be on its way.
    room: Arc<Semaphore>,
    room_items: usize,
    /// Of all shards of the node.
    in_progress: Arc<InsertsInProgress>,
}

/// How the items of a part are inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Whatever is present.
    Always(Timing),
    /// If they are absent when their turn comes.
    IfAbsent,
}

/// Combines parts into one entry, given the leader's clock.
type EntryOf = fn(Vec<(InsertPart, Timing)>, u64) -> ShardCommand;

/// Combines parts of [`Way::IfAbsent`], for which time does not count.
fn absent_entry_of(parts: Vec<(InsertPart, Timing)>, _now_ms: u64) -> ShardCommand {
    ShardCommand::InsertAbsent(parts.into_iter().map(|(part, _)| part).collect())
}

impl InsertQueue {
    /// A queue of up to so many items, and the tasks that propose them.
    pub(super) fn start(
        group: &Arc<Group>,
        items_max: usize,
        writes: &Writes,
        in_progress: Arc<InsertsInProgress>,
    ) -> Self {
        let (id, room) = (group.id(), Arc::new(Semaphore::new(items_max)));
        let proposing = |entry_of| {
            let (waiting, receiver) = mpsc::channel(PROPOSAL_QUEUE_MAX);
            let (group, writes) = (Arc::clone(group), Arc::clone(writes));
            let in_progress = Arc::clone(&in_progress);
            tokio::spawn(propose_together(group, receiver, writes, in_progress, entry_of));
            waiting
        };
        let waiting = proposing(windowed::entry_of as EntryOf);
        let waiting_if_absent = proposing(absent_entry_of);
        Self { group: id, waiting, waiting_if_absent, room, room_items: items_max, in_progress }
    }

    /// Takes room for items until the permit is dropped. Whoever proposes them gives it back when the entry is
    /// answered, whatever the caller waits for: an entry that no majority confirms stays in the log.
    pub(super) fn take_room(&self, items: usize) -> Result<OwnedSemaphorePermit, ShardFailure> {
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        Arc::clone(&self.room).try_acquire_many_owned(items).map_err(|_| self.overloaded())
    }

    /// Adds a part to the queue. It leaves the queue if its caller stops waiting before it is proposed.
    pub(super) fn add(&self, part: InsertPart, way: Way) -> Result<Added, ShardFailure> {
        let (waiting, timing) = match way {
            Way::Always(timing) => (&self.waiting, timing),
            Way::IfAbsent => (&self.waiting_if_absent, Timing::None),
        };
        let room = self.take_room(part.hashes.len())?;
        let (answer, answered) = oneshot::channel();
        let place = Place(Arc::new(Mutex::new(Some(Queued { part, timing, room }))));
        let withdrawn = Withdrawn(Place(Arc::clone(&place.0)));
        waiting.try_send(Waiting { place, answer }).map_err(|_| self.overloaded())?;
        let in_progress = self.in_progress.begin();
        Ok(Added { answered, withdrawn, group: self.group, _in_progress: in_progress })
    }

    fn overloaded(&self) -> ShardFailure {
        ShardFailure::Overloaded((self.room_items - self.room.available_permits()) as u64)
    }
}

/// A part that waits, or is on its way to a majority.
pub(super) struct Added {
    answered: oneshot::Receiver<PartAnswer>,
    withdrawn: Withdrawn,
    group: GroupId,
    _in_progress: InProgress,
}

impl Added {
    /// Waits for the answer.
    pub(super) async fn answer(self) -> PartAnswer {
        let Self { answered, withdrawn, group, _in_progress } = self;
        let answer = answered.await;
        drop(withdrawn);
        answer.map_err(|_| ShardFailure::Stopped(format!("{group} stopped")))?
    }
}

/// A part in the queue, with the room that it takes.
struct Queued {
    part: InsertPart,
    timing: Timing,
    room: OwnedSemaphorePermit,
}

/// The place of a part in the queue; empty when the part was taken out.
struct Place(Arc<Mutex<Option<Queued>>>);

impl Place {
    fn take(&self) -> Option<Queued> {
        locked(&self.0).take()
    }
}

/// Takes a part out of the queue when its caller stops waiting. Callers ask again, so a shard without a majority
/// would otherwise keep the items of each attempt, and propose all of them once it has a majority.
struct Withdrawn(Place);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// A part that waits to be proposed, and its caller.
struct Waiting {
    place: Place,
    answer: oneshot::Sender<PartAnswer>,
}

impl Waiting {
    /// The part, unless its caller has stopped waiting.
    fn take(self) -> Option<Taken> {
        let Queued { part, timing, room } = self.place.take()?;
        Some(Taken { part, timing, caller: Caller { answer: self.answer, _room: room } })
    }
}

/// A part that is proposed next.
struct Taken {
    part: InsertPart,
    timing: Timing,
    caller: Caller,
}

/// Who waits for the answer to a part, and the room that its items take until then.
struct Caller {
    answer: oneshot::Sender<PartAnswer>,
    _room: OwnedSemaphorePermit,
}

impl Caller {
    fn answer(self, answer: PartAnswer) {
        // A caller that dropped its receiver has given up.
        let _ = self.answer.send(answer);
    }
}

/// Proposes waiting parts, many in one entry, with a few entries in flight at once.
async fn propose_together(
    group: Arc<Group>,
    mut queue: mpsc::Receiver<Waiting>,
    writes: Writes,
    in_progress: Arc<InsertsInProgress>,
    entry_of: EntryOf,
) {
    let in_flight = Arc::new(Semaphore::new(PROPOSALS_IN_FLIGHT_MAX));
    let mut next: Option<Taken> = None;
    loop {
        // Waits for room first, then for parts: parts that arrive while entries are in flight are
        // combined.
        let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await else { return };
        let kept = next.take().filter(|taken| !taken.caller.answer.is_closed());
        let first = match kept {
            Some(first) => first,
            None => match first_of(&mut queue).await {
                Some(first) => {
                    // Who has a part to send in this turn of all tasks does so before the entry is made. A lone insert
                    // waits for nobody: a turn takes as long as the rest of its way on one node.
                    if in_progress.are_many() {
                        tokio::task::yield_now().await;
                    }
                    first
                }
                None => return,
            },
        };
        let mut items = first.part.hashes.len();
        let waiting_count = queue.len();
        let mut parts = Vec::with_capacity(1 + waiting_count);
        let mut callers = Vec::with_capacity(1 + waiting_count);
        parts.push((first.part, first.timing));
        callers.push(first.caller);
        let is_alone = group.provokes(Rare::SmallBatches);
        while let Some(waiting) = (!is_alone).then(|| queue.try_recv().ok()).flatten() {
            let Some(taken) = waiting.take() else { continue };
            if planted::on(Planted::PresentUnconfirmed) && is_waiting(&parts, &taken.part) {
                taken.caller.answer(Ok(Bitmap::zeros(taken.part.proposed.len())));
                continue;
            }
            items += taken.part.hashes.len();
            if items > PROPOSAL_ITEMS_MAX {
                next = Some(taken);
                break;
            }
            parts.push((taken.part, taken.timing));
            callers.push(taken.caller);
        }
        let writing = Arc::clone(&writes).read_owned().await;
        let command = entry_of(parts, group.wall_ms());
        let of_group = Arc::clone(&group);
        let then = move |outcome| {
            drop((writing, permit));
            if matches!(outcome, Err(ProposeError::NotLeader(None))) {
                tokio::spawn(async move { of_group.remind_if_leader().await });
            }
            answer_parts(outcome, callers);
        };
        group.propose_then(LogCommand::Shard(command), then).await;
    }
}

/// Waits for a part whose caller still waits; none when the queue has ended.
async fn first_of(queue: &mut mpsc::Receiver<Waiting>) -> Option<Taken> {
    loop {
        if let Some(taken) = queue.recv().await?.take() {
            return Some(taken);
        }
    }
}

/// For a planted bug: whether a part's items are in the entry already.
fn is_waiting(parts: &[(InsertPart, Timing)], part: &InsertPart) -> bool {
    parts.iter().any(|(other, _)| (other.filter, &other.hashes) == (part.filter, &part.hashes))
}

/// Sends each part its answer.
fn answer_parts(outcome: Result<CommandReply, ProposeError>, callers: Vec<Caller>) {
    let failure = match outcome {
        Ok(CommandReply::Shard(ShardReply::Inserted(outcomes)))
            if outcomes.len() == callers.len() =>
        {
            for (caller, outcome) in callers.into_iter().zip(outcomes) {
                caller.answer(outcome.map_err(ShardFailure::from));
            }
            return;
        }
        Ok(other) => ShardFailure::Stopped(format!("inserts were answered by {other:?}")),
        Err(error) => failure(error),
    };
    for caller in callers {
        caller.answer(Err(failure.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use futures_util::future::join_all;
    use futures_util::poll;
    use umbel_engine::meta::Distribution;
    use umbel_engine::shard::{HashList, RemovePart};
    use umbel_engine::{FilterId, Generation};
    use umbel_filter::{ItemHash, Kind};

    use super::*;
    use crate::calls::ShardAnswer;
    use crate::testing::{create_filter, create_filter_of, start_alone};

    const WAYS: [Way; 2] = [Way::Always(Timing::None), Way::IfAbsent];

    fn hashes(count: u64) -> HashList {
        HashList::from_hashes(&(0..count).map(|n| ItemHash::new(n, n)).collect::<Vec<_>>())
    }

    fn part(item_count: u64) -> InsertPart {
        InsertPart {
            filter: FilterId(1),
            generation: Generation(1),
            request: None,
            proposed: Bitmap::ones(u32::try_from(item_count).unwrap()),
            hashes: hashes(item_count),
            growth_bytes: 0,
        }
    }

    /// A queue whose parts, of either way, the test takes.
    fn queue(items_max: usize) -> (InsertQueue, mpsc::Receiver<Waiting>) {
        let (waiting, receiver) = mpsc::channel(PROPOSAL_QUEUE_MAX);
        let room = Arc::new(Semaphore::new(items_max));
        let (group, waiting_if_absent) = (GroupId::META, waiting.clone());
        let (room_items, in_progress) = (items_max, Arc::default());
        let queue =
            InsertQueue { group, waiting, waiting_if_absent, room, room_items, in_progress };
        (queue, receiver)
    }

    fn is_overloaded(queue: &InsertQueue, way: Way, item_count: u64) -> bool {
        match queue.add(part(item_count), way) {
            Err(ShardFailure::Overloaded(_)) => true,
            Err(other) => panic!("{other}"),
            Ok(_) => false,
        }
    }

    #[tokio::test]
    async fn a_part_whose_caller_has_given_up_leaves_the_queue() {
        for way in WAYS {
            let (queue, mut waiting) = queue(10);
            {
                let added = queue.add(part(8), way).unwrap();
                let mut given_up = std::pin::pin!(added.answer());
                assert!(poll!(given_up.as_mut()).is_pending());
                // Both ways share the room.
                for other in WAYS {
                    assert!(is_overloaded(&queue, other, 3));
                }
            }
            assert!(waiting.recv().await.unwrap().take().is_none());
            assert!(!is_overloaded(&queue, way, 10));
        }
    }

    #[tokio::test]
    async fn a_part_that_is_proposed_keeps_its_room_until_it_is_answered() {
        let (queue, mut waiting) = queue(10);
        let taken = {
            let added = queue.add(part(8), Way::IfAbsent).unwrap();
            let mut given_up = std::pin::pin!(added.answer());
            assert!(poll!(given_up.as_mut()).is_pending());
            waiting.recv().await.unwrap().take().unwrap()
        };
        assert!(taken.caller.answer.is_closed());
        assert!(is_overloaded(&queue, Way::IfAbsent, 3));
        answer_parts(Err(ProposeError::NotLeader(None)), vec![taken.caller]);
        assert!(!is_overloaded(&queue, Way::IfAbsent, 10));
    }

    /// Writes are held back here until all parts wait.
    #[tokio::test(flavor = "multi_thread")]
    async fn inserts_of_what_is_absent_share_entries() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let (distribution, size) = (Distribution::Partitioned, (10_000, 0.01));
        let filter = create_filter_of(&node, Kind::Quotient, distribution, size).await;
        let shard = node.local().shards().remove(0);
        let held = Arc::clone(&shard.writes).write_owned().await;
        let before = shard.group.applied_index();
        // Of two clients each, in the first quarter of the hash space.
        let items: Vec<HashList> = (0..24)
            .map(|n| HashList::from_hashes(&[ItemHash::new((n % 12) << 56, n % 12)]))
            .collect();
        let slice = (filter, Generation(1));
        let inserts = items.iter().map(|item| shard.insert_absent(slice, None, item, None));
        let mut inserts = Box::pin(join_all(inserts));
        assert!(poll!(inserts.as_mut()).is_pending());
        drop(held);
        let new_counts = inserts.await.into_iter().map(|answer| match answer {
            Ok(ShardAnswer::Bits(bits)) => bits.count_ones(),
            other => panic!("{other:?}"),
        });
        assert_eq!(new_counts.sum::<u32>(), 12);
        // What was held back, and what waited behind it.
        let entry_count = shard.group.applied_index() - before;
        assert!(entry_count <= 3, "{entry_count}");
        drop(shard);
        node.shutdown().await;
    }

    /// Writes are held back here, as they wait for a majority elsewhere.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_removal_keeps_its_room_when_its_caller_has_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        // Once a filter can be used, its shards have started.
        create_filter(&node, Distribution::Partitioned, (10_000, 0.01)).await;
        let shard = node.local().shards().remove(0);
        let free = || shard.queue.room.available_permits();
        let all = free();
        let held = Arc::clone(&shard.writes).write_owned().await;
        let (filter, generation) = (FilterId(1), Generation(1));
        let part = RemovePart { filter, generation, request: None, hashes: hashes(8) };
        let mut removal: std::pin::Pin<Box<dyn Future<Output = _> + '_>> =
            Box::pin(shard.propose_removal(part));
        assert!(poll!(removal.as_mut()).is_pending());
        drop(removal);
        assert_eq!(free(), all - 8);
        drop(held);
        // Waits until the removal is answered.
        let room = Arc::clone(&shard.queue.room);
        drop(room.acquire_many_owned(u32::try_from(all).unwrap()).await.unwrap());
        drop(shard);
        node.shutdown().await;
    }
}
