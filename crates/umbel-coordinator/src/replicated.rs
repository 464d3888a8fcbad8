//! Replicated filters: items go to this node's copy, and to other nodes' copies if the level requires it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};
use umbel_engine::meta::MetaState;
use umbel_engine::shard::{Bitmap, HashList};
use umbel_engine::{Epoch, Generation, GroupId, NodeId};
use umbel_filter::ItemHash;
use umbel_ports::Purpose;

use super::catalogue::{CopiesInfo, FilterInfo};
use super::copy_failure::of_copy;
use super::items::hashed;
use super::{AckLevel, LiveFilter, ReadLevel, Result};
use umbel_node::Local;
use umbel_node::calls::{CopyAnswer, CopyReport, CopyRequest, SweepCounts};
use umbel_node::cube::{Copy, CopyFailure};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;
use umbel_node::leader_calls::LeaderCalls;
use umbel_node::limits::{RETRY_WAIT_MAX, RETRY_WAIT_MIN, TRY_TIMEOUT};

mod flush;
mod gathered;
pub mod scrub;

use gathered::Gathered;

pub use flush::FlushReport;

/// How long another node may take to describe its copy.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the exchange of a node's copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyExchangeReport {
    /// Copies on this node.
    pub copy_count: usize,
    /// Its sweeps over the cube.
    pub sweeps: SweepCounts,
    /// Bytes of deltas that were sent.
    pub sent_bytes: u64,
    /// Bytes of deltas that were received.
    pub received_bytes: u64,
    /// Exchanges that were refused.
    pub refused_count: u64,
}

/// The nodes of an epoch.
struct Nodes {
    epoch: Epoch,
    all: BTreeSet<NodeId>,
}

impl Nodes {
    fn majority(&self) -> usize {
        self.all.len() / 2 + 1
    }
}

/// What to do with this node's copy.
#[derive(Clone, Copy)]
enum Act<'i> {
    Insert(&'i ItemBatch),
    Contains(&'i ItemBatch),
    /// Only check that the copy exists.
    Look,
}

impl Act<'_> {
    /// The items' hashes in this filter: another filter of the name has another key.
    fn hashes(self, filter: &LiveFilter) -> Result<Vec<ItemHash>> {
        match self {
            Self::Insert(items) | Self::Contains(items) => hashed(filter, items),
            Self::Look => Ok(Vec::new()),
        }
    }

    /// One bit for each item: whether it was new, or is present.
    async fn on(
        self,
        copy: &Arc<Copy>,
        generation: Generation,
        hashes: &[ItemHash],
    ) -> Result<Vec<bool>, CopyFailure> {
        match self {
            Self::Insert(_) => copy.insert_arriving(generation, hashes).await,
            Self::Contains(_) => copy.contains(generation, hashes),
            Self::Look => copy.inserted(generation).map(|_| Vec::new()),
        }
    }
}

/// The result of this node's copy.
struct OwnAnswer {
    /// The filter whose copy it was.
    filter: LiveFilter,
    copy: Arc<Copy>,
    /// The items' hashes in that filter.
    hashes: Vec<ItemHash>,
    /// One bit for each item.
    bits: Vec<bool>,
    /// Whether the copy counted towards a majority before it answered: what made it count since is not in the answer.
    was_in_sync: bool,
}

/// The copies of replicated filters, this node's first.
#[derive(Clone, Copy)]
pub struct CopyCalls<'a> {
    pub(super) calls: &'a LeaderCalls,
}

