//! All copies of this node, as the catalogue requires them: created, cleared, dropped, saved.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use umbel_engine::meta::{FilterSettings, FilterState, MetaState};
use umbel_engine::{FilterId, Generation, GroupId, NodeId};
use umbel_filter::AnyFilter;
use umbel_ports::{Pacer, Purpose, Rare, Seed, locked};
use umbel_raft::Recollection;
use umbel_replicated_engine::hypercube::{DeltaError, ReplicaOptions, Step};
use umbel_step::planted::{self, Planted};
use umbel_storage::{LogStore, SnapshotStore, Storage};

use super::copy::{Copy, CopyState, SliceClock};
use super::events::ExchangeEvent;
use super::questions::QuestionRooms;
use super::scrub::CopyScrubs;
use super::{image, journal};
use crate::calls::SweepCounts;
use crate::comparisons::Comparison;
use crate::config::Config;
use crate::limits::{
    EXPORT_FRAME_PAYLOAD_BYTES_MAX, EXPORT_IDLE_MAX, EXPORTS_MAX, WHOLE_IMPORTS_MAX,
};
use crate::member::Member;
use crate::metrics;
use crate::ports::observer;
use crate::space::Space;

#[cfg(test)]
mod copies_test;
mod saving;

/// Most payload bytes of a delta's frame. A delta has many frames, and each is encoded and merged while
/// the copy is locked.
const FRAME_PAYLOAD_BYTES_MAX: usize = 256 << 10;

/// The same where a simulation asks for small pieces: deltas have many frames then.
const SMALL_PAYLOAD_BYTES: usize = 256;

/// Memory for the delta log where a simulation asks for small pieces: a node that was away gets the
/// whole filter.
const SMALL_LOG_BYTES: usize = 4 << 10;

/// Events that may wait for the exchange: two from each node of the largest cluster.
const EVENTS_MAX: usize = 512;

/// Frames of an export that are encoded ahead of the reader.
const FRAMES_AHEAD: usize = 2;

/// Whole filters that are sent at once; each is a clone in memory. Two, so that one partner that reads slowly does not
/// keep all others waiting.
pub(super) const WHOLE_SENDS_MAX: usize = 2;

/// Most bytes of lists of changes held at once, over all partners and filters; each list is held until
/// it is complete. Room for two of the longest.
pub(super) const LISTED_BYTES_MAX: usize = 1 << 30;

/// All copies of this node.
pub struct Copies {
    pub(super) member: Arc<Member>,
    storage: Storage,
    seed: Arc<dyn Seed>,
    space: Arc<Space>,
    recollection: Arc<Recollection>,
    delta_log_bytes_max: usize,
    queue_items_max: usize,
    held: RwLock<BTreeMap<FilterId, OpenCopy>>,
    /// The index in the meta group's log up to which the copies agree with the catalogue.
    followed: watch::Sender<u64>,
    pub(super) events: mpsc::Sender<ExchangeEvent>,
    /// Taken by the exchange when it starts.
    waiting: Mutex<Option<mpsc::Receiver<ExchangeEvent>>>,
    pub(super) questions: QuestionRooms,
    pub(super) pacer: Pacer,
    pub(super) whole_sends: Semaphore,
    /// One permit per byte of the lists of changes that are being received.
    pub(super) listed: Arc<Semaphore>,
    /// One permit per copy that is being exported, because each is a clone in memory.
    exports: Arc<Semaphore>,
    /// One permit per filter that is being assembled for an import.
    imports: Arc<Semaphore>,
    scrubs: CopyScrubs,
    sweeps: Mutex<SweepCounts>,
    /// The current step of the running sweep.
    step: Mutex<Option<Step>>,
    refused_count: AtomicU64,
}

/// A copy that is open on this node.
struct OpenCopy {
    copy: Arc<Copy>,
    writer: JoinHandle<()>,
    saved_at: Instant,
    /// The copy's own log and snapshots. They fail once the copy is forgotten, where others would begin files again
    /// that nobody removes.
    log: LogStore,
    snapshots: SnapshotStore,
}

/// A replicated filter in the catalogue.
struct WantedCopy {
    generation: Generation,
    settings: FilterSettings,
}

