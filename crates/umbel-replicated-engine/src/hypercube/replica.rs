//! One node's replica of a replicated filter: its bits, its log of changes, and the inserts that its bits
//! stand for.
//!
//! Every node holds one. An insert sets bits at once and is *pending* until the next sweep begins: then the
//! changes of pending inserts are appended to the delta log and take part in the sweep. When a partner
//! sends a question, the replica answers with the logged changes that the partner lacks. The partner merges
//! them, and appends those that were new to its own log, for its other partners.
//!
//! *Version.* A replica also has a [`VersionVector`]: for every node, how many changes of that node's own
//! inserts it has, counted from the first without gaps:
//!
//! ```text
//! version of node 3's replica   node 1: 40    node 2: 17    node 3: 25
//! ```
//!
//! A replica that has merged a delta has everything that the sender had, so it merges the sender's version.
//! A question carries the version of the replica that asks. A replica whose version dominates another's
//! needs nothing from it, however the changes arrived. Once a replica's count for a node reaches that
//! node's own count at some moment, it has all inserts that the node had acknowledged by then; this is how
//! `flush` knows that it is done.
//!
//! *What is logged.* A received change is appended to the log only if it set a bit. Otherwise changes that
//! set the same bits are already in the log, or pending; pending ones are then logged before the next
//! answer. A whole filter that was received only in part sets bits that no logged change and no version
//! covers ([`Coverage::partial`]). Until the version covers them, every received change is logged.
//!
//! *Marks.* When a sweep begins, a replica marks the end of its log, with its version: a partner whose
//! version dominates the mark's version has every change before the mark. So while sweeps complete, each
//! partner gets every change once; a partner that missed sweeps gets the changes after the last mark whose
//! version its own dominates.
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
use crate::limits::{DELTA_LOG_ENTRIES_MAX, DELTA_MARKS_MAX};
use umbel_engine::{FilterId, Generation, NodeId};

mod absorb;
#[cfg(test)]
mod absorb_test;
mod compared;
#[cfg(test)]
mod compared_test;
#[cfg(test)]
mod drawn_test;
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
pub use exchange::DeltaReply;
pub use listed::{ChangeReader, ListedChanges, ReadChanges};

/// Bits of a probe's seed in a log entry; the block's number takes the rest.
const SEED_BITS: u32 = 32;

/// Bytes of a log entry.
const ENTRY_BYTES: usize = 8;

/// The parameters of a replica.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_replicated_engine::hypercube::ReplicaOptions;
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
    /// The node that has the replica.
    pub node: NodeId,
    /// The filter.
    pub filter: FilterId,
    /// Its generation.
    pub generation: Generation,
    /// A random number that identifies this replica's delta log, drawn whenever the log starts over.
    pub log: u64,
    /// The function and key id that hash the filter's items.
    pub key: FrameKey,
    /// Bytes of memory for the delta log, and again for changes that wait for the next sweep, at 8 bytes
    /// per change. A partner that is further behind than the log reaches gets the whole filter.
    pub log_bytes_max: usize,
    /// Largest payload of a frame, in bytes.
    pub payload_bytes_max: usize,
}

/// Why a filter cannot be replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReplicable {
    /// Replicas of this kind do not merge, or their changes cannot be listed.
    #[error("a {kind} filter cannot be replicated, expected a blocked or a single-shot one")]
    Kind {
        /// The kind.
        kind: Kind,
    },
    /// The filter has too many blocks. Make it smaller, or split the items over several filters.
    #[error("{block_count} blocks of a replicated filter, expected at most 2^32")]
    BlockCount {
        /// The filter's number of blocks.
        block_count: u64,
    },
}

/// A position in the log, with the replica's version at that moment.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mark {
    sequence: u64,
    version: VersionVector,
}

/// What this replica knows about a node with which it exchanges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Partner {
    /// The version in its last question.
    version: VersionVector,
    /// The partner's log that was read last, and the sequence number below which all of it has been
    /// received.
    received: Option<(u64, u64)>,
    /// The number of the question to it that has not been answered yet.
    asked: Option<u64>,
}

/// One replica of a replicated filter.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_replicated_engine::hypercube::{ReadChanges, Replica, ReplicaOptions};
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
/// let reply = one.reply(NodeId(2), &question)?;
/// let mut changes = ReadChanges::default();
/// // None would stand for the whole filter; one change is listed.
/// for frame in reply.changes.expect("a list is shorter").into_frames() {
///     two.reader().read(NodeId(1), &frame, &mut changes)?;
/// }
/// assert_eq!(two.merge_changes(NodeId(1), &reply.delta, changes)?, 6);
/// assert_eq!(one.filter(), two.filter());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replica {
    options: ReplicaOptions,
    /// Blocked or single-shot.
    filter: AnyFilter,
    /// For a windowed filter: which time slices the blocks belong to.
    ring: Option<SliceRing>,
    /// Changes of local inserts since the last sweep began; empty if there were too many to keep.
    pending: Vec<u64>,
    /// The number of those changes, even if they are not kept.
    pending_count: u64,
    /// Whether a received change was not logged although the bits that it would have set may come from
    /// pending inserts.
    depends_on_pending: bool,
    log: DeltaLog,
    /// By ascending sequence number and version. The first has an empty version, or was removed.
    marks: VecDeque<Mark>,
    /// Does not include pending inserts.
    coverage: Coverage,
    /// Whether a whole filter brought bits that no logged change covers while this replica's version does
    /// not dominate the sender's. Even when it does, all of these bits may be present already without
    /// having been sent to any partner.
    has_unlogged_bits: bool,
    partners: BTreeMap<NodeId, Partner>,
    question_count: u64,
}

