//! What the meta group replicates: nodes, the shard map, the catalogue of filters, sessions.

use serde::{Deserialize, Serialize};

use crate::ids::{FilterId, Generation, JobId, NodeId, SessionId, ShardId};
use crate::meta::access::{Principal, PrincipalName};
use crate::meta::filter_name::FilterName;
use crate::meta::jobs::{JobEnd, JobOrder};
use crate::meta::join_token::Applicant;
use crate::meta::quota::Quota;
use crate::meta::sessions::SessionKey;
use crate::meta::settings::FilterSettings;
use crate::meta::version::ClusterVersion;
use crate::placement::Zone;

/// One entry of the meta group's log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaCommand {
    /// The first entry: what the cluster is. Ignored when the cluster is formed already.
    Form {
        /// Random, the same for ever.
        cluster: u128,
        /// The first nodes and where they listen.
        nodes: Vec<(NodeId, String)>,
        /// Number of shards at first.
        shard_count: u32,
        /// Replicas wanted of every shard.
        replica_count: u32,
    },
    /// Adds a node; its number is the next one that no node ever had. So that a repeated request does no
    /// harm, it is that of the live node that was added with the same nonce, if there is one.
    AddNode {
        /// Where it listens.
        address: String,
        /// Drawn once by the joining node.
        nonce: u64,
    },
    /// Adds a node as `AddNode` does, if its token is good, and uses that up in the same moment.
    AdmitNode(Applicant),
    /// Keeps a token by which one node may join until it expires.
    PutJoinToken {
        /// BLAKE3 of the secret.
        digest: [u8; 32],
        /// When it expires: milliseconds since 1970.
        expires_ms: u64,
        /// What the clock of the node says that was asked.
        now_ms: u64,
    },
    /// Takes all replicas off a node, or, with `false`, lets it have some again.
    Drain {
        /// The node.
        node: NodeId,
        /// Whether.
        drain: bool,
    },
    /// Removes a node for ever. Its replicas are replaced.
    RemoveNode {
        /// The node.
        node: NodeId,
    },
    /// A replica of a shard shall be elsewhere. Checked against nodes and earlier plans.
    MoveReplica {
        /// The shard.
        shard: ShardId,
        /// Where the replica is.
        from: NodeId,
        /// Where it shall be.
        to: NodeId,
    },
    /// From the controller: replicas that a shard shall have; the change has begun.
    PlanReplicas {
        /// The shard.
        shard: ShardId,
        /// The nodes, sorted.
        target: Vec<NodeId>,
    },
    /// From the controller: the shard's group has these voters now; a plan that wants them is done.
    ReplicasChanged {
        /// The shard.
        shard: ShardId,
        /// The nodes, sorted.
        replicas: Vec<NodeId>,
    },
    /// The cluster shall have this many shards, one more than now: the next in turn is cut in two. Done already if it has
    /// that many, so that a repeated request does no harm.
    SplitShard {
        /// Shards then.
        shard_count: u32,
    },
    /// From the controller: the shard's group has elected a leader, so its first members need not
    /// form it any more.
    ShardFormed {
        /// The shard.
        shard: ShardId,
    },
    /// Creates a filter; its number is the index of this entry. It is `Creating` until every shard
    /// has its slice; a replicated one is live at once, for its nodes make their copies when they
    /// learn of it.
    CreateFilter {
        /// Its name.
        name: FilterName,
        /// Kind, numbers, key.
        settings: FilterSettings,
        /// Whether it stays invisible until `ActivateImport`.
        importing: bool,
        /// The principal who asks, whose quota it counts for; None for a caller that is none.
        owner: Option<PrincipalName>,
    },
    /// From the controller: every shard has its slice.
    FilterCreated {
        /// The filter.
        filter: FilterId,
    },
    /// The import is complete: the filter goes live.
    ActivateImport {
        /// The filter.
        filter: FilterId,
    },
    /// Drops a filter: its name is free at once, its number never. Copies of a replicated one are
    /// dropped when their nodes learn of it.
    DropFilter {
        /// The filter.
        filter: FilterId,
    },
    /// From the controller: no shard has a slice of it.
    FilterDropped {
        /// The filter.
        filter: FilterId,
    },
    /// Empties a filter and starts its next generation, unless that has begun: a request that comes
    /// again does not empty it twice. A replicated filter is at the next generation at once.
    ClearFilter {
        /// The filter.
        filter: FilterId,
        /// The generation that ends.
        generation: Generation,
    },
    /// From the controller: every shard is at this generation, that a clearing or a rotation leads to.
    FilterCleared {
        /// The filter.
        filter: FilterId,
        /// The generation.
        generation: Generation,
    },
    /// Opens a client's session; the index of this entry is the upper half of its number.
    OpenSession {
        /// What all numbers are tagged with, if this is the first session: drawn anew for each.
        key: SessionKey,
        /// The principal's name, empty for a caller that is none.
        owner: String,
    },
    /// Enters a job; its number is the index of this entry.
    SubmitJob(JobOrder),
    /// From a worker of the job, mostly its coordinator: a run has ended.
    EndJob {
        /// The job.
        job: JobId,
        /// The run.
        run: u32,
        /// How.
        end: JobEnd,
    },
    /// Asks a job to end.
    CancelJob {
        /// The job.
        job: JobId,
    },
    /// Takes a failed job up again, from what its workers have on their disks.
    ResumeJob {
        /// The job.
        job: JobId,
    },
    /// Adds a principal. With the first one the cluster denies whatever is not granted.
    PutPrincipal {
        /// Its name.
        name: PrincipalName,
        /// What it proves itself by, and what it may do.
        principal: Principal,
        /// Whether one of that name is replaced; a repeated request does no harm without it, too.
        replace: bool,
    },
    /// Removes a principal: it may do nothing any more. Its quota goes with it, its filters stay.
    DropPrincipal {
        /// Its name.
        name: PrincipalName,
    },
    /// Sets limits of a quota, and leaves the others.
    SetQuota {
        /// Whose; None is the cluster's.
        of: Option<PrincipalName>,
        /// What is set.
        change: Quota,
        /// Whether the others are taken away.
        from_none: bool,
    },
    /// From a node that has started: how much memory it may use.
    NoteMemoryLimit {
        /// The node.
        node: NodeId,
        /// Its limit, the control group's or the machine's.
        limit_bytes: u64,
    },
    /// From a node that has started: in which zone it is.
    NoteZone {
        /// The node.
        node: NodeId,
        /// Its zone; None if it is in none.
        zone: Option<Zone>,
    },
    /// From a node that has started: how many cores it has, by which shards are split.
    NoteCoreCount {
        /// The node.
        node: NodeId,
        /// Its cores, 1 to 4,096.
        core_count: u32,
    },
    /// Whether shards are split by themselves, as cores and filters grow.
    SetAutoSplit {
        /// Whether they are.
        is_on: bool,
    },
    /// Lets a slice of a filter that grows take more than the filter is planned with: for its owner's quota.
    GrowFilter {
        /// The filter.
        filter: FilterId,
        /// Its generation.
        generation: Generation,
        /// Whose slice.
        shard: ShardId,
        /// Bytes beyond the plan, at most [`SLICE_BYTES_MAX`](crate::limits::SLICE_BYTES_MAX): what it has
        /// already is no more.
        growth_bytes: u64,
    },
    /// Sets or takes away the time at which a filter is dropped.
    SetExpiry {
        /// The filter.
        filter: FilterId,
        /// Milliseconds since 1970; None is never.
        expires_ms: Option<u64>,
    },
    /// From the controller: this time has come. Drops the filter, unless it has been given another one.
    DropExpired {
        /// The filter.
        filter: FilterId,
        /// Milliseconds since 1970.
        expires_ms: u64,
    },
    /// Ends the slice at hand of a window that goes by hand, and starts the filter's next generation, unless
    /// that has begun: a request that comes again does not rotate twice.
    RotateFilter {
        /// The filter.
        filter: FilterId,
        /// The generation that ends.
        generation: Generation,
    },
    /// Gives a filter another name and, for whoever asks by the name before, another generation. A request that comes
    /// again changes nothing: the filter is then called otherwise, or at another generation.
    RenameFilter {
        /// The filter.
        filter: FilterId,
        /// The generation that ends.
        generation: Generation,
        /// The new name.
        name: FilterName,
        /// The filter of that name, which is dropped; None if there is to be none.
        replaced: Option<FilterId>,
    },
    /// Raises the cluster's version by one: all nodes can run it. Done already if it is at that.
    RaiseVersion {
        /// The version then.
        to: ClusterVersion,
        /// Who said that it can: every member of the cluster.
        asked: Vec<NodeId>,
    },
}

