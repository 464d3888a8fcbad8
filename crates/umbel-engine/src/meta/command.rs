//! The commands that the meta group replicates: nodes, shard map, catalogue of filters, sessions, jobs,
//! principals.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, FilterId, Generation, JobId, NodeId, ShardId};
use crate::meta::filter_name::FilterName;
use crate::meta::filter_order::{FilterOrder, SeenExpiry};
use crate::meta::job::{JobEnd, JobOrder};
use crate::meta::join_token::Applicant;
use crate::meta::principal::{Principal, PrincipalName};
use crate::meta::quota::Quota;
use crate::meta::session_key::SessionKey;
use crate::meta::settings::FilterSettings;
use crate::meta::version::ClusterVersion;
use crate::placement::Zone;

/// One entry of the meta group's log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MetaCommand {
    /// The first entry: defines the cluster. Ignored if the cluster is already formed.
    Form {
        /// The cluster's random number, which never changes.
        cluster: u128,
        /// The first nodes, with the addresses that they listen on.
        nodes: Vec<(NodeId, String)>,
        /// Initial number of shards.
        shard_count: u32,
        /// Requested number of replicas per shard.
        replica_count: u32,
    },
    /// Adds a node, with the lowest number above all numbers used so far. Idempotent: if a live node was
    /// added with the same nonce, its number is returned.
    AddNode {
        /// The address that it listens on.
        address: String,
        /// Drawn once by the joining node.
        nonce: u64,
    },
    /// Adds a node like `AddNode` if its token is valid, and consumes the token in the same entry.
    AdmitNode(Applicant),
    /// Stores a token with which one node may join until the token expires.
    PutJoinToken {
        /// BLAKE3 hash of the secret.
        digest: [u8; 32],
        /// Time of expiry, in milliseconds since 1970.
        expires_ms: u64,
        /// The clock of the node that received the request, in milliseconds since 1970.
        now_ms: u64,
    },
    /// Moves all replicas off a node, or, with `false`, allows it to have replicas again.
    Drain {
        /// The node.
        node: NodeId,
        /// Whether to drain.
        drain: bool,
    },
    /// Removes a node permanently. Its replicas are replaced.
    RemoveNode {
        /// The node.
        node: NodeId,
    },
    /// Moves a replica of a shard. Validated against the nodes and against changes under way.
    MoveReplica {
        /// The shard.
        shard: ShardId,
        /// The node that has the replica.
        from: NodeId,
        /// The node that shall have it.
        to: NodeId,
    },
    /// From the controller: plans a change of a shard's replicas.
    PlanReplicas {
        /// The shard.
        shard: ShardId,
        /// The nodes that shall have replicas, sorted.
        target: Vec<NodeId>,
    },
    /// From the controller: the shard's group now has these voters; a plan with this target is complete.
    ReplicasChanged {
        /// The shard.
        shard: ShardId,
        /// The voters, sorted.
        replicas: Vec<NodeId>,
    },
    /// Raises the number of shards to `shard_count`, one more than now, by splitting the next shard in
    /// turn. Idempotent: does nothing if there are that many.
    SplitShard {
        /// The new number of shards.
        shard_count: u32,
    },
    /// From the controller: the shard's group has elected a leader, so its founders need not form it any
    /// more.
    ShardFormed {
        /// The shard.
        shard: ShardId,
    },
    /// Creates a filter; its number is the index of this entry. It is `Creating` until every shard has its
    /// slice. A replicated filter is live at once, because nodes create their copies when they apply this
    /// entry.
    CreateFilter {
        /// Its name.
        name: FilterName,
        /// Kind, sizes, hash key.
        settings: FilterSettings,
        /// Whether it stays invisible until `ActivateImport`.
        importing: bool,
        /// The principal that creates it, to whose quota it counts; None for a caller that is not a
        /// principal.
        owner: Option<PrincipalName>,
    },
    /// From the controller: every shard has its slice.
    FilterCreated {
        /// The filter.
        filter: FilterId,
    },
    /// The import is complete: makes the filter live.
    ActivateImport {
        /// The filter.
        filter: FilterId,
    },
    /// Drops a filter. Its name is free at once; its number is never reused. Nodes drop their copies of a
    /// replicated filter when they apply this entry.
    DropFilter {
        /// The filter.
        filter: FilterId,
    },
    /// From the controller: no shard has a slice of it any more.
    FilterDropped {
        /// The filter.
        filter: FilterId,
    },
    /// Empties a filter and starts its next generation, unless that has already started, so a retried
    /// request does not empty it twice; of a window that is rotated by hand it is refused then, as a rotation may have
    /// started it. A replicated filter is at the next generation at once.
    ClearFilter {
        /// The filter.
        filter: FilterId,
        /// The generation that ends.
        generation: Generation,
    },
    /// From the controller: every shard has reached this generation of a clear, a rotation or a rename.
    FilterCleared {
        /// The filter.
        filter: FilterId,
        /// The generation.
        generation: Generation,
    },
    /// Opens a client's session; the index of this entry is the upper half of the session's number.
    OpenSession {
        /// The key of all sessions' tags, used if this is the first session. Drawn anew for each command.
        key: SessionKey,
        /// The principal's name; empty for a caller that is not a principal.
        owner: String,
    },
    /// Adds a job; its number is the index of this entry.
    SubmitJob(JobOrder),
    /// From a worker of the job, usually its coordinator: a run has ended.
    EndJob {
        /// The job.
        job: JobId,
        /// The run.
        run: u32,
        /// How it ended.
        end: JobEnd,
    },
    /// Requests that a job ends.
    CancelJob {
        /// The job.
        job: JobId,
    },
    /// Resumes a failed job from the data on its workers' disks.
    ResumeJob {
        /// The job.
        job: JobId,
    },
    /// Adds a principal. From the first one on, the cluster denies everything that is not granted.
    PutPrincipal {
        /// Its name.
        name: PrincipalName,
        /// Its proof of identity and its rights.
        principal: Principal,
        /// Whether to replace an existing principal of this name. A retried request is harmless either way.
        replace: bool,
    },
    /// Removes a principal and its quota. Its filters stay.
    DropPrincipal {
        /// Its name.
        name: PrincipalName,
    },
    /// Sets some limits of a quota.
    SetQuota {
        /// The principal; None for the cluster's quota.
        of: Option<PrincipalName>,
        /// The limits to set.
        change: Quota,
        /// Whether to remove all other limits; otherwise they stay.
        from_none: bool,
    },
    /// From a node that has started: how much memory it may use.
    NoteMemoryLimit {
        /// The node.
        node: NodeId,
        /// The limit of its control group or of its machine.
        limit_bytes: u64,
    },
    /// From a node that has started: its zone.
    NoteZone {
        /// The node.
        node: NodeId,
        /// Its zone; None if it has none.
        zone: Option<Zone>,
    },
    /// From a node that has started: its number of cores, on which automatic splits depend.
    NoteCoreCount {
        /// The node.
        node: NodeId,
        /// Its cores, 1 to 4,096.
        core_count: u32,
    },
    /// Turns automatic splits of shards, as cores and filters grow, on or off.
    SetAutoSplit {
        /// On or off.
        is_on: bool,
    },
    /// Allows a slice of a growing filter to exceed its planned size; counts towards the owner's quota.
    GrowFilter {
        /// The filter.
        filter: FilterId,
        /// Its generation.
        generation: Generation,
        /// The shard of the slice.
        shard: ShardId,
        /// Bytes beyond the plan, at most [`SLICE_BYTES_MAX`](crate::limits::SLICE_BYTES_MAX). Has no
        /// effect if the slice is already allowed as much.
        growth_bytes: u64,
    },
    /// Sets or removes the time at which a filter is dropped.
    SetExpiry {
        /// The filter.
        filter: FilterId,
        /// Milliseconds since 1970; None for never.
        expires_ms: Option<u64>,
    },
    /// From the controller: this time has come. Drops the filter, unless its time of expiry has changed.
    DropExpired {
        /// The filter.
        filter: FilterId,
        /// The time of expiry, in milliseconds since 1970.
        expires_ms: u64,
    },
    /// Ends the current slice of a manually rotated window and starts the filter's next generation, unless
    /// that has already started, so a retried request does not rotate twice.
    RotateFilter {
        /// The filter.
        filter: FilterId,
        /// The generation that ends.
        generation: Generation,
    },
    /// Renames a filter and starts its next generation, so that requests made under the old name are
    /// refused. A retried request changes nothing, because the filter then has another name or generation.
    RenameFilter {
        /// The filter.
        filter: FilterId,
        /// The generation that ends.
        generation: Generation,
        /// The new name.
        name: FilterName,
        /// The filter that has the new name now, which is dropped; None if there must be none.
        replaced: Option<FilterId>,
    },
    /// Raises the cluster's version by one, after all nodes reported that they support it. Does nothing if
    /// the cluster is at it already.
    RaiseVersion {
        /// The new version.
        to: ClusterVersion,
        /// The nodes that reported support: must be all members of the cluster.
        asked: Vec<NodeId>,
    },
    /// Lowers the number of shards to `shard_count`, one less than now, by merging the last shard into its
    /// parent, the shard that it was split from. Idempotent: does nothing if there are that many, or if
    /// that merge is under way. It is over with `ShardMerged`.
    MergeShard {
        /// The new number of shards.
        shard_count: u32,
    },
    /// From the controller: every hash of the shard is in its parent's state now; removes the shard.
    /// Idempotent: does nothing if there is no such shard, or only a later one of this number.
    ShardMerged {
        /// The shard that was merged into its parent.
        shard: ShardId,
        /// The era of that shard, without which a proposal that arrives late would remove the next shard
        /// of this number.
        era: u32,
    },
    /// Ends a merge that began at this epoch without merging anything: the slices of a filter could not
    /// become one, and the shard was opened again. Ignored if no such merge is under way.
    MergeGivenUp {
        /// The epoch at which the merge began.
        since: Epoch,
        /// The reason.
        what: String,
    },
    /// A change of a filter that must have the name for which the client's right was checked. Otherwise it
    /// is refused, and nothing is changed.
    Order(FilterOrder),
    /// From the node that loads a filter: it goes on. Drops the filter at this time, unless it is live by
    /// then or the node says so again. Has no effect if it is live already.
    RenewImport {
        /// The filter.
        filter: FilterId,
        /// The time of expiry, in milliseconds since 1970. Has no effect if it is set to a later one.
        expires_ms: u64,
    },
    /// Creates a filter that is going to be loaded, by the import that proposes it alone: another import of the
    /// same filter under the same name is refused, although the settings are the same.
    BeginImport {
        /// Its name.
        name: FilterName,
        /// Kind, sizes, hash key.
        settings: FilterSettings,
        /// The principal that creates it.
        owner: Option<PrincipalName>,
        /// When it expires, in milliseconds since 1970, unless its import is renewed. A repetition of the
        /// proposal is known by it, so it is in part drawn at random.
        expires_ms: u64,
    },
    /// Sets or removes the time at which a filter is dropped, if it still has the one that was seen.
    /// Otherwise it is refused ([`MetaError::ExpiryChanged`](super::MetaError::ExpiryChanged)). Proposed once, whatever
    /// becomes of the answer ([`MetaCommand::is_repeatable`]).
    ReplaceExpiry {
        /// The filter.
        filter: FilterId,
        /// What was seen, in milliseconds since 1970; None for never.
        seen_ms: Option<u64>,
        /// Milliseconds since 1970; None for never.
        expires_ms: Option<u64>,
    },
    /// Drops a filter like [`DropFilter`](Self::DropFilter), unless that has been done: of several who propose it, one is
    /// answered that it is done, and the others that there is no such filter. If the filter does not have the expiry that
    /// was seen any more, it stays ([`MetaError::ExpiryChanged`](super::MetaError::ExpiryChanged)). Proposed once, whatever
    /// becomes of the answer ([`MetaCommand::is_repeatable`]).
    TakeFilter {
        /// The filter.
        filter: FilterId,
        /// Which expiry it must have.
        seen: SeenExpiry,
    },
}
