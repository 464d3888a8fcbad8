//! One copy of a replicated filter: its bits, what changed in them, and what it knows to have.
//!
//! Every node holds one. An insert sets bits here; when the next sweep begins, what the inserts have
//! changed goes into the delta log, and takes part in the sweep. Whoever asks gets what the log tells
//! that it lacks, merges it, and appends what was new to it to its own log, for those that will ask it.
//!
//! *Knowledge.* Beside the bits a copy keeps, for every node, how many changes of that node's own
//! inserts it has, all of the first so many:
//!
//! ```text
//! node 3 knows   of node 1: 40    of node 2: 17    of node 3: 25
//! ```
//!
//! Whoever merges a delta has all that its sender had, so it takes the larger number of each node.
//! Whoever asks says what it knows. A copy that knows as much as another needs nothing of it, whichever
//! way it came by it; and a copy has all that was acknowledged somewhere before a moment when its
//! number for that node has come up to the node's own of that moment: so `flush` sees that it is done.
//!
//! What comes is told on only if it was new, for what was not is told already by what set its bits; if
//! these may be inserts that wait for the next sweep, they no longer wait. A whole filter that came in part, or from a copy to which that happened, has bits that nothing in the
//! log tells and no knowledge covers. Until the knowledge has come up to whatever they may be, all that
//! comes is told on.
//!
//! *Marks.* When a sweep begins, a copy marks where its log ends and what it knows: whoever knows that
//! much has all that stands before the mark. So of a whole sweep everybody gets every change once, and
//! a partner that was away gets what came since the last mark that it knows of.
//!
//! ```text
//! log    │ a b c d │ e f g h i │ j k      asks, and knows what mark 2 does:  gets j k
//!        ▲         ▲           ▲          asks, and knows what mark 1 does:  gets e … k, but for
//!      mark 0    mark 1      mark 2                                          what it sent itself
//! ```

use std::collections::{BTreeMap, VecDeque};

use umbel_codec::FrameKey;
use umbel_filter::{
    AnyFilter, BlockProbe, Describe, Insert, InsertError, Insertion, ItemHash, Kind, Shape,
};

use super::delta_log::DeltaLog;
use super::knowledge::Knowledge;
use crate::ids::{FilterId, Generation, NodeId};
use crate::limits::{DELTA_LOG_ENTRIES_MAX, DELTA_MARKS_MAX};

mod absorb;
#[cfg(test)]
mod absorb_test;
mod compared;
#[cfg(test)]
mod compared_test;
mod exchange;
#[cfg(test)]
mod fixture;
mod listed;
#[cfg(test)]
mod refusal_test;
#[cfg(test)]
mod replica_test;
mod saved;

pub use compared::{ComparedError, CopyClaim};
pub use exchange::Reply;
pub use listed::{ChangeReader, ListedChanges, ReadChanges};
pub use saved::SavedKnowledge;

/// Bits of a probe's seed in an entry of the log; its block's number takes the rest.
const SEED_BITS: u32 = 32;

/// Bytes of an entry of the log.
const ENTRY_BYTES: usize = 8;

/// How a copy is created.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_engine::hypercube::ReplicaOptions;
/// use umbel_engine::{FilterId, Generation, NodeId};
/// use umbel_filter::HashFunction;
///
/// let options = ReplicaOptions {
///     node: NodeId(1),
///     filter: FilterId(12),
///     generation: Generation(1),
///     log: 99,
///     key: FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 },
///     log_bytes_max: 1 << 20,
///     payload_bytes_max: 1 << 20,
/// };
/// assert_eq!(options.filter.to_string(), "filter 12");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaOptions {
    /// Whose copy it is.
    pub node: NodeId,
    /// The filter.
    pub filter: FilterId,
    /// Its generation.
    pub generation: Generation,
    /// A random number that names this copy's delta log, drawn whenever the log begins anew.
    pub log: u64,
    /// How its items are hashed.
    pub key: FrameKey,
    /// Memory for the delta log and for what waits for the next sweep, 8 bytes a change each. Who
    /// is further behind gets the whole filter.
    pub log_bytes_max: usize,
    /// Largest payload of a frame.
    pub payload_bytes_max: usize,
}

/// A filter that cannot be replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReplicable {
    /// Its copies do not merge, or what changed in them cannot be listed.
    #[error("a {kind} filter cannot be replicated, expected a blocked or a single-shot one")]
    Kind {
        /// The kind.
        kind: Kind,
    },
    /// Make it smaller, or cut the items over several filters.
    #[error("{block_count} blocks of a replicated filter, expected at most 2^32")]
    BlockCount {
        /// Its number of blocks.
        block_count: u64,
    },
}

/// Where a log ended when a copy knew so much.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mark {
    sequence: u64,
    knows: Knowledge,
}

/// What is known of a node with which this one exchanges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Partner {
    /// What it knew when it asked last.
    knows: Knowledge,
    /// The log of it that was read last, and everything below this sequence number of it.
    received: Option<(u64, u64)>,
    /// The question to it that has no answer yet.
    asked: Option<u64>,
}

