//! What a node holds of all nodes' samples, so that any node can estimate for the whole cluster.
//!
//! Every node samples the items that clients insert on *it*, and no other node changes that sample.
//! It travels as bits do: whoever asks says of every node at which count of inserts it has its sample,
//! and gets the hashes that came into it later, from whoever has them.
//!
//! ```text
//!           asks: node 1 at 40, node 2 at 17
//!  node 2 ─────────────────────────────────► node 3      holds node 1 at 52, node 2 at 17
//!         ◄─────────────────────────────────
//!           node 1 from 40 to 52: h, h'
//! ```
//!
//! *Bytes.* A hash travels to a node once, or again if two partners' answers overlap, and comes with at
//! most 24 bytes of numbers. Of n different items about k·(1 + ln(n/k)) change a sample: 15,000 of
//! 10^9 at k = 1,024. So samples need not be held back until they have grown by some share, and what
//! is forwarded is never staler than its last hop: after a whole sweep all have what was there when it
//! began. A node of which nobody lacks a hash is not spoken of, however many repeats it has counted.
//!
//! *Law.* A table that has a node at count c holds the sample of that node's first c inserts, whatever
//! was lost, repeated or reordered on the way. So all tables that learned of everything are equal.
//!
//! *Loss.* A node that has lost its table gets its own sample back from the others. It counts on from
//! beyond what they know, and sends everything again.

use std::collections::BTreeMap;

use thiserror::Error;
use umbel_filter::ItemHash;

use self::dated_sample::DatedSample;
use super::distinct_sample::{DistinctCount, DistinctSample};
use super::version_vector::VersionVector;
use crate::ids::NodeId;
use crate::limits::{OVERLAP_NODES_MAX, VERSION_NODES_MAX};

mod bytes;
#[cfg(test)]
mod bytes_test;
mod dated_sample;
#[cfg(test)]
mod table_test;

pub use bytes::SampleTableBytesError;

/// What came into a node's sample between two counts of its inserts.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::hypercube::NodeSample;
///
/// let hashes = [5, 9].into_iter().collect();
/// let sample = NodeSample { node: NodeId(1), since: 40, count: 52, hashes };
/// assert_eq!(sample.wire_bytes(), 3 * 8 + 2 * 8);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSample {
    /// The node.
    pub node: NodeId,
    /// The count at which whoever merges this must have the sample already, 0 for a whole one.
    pub since: u64,
    /// The count at which it has the sample then.
    pub count: u64,
    /// What came in.
    pub hashes: DistinctSample,
}

impl NodeSample {
    /// Bytes that it takes in an answer, at most.
    #[must_use]
    pub const fn wire_bytes(&self) -> usize {
        size_of::<u64>() * (3 + self.hashes.len())
    }
}

/// Why a sample was not taken. Nothing was changed; the sender has a bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TakeError {
    /// The counts do not rise.
    #[error("a sample of {node} from count {since} to {count}, expected a rise")]
    Counts {
        /// The node.
        node: NodeId,
        /// Where the sample begins.
        since: u64,
        /// Where it ends.
        count: u64,
    },
    /// No cluster has so many nodes.
    #[error("a sample of {node}, beside those of {node_count}, at most {VERSION_NODES_MAX}")]
    TooManyNodes {
        /// The node.
        node: NodeId,
        /// Number of nodes of which there are samples.
        node_count: usize,
    },
}

/// Different items of the cluster, as far as a table tells.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::hypercube::SampleTable;
/// use umbel_filter::ItemHash;
///
/// let mut table = SampleTable::new(NodeId(1));
/// table.insert(&[ItemHash::new(0, 5), ItemHash::new(0, 7), ItemHash::new(0, 5)]);
/// let estimates = table.estimates();
/// assert_eq!((estimates.union.count, estimates.nodes.len()), (2.0, 1));
/// assert!(estimates.overlaps.is_empty());
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct DistinctEstimates {
    /// Different items that were inserted anywhere.
    pub union: DistinctCount,
    /// Different items that were inserted on each node, by rising node.
    pub nodes: Vec<(NodeId, DistinctCount)>,
    /// Of each pair of nodes, by rising first and second; empty if there are more than
    /// [`OVERLAP_NODES_MAX`] nodes. Ask [`SampleTable::overlap`] of single pairs then.
    pub overlaps: Vec<PairOverlap>,
}

