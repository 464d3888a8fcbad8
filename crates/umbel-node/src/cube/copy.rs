//! One copy of a replicated filter on this node: bits, what it has to send, local inserts and
//! questions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use umbel_engine::hypercube::{
    ChangeReader, Delta, DeltaError, Merged, Question, ReadChanges, Replica, Reply, SampleTable,
    VersionVector,
};
use umbel_engine::meta::FilterSettings;
use umbel_engine::shard::HashList;
use umbel_engine::{FilterId, Generation, GroupId, NodeId};
use umbel_filter::{AnyFilter, Contains, Insertion, ItemHash, ItemHasher};
use umbel_step::planted::{self, Planted};

use super::failure::CopyFailure;
use super::journal::Journal;
use crate::arrivals::Arrivals;

mod absorbing;
mod comparing;
mod sampling;
mod slices;

pub(super) use slices::SliceClock;

/// A copy, shared by those who insert, ask and exchange.
pub(crate) struct Copy {
    pub(super) node: NodeId,
    pub(super) filter: FilterId,
    pub(super) group: GroupId,
    pub(super) settings: FilterSettings,
    /// Of a filter that forgets.
    clock: Option<SliceClock>,
    state: RwLock<CopyState>,
    /// Of what was inserted where; after the state, where both are locked.
    samples: Mutex<SampleTable>,
    pub(super) journal: Journal,
    /// Held while a snapshot is written: of two that end at one entry the later one must stay.
    pub(super) saving: tokio::sync::Mutex<()>,
    /// Rises whenever the copy knows more, or is emptied.
    revision: watch::Sender<u64>,
    pub(super) traffic: Traffic,
    /// Of items that clients of this node inserted.
    pub(crate) arrivals: Arrivals,
}

/// What is behind the lock.
pub(super) struct CopyState {
    pub(super) replica: Replica,
    /// The last entry of this node's log that is in the bits, or is passed over.
    pub(super) applied_index: u64,
    /// Items that were inserted here and were absent, of this generation.
    pub(super) new_count: u64,
    /// Whether the copy counts for levels of majority.
    pub(super) is_settled: bool,
    /// Merges that brought something, and those of them that are on this node's disk.
    pub(super) merge_count: u64,
    pub(super) saved_merge_count: u64,
    /// The number of merges when a filter was last absorbed. That is in no log, so until it is saved
    /// a restart would give its number to another change, and nobody must learn of it.
    absorbed_merge_count: u64,
    /// When the oldest insert came that waits for the next sweep.
    waiting_since: Option<Instant>,
    /// The same of the inserts that are under way.
    carried_since: Option<Instant>,
    /// How long the last ones needed to come everywhere.
    pub(super) convergence: Option<Duration>,
}

impl CopyState {
    pub(super) fn new(replica: Replica, applied_index: u64, is_settled: bool) -> Self {
        Self {
            replica,
            applied_index,
            new_count: 0,
            is_settled,
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

    /// Whether something was merged that no disk of this node holds.
    const fn is_volatile(&self) -> bool {
        self.merge_count != self.saved_merge_count
    }

    /// Whether a filter was absorbed that no disk of this node holds.
    const fn is_withheld(&self) -> bool {
        self.absorbed_merge_count > self.saved_merge_count
    }
}

/// Bytes of deltas, and what was refused.
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

    /// The same for who tells of all of a copy: one that forgets is in the slice of time that it is. Whoever asks
    /// goes on meanwhile.
    pub(super) fn read_now(&self) -> RwLockReadGuard<'_, CopyState> {
        if self.clock.is_some() {
            drop(self.write());
        }
        self.read()
    }

    /// Whoever changes a copy that forgets, or tells of it, finds it in the slice of time that it is.
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

    /// Told whenever the copy knows more, or is emptied.
    pub(crate) fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Whose log it is in calls and on disk.
    pub(crate) const fn group(&self) -> GroupId {
        self.group
    }

    /// What hashes items for the filter.
    pub(crate) fn hasher(&self) -> ItemHasher {
        self.settings.key.hasher()
    }

    /// Changes that a partner may lack, the most of all partners.
    pub(crate) fn lag(&self) -> u64 {
        let state = self.read();
        let lags = state.replica.partners().map(|node| state.replica.lag(node));
        lags.max().unwrap_or(0)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.read().generation()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.read().is_settled
    }

    fn check(&self, state: &CopyState, theirs: Generation) -> Result<(), CopyFailure> {
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
    pub(crate) fn contains(
        &self,
        generation: Generation,
        hashes: &[ItemHash],
    ) -> Result<Vec<bool>, CopyFailure> {
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
    ) -> Result<(), CopyFailure> {
        let state = self.read();
        self.check(&state, generation)?;
        let early = 3 * u64::from(planted::on(Planted::CopyForgetsEarly));
        state.replica.contains_batch(self.slice_now() + early, hashes, present);
        Ok(())
    }

    /// Inserts items that a client of this node brings, and counts the new ones among those that arrive: once over
    /// all nodes, on however many the items are held at once.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub(crate) async fn insert_arriving(
        self: &Arc<Self>,
        generation: Generation,
        hashes: &[ItemHash],
    ) -> Result<Vec<bool>, CopyFailure> {
        let is_new = self.insert(generation, hashes).await?;
        let new_count = is_new.iter().map(|&is_new| f64::from(u8::from(is_new))).sum();
        self.arrivals.add((self.filter, generation), new_count);
        Ok(is_new)
    }

