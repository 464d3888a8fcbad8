//! A plan: everything that a run does, as data. A seed makes one; a failure leaves one behind.
//!
//! A plan survives changes of the order in which random numbers are drawn, which breaks bare seeds.

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

/// Version of the format; plans of another one are refused.
pub(crate) const PLAN_FORMAT: u32 = 1;

/// One run: world, work, faults.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// [`PLAN_FORMAT`].
    pub(crate) plan: u32,
    /// Seeds every stream of random numbers that is left: latencies, elections, keys, backoff.
    pub(crate) seed: u64,
    /// Which mix of faults it was drawn from.
    pub(crate) profile: String,
    /// Simulated milliseconds of the phase with faults; the phase without follows.
    pub(crate) run_ms: u64,
    /// Name of the planted bug that is switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) planted: Option<String>,
    /// Rare choices of the node that are made often in this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) provoked: Vec<String>,
    /// How large the world is.
    pub(crate) world: WorldShape,
    /// Filters that are created before the work begins.
    pub(crate) filters: Vec<FilterPlan>,
    /// What the clients do, by time.
    pub(crate) ops: Vec<OpPlan>,
    /// Jobs that the cluster is given, by time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) jobs: Vec<JobPlan>,
    /// Sets that sessions reconcile. With them there are no nodes, and nothing of what is above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sets: Option<SetsPlan>,
    /// These sessions, by time.
    #[serde(default, alias = "meetings", skip_serializing_if = "Vec::is_empty")]
    pub(crate) scenarios: Vec<Scenario>,
    /// Principals, what is granted to them, and what they ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access: Option<AccessPlan>,
    /// What happens to them, by time.
    pub(crate) faults: Vec<FaultPlan>,
    /// Where it came from, for people: seed's commit, issue, what was wrong.
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
    /// Nodes that found the cluster, 1 to 16; they are numbered from 1.
    pub(crate) nodes: u32,
    /// Shards, 1 to 16.
    pub(crate) shards: u32,
    /// Replicas a shard, 1 to 9.
    pub(crate) replicas: u32,
    /// Clients, 1 to 64, numbered from 0.
    pub(crate) clients: u32,
    /// Simulated seconds in which a node compares its copy of each replicated filter with a partner's;
    /// 0 for never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) scrub_s: u32,
    /// After all faults, copies on every second node and one replica of each shard lose every so many-th
    /// of their bits; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) rot_every: u32,
    /// Cores that each node tells of: after its first split the cluster splits its shards by itself until there are two for
    /// each core. 0 for splits by hand alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) cores: u32,
    /// Whether the founders run the release before this one, until they are upgraded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) earlier_release: bool,
}

impl WorldShape {
    /// One in which copies are not compared.
    pub(crate) const fn new(nodes: u32, shards: u32, replicas: u32, clients: u32) -> Self {
        let (scrub_s, rot_every, cores, earlier_release) = (0, 0, 0, false);
        Self { nodes, shards, replicas, clients, scrub_s, rot_every, cores, earlier_release }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
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
    /// Items that it is made for.
    pub(crate) capacity: u64,
    /// Rate of false positives, in millionths.
    pub(crate) rate_ppm: u32,
    /// Whether clients may hash (XXH3) or only the cluster (SipHash, keyed).
    pub(crate) public: bool,
    /// Whether every node has a copy of it, instead of shards that have slices.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) replicated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
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
    /// Whether what was inserted may be gone although nobody took it out.
    pub(crate) const fn forgets(self) -> bool {
        matches!(self, Self::Window | Self::ManualWindow | Self::Aging | Self::Stable)
    }

    /// Whether items can be removed from it.
    pub(crate) const fn removes(self) -> bool {
        matches!(self, Self::Counting | Self::Cuckoo | Self::Quotient)
    }

    /// Whether it refuses items when it is full.
    pub(crate) const fn can_be_full(self) -> bool {
        matches!(self, Self::Cuckoo | Self::Quotient)
    }
}

/// How windows forget: within a run, several times.
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

/// How far the wall clock of a node is off where replicated filters forget: twice that is less than a slice, beyond
/// which nodes do not hear each other.
pub(crate) const WALL_CLOCK_NEAR_MS: i64 = 1_400;

/// On how many nodes an insert into a replicated filter is durable when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ack {
    /// On the one that was asked.
    Local,
    /// On that one and one more.
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
    /// Which client makes it. A client's calls may overlap.
    pub(crate) client: u32,
    /// The node that is asked first; later attempts go where the client finds an answer.
    pub(crate) via: u32,
    /// What it does.
    pub(crate) op: Op,
}