/// Different items that were inserted on both of two nodes.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::hypercube::{DistinctCount, PairOverlap};
///
/// let items = DistinctCount { count: 3.0, standard_error: 0.0 };
/// let overlap = PairOverlap { one: NodeId(1), other: NodeId(2), items };
/// assert!(overlap.one < overlap.other && overlap.items.is_exact());
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PairOverlap {
    /// The node with the lower number.
    pub one: NodeId,
    /// The other node.
    pub other: NodeId,
    /// Number of items.
    pub items: DistinctCount,
}

/// The samples of all nodes, as one node has them, for one generation of one filter.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_engine::hypercube::SampleTable;
/// use umbel_filter::ItemHash;
///
/// let (mut one, mut two) = (SampleTable::new(NodeId(1)), SampleTable::new(NodeId(2)));
/// one.insert(&[ItemHash::new(0, 5), ItemHash::new(0, 7)]);
/// two.insert(&[ItemHash::new(0, 7)]);
/// // Node 2 asks node 1, which has two hashes that node 2 lacks.
/// for sample in one.newer_than(&two.counts(), 1 << 20) {
///     assert!(two.take(&sample)?);
/// }
/// assert_eq!(two.estimates().union.count, 2.0);
/// assert_eq!(two.overlap(NodeId(1), NodeId(2)).count, 1.0);
/// assert!(one.newer_than(&two.counts(), 1 << 20).is_empty());
/// # Ok::<(), umbel_engine::hypercube::TakeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SampleTable {
    node: NodeId,
    /// Number of items that were inserted on this node.
    own_count: u64,
    /// By node, those with a count above 0; at most [`VERSION_NODES_MAX`].
    samples: BTreeMap<NodeId, DatedSample>,
}

/// Tables are equal if they hold the same of the same node; what each would send to a node that asks may be more
/// in one than in the other.
impl PartialEq for SampleTable {
    fn eq(&self, other: &Self) -> bool {
        (self.node, self.own_count) == (other.node, other.own_count)
            && self.samples().eq(other.samples())
    }
}

impl SampleTable {
    /// The table of a node that knows of nothing.
    #[must_use]
    pub const fn new(node: NodeId) -> Self {
        Self { node, own_count: 0, samples: BTreeMap::new() }
    }

    /// Whose table it is.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Number of items that were inserted on this node, repeats too.
    #[must_use]
    pub const fn own_count(&self) -> u64 {
        self.own_count
    }

