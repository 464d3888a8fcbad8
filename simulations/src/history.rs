//! The history that the clients observed: every call with its times and its outcome.

use umbel_engine::placement::ShardRanges;

use crate::plan::{Ack, Fault, FaultPlan, FilterKind, FilterPlan, Op, Plan};

/// A call as its client saw it. Times are simulated microseconds since the start.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Index in the history, which is in the order of starts.
    pub(crate) id: u32,
    /// The client that made it.
    pub(crate) client: u32,
    /// The filter.
    pub(crate) filter: String,
    /// What it asked for.
    pub(crate) verb: Verb,
    /// The machine to whose node alone the call was sent; `None` if the client could choose and change
    /// the node.
    pub(crate) machine: Option<u32>,
    /// Its items; the answers are in this order.
    pub(crate) items: Vec<u32>,
    /// The source filters of a merge or intersection.
    pub(crate) sources: Vec<String>,
    /// The frames that a snapshot returned, each with its shard.
    pub(crate) frames: Vec<(u32, Vec<u8>)>,
    /// The shards' hash ranges at the time of that snapshot.
    pub(crate) ranges: Option<ShardRanges>,
    /// Calls with an equal number are copies of one request with the same request id.
    pub(crate) request: Option<u32>,
    /// When the call began.
    pub(crate) start_us: u64,
    /// When its answer arrived; `None` while there is none.
    pub(crate) end_us: Option<u64>,
    /// The deadline by which the call had to return.
    pub(crate) deadline_us: u64,
    /// How it ended.
    pub(crate) outcome: Outcome,
}

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Verb {
    /// Insert; a set answer bit means `New`.
    Insert,
    /// Linearizable query; a set answer bit means `Maybe`.
    Contains,
    /// Query of any replica; a set answer bit means `Maybe`.
    ContainsAny,
    /// Remove from a filter; a set answer bit means `Removed`.
    Remove,
    /// Create the filter.
    Create,
    /// Drop the filter.
    Drop,
    /// Empty the filter.
    Clear,
    /// End the current slice of the filter's window.
    Rotate,
    /// Take a snapshot of the filter as of one moment.
    Snapshot,
    /// Rename the filter for a while.
    Rename,
    /// OR another filter into it.
    Merge,
    /// OR the intersection of other filters into it.
    Intersect,
    /// Insert into a replicated filter; a set answer bit means `New`, which several nodes may answer.
    InsertCopy(Ack),
    /// Query one copy of a replicated filter; a set answer bit means `Maybe`.
    ContainsCopy,
    /// Query a majority of the copies; a set answer bit means `Maybe`.
    ContainsMajority,
    /// Flush a replicated filter: have its copies exchange. The only answer bit is set if no node was
    /// missing.
    Flush,
    /// Insert items that are absent; a set answer bit means `New`.
    AddNew,
    /// Set an expiry, whose turn is the only item, if it is earlier; the only answer bit is set if it was.
    Expire,
    /// Drop the filter; the only answer bit is set if it was this call that did.
    Take,
    /// Add a copy of each item, whether it is present or not.
    AddOne,
    /// Delete a copy of each item; a set answer bit means that there was one.
    DeleteOne,
    /// Set an expiry that comes; the only answer bit is set if there was a filter.
    ExpireIn,
    /// Add items through one node, and create the filter if it is missing; a set answer bit means `New`.
    AddVia,
    /// Linearizable query through one node; a set answer bit means `Maybe`.
    AskVia,
}

impl Verb {
    /// How many bits the answer for so many items has.
    pub(crate) const fn answer_count(self, item_count: usize) -> usize {
        match self {
            Self::Insert
            | Self::Contains
            | Self::ContainsAny
            | Self::Remove
            | Self::InsertCopy(_)
            | Self::ContainsCopy
            | Self::ContainsMajority
            | Self::AddNew
            | Self::DeleteOne
            | Self::AddVia
            | Self::AskVia => item_count,
            Self::Flush | Self::Expire | Self::Take | Self::ExpireIn => 1,
            Self::Create
            | Self::Drop
            | Self::Clear
            | Self::Rotate
            | Self::Snapshot
            | Self::Rename
            | Self::Merge
            | Self::Intersect
            | Self::AddOne => 0,
        }
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// With success and its answer bits, as many as `Verb::answer_count`.
    Done(Vec<bool>),
    /// With an error which states that nothing was applied.
    NotApplied(String),
    /// With an error that leaves open whether it was applied, or without any response.
    Unknown(String),
    /// With the error that another request used its request id before: whether this one was applied
    /// earlier is open.
    Reused(String),
}

/// What the checks need to know of a filter.
#[derive(Clone, Debug)]
pub(crate) struct FilterFacts {
    /// Its name.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: FilterKind,
    /// Whether the plan ever clears, creates, drops, merges into or intersects into it, or lets it expire.
    pub(crate) is_rewritten: bool,
    /// Whether all wall clocks of the run are right.
    pub(crate) is_punctual: bool,
}

/// What the checks need to know of a plan's filters, except the replicated ones, which have other
/// guarantees.
pub(crate) fn facts(plan: &Plan) -> Vec<FilterFacts> {
    let is_rewritten = |name: &str| {
        plan.ops.iter().any(|op| match &op.op {
            Op::Clear { filter }
            | Op::Create { filter }
            | Op::Drop { filter }
            | Op::Take { filter }
            | Op::ExpireIn { filter, .. } => filter == name,
            Op::Merge { filter, .. } | Op::Intersect { filter, .. } => filter == name,
            _ => false,
        })
    };
    let is_off = |fault: &FaultPlan| matches!(fault.fault, Fault::WallClock { .. });
    let is_punctual = plan.access.is_none() && !plan.faults.iter().any(is_off);
    let fact = |filter: &FilterPlan| FilterFacts {
        name: filter.name.clone(),
        kind: filter.kind,
        is_rewritten: is_rewritten(&filter.name),
        is_punctual,
    };
    plan.filters.iter().filter(|filter| !filter.replicated).map(fact).collect()
}
