//! Exports and backups: produced slice by slice, frame by frame, as the client reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures_util::{Stream, stream};
use tokio::time::Instant;
use umbel_engine::meta::{FilterName, FilterState, MetaState};
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::PartError;
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::Kind;
use umbel_ports::encoding::encode;
use umbel_step::planted::{self, Planted};

use super::slice_export::SliceExport;
use super::snapshot::FilterSnapshot;
use super::whole::CopyFrames;
use super::{
    BACKUP_FORMAT, BackupFilter, BackupHead, BackupPart, CopyEnd, CopyFrame, ExportHead,
    ExportPart, FrameSum, encode_exported, step_deadline,
};
use crate::catalogue::{is_answering, ranges_of};
use crate::splits::split_meanwhile;
use crate::{Coordinator, LiveFilter, Result};
use umbel_node::calls::ShardRequest;
use umbel_node::export_change::{ExportedFrame, FrameDigests, Known};
use umbel_node::failure::CallFailure;

impl Coordinator {
    /// Exports a filter, which may be written meanwhile: each shard's slice is copied as it is when its
    /// turn comes, or, for a snapshot, as all slices were at one moment of the call. For a replicated
    /// filter this node's copy is exported as it is when the call arrives. Parts of frames that the
    /// client has are not sent.
    ///
    /// # Errors
    /// If there is no such filter, or it is not live; for a snapshot, also if a shard does not answer.
    pub async fn export(
        self: &Arc<Self>,
        name: &FilterName,
        wish: ExportWish,
        deadline: Instant,
    ) -> Result<ExportParts> {
        // An old copy of the catalogue may name a generation that no longer exists.
        self.meta_refresh(deadline).await?;
        self.shards().wait_unsplit(deadline).await?;
        let filter = self.live_filter(name.as_str(), deadline).await?;
        let (filter, frames) = FilterFrames::begin(self, filter, wish, deadline).await?;
        let LiveFilter { id, record, ranges, .. } = filter;
        let settings = encode_exported(&record.settings);
        let log_indexes =
            frames.snapshot.as_ref().map_or_else(Vec::new, FilterSnapshot::log_indexes);
        let head = ExportHead { filter: id, record, ranges, settings, log_indexes };
        Ok(ExportParts { head: Some(Box::new(head)), frames, is_ended: false })
    }

    /// Copies all filters that answer queries now, in order of their names: each by itself, as
    /// [`export`](Self::export) does. One that is being cleared, rotated or renamed is copied once that is done.
    ///
    /// # Errors
    /// If the catalogue cannot be refreshed.
    pub async fn backup(
        self: &Arc<Self>,
        is_snapshot: bool,
        deadline: Instant,
    ) -> Result<BackupParts> {
        self.meta_refresh(deadline).await?;
        self.shards().wait_unsplit(deadline).await?;
        let (ranges, mut filters) = self.read_meta(|state| {
            let whole = state.filters().filter(|(_, record)| is_answering(record.state));
            let filters: Vec<_> = whole.map(|(id, record)| (record.name.clone(), id)).collect();
            ranges_of(state).map(|ranges| (ranges, filters))
        })??;
        filters.sort_unstable();
        let head = BackupHead {
            format: BACKUP_FORMAT,
            cluster: self.cluster_id(),
            ranges,
            begun_ms: self.seed().wall_ms(),
        };
        let coordinator = Arc::clone(self);
        let (filters, step) = (filters.into(), BackupStep::Head(head));
        Ok(BackupParts { coordinator, is_snapshot, ranges, filters, step, filter_count: 0 })
    }
}

/// Options of an export.
#[derive(Default)]
pub struct ExportWish {
    /// The frames that the client has, for frames that are written as words; None for frames in their
    /// shortest encoding.
    pub known: Option<KnownFrames>,
    /// Whether slices are copied as all were at one moment.
    pub is_snapshot: bool,
}

/// Frames that a client has, by their shards.
#[derive(Default)]
pub struct KnownFrames(BTreeMap<ShardId, FrameDigests>);

impl KnownFrames {
    /// Adds the frames of a shard; false if the shard was named before.
    pub fn add(&mut self, shard: ShardId, frames: FrameDigests) -> bool {
        self.0.insert(shard, frames).is_none()
    }