/// One copy of a replicated filter.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_engine::hypercube::{Replica, ReplicaOptions};
/// use umbel_engine::{FilterId, Generation, NodeId};
/// use umbel_filter::{AnyFilter, Blocked, HashFunction, HashRange, ItemHasher};
///
/// let copy = |node| {
///     let options = ReplicaOptions {
///         node: NodeId(node),
///         filter: FilterId(12),
///         generation: Generation(1),
///         log: node,
///         key: FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 },
///         log_bytes_max: 1 << 20,
///         payload_bytes_max: 1 << 20,
///     };
///     Replica::new(options, AnyFilter::Blocked(Blocked::new(HashRange::WHOLE, 100, 6).unwrap()))
/// };
/// let (mut one, mut two) = (copy(1)?, copy(2)?);
/// let alice = ItemHasher::Xxh3 { seed: 7 }.hash(b"alice");
/// one.insert(&[alice], &mut Vec::new())?;
/// one.begin_sweep();
///
/// let question = two.ask(NodeId(1));
/// let delta = one.answer(NodeId(2), &question)?;
/// assert_eq!(two.merge(NodeId(1), &delta)?.new_bit_count, 6);
/// assert_eq!(one.filter(), two.filter());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replica {
    options: ReplicaOptions,
    /// Blocked or single-shot.
    filter: AnyFilter,
    /// Changes of inserts here since the last sweep began.
    fresh: Vec<u64>,
    /// Number of those, also if they are more than are kept.
    fresh_count: u64,
    /// Something that came was not told on because bits are set that only those may have set.
    leans_on_fresh: bool,
    log: DeltaLog,
    /// By rising sequence number and rising knowledge; the first knows nothing or was forgotten.
    marks: VecDeque<Mark>,
    /// Of whose inserts this copy has how many changes.
    knows: Knowledge,
    /// Within which counts the bits lie that no knowledge covers; empty if there are none.
    may_have: Knowledge,
    /// A whole filter brought bits that no entry of the log tells, and whose sender's knowledge is not
    /// had yet. When it is, they may all be here already, and nobody was told.
    has_untold: bool,
    partners: BTreeMap<NodeId, Partner>,
    question_count: u64,
}

impl Replica {
    /// A copy that begins with these bits, as every other copy does: with an empty filter.
    ///
    /// # Errors
    /// If such a filter cannot be replicated.
    pub fn new(options: ReplicaOptions, filter: AnyFilter) -> Result<Self, NotReplicable> {
        match &filter {
            AnyFilter::Blocked(blocked) => {
                let block_count = blocked.block_shape().map().len();
                if block_count > 1 << (u64::BITS - SEED_BITS) {
                    return Err(NotReplicable::BlockCount { block_count });
                }
            }
            AnyFilter::SingleShot(_) => {}
            other => return Err(NotReplicable::Kind { kind: other.kind() }),
        }
        let nothing = Mark { sequence: 0, knows: Knowledge::new() };
        Ok(Self {
            options,
            filter,
            fresh: Vec::new(),
            fresh_count: 0,
            leans_on_fresh: false,
            log: DeltaLog::new(0, entry_count_max(&options)),
            marks: VecDeque::from([nothing]),
            knows: Knowledge::new(),
            may_have: Knowledge::new(),
            has_untold: false,
            partners: BTreeMap::new(),
            question_count: 0,
        })
    }

    /// The bits.
    #[must_use]
    pub const fn filter(&self) -> &AnyFilter {
        &self.filter
    }

    /// How it was created.
    #[must_use]
    pub const fn options(&self) -> &ReplicaOptions {
        &self.options
    }

    /// Of how many changes of a node's own inserts this copy has, all of the first so many. Of this
    /// node's, those that take part in sweeps.
    #[must_use]
    pub fn knows(&self, node: NodeId) -> u64 {
        self.knows.of(node)
    }

    /// Of whose inserts this copy has how many changes; of this node's, those that take part in
    /// sweeps.
    #[must_use]
    pub const fn knowledge(&self) -> &Knowledge {
        &self.knows
    }

