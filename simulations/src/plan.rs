//! A plan: everything that a run does, as data. A seed determines a plan, and a failing run saves one.
//!
//! A plan stays valid when the order of random draws in the code changes; a bare seed does not.

pub(crate) mod access;
pub(crate) mod check;
mod class;
pub(crate) mod damage;
mod draw;
pub(crate) mod file;
pub(crate) mod identity;
mod job;
mod line_format;
pub(crate) mod quota;
pub(crate) mod scenario;
pub(crate) mod who;

#[cfg(test)]
#[path = "plan/plan_test.rs"]
pub(crate) mod plan_test;

use serde::{Deserialize, Serialize};
use umbel_engine::shard::{LateItems, WindowRules, WindowTime};

use self::access::AccessPlan;
use self::scenario::{Scenario, SetsPlan};
pub(crate) use check::{Misfit, PLAN_LIMITS};
pub(crate) use job::{JobFilter, JobKeep, JobLevel, JobPlan};

/// Version of the format; plans with another version are rejected.
pub(crate) const PLAN_FORMAT: u32 = 1;

/// One run: world, workload, faults.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// [`PLAN_FORMAT`].
    pub(crate) plan: u32,
    /// Seeds all remaining random streams: latencies, elections, keys, backoff.
    pub(crate) seed: u64,
    /// The fault profile that the plan was drawn from.
    pub(crate) profile: String,
    /// Simulated milliseconds of the phase with faults; a phase without faults follows.
    pub(crate) run_ms: u64,
    /// Name of the planted bug that is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) planted: Option<String>,
    /// Names of rare choices of the node that this run makes frequent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) provoked: Vec<String>,
    /// The size of the world.
    pub(crate) world: WorldShape,
    /// The zone of each machine, by number, founders first. A machine without one fails alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) zones: Vec<u32>,
    /// Filters that are created before the work begins.
    pub(crate) filters: Vec<FilterPlan>,
    /// What the clients do, by time.
    pub(crate) ops: Vec<OpPlan>,
    /// Jobs that the cluster is given, by time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) jobs: Vec<JobPlan>,
    /// Sets that reconciliation sessions work on, on machines of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sets: Option<SetsPlan>,
    /// The reconciliation sessions, by time.
    #[serde(default, alias = "meetings", skip_serializing_if = "Vec::is_empty")]
    pub(crate) scenarios: Vec<Scenario>,
    /// Principals, their grants, and their requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access: Option<AccessPlan>,
    /// What happens to them, by time.
    pub(crate) faults: Vec<FaultPlan>,
    /// Origin of the plan for the reader: commit of the seed, issue, what was wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// The invariant that was violated when the plan was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expect: Option<String>,
}

/// Nodes, shards, clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorldShape {
    /// Nodes that found the cluster, 1 to 16; they are numbered from 1. 0 if the plan has sets and nothing
    /// that needs a node.
    pub(crate) nodes: u32,
    /// Shards, 1 to 16.
    pub(crate) shards: u32,
    /// Replicas a shard, 1 to 9.
    pub(crate) replicas: u32,
    /// Clients, 1 to 64, numbered from 0.
    pub(crate) clients: u32,
    /// Interval in simulated seconds at which a node compares its copy of each replicated filter with a
    /// partner's; 0 for never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) scrub_s: u32,
    /// After all faults, every `rot_every`-th bit is cleared in the copies on every second node and in
    /// one replica of each shard; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) rot_every: u32,
    /// Number of cores that each node reports. After the first split the cluster splits its shards
    /// automatically until every core has two replicas; with 0, shards are split only by hand.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) cores: u32,
    /// Whether the founders run the release before this one, until they are upgraded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) earlier_release: bool,
    /// Clients from this number on insert and query over the Redis protocol, which all nodes serve; 0 if
    /// no client does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) resp_from: u32,
}

impl WorldShape {
    /// A world in which copies are not compared.
    pub(crate) const fn new(nodes: u32, shards: u32, replicas: u32, clients: u32) -> Self {
        Self {
            nodes,
            shards,
            replicas,
            clients,
            scrub_s: 0,
            rot_every: 0,
            cores: 0,
            earlier_release: false,
            resp_from: 0,
        }
    }

