//! What nodes ask each other over their links, beside Raft itself: plain data, encoded in
//! `raft/encoding.rs`.

use serde::{Deserialize, Serialize};
use umbel_engine::hypercube::VersionVector;
use umbel_engine::meta::{GroupView, MetaCommand, MetaReply};
use umbel_engine::shard::{
    Bitmap, HashList, OverlapCount, PartError, ReplicaAnswer, ReplicaQuestion, RequestStamp,
    ShardCommand, SliceScrubbed,
};
use umbel_engine::{Epoch, FilterId, Generation, GroupId, NodeId, ShardId};

use crate::comparisons::Comparison;
use crate::cube::{Compared, CopyFailure};
use crate::export_change::{ExportedFrame, FrameDigests};
use crate::raft::types::{LogId, Vote};

/// What a coordinator asks a replica of a shard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ShardRequest {
    /// Insert, and say which were new; into a filter that grows, as far as it may.
    Insert {
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
        growth: Option<AllowedGrowth>,
        /// The items' time, in milliseconds since 1970, if the client names one.
        at_ms: Option<u64>,
    },
    /// Take out, and say which were there.
    Remove {
        filter: FilterId,
        generation: Generation,
        request: Option<RequestStamp>,
        hashes: HashList,
    },
    /// Say which are present. With `confirmed`, only the leader may answer; otherwise any replica
    /// may, and only its "present" is final.
    Contains { filter: FilterId, generation: Generation, hashes: HashList, confirmed: bool },
    /// Add what slices of other filters count to a slice; as far as it may grow.
    Sum {
        target: (FilterId, Generation),
        sources: Vec<(FilterId, Generation)>,
        request: Option<RequestStamp>,
        growth: Option<AllowedGrowth>,
    },
    /// Change slices: only commands that do no harm when they come twice.
    Command(ShardCommand),
    /// Say how full a slice is.
    Describe { filter: FilterId, generation: Generation },
    /// Begin to copy a slice out.
    ExportBegin {
        filter: FilterId,
        generation: Generation,
        /// What whoever asks has of frames that are written as words; None where those that are coded
        /// the shortest way are wanted.
        known: Option<FrameDigests>,
        /// Whether the shard's writes wait from before the copy until its release, or
        /// [`SNAPSHOT_HOLD_MAX`](crate::limits::SNAPSHOT_HOLD_MAX) is over: as one of a snapshot.
        snapshot: Option<SnapshotId>,
    },
    /// Let the shard's writes go on that wait for an export, and say whether the slice is as it was copied.
    ExportRelease { export: u64 },
    /// Keep an export that waits for its turn.
    ExportKeep { export: u64 },
    /// Give an export up.
    ExportEnd { export: u64 },
    /// Count what the slices of two filters have in common.
    Overlap { ours: (FilterId, Generation), theirs: (FilterId, Generation) },
    /// The next frames of an export.
    ExportNext { export: u64 },
    /// Say how the replica is, for status tables.
    Status,
    /// Have the replicas of a slice compared, and mended.
    Scrub { filter: FilterId, generation: Generation },
    /// Say what this replica holds, once it has applied this entry.
    Compare { question: ReplicaQuestion, applied_index: u64 },
    /// Say how often each item may be in a cuckoo filter. Only the leader may answer. Since version 2 of the cluster.
    Copies { filter: FilterId, generation: Generation, hashes: HashList },
}

impl ShardRequest {
    /// Whether sending it twice does no harm: a reply that was lost may be asked for again.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self {
            Self::Insert { request, .. }
            | Self::Remove { request, .. }
            | Self::Sum { request, .. } => request.is_some(),
            // Each try of a copy that holds writes would wait for the one before.
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
            | Self::Status => true,
            Self::ExportNext { .. } => false,
        }
    }

    /// Whether its answer may take so long that one try is given all the time that there is.
    pub(crate) fn takes_long(&self) -> bool {
        matches!(self, Self::Scrub { .. })
    }
}

/// What the copies of one snapshot have in common: a random number.
pub(crate) type SnapshotId = u64;

