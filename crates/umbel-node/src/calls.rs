//! Requests between nodes besides Raft's own: plain data, encoded by [`umbel_ports::encoding`].

use serde::{Deserialize, Serialize};
use umbel_engine::meta::{GroupView, MetaCommand, MetaReply};
use umbel_engine::shard::{
    Bitmap, HashList, OverlapCount, PartError, ReplicaAnswer, ReplicaQuestion, RequestStamp,
    ShardCommand, SliceScrubbed,
};
use umbel_engine::{Epoch, FilterId, Generation, GroupId, NodeId, ShardId};
use umbel_replicated_engine::hypercube::VersionVector;

use crate::comparisons::Comparison;
use crate::cube::{CopyComparison, CopyFailure};
use crate::export_change::{ExportedFrame, FrameDigests};

/// A coordinator's request to a replica of a shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after what they are; variants say what for")]
pub enum ShardRequest {
    /// Inserts items and returns which were new; a filter that grows may grow by as much as `growth`
    /// allows.
    Insert {
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
        growth: Option<AllowedGrowth>,
        /// The items' time, in milliseconds since 1970, if the client names one.
        at_ms: Option<u64>,
    },
    /// Removes items and returns which were present.
    Remove {
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
    },
    /// Returns which items are present. With `confirmed`, only the leader may answer; otherwise any
    /// replica may, and only its "present" is final.
    Contains { filter: FilterId, generation: Generation, hashes: HashList, confirmed: bool },
    /// Adds the counts of other filters' slices to a slice, which may grow by as much as `growth`
    /// allows.
    Sum {
        target: (FilterId, Generation),
        sources: Vec<(FilterId, Generation)>,
        request: Option<RequestStamp>,
        growth: Option<AllowedGrowth>,
    },
    /// Changes slices; only commands that are idempotent.
    Command(ShardCommand),
    /// Describes how full a slice is.
    Describe { filter: FilterId, generation: Generation },
    /// Begins to export a slice.
    ExportBegin {
        filter: FilterId,
        generation: Generation,
        /// Digests of the frames that the caller has from an earlier export; frames are then written as
        /// plain words. None for frames in the shortest encoding.
        known: Option<FrameDigests>,
        /// Set for an export of a snapshot: the shard's writes are held back from before the copy until
        /// its release, for at most [`FILTER_SNAPSHOT_HOLD_MAX`](crate::limits::FILTER_SNAPSHOT_HOLD_MAX).
        snapshot: Option<FilterSnapshotId>,
    },
    /// Releases the shard's writes that wait for an export, and returns whether the slice is unchanged
    /// since the copy.
    ExportRelease { export: u64 },
    /// Keeps an export alive that waits for its turn.
    ExportKeep { export: u64 },
    /// Ends an export.
    ExportEnd { export: u64 },
    /// Counts what the slices of two filters have in common.
    Overlap { ours: (FilterId, Generation), theirs: (FilterId, Generation) },
    /// Returns the next frames of an export.
    ExportNext { export: u64 },
    /// Returns the status of the replica, for status tables.
    Status,
    /// Compares the replicas of a slice, and repairs them.
    Scrub { filter: FilterId, generation: Generation },
    /// Returns the requested content of this replica, once it has applied the entry.
    Compare { question: ReplicaQuestion, applied_index: u64 },
    /// Returns how often each item may be in a cuckoo or quotient filter. Only the leader may answer. Since
    /// version 2 of the cluster.
    Copies { filter: FilterId, generation: Generation, hashes: HashList },
    /// Ends the shard, if its group is `of`, for `into` to absorb it; returns the index of the entry that
    /// ended it. Since version 3 of the cluster.
    Fence { of: GroupId, into: GroupId, since: Epoch },
    /// Absorbs a shard that has ended. Since version 3 of the cluster.
    Absorb { from: GroupId, fence_index: u64 },
    /// Inserts those items into a cuckoo or quotient filter that are absent, and returns which were; otherwise as
    /// `Insert`. Since version 6 of the cluster.
    InsertAbsent {
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
        growth: Option<AllowedGrowth>,
    },
}

