//! One copy of a replicated filter on this node: its bits, the changes to send, local inserts and
//! lookups.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use umbel_engine::meta::FilterSettings;
use umbel_engine::shard::HashList;
use umbel_engine::{FilterId, Generation, GroupId, NodeId};
use umbel_filter::{AnyFilter, Contains, Insertion, ItemHash, ItemHasher};
use umbel_replicated_engine::hypercube::{
    ChangeReader, Delta, DeltaError, DeltaQuestion, DeltaReply, ReadChanges, Replica, SampleTable,
    VersionVector,
};
use umbel_step::planted::{self, Planted};

use super::failure::CopyFailure;
use super::journal::Journal;
use crate::arrivals::Arrivals;
use crate::cube::Result;

use room::room_for;

mod absorbing;
mod comparing;
mod room;
mod sampling;
mod slices;

pub(super) use slices::SliceClock;

/// A copy, shared by inserts, lookups and the exchange.
pub struct Copy {
    pub(super) node: NodeId,
    pub(super) filter: FilterId,
    pub(super) group: GroupId,
    pub(super) settings: FilterSettings,
    /// Set for windowed filters.
    clock: Option<SliceClock>,
    state: RwLock<CopyState>,
    /// Samples of the items inserted at each node; locked after the state if both are locked.
    samples: Mutex<SampleTable>,
    pub(super) journal: Journal,
    /// Held while a snapshot is written: of two snapshots that end at the same entry, the later one
    /// must remain.
    pub(super) saving: tokio::sync::Mutex<()>,
    /// Increases whenever the copy gains something or is cleared.
    revision: watch::Sender<u64>,
    pub(super) traffic: Traffic,
    /// Rate of items inserted by clients of this node.
    pub(crate) arrivals: Arrivals,
}

/// The state behind the lock.
pub(super) struct CopyState {
    pub(super) replica: Replica,
    /// The last entry of this node's log that was applied to the bits or skipped.
    pub(super) applied_index: u64,
    /// Items inserted here that were absent, in this generation.
    pub(super) new_count: u64,
    /// Whether the copy counts towards a majority.
    pub(super) is_in_sync: bool,
    /// Merges that changed something, and how many of them are on this node's disk.
    pub(super) merge_count: u64,
    pub(super) saved_merge_count: u64,
    /// The generation of the snapshot on this node's disk, or of a copy that is not saved yet.
    pub(super) saved_generation: Generation,
    /// The merge count when a filter was last absorbed. An absorbed filter is in no log: until it is
    /// saved, a restart would give its number to another change, so it must not be sent to other nodes.
    absorbed_merge_count: u64,
    /// Arrival of the oldest insert that waits for the next sweep.
    waiting_since: Option<Instant>,
    /// Arrival of the oldest insert that the running sweep carries.
    carried_since: Option<Instant>,
    /// How long the last inserts took to reach all nodes.
    pub(super) convergence: Option<Duration>,
}

impl CopyState {
    pub(super) fn new(replica: Replica, applied_index: u64, is_in_sync: bool) -> Self {
        Self {
            saved_generation: replica.options().generation,
            replica,
            applied_index,
            new_count: 0,
            is_in_sync,
            merge_count: 0,
            saved_merge_count: 0,
            absorbed_merge_count: 0,
            waiting_since: None,
            carried_since: None,
            convergence: None,
        }
    }

    pub(super) fn generation(&self) -> Generation {
        self.replica.options().generation
    }

    /// Whether something was merged that is not on this node's disk.
    const fn is_volatile(&self) -> bool {
        self.merge_count != self.saved_merge_count
    }

    /// Whether a filter was absorbed that is not on this node's disk.
    const fn is_withheld(&self) -> bool {
        self.absorbed_merge_count > self.saved_merge_count
    }
}

/// Bytes of deltas, and the number of refused ones.
#[derive(Default)]
pub(super) struct Traffic {
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) refused_count: AtomicU64,
}

