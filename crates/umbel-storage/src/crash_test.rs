//! Power losses at every call: what was acknowledged survives, and of the rest a prefix.

use std::collections::BTreeMap;
use std::sync::Arc;

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::{RaftLogReader, StoredMembership};
use proptest::prelude::*;
use tokio_stream::StreamExt;
use umbel_engine::{GroupId, NodeId};

use super::testing::{FaultDisk, Faults, entry, id};
use super::{LogOwner, LogStore, Storage, WalOptions};
use crate::types::{LogEntry, LogId, SnapshotMeta, Types, Vote};

mod acts;

use acts::{Act, Step, acts, all_acts};

/// Small segments and a small cache, so that a little work takes all code paths.
pub(super) fn options() -> WalOptions {
    let owner = LogOwner::Known { nonce: 77, joined: false };
    WalOptions { segment_bytes_max: 600, cache_bytes_max: 200, ..WalOptions::new(owner) }
}

pub(crate) async fn open(disk: &FaultDisk) -> Storage {
    Storage::open(Arc::new(disk.clone()), options()).await.unwrap().0
}

/// The naive model of a group.
#[derive(Clone, PartialEq, Debug, Default)]
struct Naive {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, LogEntry>,
    snapshot: Option<LogId>,
    /// The last entry when the group left; cleared when the log reaches it again.
    floor: Option<LogId>,
}

type NaiveGroups = BTreeMap<GroupId, Naive>;

impl Naive {
    fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().map(|entry| entry.log_id).or(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(0, |last| last.index + 1)
    }
}

/// State of a run: the model after every change, and how many of the changes were acknowledged.
struct Run {
    storage: Storage,
    states: Vec<NaiveGroups>,
    acknowledged: usize,
    term: u64,
    waiting: Vec<(usize, tokio::sync::oneshot::Receiver<std::io::Result<()>>)>,
}

impl Run {
    fn change(&mut self, group: GroupId, change: impl FnOnce(&mut Naive)) {
        let mut state = self.states.last().unwrap().clone();
        let model = state.entry(group).or_default();
        change(model);
        let last = model.last();
        model.floor.take_if(|floor| last >= Some(*floor));
        self.states.push(state);
    }

    fn model(&self, group: GroupId) -> Naive {
        self.states.last().unwrap().get(&group).cloned().unwrap_or_default()
    }

    /// Returns false when the disk is gone.
    async fn act(&mut self, act: Act) -> bool {
        match act {
            Act::Append(group, count) => self.append(GroupId::from_number(group), count).await,
            Act::Other(group, step) => self.other(GroupId::from_number(group), step).await,
            Act::Snapshot(group, forth, is_anothers) => {
                self.snapshot(GroupId::from_number(group), forth, is_anothers).await
            }
            Act::Commit(group) => {
                let group = GroupId::from_number(group);
                let last = self.model(group).last();
                self.storage.log(group).save_committed(last).await.is_ok()
            }
            Act::AwaitAcknowledgements => self.await_acknowledgements().await,
        }
    }

    async fn append(&mut self, group: GroupId, count: u64) -> bool {
        let mut entries = Vec::new();
        for _ in 0..count {
            let new = entry(self.term, self.model(group).next());
            entries.push(new.clone());
            self.change(group, |model| {
                model.entries.insert(new.log_id.index, new);
            });
        }
        let (sender, receiver) = <Types as TypeConfigExt>::oneshot();
        let result = self.storage.log(group).append(entries, IOFlushed::signal(sender)).await;
        self.waiting.push((self.states.len() - 1, receiver));
        result.is_ok()
    }

    async fn other(&mut self, group: GroupId, step: Step) -> bool {
        let model = self.model(group);
        let mut log = self.storage.log(group);
        let result = match step {
            Step::Vote(term) => {
                let vote = Vote::new(term, NodeId(1));
                self.change(group, |model| model.vote = Some(vote));
                log.save_vote(&vote).await
            }
            Step::Truncate(back) => {
                let Some(after) = model.entries.values().rev().nth(back) else {
                    return true;
                };
                let after = after.log_id;
                if model.snapshot.is_some_and(|snapshot| after.index < snapshot.index) {
                    // No replica truncates committed entries.
                    return true;
                }
                // Entries that replace others have a later term.
                self.term += 1;
                self.change(group, |model| {
                    model.entries.split_off(&(after.index + 1));
                });
                log.truncate_after(Some(after)).await
            }
            Step::Purge(forth) => {
                let through = model.purged.map_or(0, |purged| purged.index + 1) + forth;
                let term =
                    model.entries.get(&through).map_or(self.term, |e| e.log_id.leader_id.term);
                let through = id(term, through);
                self.change(group, |model| {
                    model.entries = model.entries.split_off(&(through.index + 1));
                    model.purged = Some(through);
                });
                log.purge(through).await
            }
            Step::Forget => {
                self.change(group, |model| *model = Naive::default());
                self.storage.forget(group).await
            }
            Step::Leave => {
                let floor = model.last().max(model.floor);
                self.change(group, |left| {
                    *left = Naive { vote: model.vote, floor, ..Naive::default() }
                });
                self.storage.leave(group).await
            }
        };
        if result.is_ok() {
            self.acknowledged = self.states.len() - 1;
        }
        result.is_ok()
    }