impl CopyCalls<'_> {
    /// Inserts into a replicated filter; a one means that the item was new on every node that answered.
    pub(super) async fn insert(
        self,
        filter: LiveFilter,
        items: &ItemBatch,
        level: AckLevel,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let local = self.calls.local()?;
        if level == AckLevel::OnePartner && nodes_of(local).all.len() < 2 {
            let what = "level: one-partner wants the items on two nodes, and this cluster has one: insert at level \
                        local, or add a node"
                .to_owned();
            return Err(CallFailure::Invalid { what });
        }
        let act = Act::Insert(items);
        let own = self.on_own(filter, deadline, act).await?;
        let OwnAnswer { filter, copy, hashes, bits, .. } = own;
        if level == AckLevel::Local {
            return Ok(Bitmap::from_bools(bits));
        }
        let mut gathered = Gathered::begin(bits, false, (local.node(), copy.is_in_sync()));
        let enough = |nodes: &Nodes, gathered: &Gathered| match level {
            AckLevel::Local => true,
            AckLevel::OnePartner => gathered.count(&nodes.all) >= 2,
            AckLevel::Majority => gathered.in_sync_count(&nodes.all) >= nodes.majority(),
        };
        let list = HashList::from_hashes(&hashes);
        let generation = filter.record.generation;
        let request = |epoch| CopyRequest::Hold { generation, epoch, hashes: list.clone() };
        if gather(local, copy.group(), request, &mut gathered, enough, deadline).await {
            return Ok(Bitmap::from_bools(gathered.bits));
        }
        let nodes = nodes_of(local).all;
        let what = format!(
            "the items are on {} of {} nodes, fewer than the level asks for, and will come to the \
             others",
            gathered.count(&nodes),
            nodes.len()
        );
        Err(CallFailure::OutcomeUnknown { what })
    }

    /// Looks up items in a replicated filter.
    pub(super) async fn contains(
        self,
        filter: LiveFilter,
        items: &ItemBatch,
        level: ReadLevel,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let local = self.calls.local()?;
        let own = self.on_own(filter, deadline, Act::Contains(items)).await?;
        let OwnAnswer { filter, copy, hashes, mut bits, was_in_sync } = own;
        let absent: Vec<usize> = (0..hashes.len()).filter(|&at| !bits[at]).collect();
        umbel_node::metrics::contains_answered(
            (bits.len() - absent.len()) as u64,
            bits.len() as u64,
        );
        // "Present" is final: bits only rise within a generation.
        if level == ReadLevel::Local || absent.is_empty() {
            return Ok(Bitmap::from_bools(bits));
        }
        let rest: Vec<ItemHash> = absent.iter().map(|&at| hashes[at]).collect();
        let own = (local.node(), was_in_sync);
        let mut gathered = Gathered::begin(vec![false; rest.len()], true, own);
        let list = HashList::from_hashes(&rest);
        let generation = filter.record.generation;
        let request = |epoch| CopyRequest::Find { generation, epoch, hashes: list.clone() };
        let enough = |nodes: &Nodes, gathered: &Gathered| {
            gathered.in_sync_count(&nodes.all) >= nodes.majority()
                || gathered.bits.iter().all(|&bit| bit)
        };
        let began = Instant::now();
        if !gather(local, copy.group(), request, &mut gathered, enough, deadline).await {
            let what = format!("a majority of {} nodes", nodes_of(local).all.len());
            return Err(CallFailure::NoQuorum { what, within: began.elapsed() });
        }
        for (at, is_present) in absent.into_iter().zip(gathered.bits) {
            bits[at] = is_present;
        }
        Ok(Bitmap::from_bools(bits))
    }

    /// This node's copy, once it is the one that the catalogue names.
    pub(super) async fn own(
        self,
        filter: LiveFilter,
        deadline: Instant,
    ) -> Result<(LiveFilter, Arc<Copy>)> {
        let OwnAnswer { filter, copy, .. } = self.on_own(filter, deadline, Act::Look).await?;
        Ok((filter, copy))
    }

    /// The same, unless another filter has the name by now: for callers that have checked this one.
    pub(super) async fn own_as_seen(
        self,
        seen: LiveFilter,
        deadline: Instant,
    ) -> Result<(LiveFilter, Arc<Copy>)> {
        let id = seen.id;
        let (filter, copy) = self.own(seen, deadline).await?;
        if filter.id == id {
            Ok((filter, copy))
        } else {
            Err(CallFailure::Changed { name: filter.record.name.as_str().to_owned() })
        }
    }

    /// Applies `act` to this node's copy, once it is the one that the catalogue names.
    async fn on_own(
        self,
        mut filter: LiveFilter,
        deadline: Instant,
        act: Act<'_>,
    ) -> Result<OwnAnswer> {
        let local = self.calls.local()?;
        let mut wait = RETRY_WAIT_MIN;
        loop {
            let hashes = act.hashes(&filter)?;
            let outcome = match local.copies().get(filter.id) {
                Some(copy) => {
                    let was_in_sync = copy.is_in_sync();
                    // Only an insert waits, for this node's log: what is queued there is written once the disk
                    // allows it, whether the caller waits or not.
                    let done = act.on(&copy, filter.record.generation, &hashes);
                    let done = timeout_at(deadline, done).await.map_err(|_| not_on_disk())?;
                    done.map(|bits| (copy, bits, was_in_sync))
                }
                None => Err(CopyFailure::UnknownCopy { filter: filter.id }),
            };
            match outcome {
                Ok((copy, bits, was_in_sync)) => {
                    return Ok(OwnAnswer { filter, copy, hashes, bits, was_in_sync });
                }
                Err(failure) if is_passing(&failure) && Instant::now() < deadline => {
                    // The node's copy and its catalogue agree soon.
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_WAIT_MAX);
                    let name = filter.record.name.as_str().to_owned();
                    filter = LiveFilter::find(self.calls, &name, deadline).await?;
                }
                Err(failure) => return Err(of_copy(failure)),
            }
        }
    }

    /// Describes a replicated filter.
    pub(super) async fn info(self, filter: LiveFilter, deadline: Instant) -> Result<FilterInfo> {
        let (filter, copy) = self.own(filter, deadline).await?;
        let all = self.describe_copies(&filter).await?;
        let probe_seed = Some(self.calls.seed().number(Purpose::RateProbes));
        let copies =
            CopiesInfo { own: copy.load(probe_seed).await, all, distinct: copy.estimates() };
        let LiveFilter { id, record, ranges, .. } = filter;
        Ok(FilterInfo { id, record, ranges, slices: Vec::new(), copies: Some(copies) })
    }

    /// The report of each node about its copy; None for nodes that do not answer.
    async fn describe_copies(
        self,
        filter: &LiveFilter,
    ) -> Result<Vec<(NodeId, Option<CopyReport>)>> {
        let local = self.calls.local()?;
        let group = group_of(filter)?;
        let calls = nodes_of(local).all.into_iter().map(|node| async move {
            let answer =
                local.copies().call(node, group, &CopyRequest::Describe, DESCRIBE_TIMEOUT).await;
            match answer {
                Ok(CopyAnswer::Load(report)) => (node, Some(*report)),
                _ => (node, None),
            }
        });
        Ok(join_all(calls).await)
    }

    /// The state of the exchange of this node's copies.
    pub fn exchange(self) -> Result<CopyExchangeReport> {
        let copies = self.calls.local()?.copies();
        let (sent_bytes, received_bytes) = copies.traffic_bytes();
        Ok(CopyExchangeReport {
            copy_count: copies.all().len(),
            sweeps: copies.sweeps(),
            sent_bytes,
            received_bytes,
            refused_count: copies.refused_count(),
        })
    }
}