    /// The nodes of which there are samples, with the counts at which these changed last, by rising
    /// node.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = (NodeId, u64, &DistinctSample)> + '_ {
        self.samples.iter().map(|(&node, dated)| (node, dated.count(), dated.sample()))
    }

    /// Counts items that a client has inserted on this node, new to the filter or not.
    pub fn insert(&mut self, hashes: &[ItemHash]) {
        if hashes.is_empty() {
            return;
        }
        let own = self.samples.entry(self.node).or_default();
        let mut reach = own.reach();
        for (place, hash) in (1..).zip(hashes) {
            if hash.lo() <= reach {
                own.insert(hash.lo(), self.own_count.saturating_add(place));
                reach = own.reach();
            }
        }
        self.own_count = self.own_count.saturating_add(hashes.len() as u64);
    }

    /// What a question says: at which counts this table has the samples.
    #[must_use]
    pub fn counts(&self) -> VersionVector {
        let others = self.samples().map(|(node, count, _)| (node, count));
        others.chain([(self.node, self.own_count)]).collect()
    }

    /// What the answer to a question says: what an asker lacks that has the samples at these counts.
    ///
    /// At most `bytes_max` [bytes](NodeSample::wire_bytes), but always one sample if there is one, by
    /// rising node; who asks again gets more. Room for all samples of a cluster at k = 1,024 is 8 KiB
    /// a node.
    #[must_use]
    pub fn newer_than(&self, counts: &VersionVector, bytes_max: usize) -> Vec<NodeSample> {
        let mut answer = Vec::new();
        let mut bytes = 0;
        for (&node, dated) in &self.samples {
            let since = counts.of(node);
            if dated.count() <= since {
                continue;
            }
            let sample =
                NodeSample { node, since, count: dated.count(), hashes: dated.since(since) };
            bytes += sample.wire_bytes();
            if bytes > bytes_max && !answer.is_empty() {
                break;
            }
            answer.push(sample);
        }
        answer
    }

    /// Merges an answer, and returns whether that was news. What this table has already is
    /// left, and so is what begins beyond it: the next question asks for what lies between.
    ///
    /// # Errors
    /// If no table says so. Nothing was changed.
    pub fn take(&mut self, sample: &NodeSample) -> Result<bool, TakeError> {
        let NodeSample { node, since, count, ref hashes } = *sample;
        if since >= count {
            return Err(TakeError::Counts { node, since, count });
        }
        let is_own = node == self.node;
        let ours = if is_own {
            self.own_count
        } else {
            self.samples.get(&node).map_or(0, DatedSample::count)
        };
        if count <= ours || since > ours {
            return Ok(false);
        }
        // The own sample has a place though it is empty.
        let has_own = self.samples.contains_key(&self.node);
        let node_count = self.samples.len() + usize::from(!has_own && !is_own);
        if node_count >= VERSION_NODES_MAX && !self.samples.contains_key(&node) {
            return Err(TakeError::TooManyNodes { node, node_count });
        }
        let dated = self.samples.entry(node).or_default();
        dated.merge(hashes, count);
        if is_own {
            // This node had lost its count, and may have given numbers twice since.
            self.own_count = count.saturating_add(1);
            dated.redate(self.own_count);
        }
        Ok(true)
    }

    /// Forgets the samples of all other nodes but these. The items of those that have left are still
    /// in the filter, but no longer in any estimate; who has not forgotten them gives them back.
    pub fn retain(&mut self, nodes: &[NodeId]) {
        self.samples.retain(|node, _| *node == self.node || nodes.contains(node));
    }

    /// Forgets everything, for the filter's next generation. Nothing of the old one may be taken
    /// after that: samples do not name theirs, but the messages that they travel in do.
    pub fn clear(&mut self) {
        *self = Self::new(self.node);
    }

    /// How many different items were inserted on both of two nodes.
    #[must_use]
    pub fn overlap(&self, one: NodeId, other: NodeId) -> DistinctCount {
        let empty = DistinctSample::new();
        let sample = |node| self.samples.get(&node).map_or(&empty, DatedSample::sample);
        sample(one).overlap(sample(other))
    }

    /// How many different items were inserted, anywhere, on each node, and on both of each pair.
    #[must_use]
    pub fn estimates(&self) -> DistinctEstimates {
        let union = DistinctSample::union_of(self.samples().map(|(_, _, sample)| sample)).count();
        let nodes = self.samples().map(|(node, _, sample)| (node, sample.count())).collect();
        let mut overlaps = Vec::new();
        if self.samples.len() <= OVERLAP_NODES_MAX {
            for (place, (one, _, ours)) in self.samples().enumerate() {
                overlaps.extend(self.samples().skip(place + 1).map(|(other, _, theirs)| {
                    PairOverlap { one, other, items: ours.overlap(theirs) }
                }));
            }
        }
        DistinctEstimates { union, nodes, overlaps }
    }
}