/// How far a slice may grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AllowedGrowth {
    /// Bytes beyond what it is planned with.
    pub(crate) bytes: u64,
    /// Whether more was refused.
    pub(crate) is_final: bool,
}

/// A replica's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ShardAnswer {
    /// One bit an item.
    Bits(Bitmap),
    /// Nothing was done: the slice may have to grow by so many bytes beyond its plan, and is to be allowed
    /// that first.
    Growing { growth_bytes: u64 },
    /// The command was carried out; for merges and loads with the positions that were newly set.
    Done(u64),
    /// How full the slice is.
    Slice(SliceLoad),
    /// What they have in common.
    Overlap(OverlapCount),
    /// An export began on this node, of what the slice was after this entry of the log.
    Export { holder: NodeId, export: u64, written_index: u64 },
    /// Frames, and whether they are the last.
    Frames { frames: Vec<ExportedFrame>, is_last: bool },
    /// How the replica is.
    Status(ReplicaStatus),
    /// What the replicas differed in.
    Scrubbed(SliceScrubbed),
    /// What this replica holds.
    Held(ReplicaAnswer),
    /// Why nothing was done.
    Failed(ShardFailure),
    /// How often each item may be in. Since version 2 of the cluster.
    Copies(Vec<u64>),
}

/// Load of one slice.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SliceLoad {
    pub(crate) leader: NodeId,
    pub(crate) position_count: u64,
    pub(crate) one_count: u64,
    pub(crate) item_count: Option<f64>,
    pub(crate) false_positive_rate: f64,
    pub(crate) new_count: u64,
    pub(crate) memory_bytes: u64,
    /// Number of new items that there is room for before it grows; None of kinds that do not.
    pub(crate) room: Option<u64>,
    pub(crate) probes: RateProbes,
    /// Set positions that no chance explains, if the kind knows that.
    pub(crate) unexplained_one_count: Option<u64>,
    /// New items a second; None where they were not watched for long enough.
    pub(crate) new_per_second: Option<f64>,
}

/// Random items that a filter was asked for, and how many of them it called present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RateProbes {
    pub(crate) probe_count: u64,
    pub(crate) hit_count: u64,
}

impl RateProbes {
    /// The share that was called present; None if nothing was asked.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub(crate) fn rate(self) -> Option<f64> {
        (self.probe_count > 0).then(|| self.hit_count as f64 / self.probe_count as f64)
    }
}

/// One replica in a status table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ReplicaStatus {
    pub(crate) view: GroupView,
    pub(crate) applied_index: u64,
    pub(crate) memory_bytes: u64,
}

/// Why a replica did not do what it was asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum ShardFailure {
    /// Ask the leader, if it is named; nothing was done.
    #[error("not the leader")]
    NotLeader(Option<NodeId>),
    /// Too much waits for the leader; nothing was done.
    #[error("{0} items wait for the shard's leader already")]
    Overloaded(u64),
    /// The leader's disk is nearly full; nothing was done.
    #[error("the disk of the shard's leader has {free_bytes} bytes left")]
    DiskFull {
        /// What is left.
        free_bytes: u64,
    },
    /// It may have been done.
    #[error("the leader changed while the request was on its way")]
    Unknown,
    /// The replica stopped; it may have been done.
    #[error("{0}")]
    Stopped(String),
    /// The request does not fit the shard's state; nothing was done.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The export is not known (any more).
    #[error("the export was given up after a pause")]
    NoExport,
    /// As many exports as a node serves are running; nothing was done.
    #[error("too many exports are running on the node")]
    TooManyExports,
    /// The slice was written since it was copied, or writes that are on their way do not end; the export is given up.
    #[error("the slice was written while it was copied")]
    WrittenMeanwhile,
    /// The comparison was given up; what was mended stays. Ask again later.
    #[error("the comparison was given up: {0}")]
    NotCompared(String),
}

/// What a node asks the meta group's leader.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum MetaRequest {
    /// Have a command applied.
    Propose(MetaCommand),
    /// Confirm leadership, and say up to which entry a reader must have applied.
    Confirm,
}

