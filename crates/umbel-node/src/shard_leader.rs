//! A shard's replica as coordinators use it: combines inserts into entries of the log, confirms reads,
//! and bounds all of its queues.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::RwLock;
use umbel_engine::shard::{
    Bitmap, HashList, InsertPart, PartError, PreparedInsert, PreparedRemove, RemovePart,
    RequestStamp, ShardCommand, ShardReply, ShardState,
};
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_raft::peer::Links;
use umbel_raft::{Group, ProposeError};
use umbel_step::planted::{self, Planted};
use umbel_storage::types::{CommandReply, LogCommand};

use crate::arrivals::Arrivals;
use crate::calls::{AllowedGrowth, ReplicaStatus, ShardAnswer, ShardFailure, ShardRequest};
use crate::exports::Exports;
use crate::metrics;
use crate::space::Space;

mod absent;
mod export;
mod growing;
mod load;
mod merge;
mod queue;
mod scrub;
mod sum;
mod windowed;

pub(crate) use queue::InsertsInProgress;
use queue::{InsertQueue, Way};
use windowed::Timing;

/// The result for one part of an entry.
type PartAnswer = Result<Bitmap, ShardFailure>;

/// Serves one shard on this node.
pub struct ShardLeader {
    node: NodeId,
    group: Arc<Group>,
    queue: InsertQueue,
    space: Arc<Space>,
    exports: Arc<Exports>,
    links: Arc<Links>,
    /// Held for reading by every write until it is in the log, and for writing while no write may be.
    writes: Writes,
    /// When each slice was last compared; permits one comparison at a time.
    scrubs: scrub::SliceScrubs,
    /// Counts of the fill of slices.
    loads: load::Loads,
    /// Rates of new items per slice.
    pub(crate) arrivals: Arrivals,
    /// Items in flight to slices that grow.
    growing: growing::Growing,
    /// Held by the task that advances the windows; others wait for it.
    window_turn: tokio::sync::Mutex<()>,
}

/// Lock of the writes in flight.
type Writes = Arc<RwLock<()>>;

impl ShardLeader {
    pub(crate) fn start(
        node: NodeId,
        group: Arc<Group>,
        queue_items_max: usize,
        space: Arc<Space>,
        exports: Arc<Exports>,
        links: Arc<Links>,
        inserts: Arc<InsertsInProgress>,
    ) -> Arc<Self> {
        let (writes, scrubs) = (Writes::default(), scrub::SliceScrubs::default());
        let queue = InsertQueue::start(&group, queue_items_max, &writes, inserts);
        let (loads, growing) = (load::Loads::default(), growing::Growing::default());
        Arc::new(Self {
            node,
            group,
            queue,
            space,
            exports,
            links,
            writes,
            scrubs,
            loads,
            arrivals: Arrivals::default(),
            growing,
            window_turn: tokio::sync::Mutex::default(),
        })
    }

    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Carries out a coordinator's request.
    pub(crate) async fn serve(&self, request: ShardRequest) -> ShardAnswer {
        let outcome = match request {
            ShardRequest::Insert { filter, generation, request, hashes, growth, at_ms } => {
                self.insert((filter, generation), request, hashes, growth, at_ms).await
            }
            ShardRequest::Contains { filter, generation, hashes, confirmed } => {
                self.contains(filter, generation, &hashes, confirmed).await.map(ShardAnswer::Bits)
            }
            // Boxed: the future of a call about items would be as large as that of any other one.
            request => Box::pin(self.serve_other(request)).await,
        };
        outcome.unwrap_or_else(ShardAnswer::Failed)
    }

