//! Partitioned or replicated: estimates what a filter costs either way, before it is created.
//!
//! n items are inserted once each and Q queries are made on K nodes; a repeated insert counts as a
//! query. The filter is blocked and has F bytes, in F/64 blocks of one cache line (Putze, Sanders &
//! Singler 2009, doi:10.1145/1498698.1594230; Bloom 1970, doi:10.1145/362686.362692). Only bytes that
//! travel between nodes count, on average:
//!
//! ```text
//!               partitioned, R replicas               replicated, sweeps of S items a node
//!  memory       F·R/K a node                          F a node
//!  an insert    (1 − 1/K)·(16 + 1/8) to the leader    its share of a sweep: every change comes to
//!               and back, 16·(R − 1) to its replicas  every other node once, 4 to 6 bytes each
//!  a question   (1 − 1/K)·(16 + 1/8)                  0
//! ```
//!
//! A hash takes 16 bytes and an answer one bit. The node that a client contacts is the shard's leader
//! with probability 1/K. In step i of a sweep over a cube of d dimensions, each of the 2^d corners
//! receives 2^i·S·K/2^d changes (all-to-all broadcast, Johnsson & Ho 1989, doi:10.1109/12.29465).
//! Each node beyond the corners sends its S changes and receives what it lacks, (K − 1)·S. A change
//! is coded as [`probes_bits`] says; the whole filter is sent where that is shorter.
//!
//! Both ways move the same number of bytes at Q* = n·(insert replicated − insert partitioned) /
//! question. With w bytes per change, Q*/n ≈ ((K − 1)·w − 16·(R − 1)) / (16·(1 − 1/K)) − 1.
//!
//! Not counted, because a whole batch or log entry shares it: confirming leadership, and headers of
//! calls and of log entries.

use thiserror::Error;
use umbel_codec::probes_bits;
use umbel_filter::{BlockShape, CreateError, HashRange, Kind};

use crate::hypercube::Cube;
use umbel_engine::limits::{
    FILTER_BYTES_MAX, NODE_COUNT_MAX, REPLICA_COUNT_MAX, REPLICATED_BYTES_MAX, SLICE_BYTES_MAX,
};
use umbel_engine::meta::Distribution;

#[cfg(test)]
mod distribution_test;

/// Bytes of a hash, both between nodes and in a log.
const HASH_BYTES: f64 = 16.0;

/// Bytes of one item's answer: one bit.
const ANSWER_BYTES: f64 = 1.0 / 8.0;

/// Bytes per node in a sweep's request: the node's number, and how many of its inserts the requester
/// has.
const KNOWN_NODE_BYTES: f64 = 16.0;

/// Bytes of a sweep's request and response besides versions and changes: about the headers of two
/// calls and of a frame.
const HEAD_BYTES: f64 = 100.0;

/// The parameters of a plan.
///
/// ```
/// use umbel_replicated_engine::distribution::DistributionInput;
///
/// let input = DistributionInput::new(1_000_000, 0.01, 4, 50_000);
/// assert_eq!((input.replica_count, input.sweep_item_count), (3, 10_000));
/// assert_eq!(input.node_memory_bytes, None);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DistributionInput {
    /// Number of distinct items that are inserted, n: at least 1.
    pub item_count: u64,
    /// Probability that an absent item is reported present once all items are inserted, p: above 0
    /// and below 1.
    pub false_positive_rate: f64,
    /// Nodes of the cluster, K: 1 to [`NODE_COUNT_MAX`].
    pub node_count: usize,
    /// Total number of queries, Q.
    pub query_count: u64,
    /// Replicas per shard of a partitioned filter, R: 1 to [`REPLICA_COUNT_MAX`].
    pub replica_count: u32,
    /// New items on each node between two sweeps of a replicated filter, S: at least 1.
    pub sweep_item_count: u64,
    /// Bytes of memory that a node has for the filter, at least 1; None for no limit.
    pub node_memory_bytes: Option<u64>,
}

impl DistributionInput {
    /// Three replicas, sweeps of 10,000 items per node, and no memory limit.
    #[must_use]
    pub const fn new(
        item_count: u64,
        false_positive_rate: f64,
        node_count: usize,
        query_count: u64,
    ) -> Self {
        Self {
            item_count,
            false_positive_rate,
            node_count,
            query_count,
            replica_count: 3,
            sweep_item_count: 10_000,
            node_memory_bytes: None,
        }
    }
}

