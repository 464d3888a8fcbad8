//! One replica of a replicated filter: its bits, what changed in them, and which inserts they are of.
//!
//! Every node holds one. An insert sets bits at once and is *pending* until the next sweep begins: then the changes
//! of the pending inserts are appended to the delta log and take part in the sweep. A partner that asks gets the
//! changes in the log that it lacks. It merges them, and appends those that were new to its own log, for the
//! partners that will ask it.
//!
//! *Version.* Beside the bits a replica keeps a [`VersionVector`]: for every node, how many changes of that node's
//! own inserts it has, all of the first so many:
//!
//! ```text
//! version of node 3's replica   node 1: 40    node 2: 17    node 3: 25
//! ```
//!
//! A replica that has merged a delta has all that its sender had, so it merges the sender's version. A question
//! carries the version of the replica that asks. A replica whose version dominates another's needs nothing of it,
//! whichever way the changes came; and a replica has all inserts that a node had acknowledged at a moment when its
//! count for that node reaches the node's own count of that moment. This is how `flush` knows that it is done.
//!
//! *What is logged.* A change that arrives is appended to the log only if it set a bit: otherwise changes that set
//! the same bits are in the log already, or pending, and then those are logged before the next answer. A whole filter
//! that arrived in part sets bits of which no change is in the log and which the version does not name
//! ([`Coverage::partial`]). Until the version names them, every change that arrives is logged.
//!
//! *Marks.* When a sweep begins, a replica notes the end of its log and its version: a partner whose version
//! dominates that one has every change before the mark. So in a whole sweep each partner gets every change once, and
//! a partner that was away gets what came after the last mark that its version dominates.
//!
//! ```text
//! log    │ a b c d │ e f g h i │ j k      partner's version dominates mark 2:  gets j k
//!        ▲         ▲           ▲          partner's version dominates mark 1:  gets e … k, but for
//!      mark 0    mark 1      mark 2                                            what it sent itself
//! ```

use std::collections::{BTreeMap, VecDeque};

use umbel_codec::FrameKey;
use umbel_filter::{
    AnyFilter, BlockProbe, Describe, Insert, InsertError, Insertion, ItemHash, Kind, Shape,
    SliceRing,
};

use super::coverage::Coverage;
use super::delta_log::DeltaLog;
use super::version_vector::VersionVector;
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
mod sliced;
#[cfg(test)]
mod sliced_test;

pub use compared::ComparedError;
pub use exchange::Reply;
pub use listed::{ChangeReader, ListedChanges, ReadChanges};

/// Bits of a probe's seed in an entry of the log; its block's number takes the rest.
const SEED_BITS: u32 = 32;

/// Bytes of an entry of the log.
const ENTRY_BYTES: usize = 8;

/// How a replica is created.
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
    /// Whose replica it is.
    pub node: NodeId,
    /// The filter.
    pub filter: FilterId,
    /// Its generation.
    pub generation: Generation,
    /// A random number that names this replica's delta log, drawn whenever the log begins anew.
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
    /// Its replicas do not merge, or what changed in them cannot be listed.
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

/// Where a log ended when its replica had a version.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mark {
    sequence: u64,
    version: VersionVector,
}

/// What is known of a node with which this one exchanges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Partner {
    /// Its version when it asked last.
    version: VersionVector,
    /// The log of it that was read last, and everything below this sequence number of it.
    received: Option<(u64, u64)>,
    /// The question to it that has no answer yet.
    asked: Option<u64>,
}

/// One replica of a replicated filter.
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
    /// Of which slices of time the blocks are, if they are of any.
    ring: Option<SliceRing>,
    /// Changes of inserts here since the last sweep began; none if they are more than are kept.
    pending: Vec<u64>,
    /// Number of those changes, also if they are not kept.
    pending_count: u64,
    /// A change that arrived was not logged, and the bits that it would have set may be those of pending inserts.
    depends_on_pending: bool,
    log: DeltaLog,
    /// By rising sequence number and rising version; the first has an empty version or was forgotten.
    marks: VecDeque<Mark>,
    /// Without pending inserts.
    coverage: Coverage,
    /// A whole filter brought bits of which no change is logged, and this replica's version does not dominate the
    /// sender's yet. When it does, all of these bits may be here already, and no partner has been sent them.
    has_unlogged_bits: bool,
    partners: BTreeMap<NodeId, Partner>,
    question_count: u64,
}