impl Copies {
    pub(crate) fn new(
        member: Arc<Member>,
        config: &Config,
        storage: Storage,
        seed: Arc<dyn Seed>,
        space: Arc<Space>,
        recollection: Arc<Recollection>,
    ) -> Self {
        let (events, waiting) = mpsc::channel(EVENTS_MAX);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            member,
            storage,
            seed,
            space,
            recollection,
            delta_log_bytes_max: count(config.delta_log_bytes_max),
            queue_items_max: count(config.queue_items_max),
            held: RwLock::default(),
            followed: watch::Sender::new(0),
            events,
            waiting: Mutex::new(Some(waiting)),
            questions: QuestionRooms::new(),
            pacer: Pacer::new(config.exchange_bytes_per_second_max),
            whole_sends: Semaphore::new(WHOLE_SENDS_MAX),
            listed: Arc::new(Semaphore::new(LISTED_BYTES_MAX)),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
            imports: Arc::new(Semaphore::new(WHOLE_IMPORTS_MAX)),
            scrubs: CopyScrubs::new(),
            sweeps: Mutex::default(),
            step: Mutex::default(),
            refused_count: AtomicU64::new(0),
        }
    }

    pub(super) fn take_events(&self) -> Option<mpsc::Receiver<ExchangeEvent>> {
        locked(&self.waiting).take()
    }

    /// The copy of a filter, if this node has one.
    pub fn get(&self, filter: FilterId) -> Option<Arc<Copy>> {
        Some(Arc::clone(&self.read().get(&filter)?.copy))
    }

    /// All copies, ordered by filter.
    pub fn all(&self) -> Vec<Arc<Copy>> {
        self.read().values().map(|held| Arc::clone(&held.copy)).collect()
    }

    /// Generation and bits of a copy, for programs that embed the node.
    pub(crate) fn bits(&self, filter: FilterId) -> Option<(Generation, AnyFilter)> {
        Some(self.get(filter)?.bits())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<FilterId, OpenCopy>> {
        // No holder of the lock panics, and the map is consistent after every statement.
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<FilterId, OpenCopy>> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the index in the meta group's log up to which the copies have followed the catalogue.
    pub fn followed(&self) -> watch::Receiver<u64> {
        self.followed.subscribe()
    }

    /// Counters of the sweeps.
    pub fn sweeps(&self) -> SweepCounts {
        *locked(&self.sweeps)
    }

    /// The current step of the running sweep; None between sweeps.
    pub(crate) fn step(&self) -> Option<Step> {
        *locked(&self.step)
    }

    pub(super) fn note_step(&self, step: Option<Step>) {
        *locked(&self.step) = step;
    }

    pub(super) fn count_sweeps(&self, change: impl FnOnce(&mut SweepCounts)) {
        change(&mut locked(&self.sweeps));
    }

    /// Number of refused messages of the exchange.
    pub fn refused_count(&self) -> u64 {
        self.refused_count.load(Ordering::Relaxed)
    }

    /// Bytes of deltas that were sent and received.
    pub fn traffic_bytes(&self) -> (u64, u64) {
        let loads = self.all().into_iter().map(|copy| copy.traffic_bytes());
        loads.fold((0, 0), |(sent, received), (s, r)| (sent + s, received + r))
    }

    pub(super) fn refused(&self, from: NodeId, why: &dyn std::fmt::Display) {
        self.refused_count.fetch_add(1, Ordering::Relaxed);
        metrics::exchange_refused();
        tracing::info!(%from, %why, "an exchange was refused");
    }

    /// State of the comparisons.
    pub(super) const fn scrubs(&self) -> &CopyScrubs {
        &self.scrubs
    }

    /// The free bytes of the disk, if they are too few to accept inserts.
    pub(super) fn shortage(&self) -> Option<u64> {
        self.space.shortage()
    }

    /// Makes the exchange begin a sweep as soon as possible.
    pub(crate) fn begin_sweep(&self) {
        // If the queue of events is full, a sweep begins anyway.
        let _ = self.events.try_send(ExchangeEvent::Wanted);
    }

    fn draw_log_number(&self) -> u64 {
        self.seed.number(Purpose::DeltaLog).max(1)
    }

    /// Creates, clears and drops copies until they agree with the catalogue as of the entry `index` or
    /// later.
    ///
    /// A node that starts replays old catalogues, which is harmless: a filter's number is the index of
    /// the entry that created it, so a filter that is missing from a newer catalogue is gone for ever,
    /// and a generation lower than the copy's is an old one.
    ///
    /// # Errors
    /// If the disk fails, or a copy on it is damaged.
    pub(crate) async fn follow(
        &self,
        index: u64,
        read: impl FnOnce(&mut dyn FnMut(&MetaState)),
    ) -> Result<(), String> {
        let mut wanted: BTreeMap<FilterId, WantedCopy> = BTreeMap::new();
        read(&mut |state| {
            let replicated = state.filters().filter(|(_, record)| record.is_replicated());
            let present = replicated.filter(|(_, r)| r.state != FilterState::Dropping);
            wanted.extend(present.map(|(filter, record)| {
                let (generation, settings) = (record.generation, record.settings.clone());
                (filter, WantedCopy { generation, settings })
            }));
        });
        let on_disk = self.storage.groups().into_iter().filter_map(GroupId::copy);
        let in_memory = self.read().keys().copied().collect::<Vec<_>>();
        for filter in on_disk.chain(in_memory) {
            if filter.0 <= index && !wanted.contains_key(&filter) {
                self.forget(filter).await?;
            }
        }
        for (filter, wanted) in wanted {
            let copy = match self.get(filter) {
                Some(copy) => copy,
                None => self.open(filter, wanted.settings).await?,
            };
            if copy.clear(wanted.generation, self.draw_log_number())? {
                // It is saved by and by: until then its log says that it was cleared.
                tracing::info!(%filter, generation = %wanted.generation, "the copy was emptied");
            }
        }
        self.followed.send_replace(index);
        Ok(())
    }

    async fn open(&self, filter: FilterId, settings: FilterSettings) -> Result<Arc<Copy>, String> {
        let node = self.member.node();
        let group = GroupId::of_copy(filter).ok_or_else(|| format!("{filter} has no log"))?;
        let (log, snapshots) = (self.storage.log(group), self.storage.snapshots(group));
        let failed = |error: String| format!("{group}: {error}");
        if !self.storage.groups().contains(&group) {
            log.found(node).await.map_err(|error| failed(error.to_string()))?;
        }
        let is_small = self.seed.provokes(Rare::SmallPieces);
        let options = ReplicaOptions {
            node,
            filter,
            generation: Generation(1),
            log: self.draw_log_number(),
            key: settings.frame_key(),
            log_bytes_max: if is_small { SMALL_LOG_BYTES } else { self.delta_log_bytes_max },
            payload_bytes_max: if is_small { SMALL_PAYLOAD_BYTES } else { FRAME_PAYLOAD_BYTES_MAX },
        };
        // A node that was a member when the filter was created lacks nothing of it. Nodes that join
        // later have higher numbers: a node's number is the index of the entry that added it.
        let is_in_sync = node.0 < filter.0;
        let loaded = image::load(options, &settings, is_in_sync, &log, &snapshots).await;
        let (state, samples) = loaded.map_err(|error| {
            let what = failed(error.to_string());
            if error.is_damage {
                self.log_damage(&what);
            }
            what
        })?;
        self.check_inserts(filter, &state)?;
        let last = state.applied_index.max(log.last_index());
        let (journal, jobs) = journal::queue(self.queue_items_max, Arc::clone(&self.space));
        let clock = SliceClock::of(&settings, &self.seed);
        let (place, what) = ((node, filter, group), (settings, clock));
        let copy = Copy::new(place, what, (state, samples), journal);
        let copy = Arc::new(copy);
        let writer = tokio::spawn(journal::run(Arc::clone(&copy), jobs, log.clone(), last));
        let held =
            OpenCopy { copy: Arc::clone(&copy), writer, saved_at: Instant::now(), log, snapshots };
        self.write().insert(filter, held);
        tracing::info!(%filter, "copy opened");
        // The exchange gives the copy its partners and requests what it lacks.
        let _ = self.events.try_send(ExchangeEvent::Opened);
        Ok(copy)
    }

    /// Refuses a copy with fewer of this node's own inserts than another node has. It would reuse the
    /// numbers of the missing inserts for new ones, which nobody would then request.
    fn check_inserts(&self, filter: FilterId, state: &CopyState) -> Result<(), String> {
        let Some(known) = self.recollection.inserts(filter) else { return Ok(()) };
        let (generation, count) = (state.generation(), state.replica.inserted());
        if (generation, count) >= (known.generation, known.count)
            || planted::on(Planted::OldImageJoins)
        {
            return Ok(());
        }
        let what = self.too_old(filter, count, known.by, known.count);
        self.log_damage(&what);
        Err(what)
    }

    fn log_damage(&self, what: &str) {
        if let Some(observer) = self.storage.observer() {
            observer.observe(&observer::Event::DamageFound { what });
        }
    }

    /// The error for a copy that has fewer of this node's inserts, `ours`, than the copy of the node `by` has, `theirs`.
    fn too_old(&self, filter: FilterId, ours: u64, by: NodeId, theirs: u64) -> String {
        let node = self.member.node().0;
        format!(
            "the data folder is older than what the cluster knows of this node: it has {ours} of its own \
             inserts into replicated {filter}, {by} has {theirs} of them; put the newest folder back, or \
             run `umbel cluster remove {node}` on another node and let this one join again with an empty \
             folder"
        )
    }

    /// Stops this node if a partner reports more of this node's inserts than this node has. The partner
    /// was not asked about them when this node started.
    pub(super) fn stop_if_outgrown(&self, error: &DeltaError) {
        if let DeltaError::CoverageAhead { from, filter, theirs, ours, .. } = *error
            && !planted::on(Planted::OldImageJoins)
        {
            let what = self.too_old(filter, ours, from, theirs);
            self.log_damage(&what);
            self.member.fail(what.into());
        }
    }

    /// How many of a node's inserts each copy on this node has.
    pub(crate) fn inserts_of(&self, node: NodeId) -> Vec<(FilterId, Generation, u64)> {
        let count = |(&filter, held): (&FilterId, &OpenCopy)| {
            let state = held.copy.read();
            (filter, state.generation(), state.replica.version_of(node))
        };
        self.read().iter().map(count).filter(|(_, _, count)| *count > 0).collect()
    }

    async fn forget(&self, filter: FilterId) -> Result<(), String> {
        let held = self.write().remove(&filter);
        if let Some(held) = held {
            held.writer.abort();
            // The writer has ended and writes nothing more, whether it was aborted or not.
            let _ = held.writer.await;
        }
        let Some(group) = GroupId::of_copy(filter) else { return Ok(()) };
        if self.storage.groups().contains(&group) {
            let forgotten = self.storage.forget(group).await;
            forgotten.map_err(|error| format!("{group} cannot be forgotten: {error}"))?;
            tracing::info!(%filter, "copy dropped");
        }
        Ok(())
    }

    /// Waits for room in memory for a filter that is assembled to be absorbed.
    #[expect(clippy::missing_panics_doc, reason = "the semaphore is never closed")]
    pub async fn import_room(&self) -> OwnedSemaphorePermit {
        let imports = Arc::clone(&self.imports);
        imports.acquire_owned().await.expect("it is never closed")
    }

    /// The newest time slice of a windowed copy, and the frames of the copy's current state, encoded as
    /// they are read. With `is_raw` the frames contain plain words.
    #[expect(clippy::missing_panics_doc, reason = "the semaphore is never closed")]
    pub async fn frames(
        &self,
        copy: &Copy,
        is_raw: bool,
    ) -> (Option<u64>, mpsc::Receiver<Result<Bytes, String>>) {
        let exports = Arc::clone(&self.exports);
        let permit = exports.acquire_owned().await.expect("it is never closed");
        let (sender, frames) = mpsc::channel(FRAMES_AHEAD);
        let ((newest_slice, filter), key) = (copy.image(), copy.settings.frame_key());
        // The task ends when the receiver is dropped, and frees the clone of the copy.
        tokio::spawn(async move {
            let _permit = permit;
            let frames = umbel_codec::frames(&filter, key, EXPORT_FRAME_PAYLOAD_BYTES_MAX);
            for frame in if is_raw { frames.raw() } else { frames } {
                let frame = frame.map(Bytes::from).map_err(|error| error.to_string());
                // If the reader stops reading, its permit becomes free for others.
                if !matches!(timeout(EXPORT_IDLE_MAX, sender.send(frame)).await, Ok(Ok(()))) {
                    return;
                }
            }
        });
        (newest_slice, frames)
    }

    /// The result of each copy's last comparison with each of its partners.
    pub(crate) fn last_comparisons(&self) -> Vec<((FilterId, NodeId), Option<Comparison>)> {
        let pairs = |copy: &Arc<Copy>| {
            let filter = copy.filter;
            copy.partners().into_iter().map(move |partner| (filter, partner))
        };
        self.scrubs.last_of(self.all().iter().flat_map(pairs).collect())
    }

    /// Updates the metrics.
    pub(crate) fn measure(&self) {
        let copies = self.all();
        let bytes = copies.iter().map(|copy| copy.memory_bytes()).sum();
        let lag_max = copies.iter().map(|copy| copy.lag()).max().unwrap_or_default();
        metrics::copies(copies.len(), bytes, lag_max);
        let filters = copies.iter().map(|copy| copy.filter).collect();
        metrics::scrub_age(self.scrubs.age(&filters).unwrap_or_default());
    }

    /// Stops all copies.
    pub(crate) fn shut_down(&self) {
        self.scrubs.stop();
        for held in self.read().values() {
            held.writer.abort();
        }
    }
}