/// The average cost of a filter, partitioned or replicated.
///
/// ```
/// use umbel_replicated_engine::distribution::{DistributionInput, DistributionPlan};
///
/// let plan = DistributionPlan::new(&DistributionInput::new(1_000_000, 0.01, 4, 0))?;
/// // Three of four questions go to another node: 3/4 of a round trip, and one to confirm the leader.
/// assert_eq!(plan.partitioned.query_round_trips, 1.75);
/// assert_eq!(plan.replicated.query_round_trips, 0.0);
/// # Ok::<(), umbel_replicated_engine::distribution::DistributionError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DistributionCost {
    /// Bytes of the filter in each node's memory.
    pub node_memory_bytes: u64,
    /// Bytes between nodes per insert.
    pub insert_bytes: f64,
    /// Bytes between nodes per query.
    pub query_bytes: f64,
    /// Bytes between nodes in total, for n inserts and Q queries.
    pub total_bytes: f64,
    /// Round trips between nodes until an insert is acknowledged: by a majority of the shard's
    /// replicas if partitioned, by the contacted node if replicated.
    pub insert_round_trips: f64,
    /// Round trips between nodes until a query is answered: linearizably if partitioned, by the
    /// contacted node if replicated.
    pub query_round_trips: f64,
}

impl DistributionCost {
    /// Bytes between nodes for this many inserts and queries.
    fn bytes(&self, item_count: f64, query_count: f64) -> f64 {
        item_count * self.insert_bytes + query_count * self.query_bytes
    }
}

/// The costs of both ways, and the advice.
///
/// ```
/// use umbel_replicated_engine::distribution::{DistributionAdvice, DistributionInput, DistributionPlan};
/// use umbel_engine::meta::Distribution;
///
/// let plan = DistributionPlan::new(&DistributionInput::new(1_000_000, 0.01, 4, 0))?;
/// // 3/4 of the inserts go to a leader elsewhere, 16 bytes and a bit; all to two more replicas.
/// assert_eq!(plan.partitioned.query_bytes, 0.75 * 16.125);
/// assert_eq!(plan.partitioned.insert_bytes, 0.75 * 16.125 + 32.0);
/// // Three other nodes learn of every change, for 32 bits of seed and 2 of gap each: 12.8 bytes.
/// assert!((plan.replicated.insert_bytes - 12.8).abs() < 0.1);
/// // Even without a question the replicated filter moves less.
/// assert_eq!(plan.break_even_query_count, Some(0.0));
/// assert_eq!(plan.advice, DistributionAdvice::ReplicatedMovesLess);
/// assert_eq!(plan.advice.distribution(), Distribution::Replicated);
/// # Ok::<(), umbel_replicated_engine::distribution::DistributionError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DistributionPlan {
    /// Shape of the whole filter.
    pub shape: BlockShape,
    /// Replicas per shard: the requested number, but at most the number of nodes.
    pub replica_count: u32,
    /// Smallest number of shards whose slices stay within `SLICE_BYTES_MAX`.
    pub shard_count_min: u64,
    /// New items on each node between two sweeps: the requested number, but at most n/K.
    pub sweep_item_count: u64,
    /// Steps of a sweep, about one round trip each, until every node has all changes from before the
    /// sweep.
    pub sweep_step_count: usize,
    /// Messages of a sweep, over all nodes.
    pub sweep_message_count: u64,
    /// Cost if partitioned, with answers confirmed by a majority.
    pub partitioned: DistributionCost,
    /// Cost if replicated, with answers at level `local`.
    pub replicated: DistributionCost,
    /// Number of queries at which both ways move the same number of bytes, Q*: 0 if replicated never
    /// moves more, None for a single node, where nothing travels.
    pub break_even_query_count: Option<f64>,
    /// The advised way, with its reason.
    pub advice: DistributionAdvice,
}

impl DistributionPlan {
    /// Calculates both ways.
    ///
    /// # Errors
    /// If a parameter is out of its range, or no filter holds so many items at this rate.
    pub fn new(input: &DistributionInput) -> Result<Self, DistributionError> {
        let (cube, shape) = check(input)?;
        let node_count = u64::from(cube.node_count());
        let replica_count = input.replica_count.min(cube.node_count());
        let sweep_item_count = input.sweep_item_count.min(input.item_count.div_ceil(node_count));
        let mut partitioned = partitioned(cube, shape, replica_count);
        let mut replicated = replicated(cube, shape, sweep_item_count);
        let (items, queries) = (input.item_count as f64, input.query_count as f64);
        for cost in [&mut partitioned, &mut replicated] {
            cost.total_bytes = cost.bytes(items, queries);
        }
        let difference = items * (replicated.insert_bytes - partitioned.insert_bytes);
        let break_even_query_count =
            (node_count > 1).then(|| (difference / partitioned.query_bytes).max(0.0));
        let moves_less = replicated.total_bytes < partitioned.total_bytes;
        Ok(Self {
            shape,
            replica_count,
            shard_count_min: shape.memory_bytes().div_ceil(SLICE_BYTES_MAX),
            sweep_item_count,
            sweep_step_count: cube.steps().count(),
            sweep_message_count: cube.message_count(),
            partitioned,
            replicated,
            break_even_query_count,
            advice: advice(input, shape.memory_bytes(), &partitioned, moves_less),
        })
    }
}