impl ShardRequest {
    /// Whether sending the request twice does no harm, so that it may be repeated when a response was
    /// lost.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self {
            Self::Insert { request, .. }
            | Self::InsertAbsent { request, .. }
            | Self::Remove { request, .. }
            | Self::Sum { request, .. } => request.is_some(),
            // Each retry of an export that holds writes would wait for the previous one.
            Self::ExportBegin { snapshot, .. } => snapshot.is_none(),
            Self::Contains { .. }
            | Self::Command(_)
            | Self::Describe { .. }
            | Self::Overlap { .. }
            | Self::ExportRelease { .. }
            | Self::ExportKeep { .. }
            | Self::ExportEnd { .. }
            | Self::Compare { .. }
            | Self::Copies { .. }
            | Self::Scrub { .. }
            | Self::Fence { .. }
            | Self::Absorb { .. }
            | Self::Status => true,
            Self::ExportNext { .. } => false,
        }
    }

    /// Whether the request changes nothing for its caller, so that without an answer there is no outcome that could be
    /// unknown. A copy that an export leaves behind ends by itself.
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Self::Contains { .. }
            | Self::Describe { .. }
            | Self::Overlap { .. }
            | Self::ExportBegin { .. }
            | Self::ExportRelease { .. }
            | Self::ExportKeep { .. }
            | Self::ExportEnd { .. }
            | Self::ExportNext { .. }
            | Self::Status
            | Self::Compare { .. }
            | Self::Copies { .. } => true,
            Self::Insert { .. }
            | Self::InsertAbsent { .. }
            | Self::Remove { .. }
            | Self::Sum { .. }
            | Self::Command(_)
            | Self::Scrub { .. }
            | Self::Fence { .. }
            | Self::Absorb { .. } => false,
        }
    }

    /// Whether the response may take so long that a single attempt gets all the remaining time.
    pub(crate) fn takes_long(&self) -> bool {
        // An absorption that is refused says why once: a second attempt finds it decided.
        matches!(self, Self::Scrub { .. } | Self::Fence { .. } | Self::Absorb { .. })
    }
}

/// Identifies the exports of one snapshot of a filter: a random number.
pub(crate) type FilterSnapshotId = u64;

/// How far a slice may grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AllowedGrowth {
    /// Bytes beyond the slice's plan.
    pub bytes: u64,
    /// Whether more growth was refused.
    pub is_final: bool,
}

/// A replica's response.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after what they are; variants say what for")]
pub enum ShardAnswer {
    /// One bit per item.
    Bits(Bitmap),
    /// Nothing was done: the slice may have to grow by this many bytes beyond its plan, and needs an
    /// allowance for that first.
    Growing { growth_bytes: u64 },
    /// The command was carried out; for merges and loads with the number of newly set positions.
    Done(u64),
    /// How full the slice is.
    Slice(SliceLoad),
    /// What the slices have in common.
    Overlap(OverlapCount),
    /// An export of the slice, in its state after this entry of the log, began on this node.
    Export { holder: NodeId, export: u64, written_index: u64 },
    /// Frames, and whether they are the last ones.
    Frames { frames: Vec<ExportedFrame>, is_last: bool },
    /// The status of the replica.
    Status(ReplicaStatus),
    /// The differences between the replicas.
    Scrubbed(SliceScrubbed),
    /// The content of this replica.
    Held(ReplicaAnswer),
    /// Why nothing was done.
    Failed(ShardFailure),
    /// How often each item may be in the filter. Since version 2 of the cluster.
    Copies(Vec<u64>),
}