impl Replica {
    /// A replica that begins with these bits, as every other one does: with an empty filter.
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
        let nothing = Mark { sequence: 0, version: VersionVector::new() };
        Ok(Self {
            options,
            filter,
            ring: None,
            pending: Vec::new(),
            pending_count: 0,
            depends_on_pending: false,
            log: DeltaLog::new(0, entry_count_max(&options)),
            marks: VecDeque::from([nothing]),
            coverage: Coverage::default(),
            has_unlogged_bits: false,
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

    /// How many changes of a node's own inserts this replica has, all of the first so many. Of this
    /// node's, those that take part in sweeps.
    #[must_use]
    pub fn version_of(&self, node: NodeId) -> u64 {
        self.coverage.complete.of(node)
    }

    /// How many changes of each node's inserts this replica has; of this node's, those that take part in
    /// sweeps.
    #[must_use]
    pub const fn version(&self) -> &VersionVector {
        &self.coverage.complete
    }

    /// Number of changes of this node's own inserts: another replica whose version has this count has all
    /// that was inserted here until now.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.version_of(self.options.node) + self.pending_count
    }

    /// Number of changes that a partner lacked when it asked last, and that came since; more if it
    /// gets the whole filter.
    #[must_use]
    pub fn lag(&self, partner: NodeId) -> u64 {
        let Some(known) = self.partners.get(&partner) else { return self.log.end() };
        let logged = if known.version.dominates(self.version()) {
            0
        } else {
            let log = known.received.map_or(0, |(log, _)| log);
            self.log.count_since(self.sequence_of(&known.version), log)
        };
        logged + self.pending_count
    }

    /// Whether a partner may lack something of this replica: by the version that it asked with last, or
    /// because of pending inserts.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let lacks = |partner: &Partner| !partner.version.dominates(self.version());
        self.pending_count > 0 || self.partners.values().any(lacks)
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
        (self.log.len() + self.pending.len()) * ENTRY_BYTES
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
                self.pending.extend(hashes.iter().map(|hash| shape.position(hash.hi())));
            }
            Shape::Blocks(shape) => {
                self.pending
                    .extend(hashes.iter().map(|&hash| entry_of(BlockProbe::of(shape, hash))));
            }
            Shape::Scalable(_) | Shape::RedisBloom(_) => unreachable!("not replicable"),
        }
        self.count_pending(hashes.len());
        Ok(new_count)
    }

    /// So many changes more wait, whose entries were appended.
    fn count_pending(&mut self, count: usize) {
        self.pending_count += count as u64;
        if self.pending.len() > entry_count_max(&self.options) {
            // The log could not hold them either.
            self.pending = Vec::new();
        }
    }

    /// A sweep begins: what was inserted here before takes part in it.
    pub fn begin_sweep(&mut self) {
        self.mark();
        self.take_pending();
    }

    fn take_pending(&mut self) {
        self.depends_on_pending = false;
        if self.pending.len() as u64 == self.pending_count {
            self.log.append(None, &std::mem::take(&mut self.pending));
        } else {
            self.pending = Vec::new();
            self.log.skip();
        }
        self.coverage.complete.add(self.options.node, std::mem::take(&mut self.pending_count));
    }

    /// Notes the end of the log and the version.
    fn mark(&mut self) {
        let sequence = self.log.end();
        // Of two marks in one place the one with the lower version serves more partners.
        if self.marks.back().is_none_or(|mark| mark.sequence < sequence) {
            self.marks.push_back(Mark { sequence, version: self.version().clone() });
        }
        let start = self.log.start();
        while self.marks.len() > DELTA_MARKS_MAX
            || self.marks.front().is_some_and(|mark| mark.sequence < start)
        {
            self.marks.pop_front();
        }
    }

    /// Sequence number before which a replica of a version has every change; 0 if no mark tells.
    fn sequence_of(&self, version: &VersionVector) -> u64 {
        let mark = self.marks.iter().rev().find(|mark| version.dominates(&mark.version));
        mark.map_or(0, |mark| mark.sequence)
    }

    /// These are the partners from now on; the versions of others are forgotten.
    pub fn set_partners(&mut self, partners: &[NodeId]) {
        self.partners.retain(|node, _| partners.contains(node));
        for &node in partners {
            self.partners.entry(node).or_default();
        }
        self.trim_log();
    }

    /// The nodes that it exchanges with, by rising number.
    pub fn partners(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.partners.keys().copied()
    }

    /// Forgets the logged changes that all partners have, by the versions that they asked with last.
    pub fn trim_log(&mut self) {
        let known = self.partners.values().map(|partner| {
            if partner.version.dominates(self.version()) {
                self.log.end()
            } else {
                self.sequence_of(&partner.version)
            }
        });
        let known = known.min().unwrap_or_else(|| self.log.end());
        self.log.forget_below(known);
        self.mark();
    }

    /// Empties the replica for the next generation. Nothing of the old one comes back: deltas name
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
        let ring = self.ring;
        *self = Self::new(ReplicaOptions { generation, log, ..self.options }, empty)?;
        self.ring = ring;
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
