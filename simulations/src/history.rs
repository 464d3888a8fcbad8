//! What the clients saw: every call with its times and its end.

use umbel_engine::placement::ShardRanges;

use crate::plan::{Ack, Fault, FaultPlan, FilterKind, FilterPlan, Op, Plan};

/// A call as its client saw it. Times are simulated microseconds since the start.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Place in the history, which is also the order of starts.
    pub(crate) id: u32,
    /// Who called.
    pub(crate) client: u32,
    /// Which filter.
    pub(crate) filter: String,
    /// What was asked.
    pub(crate) verb: Verb,
    /// The machine whose node was asked, and no other; `None` of calls that go where the client finds an
    /// answer.
    pub(crate) machine: Option<u32>,
    /// Of which items; the answers stand in this order.
    pub(crate) items: Vec<u32>,
    /// What gives to the filter, of merges and intersections.
    pub(crate) sources: Vec<String>,
    /// What was copied out, of snapshots: frames, each with its shard.
    pub(crate) frames: Vec<(u32, Vec<u8>)>,
    /// And how the shards were cut.
    pub(crate) ranges: Option<ShardRanges>,
    /// Calls with an equal number are copies of one request, under one request id.
    pub(crate) request: Option<u32>,
    /// When the call began.
    pub(crate) start_us: u64,
    /// When its answer came; `None` as long as none came.
    pub(crate) end_us: Option<u64>,
    /// The latest moment at which an answer was owed.
    pub(crate) deadline_us: u64,
    /// How it ended.
    pub(crate) outcome: Outcome,
}

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Verb {
    /// Insert; an answer bit of one is `New`.
    Insert,
    /// Linearizable query; one is `Maybe`.
    Contains,
    /// Query of any replica; one is `Maybe`.
    ContainsAny,
    /// Removal from a counting filter; one is `Removed`.
    Remove,
    /// Create the filter.
    Create,
    /// Drop it.
    Drop,
    /// Empty it.
    Clear,
    /// End the slice at hand of its window.
    Rotate,
    /// Copy it out, as it was at one moment.
    Snapshot,
    /// Give it another name for a while.
    Rename,
    /// OR another filter into it.
    Merge,
    /// OR what others have in common into it.
    Intersect,
    /// Insert into a replicated filter; an answer bit of one is `New` wherever it was asked.
    InsertCopy(Ack),
    /// Ask one copy of a replicated filter; one is `Maybe`.
    ContainsCopy,
    /// Ask a majority of the copies; one is `Maybe`.
    ContainsMajority,
    /// Have copies exchange; the only bit is one if no node was missing.
    Flush,
}

impl Verb {
    /// How many bits an answer has, for so many items.
    pub(crate) const fn answer_count(self, item_count: usize) -> usize {
        match self {
            Self::Insert
            | Self::Contains
            | Self::ContainsAny
            | Self::Remove
            | Self::InsertCopy(_)
            | Self::ContainsCopy
            | Self::ContainsMajority => item_count,
            Self::Flush => 1,
            Self::Create
            | Self::Drop
            | Self::Clear
            | Self::Rotate
            | Self::Snapshot
            | Self::Rename
            | Self::Merge
            | Self::Intersect => 0,
        }
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// With answers: one an item, none for verbs without items.
    Done(Vec<bool>),
    /// With an error that says that nothing was applied.
    NotApplied(String),
    /// With an error that leaves open whether it was applied, or not at all.
    Unknown(String),
    /// With the error that another request came before under its id: whether it was applied before is open.
    Reused(String),
}

/// What the checks need to know of a filter.
#[derive(Clone, Debug)]
pub(crate) struct FilterFacts {
    /// Its name.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: FilterKind,
    /// Whether it was ever dropped, created anew, cleared or merged into in this run, or tried to.
    pub(crate) is_rewritten: bool,
    /// Whether all wall clocks of the run are right.
    pub(crate) is_punctual: bool,
}

/// What the checks need to know of a plan's filters, the replicated ones aside: they promise other things.
pub(crate) fn facts(plan: &Plan) -> Vec<FilterFacts> {
    let is_rewritten = |name: &str| {
        plan.ops.iter().any(|op| match &op.op {
            Op::Clear { filter } | Op::Create { filter } | Op::Drop { filter } => filter == name,
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