/// What a call does. Items are numbers; item `n` of a filter is the text `item n`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Op {
    /// Inserts items. With `copies` above 1 the same request, under one request id, is sent so often,
    /// at once and to nodes one after the other: all must hear the same answer.
    Insert { filter: String, items: Vec<u32>, copies: u32 },
    /// Asks for items; `any` reads from any replica, else linearizable.
    Contains { filter: String, items: Vec<u32>, any: bool },
    /// Takes items out of a counting filter.
    Remove { filter: String, items: Vec<u32> },
    /// Copies a filter out, all shards as they were at one moment.
    Snapshot { filter: String },
    /// Gives a filter another name, and its own again.
    Rename { filter: String },
    /// Empties a filter.
    Clear { filter: String },
    /// Ends the slice at hand of a manual window.
    Rotate { filter: String },
    /// Creates a filter like the plan's filter of that name, if it is not there.
    Create { filter: String },
    /// Drops a filter.
    Drop { filter: String },
    /// ORs the second filter into the first; both must be of one shape.
    Merge { filter: String, source: String },
    /// ORs what all of the others have into the first filter; all must be of one shape.
    Intersect { filter: String, sources: Vec<String> },
    /// Inserts items into a replicated filter, on the node that is asked, and so many others.
    InsertCopy { filter: String, items: Vec<u32>, ack: Ack },
    /// Asks a replicated filter for items: the copy of the node that is asked, or a `majority`.
    ContainsCopy { filter: String, items: Vec<u32>, majority: bool },
    /// Has the copies of a replicated filter exchange what they have.
    Flush { filter: String },
}

/// A fault.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultPlan {
    /// When it begins, in simulated milliseconds of the fault phase.
    pub(crate) at_ms: u64,
    /// How long it lasts, in simulated milliseconds; ignored by those that are over at once.
    pub(crate) for_ms: u64,
    /// What happens.
    pub(crate) fault: Fault,
}

/// Which node a fault meets. Resolved when the fault fires, which the trace shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Who {
    /// `node:3`: the founder or joiner with this number.
    Node(u32),
    /// `leader:0`: whoever leads shard 0 then.
    Leader(u32),
    /// `follower:0`: the lowest node that has a replica of shard 0 and does not lead it.
    Follower(u32),
    /// `meta`: whoever leads the meta group then.
    MetaLeader,
    /// `all`: every node. Only where the fault allows it.
    All,
}