    /// The frames of a shard.
    pub(super) fn of(&self, shard: ShardId) -> FrameDigests {
        self.0.get(&shard).cloned().unwrap_or_default()
    }

    /// Takes the frames of a shard, which is asked only once.
    fn take(&mut self, shard: ShardId) -> FrameDigests {
        self.0.remove(&shard).unwrap_or_default()
    }
}

/// The remaining parts of an export.
pub struct ExportParts {
    head: Option<Box<ExportHead>>,
    frames: FilterFrames,
    is_ended: bool,
}

impl ExportParts {
    /// The filter's kind, before the first part is taken; None afterwards, or if this release does not
    /// know the kind.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_id(self.head.as_ref()?.record.settings.kind)
    }

    /// When the filter expires, in milliseconds since 1970, before the first part is taken; None afterwards, or if it
    /// does not expire.
    pub(super) fn expires_ms(&self) -> Option<u64> {
        self.head.as_ref()?.record.expires_ms
    }

    /// The next part; None after the end.
    pub async fn next(&mut self) -> Result<Option<ExportPart>> {
        if let Some(head) = self.head.take() {
            return Ok(Some(ExportPart::Head(head)));
        }
        if self.is_ended {
            return Ok(None);
        }
        if let Some((shard, frame)) = self.frames.next_or_change().await? {
            return Ok(Some(match frame {
                ExportedFrame::Whole(frame) => ExportPart::Frame(CopyFrame { shard, frame }),
                ExportedFrame::Change(change) => ExportPart::Change(shard, change),
            }));
        }
        self.is_ended = true;
        Ok(Some(ExportPart::End(self.frames.end())))
    }

    /// The parts as a stream, which ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<ExportPart>> {
        stream::try_unfold(self, |mut parts| async move {
            Ok(parts.next().await?.map(|part| (part, parts)))
        })
    }
}

/// The remaining parts of a backup.
pub struct BackupParts {
    coordinator: Arc<Coordinator>,
    is_snapshot: bool,
    /// How the shards were cut when the backup began.
    ranges: ShardRanges,
    /// Filters that are still to be copied, with their names when the backup began: a filter that was
    /// renamed since is copied under the name that it had.
    filters: VecDeque<(FilterName, FilterId)>,
    step: BackupStep,
    filter_count: u64,
}

/// The next step of a backup.
enum BackupStep {
    Head(BackupHead),
    NextFilter,
    Frames(Box<FilterFrames>),
    Ended,
}

impl BackupParts {
    /// The next part; None after the end.
    pub(crate) async fn next(&mut self) -> Result<Option<BackupPart>> {
        match &mut self.step {
            BackupStep::Head(head) => {
                let head = head.clone();
                self.step = BackupStep::NextFilter;
                Ok(Some(BackupPart::Head(head)))
            }
            BackupStep::NextFilter => self.next_filter().await.map(Some),
            BackupStep::Frames(frames) => {
                if let Some(frame) = frames.next().await? {
                    return Ok(Some(BackupPart::Frame(frame)));
                }
                let end = frames.end();
                self.step = BackupStep::NextFilter;
                Ok(Some(BackupPart::FilterEnd(end)))
            }
            BackupStep::Ended => Ok(None),
        }
    }