/// Load of one slice.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SliceLoad {
    /// The leader of the shard.
    pub leader: NodeId,
    /// Bits, or counters.
    pub position_count: u64,
    /// Those of them that are set.
    pub one_count: u64,
    /// Items in it, estimated; None if its kind cannot tell.
    pub item_count: Option<f64>,
    /// Probability that an absent item is reported present.
    pub false_positive_rate: f64,
    /// Inserts that were new.
    pub new_count: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Number of new items that fit before the slice grows; None for kinds that do not grow.
    pub room: Option<u64>,
    /// Empty unless requested.
    pub probes: RateProbes,
    /// Set positions that chance does not explain, if the kind can tell.
    pub unexplained_one_count: Option<u64>,
    /// New items per second; None if they were not measured for long enough.
    pub new_per_second: Option<f64>,
}

/// Random items that were looked up in a filter, and how many of them it reported as present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RateProbes {
    /// Items that were looked up.
    pub probe_count: u64,
    /// Those that were reported as present.
    pub hit_count: u64,
}

impl RateProbes {
    /// The share that was reported as present; None if nothing was looked up.
    pub fn rate(self) -> Option<f64> {
        (self.probe_count > 0).then(|| self.hit_count as f64 / self.probe_count as f64)
    }
}

/// One replica in a status table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// The leader and the members of the group, as the replica knows them.
    pub view: GroupView,
    /// Index of the last entry of the log that the replica has applied.
    pub applied_index: u64,
    /// Bytes of memory of its slices.
    pub memory_bytes: u64,
}

/// Why a replica did not carry out a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum ShardFailure {
    /// Nothing was done. Ask the leader, if it is given.
    #[error("not the leader")]
    NotLeader(Option<NodeId>),
    /// Too many items wait at the leader; nothing was done.
    #[error("{0} items wait for the shard's leader already")]
    Overloaded(u64),
    /// The leader's disk is nearly full; nothing was done.
    #[error("the disk of the shard's leader has {free_bytes} bytes left")]
    DiskFull {
        /// The free bytes.
        free_bytes: u64,
    },
    /// The leader changed; the request may have been carried out.
    #[error("the leader changed while the request was on its way")]
    Unknown,
    /// The replica stopped; the request may have been carried out.
    #[error("{0}")]
    Stopped(String),
    /// The request does not fit the shard's state; nothing was done.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The export is unknown, or no longer exists.
    #[error("the export was given up after a pause")]
    NoExport,
    /// The node serves as many exports as it can; nothing was done.
    #[error("too many exports are running on the node")]
    TooManyExports,
    /// The slice was written since it was copied, or writes in flight did not end in time; the export
    /// has ended.
    #[error("the slice was written while it was copied")]
    WrittenMeanwhile,
    /// The comparison did not complete; what was repaired stays repaired. Retry later.
    #[error("the comparison was given up: {0}")]
    NotCompared(String),
}

/// A request to the meta group's leader.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaRequest {
    /// Proposes a command.
    Propose(MetaCommand),
    /// Confirms leadership, and asks up to which entry a reader must have applied. Filters whose time has come by the
    /// leader's clock are dropped before.
    Confirm,
}

impl MetaRequest {
    /// Whether the request may be sent again when a response was lost.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self {
            Self::Propose(command) => command.is_repeatable(),
            Self::Confirm => true,
        }
    }
}

/// The response of the meta group's leader.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaAnswer {
    /// The command was applied.
    Reply(MetaReply),
    /// Everything that was committed before the request is in the entries that the leader has applied.
    Confirmed,
    /// Nothing was done. Ask the leader, if it is given.
    NotLeader(Option<NodeId>),
    /// The command may have been applied.
    Unknown,
}

/// The controller's request to the leader of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum GroupRequest {
    /// Returns the leader and the members.
    View,
    /// Changes the members to these.
    ChangeMembers { voters: Vec<(NodeId, String)>, learners: Vec<(NodeId, String)> },
}

/// The response of the leader of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum GroupAnswer {
    /// The leader and members as this node knows them.
    View(GroupView),
    /// The members are as requested.
    Changed,
    /// The change was not made, or not completely; retry.
    Failed(String),
}

