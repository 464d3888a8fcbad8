//! A filter while its frames arrive: invisible until the last frame is verified, and dropped if that does
//! not arrive.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use umbel_engine::limits::IMPORT_LEASE_MS;
use umbel_engine::meta::{
    Distribution, FilterName, FilterRecord, FilterSettings, FilterState, MetaCommand, PrincipalName,
};
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::{PartError, Recut, ShardCommand, SliceShape};
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::{HashRange, Kind};
use umbel_ports::Purpose;

use super::whole::Assembly;
use super::{
    CopyEnd, CopyFrame, FRAME_BYTES_MAX, FrameSum, LOADS_IN_FLIGHT_MAX, invalid, step_deadline,
};
use crate::catalogue::is_answering;
use crate::{Coordinator, Result};
use umbel_node::calls::{ShardAnswer, ShardRequest};
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::unexpected;
use umbel_node::limits::EXPORT_FRAME_PAYLOAD_BYTES_MAX;

/// Time between two renewals of the lease: some may fail before the filter is dropped.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The first lease of an import is longer by up to so many milliseconds, 17 minutes, drawn at random. Its end tells
/// imports under one name apart: two that begin within this time of each other have the same by one chance in a
/// million, others never.
const LEASE_DRAW_MS: u64 = 1 << 20;

/// The shards for which a copy was cut, and the shards of this cluster.
#[derive(Clone, Copy)]
pub(super) struct Cuts {
    pub(super) theirs: ShardRanges,
    pub(super) ours: ShardRanges,
}

/// A filter that is being loaded. Unless that finishes, the filter is dropped, also when the call that
/// loads it is dropped.
pub(super) struct Loading {
    coordinator: Arc<Coordinator>,
    filter: FilterId,
    generation: Generation,
    cuts: Cuts,
    /// The shard for all frames, whatever shard they name, if the filter lies in one shard.
    home: Option<ShardId>,
    /// Whether the frames of a slice must be loaded one after the other.
    is_ordered: bool,
    /// For a replicated filter: what has arrived so far, until it is complete, and a permit for its memory.
    assembly: Option<(Assembly, OwnedSemaphorePermit)>,
    /// For a filter that was cut for fewer shards: the current slice, and a permit for its memory.
    recut: Option<(Recut, OwnedSemaphorePermit)>,
    /// Frames in flight; for ordered kinds, frames of different shards.
    in_flight: JoinSet<Result<()>>,
    /// The shard of the last frame that arrived.
    last_shard: Option<ShardId>,
    /// The shard to which the last frame was sent.
    last_sent: Option<ShardId>,
    sum: FrameSum,
    /// Renews the lease until this is dropped.
    renewals: JoinSet<()>,
    is_finished: bool,
}

impl Loading {
    /// Creates the filter. In a separate task, so that a caller that gives up halfway cannot leave a
    /// filter behind: a result that nobody receives is dropped.
    pub(super) async fn begin(
        coordinator: Arc<Coordinator>,
        name: &FilterName,
        owner: Option<PrincipalName>,
        settings: FilterSettings,
        cuts: Cuts,
    ) -> Result<Self> {
        let name = name.clone();
        let made = async move { Self::make(coordinator, &name, owner, settings, cuts).await };
        tokio::spawn(made).await.unwrap_or_else(|error| Err(CallFailure::storage(error)))
    }

    async fn make(
        coordinator: Arc<Coordinator>,
        name: &FilterName,
        owner: Option<PrincipalName>,
        mut settings: FilterSettings,
        cuts: Cuts,
    ) -> Result<Self> {
        let kind = Kind::from_id(settings.kind);
        let is_ordered = kind.is_some_and(|kind| !kind.merges_by_or());
        let is_replicated = settings.distribution == Distribution::Replicated;
        let assembly = if is_replicated {
            let room = coordinator.import_room(step_deadline()).await?;
            Some((Assembly::new(&settings)?, room))
        } else {
            None
        };
        let recut = if !cuts.theirs.is_cut_like(cuts.ours) && settings.shape.place().is_none() {
            let room = coordinator.import_room(step_deadline()).await?;
            let key = settings.key.key_name();
            Some((Recut::new(settings.shape, key, cuts.theirs, cuts.ours)?, room))
        } else {
            None
        };
        if let SliceShape::Ring { newest, .. } = &mut settings.shape {
            *newest = 0;
        }
        coordinator.meta_refresh(step_deadline()).await?;
        coordinator.refuse_taken(name)?;
        let (importing, deadline) = (true, step_deadline());
        let filter =
            coordinator.propose_filter(name, &settings, importing, owner, deadline).await?;
        let home = settings.shape.place().map(|place| cuts.ours.shard_of(place));
        // From here on the filter is dropped unless loading finishes.
        let mut loading = Self {
            home,
            coordinator: Arc::clone(&coordinator),
            filter,
            generation: Generation(1),
            cuts,
            is_ordered,
            assembly,
            recut,
            in_flight: JoinSet::new(),
            last_shard: None,
            last_sent: None,
            sum: FrameSum::default(),
            renewals: JoinSet::new(),
            is_finished: false,
        };
        match loading.prepare().await {
            Ok(()) => Ok(loading),
            Err(error) => Err(loading.give_up(error).await),
        }
    }