impl Replica {
    /// A replica with these initial bits, which must be those of an empty filter, as on every other node.
    ///
    /// # Errors
    /// If the filter cannot be replicated.
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

    /// The parameters that it was created with.
    #[must_use]
    pub const fn options(&self) -> &ReplicaOptions {
        &self.options
    }

    /// How many changes of a node's own inserts this replica has, counted from the first without gaps. For
    /// this node, pending inserts are not included.
    #[must_use]
    pub fn version_of(&self, node: NodeId) -> u64 {
        self.coverage.complete.of(node)
    }

    /// How many changes of each node's inserts this replica has. For this node, pending inserts are not
    /// included.
    #[must_use]
    pub const fn version(&self) -> &VersionVector {
        &self.coverage.complete
    }

    /// Number of changes of this node's own inserts, pending ones included: a replica whose version has
    /// this count has everything that was inserted here until now.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.version_of(self.options.node) + self.pending_count
    }

    /// Number of changes that a partner lacked at its last question, plus those added since. More than that
    /// if it will get the whole filter.
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

    /// Whether a partner may lack something that this replica has, judging by the version in its last
    /// question, or because of pending inserts.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let lacks = |partner: &Partner| !partner.version.dominates(self.version());
        self.pending_count > 0 || self.partners.values().any(lacks)
    }

    /// Bytes of memory for the bits. Unlike a description, takes constant time.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match (&self.filter, self.filter.shape()) {
            (AnyFilter::SingleShot(filter), _) => filter.memory_bytes(),
            (_, Shape::Blocks(shape)) => shape.memory_bytes(),
            _ => unreachable!("not replicable"),
        }
    }

    /// Bytes of memory for the delta log and for changes that wait for the next sweep.
    #[must_use]
    pub fn log_bytes(&self) -> usize {
        (self.log.len() + self.pending.len()) * ENTRY_BYTES
    }

    /// Inserts items, appends to `outcomes` whether each was new, and returns the number of new items. The
    /// items must already be durable: other nodes remember them by their change counts, and a node that
    /// forgot them would give the same counts to other items. Every given item counts as a change, so that
    /// inserting the same items in the same order after a restart gives the same counts: leave out items
    /// that are present.
    ///
    /// # Errors
    /// If an item is outside the filter's hash range. Nothing was changed then.
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

    /// Counts changes as pending, after their entries were appended.
    fn count_pending(&mut self, count: usize) {
        self.pending_count += count as u64;
        if self.pending.len() > entry_count_max(&self.options) {
            // The log could not hold them, either.
            self.pending = Vec::new();
        }
    }

    /// Begins a sweep: everything inserted here so far takes part in it.
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

    /// Adds a mark at the end of the log, with the current version.
    fn mark(&mut self) {
        let sequence = self.log.end();
        // Of two marks at the same position, the one with the lower version serves more partners.
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

    /// The sequence number before which a replica of this version has every change; 0 if no mark shows it.
    fn sequence_of(&self, version: &VersionVector) -> u64 {
        let mark = self.marks.iter().rev().find(|mark| version.dominates(&mark.version));
        mark.map_or(0, |mark| mark.sequence)
    }

    /// Sets the partners; the versions of former partners are forgotten.
    pub fn set_partners(&mut self, partners: &[NodeId]) {
        self.partners.retain(|node, _| partners.contains(node));
        for &node in partners {
            self.partners.entry(node).or_default();
        }
        self.trim_log();
    }

    /// The nodes with which it exchanges, in ascending order.
    pub fn partners(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.partners.keys().copied()
    }

    /// Drops logged changes that all partners have, judging by the versions in their last questions.
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

    /// Empties the replica for the next generation. Bits of the old generation cannot return, because
    /// deltas carry their generation. The log starts over, under this number, and a window with the clock: a node
    /// that was started with a wrong one has advanced its window by it, and could not take that back otherwise.
    ///
    /// # Errors
    /// If the filter cannot be replicated. Nothing was changed then.
    pub fn clear(
        &mut self,
        generation: Generation,
        log: u64,
        empty: AnyFilter,
    ) -> Result<(), NotReplicable> {
        let partners: Vec<NodeId> = self.partners.keys().copied().collect();
        let ring = self.ring.map(|ring| ring.at(0, 0));
        *self = Self::new(ReplicaOptions { generation, log, ..self.options }, empty)?;
        self.ring = ring;
        self.set_partners(&partners);
        Ok(())
    }
}

fn entry_count_max(options: &ReplicaOptions) -> usize {
    (options.log_bytes_max / ENTRY_BYTES).min(DELTA_LOG_ENTRIES_MAX)
}

/// A probe as a log entry, with the same sort order.
const fn entry_of(probe: BlockProbe) -> u64 {
    probe.block << SEED_BITS | probe.seed as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is the seed")]
const fn probe_of(entry: u64) -> BlockProbe {
    BlockProbe { block: entry >> SEED_BITS, seed: entry as u32 }
}