/// What applying a [`MetaCommand`] answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaReply {
    /// Done, or was done before.
    Done,
    /// The node has this number.
    Node(NodeId),
    /// The filter has this number.
    Filter(FilterId),
    /// The session has this number.
    Session(SessionId),
    /// The job has this number.
    Job(JobId),
    /// Refused; nothing was changed.
    Refused(MetaError),
}

/// Why the meta group refused a command. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum MetaError {
    /// Name a filter that exists.
    #[error("there is no {filter}")]
    UnknownFilter {
        /// What was named.
        filter: FilterId,
    },
    /// Take another name, or drop the filter that has it.
    #[error("a filter named {name:?} exists already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The filter is being created, cleared or imported: send again later.
    #[error("filter {name:?} is {state}")]
    Busy {
        /// Its name.
        name: String,
        /// What it is doing.
        state: String,
    },
    /// Name a node that exists.
    #[error("there is no {node}")]
    UnknownNode {
        /// What was named.
        node: NodeId,
    },
    /// The address belongs to a live node: remove that one first.
    #[error("{node} listens on {address} already; if its data is gone, remove it first")]
    AddressTaken {
        /// The address.
        address: String,
        /// Whose it is.
        node: NodeId,
    },
    /// Fewer nodes would be left than the shards need.
    #[error("{what}")]
    TooFewNodes {
        /// How many would be left, and how many are needed.
        what: String,
    },
    /// The move makes no sense as the shard map stands.
    #[error("{what}")]
    BadMove {
        /// Why.
        what: String,
    },
    /// The shards cannot be split so.
    #[error("{what}")]
    BadSplit {
        /// Why.
        what: String,
    },
    /// A shard is being split, or its replicas are being moved: send again later.
    #[error("{what}")]
    ShardBusy {
        /// Which, and what is done to it.
        what: String,
    },
    /// Name a job that the ledger has; ended ones are forgotten in time.
    #[error("there is no {job}")]
    UnknownJob {
        /// What was named.
        job: JobId,
    },
    /// The job cannot do that any more.
    #[error("{job} is {state}")]
    JobState {
        /// The job.
        job: JobId,
        /// What has become of it.
        state: String,
    },
    /// A limit would be exceeded.
    #[error("{what}")]
    Quota {
        /// Which limit, how much is used and was asked for.
        what: String,
    },
    /// The command needs a cluster that is formed.
    #[error("the cluster is not formed yet")]
    NotFormed,
    /// The settings are no filter, the rights no rights.
    #[error("{what}")]
    BadSettings {
        /// What was expected and what came.
        what: String,
    },
    /// Draw another token for joining.
    #[error("{what}")]
    BadJoinToken {
        /// Why it is not good.
        what: String,
    },
    /// Name another principal, or add an administrator first.
    #[error("{what}")]
    BadPrincipal {
        /// Why.
        what: String,
    },
    /// Raise the cluster's version first.
    #[error(
        "this needs a cluster of {needed}, and it is at {is}: have all nodes run a release that can, then raise it \
         (umbel cluster upgrade)"
    )]
    VersionTooLow {
        /// With what the command came.
        needed: ClusterVersion,
        /// The cluster's.
        is: ClusterVersion,
    },
    /// The version is not raised so.
    #[error("{what}")]
    BadVersion {
        /// Why.
        what: String,
    },
}
