//! The samples of all nodes, as one node has them, so that every node can estimate counts for the whole
//! cluster.
//!
//! Every node samples the items that clients insert on *it*, and only that node's inserts change its
//! sample. Samples travel like bits: a question states, for every node, the insert count at which the
//! asking node has that node's sample, and the answer has the hashes that entered the sample later. Any
//! node that has them can answer.
//!
//! ```text
//!           asks: node 1 at 40, node 2 at 17
//!  node 2 ─────────────────────────────────► node 3      holds node 1 at 52, node 2 at 17
//!         ◄─────────────────────────────────
//!           node 1 from 40 to 52: h, h'
//! ```
//!
//! *Bytes.* A hash is sent to a node once, or again if two partners' answers overlap, with at most 24 bytes
//! of counts per sample. Of n distinct items, about k·(1 + ln(n/k)) change a sample: 15,000 of 10^9 at k =
//! 1,024. So updates need not be held back, and forwarded samples are as fresh as on their last hop: after
//! a whole sweep, all nodes have everything that was there when it began. A node whose sample nobody lacks
//! is left out of answers, however many repeats it has counted.
//!
//! *Law.* A table that has a node's sample at count c has the sample of that node's first c inserts,
//! whatever was lost, repeated or reordered in transit. So all tables that have received everything are
//! equal.
//!
//! *Loss.* A node that lost its table gets its own sample back from the others. It continues counting above
//! the count that they have, and sends everything again.

use std::collections::BTreeMap;

use thiserror::Error;
use umbel_filter::ItemHash;

use self::dated_sample::DatedSample;
use super::distinct_sample::{DistinctCount, DistinctSample};
use super::version_vector::VersionVector;
use crate::limits::{OVERLAP_NODES_MAX, VERSION_NODES_MAX};
use umbel_engine::NodeId;

mod bytes;
#[cfg(test)]
mod bytes_test;
mod dated_sample;
#[cfg(test)]
mod table_test;

pub use bytes::SampleTableBytesError;

/// The hashes that entered a node's sample between two counts of its inserts.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_replicated_engine::hypercube::NodeSample;
///
/// let hashes = [5, 9].into_iter().collect();
/// let sample = NodeSample { node: NodeId(1), since: 40, count: 52, hashes };
/// assert_eq!(sample.wire_bytes(), 3 * 8 + 2 * 8);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSample {
    /// The node.
    pub node: NodeId,
    /// The count at which the receiver must already have the sample; 0 for a complete sample.
    pub since: u64,
    /// The count at which the receiver has the sample after merging.
    pub count: u64,
    /// The hashes that entered the sample.
    pub hashes: DistinctSample,
}

impl NodeSample {
    /// Bytes that it takes in an answer, at most.
    #[must_use]
    pub const fn wire_bytes(&self) -> usize {
        size_of::<u64>() * (3 + self.hashes.len())
    }
}

/// Why a sample was refused. Nothing was changed; the sender has a bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TakeError {
    /// The counts do not ascend.
    #[error("a sample of {node} from count {since} to {count}, expected a rise")]
    Counts {
        /// The node.
        node: NodeId,
        /// The stated count before.
        since: u64,
        /// The stated count after.
        count: u64,
    },
    /// There would be samples of more nodes than a cluster can have.
    #[error("a sample of {node}, beside those of {node_count}, at most {VERSION_NODES_MAX}")]
    TooManyNodes {
        /// The node.
        node: NodeId,
        /// Number of nodes whose samples the table has.
        node_count: usize,
    },
}

/// Numbers of distinct items in the cluster, estimated from one table.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_replicated_engine::hypercube::SampleTable;
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
    /// Distinct items inserted on any node.
    pub union: DistinctCount,
    /// Distinct items inserted on each node, in ascending order of nodes.
    pub nodes: Vec<(NodeId, DistinctCount)>,
    /// The overlap of each pair of nodes, in ascending order; empty if there are more than
    /// [`OVERLAP_NODES_MAX`] nodes. Single pairs are available from [`SampleTable::overlap`].
    pub overlaps: Vec<PairOverlap>,
}