    /// Carries out a request that is not an insert or a question about items.
    async fn serve_other(&self, request: ShardRequest) -> Result<ShardAnswer, ShardFailure> {
        match request {
            ShardRequest::Insert { .. } | ShardRequest::Contains { .. } => {
                unreachable!("the caller carries these out")
            }
            ShardRequest::InsertAbsent { filter, generation, request, hashes, growth } => {
                self.insert_absent((filter, generation), request, &hashes, growth).await
            }
            ShardRequest::Remove { filter, generation, request, hashes } => {
                self.remove(filter, generation, request, hashes).await.map(ShardAnswer::Bits)
            }
            ShardRequest::Sum { target, sources, request, growth } => {
                self.sum(target, sources, request, growth).await
            }
            ShardRequest::Command(command) => self.change(command).await.map(ShardAnswer::Done),
            ShardRequest::Describe { filter, generation } => {
                self.describe(filter, generation).await.map(ShardAnswer::Slice)
            }
            ShardRequest::Overlap { ours, theirs } => {
                self.overlap(ours, theirs).await.map(ShardAnswer::Overlap)
            }
            ShardRequest::ExportBegin { filter, generation, known, snapshot } => {
                self.export_begin(filter, generation, known, snapshot).await
            }
            ShardRequest::ExportRelease { export } => self.export_release(export).await,
            ShardRequest::ExportKeep { export } => {
                self.exports.keep(export).map(|()| ShardAnswer::Done(0))
            }
            ShardRequest::ExportEnd { export } => {
                self.exports.end(export);
                Ok(ShardAnswer::Done(0))
            }
            ShardRequest::ExportNext { export } => self
                .exports
                .next(export)
                .await
                .map(|(frames, is_last)| ShardAnswer::Frames { frames, is_last }),
            ShardRequest::Status => Ok(ShardAnswer::Status(self.status())),
            ShardRequest::Scrub { filter, generation } => {
                self.scrub(filter, generation, Duration::ZERO).await.map(ShardAnswer::Scrubbed)
            }
            ShardRequest::Compare { question, applied_index } => {
                self.answer(&question, applied_index).await.map(ShardAnswer::Held)
            }
            ShardRequest::Fence { of, into, since } => self.fence(of, into, since).await,
            ShardRequest::Absorb { from, fence_index } => self.absorb(from, fence_index).await,
            ShardRequest::Copies { filter, generation, hashes } => {
                self.copies(filter, generation, &hashes).await.map(ShardAnswer::Copies)
            }
        }
    }

    async fn insert(
        &self,
        (filter, generation): (FilterId, Generation),
        request: Option<RequestStamp>,
        hashes: HashList,
        growth: Option<AllowedGrowth>,
        at_ms: Option<u64>,
    ) -> Result<ShardAnswer, ShardFailure> {
        // Only the leader knows the newest answers; the proposals of other nodes would fail.
        self.check_leader()?;
        self.keep_up(filter).await?;
        let others = growth.map(|_| self.growing.enter(filter, hashes.len() as u64));
        let growth = growing::slice_growth(growth, others.as_ref());
        let prepared = self.group.replica().read_shard(|state| {
            state.prepare_insert(filter, generation, request, hashes, growth)
        })?;
        let bits = match prepared {
            PreparedInsert::Answered(bits) => {
                self.confirm().await?;
                metrics::insert_repeated(bits.len().into());
                bits
            }
            PreparedInsert::AllPresent { item_count } => {
                self.confirm().await?;
                // The slice may have been cleared between the lookup and the confirmation.
                self.check_slice(filter, generation)?;
                metrics::insert_answered(0, item_count.into());
                Bitmap::zeros(item_count)
            }
            PreparedInsert::Growing { growth_bytes } => {
                return Ok(ShardAnswer::Growing { growth_bytes });
            }
            PreparedInsert::Propose(part) => {
                let timing = self.timing(filter, at_ms);
                self.propose_insert(part, Way::Always(timing))?.await?
            }
        };
        Ok(ShardAnswer::Bits(bits))
    }

    fn timing(&self, filter: FilterId, at_ms: Option<u64>) -> Timing {
        match at_ms {
            Some(at_ms) => Timing::At(at_ms),
            None if self.group.replica().read_shard(|state| state.is_windowed(filter)) => {
                Timing::Now
            }
            None => Timing::None,
        }
    }

    /// Adds a part to the queue, and returns what waits for its answer.
    fn propose_insert(
        &self,
        part: InsertPart,
        way: Way,
    ) -> Result<impl Future<Output = PartAnswer>, ShardFailure> {
        if let Some(free_bytes) = self.space.shortage() {
            return Err(ShardFailure::DiskFull { free_bytes });
        }
        let slice = (part.filter, part.generation);
        let added = self.queue.add(part, way)?;
        Ok(async move {
            let bits = added.answer().await?;
            let new_count = bits.count_ones();
            self.arrivals.add(slice, new_count.into());
            metrics::insert_answered(new_count.into(), (bits.len() - new_count).into());
            Ok(bits)
        })
    }

