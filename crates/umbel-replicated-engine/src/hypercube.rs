//! Replicated filters: every node holds the whole filter, and changes travel along the dimensions of a
//! hypercube until all nodes have all of them.
//!
//! ```text
//!      6───────7      topology         who is paired with whom in which step of a sweep
//!     /│      /│      sweeper          when this node does its next step
//!    4───────5 │      replica          one replica: bits, log of changes, questions and answers
//!    │ 2─────│─3      delta            what one replica asks another, and the answer
//!    │/      │/       version_vector   how much of each node's inserts a replica has
//!    0───────1        coverage         which inserts the bits of a replica are of
//!                     distinct_sample  how many different items a node has inserted, about
//!                     sample_table     the same of all nodes, their union and their overlaps
//! ```
//!
//! The OR of filters is idempotent, commutative, associative and monotone (Bloom 1970,
//! doi:10.1145/362686.362692, for the filter), so deltas may be lost, repeated and reordered. Deltas
//! stay small because each replica keeps a log of changes and each requester sends its version vector
//! (delta-state replication: Almeida, Shoker & Baquero 2018, doi:10.1016/j.jpdc.2017.08.003).

mod coverage;
mod delta;
mod delta_log;
mod distinct_sample;
mod replica;
mod sample_table;
mod sweeper;
mod topology;
mod version_vector;

pub use coverage::Coverage;
pub use delta::{Delta, DeltaContent, DeltaError, DeltaQuestion};
pub use distinct_sample::{DistinctCount, DistinctSample, SampleBytesError};
pub use replica::{
    ChangeReader, ComparedError, DeltaReply, ListedChanges, NotReplicable, ReadChanges, Replica,
    ReplicaOptions,
};
pub use sample_table::{
    DistinctEstimates, NodeSample, PairOverlap, SampleTable, SampleTableBytesError, TakeError,
};
pub use sweeper::{Members, SweepError, SweepInput, SweepOutput, Sweeper};
pub use topology::{Cube, CubeRank, CubeSizeOutOfRange, Pairing, Step};
pub use version_vector::VersionVector;