    /// Whether a client speaks the Redis protocol.
    pub(crate) const fn speaks_resp(&self, client: u32) -> bool {
        self.resp_from > 0 && client >= self.resp_from
    }
}

const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A filter.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterPlan {
    /// Its name.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: FilterKind,
    /// Number of items that it is sized for.
    pub(crate) capacity: u64,
    /// Rate of false positives, in millionths.
    pub(crate) rate_ppm: u32,
    /// Whether clients may hash items themselves (XXH3), or only the cluster (keyed SipHash).
    pub(crate) public: bool,
    /// Whether every node has a copy of the filter, instead of shards that have slices.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) replicated: bool,
}

const fn is_false(value: &bool) -> bool {
    !*value
}

/// Kinds of filters that the service offers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FilterKind {
    /// A classic Bloom filter.
    Classic,
    /// A blocked one.
    Blocked,
    /// One that items can be removed from.
    Counting,
    /// One that grows.
    Scalable,
    /// One probe an item, stored as gaps. Of replicated filters only.
    SingleShot,
    /// One that forgets, by [`WINDOW`].
    Window,
    /// One that forgets by rotations, [`MANUAL_WINDOW`].
    ManualWindow,
    /// One that keeps the last items.
    Aging,
    /// One that forgets evenly.
    Stable,
    /// A table of fingerprints, from which items can be removed.
    Cuckoo,
    /// A sorted table of remainders, from which items can be removed.
    Quotient,
    /// RedisBloom's chain, whole in one shard. Not drawn: the seeds that are named anywhere would be others.
    #[serde(rename = "redisbloom")]
    RedisBloom,
}

impl FilterKind {
    /// Whether inserted items may be lost without a removal.
    pub(crate) const fn forgets(self) -> bool {
        matches!(self, Self::Window | Self::ManualWindow | Self::Aging | Self::Stable)
    }

    /// Whether items can be removed from it.
    pub(crate) const fn removes(self) -> bool {
        matches!(self, Self::Counting | Self::Cuckoo | Self::Quotient)
    }

    /// Whether it tells how often an item is in it.
    pub(crate) const fn tells_copies(self) -> bool {
        matches!(self, Self::Cuckoo | Self::Quotient)
    }

    /// Whether it rejects inserts when it is full.
    pub(crate) const fn can_be_full(self) -> bool {
        matches!(self, Self::Cuckoo | Self::Quotient)
    }
}

/// How windows forget: fast enough to do so several times within a run.
pub(crate) const WINDOW: WindowRules = WindowRules {
    slice_ms: 3_000,
    slice_count: 4,
    time: WindowTime::Ingest,
    late: LateItems::Reject,
    refresh: false,
};

/// How manual windows forget.
pub(crate) const MANUAL_WINDOW: WindowRules =
    WindowRules { slice_ms: 0, slice_count: 2, time: WindowTime::Manual, ..WINDOW };

/// Largest error of a node's wall clock if replicated filters forget. Twice this is less than a slice;
/// beyond that nodes ignore each other.
pub(crate) const WALL_CLOCK_NEAR_MS: i64 = 1_400;

/// On how many nodes an insert into a replicated filter is durable when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ack {
    /// On the node that received the request.
    Local,
    /// On that node and one more.
    OnePartner,
    /// On a majority.
    Majority,
}

/// A call of a client.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// The client that makes it. A client's calls may overlap.
    pub(crate) client: u32,
    /// The node that receives the first attempt; the client chooses where later attempts go.
    pub(crate) via: u32,
    /// What it does.
    pub(crate) op: Op,
}