/// What happens. Names are the fault classes of counters and reports.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Fault {
    /// No message between the node and any other host, in both directions.
    Isolate { who: Who },
    /// No message between the named nodes and the other nodes; clients reach both.
    Split { left: Vec<u32> },
    /// Messages from the node get lost, those to it arrive (`outbound`), or the other way round.
    OneWay { who: Who, outbound: bool },
    /// Two halves of the nodes that only `middle` can talk to.
    Bridge { middle: u32 },
    /// Every node reaches only the next and the previous one.
    Ring,
    /// Messages from and to the node take up to so long.
    Latency { who: Who, ms: u32 },
    /// Each message from or to the node is lost with this chance, in thousandths.
    Loss { who: Who, per_mille: u32 },
    /// All connections of the node are reset, once.
    Reset { who: Who },
    /// Messages from and to the node are held, then delivered at once.
    Hold { who: Who },
    /// The node is killed; it restarts after `for_ms`. What it wrote survives, synced or not.
    Crash { who: Who },
    /// The node loses power, or all nodes do; restart after `for_ms`. What was not synced is lost as
    /// `mode` says.
    PowerLoss { who: Who, mode: LossMode },
    /// Network and disk of the node stand still while its timers run, then all comes at once.
    Freeze { who: Who },
    /// The node is told to stop, and starts again after `for_ms`.
    Stop { who: Who },
    /// All nodes are told to stop and start again, one after the other, `for_ms` apart.
    RollingRestart,
    /// The node is killed and restarted so often, within `for_ms`.
    CrashStorm { who: Who, count: u32 },
    /// Calls of the disk take so many times as long.
    SlowDisk { who: Who, factor: u32 },
    /// Calls of the disk do not return before the fault ends.
    StallDisk { who: Who },
    /// The next sync fails, and what it should have synced is lost at the next power loss.
    SyncFails { who: Who },
    /// Reads fail while it lasts.
    ReadFails { who: Who },
    /// Writes fail while it lasts.
    WriteFails { who: Who },
    /// The disk is full but for so many bytes while it lasts.
    DiskFull { who: Who, free_bytes: u64 },
    /// While the node is down (it is killed first), so many bits of what is durable flip for good.
    BitRot { who: Who, part: DiskPart, bits: u32 },
    /// One write lands elsewhere in its file while it lasts; its target stays as it was.
    Misdirect { who: Who },
    /// The nodes are killed, their disks exchanged; after `for_ms` they start, must refuse, and get
    /// their disks back.
    SwapDisks { one: u32, other: u32 },
    /// The node is killed and starts, after `for_ms`, with an empty disk.
    WipeDisk { who: Who },
    /// The node's clock leaps forward: all that it waits for in that time is due at once.
    ClockJump { who: Who, ms: u32 },
    /// The node's clock runs too fast by so many thousandths while it lasts.
    ClockDrift { who: Who, per_mille: u32 },
    /// The node's wall clock is off by so many milliseconds while it lasts.
    WallClock { who: Who, ms: i64 },
    /// A new node joins through this one.
    Join { via: Who },
    /// The node is drained, removed and, after `for_ms`, comes back with an empty disk as a new one.
    Replace { who: Who },
    /// The replica of the shard on the node moves to a node that has none, if there is one.
    MoveReplica { shard: u32, who: Who },
    /// The next shard in turn is cut in two.
    SplitShard,
    /// All nodes are told to stop, one after the other, `for_ms` apart, and start again with this release. From the
    /// beginning on an operator tries to raise the cluster's version, until it is.
    Upgrade,
    /// The node hands all its leaderships over.
    HandOver { who: Who },
    /// The node writes snapshots of all its groups and lets go of the log behind them.
    Snapshot { who: Who },
    /// The node is killed, its log loses so many synced bytes at its end, and it starts again; only if
    /// it can talk to all others, for nobody else can know better.
    LoseTail { who: Who, bytes: u32 },
    /// After `for_ms` the node is killed and starts with its disk as it was when the fault began; only
    /// as above.
    OldImage { who: Who },
}

impl Plan {
    /// Whether any shard is split.
    pub(crate) fn splits_shards(&self) -> bool {
        self.faults.iter().any(|plan| plan.fault == Fault::SplitShard)
    }
}

impl Fault {
    /// Whether nothing fails: an operator orders what nodes do while they all run.
    pub(crate) fn is_order(&self) -> bool {
        matches!(
            self,
            Self::MoveReplica { .. }
                | Self::SplitShard
                | Self::HandOver { .. }
                | Self::Snapshot { .. }
        )
    }
}

/// What a power loss leaves of what was not synced, file by file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LossMode {
    /// Nothing.
    All,
    /// The first writes, a number drawn for each file.
    Prefix,
    /// Some sectors, each kept with a chance of a half: torn and reordered writes.
    Subset,
}

/// Which files rot.
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