/// The answer of the meta group's leader.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum MetaAnswer {
    /// The command was applied.
    Reply(MetaReply),
    /// What was committed before the question is in the entries that the leader has applied.
    Confirmed,
    /// Ask the leader, if it is named; nothing was done.
    NotLeader(Option<NodeId>),
    /// It may have been done.
    Unknown,
}

/// What the controller asks the leader of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum GroupRequest {
    /// Say who leads and who the members are.
    View,
    /// Make these the members.
    ChangeMembers { voters: Vec<(NodeId, String)>, learners: Vec<(NodeId, String)> },
}

/// The answer of the leader of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum GroupAnswer {
    /// As this node knows it.
    View(GroupView),
    /// The members are as asked.
    Changed,
    /// The change was not made, or not to its end; ask again.
    Failed(String),
}

/// What nodes ask each other about their replicas.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum RecallRequest {
    /// Of a node that starts: say what you know of me.
    Standings,
    /// Of the leader of the call's group: your replica has confirmed this entry and lacks some.
    Lost { confirmed: LogId },
    /// Say what is committed in the groups that you lead.
    Committed,
}

/// The answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum RecallAnswer {
    /// What is known of the caller.
    Standings(Standings),
    /// It is on the disk.
    Noted,
    /// Index of the last committed entry of each group that this node leads.
    Committed(Vec<(GroupId, u64)>),
}

/// What a node knows of another one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Standings {
    pub(crate) groups: Vec<Standing>,
    /// How many of its inserts into replicated filters this node has.
    pub(crate) copies: Vec<(FilterId, Generation, u64)>,
    /// Nodes that may know more.
    pub(crate) nodes: Vec<(NodeId, String)>,
}

/// What a node knows of another one's replica of a group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub(crate) group: GroupId,
    /// This node's own vote there: the other one may have voted so.
    pub(crate) vote: Option<Vote>,
    /// The last entry that the other one has confirmed to this node, or that is committed.
    pub(crate) last: Option<LogId>,
}

/// What a node asks another one's copy of a replicated filter. The filter is named by the call's
/// group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum CopyRequest {
    /// Insert items, so that they are on the node's disk.
    Hold { generation: Generation, epoch: Epoch, hashes: HashList },
    /// Say whether items are present.
    Find { generation: Generation, epoch: Epoch, hashes: HashList },
    /// Say how many items the node has inserted, and begin a sweep.
    Inserted { generation: Generation },
    /// Say whether the copy has so many of each node's inserts; waits for that a while.
    Dominates { generation: Generation, counts: VersionVector },
    /// Say what the copy has.
    Version { generation: Generation },
    /// Say how the copy is.
    Describe,
    /// Say whether the node's copies are as the catalogue wants them at this entry of the meta
    /// group's log; waits for that a while.
    Follow { index: u64 },
    /// Compare the copy bit by bit with a partner's.
    Scrub { generation: Generation, partner: NodeId },
}

/// The answer of a node's copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum CopyAnswer {
    /// One bit an item: new, or present; and whether the copy counts for levels of majority.
    Bits { bits: Bitmap, is_settled: bool },
    /// A number of inserts.
    Count(u64),
    /// Whether it is so.
    Done(bool),
    /// What the copy has, and whether it counts for levels of majority.
    Version { version: VersionVector, is_settled: bool },
    /// How the copy is.
    Load(Box<CopyReport>),
    /// Why nothing was done.
    Failed(CopyFailure),
    /// What two copies differed in, or why they were not compared.
    Compared(Result<Compared, String>),
}

/// A copy and the exchange of its node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CopyReport {
    pub(crate) load: CopyLoad,
    pub(crate) sweeps: SweepCounts,
}

/// How a copy is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CopyLoad {
    pub(crate) generation: Generation,
    pub(crate) position_count: u64,
    pub(crate) one_count: u64,
    pub(crate) item_count: Option<f64>,
    pub(crate) false_positive_rate: f64,
    pub(crate) new_count: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) is_settled: bool,
    pub(crate) lags: Vec<(NodeId, u64)>,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) refused_count: u64,
    pub(crate) convergence_ms: Option<u64>,
    /// None, unless they were asked for.
    pub(crate) probes: RateProbes,
    /// New items a second that clients of this node insert; None where they were not watched for long enough.
    pub(crate) new_per_second: Option<f64>,
}