/// The distinct items that were inserted on both of two nodes.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_replicated_engine::hypercube::{DistinctCount, PairOverlap};
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
    /// The number of items.
    pub items: DistinctCount,
}

/// The samples of all nodes, as one node has them, for one generation of one filter.
///
/// ```
/// use umbel_engine::NodeId;
/// use umbel_replicated_engine::hypercube::SampleTable;
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
/// # Ok::<(), umbel_replicated_engine::hypercube::TakeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SampleTable {
    node: NodeId,
    /// Number of items inserted on this node, including repeats.
    own_count: u64,
    /// By node, only those with a count above 0; at most [`VERSION_NODES_MAX`].
    samples: BTreeMap<NodeId, DatedSample>,
}

/// Tables are equal if they have the same samples of the same nodes. What they would send to a node may
/// still differ.
impl PartialEq for SampleTable {
    fn eq(&self, other: &Self) -> bool {
        (self.node, self.own_count) == (other.node, other.own_count)
            && self.samples().eq(other.samples())
    }
}

impl SampleTable {
    /// The empty table of a node.
    #[must_use]
    pub const fn new(node: NodeId) -> Self {
        Self { node, own_count: 0, samples: BTreeMap::new() }
    }

    /// The node that has this table.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Number of items inserted on this node, including repeats.
    #[must_use]
    pub const fn own_count(&self) -> u64 {
        self.own_count
    }

    /// All samples, in ascending order of nodes, each with the count at which it last changed.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = (NodeId, u64, &DistinctSample)> + '_ {
        self.samples.iter().map(|(&node, dated)| (node, dated.count(), dated.sample()))
    }

    /// Counts items that a client inserted on this node, whether or not they were new to the filter.
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

    /// The counts for a question: at which count this table has each sample.
    #[must_use]
    pub fn counts(&self) -> VersionVector {
        let others = self.samples().map(|(node, count, _)| (node, count));
        others.chain([(self.node, self.own_count)]).collect()
    }

    /// The samples for an answer: what a node lacks that has the samples at these counts.
    ///
    /// In ascending order of nodes, at most `bytes_max` [bytes](NodeSample::wire_bytes), but at least one
    /// sample if there is any. A repeated question gets the next ones. All samples of a cluster at k =
    /// 1,024 take 8 KiB per node.
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

    /// Merges one sample of an answer, and returns whether it was news. Ignores a sample that this table
    /// already has, and one that starts above the table's count: the next question asks for the part
    /// between.
    ///
    /// # Errors
    /// If no table can have sent it. Nothing was changed then.
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
        // Room is reserved for the own sample even while it is empty.
        let has_own = self.samples.contains_key(&self.node);
        let node_count = self.samples.len() + usize::from(!has_own && !is_own);
        if node_count >= VERSION_NODES_MAX && !self.samples.contains_key(&node) {
            return Err(TakeError::TooManyNodes { node, node_count });
        }
        let dated = self.samples.entry(node).or_default();
        dated.merge(hashes, count);
        if is_own {
            // This node had lost its count, and may have used counts twice since.
            self.own_count = count.saturating_add(1);
            dated.redate(self.own_count);
        }
        Ok(true)
    }

    /// Drops everything, for the filter's next generation. The caller must not merge samples of the old
    /// generation afterwards: samples do not carry a generation, but the messages that carry them do.
    pub fn clear(&mut self) {
        *self = Self::new(self.node);
    }

    /// The number of distinct items that were inserted on both of two nodes.
    #[must_use]
    pub fn overlap(&self, one: NodeId, other: NodeId) -> DistinctCount {
        let empty = DistinctSample::new();
        let sample = |node| self.samples.get(&node).map_or(&empty, DatedSample::sample);
        sample(one).overlap(sample(other))
    }

    /// The numbers of distinct items: inserted anywhere, on each node, and on both of each pair of nodes.
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