impl Copy {
    pub(super) fn new(
        (node, filter, group): (NodeId, FilterId, GroupId),
        (settings, clock): (FilterSettings, Option<SliceClock>),
        (state, samples): (CopyState, SampleTable),
        journal: Journal,
    ) -> Self {
        Self {
            node,
            filter,
            group,
            settings,
            clock,
            state: RwLock::new(state),
            samples: Mutex::new(samples),
            journal,
            saving: tokio::sync::Mutex::new(()),
            revision: watch::Sender::new(0),
            traffic: Traffic::default(),
            arrivals: Arrivals::default(),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, CopyState> {
        self.state.read().expect("no holder of the lock panics")
    }

    /// Like `read`, for callers that report the whole copy: a windowed copy is advanced to the current
    /// time slice first. Lookups can run in between.
    pub(super) fn read_now(&self) -> RwLockReadGuard<'_, CopyState> {
        if self.clock.is_some() {
            drop(self.write());
        }
        self.read()
    }

    /// Locks the copy for writing; a windowed copy is advanced to the current time slice first.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, CopyState> {
        let mut state = self.state.write().expect("no holder of the lock panics");
        if let Some(clock) = &self.clock {
            state.replica.advance(clock.slice());
        }
        state
    }

    pub(super) fn samples(&self) -> MutexGuard<'_, SampleTable> {
        self.samples.lock().expect("no holder of the lock panics")
    }

    fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Most bytes of a frame's payload.
    pub(super) fn frame_payload_bytes_max(&self) -> usize {
        self.read().replica.options().payload_bytes_max
    }

    /// Watches a counter that increases whenever the copy gains something or is cleared.
    pub(crate) fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The group that identifies the copy in calls and on disk.
    pub const fn group(&self) -> GroupId {
        self.group
    }

    /// Hashes items for the filter.
    pub(crate) fn hasher(&self) -> ItemHasher {
        self.settings.key.hasher()
    }

    /// Changes that a partner may lack; the maximum over all partners.
    pub(crate) fn lag(&self) -> u64 {
        let state = self.read();
        let lags = state.replica.partners().map(|node| state.replica.lag(node));
        lags.max().unwrap_or(0)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.read().generation()
    }

    /// Whether the copy counts towards a majority.
    pub fn is_in_sync(&self) -> bool {
        self.read().is_in_sync
    }

    fn check(&self, state: &CopyState, theirs: Generation) -> Result<()> {
        let ours = state.generation();
        if theirs == ours {
            Ok(())
        } else {
            Err(CopyFailure::StaleGeneration { filter: self.filter, theirs, ours })
        }
    }

    /// Whether each item is present here.
    ///
    /// # Errors
    /// If the copy is at another generation.
    pub fn contains(&self, generation: Generation, hashes: &[ItemHash]) -> Result<Vec<bool>> {
        let mut present = Vec::with_capacity(hashes.len());
        self.contains_into(generation, hashes, &mut present)?;
        Ok(present)
    }

    /// Appends whether each item is present here.
    ///
    /// # Errors
    /// If the copy is at another generation. Nothing was appended.
    pub(crate) fn contains_into(
        &self,
        generation: Generation,
        hashes: &[ItemHash],
        present: &mut Vec<bool>,
    ) -> Result<()> {
        let state = self.read();
        self.check(&state, generation)?;
        let early = 3 * u64::from(planted::on(Planted::CopyForgetsEarly));
        state.replica.contains_batch(self.slice_now() + early, hashes, present);
        Ok(())
    }

    /// Inserts items from a client of this node, and adds the new ones to the arrival rate: so they
    /// count once, on however many nodes the items are held.
    ///
    /// # Errors
    /// As `insert`.
    pub async fn insert_arriving(
        self: &Arc<Self>,
        generation: Generation,
        hashes: &[ItemHash],
    ) -> Result<Vec<bool>> {
        let is_new = self.insert(generation, hashes).await?;
        let new_count = is_new.iter().map(|&is_new| f64::from(u8::from(is_new))).sum();
        self.arrivals.add((self.filter, generation), new_count);
        Ok(is_new)
    }

    /// Inserts items. Once all are on this node's disk, returns for each whether it was new here.
    ///
    /// # Errors
    /// If the copy has another generation or no room, too many inserts wait, or the log has failed.
    pub(crate) async fn insert(
        self: &Arc<Self>,
        generation: Generation,
        hashes: &[ItemHash],
    ) -> Result<Vec<bool>> {
        if let Some(clock) = &self.clock {
            return self.insert_timed(generation, &clock.rules, hashes).await;
        }
        let (present, is_lent) = {
            let state = self.read();
            self.check(&state, generation)?;
            let mut present = Vec::with_capacity(hashes.len());
            state.replica.filter().contains_batch(hashes, &mut present);
            let new_count = present.iter().filter(|&&is_present| !is_present).count() as u64;
            room_for(self.filter, state.replica.filter(), new_count)?;
            (present, state.is_volatile() || state.replica.has_partial_bits())
        };
        self.samples().insert(hashes);
        // Merged bits that are not on disk may be lost with this process, and their source for ever;
        // and bits that the version does not cover may belong to an insert that nobody else receives.
        // In these cases present items are logged too.
        if is_lent || !present.contains(&true) {
            return self.journal.insert(generation, None, HashList::from_hashes(hashes)).await;
        }
        let logged: Vec<usize> = (0..hashes.len()).filter(|&at| !present[at]).collect();
        let mut is_new = vec![false; hashes.len()];
        if logged.is_empty() {
            return Ok(is_new);
        }
        let chosen: Vec<ItemHash> = logged.iter().map(|&at| hashes[at]).collect();
        let outcomes =
            self.journal.insert(generation, None, HashList::from_hashes(&chosen)).await?;
        for (at, outcome) in logged.into_iter().zip(outcomes) {
            is_new[at] = outcome;
        }
        Ok(is_new)
    }

    /// Applies a durable entry of the log. Returns whether each item was new.
    pub(super) fn apply(
        &self,
        index: u64,
        generation: Generation,
        slice: Option<u64>,
        hashes: &HashList,
    ) -> Result<Vec<bool>> {
        let hashes = hashes.to_vec();
        let mut state = self.write();
        state.applied_index = index;
        self.check(&state, generation)?;
        let mut outcomes = Vec::with_capacity(hashes.len());
        state.new_count += match slice {
            Some(slice) => state.replica.insert_in_slice(slice, &hashes, &mut outcomes),
            None => {
                let inserted = state.replica.insert(&hashes, &mut outcomes);
                inserted.expect("a copy has the whole hash space")
            }
        };
        state.waiting_since.get_or_insert_with(Instant::now);
        drop(state);
        Ok(outcomes.into_iter().map(|outcome| outcome == Insertion::New).collect())
    }

    /// Called when a sweep begins.
    pub(super) fn begin_sweep(&self) {
        let mut state = self.write();
        state.replica.begin_sweep();
        let waiting = state.waiting_since.take();
        state.carried_since = state.carried_since.or(waiting);
        drop(state);
        self.changed();
    }

    /// Called when a sweep has ended.
    pub(super) fn end_sweep(&self, is_whole: bool) {
        let mut state = self.write();
        if is_whole && let Some(since) = state.carried_since.take() {
            state.convergence = Some(since.elapsed());
        }
        state.replica.trim_log();
    }

    /// Whether a partner may lack something of this copy.
    pub(super) fn has_news(&self) -> bool {
        self.read().replica.has_news()
    }

    pub(super) fn set_partners(&self, partners: &[NodeId]) {
        self.write().replica.set_partners(partners);
    }

    pub(super) fn ask(&self, partner: NodeId) -> DeltaQuestion {
        self.write().replica.ask(partner)
    }

    /// The reply to a partner, with a clone of the whole filter if that must be sent and `may_copy` is
    /// true. None while an absorbed filter is not on disk yet.
    pub(super) fn reply(
        &self,
        from: NodeId,
        question: &DeltaQuestion,
        may_copy: bool,
    ) -> Result<Option<(DeltaReply, Option<AnyFilter>)>, DeltaError> {
        let mut state = self.write();
        if state.is_withheld() {
            return Ok(None);
        }
        let reply = state.replica.reply(from, question)?;
        let whole = reply.changes.is_none() && may_copy;
        let whole = whole.then(|| state.replica.filter().clone());
        Ok(Some((reply, whole)))
    }

    pub(super) fn reader(&self) -> ChangeReader {
        self.read().replica.reader()
    }

    pub(super) fn merge_changes(
        &self,
        from: NodeId,
        delta: &Delta,
        changes: ReadChanges,
    ) -> Result<u64, DeltaError> {
        let mut state = self.write();
        let new_bit_count = state.replica.merge_changes(from, delta, changes)?;
        state.merge_count += u64::from(new_bit_count > 0);
        drop(state);
        self.changed();
        Ok(new_bit_count)
    }

    pub(super) fn begin_whole(&self, from: NodeId, delta: &Delta) -> Result<(), DeltaError> {
        self.write().replica.begin_whole(from, delta)
    }

    pub(super) fn merge_whole_frame(
        &self,
        from: NodeId,
        delta: &Delta,
        frame: &[u8],
    ) -> Result<u64, DeltaError> {
        let mut state = self.write();
        let new_bit_count = state.replica.merge_whole_frame(from, delta, frame)?;
        // The copy may have been saved since the previous frame.
        state.merge_count += u64::from(new_bit_count > 0);
        Ok(new_bit_count)
    }

    pub(super) fn end_whole(
        &self,
        from: NodeId,
        delta: &Delta,
        new_bit_count: u64,
    ) -> Result<u64, DeltaError> {
        let merged = self.write().replica.end_whole(from, delta, new_bit_count)?;
        self.changed();
        Ok(merged)
    }

    /// Clears the copy for a later generation, with a new delta log; false if it has that generation
    /// already.
    pub(super) fn clear(&self, generation: Generation, log: u64) -> Result<bool, String> {
        let mut state = self.write();
        if state.generation() >= generation {
            return Ok(false);
        }
        let mut empty = self.settings.shape.create_copy().map_err(|error| error.to_string())?;
        if planted::on(Planted::ClearKeepsBits) {
            empty = state.replica.filter().clone();
        }
        state.replica.clear(generation, log, empty).map_err(|error| error.to_string())?;
        // A late copy remains one: others may have cleared theirs before this node joined, and taken inserts since.
        state.new_count = 0;
        state.saved_merge_count = state.merge_count;
        (state.waiting_since, state.carried_since) = (None, None);
        self.samples().clear();
        drop(state);
        self.changed();
        Ok(true)
    }

    /// Whether something was merged that is not on this node's disk.
    pub(super) fn is_volatile(&self) -> bool {
        self.read().is_volatile()
    }

    /// Whether the copy was cleared since it was saved.
    pub(super) fn is_cleared_unsaved(&self) -> bool {
        let state = self.read();
        state.generation() > state.saved_generation
    }

    /// Number of items that this node has inserted.
    ///
    /// # Errors
    /// If the copy is at another generation.
    pub fn inserted(&self, generation: Generation) -> Result<u64> {
        let state = self.read();
        self.check(&state, generation)?;
        Ok(state.replica.inserted())
    }

    /// Whether the copy has at least the given number of each node's inserts.
    ///
    /// # Errors
    /// If the copy is at another generation.
    pub(crate) fn dominates(&self, generation: Generation, counts: &VersionVector) -> Result<bool> {
        let state = self.read();
        self.check(&state, generation)?;
        Ok(self.has_all(&state, counts))
    }

    fn has_all(&self, state: &CopyState, counts: &VersionVector) -> bool {
        counts.iter().all(|(node, count)| {
            let own = if node == self.node { state.replica.inserted() } else { 0 };
            state.replica.version_of(node).max(own) >= count
        })
    }

    /// The copy's version vector, and whether the copy counts towards a majority.
    ///
    /// # Errors
    /// If the copy is at another generation.
    pub(crate) fn version(&self, generation: Generation) -> Result<(VersionVector, bool)> {
        let state = self.read();
        self.check(&state, generation)?;
        Ok((state.replica.coverage().complete, state.is_in_sync))
    }

    /// Lets the copy count towards a majority if it covers at least `min` of the given versions.
    pub(super) fn check_sync(&self, generation: Generation, counts: &[VersionVector], min: usize) {
        let mut state = self.write();
        if state.generation() != generation {
            return;
        }
        let covered = counts.iter().filter(|counts| self.has_all(&state, counts)).count();
        state.is_in_sync |= covered >= min;
    }

    /// Bytes of deltas that were sent and received.
    pub(super) fn traffic_bytes(&self) -> (u64, u64) {
        let Traffic { sent_bytes, received_bytes, .. } = &self.traffic;
        (sent_bytes.load(Ordering::Relaxed), received_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn refused(&self, error: &DeltaError) {
        self.traffic.refused_count.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(filter = %self.filter, %error, "a delta was refused");
    }
}

#[cfg(test)]
pub(super) mod copy_test;