/// What a call does. Items are numbers; item `n` of a filter is the text `item n`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Op {
    /// Inserts items. With `copies` above 1 the same request, with the same request id, is sent that
    /// many times at once, to different nodes in turn: all must get the same answer.
    Insert { filter: String, items: Vec<u32>, copies: u32 },
    /// Queries items; `any` allows stale reads from any replica, otherwise reads are linearizable.
    Contains { filter: String, items: Vec<u32>, any: bool },
    /// Removes items from a filter that supports it.
    Remove { filter: String, items: Vec<u32> },
    /// Exports a snapshot of a filter, all shards at the same moment.
    Snapshot { filter: String },
    /// Renames a filter, and back.
    Rename { filter: String },
    /// Empties a filter.
    Clear { filter: String },
    /// Ends the current slice of a manual window.
    Rotate { filter: String },
    /// Creates a filter like the plan's filter of that name, if it does not exist.
    Create { filter: String },
    /// Drops a filter.
    Drop { filter: String },
    /// ORs the second filter into the first; both must have the same shape.
    Merge { filter: String, source: String },
    /// ORs the intersection of the sources into the first filter; all must have the same shape.
    Intersect { filter: String, sources: Vec<String> },
    /// Inserts items into a replicated filter, with the given acknowledgement level.
    InsertCopy { filter: String, items: Vec<u32>, ack: Ack },
    /// Queries a replicated filter: the copy of the node that receives the request, or a `majority`.
    ContainsCopy { filter: String, items: Vec<u32>, majority: bool },
    /// Makes the copies of a replicated filter exchange what they have.
    Flush { filter: String },
    /// Inserts those items that are absent: `CF.ADDNX`, once an item.
    AddNew { filter: String, items: Vec<u32> },
    /// Sets an expiry that never comes, `turn` seconds before the latest one, if it is earlier than that of the filter:
    /// `EXPIREAT` with `LT`.
    Expire { filter: String, turn: u32 },
    /// Drops a filter, and tells whether it was this call: `DEL`.
    Take { filter: String },
    /// Adds a copy of each item, also of those that are present: `CF.ADD`, once an item.
    AddOne { filter: String, items: Vec<u32> },
    /// Deletes a copy of each item: `CF.DEL`, once an item.
    DeleteOne { filter: String, items: Vec<u32> },
    /// Sets an expiry that comes, `in_ms` milliseconds after the call begins: `PEXPIREAT`.
    ExpireIn { filter: String, in_ms: u64 },
    /// Adds items through the named node alone, and creates the filter if it is missing: `BF.INSERT`, once an item.
    AddVia { filter: String, items: Vec<u32> },
    /// Asks the named node alone for items: `BF.EXISTS`, once an item.
    AskVia { filter: String, items: Vec<u32> },
}

/// A fault.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// How long it lasts, in simulated milliseconds; ignored by instantaneous faults.
    pub(crate) for_ms: u64,
    /// What happens.
    pub(crate) fault: Fault,
}

/// Selects the node that a fault affects. Resolved when the fault fires; the trace shows the result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Who {
    /// `node:3`: the founder or joiner with this number.
    Node(u32),
    /// `leader:0`: the leader of shard 0 at that time.
    Leader(u32),
    /// `follower:0`: the lowest-numbered node that has a replica of shard 0 and does not lead it.
    Follower(u32),
    /// `meta`: the leader of the meta group at that time.
    MetaLeader,
    /// `all`: every node. Allowed only for some faults.
    All,
}

