//! Copies that are taken in: into filters that nobody sees until the last frame is verified.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;
use umbel_engine::meta::{
    Distribution, FilterName, FilterRecord, FilterSettings, FilterState, MetaCommand, MetaError,
    PrincipalName,
};
use umbel_engine::routing::{home_of, range_of};
use umbel_engine::shard::{PartError, ShardCommand, SliceShape};
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::{CellCount, Kind};

use super::whole::{Assembly, one_cell};
use super::{
    BACKUP_FORMAT, BackupFilter, BackupHead, BackupPart, CopyEnd, CopyFrame, ExportedSettings,
    FRAME_BYTES_MAX, FrameSum, ImportHead, ImportPart, LOADS_IN_FLIGHT_MAX, QUIET_MAX,
    check_shard_count, checked, decode_settings, invalid, step_deadline,
};
use crate::calls::{ShardAnswer, ShardRequest};
use crate::coordinator::catalogue::{cells_of, is_answering};
use crate::coordinator::{Coordinator, unexpected};
use crate::failure::CallFailure;

impl Coordinator {
    /// Makes a filter of an export. It goes live when count and checksum of the frames are right;
    /// otherwise, or when the caller gives up, it is dropped. It counts for the quota of `owner`.
    pub(crate) async fn import<S>(
        self: &Arc<Self>,
        mut parts: S,
        owner: Option<PrincipalName>,
    ) -> Result<(FilterId, FilterRecord), CallFailure>
    where
        S: Stream<Item = Result<ImportPart, CallFailure>> + Unpin,
    {
        let Some(ImportPart::Head(head)) = next(&mut parts).await? else {
            return Err(invalid("the first message must hold a header".to_owned()));
        };
        let ImportHead { name, shard_count, settings } = head;
        let settings: ExportedSettings = decode_settings(&settings)?;
        self.meta_refresh(step_deadline()).await?;
        let settings = self.read_meta(|state| settings.with_key(state))??;
        let cells = self.cells_for(&settings)?;
        check_shard_count(shard_count, &settings.shape, cells)?;
        let mut settings = checked(settings, cells)?;
        settings.shape = self.placed(settings.shape);
        let loading = Loading::begin(Arc::clone(self), (&name, owner), settings, cells).await?;
        loading
            .run(async |loading| {
                loop {
                    match next(&mut parts).await? {
                        Some(ImportPart::Frame(frame)) => loading.load(frame).await?,
                        Some(ImportPart::End(end)) => return loading.verify(end).await,
                        Some(ImportPart::Head(_)) => {
                            return Err(invalid("a second header came".to_owned()));
                        }
                        None => return Err(ended_early()),
                    }
                }
            })
            .await
    }

    /// Makes the filters of a backup, each as soon as its frames are verified, and returns their
    /// names. Those whose names are taken are left out. On an error the filters that are complete
    /// stay.
    pub(crate) async fn restore<S>(
        self: &Arc<Self>,
        mut parts: S,
        owner: Option<PrincipalName>,
    ) -> Result<Vec<String>, CallFailure>
    where
        S: Stream<Item = Result<BackupPart, CallFailure>> + Unpin,
    {
        let Some(BackupPart::Head(head)) = next(&mut parts).await? else {
            return Err(invalid("the first message must hold a header".to_owned()));
        };
        let BackupHead { format, shard_count, .. } = head;
        if format != BACKUP_FORMAT {
            let what = format!("the backup has format {format}, expected {BACKUP_FORMAT}");
            return Err(invalid(what));
        }
        self.meta_refresh(step_deadline()).await?;
        let (mut restored, mut seen_count) = (Vec::new(), 0);
        loop {
            match next(&mut parts).await? {
                Some(BackupPart::Filter(filter)) => {
                    seen_count += 1;
                    let name = filter.name.clone();
                    if self.restore_filter(filter, owner.clone(), shard_count, &mut parts).await? {
                        restored.push(name);
                    } else {
                        tracing::warn!(filter = name, "not restored: the name is taken");
                    }
                }
                Some(BackupPart::End { filter_count }) if filter_count == seen_count => {
                    return Ok(restored);
                }
                Some(BackupPart::End { filter_count }) => {
                    let what = format!("{seen_count} filters came, expected {filter_count}");
                    return Err(invalid(what));
                }
                Some(_) => return Err(invalid("a frame came before its filter".to_owned())),
                None => return Err(ended_early()),
            }
        }
    }