    /// Waits until the slices, or this node's copy, can be loaded, and takes the lease.
    async fn prepare(&mut self) -> Result<()> {
        let is_empty = |state| state == FilterState::Importing;
        let record = self.coordinator.wait_filter(self.filter, step_deadline(), is_empty).await?;
        self.generation = record.generation;
        // An import that began by a command of its own has one.
        if record.expires_ms.is_none() {
            renew_lease(&self.coordinator, self.filter).await?;
        }
        self.renewals.spawn(keep_lease(Arc::clone(&self.coordinator), self.filter));
        if self.assembly.is_some() {
            self.coordinator.wait_copy(self.filter, step_deadline()).await?;
        }
        Ok(())
    }

    /// Loads with `work`. Drops the filter if that fails.
    pub(super) async fn fill(
        mut self,
        work: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<Self> {
        match work(&mut self).await {
            Ok(()) => Ok(self),
            Err(error) => Err(self.give_up(error).await),
        }
    }

    /// Makes the filter live once it is loaded. Drops the filter if that fails, unless it may be live: others may have
    /// inserted into it by now. For that reason it becomes live in a separate task, which completes even if the caller
    /// gives up.
    pub(super) async fn go_live(self) -> Result<(FilterId, FilterRecord)> {
        tokio::spawn(self.finish())
            .await
            .unwrap_or_else(|error| Err(CallFailure::OutcomeUnknown { what: error.to_string() }))
    }

    async fn finish(mut self) -> Result<(FilterId, FilterRecord)> {
        // From here on, only a refusal drops it.
        self.is_finished = true;
        match self.activate().await {
            Ok(record) => Ok((self.filter, record)),
            Err(error @ CallFailure::OutcomeUnknown { .. }) => Err(error),
            Err(error) => Err(self.give_up(error).await),
        }
    }

    /// Sends a frame to its shard, or adds it to this node's copy, or to a slice that is cut anew.
    pub(super) async fn load(&mut self, frame: CopyFrame) -> Result<()> {
        let CopyFrame { shard, frame } = frame;
        let (shard, ranges) = match self.home {
            Some(home) => (home, self.cuts.ours),
            None => (shard, self.cuts.theirs),
        };
        let (shard_count, byte_count) = (ranges.count(), frame.len());
        if shard.0 >= shard_count {
            return Err(invalid(format!("a frame is of {shard}, but there are {shard_count}")));
        }
        if byte_count > FRAME_BYTES_MAX {
            let what =
                format!("a frame has {byte_count} bytes, at most {FRAME_BYTES_MAX} are allowed");
            return Err(invalid(what));
        }
        let start_of = |shard| ranges.range(shard).map(HashRange::start);
        if self.last_shard.is_some_and(|last| start_of(shard) < start_of(last)) {
            return Err(invalid("frames must come in the order of the shards' ranges".to_owned()));
        }
        self.last_shard = Some(shard);
        self.sum.add(&frame);
        if let Some((assembly, _)) = &mut self.assembly {
            return assembly.take(&frame);
        }
        let Some((recut, _)) = &mut self.recut else { return self.send(shard, frame).await };
        let Some(slice) = recut.push(shard, &frame)? else { return Ok(()) };
        for (shard, part) in slice.parts() {
            for frame in part?.frames(EXPORT_FRAME_PAYLOAD_BYTES_MAX) {
                let bad = |what: String| CallFailure::from(PartError::BadFrame { what });
                let frame = frame.map_err(|error| bad(error.to_string()))?;
                self.send(shard, frame.into()).await?;
            }
        }
        Ok(())
    }

    /// Sends a frame to a shard of this cluster.
    async fn send(&mut self, shard: ShardId, frame: Bytes) -> Result<()> {
        let is_same = self.last_sent.replace(shard) == Some(shard);
        let most = if self.is_ordered && is_same { 0 } else { LOADS_IN_FLIGHT_MAX - 1 };
        self.wait_until(most).await?;
        let coordinator = Arc::clone(&self.coordinator);
        let (filter, generation) = (self.filter, self.generation);
        if let Some(range) = self.cuts.ours.range(shard) {
            coordinator
                .growth()
                .grow_for_frame((filter, generation), shard, range, &frame, step_deadline())
                .await?;
        }
        self.in_flight.spawn(load_frame(coordinator, shard, filter, generation, frame));
        Ok(())
    }

    /// Waits until at most this many frames are in flight.
    async fn wait_until(&mut self, most: usize) -> Result<()> {
        while self.in_flight.len() > most {
            match self.in_flight.join_next().await {
                Some(Ok(outcome)) => outcome?,
                // Tasks neither are aborted nor panic while this exists; if one did, a frame would be missing.
                Some(Err(error)) => return Err(CallFailure::storage(error)),
                None => {}
            }
        }
        Ok(())
    }

    /// Waits for all frames, and compares their count and checksum with the sender's. A replicated filter
    /// is then absorbed into this node's copy.
    pub(super) async fn verify(&mut self, end: CopyEnd) -> Result<()> {
        self.wait_until(0).await?;
        let got = self.sum.end();
        if self.recut.as_ref().is_some_and(|(recut, _)| recut.is_within_a_slice()) {
            return Err(ended_early());
        }
        if got == end {
            if let Some((assembly, room)) = self.assembly.take() {
                let (whole, newest_slice) = assembly.finish()?;
                self.coordinator
                    .absorb(self.filter, self.generation, whole, newest_slice, room)
                    .await?;
            }
            return Ok(());
        }
        let what = format!(
            "{} frames with checksum {:#010x} came, expected {} with {:#010x}",
            got.frame_count, got.checksum, end.frame_count, end.checksum
        );
        Err(PartError::BadFrame { what }.into())
    }

    async fn activate(&self) -> Result<FilterRecord> {
        let filter = self.filter;
        let command = MetaCommand::ActivateImport { filter };
        self.coordinator.meta_propose(command, step_deadline()).await?;
        let live = self.coordinator.wait_filter(filter, step_deadline(), is_answering).await;
        live.map_err(failure_after_activation)
    }

    /// Drops the filter before the error is returned, so that its name is free when the client learns of
    /// the error.
    async fn give_up(mut self, error: CallFailure) -> CallFailure {
        self.in_flight.abort_all();
        self.is_finished = true;
        drop_half(Arc::clone(&self.coordinator), self.filter).await;
        error
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // The client is gone. Without a runtime, as when the node stops, nothing can be done.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(drop_half(Arc::clone(&self.coordinator), self.filter));
        }
    }
}