    async fn remove(
        &self,
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
    ) -> PartAnswer {
        self.check_leader()?;
        let prepared = self
            .group
            .replica()
            .read_shard(|state| state.prepare_remove(filter, generation, request, hashes))?;
        let part = match prepared {
            PreparedRemove::Answered(bits) => {
                self.confirm().await?;
                return Ok(bits);
            }
            PreparedRemove::Propose(part) => part,
        };
        let proposed = self.propose_removal(part).await?;
        match proposed {
            ShardReply::Removed(outcome) => {
                let removed = outcome?;
                self.arrivals.add((filter, generation), -f64::from(removed.count_ones()));
                Ok(removed)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Proposes a removal, which takes the room of its items and of the log as inserts do. It goes on if the
    /// caller stops waiting, because the entry is in the log then.
    async fn propose_removal(&self, part: RemovePart) -> Result<ShardReply, ShardFailure> {
        if let Some(free_bytes) = self.space.shortage() {
            return Err(ShardFailure::DiskFull { free_bytes });
        }
        let room = self.queue.take_room(part.hashes.len())?;
        let (group, writes) = (Arc::clone(&self.group), Arc::clone(&self.writes));
        let proposed = tokio::spawn(async move {
            let _room = room;
            let _writing = writes.read_owned().await;
            propose(&group, ShardCommand::Remove(part)).await
        });
        proposed.await.map_err(|error| ShardFailure::Stopped(error.to_string()))?
    }

    async fn contains(
        &self,
        filter: FilterId,
        generation: Generation,
        hashes: &HashList,
        confirmed: bool,
    ) -> PartAnswer {
        if confirmed && planted::on(Planted::LocalRead) {
            self.check_leader()?;
        } else if confirmed {
            self.keep_up(filter).await?;
            self.confirm().await?;
        }
        let bits =
            self.group.replica().read_shard(|state| state.contains(filter, generation, hashes))?;
        metrics::contains_answered(bits.count_ones().into(), bits.len().into());
        Ok(bits)
    }

    async fn copies(
        &self,
        filter: FilterId,
        generation: Generation,
        hashes: &HashList,
    ) -> Result<Vec<u64>, ShardFailure> {
        self.confirm().await?;
        Ok(self.group.replica().read_shard(|state| state.copies(filter, generation, hashes))?)
    }

    async fn change(&self, command: ShardCommand) -> Result<u64, ShardFailure> {
        self.check_leader()?;
        let grows =
            matches!(command, ShardCommand::CreateSlice(_) | ShardCommand::LoadFrame { .. });
        if grows && let Some(free_bytes) = self.space.shortage() {
            return Err(ShardFailure::DiskFull { free_bytes });
        }
        if let ShardCommand::DropSlice(filter) = command {
            self.arrivals.forget(filter);
        }
        let _writing = self.writes.read().await;
        match self.propose(command).await? {
            ShardReply::Merged(outcome) => Ok(outcome?),
            ShardReply::Done(outcome) => Ok(outcome.map(|()| 0)?),
            other => Err(unexpected(&other)),
        }
    }

    /// The status of this replica.
    pub fn status(&self) -> ReplicaStatus {
        ReplicaStatus {
            view: self.group.view(),
            applied_index: self.group.applied_index(),
            memory_bytes: self.group.replica().read_shard(ShardState::memory_bytes),
        }
    }

    pub(crate) fn shard(&self) -> umbel_engine::ShardId {
        self.group.id().shard().expect("the meta group has no ShardLeader")
    }

    fn check_leader(&self) -> Result<(), ShardFailure> {
        if self.group.is_leader() {
            Ok(())
        } else {
            Err(ShardFailure::NotLeader(self.group.leader().filter(|&leader| leader != self.node)))
        }
    }

    fn check_slice(&self, filter: FilterId, generation: Generation) -> Result<(), PartError> {
        self.group.replica().read_shard(|state| state.check_slice(filter, generation))
    }

    async fn confirm(&self) -> Result<(), ShardFailure> {
        self.group.confirm().await.map_err(failure)
    }

    async fn propose(&self, command: ShardCommand) -> Result<ShardReply, ShardFailure> {
        propose(&self.group, command).await
    }
}

async fn propose(group: &Group, command: ShardCommand) -> Result<ShardReply, ShardFailure> {
    match group.propose(LogCommand::Shard(command)).await.map_err(failure)? {
        CommandReply::Shard(reply) => Ok(reply),
        other => Err(ShardFailure::Stopped(format!("a shard answered {other:?}"))),
    }
}

fn failure(error: ProposeError) -> ShardFailure {
    match error {
        ProposeError::NotLeader(leader) => ShardFailure::NotLeader(leader),
        ProposeError::Unknown(_) => ShardFailure::Unknown,
        ProposeError::Stopped(why) => ShardFailure::Stopped(why),
    }
}

fn unexpected(reply: &ShardReply) -> ShardFailure {
    ShardFailure::Stopped(format!("a command of another kind was answered: {reply:?}"))
}