    async fn snapshot(&mut self, group: GroupId, forth: u64, is_anothers: bool) -> bool {
        // Pending appends would make the history differ from the one that a start reconstructs.
        if !self.await_acknowledgements().await {
            return false;
        }
        let model = self.model(group);
        let covered = model.purged.max(model.snapshot);
        let index = covered.map_or(0, |covered| covered.index + 1) + forth;
        let own = model.entries.get(&index).map(|entry| entry.log_id);
        let through = own.filter(|_| !is_anothers).unwrap_or_else(|| {
            self.term += 1;
            id(self.term, index)
        });
        self.change(group, |model| model.snapshot = Some(through));
        let after = model.entries.range(..index).next_back().map(|(_, entry)| entry.log_id);
        let after = after.or(model.purged);
        let truncates = own.is_some_and(|own| own != through);
        if truncates {
            self.change(group, |model| {
                model.entries.split_off(&index);
            });
        }
        self.change(group, |model| {
            model.entries = model.entries.split_off(&(index + 1));
            model.purged = Some(through);
        });
        let mut log = self.storage.log(group);
        let is_done = write_snapshot(&self.storage, group, through).await.is_ok()
            && (!truncates || log.truncate_after(after).await.is_ok())
            && log.purge(through).await.is_ok();
        if is_done {
            self.acknowledged = self.states.len() - 1;
        }
        is_done
    }

    async fn await_acknowledgements(&mut self) -> bool {
        for (state, receiver) in std::mem::take(&mut self.waiting) {
            match receiver.await {
                Ok(Ok(())) => self.acknowledged = self.acknowledged.max(state),
                _ => return false,
            }
        }
        true
    }

    /// Acknowledgements that arrived before the end count as well.
    fn take_acknowledgements(&mut self) {
        for (state, mut receiver) in std::mem::take(&mut self.waiting) {
            if let Ok(Ok(())) = receiver.try_recv() {
                self.acknowledged = self.acknowledged.max(state);
            }
        }
    }
}

async fn write_snapshot(storage: &Storage, group: GroupId, through: LogId) -> std::io::Result<()> {
    let last_membership = StoredMembership::default();
    let meta = SnapshotMeta { last_log_id: Some(through), last_membership };
    let mut writer = storage.snapshots(group).writer(meta).await?;
    writer.write(vec![7; 100].into()).await?;
    writer.finish().await.map(|_| ())
}

async fn read_group(storage: &Storage, group: GroupId) -> Naive {
    let mut log: LogStore = storage.log(group);
    let state = log.get_log_state().await.unwrap();
    let entries = log.try_get_log_entries(..).await.unwrap();
    let streamed: Vec<_> = log.entries_stream(..).await.map(Result::unwrap).collect().await;
    assert_eq!(streamed, entries);
    let snapshot = storage.snapshots(group).latest().await.unwrap();
    let naive = Naive {
        vote: log.read_vote().await.unwrap(),
        purged: state.last_purged_log_id,
        entries: entries.into_iter().map(|entry| (entry.log_id.index, entry)).collect(),
        snapshot: snapshot.and_then(|file| file.meta().last_log_id),
        floor: log.floor(),
    };
    assert_eq!(state.last_log_id, naive.last());
    naive
}

async fn read_groups(storage: &Storage) -> NaiveGroups {
    let mut groups = NaiveGroups::new();
    for number in 0..3 {
        let group = GroupId::from_number(number);
        groups.insert(group, read_group(storage, group).await);
    }
    filled(&groups)
}

/// Removes groups of which nothing is known.
fn filled(groups: &NaiveGroups) -> NaiveGroups {
    let is_filled = |group: &&Naive| **group != Naive::default();
    groups.iter().filter(|(_, g)| is_filled(g)).map(|(id, g)| (*id, g.clone())).collect()
}