    /// The beginning of the next filter that still exists, or the end of the backup.
    async fn next_filter(&mut self) -> Result<BackupPart> {
        while let Some((name, id)) = self.filters.pop_front() {
            let deadline = step_deadline();
            let (LiveFilter { record, .. }, frames) = match self.begin(id, deadline).await {
                Ok(Some(begun)) => begun,
                // It was dropped since the backup began.
                Ok(None) => continue,
                // It was just dropped, cleared or renamed, or this node's copy of the catalogue is old.
                Err(
                    CallFailure::UnknownFilter { .. }
                    | CallFailure::Changed { .. }
                    | CallFailure::Part(
                        PartError::UnknownSlice { .. } | PartError::StaleGeneration { .. },
                    ),
                ) => {
                    self.coordinator.meta_refresh(deadline).await?;
                    self.filters.push_front((name, id));
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.filter_count += 1;
            self.step = BackupStep::Frames(Box::new(frames));
            let (name, settings) = (name.into(), encode(&record.settings));
            return Ok(BackupPart::Filter(BackupFilter { name, settings }));
        }
        self.step = BackupStep::Ended;
        Ok(BackupPart::End { filter_count: self.filter_count })
    }

    /// Begins to copy a filter, up to its first frame; None if it was dropped.
    async fn begin(
        &self,
        id: FilterId,
        deadline: Instant,
    ) -> Result<Option<(LiveFilter, FilterFrames)>> {
        let (name, filter) = loop {
            let Some(name) = self.live_name(id, deadline).await? else { return Ok(None) };
            match self.coordinator.live_filter(name.as_str(), deadline).await {
                // The next change of it has begun since.
                Err(CallFailure::FilterBusy { .. }) if Instant::now() < deadline => {}
                found => break (name, found?),
            }
        };
        if filter.id != id {
            return Err(CallFailure::Changed { name: name.into() });
        }
        // The wait must not shorten the step that follows it.
        let deadline = step_deadline();
        if !filter.record.is_replicated() && filter.ranges != self.ranges {
            return Err(split_meanwhile());
        }
        let wish = ExportWish { known: None, is_snapshot: self.is_snapshot };
        let (filter, mut frames) =
            FilterFrames::begin(&self.coordinator, filter, wish, deadline).await?;
        frames.fill().await?;
        Ok(Some((filter, frames)))
    }

    /// The name of a filter, once it is not being changed as a whole any more; None if it was dropped.
    async fn live_name(&self, id: FilterId, deadline: Instant) -> Result<Option<FilterName>> {
        let mut busy = None;
        let look = |state: &MetaState| {
            let record = state.filter(id).filter(|record| record.state != FilterState::Dropping);
            if let Some(record) = record
                && record.state != FilterState::Live
            {
                let (name, state) = (record.name.as_str().to_owned(), record.state.to_string());
                busy = Some(CallFailure::FilterBusy { name, state });
                return None;
            }
            Some(record.map(|record| record.name.clone()))
        };
        let found = self.coordinator.wait_meta(deadline, look).await;
        match (found, busy) {
            (Err(CallFailure::NoQuorum { .. }), Some(busy)) => Err(busy),
            (found, _) => found,
        }
    }

    /// The parts as a stream, which ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<BackupPart>> {
        stream::try_unfold(self, |mut parts| async move {
            Ok(parts.next().await?.map(|part| (part, parts)))
        })
    }
}

/// The error for a change in place of a frame, although the client has no frames: a bug.
pub(super) fn unknown_change(shard: ShardId) -> CallFailure {
    CallFailure::Storage { what: format!("a change of a frame of {shard} that nobody has") }
}

/// The remaining frames of a filter, shard by shard.
struct FilterFrames {
    coordinator: Arc<Coordinator>,
    filter: FilterId,
    generation: Generation,
    /// Shards whose slices are still to come, in the order of their ranges; the first is being copied.
    shards: VecDeque<ShardId>,
    /// Frames of this node's copy, if the filter is replicated, and what the client has of them: they
    /// count as those of one shard.
    copy: Option<(CopyFrames, Known)>,
    /// What the client has of frames that are written as words, if it asked for those.
    known: Option<KnownFrames>,
    /// How the shards are cut, to be checked when the last slice was copied: a shard that is split while
    /// others are copied gives only its lower half.
    looked_at: Option<ShardRanges>,
    /// Copies of all slices, for a snapshot.
    snapshot: Option<FilterSnapshot>,
    /// The copy of the first shard's slice, once there is one.
    export: Option<SliceExport>,
    /// Frames of that shard that have arrived.
    waiting: VecDeque<ExportedFrame>,
    /// Whether no more frames of that shard will arrive.
    is_shard_done: bool,
    sum: FrameSum,
}

impl FilterFrames {
    /// Begins to copy a filter, and returns the filter as the catalogue has it by then.
    async fn begin(
        coordinator: &Arc<Coordinator>,
        filter: LiveFilter,
        wish: ExportWish,
        deadline: Instant,
    ) -> Result<(LiveFilter, Self)> {
        let ExportWish { mut known, is_snapshot } = wish;
        let (filter, copy) = if filter.record.is_replicated() {
            let is_raw = known.is_some();
            let (filter, frames) = coordinator.copy_frames(filter, is_raw, deadline).await?;
            let known = known.as_mut().map(|known| known.take(ShardId(0)));
            (filter, Some((frames, Known::new(known.unwrap_or_default()))))
        } else {
            (filter, None)
        };
        let is_snapshot = is_snapshot && !planted::on(Planted::SnapshotUnsettled);
        let snapshot = if is_snapshot && copy.is_none() {
            let slices = (filter.id, filter.record.generation);
            let ranges = filter.ranges;
            let snapshot =
                coordinator.filter_snapshot(slices, ranges, known.as_ref(), deadline).await?;
            if !coordinator.shards().are_still_cut(ranges, deadline).await? {
                return Err(split_meanwhile());
            }
            Some(snapshot)
        } else {
            None
        };
        let copy_is_none = copy.is_none();
        let frames = Self {
            coordinator: Arc::clone(coordinator),
            filter: filter.id,
            generation: filter.record.generation,
            shards: filter.ranges.in_order().map(|(shard, _)| shard).collect(),
            copy,
            known,
            looked_at: (copy_is_none && snapshot.is_none()).then_some(filter.ranges),
            snapshot,
            export: None,
            waiting: VecDeque::new(),
            is_shard_done: false,
            sum: FrameSum::default(),
        };
        Ok((filter, frames))
    }