/// A request to a node's copy of a replicated filter. The call's group identifies the filter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after what they are; variants say what for")]
pub enum CopyRequest {
    /// Inserts items durably.
    Hold { generation: Generation, epoch: Epoch, hashes: HashList },
    /// Returns whether items are present.
    Find { generation: Generation, epoch: Epoch, hashes: HashList },
    /// Returns how many items the node has inserted, and begins a sweep.
    Inserted { generation: Generation },
    /// Returns whether the copy has this many of each node's inserts; waits a limited time for that.
    Dominates { generation: Generation, counts: VersionVector },
    /// Returns the copy's version vector.
    Version { generation: Generation },
    /// Describes the copy.
    Describe,
    /// Returns whether the node's copies agree with the catalogue as of this entry of the meta group's
    /// log; waits a limited time for that.
    Follow { index: u64 },
    /// Compares the copy bit by bit with a partner's.
    Scrub { generation: Generation, partner: NodeId },
}

/// The response of a node's copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after what they are; variants say what for")]
pub enum CopyAnswer {
    /// One bit per item: new, or present; and whether the copy counts towards a majority.
    Bits { bits: Bitmap, is_in_sync: bool },
    /// A number of inserts.
    Count(u64),
    /// Whether the condition holds.
    Done(bool),
    /// The copy's version vector, and whether the copy counts towards a majority.
    Version { version: VersionVector, is_in_sync: bool },
    /// The description of the copy.
    Load(Box<CopyReport>),
    /// Why nothing was done.
    Failed(CopyFailure),
    /// The differences between two copies, or why they were not compared.
    Compared(Result<CopyComparison, String>),
}

/// A copy, and the exchange of its node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyReport {
    /// The copy.
    pub load: CopyLoad,
    /// The node's exchange over the cube.
    pub sweeps: SweepCounts,
}

/// The description of a copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyLoad {
    /// The generation of the filter.
    pub generation: Generation,
    /// Bits, or counters.
    pub position_count: u64,
    /// Those of them that are set.
    pub one_count: u64,
    /// Estimated number of different items; None if the copy is too full for an estimate.
    pub item_count: Option<f64>,
    /// Probability that an absent item is called present.
    pub false_positive_rate: f64,
    /// Inserts that were new.
    pub new_count: u64,
    /// Bytes of memory of the copy.
    pub memory_bytes: u64,
    /// Bytes of memory of its delta log.
    pub log_bytes: u64,
    /// Whether the copy counts towards a majority.
    pub is_in_sync: bool,
    /// By partner in the cube: changes of this copy that the partner lacks, as far as this node knows.
    pub lags: Vec<(NodeId, u64)>,
    /// Bytes of deltas that were sent.
    pub sent_bytes: u64,
    /// Bytes of deltas that were received.
    pub received_bytes: u64,
    /// Deltas that were refused.
    pub refused_count: u64,
    /// Milliseconds that the last inserts took to reach all nodes; None before the first whole sweep.
    pub convergence_ms: Option<u64>,
    /// Empty unless requested.
    pub probes: RateProbes,
    /// New items per second from clients of this node; None if they were not measured for long enough.
    pub new_per_second: Option<f64>,
}

/// Counters of a node's sweeps over the cube.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SweepCounts {
    /// The number of the running sweep, or of the last one.
    pub sweep: u64,
    /// Whether a sweep is running.
    pub is_running: bool,
    /// Sweeps that ended.
    pub sweep_count: u64,
    /// Those of them that did not reach every partner.
    pub broken_sweep_count: u64,
    /// Milliseconds that the last sweep took; None before the first one.
    pub last_sweep_ms: Option<u64>,
}

/// The progress of a job as its coordinator sees it; another worker reports only its own decisions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobStanding {
    /// The name of the phase.
    pub phase: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// Why the last attempt ended.
    pub trouble: String,
    /// Workers that do not answer.
    pub away: Vec<NodeId>,
    /// Cells that the worker on this node has decided, out of `cells`.
    pub decided_cells: u32,
    /// Cells of this worker.
    pub cells: u32,
}