/// The advised distribution: memory decides first, then bytes between nodes. Neither accounts for one
/// guarantee that only partitioned filters give: exactly one insert of an item is answered `new`.
///
/// ```
/// use umbel_replicated_engine::distribution::DistributionAdvice;
/// use umbel_engine::meta::Distribution;
///
/// assert_eq!(DistributionAdvice::OneNode.distribution(), Distribution::Partitioned);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DistributionAdvice {
    /// Partitioned: on a single node nothing travels, and a partitioned filter guarantees more.
    OneNode,
    /// Partitioned: it moves fewer bytes, or equally many and guarantees more.
    PartitionedMovesLess,
    /// Replicated: it moves fewer bytes.
    ReplicatedMovesLess,
    /// Partitioned: a whole copy is larger than [`REPLICATED_BYTES_MAX`].
    CopyAboveLimit {
        /// Bytes of a copy.
        copy_bytes: u64,
    },
    /// Partitioned: a node's memory does not hold a whole copy.
    CopyAboveMemory {
        /// Bytes of a copy.
        copy_bytes: u64,
    },
    /// Partitioned, on more nodes: the memory of these nodes is too small either way.
    MoreNodes {
        /// Number of nodes whose memory suffices; may exceed [`NODE_COUNT_MAX`].
        node_count_min: u64,
    },
}

impl DistributionAdvice {
    /// The advised distribution, without the reason.
    #[must_use]
    pub const fn distribution(self) -> Distribution {
        match self {
            Self::ReplicatedMovesLess => Distribution::Replicated,
            _ => Distribution::Partitioned,
        }
    }
}

/// Why there is no plan. Correct the parameter that it names.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum DistributionError {
    /// Zero items.
    #[error("{item_count} items, expected at least 1")]
    ItemCount {
        /// The requested number.
        item_count: u64,
    },
    /// A rate of 0 needs infinite memory, a rate of 1 none; choose one in between.
    #[error("false-positive rate {false_positive_rate}, expected one above 0 and below 1")]
    Rate {
        /// The requested rate.
        false_positive_rate: f64,
    },
    /// More nodes than a cluster may have, or none.
    #[error("{node_count} nodes, expected 1 to {NODE_COUNT_MAX}")]
    NodeCount {
        /// The requested number.
        node_count: usize,
    },
    /// More replicas than a shard may have, or none.
    #[error("{replica_count} replicas, expected 1 to {REPLICA_COUNT_MAX}")]
    ReplicaCount {
        /// The requested number.
        replica_count: u32,
    },
    /// Zero items between two sweeps: such a sweep would cost nothing per item.
    #[error("{sweep_item_count} items between two sweeps, expected at least 1")]
    SweepItemCount {
        /// The requested number.
        sweep_item_count: u64,
    },
    /// A node without memory holds no filter.
    #[error("{node_memory_bytes} bytes of memory a node, expected at least 1")]
    NodeMemory {
        /// The requested number.
        node_memory_bytes: u64,
    },
    /// No blocked filter has this rate, or holds so many items.
    #[error("no such filter")]
    Shape {
        /// Why the filter cannot be created.
        #[source]
        source: CreateError,
    },
    /// The filter exceeds the largest size: plan for fewer items or a higher rate.
    #[error("a filter of {filter_bytes} bytes, expected at most {FILTER_BYTES_MAX}")]
    FilterBytes {
        /// The filter's size.
        filter_bytes: u64,
    },
}

/// Checks all parameters, and returns the cube of the nodes and the shape of the filter.
fn check(input: &DistributionInput) -> Result<(Cube, BlockShape), DistributionError> {
    let &DistributionInput { item_count, false_positive_rate, node_count, .. } = input;
    let &DistributionInput { replica_count, sweep_item_count, node_memory_bytes, .. } = input;
    if item_count == 0 {
        return Err(DistributionError::ItemCount { item_count });
    }
    // Written so that NaN fails.
    let is_rate = false_positive_rate > 0.0 && false_positive_rate < 1.0;
    if !is_rate {
        return Err(DistributionError::Rate { false_positive_rate });
    }
    if replica_count == 0 || replica_count > REPLICA_COUNT_MAX {
        return Err(DistributionError::ReplicaCount { replica_count });
    }
    if sweep_item_count == 0 {
        return Err(DistributionError::SweepItemCount { sweep_item_count });
    }
    if let Some(node_memory_bytes @ 0) = node_memory_bytes {
        return Err(DistributionError::NodeMemory { node_memory_bytes });
    }
    let cube = Cube::new(node_count).ok().filter(|_| node_count <= NODE_COUNT_MAX);
    let cube = cube.ok_or(DistributionError::NodeCount { node_count })?;
    let (kind, whole) = (Kind::Blocked, HashRange::WHOLE);
    let shape = BlockShape::for_rate(kind, whole, item_count, false_positive_rate)
        .map_err(|source| DistributionError::Shape { source })?;
    let filter_bytes = shape.memory_bytes();
    if filter_bytes > FILTER_BYTES_MAX {
        return Err(DistributionError::FilterBytes { filter_bytes });
    }
    Ok((cube, shape))
}