/// The error of a wait for a filter whose activation was applied: without an answer, it may be live.
fn failure_after_activation(error: CallFailure) -> CallFailure {
    match error {
        CallFailure::NoQuorum { .. } => CallFailure::OutcomeUnknown { what: error.to_string() },
        error => error,
    }
}

impl Coordinator {
    /// The command that creates a filter to be loaded. In a cluster of a version that does not know the command
    /// that tells imports apart, it is the one for all filters.
    pub(crate) fn begun_import(
        &self,
        name: FilterName,
        settings: FilterSettings,
        owner: Option<PrincipalName>,
    ) -> Result<MetaCommand> {
        let drawn = self.seed().number(Purpose::Import) % LEASE_DRAW_MS;
        let expires_ms = self.term_start_ms().saturating_add(IMPORT_LEASE_MS).saturating_add(drawn);
        let begin = MetaCommand::BeginImport { name, settings, owner, expires_ms };
        let is_known = self.read_meta(|state| state.check_writable(&begin).is_ok())?;
        Ok(match begin {
            MetaCommand::BeginImport { name, settings, owner, .. } if !is_known => {
                MetaCommand::CreateFilter { name, settings, importing: true, owner }
            }
            begin => begin,
        })
    }
}

async fn load_frame(
    coordinator: Arc<Coordinator>,
    shard: ShardId,
    filter: FilterId,
    generation: Generation,
    frame: Bytes,
) -> Result<()> {
    let command = ShardCommand::LoadFrame { filter, generation, frame };
    let request = ShardRequest::Command(command);
    match coordinator.shard_call(shard, request, step_deadline()).await? {
        ShardAnswer::Done(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Says that a filter is still being loaded: if nobody does, it is dropped. In a cluster of a version that does
/// not know this, the filter stays.
async fn renew_lease(coordinator: &Coordinator, filter: FilterId) -> Result<()> {
    let expires_ms = coordinator.term_start_ms().saturating_add(IMPORT_LEASE_MS);
    let command = MetaCommand::RenewImport { filter, expires_ms };
    if coordinator.read_meta(|state| state.check_writable(&command).is_err())? {
        return Ok(());
    }
    coordinator.meta_propose(command, step_deadline()).await.map(drop)
}

/// Renews the lease for ever.
async fn keep_lease(coordinator: Arc<Coordinator>, filter: FilterId) {
    let mut turns = tokio::time::interval(RENEWAL_INTERVAL);
    // The first one is at once.
    turns.tick().await;
    loop {
        turns.tick().await;
        if let Err(error) = renew_lease(&coordinator, filter).await {
            tracing::warn!(%filter, %error, "a filter that is being loaded may expire");
        }
    }
}

/// Drops a filter that is not live yet, so that nobody has renamed it or inserted into it. If the command does not reach
/// the cluster, the filter stays invisible until its lease ends, and can be dropped by its name.
async fn drop_half(coordinator: Arc<Coordinator>, filter: FilterId) {
    let command = MetaCommand::DropFilter { filter };
    if let Err(error) = coordinator.meta_propose(command, step_deadline()).await {
        tracing::warn!(%filter, %error, "a filter that was half loaded could not be dropped");
    }
}

pub(super) fn ended_early() -> CallFailure {
    invalid("the copy ends early: its last part is missing".to_owned())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::Instant;
    use umbel_engine::meta::MetaError;

    use super::*;
    use crate::catalogue::ranges_of;
    use crate::nodes_test::Coordinated;
    use crate::nodes_test::node_test::{create, deadline, start_alone};

    /// "Nothing was done" would be wrong, and what may be live is not dropped: others may have inserted into it.
    #[test]
    fn a_filter_may_be_live_unless_it_is_known_to_be_gone() {
        let silent = CallFailure::NoQuorum { what: "meta".to_owned(), within: Duration::ZERO };
        let text = silent.to_string();
        let CallFailure::OutcomeUnknown { what } = failure_after_activation(silent) else {
            panic!()
        };
        assert_eq!(what, text);
        let refused = CallFailure::Meta(MetaError::UnknownFilter { filter: FilterId(1) });
        assert!(matches!(failure_after_activation(refused), CallFailure::Meta(_)));
    }

    /// Others may have inserted into it by the time at which its client leaves.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_filter_that_was_loaded_becomes_live_although_its_client_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let coordinator = node.coordinator();
        create(&coordinator, "original", Kind::Blocked).await;
        let original = coordinator.live_filter("original", deadline()).await.unwrap();
        let ranges = coordinator.read_meta(ranges_of).unwrap().unwrap();
        let cuts = Cuts { theirs: ranges, ours: ranges };
        let name = FilterName::new("again").unwrap();
        let settings = original.record.settings;
        let begun = Loading::begin(Arc::clone(&coordinator), &name, None, settings, cuts);
        let loading = begun.await.unwrap();
        let filter = loading.filter;
        // Drops the call when it first waits, which is for the activation.
        let loaded = loading.fill(async |_| Ok(())).await.unwrap();
        drop(loaded.go_live().now_or_never());
        let end = deadline();
        while Arc::strong_count(&coordinator) > 1 {
            assert!(Instant::now() < end, "what the call left behind does not end");
            tokio::task::yield_now().await;
        }
        assert_eq!(coordinator.live_filter("again", deadline()).await.unwrap().id, filter);
        drop(coordinator);
        node.shutdown().await;
    }
}