/// A request for a node's report, for displays of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReportRequest {
    /// Asks for the node's state.
    Standing,
    /// Asks for the results of the last comparisons, for the filters that this principal may read; for
    /// all filters if None.
    Comparisons {
        /// The principal.
        reader: Option<String>,
    },
}

/// The response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReportAnswer {
    /// The node's state.
    Standing(NodeStanding),
    /// The results of its comparisons.
    Comparisons(ComparisonsReport),
}

/// The state of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStanding {
    /// The node's release.
    pub version: String,
    /// Free bytes on the disk of its data folder; None before the first check.
    pub free_bytes: Option<u64>,
    /// Whether too few bytes are free for inserts.
    pub is_disk_short: bool,
    /// The node's sweeps over the cube.
    pub sweeps: SweepCounts,
    /// The step of the running sweep, as text.
    pub step: Option<String>,
}

/// Results of a node's last comparisons.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ComparisonsReport {
    /// Interval in which each comparison is made once; None for never.
    pub interval_s: Option<u64>,
    /// Slices and pairs of copies that are compared.
    pub count: u64,
    /// Those whose last comparison failed, left out replicas, or left differences.
    pub bad_count: u64,
    /// Those whose last comparison restored lost bits.
    pub mended_count: u64,
    /// Those that were not compared yet.
    pub pending_count: u64,
    /// The worst first.
    pub worst: Vec<ComparedRow>,
}

/// What was compared, and the last result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ComparedRow {
    /// The filter.
    pub filter: FilterId,
    /// The replicas or copies.
    pub compares: Compares,
    /// The last result; None if there is none yet.
    pub last: Option<Comparison>,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Compares {
    /// The replicas of a slice in a shard that the node leads.
    Slice(ShardId),
    /// The node's copy with this partner's.
    Copies(NodeId),
}

#[cfg(test)]
mod recorded_test;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use umbel_ports::encoding::{decode, encode};

    use super::*;

    /// Variants that a later version added follow the earlier ones, whose numbers stay the same.
    #[test]
    fn later_calls_change_no_earlier_ones() {
        let (filter, generation) = (FilterId(1), Generation(1));
        let hashes = HashList::from_hashes(&[]);
        let question = ReplicaQuestion::Root { seed: 7 };
        // The version of the encoding, then the number of the variant.
        let before = encode(&ShardRequest::Compare { question, applied_index: 0 });
        assert_eq!(before[..5], [1, 14, 0, 0, 0]);
        let copies = ShardRequest::Copies { filter, generation, hashes };
        assert!(copies.is_repeatable());
        assert_eq!(encode(&copies)[..5], [1, 15, 0, 0, 0]);
        let before = encode(&ShardAnswer::Failed(ShardFailure::Unknown));
        assert_eq!(before[..5], [1, 10, 0, 0, 0]);
        assert_eq!(encode(&ShardAnswer::Copies(vec![2]))[..5], [1, 11, 0, 0, 0]);
    }

    #[test]
    fn what_replaces_an_expiry_is_sent_once() {
        let (filter, expires_ms) = (FilterId(1), Some(1_000));
        let replace = MetaCommand::ReplaceExpiry { filter, seen_ms: None, expires_ms };
        assert!(!MetaRequest::Propose(replace).is_repeatable());
        let set = MetaCommand::SetExpiry { filter, expires_ms };
        assert!(MetaRequest::Propose(set).is_repeatable() && MetaRequest::Confirm.is_repeatable());
    }

    /// Equal version vectors must have equal encodings, and a count of 0 carries no information.
    #[test]
    fn sent_counts_of_0_are_left_out() {
        let sent = BTreeMap::from([(NodeId(1), 40_u64), (NodeId(2), 0)]);
        let decoded: VersionVector = decode(&encode(&sent)).unwrap();
        let expected: VersionVector = [(NodeId(1), 40)].into_iter().collect();
        assert_eq!(decoded, expected);
        // In the format that is on disks and wires.
        assert_eq!(encode(&decoded), encode(&BTreeMap::from([(1_u64, 40_u64)])));
    }
}