    /// Makes one filter of a backup of so many shards; false if its name is taken.
    async fn restore_filter<S>(
        self: &Arc<Self>,
        filter: BackupFilter,
        owner: Option<PrincipalName>,
        shard_count: u32,
        parts: &mut S,
    ) -> Result<bool, CallFailure>
    where
        S: Stream<Item = Result<BackupPart, CallFailure>> + Unpin,
    {
        let BackupFilter { name, settings } = filter;
        let name = FilterName::new(name).map_err(|error| invalid(error.to_string()))?;
        let settings: FilterSettings = decode_settings(&settings)?;
        let cells = self.cells_for(&settings)?;
        if settings.distribution == Distribution::Partitioned {
            check_shard_count(shard_count, &settings.shape, cells)?;
        }
        let settings = checked(settings, cells)?;
        let loading = match Loading::begin(Arc::clone(self), (&name, owner), settings, cells).await
        {
            Ok(loading) => loading,
            Err(CallFailure::Meta(MetaError::NameTaken { .. })) => {
                skip_filter(parts).await?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let work = async |loading: &mut Loading| loop {
            match next(parts).await? {
                Some(BackupPart::Frame(frame)) => loading.load(frame).await?,
                Some(BackupPart::FilterEnd(end)) => return loading.verify(end).await,
                Some(_) => return Err(invalid("a filter of the backup has no end".to_owned())),
                None => return Err(ended_early()),
            }
        };
        loading.run(work).await.map(|_| true)
    }

    /// For how many shards the frames of such a filter are cut: a replicated one fits any cluster.
    fn cells_for(&self, settings: &FilterSettings) -> Result<CellCount, CallFailure> {
        match settings.distribution {
            Distribution::Partitioned => self.read_meta(cells_of)?,
            Distribution::Replicated => Ok(one_cell()),
        }
    }
}

/// The next part, unless the client sends none for too long.
async fn next<T, S>(parts: &mut S) -> Result<Option<T>, CallFailure>
where
    S: Stream<Item = Result<T, CallFailure>> + Unpin,
{
    match timeout(QUIET_MAX, parts.next()).await {
        Ok(part) => part.transpose(),
        Err(_) => {
            let seconds = QUIET_MAX.as_secs();
            Err(invalid(format!("the client sent nothing for {seconds} s")))
        }
    }
}

/// Reads over the frames of a filter.
async fn skip_filter<S>(parts: &mut S) -> Result<(), CallFailure>
where
    S: Stream<Item = Result<BackupPart, CallFailure>> + Unpin,
{
    loop {
        match next(parts).await? {
            Some(BackupPart::Frame(_)) => {}
            Some(BackupPart::FilterEnd(_)) => return Ok(()),
            Some(_) => return Err(invalid("a filter of the backup has no end".to_owned())),
            None => return Err(ended_early()),
        }
    }
}

fn ended_early() -> CallFailure {
    invalid("the copy ends early: its last part is missing".to_owned())
}

/// A filter that is being loaded. Unless it is finished, it is dropped, also when the call that
/// loads it is given up.
struct Loading {
    coordinator: Arc<Coordinator>,
    filter: FilterId,
    generation: Generation,
    cells: CellCount,
    /// The shard that all frames are for, whatever they say, if the filter is whole in one.
    home: Option<ShardId>,
    /// Whether frames of a slice must come one after the other.
    is_ordered: bool,
    /// Of a replicated filter: what has come of it, until all of it has, and room in memory for it.
    assembly: Option<(Assembly, OwnedSemaphorePermit)>,
    /// Frames on their way; those of ordered kinds are of different shards.
    in_flight: JoinSet<Result<(), CallFailure>>,
    last_shard: Option<ShardId>,
    sum: FrameSum,
    is_finished: bool,
}

impl Loading {
    /// Makes the filter. In a task of its own, so that a caller that gives up in the middle cannot
    /// leave a filter behind: what the task returns to nobody is dropped.
    async fn begin(
        coordinator: Arc<Coordinator>,
        (name, owner): (&FilterName, Option<PrincipalName>),
        settings: FilterSettings,
        cells: CellCount,
    ) -> Result<Self, CallFailure> {
        let name = name.clone();
        let made = async move { Self::make(coordinator, (&name, owner), settings, cells).await };
        tokio::spawn(made)
            .await
            .unwrap_or_else(|error| Err(CallFailure::Storage { what: error.to_string() }))
    }

    async fn make(
        coordinator: Arc<Coordinator>,
        (name, owner): (&FilterName, Option<PrincipalName>),
        mut settings: FilterSettings,
        cells: CellCount,
    ) -> Result<Self, CallFailure> {
        let kind = Kind::from_id(settings.kind);
        let is_ordered = kind.is_some_and(|kind| !kind.merges_by_or());
        let is_replicated = settings.distribution == Distribution::Replicated;
        let assembly = match is_replicated {
            true => {
                let room = coordinator.import_room(step_deadline()).await?;
                Some((Assembly::new(&settings)?, room))
            }
            false => None,
        };
        if let SliceShape::Ring { newest, .. } = &mut settings.shape {
            *newest = 0;
        }
        coordinator.meta_refresh(step_deadline()).await?;
        coordinator.refuse_taken(name)?;
        let filter =
            coordinator.propose_filter(name, &settings, (true, owner), step_deadline()).await?;
        let home = settings.shape.place().map(|place| home_of(place, cells));
        // From here on the filter is dropped unless it becomes one.
        let mut loading = Self {
            home,
            coordinator: Arc::clone(&coordinator),
            filter,
            generation: Generation(1),
            cells,
            is_ordered,
            assembly,
            in_flight: JoinSet::new(),
            last_shard: None,
            sum: FrameSum::default(),
            is_finished: false,
        };
        match loading.wait_empty().await {
            Ok(()) => Ok(loading),
            Err(error) => Err(loading.give_up(error).await),
        }
    }

    /// Waits until there is something to load into.
    async fn wait_empty(&mut self) -> Result<(), CallFailure> {
        let is_empty = |state| state == FilterState::Importing;
        let record = self.coordinator.wait_filter(self.filter, step_deadline(), is_empty).await?;
        self.generation = record.generation;
        if self.assembly.is_some() {
            self.coordinator.wait_copy(self.filter, step_deadline()).await?;
        }
        Ok(())
    }

    /// Loads with `work`, then lets the filter go live; drops it if either fails.
    async fn run(
        mut self,
        work: impl AsyncFnOnce(&mut Self) -> Result<(), CallFailure>,
    ) -> Result<(FilterId, FilterRecord), CallFailure> {
        let outcome = match work(&mut self).await {
            Ok(()) => self.activate().await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(record) => {
                self.is_finished = true;
                Ok((self.filter, record))
            }
            Err(error) => Err(self.give_up(error).await),
        }
    }

    /// Sends a frame on to its shard, or takes it for this node's copy.
    async fn load(&mut self, frame: CopyFrame) -> Result<(), CallFailure> {
        let CopyFrame { shard, frame } = frame;
        let shard = self.home.unwrap_or(shard);
        let (shard_count, byte_count) = (self.cells.get(), frame.len());
        if shard.0 >= shard_count {
            return Err(invalid(format!("a frame is of {shard}, but there are {shard_count}")));
        }
        if byte_count > FRAME_BYTES_MAX {
            let what =
                format!("a frame has {byte_count} bytes, at most {FRAME_BYTES_MAX} are allowed");
            return Err(invalid(what));
        }
        if self.last_shard.is_some_and(|last| shard < last) {
            return Err(invalid("frames must come in the order of shards".to_owned()));
        }
        let is_same = self.last_shard.replace(shard) == Some(shard);
        let most = if self.is_ordered && is_same { 0 } else { LOADS_IN_FLIGHT_MAX - 1 };
        self.wait_until(most).await?;
        self.sum.add(&frame);
        if let Some((assembly, _)) = &mut self.assembly {
            return assembly.take(&frame);
        }
        let coordinator = Arc::clone(&self.coordinator);
        let (filter, generation) = (self.filter, self.generation);
        if let Some(range) = range_of(shard, self.cells) {
            let part = (shard, range);
            coordinator.grow_for_frame((filter, generation), part, &frame, step_deadline()).await?;
        }
        self.in_flight.spawn(load_frame(coordinator, shard, filter, generation, frame));
        Ok(())
    }

    /// Waits until at most so many frames are on their way.
    async fn wait_until(&mut self, most: usize) -> Result<(), CallFailure> {
        while self.in_flight.len() > most {
            match self.in_flight.join_next().await {
                Some(Ok(outcome)) => outcome?,
                // Neither aborted nor in panic while this is alive; and if so, a frame is missing.
                Some(Err(error)) => {
                    return Err(CallFailure::Storage { what: error.to_string() });
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Waits for all frames, and compares them with what was sent. A replicated filter is taken into
    /// this node's copy then.
    async fn verify(&mut self, end: CopyEnd) -> Result<(), CallFailure> {
        self.wait_until(0).await?;
        let got = self.sum.end();
        if got == end {
            if let Some((assembly, room)) = self.assembly.take() {
                let (whole, newest_slice) = assembly.finish()?;
                let whole = (whole, newest_slice, room);
                self.coordinator.absorb(self.filter, self.generation, whole).await?;
            }
            return Ok(());
        }
        let what = format!(
            "{} frames with checksum {:#010x} came, expected {} with {:#010x}",
            got.frame_count, got.checksum, end.frame_count, end.checksum
        );
        Err(PartError::BadFrame { what }.into())
    }

    async fn activate(&self) -> Result<FilterRecord, CallFailure> {
        let filter = self.filter;
        let command = MetaCommand::ActivateImport { filter };
        self.coordinator.meta_propose(command, step_deadline()).await?;
        self.coordinator.wait_filter(filter, step_deadline(), is_answering).await
    }

    /// Drops the filter before the error is passed on, so that its name is free when the client
    /// hears of it.
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
        // The client is gone. Outside of a runtime, as when the node stops, nothing can be done.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(drop_half(Arc::clone(&self.coordinator), self.filter));
        }
    }
}

async fn load_frame(
    coordinator: Arc<Coordinator>,
    shard: ShardId,
    filter: FilterId,
    generation: Generation,
    frame: Bytes,
) -> Result<(), CallFailure> {
    let command = ShardCommand::LoadFrame { filter, generation, frame };
    let request = ShardRequest::Command(command);
    match coordinator.shard_call(shard, request, step_deadline()).await? {
        ShardAnswer::Done(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Drops a filter that did not become one. If the cluster does not hear of it, the filter stays
/// invisible, and can be dropped by its name.
async fn drop_half(coordinator: Arc<Coordinator>, filter: FilterId) {
    let command = MetaCommand::DropFilter { filter };
    if let Err(error) = coordinator.meta_propose(command, step_deadline()).await {
        tracing::warn!(%filter, %error, "a filter that was half loaded could not be dropped");
    }
}