    /// The next frame, for a client that has no frames.
    async fn next(&mut self) -> Result<Option<CopyFrame>> {
        match self.next_or_change().await? {
            Some((shard, ExportedFrame::Whole(frame))) => Ok(Some(CopyFrame { shard, frame })),
            Some((shard, ExportedFrame::Change(_))) => Err(unknown_change(shard)),
            None => Ok(None),
        }
    }

    /// The next frame, and the shard of its slice.
    async fn next_or_change(&mut self) -> Result<Option<(ShardId, ExportedFrame)>> {
        self.fill().await?;
        let Some(frame) = self.waiting.pop_front() else { return Ok(None) };
        self.sum.add(frame.sent());
        let Some(&shard) = self.shards.front() else { return Ok(None) };
        Ok(Some((shard, frame)))
    }

    /// Fetches frames until one is waiting, or none is left.
    async fn fill(&mut self) -> Result<()> {
        while self.waiting.is_empty() {
            if self.is_shard_done {
                self.shards.pop_front();
                self.export = None;
                self.is_shard_done = false;
            }
            let Some(&shard) = self.shards.front() else { return self.look().await };
            self.fetch(shard).await?;
        }
        Ok(())
    }

    /// Refuses the copy if a shard was split meanwhile.
    async fn look(&mut self) -> Result<()> {
        match self.looked_at.take() {
            Some(ranges)
                if !self.coordinator.shards().are_still_cut(ranges, step_deadline()).await? =>
            {
                Err(split_meanwhile())
            }
            _ => Ok(()),
        }
    }

    /// One step with the node that copies the slice.
    async fn fetch(&mut self, shard: ShardId) -> Result<()> {
        if let Some((frames, known)) = &mut self.copy {
            match frames.recv().await {
                Some(frame) => {
                    let frame = frame.map_err(|what| CallFailure::Storage { what })?;
                    self.waiting.push_back(known.leave_out(frame));
                }
                None => self.is_shard_done = true,
            }
            return Ok(());
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.keep().await;
            self.export = self.export.take().or_else(|| snapshot.turn_of(shard));
        }
        let Some(export) = &mut self.export else {
            let (filter, generation) = (self.filter, self.generation);
            let known = self.known.as_mut().map(|known| known.take(shard));
            let request = ShardRequest::ExportBegin { filter, generation, known, snapshot: None };
            let begun = self.coordinator.begin_export(shard, request, step_deadline()).await?;
            self.export = Some(begun);
            return Ok(());
        };
        let (frames, is_last) = export.next().await?;
        self.waiting = frames.into();
        self.is_shard_done = is_last;
        Ok(())
    }

    fn end(&self) -> CopyEnd {
        self.sum.end()
    }
}