/// Repeats: acts, loses power after some calls, and starts again with what survived.
async fn crash_again_and_again(rounds: Vec<(Vec<Act>, u64, u64)>) {
    let mut disk = FaultDisk::new();
    let mut state = NaiveGroups::new();
    let mut term = 1;
    for (acts, calls, seed) in rounds {
        // A start may be cut short as well; then the next start must cope.
        let last_call = disk.calls() + calls;
        disk.set(Faults { dies_after: Some(last_call), ..Faults::default() });
        let opened = Storage::open(Arc::new(disk.clone()), options()).await;
        if let Ok((storage, _)) = opened {
            assert_eq!(read_groups(&storage).await, state);
            let states = vec![state.clone()];
            let mut run = Run { storage, states, acknowledged: 0, term, waiting: Vec::new() };
            for act in acts {
                if !run.act(act).await {
                    break;
                }
                // While the disk works, users see everything that was passed in.
                let seen = filled(run.states.last().unwrap());
                if run.storage.health().borrow().eq(&super::WalHealth::Good)
                    && disk.calls() < last_call
                {
                    assert_eq!(read_groups(&run.storage).await, seen);
                }
            }
            run.take_acknowledgements();
            term = run.term + 1;
            disk = disk.crash(chooser(seed));
            // The first start after it may be cut short at any point of its repair.
            let dies_after = Some(disk.calls() + seed % 16);
            disk.set(Faults { dies_after, ..Faults::default() });
            drop(Storage::open(Arc::new(disk.clone()), options()).await);
            disk = disk.crash(chooser(!seed));
            state = survived(&disk, &run).await;
        } else {
            disk = disk.crash(chooser(seed));
        }
    }
}

/// Chooses what a power loss leaves, with a small generator of random numbers.
fn chooser(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |count| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % (count + 1)
    }
}

/// Opens the disk and finds the state of the model that it must match.
async fn survived(disk: &FaultDisk, run: &Run) -> NaiveGroups {
    let storage = open(disk).await;
    let groups = read_groups(&storage).await;
    storage.close().await;
    let fits = run.states[run.acknowledged..].iter().any(|state| filled(state) == groups);
    assert!(
        fits,
        "acknowledged {:?}\nof {:?}\nfound {groups:?}",
        run.states[run.acknowledged],
        run.states.last(),
    );
    groups
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn acknowledged_writes_survive_power_losses(
        rounds in proptest::collection::vec((acts(), 1u64..80, any::<u64>()), 1..5),
    ) {
        runtime().block_on(crash_again_and_again(rounds));
    }

    /// The disk becomes full at any call and has room again later: callers notice only a delay.
    #[test]
    fn full_disks_lose_nothing(
        acts in acts(),
        from in 0u64..80,
        calls in 1u64..9,
    ) {
        runtime().block_on(full_for_a_while(acts, from, calls));
    }

    /// Many rotations; afterwards everything matches the model, in memory and after a start.
    #[test]
    fn segments_that_are_removed_are_missed_by_nobody(acts in proptest::collection::vec(acts(), 1..8)) {
        runtime().block_on(async {
            let disk = FaultDisk::new();
            let storage = open(&disk).await;
            let states = vec![NaiveGroups::new()];
            let mut run = Run { storage, states, acknowledged: 0, term: 1, waiting: Vec::new() };
            for act in acts.into_iter().flatten() {
                assert!(run.act(act).await);
            }
            let expected = filled(run.states.last().unwrap());
            assert_eq!(read_groups(&run.storage).await, expected);
            run.storage.close().await;
            let storage = open(&disk).await;
            assert_eq!(read_groups(&storage).await, expected);
        });
    }
}

async fn full_for_a_while(acts: Vec<Act>, from: u64, calls: u64) {
    let disk = FaultDisk::new();
    let storage = open(&disk).await;
    let from = disk.calls() + from;
    disk.set(Faults { full_calls: Some((from, from + calls)), ..Faults::default() });
    let states = vec![NaiveGroups::new()];
    let mut run = Run { storage, states, acknowledged: 0, term: 1, waiting: Vec::new() };
    for act in acts {
        assert!(run.act(act).await);
    }
    assert!(run.await_acknowledgements().await);
    let expected = filled(run.states.last().unwrap());
    assert_eq!(read_groups(&run.storage).await, expected);
    let storage = open(&disk.crash(|_| 0)).await;
    assert_eq!(read_groups(&storage).await, expected);
}

/// Every boundary between two calls, not only random ones.
#[test]
fn power_losses_at_every_call() {
    for calls in 1..110 {
        for seed in 0..6 {
            let rounds = vec![(all_acts(), calls, seed * 0x9e37_79b9), (all_acts(), 150, seed)];
            runtime().block_on(crash_again_and_again(rounds));
        }
    }
}

#[test]
fn full_disks_at_every_call() {
    for from in 0..110 {
        runtime().block_on(full_for_a_while(all_acts(), from, 3));
    }
}