/// What happens. Names are the fault classes of counters and reports.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Fault {
    /// All messages between the node and any other host are dropped, in both directions.
    Isolate { who: Who },
    /// All messages between the nodes in `left` and the other nodes are dropped; clients reach both
    /// sides.
    Split { left: Vec<u32> },
    /// Messages from the node are dropped while those to it arrive (`outbound`), or the other way
    /// round.
    OneWay { who: Who, outbound: bool },
    /// The node can open no connections to other nodes (`outbound`), or they none to it, and those that were open are
    /// reset. Attempts are refused, or get no answer (`silent`). What the other side opens works both ways.
    CloseLinks { who: Who, outbound: bool, silent: bool },
    /// Splits the other nodes into two halves that only `middle` can reach.
    Bridge { middle: u32 },
    /// Every node reaches only the next and the previous one.
    Ring,
    /// Messages from and to the node take up to `ms` milliseconds.
    Latency { who: Who, ms: u32 },
    /// Each message from or to the node is dropped with probability `per_mille` / 1000.
    Loss { who: Who, per_mille: u32 },
    /// All connections of the node are reset, once.
    Reset { who: Who },
    /// Messages from and to the node are held, then delivered at once.
    Hold { who: Who },
    /// The node is killed, and restarts after `for_ms`. Everything it wrote survives, synced or not.
    Crash { who: Who },
    /// The node, or all nodes, lose power, and restart after `for_ms`. `mode` determines which unsynced
    /// writes are lost.
    PowerLoss { who: Who, mode: LossMode },
    /// The node's network and disk stand still while its timers run, then everything is delivered at
    /// once.
    Freeze { who: Who },
    /// The node is told to stop, and starts again after `for_ms`.
    Stop { who: Who },
    /// All nodes are stopped and restarted, one after another, `for_ms` apart.
    RollingRestart,
    /// The node is killed and restarted `count` times within `for_ms`.
    CrashStorm { who: Who, count: u32 },
    /// Disk calls take `factor` times as long.
    SlowDisk { who: Who, factor: u32 },
    /// Disk calls do not return before the fault ends.
    StallDisk { who: Who },
    /// The next sync fails, and the writes that it should have synced are lost at the next power loss.
    SyncFails { who: Who },
    /// Reads fail while it lasts.
    ReadFails { who: Who },
    /// Writes fail while it lasts.
    WriteFails { who: Who },
    /// The disk has only `free_bytes` bytes free while the fault lasts.
    DiskFull { who: Who, free_bytes: u64 },
    /// The node is killed, and while it is down, `bits` bits of its durable data are flipped
    /// permanently.
    BitRot { who: Who, part: DiskPart, bits: u32 },
    /// One write goes to another place in its file while the fault lasts; its target keeps the old
    /// contents.
    Misdirect { who: Who },
    /// The two nodes are killed and their disks are exchanged. After `for_ms` they start and must
    /// refuse; then they get their own disks back.
    SwapDisks { one: u32, other: u32 },
    /// The node is killed and starts, after `for_ms`, with an empty disk.
    WipeDisk { who: Who },
    /// The node's clock jumps forward: all timers that would fire in that time are due at once.
    ClockJump { who: Who, ms: u32 },
    /// The node's clock runs `per_mille` thousandths too fast while the fault lasts.
    ClockDrift { who: Who, per_mille: u32 },
    /// The node's wall clock is off by `ms` milliseconds while the fault lasts.
    WallClock { who: Who, ms: i64 },
    /// A new node joins through this node.
    Join { via: Who },
    /// The node is drained and removed; after `for_ms` it returns with an empty disk as a new node.
    Replace { who: Who },
    /// The replica of the shard on the node moves to a node without one, if there is such a node.
    MoveReplica { shard: u32, who: Who },
    /// Splits the next shard in turn.
    SplitShard,
    /// Merges the last shard into the one from which it was split off, if it was.
    MergeShard,
    /// All nodes are stopped, one after another, `for_ms` apart, and restarted with this release. From
    /// the start of the fault on, an operator keeps trying to raise the cluster version until it
    /// succeeds.
    Upgrade,
    /// The node hands over all its leaderships.
    HandOver { who: Who },
    /// The node writes snapshots of all its groups and purges the logs before them.
    Snapshot { who: Who },
    /// The node is killed, its log loses `bytes` synced bytes at the end, and it restarts. Only if it
    /// can reach all other nodes, because only they know what was lost.
    LoseTail { who: Who, bytes: u32 },
    /// After `for_ms` the node is killed and restarts with its disk as it was at the start of the
    /// fault; under the same condition as `LoseTail`.
    OldImage { who: Who },
}

impl Plan {
    /// The zone of a machine, if it has one.
    pub(crate) fn zone(&self, machine: u32) -> Option<u32> {
        self.zones.get((machine as usize).checked_sub(1)?).copied()
    }

    /// Whether any shard is split.
    pub(crate) fn splits_shards(&self) -> bool {
        self.faults.iter().any(|plan| plan.fault == Fault::SplitShard)
    }
}

impl Fault {
    /// Whether it is no failure, but an operator's command while all nodes run.
    pub(crate) fn is_order(&self) -> bool {
        matches!(
            self,
            Self::MoveReplica { .. }
                | Self::SplitShard
                | Self::MergeShard
                | Self::HandOver { .. }
                | Self::Snapshot { .. }
        )
    }
}

/// Which unsynced writes of a file survive a power loss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LossMode {
    /// Nothing.
    All,
    /// The first writes, a random number per file.
    Prefix,
    /// Random sectors, each with probability one half: torn and reordered writes.
    Subset,
}

/// The files in which bits rot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiskPart {
    /// Segments of the log.
    Log,
    /// Snapshots.
    Snapshots,
    /// The identity.
    Identity,
}