/// The failure of an insert that waits for this node's disk for longer than its caller does.
fn not_on_disk() -> CallFailure {
    let what = "the items are not on the disk of the node that was asked, in time: is it full, or does it hang? \
                Another node may take them now"
        .to_owned();
    CallFailure::OutcomeUnknown { what }
}

fn nodes_of(local: &Local) -> Nodes {
    let read = |state: &MetaState| Nodes { epoch: state.epoch(), all: state.live_nodes() };
    local.read_meta(read)
}

fn group_of(filter: &LiveFilter) -> Result<GroupId> {
    GroupId::of_copy(filter.id)
        .ok_or_else(|| CallFailure::Storage { what: format!("{} cannot have copies", filter.id) })
}

/// Asks the other nodes, all at once, until enough have answered; false if too few did before the deadline.
async fn gather(
    local: &Arc<Local>,
    group: GroupId,
    request: impl Fn(Epoch) -> CopyRequest,
    gathered: &mut Gathered,
    enough: impl Fn(&Nodes, &Gathered) -> bool,
    deadline: Instant,
) -> bool {
    loop {
        let nodes = nodes_of(local);
        if enough(&nodes, gathered) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        let timeout = TRY_TIMEOUT.min(deadline - Instant::now());
        let (copies, request) = (local.copies(), &request(nodes.epoch));
        let mut calls: FuturesUnordered<_> = nodes
            .all
            .iter()
            .filter(|&&node| !gathered.has(node))
            .map(|&node| async move { (node, copies.call(node, group, request, timeout).await) })
            .collect();
        while let Some((node, answer)) = calls.next().await {
            match answer {
                Ok(CopyAnswer::Bits { bits, is_in_sync }) => {
                    if let Err(why) = gathered.take(node, &bits, is_in_sync) {
                        tracing::warn!(%node, why, "a copy's answer is passed over");
                        continue;
                    }
                    if enough(&nodes, gathered) {
                        return true;
                    }
                }
                Ok(CopyAnswer::Failed(failure)) if !is_passing(&failure) => {
                    tracing::debug!(%node, %failure, "a copy does not do its part");
                }
                _ => {}
            }
        }
        drop(calls);
        let wait = RETRY_WAIT_MAX.min(deadline.saturating_duration_since(Instant::now()));
        tokio::time::sleep(wait).await;
    }
}

/// Whether a failure goes away when both sides have the newest catalogue.
const fn is_passing(failure: &CopyFailure) -> bool {
    matches!(
        failure,
        CopyFailure::UnknownCopy { .. }
            | CopyFailure::StaleGeneration { .. }
            | CopyFailure::StaleEpoch { .. }
    )
}