    /// Inserts items, and says of each whether it was new here, once all are on this node's disk.
    ///
    /// # Errors
    /// If the copy is at another generation, too much waits, or the log has failed.
    pub(crate) async fn insert(
        self: &Arc<Self>,
        generation: Generation,
        hashes: &[ItemHash],
    ) -> Result<Vec<bool>, CopyFailure> {
        if let Some(clock) = &self.clock {
            return self.insert_timed(generation, &clock.rules, hashes).await;
        }
        let (present, is_lent) = {
            let state = self.read();
            self.check(&state, generation)?;
            let mut present = Vec::with_capacity(hashes.len());
            state.replica.filter().contains_batch(hashes, &mut present);
            (present, state.is_volatile() || state.replica.has_partial_bits())
        };
        self.samples().insert(hashes);
        // What was merged may be lost with this process, and its source for ever; bits that the version does
        // not name may be those of an insert that nobody else gets.
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

    /// Takes over an entry of the log that is durable: whether each item was new.
    pub(super) fn apply(
        &self,
        index: u64,
        (generation, slice): (Generation, Option<u64>),
        hashes: &HashList,
    ) -> Result<Vec<bool>, CopyFailure> {
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

    /// A sweep begins.
    pub(super) fn begin_sweep(&self) {
        let mut state = self.write();
        state.replica.begin_sweep();
        let waiting = state.waiting_since.take();
        state.carried_since = state.carried_since.or(waiting);
        drop(state);
        self.changed();
    }

    /// A sweep has ended.
    pub(super) fn end_sweep(&self, is_whole: bool) {
        let mut state = self.write();
        if is_whole && let Some(since) = state.carried_since.take() {
            state.convergence = Some(since.elapsed());
        }
        state.replica.trim_log();
    }

    /// Whether somebody may lack something of this copy.
    pub(super) fn has_news(&self) -> bool {
        self.read().replica.has_news()
    }

    pub(super) fn set_partners(&self, partners: &[NodeId]) {
        self.write().replica.set_partners(partners);
    }

    pub(super) fn ask(&self, partner: NodeId) -> Question {
        self.write().replica.ask(partner)
    }

    /// What to answer a partner; with the whole filter if that is to be sent and may be. None while
    /// what was absorbed is on its way to the disk.
    pub(super) fn reply(
        &self,
        from: NodeId,
        question: &Question,
        may_copy: bool,
    ) -> Result<Option<(Reply, Option<AnyFilter>)>, DeltaError> {
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
    ) -> Result<Merged, DeltaError> {
        let mut state = self.write();
        let merged = state.replica.merge_changes(from, delta, changes)?;
        state.merge_count += u64::from(merged.new_bit_count > 0);
        drop(state);
        self.changed();
        Ok(merged)
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
        // The copy may have been saved since the frame before.
        state.merge_count += u64::from(new_bit_count > 0);
        Ok(new_bit_count)
    }

    pub(super) fn end_whole(
        &self,
        from: NodeId,
        delta: &Delta,
        new_bit_count: u64,
    ) -> Result<Merged, DeltaError> {
        let merged = self.write().replica.end_whole(from, delta, new_bit_count)?;
        self.changed();
        Ok(merged)
    }

    /// Empties the copy for a later generation, with a new delta log; false if it is there already.
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
        // Every copy of a generation begins empty, so this one lacks nothing.
        (state.new_count, state.is_settled) = (0, true);
        state.saved_merge_count = state.merge_count;
        (state.waiting_since, state.carried_since) = (None, None);
        self.samples().clear();
        drop(state);
        self.changed();
        Ok(true)
    }

    /// Whether something was merged that no disk of this node holds.
    pub(super) fn is_volatile(&self) -> bool {
        self.read().is_volatile()
    }

    /// All that this node has inserted.
    ///
    /// # Errors
    /// If the copy is at another generation.
    pub(crate) fn inserted(&self, generation: Generation) -> Result<u64, CopyFailure> {
        let state = self.read();
        self.check(&state, generation)?;
        Ok(state.replica.inserted())
    }

    /// Whether the copy has so many of the inserts of each node.
    ///
    /// # Errors
    /// If the copy is at another generation.
    pub(crate) fn dominates(
        &self,
        generation: Generation,
        counts: &VersionVector,
    ) -> Result<bool, CopyFailure> {
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

    /// All that the copy has, and whether it counts for levels of majority.
    ///
    /// # Errors
    /// If the copy is at another generation.
    pub(crate) fn version(
        &self,
        generation: Generation,
    ) -> Result<(VersionVector, bool), CopyFailure> {
        let state = self.read();
        self.check(&state, generation)?;
        Ok((state.replica.coverage().complete, state.is_settled))
    }

    /// Lets the copy count for levels of majority if it has all that a majority had.
    pub(super) fn settle(&self, generation: Generation, counts: &[VersionVector], wanted: usize) {
        let mut state = self.write();
        if state.generation() != generation {
            return;
        }
        let covered = counts.iter().filter(|counts| self.has_all(&state, counts)).count();
        state.is_settled |= covered >= wanted;
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
mod copy_test;