/// The cost if partitioned, without the total.
fn partitioned(cube: Cube, shape: BlockShape, replica_count: u32) -> DistributionCost {
    let elsewhere = 1.0 - f64::from(cube.node_count()).recip();
    let query_bytes = elsewhere * (HASH_BYTES + ANSWER_BYTES);
    // A leader without followers needs no round trip.
    let majority_round_trips = f64::from(u8::from(replica_count > 1));
    let all_bytes = shape.memory_bytes() * u64::from(replica_count);
    DistributionCost {
        node_memory_bytes: all_bytes.div_ceil(cube.node_count().into()),
        insert_bytes: query_bytes + HASH_BYTES * f64::from(replica_count - 1),
        query_bytes,
        total_bytes: 0.0,
        insert_round_trips: elsewhere + majority_round_trips,
        query_round_trips: elsewhere + majority_round_trips,
    }
}

/// The cost if replicated, without the total.
fn replicated(cube: Cube, shape: BlockShape, sweep_item_count: u64) -> DistributionCost {
    let messages = sweep_messages(cube, sweep_item_count);
    let delta_bytes: f64 = messages
        .map(|(message_count, change_count)| {
            f64::from(message_count) * delta_bytes(shape, change_count)
        })
        .sum();
    let node_count = f64::from(cube.node_count());
    let envelope_bytes = KNOWN_NODE_BYTES * node_count + HEAD_BYTES;
    let sweep_bytes = delta_bytes + envelope_bytes * cube.message_count() as f64;
    DistributionCost {
        node_memory_bytes: shape.memory_bytes(),
        insert_bytes: sweep_bytes / (node_count * sweep_item_count as f64),
        query_bytes: 0.0,
        total_bytes: 0.0,
        insert_round_trips: 0.0,
        query_round_trips: 0.0,
    }
}

/// For each step of a sweep, the number of messages and the number of changes that each lists.
fn sweep_messages(cube: Cube, sweep_item_count: u64) -> impl Iterator<Item = (u32, f64)> {
    let items = sweep_item_count as f64;
    let corner_items = items * f64::from(cube.node_count()) / f64::from(cube.corner_count());
    let across = (0..cube.dimension_count())
        .map(move |dimension| (cube.corner_count(), corner_items * f64::from(1_u32 << dimension)));
    let others_items = items * f64::from(cube.node_count() - 1);
    let hands = [items, others_items].map(|changes| (cube.beyond_count(), changes));
    across.chain(hands)
}

/// Bytes to send so many changes: as a list, or as the whole filter if that is shorter.
fn delta_bytes(shape: BlockShape, change_count: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
    let whole_changes = (change_count.round() as u64).max(1);
    let change_bits = probes_bits(shape.map().len(), whole_changes) / whole_changes as f64;
    (change_count * change_bits / 8.0).min(shape.memory_bytes() as f64)
}

fn advice(
    input: &DistributionInput,
    copy_bytes: u64,
    partitioned: &DistributionCost,
    replicated_moves_less: bool,
) -> DistributionAdvice {
    let memory_bytes = input.node_memory_bytes.unwrap_or(u64::MAX);
    if partitioned.node_memory_bytes > memory_bytes {
        // So a whole copy exceeds the memory, too, and there will be more nodes than replicas.
        let all_bytes = copy_bytes * u64::from(input.replica_count);
        DistributionAdvice::MoreNodes { node_count_min: all_bytes.div_ceil(memory_bytes) }
    } else if copy_bytes > REPLICATED_BYTES_MAX {
        DistributionAdvice::CopyAboveLimit { copy_bytes }
    } else if copy_bytes > memory_bytes {
        DistributionAdvice::CopyAboveMemory { copy_bytes }
    } else if input.node_count == 1 {
        DistributionAdvice::OneNode
    } else if replicated_moves_less {
        DistributionAdvice::ReplicatedMovesLess
    } else {
        DistributionAdvice::PartitionedMovesLess
    }
}