/// Sweeps over the cube of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SweepCounts {
    /// The running one, or the last.
    pub(crate) sweep: u64,
    pub(crate) is_running: bool,
    pub(crate) sweep_count: u64,
    pub(crate) broken_sweep_count: u64,
    pub(crate) last_sweep_ms: Option<u64>,
}

/// How far a job is, as its coordinator sees it; of another worker what it has decided itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct JobStanding {
    pub(crate) phase: String,
    pub(crate) attempt: u32,
    /// What ended the last attempt.
    pub(crate) trouble: String,
    pub(crate) away: Vec<NodeId>,
    /// Cells that the worker on the node has decided, of so many.
    pub(crate) decided_cells: u32,
    pub(crate) cells: u32,
}

/// What a node asks another one for who looks at the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ReportRequest {
    /// How are you?
    Standing,
    /// What did your last comparisons come to, of the filters that this principal may read? None for all.
    Comparisons { reader: Option<String> },
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ReportAnswer {
    Standing(NodeStanding),
    Comparisons(ComparisonsReport),
}

/// How a node is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NodeStanding {
    /// Its release.
    pub(crate) version: String,
    /// On the disk of its data folder; None before it has looked.
    pub(crate) free_bytes: Option<u64>,
    /// Whether that is too little for inserts.
    pub(crate) is_disk_short: bool,
    pub(crate) sweeps: SweepCounts,
    /// Of the sweep that runs, in words.
    pub(crate) step: Option<String>,
}

/// What the last comparisons of a node came to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ComparisonsReport {
    /// Each one is made once in that time; None for never.
    pub(crate) interval_s: Option<u64>,
    pub(crate) count: u64,
    pub(crate) bad_count: u64,
    pub(crate) mended_count: u64,
    pub(crate) pending_count: u64,
    /// The worst first.
    pub(crate) worst: Vec<ComparedRow>,
}

/// What was compared, and what came of it last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ComparedRow {
    pub(crate) filter: FilterId,
    pub(crate) compares: Compares,
    pub(crate) last: Option<Comparison>,
}

/// Whose bits are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Compares {
    /// The replicas of a slice in a shard that the node leads.
    Slice(ShardId),
    /// The node's copy with a partner's.
    Copies(NodeId),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::raft::encoding::{decode, encode};

    /// What came with a version is behind all that was before it, whose numbers stay.
    #[test]
    fn later_calls_change_no_earlier_ones() {
        let (filter, generation) = (FilterId(1), Generation(1));
        let hashes = HashList::from_hashes(&[]);
        let question = ReplicaQuestion::Root { seed: 7 };
        // The version of the encoding, then the variant.
        let before = encode(&ShardRequest::Compare { question, applied_index: 0 });
        assert_eq!(before[..5], [1, 14, 0, 0, 0]);
        let copies = ShardRequest::Copies { filter, generation, hashes };
        assert!(copies.is_repeatable());
        assert_eq!(encode(&copies)[..5], [1, 15, 0, 0, 0]);
        let before = encode(&ShardAnswer::Failed(ShardFailure::Unknown));
        assert_eq!(before[..5], [1, 10, 0, 0, 0]);
        assert_eq!(encode(&ShardAnswer::Copies(vec![2]))[..5], [1, 11, 0, 0, 0]);
    }

    /// Two that say the same must be equal, and a count of 0 says nothing.
    #[test]
    fn sent_counts_of_0_are_left_out() {
        let sent = BTreeMap::from([(NodeId(1), 40_u64), (NodeId(2), 0)]);
        let decoded: VersionVector = decode(&encode(&sent)).unwrap();
        let expected: VersionVector = [(NodeId(1), 40)].into_iter().collect();
        assert_eq!(decoded, expected);
        // In the bytes that are on disks and wires.
        assert_eq!(encode(&decoded), encode(&BTreeMap::from([(1_u64, 40_u64)])));
    }
}