    /// Number of changes of this node's own inserts: when another copy knows of so many, it has all
    /// that was inserted here until now.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.knows(self.options.node) + self.fresh_count
    }

    /// Number of changes that a partner lacked when it asked last, and that came since; more if it
    /// gets the whole filter.
    #[must_use]
    pub fn lag(&self, partner: NodeId) -> u64 {
        let Some(known) = self.partners.get(&partner) else { return self.log.end() };
        let logged = if known.knows.covers(&self.knows) {
            0
        } else {
            let log = known.received.map_or(0, |(log, _)| log);
            self.log.count_since(self.known_sequence(&known.knows), log)
        };
        logged + self.fresh_count
    }

    /// Whether somebody may lack something of this copy: its partners, as far as they have said, or
    /// all, what was inserted since the last sweep began.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let lacks = |partner: &Partner| !partner.knows.covers(&self.knows);
        self.fresh_count > 0 || self.partners.values().any(lacks)
    }

    /// Bytes of memory for the bits. Unlike a description it takes no time that rises with them.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match (&self.filter, self.filter.shape()) {
            (AnyFilter::SingleShot(filter), _) => filter.memory_bytes(),
            (_, Shape::Blocks(shape)) => shape.memory_bytes(),
            _ => unreachable!("not replicable"),
        }
    }

    /// Bytes of memory for the delta log and for what waits for the next sweep.
    #[must_use]
    pub fn log_bytes(&self) -> usize {
        (self.log.len() + self.fresh.len()) * ENTRY_BYTES
    }

    /// Inserts items, and appends whether each was new: returns the number of those. They must be
    /// durable already: others remember inserts under numbers that this node would give to other
    /// items after it had forgotten these. Every item given counts as a change, so that a restart
    /// that inserts the same items in the same order counts alike: leave out what is present.
    ///
    /// # Errors
    /// If an item is outside the filter's hash range. Nothing was changed.
    pub fn insert(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<u64, InsertError> {
        let first = outcomes.len();
        self.filter.insert_batch(hashes, outcomes)?;
        let is_new = outcomes.iter().skip(first).filter(|outcome| **outcome == Insertion::New);
        let new_count = is_new.count() as u64;
        match self.filter.shape() {
            Shape::SingleShot(shape) => {
                self.fresh.extend(hashes.iter().map(|hash| shape.position(hash.hi())));
            }
            Shape::Blocks(shape) => {
                self.fresh.extend(hashes.iter().map(|&hash| entry_of(BlockProbe::of(shape, hash))));
            }
            Shape::Scalable(_) => unreachable!("not replicable"),
        }
        self.fresh_count += hashes.len() as u64;
        if self.fresh.len() > entry_count_max(&self.options) {
            // The log could not hold them either.
            self.fresh = Vec::new();
        }
        Ok(new_count)
    }

    /// A sweep begins: what was inserted here before takes part in it.
    pub fn begin_sweep(&mut self) {
        self.mark();
        self.take_fresh();
    }

    fn take_fresh(&mut self) {
        self.leans_on_fresh = false;
        if self.fresh.len() as u64 == self.fresh_count {
            self.log.append(None, &std::mem::take(&mut self.fresh));
        } else {
            self.fresh = Vec::new();
            self.log.skip();
        }
        self.knows.add(self.options.node, std::mem::take(&mut self.fresh_count));
    }

    /// Remembers where the log ends and what is known now.
    fn mark(&mut self) {
        let sequence = self.log.end();
        // Of two marks in one place that which asks for less knowledge serves more.
        if self.marks.back().is_none_or(|mark| mark.sequence < sequence) {
            self.marks.push_back(Mark { sequence, knows: self.knows.clone() });
        }
        let start = self.log.start();
        while self.marks.len() > DELTA_MARKS_MAX
            || self.marks.front().is_some_and(|mark| mark.sequence < start)
        {
            self.marks.pop_front();
        }
    }

    /// Sequence number before which whoever knows so much has everything; 0 if no mark tells.
    fn known_sequence(&self, knows: &Knowledge) -> u64 {
        let known = self.marks.iter().rev().find(|mark| knows.covers(&mark.knows));
        known.map_or(0, |mark| mark.sequence)
    }

    /// These are the partners from now on; what was known of others is forgotten.
    pub fn set_partners(&mut self, partners: &[NodeId]) {
        self.partners.retain(|node, _| partners.contains(node));
        for &node in partners {
            self.partners.entry(node).or_default();
        }
        self.forget_known();
    }

    /// The nodes that it exchanges with, by rising number.
    pub fn partners(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.partners.keys().copied()
    }

    /// Forgets the changes that all partners have, as they said when they asked last.
    pub fn forget_known(&mut self) {
        let known = self.partners.values().map(|partner| {
            if partner.knows.covers(&self.knows) {
                self.log.end()
            } else {
                self.known_sequence(&partner.knows)
            }
        });
        let known = known.min().unwrap_or_else(|| self.log.end());
        self.log.forget_below(known);
        self.mark();
    }

    /// Empties the copy for the next generation. Nothing of the old one comes back: deltas name
    /// theirs. The log begins anew, under this number.
    ///
    /// # Errors
    /// If the filter is none that can be replicated. Nothing was changed.
    pub fn clear(
        &mut self,
        generation: Generation,
        log: u64,
        empty: AnyFilter,
    ) -> Result<(), NotReplicable> {
        let partners: Vec<NodeId> = self.partners.keys().copied().collect();
        *self = Self::new(ReplicaOptions { generation, log, ..self.options }, empty)?;
        self.set_partners(&partners);
        Ok(())
    }
}

fn entry_count_max(options: &ReplicaOptions) -> usize {
    (options.log_bytes_max / ENTRY_BYTES).min(DELTA_LOG_ENTRIES_MAX)
}

/// A probe as an entry of the log: sorted alike.
const fn entry_of(probe: BlockProbe) -> u64 {
    probe.block << SEED_BITS | probe.seed as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is the seed")]
const fn probe_of(entry: u64) -> BlockProbe {
    BlockProbe { block: entry >> SEED_BITS, seed: entry as u32 }
}
